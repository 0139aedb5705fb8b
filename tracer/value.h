/// Symbolic values: what the tracer knows of each Python value, one class per kind of value.
///
/// A Value is identity as much as contents: one Python object is one Value however it is reached (the tracer
/// keeps a map from real objects to Values), so `is`, aliasing and mutation come out right. A value that came from
/// outside has a `source`; it is wrapped without looking at it, and the first look adds the guard.
/// Values are only used by one tracer run and are reference-counted without atomics.
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays/arrays.h"
#include "graph_ir/graph.h"
#include "guards/source.h"
#include "segment/view_step.h"

namespace fj {

enum class ValueKind : std::uint8_t {
  Object,  // a real object, known by identity and looked at through guards (modules, classes, instances, functions,
           // ints, strs)
  SymInt,  // a Python int known as an expression over symbols
  Array,  // a fake array: numpy.ndarray, torch.Tensor, numpy scalar
  Tuple,  // also torch.Size, namedtuple (type)
  List,
  Dict,
  Set,
  Slice,
  Range,  // with symbolic bounds
  Iterator,  // made in the trace: over a Tuple/List/Range/Dict view/zip/enumerate/map...
  Function,  // made in the trace by MAKE_FUNCTION
  BoundMethod,
  Cell,
  Instance,  // made in the trace: exceptions, user classes, context managers
  Super,
  Partial,  // functools.partial made in the trace
  Builtin,  // a method of a Value, not yet called: `xs.append`, `t.sum`
  Number,  // a Python number the program computes
  ComputedRange,  // a range of such numbers
  Null,  // a NULL stack entry
};

/// The step of the outermost frame that is being traced (see tracer.h): every Value remembers when it was made, so that
/// a trace can be ended before the making of one that can't be live at its exit.
inline thread_local int current_step = 0;
/// How many Values this thread has made: which of two is older, and what was made since some moment.
inline thread_local std::uint64_t values_made = 0;

class Value {
 public:
  explicit Value(ValueKind kind) : kind(kind), born(current_step), number(values_made++) {}
  virtual ~Value() = default;
  Value(const Value&) = delete;

