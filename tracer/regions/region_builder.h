/// The builder of loop_region.h: what its files share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tracer/regions/loop_region.h"

namespace fj {

/// What is known of an object while a region is built.
struct Known {
  enum class Kind : std::uint8_t {
    Entry,      // what was at `place` at the header, not looked at
    Empty,      // unbound, or the NULL of a call
    Object,     // `object` itself
    Number,     // `value`, of type `boxing` (and `dtype`); `object` too where it is a constant
    Complex,    // Python's: `value` and `imaginary`
    Array,      // the array at `place`
    Row,        // of the array at `place`, its first axes indexed by the items; `value`: the element it begins at
    Range,      // items: start, end
    RangeIterator,  // items: next, end
    Items,       // an iterator over items[0], an Array or Row; items[1]: the index
    TupleIterator,  // over the items, `step` of which are done
    Enumerate,  // items: iterator, count
    Zip,        // items: iterators
    Tuple,
  };
  Kind kind = Kind::Empty;
  int place = -1;        // Entry, Array, Row
  Ref<> object;
  Boxing boxing = Boxing::Int;
  DType dtype = DType::I64;
  ValueId value, imaginary;
  std::int64_t step = 1; // Range, RangeIterator; 0: it is items[2]
  std::vector<Known> items;

  bool is_number() const { return kind == Kind::Number; }
  bool is_numpy() const { return is_number() && boxing == Boxing::Numpy; }
  /// It is moved on by who goes through it: two of what is known would go apart.
  bool is_iterator() const {
    return kind == Kind::RangeIterator || kind == Kind::Items || kind == Kind::TupleIterator ||
           kind == Kind::Enumerate || kind == Kind::Zip;
  }
};

/// The instruction is CPython's, for a reason in words.
struct Unknown {
  std::string what;
};

/// How many ways lead to each instruction.
std::vector<int> count_entrances(const FjCode& code);

class RegionBuilder {
 public:
  using Code = region::Code;

  /// `rereads`: the region is left after many passes, so that what others may change is looked at again.
  RegionBuilder(const FjCode& code, const Loop& loop, const FrameValues& values, bool rereads);
  std::optional<LoopRegion> build(std::string& why);
  /// What was built reads names whose values others may change while it runs.
  bool needs_rereading() const { return reread_ && !rereads_; }

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
  /// The region is left before this instruction where the condition holds.
  void leave_if(ValueId condition);

  // ---- numbers
  static Known number(Boxing boxing, DType dtype, ValueId value);
  static Known python_int(ValueId value) { return number(Boxing::Int, DType::I64, value); }
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
  /// Python's own numbers as i64 and f64.
  ValueId as_int(const Known& value);
  ValueId as_float(const Known& value);
  /// As NumPy makes one operand of the type of both: `dtype` holds what a Python number is worth, or the region is left.
  ValueId as_dtype(const Known& value, DType dtype);
  ValueId truth(const Known& value);
  ValueId index(const Known& value);

  // ---- Python's operations (scalar_rules.cpp)
  Known binary(int operation, const Known& a, const Known& b);
  Known compare(int operation, const Known& a, const Known& b);
  Known complex_binary(int operation, const Known& a, const Known& b);
  Known negative(const Known& value);
  Known inverted(const Known& value);
  Known absolute(const Known& value);
  Known floored(const Known& value, Op rounding);
  Known converted(const Known& value, Boxing boxing, DType dtype);
  /// What an element of an array of this dtype becomes where the number is assigned to it.
  ValueId stored(const Known& value, DType dtype);
  void leave_unless_finite(ValueId value);
  /// NumPy would warn of the operation that made the result.
  void leave_if_reported(ValueId result, std::vector<ValueId> operands);

  // ---- arrays and iterators
  int rank(const Known& array) const;
  ValueId size(const Known& array, int axis);
  Known element(const Known& array, const std::vector<Known>& indices);
  Known iterator(const Known& iterable);

  // ---- calls (known_functions.cpp)
  std::optional<Known> call_known(PyObject* callable, const std::vector<Known>& arguments);
  /// Two ways that give objects of different types.
  void fork(ValueId condition, const Known& yes, const Known& no);

 private:
  /// A function whose instructions are run: the loop's own, or one that is called in it. A region is left at the call in
  /// the loop's function, as if nothing of it had happened, so that a called function must not write.
  struct Context {
    const FjCode* code;
    PyCodeObject* object;
    PyObject *globals, *builtins;
    int first, last;            // instructions of the region
    std::vector<int> entrances; // how many jumps lead to an instruction
    Context* caller = nullptr;
    int call = -1;              // where the caller calls
    std::size_t base = 0;       // where the slots begin among the places: before them are the caller's, as at the call
  };
  struct State {
    std::vector<Known> places;  // slots, then the stack
    ValueId passes;
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
  Known resolve(const Known& known);
  Known resolve_object(int place);
  Known resolve_iterator(int place, const IteratorState& state);
  ValueId input(RegionInput::Kind kind, int place, DType dtype, int axis = 0, bool natural = false);
  int reach(ReachedPlace::How how, int from, int index, PyObject* object);
  void guard_same(int place);
  /// The object that a name of a namespace has, which it has to have at each entrance; null: none.
  PyObject* named(PyObject* names, PyObject* name);
  Known memory(int place, RegionGuard guard, bool bytes);
  ArrayFacts& facts(const Known& array);
  ValueId offset(const Known& array, const std::vector<Known>& indices);
  Known part_at(const Known& array, ValueId at, const std::vector<Known>& indices);

  void run(Pending pending);
  /// False: the block has ended.
  bool execute(const FjInstr& instr, int at);
  bool call_instruction(const FjInstr& instr);
  void load_global(const FjInstr& instr);
  void load_attribute(PyObject* name);
  void subscript();
  void store_subscript();
  bool next_item(const FjInstr& instr, int at);
  bool contains(const FjInstr& instr);
  bool branch(ValueId condition, int yes, int no, const State& yes_state, const State& no_state);

  void jump(int to, State state);
  region::Target target(int to, State state);
  void end(region::Terminator terminator);
  region::Leave leave(int instruction, const State& state);
  /// Before the instruction that is being built.
  region::Leave leave_here();
  void leave_if_asked();
  Context* inlined(PyFunctionObject* function, int call);
  bool enter_function(PyFunctionObject* function, const std::vector<Known>& arguments, int call);
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

  std::vector<std::unique_ptr<Context>> contexts_;  // the first is the loop's
  Context* context_;
  std::vector<std::unique_ptr<FjCode, void (*)(FjCode*)>> decoded_;
  const Loop loop_;
  const FrameValues values_;
  LoopRegion made_;
  region::Region& region_ = made_.region;
  std::vector<PyObject*> objects_;  // by place
  std::vector<Ref<>> held_;
  std::map<int, Known> resolved_;
  std::map<int, ArrayFacts> arrays_;
  std::map<std::tuple<const Context*, int, std::string>, int> blocks_;  // by instruction and types
  std::map<std::tuple<const Context*, int, std::string>, int> versions_;  // by instruction and places in tuples
  std::vector<Pending> pending_;
  State state_, before_;
  bool rereads_ = false,
       reread_ = false;  // names that others may change are read; the region is left now and then for that
  int block_ = 0, at_ = 0;
  bool ended_ = false;
  int finished_passes_ = 0;
};

}  // namespace fj
