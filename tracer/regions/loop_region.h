/// A loop of bytecode as a region (graph_ir/region/region.h), and what the region's numbers mean in the frame.
///
/// The builder runs the loop's instructions on what is known of each slot and stack entry: a number in a register, an
/// array that the frame holds, an object that stays as it is. Types are those of the live frame at the loop's header. A
/// block begins where the code jumps to, once for each combination of types that comes there, so that a variable may be
/// another type in the first pass than later. What the builder doesn't know is an exit: everything before has happened,
/// CPython runs that instruction, and the region is entered again at the next header.
///
/// Python's rules are kept by exits: an int that needs more than 64 bits, a divisor of zero, an index out of range, a
/// NumPy scalar whose operation would warn leave before their instruction, which CPython then runs and reports.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/ref.h"
#include "graph_ir/region/independence.h"
#include "graph_ir/region/region.h"
#include "guards/source.h"
#include "tracer/interpreter/loops.h"

namespace fj {

/// Which type of Python's a number has.
enum class Boxing : std::uint8_t { Int, Float, Bool, Numpy };

/// Objects of the frame have places: its slots, then its stack, then what is reached from those or by a global name.
struct ReachedPlace {
  enum class How : std::uint8_t {
    Cell,        // the contents of the cell at `from`
    Iterated,    // what the iterator at `from` goes through: number `index` of them
    Attribute,   // of the object at `from`: see RegionGuard
    Global,      // likewise, the global variable
  };
  How how;
  int from;      // -1: none
  int index = 0;
};

/// What the region is given, in the order of its inputs.
struct RegionInput {
  enum class Kind : std::uint8_t {
    Number,      // the number at `place`; of a complex number its real part
    Imaginary,   // the other part
    Size,        // of an axis of the array there
    Stride,      // in elements
    Position,    // of the iterator there: the next number of a range, the next index of an array, enumerate's count
    End,         // of the range iterator there: the first number it does not reach
    Address,     // of the object there, in words of 8 bytes
    Passes,      // how many have been counted: 0, or few where it may run long without being left
  };
  Kind kind;
  int place;
  int axis = 0;
};

/// What a slot or stack entry holds where the region is left.
struct Holding {
  enum class Kind : std::uint8_t {
    Kept,     // the object that is at `place`
    Empty,    // unbound, or the NULL of a call
    Object,   // `object`
    Number,   // made of value number `value` of the exit
    Complex,  // of that and the next
    Range,  // range(start, end, step), by two values, and a third where the step is 0; `iterates`: an iterator over it (nobody else holds the frame's own)
    Items,  // an iterator over items[0], at the index `value`
    Enumerate,  // over items[0], with the count `value`
    Zip,        // over the items
    Tuple,      // of the items
    Slice,      // likewise
    Fresh,      // an array at the address `value`; then its sizes
    Pointer,    // the object at the address `value`, in words
    View,       // of items[0]: the element it begins at, then size and stride of each axis. Those of one value of
                // items[1], if there is one, are one object. `unbound`: as unbind makes it
    TensorNumber,  // torch's, without axes, made of value number `value`
  };
  Kind kind = Kind::Kept;
  int place = -1;       // Kept
  Ref<> object;
  Boxing boxing = Boxing::Int;
  DType dtype = DType::I64;  // Number
  int value = -1;
  std::int64_t step = 1;
  bool iterates = false;
  bool unbound = false;
  int rank = 0;         // Fresh, View; with `dtype`, as TensorNumber
  std::vector<Holding> items;
};

struct RegionExit {
  struct Stored {
    int owner;       // place of the object
    Ref<> name;      // of its attribute
    Holding value;
  };
  struct Written {
    int tensor;      // its place
    int times;       // value number
  };
  /// A function that has been called, has stored something, and has not returned.
  struct Called {
    std::shared_ptr<const FjCode> code;
    int instruction;
    std::vector<Holding> places;
  };
  int instruction;                // the call, where `called` has any
  std::vector<Holding> places;  // the slots, then the stack
  std::vector<Called> called{};   // each by the one before it, the first by the loop's function
  std::vector<Stored> stored{};   // attributes that the region has given new values
  std::vector<Written> written{};
};

/// What has to hold of the frame for the region to be entered; else another region is made for what there is.
struct RegionGuard {
  enum class Kind : std::uint8_t {
    Number,      // at `place`: of this type
    Complex,     // Python's
    Array,       // at `place`: of this dtype and rank; `writes`: it can be written
    Tensor,      // likewise of torch, without a gradient; `keys`: which of its functions torch calls
    Unbound,     // nothing is at `place`
    Bound,       // something is
    Range,       // an iterator over a range at `place`, which nothing else holds, with this step
    Items,       // likewise one over an array
    Enumerate,
    Zip,         // over as many iterators as `rank` says
    Rows,        // likewise one over a tuple of the rows of a tensor, which comes to the place that it reaches
    Bytes,       // bytes at `place`
    List,        // a list; `ends`: of numbers and None, whose end nobody sees
    Cell,        // a cell with contents
    Function,    // `object` has the code `value` and the defaults `names`
    Name,        // `object` is `value` in the dict `names`; no value: it isn't there
    Global,      // what the global variable `object` of the namespace `names` holds comes to `place`
    Attribute,   // the object at `owner` is of the class `value`, which has no attribute `object`; what the object has
                 // itself by that name comes to `place`
    Method,      // it is of the class `value`, and its attribute `object` is the method that the function `names` makes
    Same,        // the object at `place` is `value`
  };
  Kind kind;
  int place = -1;
  int owner = -1;
  Boxing boxing = Boxing::Int;
  DType dtype = DType::I64;
  int rank = 0;
  bool writes = false;  // Attribute: it is stored
  bool dense = false;   // Array: the last axis has stride 1
  bool ends = false;    // Array, List: nobody sees when it ends (ends_unseen)
  bool natural = false; // of iterators: the position is not negative
  std::int64_t step = 1;
  std::uint64_t keys = 0;
  Ref<> names, object, value;

