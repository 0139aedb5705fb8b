/// The builder of loop_region.h: what its files share.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tracer/regions/loop_region.h"

namespace fj {

struct Expression;

/// What is known of an object while a region is built.
struct Known {
  enum class Kind : std::uint8_t {
    Entry,      // what was at `place` at the header, not looked at
    Empty,      // unbound, or the NULL of a call
    Object,     // `object` itself
    Number,     // `value`, of type `boxing` (and `dtype`); `object` too where it is a constant
    Complex,    // Python's: `value` and `imaginary`
    Array,      // the array at `place`
    Fresh,      // an array that the region has made, without gaps, at the address `value`, which is the element
                // `imaginary` of the heap; items: its sizes
    View,       // of items[0], an Array or Fresh; `value`: the element it begins at; then size and stride of each axis.
                // `step` 1: the last stride is 1
    List,       // the list at `place`, whose address is `value`; `step`: its depth, 1 where its items are numbers
    InnerList,  // a list in the list at `place`, or one that the region has made (Findings::list_makers)
    Slice,      // items: start, stop, step
    Tensor,     // of torch, the array at `place`. `step` 0: the part that begins at the element `value`; items: size
                // and stride of each axis; those of one `imaginary` are one object
    TensorNumber,  // a tensor without axes that the region has made: its element is `value`, of `dtype`, its version
                   // `imaginary`. Those of one value are one object
    // Pending: used up in the statement that makes them, so that the region is left in front of it (replay_).
    Expression, // an array that is not computed yet
    Wide,       // an int whose low 64 bits are `value`, until a mask takes some of them
    Method,     // `object` is its name, items[0] whose it is
    Sizes,      // the shape of a tensor, which is no tuple like others
    Range,      // items: start, end
    RangeIterator,  // items: next, end
    Items,       // an iterator over items[0], an array or a list; items[1]: the index
    TupleIterator,  // over the items, `step` of which are done
    Enumerate,  // items: iterator, count
    Zip,        // items: iterators
    Tuple,
  };
  Kind kind = Kind::Empty;
  int place = -1;        // Entry, Array
  Ref<> object;
  Boxing boxing = Boxing::Int;
  DType dtype = DType::I64;
  ValueId value, imaginary;
  /// Number: the address of the object that it is an item of a list by, as long as nothing else in its place can come
  /// there (State::gone).
  ValueId item;
  int read_at = 0;
  std::int64_t step = 1; // Range, RangeIterator; 0: it is items[2]
  bool forwards = false; // likewise: that is positive
  bool unbound = false;  // Tensor: one of the views that unbind makes, or a part of such
  std::vector<Known> items;
  std::shared_ptr<const Expression> expression;