  const ValueKind kind;
  const int born;
  const std::uint64_t number;
  SourceRef source = nullptr;   // null: made in the trace
  bool of_any_pass = false;     // what a loop on data has for it, which may be another object in each pass
};

/// Shared by reference: identity matters.
using V = std::shared_ptr<Value>;

/// A real Python object. Constants of the code and results of constant folding have no source and need no guard.
class ObjectValue final : public Value {
 public:
  explicit ObjectValue(Ref<> object) : Value(ValueKind::Object), object(std::move(object)) {}
  Ref<> object;
  bool guarded_type = false, guarded_value = false;  // which guards the looks so far have added
  V contents;                   // of a class derived from a builtin container: that part (see builtin_part)
};

/// An empty stack entry.
class NullValue final : public Value {
 public:
  explicit NullValue(V asked = nullptr) : Value(ValueKind::Null), asked(std::move(asked)) {}
  const V asked;                // beside what LOAD_METHOD found: the object it was asked of
};

class SymIntValue final : public Value {
 public:
  explicit SymIntValue(SymDim expression) : Value(ValueKind::SymInt), expression(std::move(expression)) {}
  SymDim expression;
};

/// A Python number that is known when the program has run: an element of an array, and what floats are computed from
/// such.
class NumberValue final : public Value {
 public:
  NumberValue(ValueId contents, DType dtype) : Value(ValueKind::Number), contents(contents), dtype(dtype) {}
  const ValueId contents;       // of dtype, 0-d
  const DType dtype;            // F64: a float, I64: an int, Bool: a bool
  /// Where it is computed from values from outside alone: the same number as a result of those (see
  /// derived_values.cpp).
  V known;
};

/// Memory shared by views: its contents as a graph value, replaced by each in-place operation.
struct FakeStorage {
  /// The array that owns the layout: contents are `contents` seen as an array of `shape` and `strides`.
  DType dtype;
  Dims shape;
  Strides strides;
  ValueId contents;             // current version
  int version = 0;              // counts in-place operations through any array
  int input = -1;               // index of the graph input it is, or -1: made in the trace
  Library library = Library::Numpy;
  int device = kHost;           // where it is
  bool allocated_by_numpy = false;
  bool laid = false;            // as the code asked for, however the arguments lie
  Value* input_array = nullptr; // the wrapped array that came from outside, or null: made in the trace
  std::int64_t first_byte = 0, last_byte = -1;  // memory of an array from outside, to find overlaps
  std::weak_ptr<Value> owner;   // the array object that made it: base of returned views
  std::vector<std::weak_ptr<class ArrayValue>> views;  // torch: of what was made in the trace
  std::shared_ptr<int> torch_version;  // the owner's
  int batch_depth = 0;          // functions being batched where it was made (graph_transforms.cpp)
  bool read_only = false;       // NumPy: its array may not be written
  bool written_without_gradient = false;  // an array that requires a gradient, under no_grad()
  bool inference = false;       // of a tensor made in torch's inference mode
  bool made_as_view = false;    // torch: a library call gave a view of what nobody else has
  bool derived_view = false;    // torch: a view of it has a derivative that Python code gives
  bool stands_for_view = false;  // a copy in place of a view, at a place that is computed: see Tracer::copies_views
  bool may_be_outside = false;  // behind a loop on data that may have left what came from outside: not to be written
  int parameter_since = -1;     // torch: a Parameter made at this step has the memory
  /// Torch: the `_version` that a library call gave it with; what is written is another tensor, which has it too.
  int library_version = 0;
};

/// What `detach()` or `.data` of a tensor made: views of it have it as their base, and it has none itself.
struct DetachedTensor {
  const class ArrayValue* itself;
  Dims shape;
  Strides strides;
  SymDim offset;
  bool data = false;            // of `.data`, which counts its writes apart from the tensor's
};

class ArrayValue final : public Value {
 public:
  ArrayValue() : Value(ValueKind::Array) {}
  Library library = Library::Numpy;
  DType dtype = DType::F32;
  Dims shape;
  Strides strides;              // exactly eager's
  SymDim offset = 0;            // elements from the storage owner's element 0
  std::shared_ptr<FakeStorage> storage;
  std::vector<ViewStep> view;   // from the storage owner to this; empty: the owner itself
  bool is_view = false;
  /// torch: the view that this was made of, by the last of its steps, when the storage had the version `made_at`: a
  /// gradient passes there while the version is that. Null: made of the owner, or no gradient.
  std::shared_ptr<const ArrayValue> viewed;
  int made_at = 0;
  std::uint32_t made_after = 0;  // torch: a view that needs a gradient was made when the graph had so many values
  std::shared_ptr<const DetachedTensor> detached;  // torch: that this is, or is a view of
  bool numpy_scalar = false;    // np.float64 and friends: immutable, rank 0
  bool wrapped_number = false;  // torch: a 0-d tensor made from a Python number promotes weakly
  bool parameter = false;
  bool requires_grad = false;   // from outside: what the array itself says
  bool stops_gradient = false;  // torch: a view through which no gradient flows
  /// Torch: when the first view on the way here was made that autograd may refuse writes into; -1: none was.
  int refused_since = -1;
  bool viewed_in_inference = false;  // torch: a view of an ordinary tensor made in inference mode
  bool writeable = true;
  bool crosses = false;                    // what one library made of the other's memory, and
  std::shared_ptr<ArrayValue> crossed;     // of which such array this is a view
  bool shown_read_only = false;  // NumPy: a view that is read-only whatever it is a view of
  /// In-place operations through this tensor and what shares torch's version counter with it: its views.
  std::shared_ptr<int> torch_version = std::make_shared<int>(0);
  mutable ValueId contents;     // what `read` made of it last, valid for that version of the storage
  mutable int contents_version = -1;
  int rank() const { return int(shape.size()); }
};

/// Element sequence; `type` differs from tuple for torch.Size and namedtuples. A view of a dict is one too: its items
/// are those of the dict when `sequence_items` was asked last.
class TupleValue final : public Value {
 public:
  TupleValue() : Value(ValueKind::Tuple) {}
  std::vector<V> items;
  Ref<> type;                   // null: tuple
  V view_of;                    // keys(), items() or values() of this dict
};

/// Of a list from outside the items that were there are fetched, and guarded, when they are first asked for
/// (`as<ListValue>`): what is appended before, in a loop or to a history, asks for none of them.
class ListValue final : public Value {
 public:
  ListValue() : Value(ValueKind::List) {}
  std::vector<V> items;
  std::function<void()> unopened;  // puts them before those that were appended
  Ref<> type;                   // null: list; else collections.deque
  std::optional<std::int64_t> longest;  // a deque's maxlen
  bool mutated = false;         // its items are assigned at the exit
};

/// Insertion-ordered; keys are constants (hashable real objects). A dict from outside is opened when its keys are
/// first asked for; single items are fetched and guarded one by one until then.
class DictValue final : public Value {
 public:
  DictValue() : Value(ValueKind::Dict) {}
  Ref<> real;                   // from outside: the dict
  bool opened = true;           // `items` is complete
  bool plain_keys = false;      // not opened: seen to have no keys whose classes compare them
  std::vector<std::pair<Ref<>, V>> items;
  Ref<> type;                   // null: dict; else OrderedDict or defaultdict
  V default_factory;            // of a defaultdict; null: None
  V attributes_of;              // the object whose __dict__ it is, the partial whose keywords it holds
  int deletions = 0;            // of keys, in the trace: an iterator over it notices
};

/// Its contents are a real set that went through the same operations as the set of the program, so that it is in the
/// same order too. What is no constant is in it as a proxy (see proxies.h).
class SetValue final : public Value {
 public:
  explicit SetValue(bool frozen = false);
  Ref<> real;
  bool frozen = false;
  bool ordered = true;          // false: an element hashes by its address, so the order can't be known
};

class SliceValue final : public Value {
 public:
  SliceValue() : Value(ValueKind::Slice) {}
  V start, stop, step;
};

class RangeValue final : public Value {
 public:
  RangeValue() : Value(ValueKind::Range) {}
  SymDim start, stop;
  std::int64_t step = 1;
};

/// Ints that the program computes: where an iterator over a range stands, and where it ends.
struct CountedRange {
  ValueId next, stop;           // i64[]
  std::int64_t step = 1;
};

class ComputedRangeValue final : public Value {
 public:
  explicit ComputedRangeValue(const CountedRange& range) : Value(ValueKind::ComputedRange), range(range) {}
  const CountedRange range;
};

class IteratorValue final : public Value {
 public:
  IteratorValue() : Value(ValueKind::Iterator) {}
  /// Next element or null when exhausted.
  std::function<V()> next;
  /// Rebuilds the iterator at its current position at an exit: a Tuple/List/Range whose iter() continues from here.
  /// Empty or null: may not be live there, unless it has a maker and has not started.
  std::function<V()> remaining;
  V over;                       // the list, array or bytes that it goes through
  /// zip, enumerate, map...: made again by `maker(*arguments)` as long as nothing was taken.
  Ref<> maker;
  std::vector<V> arguments;
  bool started = false;
  std::shared_ptr<CountedRange> counted;  // in a loop on data alone (data_loops.h)
  /// An inlined generator: its frame, and what it returned once it is exhausted.
  std::shared_ptr<struct Frame> frame;
  V returned;
};

class CellValue final : public Value {
 public:
  CellValue() : Value(ValueKind::Cell) {}
  V contents;                   // null: empty
  Ref<> real;                   // from outside: the cell
  bool loaded = false;          // with a source: contents were fetched
};

class FunctionValue final : public Value {
 public:
  FunctionValue() : Value(ValueKind::Function) {}
  Ref<PyCodeObject> code;
  Ref<> globals;
  V defaults, kwdefaults;               // Tuple, Dict or null
  V annotations;                        // Tuple, Dict or null; from 3.14 on the function that gives them, too
  std::vector<V> closure;               // Cells
  Ref<> qualname;
  std::shared_ptr<DictValue> attributes = std::make_shared<DictValue>();  // its __dict__
  std::shared_ptr<DictValue> fields =
      std::make_shared<DictValue>();  // __name__, __doc__, __module__ where they were assigned
};

class BoundMethodValue final : public Value {
 public:
  BoundMethodValue() : Value(ValueKind::BoundMethod) {}
  V function, self;
};

class InstanceValue final : public Value {
 public:
  InstanceValue() : Value(ValueKind::Instance) {}
  Ref<PyTypeObject> type;
  /// Its __dict__, and what its __slots__ hold; `attributes` are the items.
  std::shared_ptr<DictValue> dict = std::make_shared<DictValue>();
  std::vector<std::pair<Ref<>, V>>& attributes = dict->items;
  V contents;                            // subclasses of list, dict, set, tuple, int, str, ...: the part that is one
  std::vector<V> args;                   // exceptions
  bool raised = false;                   // an exception that has a traceback by now
};

class SuperValue final : public Value {
 public:
  SuperValue() : Value(ValueKind::Super) {}
  Ref<PyTypeObject> type;
  V self;
};

class PartialValue final : public Value {
 public:
  PartialValue() : Value(ValueKind::Partial) {}
  Ref<PyTypeObject> type;
  V function;
  std::vector<V> positional;
  std::shared_ptr<DictValue> keywords = std::make_shared<DictValue>();
};

/// `owner.name` where owner is a Value whose methods we implement (array, list, dict, str...).
class BuiltinValue final : public Value {
 public:
  BuiltinValue() : Value(ValueKind::Builtin) {}
  V owner;
  std::string name;
  Ref<> descriptor;             // of a class: what was found there, which may not be what the owner's own class has
};

template <class T>
T* as(const V& value) {
  return dynamic_cast<T*>(value.get());
}

template <>
inline ListValue* as<ListValue>(const V& value) {
  auto* list = dynamic_cast<ListValue*>(value.get());
  if (list && list->unopened) std::exchange(list->unopened, nullptr)();
  return list;
}

/// A list of which no item was asked for; null: something else.
inline ListValue* unopened_list(const V& value) {
  auto* list = dynamic_cast<ListValue*>(value.get());
  return list && list->unopened ? list : nullptr;
}

}  // namespace fj