  /// Both are of attributes by one name, of objects at two places, which may be one object.
  bool is_alias_of(const RegionGuard& other) const {
    return kind == Kind::Attribute && other.kind == Kind::Attribute && owner != other.owner &&
           object.get() == other.object.get();
  }
};

/// How several threads run stretches of the passes.
struct PassThreads {
  struct GatheredSlot {
    int slot;
    int input;  // of the region, that is its number at first
    region::Gathered how;
  };
  std::string why;              // not empty: they can't, and why
  int header = -1;              // the instruction before which a pass begins
  int place = -1;               // of the range iterator
  std::int64_t step = 1;
  bool is_light = false;        // a pass has no loop and calls no function of the region library
  bool gathers_floats = false;  // how they are added up is to be the same in each run
  std::vector<GatheredSlot> gathered;
  std::vector<char> stored;     // by memory: elements of it are
  std::vector<std::optional<region::OwnElements>> rewritten;  // likewise, and read: a pass can't be run again
};

struct LoopRegion {
  region::Region region;
  std::vector<RegionInput> inputs;
  std::vector<int> memories;    // by memory: the place of its array; -1: it is the heap
  std::vector<ReachedPlace> reached;
  std::vector<RegionExit> exits;  // the first value of each is the number of passes that were made
  std::vector<int> ends;          // the exits behind the last pass
  std::vector<RegionGuard> guards;
  std::optional<PassThreads> threads;  // the loop is over framejit.prange
  /// What is left to CPython, by line, in words.
  std::vector<std::pair<int, std::string>> unknown;
  std::int64_t elements = 0;    // of the largest array operation, where it was built
  bool has_lists = false;       // which it works on where they are: it keeps the GIL
  bool has_tensors = false;     // nothing may be at work that gives torch's operations another meaning
  int calls = 0;                // of Python functions within one another, at most
};


/// Operations on more elements are kernels that several threads run: they stay pieces of a pass.
inline constexpr std::int64_t kMostElements = 1 << 18;

/// Everything that is known of one object of the frame by asking it; nothing is changed.
struct IteratorState {
  enum class Kind : std::uint8_t { None, Range, Items, Enumerate, Zip, Rows } kind = Kind::None;
  std::int64_t position = 0, end = 0, step = 1;
  PyObject* over = nullptr;  // what it goes through (borrowed); of zip a tuple

  std::size_t count() const { return kind == Kind::Zip ? std::size_t(PyTuple_GET_SIZE(over)) : 1; }
  PyObject* item(std::size_t i) const { return kind == Kind::Zip ? PyTuple_GET_ITEM(over, Py_ssize_t(i)) : over; }
};
IteratorState read_iterator(PyObject* object);

/// What the object itself has by this name, where it is of the class `type`, whose lookup is the generic one and which
/// has nothing by it; else null. Runs no Python code.
Ref<> own_attribute(PyObject* object, PyTypeObject* type, PyObject* name);
/// Whether the attribute of an object of such a class is the method that the class makes of `function`.
bool has_method(PyObject* object, PyTypeObject* type, PyObject* name, PyObject* function);

/// Whether torch's operations in this thread are what they are in a fresh process, and nobody is told of them.
bool are_tensors_plain();

/// Whether it is an int from 0 to 2**64 - 1.
bool is_unsigned_int(PyObject* object);

/// What ends without anybody seeing it: numbers of Python's and NumPy's, and None.
bool is_number_or_none(PyObject* object);
/// Whether nobody can see when the list ends: what it holds are such.
bool list_ends_unseen(PyObject* list);

/// Whether what one has stored in an attribute is the other's: they are one object, or have one dict.
bool share_attributes(PyObject* object, PyObject* other);

/// When framejit is imported, and for modules that are loaded later when the first region is built: whoever replaces
/// `math.exp` afterwards has another function than the one we know.
void remember_known_functions();

/// The region of a loop for a frame that stands at its header with these values. Nothing, and `why` in words: none can
/// be made.
std::optional<LoopRegion> build_region(const FjCode& code, const Loop& loop, const FrameValues& values,
                                       std::string& why);

}  // namespace fj