  bool is_pending() const {
    return kind == Kind::Expression || kind == Kind::Method || kind == Kind::Wide || kind == Kind::Sizes ||
           std::any_of(items.begin(), items.end(), [](const Known& item) { return item.is_pending(); });
  }
  bool is_array() const {
    return kind == Kind::Array || kind == Kind::Fresh || kind == Kind::View || kind == Kind::Expression;
  }
  /// Of a tensor that the region has made: what tells it from others.
  ValueId identity() const { return kind == Kind::TensorNumber ? value : imaginary; }
  bool is_part_of_tensor() const { return kind == Kind::Tensor && step == 0; }
  /// An object of the frame's.
  bool is_whole() const { return kind == Kind::Array || (kind == Kind::Tensor && step == 1); }
  bool is_tensor() const { return kind == Kind::Tensor || kind == Kind::TensorNumber; }
  bool is_list() const { return kind == Kind::List || kind == Kind::InnerList; }
  bool is_number() const { return kind == Kind::Number; }
  bool is_numpy() const { return is_number() && boxing == Boxing::Numpy; }
  /// It is moved on by who goes through it: two of what is known would go apart.
  bool is_iterator() const {
    return kind == Kind::RangeIterator || kind == Kind::Items || kind == Kind::TupleIterator ||
           kind == Kind::Enumerate || kind == Kind::Zip;
  }
};

struct Axis {
  ValueId size, stride;  // no stride: it is 1
  bool fixed = false;    // of one element, which each index names: it is broadcast
};

/// Where elements are.
struct ArrayPlace {
  int memory = -1;
  DType dtype = DType::F64;
  ValueId offset;        // none: 0
  std::vector<Axis> axes;
};

/// Elementwise operations on arrays, computed where the result is needed: each element in one go.
struct Expression {
  enum class Kind : std::uint8_t { Scalar, Elements, Operation } kind = Kind::Scalar;
  DType dtype = DType::F64;
  std::vector<ValueId> sizes;
  ValueId scalar;        // Scalar; where it is looked at, infinity
  ArrayPlace layout;         // Elements
  Known of;              // Elements: the array
  Op op = Op::add;       // Operation; Op::cast: to `dtype`
  std::vector<std::shared_ptr<const Expression>> operands;
  bool reports = false;  // NumPy may warn of it
  bool looked_at = false;  // Operation, of one operand: whether NumPy would warn is seen by the result
  int cost = 0;          // operations
};
using Lazy = std::shared_ptr<const Expression>;
/// What a call gives by name.
using NamedArguments = std::vector<std::pair<std::string, Known>>;

/// Types of numbers in a list, as bits.
enum ListItems : unsigned { kFloats = 1, kInts = 2, kBools = 4 };

/// What a first look at the loop finds out for a second one.
struct Findings {
  /// Instructions that make arrays, in which code. Where they are known arrays are kept from pass to pass that
  /// variables hold.
  std::set<std::pair<PyCodeObject*, int>> makers;
  /// Where lists are made, in which code: their places are behind those of the frame, counted downwards from -1.
  std::map<std::pair<PyCodeObject*, int>, int> list_makers;
  std::set<PyCodeObject*> writers;  // of functions that are called and store elements or items, or call such
  struct Stored {
    unsigned kinds = 0;    // ListItems
    int depth = 1;
    std::set<int> lists;   // the places of lists that have come into it
    bool operator==(const Stored&) const = default;
  };
  /// By place: what is stored in lists, or in lists in them.
  std::map<int, Stored> stored;
  bool operator==(const Findings&) const = default;
};

/// The instruction is CPython's, for a reason in words.
struct Unknown {
  std::string what;
};

/// Whether it is an int of Python's that may be more than int64 holds.
bool is_large(const Known& known);

/// In-place operators do the same to numbers.
int plain_operation(int operation);

/// Whether it is framejit.prange.
bool is_prange(PyObject* callable);

/// How many ways lead to each instruction.
std::vector<int> count_entrances(const FjCode& code);

class RegionBuilder {
 public:
  using Code = region::Code;

  RegionBuilder(const FjCode& code, const Loop& loop, const FrameValues& values, Findings met);
  std::optional<LoopRegion> build(std::string& why);
  const Findings& found() const { return found_; }

  // ---- values: the element types are those of the operands
  ValueId constant(DType dtype, const Scalar& value);
  ValueId integer(std::int64_t value) { return constant(DType::I64, value); }
  ValueId real(double value) { return constant(DType::F64, value); }
  ValueId op(Op op, std::vector<ValueId> operands);
  ValueId cast(ValueId value, DType to);
  ValueId call(std::string_view function, std::vector<ValueId> operands);
  ValueId checked(Code code, ValueId a, ValueId b);
  ValueId add_no_wrap(ValueId a, ValueId b);
  DType type(ValueId value) const { return region_.type(value); }
  /// Of an integer: what it is where the region is built.
  std::optional<std::int64_t> hint(ValueId value) const;
  /// The region is left before this instruction where the condition holds.
  void leave_if(ValueId condition);

  // ---- numbers
  static Known number(Boxing boxing, DType dtype, ValueId value);
  static Known python_int(ValueId value) { return number(Boxing::Int, DType::I64, value); }
  static Known unsigned_int(ValueId value);
  static Known python_float(ValueId value) { return number(Boxing::Float, DType::F64, value); }
  static Known python_bool(ValueId value) { return number(Boxing::Bool, DType::Bool, value); }
  static Known numpy(ValueId value, DType dtype) { return number(Boxing::Numpy, dtype, value); }
  static Known object(PyObject* object);
  static Known complex(ValueId real, ValueId imaginary);
  /// A number as a complex one.
  Known as_complex(const Known& value);
  Known literal(PyObject* object);
  /// What a tuple holds; nothing: it is none. A long one is CPython's: each of its items would be code.
  std::optional<std::vector<Known>> tuple_items(const Known& tuple);
  std::optional<std::int64_t> known_int(const Known& value) const;
  /// Python's own numbers as i64 and f64; an int that i64 does not hold leaves the region.
  ValueId as_int(const Known& value);
  ValueId as_float(const Known& value);
  /// As NumPy makes one operand of the type of both: `dtype` holds what a Python number is worth, or the region is left.
  ValueId as_dtype(const Known& value, DType dtype);
  ValueId truth(const Known& value);
  ValueId index(const Known& value);

  // ---- Python's operations (scalar_rules.cpp)
  Known binary(int operation, const Known& a, const Known& b);
  Known compare(int operation, const Known& a, const Known& b);
  /// Ints beyond 2**63 (wide_ints.cpp); nothing: the rules of others are right for them.
  std::optional<Known> wide_binary(int operation, const Known& a, const Known& b);
  std::optional<Known> wide_compare(Op comparison, const Known& a, const Known& b);
  Known with_sign(const Known& known);
  Known complex_binary(int operation, const Known& a, const Known& b);
  Known negative(const Known& value);
  Known inverted(const Known& value);
  Known absolute(const Known& value);
  Known floored(const Known& value, Op rounding);
  Known converted(const Known& value, Boxing boxing, DType dtype);
  /// What an element of an array of this dtype becomes where the number is assigned to it.
  ValueId stored(const Known& value, DType dtype);
  /// The dtype that NumPy computes in with numbers of these types. Nothing: it is not followed.
  static std::optional<DType> common_dtype(const Known& a, const Known& b);
  void leave_unless_finite(ValueId value);
  /// NumPy would warn of the operation that made the result.
  void leave_if_reported(ValueId result, std::vector<ValueId> operands);

  // ---- arrays and iterators (array_rules.cpp)
  ArrayPlace layout(const Known& array);
  bool is_bytes(const Known& array) { return array.kind == Known::Kind::Array && facts(array).bytes; }
  DType dtype(const Known& array);
  int rank(const Known& array);
  ValueId size(const Known& array, int axis);
  ValueId count(const std::vector<ValueId>& sizes);
  ValueId step_of(const Axis& axis) { return axis.stride.valid() ? axis.stride : integer(1); }
  Known view(const Known& array, ValueId offset, const std::vector<Axis>& axes);
  std::vector<Known> indices_of(const Known& index);
  Known part(const Known& array, const std::vector<Known>& indices);
  Known gathered(const Known& array, const Known& indices);
  Known iterator(const Known& iterable);
  Known transposed(const Known& array);

  // ---- lists (lists.cpp)
  ValueId length(const Known& list);
  ValueId list_index(const Known& list, const Known& index);
  /// The item at an index that is in range, by a way for each of the types that it may have, after which the block has
  /// ended; another one leaves the region. `takes`: it is the last one, and goes.
  void push_item(const Known& list, ValueId index, bool takes = false);
  /// The same where there can be one way alone.
  Known likeliest_item(const Known& list, ValueId index);
  void put(const Known& list, const Known& index, const Known& item);
  void append(const Known& list, const Known& item);
  unsigned kinds_of(const Known& list) const;
  void extend_new_list(int depth);
  int note_list_maker();
  Known made_list(ValueId address, int depth, unsigned kinds);
  Known build_list(const std::vector<Known>& items);
  Known repeated(const Known& list, const Known& times);
  Known joined(const Known& a, const Known& b);
  Known list_part(const Known& list, const Known& slice);
  /// False: it is left to CPython.
  bool list_method(const std::string& name, const Known& list, const std::vector<Known>& arguments);

  // ---- elements of torch's tensors (tensors.cpp)
  Known tensor_number(ValueId value);
  Known tensor_at(const Known& tensor, ValueId offset, const std::vector<Axis>& axes, bool unbound);
  Known tensor_part(const Known& tensor, const std::vector<Known>& indices);
  ValueId tensor_value(const Known& tensor);
  Known item_of(const Known& tensor);
  Known tensor_binary(int operation, const Known& a, const Known& b);
  Known tensor_in_place(int operation, const Known& a, const Known& b);
  Known tensor_compare(int operation, const Known& a, const Known& b);
  Known tensor_unary(Op operation, const Known& of);
  void store_element(const Known& tensor, const std::vector<Known>& indices, const Known& value);
  std::optional<Known> tensor_attribute(const std::string& name, const Known& tensor);
  std::optional<Known> tensor_method(const std::string& name, const Known& tensor,
                                     const std::vector<Known>& arguments);

  // ---- operations on arrays (expressions.cpp)
  Lazy expression(const Known& value);
  Lazy cast(const Lazy& value, DType to);
  Lazy apply(Op op, std::vector<Lazy> operands);
  static Known lazy(Lazy expression);
  /// Both as NumPy computes with them.
  std::tuple<DType, Lazy, Lazy> promoted_operands(const Known& a, const Known& b, bool divided);
  Known array_binary(int operation, const Known& a, const Known& b);
  Known array_compare(int operation, const Known& a, const Known& b);
  Known array_unary(Op op, const Known& a);
  Known in_place(int operation, const Known& a, const Known& b);
  void assign(const Known& array, const Known& value);
  void leave_if_stored_in_order(const ArrayPlace& to, const ArrayPlace& from);
  /// The array as one that is in memory.
  Known computed(const Known& array);
  Known temporary(const Lazy& of);
  /// Leaves the region unless the elements of all arrays lie in C's order.
  void expect_c_order(const Lazy& of);
  Known looked_at(const Known& array);
  Known fresh(DType dtype, std::vector<ValueId> sizes);
  void fill(const ArrayPlace& to, const Lazy& value, int apart);
  void copy(const ArrayPlace& to, ValueId from);
  static constexpr std::int64_t kShort = 8;
  void note_elements(const std::vector<ValueId>& sizes, std::int64_t inner = kShort);
  bool is_without_gaps(const ArrayPlace& of, const ArrayPlace& like);
  Lazy flat(const Lazy& of, const ArrayPlace& like, ValueId count);

  // ---- functions of arrays (array_functions.cpp)
  std::optional<Known> method(const std::string& name, const Known& of, const std::vector<Known>& arguments,
                              const NamedArguments& keywords);
  /// `function` of an array with an `axis` and `keepdims`, behind the array or by name.
  std::optional<Known> reduction(std::string_view function, const Known& array, std::span<const Known> arguments,
                                 const NamedArguments& keywords);
  std::optional<Known> reduced(std::string_view function, const Known& array);
  std::optional<Known> reduced_along(std::string_view function, const Known& array, int axis, bool keeps);
  std::optional<Known> function_of(Op function, const Known& array);
  Known rolled(const Known& array, ValueId shift, std::optional<std::int64_t> axis);
  std::optional<Known> product(const Known& a, const Known& b);
  std::optional<std::vector<ValueId>> shape_of(const Known& sizes);
  Known copied(const Known& array);
  Known like(const Known& array, std::optional<double> value);
  Known filled(DType dtype, const std::vector<ValueId>& sizes, std::optional<double> value);
  ValueId run(std::string_view function, std::vector<ValueId> operands);
  ValueId address(const ArrayPlace& layout);
  ValueId opaque(ValueId value);

  // ---- calls (known_functions.cpp)
  std::optional<Known> call_known(PyObject* callable, const std::vector<Known>& arguments,
                                  const NamedArguments& keywords);
  /// Two ways that give objects of different types.
  void fork(ValueId condition, const Known& yes, const Known& no);

 private:
  /// A function whose instructions are run: the loop's own, or one that is called in it. Where a called function
  /// stores nothing the region is left at its call, as if nothing of it had happened; where it does CPython goes on
  /// within it (RegionExit::Called).
  struct Context {
    std::shared_ptr<const FjCode> code;
    PyCodeObject* object;
    PyObject *globals, *builtins;
    int first, last;            // instructions of the region
    std::vector<int> entrances; // how many jumps lead to an instruction
    Context* caller = nullptr;
    int call = -1;              // where the caller calls
    std::size_t base = 0;       // where the slots begin among the places: before them are the caller's, as at the call
  };
  struct State {
    std::vector<Known> places;    // slots, then the stack
    /// By the place of an attribute: the number that was stored there. The object gets it where the region is left.
    std::map<int, Known> stored;
    std::map<int, Known> stored_at_call;  // likewise, at the call where the region would be left
    std::map<int, Known> written;  // by the place of a tensor: how often, which adds to its version
    ValueId passes;
    int gone = 0;  // numbers that may have gone from lists, since ways met

    template <class Visit>
    void each_known(const Visit& visit) {
      for (Known& known : places) visit(known);
      for (auto* numbers : {&stored, &stored_at_call, &written})
        for (auto& [place, known] : *numbers) visit(known);
    }
  };
  struct Pending {
    int block, instruction;
    State state;
    Context* context;
  };
  struct ArrayFacts {
    DType dtype;
    std::vector<ValueId> sizes, strides;
    int memory = -1;
    std::size_t guard;
    bool bytes = false;
  };

  PyObject* object_at(int place) const { return objects_[std::size_t(place)]; }
  PyObject* constant_loaded(int at) const;
  bool is_masked_later(int at) const;
  ValueId low_bits(const Known& known);
  ValueId without_sign(const Known& known);
  Known resolve(const Known& known);
  Known resolve_object(int place);
  Known resolve_iterator(int place, const IteratorState& state);
  ValueId input(RegionInput::Kind kind, int place, DType dtype, int axis = 0, bool natural = false);
  int reach(ReachedPlace::How how, int from, int index, PyObject* object);
  void guard_same(int place);
  /// The object that a name of a namespace has, which it has to have at each entrance; null: none.
  PyObject* named(PyObject* names, PyObject* name);
  Known memory(int place, RegionGuard guard, bool bytes);
  Known list_at(int place);
  int apart_from_floats();
  ValueId from_heap(DType dtype, ValueId address);
  ValueId word(ValueId address, std::int64_t at);
  struct ListItem {
    ValueId object, type;  // the address of its class
    unsigned kinds = 0;    // that it may be of
  };
  ListItem object_at(const Known& list, ValueId index);
  ListItem item_at(const Known& list, ValueId index);
  ValueId is_of(const ListItem& item, ListItems kind);
  Known number_in(ValueId object, ListItems kind);
  ValueId int_in(ValueId object);
  Known list_in(const Known& list, const ListItem& item);
  bool is_there(const Known& number) const;
  void forget_items(bool floats_alone);
  /// The part of a function of the region library's name that says what it takes; the lists at the place hold such.
  std::string stored_in_list(const Known& list, const Known& item);
  unsigned kinds_in(int place, std::set<int>& seen) const;
  int depth_of(int place, int otherwise) const;
  int heap(DType dtype);
  ArrayFacts& facts(const Known& array);
  ValueId counted_index(const Known& index, ValueId size);
  Axis sliced(const Known& slice, const Axis& axis, ValueId& offset);
  ValueId moved(ValueId offset, ValueId index, ValueId stride);
  Known loaded(const Known& array, ValueId offset);
  void store(const ArrayPlace& to, ValueId offset, ValueId value, int apart = -1);
  void written(const Known& array);
  void tensor_written(int place);
  ValueId tensor_operand(const Known& known, DType dtype);
  /// Of a number of Python's, or a tensor without axes; others are not followed.
  DType tensor_operand_dtype(const Known& known);
  void note_writer();
  ValueId raised_where_reported(ValueId result, ValueId operand, ValueId infinity);
  ValueId element(const Lazy& of, const std::vector<ValueId>& indices, bool dense, int apart);
  Lazy broadcast(const Lazy& of, const std::vector<ValueId>& sizes);
  void for_each(const std::vector<ValueId>& sizes, const std::vector<int>& order,
                const std::function<void(const std::vector<ValueId>&)>& body);
  /// The sizes are the same, or the region is left: false if it is known that they are not.
  void expect_equal(ValueId a, ValueId b);
  /// Computes the expressions that are pending.
  void force();
  bool has_pending() const;
  void expect_none_pending();
  void set_hint(ValueId value, std::optional<std::int64_t> to);
  void note_hint(const region::Instruction& made);

  // ---- passes on several threads (passes.cpp)
  /// Whether the loop is over framejit.prange(...), by a name that is guarded.
  bool is_for_threads(const Loop& loop);
  void note_pass_begin();
  void find_threads();

  void run(Pending pending);
  /// False: the block has ended.
  bool execute(const FjInstr& instr, int at);
  bool call_instruction(int given, PyObject* names);
  void load_global(const FjInstr& instr);
  void load_attribute(PyObject* name);
  /// Of an object that is no array: what it has itself, or a method, whose function is on the stack below it then.
  bool load_own(const Known& owner, PyObject* name);
  bool load_method(const Known& owner, PyObject* name);
  /// What a reached place holds; `guard` brings it there.
  Known place_of(ReachedPlace::How how, RegionGuard guard, PyObject* object);
  /// The one on the same name or attribute; null: there is none yet.
  RegionGuard* known_guard(const RegionGuard& guard);
  /// Of an attribute that an object itself has; nothing: it is another kind of attribute.
  std::optional<RegionGuard> guard_of_own(const Known& owner, PyObject* name);
  void store_own(const Known& owner, PyObject* name, const Known& value);
  void subscript(const Known& container, const Known& index);
  void store_subscript(const Known& container, const Known& index, const Known& value);
  bool next_item(const FjInstr& instr, int at);
  bool contains(const FjInstr& instr);
  void either(ValueId condition, const std::function<void()>& yes, const std::function<void()>& no);
  bool branch(ValueId condition, int yes, int no, const State& yes_state, const State& no_state);

  void jump(int to, State state);
  region::Target target(int to, State state);
  void end(region::Terminator terminator);
  region::Leave leave(const Context& context, int instruction, const State& state);
  /// Before the instruction that is being built.
  region::Leave leave_here();
  struct Leaving {
    const Context* context;
    int instruction;
    State state;
  };
  /// The instruction that is CPython's where the region is left before this one, and what there is.
  Leaving leaving() const;
  bool writes(const Context& context) const {
    return context.caller == nullptr || met_.writers.contains(context.object);
  }
  /// The outermost function that stores nothing, of those that have been called and not returned; null: there is none.
  const Context* repeatable(const Context* context) const;
  void look_at_reports();
  ValueId compute(region::Instruction made, DType dtype);
  void leave_if_asked();
  /// Before a jump back: what is done in each pass. How many passes it counts as.
  std::int64_t go_back(int header);
  void leave_to_cpython(const Unknown& unknown);
  Context* inlined(PyFunctionObject* function, int call);
  bool enter_function(PyFunctionObject* function, const std::vector<Known>& arguments,
                      const NamedArguments& keywords, int call);
  bool return_from_function();
  Holding holding(const Known& known, std::vector<ValueId>& values);
  void let_go(int slot);
  bool is_inside(int instruction) const { return instruction >= context_->first && instruction <= context_->last; }
  int& entrances(int instruction) { return context_->entrances[std::size_t(instruction)]; }
  bool is_header(int instruction) const { return context_->caller == nullptr && instruction == loop_.header; }

  region::Block& block() { return region_.blocks[std::size_t(block_)]; }
  Known& slot_of(int slot) { return state_.places[context_->base + std::size_t(slot)]; }
  Known& peek(int n) { return state_.places[state_.places.size() - std::size_t(n)]; }
  Known pop();
  void push(Known known) { state_.places.push_back(std::move(known)); }
  Known pop_number();
  Known pop_condition();

  std::vector<std::unique_ptr<Context>> contexts_;  // the first is the loop's
  Context* context_;
  std::vector<std::shared_ptr<const FjCode>> decoded_;
  const Loop loop_;
  const FrameValues values_;
  LoopRegion made_;
  region::Region& region_ = made_.region;
  std::vector<PyObject*> objects_;  // by place
  std::vector<Ref<>> held_;
  std::map<int, Known> resolved_;
  std::map<int, ArrayFacts> arrays_;
  struct ListFacts {
    std::size_t guard = 0;
    unsigned kinds = 0;
    int depth = 1;
  };
  std::map<int, ListFacts> lists_;  // by place
  std::map<std::tuple<const Context*, int, std::string>, int> blocks_;  // by instruction and types
  std::map<std::tuple<const Context*, int, std::string>, int> versions_;  // by instruction and places in tuples
  std::vector<Pending> pending_;
  State state_, before_;
  /// The last instruction before which no expression was pending: where CPython begins when the region is left.
  State replay_;
  int replay_at_ = 0;
  /// While it lives, values are shared: those of indices and sizes, which no variable gets.
  struct Sharing {
    explicit Sharing(RegionBuilder& b) : depth(b.sharing_) { ++depth; }
    ~Sharing() { --depth; }
    Sharing(const Sharing&) = delete;
    int& depth;
  };
  int sharing_ = 0;
  /// What the block has computed already.
  std::map<std::tuple<Code, Op, std::vector<std::uint32_t>, int, std::string>, ValueId> computed_;
  std::vector<std::optional<std::int64_t>> hints_;  // by value: what it is where the region is built
  std::map<DType, int> heaps_;                      // memories
  int nests_ = 0, apart_from_floats_ = -1;
  /// Results that NumPy may have to warn of and nobody has looked at: each with its operands, the last one first.
  struct UnseenReports {
    Leaving where;
    std::vector<std::vector<ValueId>> results;
    int number = 0;
  };
  std::vector<UnseenReports> unseen_;
  int reports_ = 0;
  Findings found_;
  const Findings met_;
  int block_ = 0, at_ = 0;
  /// All that leave before one instruction leave alike.
  struct {
    const Context* context = nullptr;
    int block = -1, at = -1;
    region::Leave leave{};
  } left_;
  bool ended_ = false;
  int finished_passes_ = 0;
  bool for_threads_ = false;
  struct Begin {
    int block;
    std::vector<Known> places;
  };
  std::vector<Begin> begins_;  // of passes, where they may run on several threads
};

}  // namespace fj
