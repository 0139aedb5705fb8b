// One instruction after the other: each changes the state, or is where the region is left.
#include <algorithm>

#include <opcode.h>

#include "tracer/regions/region_builder.h"

#include "arrays/arrays.h"
#include "cpython/objects.h"
#include "runtime/base/error.h"

namespace fj {

Known RegionBuilder::pop() {
  FJ_CHECK(!state_.places.empty(), "a value on the stack");
  Known top = std::move(state_.places.back());
  state_.places.pop_back();
  return top;
}

Known RegionBuilder::pop_number() {
  Known top = resolve(pop());
  if (!top.is_number()) throw Unknown{"an operation on what is no number"};
  return top;
}

/// A number, or a list that is asked whether it has items. Of a tensor's element it is the truth.
Known RegionBuilder::pop_condition() {
  if (resolve(peek(1)).is_list()) return resolve(pop());
  if (resolve(peek(1)).is_tensor()) return python_bool(truth(item_of(resolve(pop()))));
  return pop_number();
}

namespace {

/// Instructions that use what is pending, or leave it on the stack. Before others it is computed.
bool leaves_pending(int opcode) {
  switch (opcode) {
    case FJ_NOP: case FJ_POP_TOP: case FJ_PUSH_NULL: case FJ_COPY: case FJ_SWAP: case FJ_LOAD_CONST: case FJ_LOAD_FAST:
    case FJ_LOAD_SMALL_INT: case FJ_LOAD_COMMON_CONSTANT:
    case FJ_LOAD_DEREF: case FJ_LOAD_GLOBAL: case FJ_LOAD_ATTR: case FJ_LOAD_METHOD: case FJ_UNARY_NEGATIVE:
    case FJ_UNARY_POSITIVE: case FJ_UNARY_INVERT: case FJ_BINARY_OP: case FJ_COMPARE_OP: case FJ_BINARY_SUBSCR:
    case FJ_STORE_SUBSCR: case FJ_BINARY_SLICE: case FJ_STORE_SLICE: case FJ_BUILD_SLICE: case FJ_BUILD_TUPLE:
    case FJ_CALL: case FJ_CALL_KW:
      return true;
    default: return false;
  }
}

}  // namespace

void RegionBuilder::run(Pending pending) {
  block_ = pending.block;
  context_ = pending.context;
  state_ = std::move(pending.state);
  ended_ = false;
  computed_.clear();
  if (is_header(pending.instruction)) note_pass_begin();
  for (int at = pending.instruction; !ended_; ++at) {
    at_ = at;
    before_ = state_;
    bool on = true;
    try {
      if (!is_inside(at)) throw Unknown{""};
      const FjInstr& instr = context_->code->instrs[at];
      // A mask takes it from there again, and stores what it leaves (is_masked_later).
      const bool stores_wide = instr.opcode == FJ_STORE_FAST && (peek(1).kind == Known::Kind::Wide ||
                                                                 slot_of(instr.arg).kind == Known::Kind::Wide);
      if (!leaves_pending(instr.opcode) && !stores_wide) expect_none_pending();
      if (!has_pending()) {
        replay_ = before_;
        replay_at_ = at;
      }
      on = execute(context_->code->instrs[at], at);
    } catch (const Unknown& unknown) {
      return leave_to_cpython(unknown);
    }
    if (!on || ended_) return;
    if (entrances(at + 1) <= 1 && is_inside(at + 1)) continue;
    try {
      expect_none_pending();
    } catch (const Unknown& unknown) {
      return leave_to_cpython(unknown);
    }
    return jump(at + 1, state_);
  }
}

void RegionBuilder::leave_to_cpython(const Unknown& unknown) {
  if (!unknown.what.empty()) made_.unknown.emplace_back(context_->code->instrs[at_].line, unknown.what);
  region::Terminator terminator;
  terminator.leave = leave_here();
  end(std::move(terminator));
}

bool RegionBuilder::execute(const FjInstr& instr, int at) {
  const int arg = instr.arg;
  switch (instr.opcode) {
    case FJ_NOP: return true;
    case FJ_POP_TOP:
      looked_at(peek(1));
      pop();
      return true;
    case FJ_PUSH_NULL: push({}); return true;
    case FJ_COPY:
      if (peek(arg).is_iterator()) throw Unknown{"an iterator that is held twice"};
      push(peek(arg));
      return true;
    case FJ_SWAP: std::swap(peek(1), peek(arg)); return true;
    case FJ_LOAD_CONST: push(literal(PyTuple_GET_ITEM(context_->object->co_consts, arg))); return true;
    case FJ_LOAD_COMMON_CONSTANT: {
      PyObject* const constant = fj_common_constant(arg);
      if (constant == nullptr) throw Unknown{"a constant of CPython's"};
      push(literal(constant));
      return true;
    }
    case FJ_LOAD_SMALL_INT: push(literal(Ref<>::steal(PyLong_FromLong(arg)).get())); return true;
    case FJ_LOAD_FAST: {
      const Known slot = resolve(slot_of(arg));
      if (slot.kind == Known::Kind::Empty) throw Unknown{"a variable that is not bound"};
      push(slot);
      return true;
    }
    case FJ_STORE_FAST: {
      Known value = pop();
      if (value.is_iterator()) throw Unknown{"an iterator in a variable"};
      // What was changed in place is let go of by nobody.
      if (const Known& slot = slot_of(arg); !value.is_whole() || !slot.is_whole() || slot.place != value.place)
        let_go(arg);
      slot_of(arg) = std::move(value);
      return true;
    }
    case FJ_LOAD_FAST_AND_CLEAR:
      push(resolve(slot_of(arg)));
      slot_of(arg) = {};
      return true;
    case FJ_DELETE_FAST:
      if (resolve(slot_of(arg)).kind == Known::Kind::Empty) throw Unknown{"a variable that is not bound"};
      let_go(arg);
      slot_of(arg) = {};
      return true;
    case FJ_LOAD_DEREF: {
      if (context_->caller != nullptr) throw Unknown{"a variable of another function"};
      Known& slot = state_.places[std::size_t(arg)];
      PyObject* const cell = slot.kind == Known::Kind::Entry ? object_at(slot.place) : nullptr;
      if (cell == nullptr || !PyCell_Check(cell) || PyCell_GET(cell) == nullptr)
        throw Unknown{"a variable that is not bound"};
      int place = -1;
      for (std::size_t i = 0; i < made_.reached.size(); ++i)
        if (made_.reached[i].how == ReachedPlace::How::Cell && made_.reached[i].from == slot.place)
          place = int(values_.slots.size() + i);
      if (place < 0) {
        RegionGuard guard{};
        guard.kind = RegionGuard::Kind::Cell;
        guard.place = slot.place;
        made_.guards.push_back(guard);
        place = reach(ReachedPlace::How::Cell, slot.place, 0, PyCell_GET(cell));
      }
      Known entry;
      entry.kind = Known::Kind::Entry;
      entry.place = place;
      push(resolve(entry));
      return true;
    }
    case FJ_LOAD_GLOBAL: load_global(instr); return true;
    case FJ_LOAD_ATTR: load_attribute(PyTuple_GET_ITEM(context_->object->co_names, arg)); return true;
    case FJ_STORE_ATTR: {
      const Known owner = resolve(pop()), value = resolve(pop());
      store_own(owner, PyTuple_GET_ITEM(context_->object->co_names, arg), value);
      return true;
    }
    case FJ_LOAD_METHOD: {
      if (load_method(resolve(peek(1)), PyTuple_GET_ITEM(context_->object->co_names, arg))) return true;
      if (resolve(peek(1)).is_array() || resolve(peek(1)).is_tensor()) {
        Known method;
        method.kind = Known::Kind::Method;
        method.object = Ref<>::borrow(PyTuple_GET_ITEM(context_->object->co_names, arg));
        method.items = {resolve(pop())};
        push(std::move(method));
      } else {
        load_attribute(PyTuple_GET_ITEM(context_->object->co_names, arg));
      }
      Known method = pop();
      if (fj_call_layout_callable_first()) {
        push(std::move(method));
        push({});
      } else {
        push({});
        push(std::move(method));
      }
      return true;
    }
    case FJ_UNARY_NEGATIVE:
      if (const Known value = resolve(peek(1)); value.kind == Known::Kind::Complex) {
        peek(1) = complex(op(Op::neg, {value.value}), op(Op::neg, {value.imaginary}));
        return true;
      }
      if (const Known value = resolve(peek(1)); value.is_array()) peek(1) = array_unary(Op::neg, value);
      else if (value.is_tensor()) peek(1) = tensor_unary(Op::neg, value);
      else push(negative(pop_number()));
      return true;
    case FJ_UNARY_POSITIVE: {
      Known value = pop_number();
      if (value.boxing == Boxing::Bool || value.dtype == DType::Bool) throw Unknown{"`+` of a bool"};
      push(std::move(value));
      return true;
    }
    case FJ_UNARY_NOT: push(python_bool(op(Op::logical_not, {truth(pop_condition())}))); return true;
    case FJ_UNARY_INVERT:
      if (const Known value = resolve(peek(1)); value.is_array()) peek(1) = array_unary(Op::bit_not, value);
      else if (value.is_tensor())
        peek(1) = tensor_unary(dtype(value) == DType::Bool ? Op::logical_not : Op::bit_not, value);
      else push(inverted(pop_number()));
      return true;
    case FJ_TO_BOOL: push(python_bool(truth(pop_condition()))); return true;
    case FJ_BINARY_OP: {
      if (resolve(peek(1)).is_tensor() || resolve(peek(2)).is_tensor()) {
        const Known b = resolve(pop()), a = resolve(pop());
        const bool changes = arg >= NB_INPLACE_ADD && a.is_tensor();
        push(changes ? tensor_in_place(plain_operation(arg), a, b) : tensor_binary(plain_operation(arg), a, b));
        return true;
      }
      if (resolve(peek(1)).kind == Known::Kind::Complex || resolve(peek(2)).kind == Known::Kind::Complex) {
        const Known b = resolve(pop()), a = resolve(pop());
        push(complex_binary(arg, a, b));
        return true;
      }
      if (resolve(peek(1)).is_array() || resolve(peek(2)).is_array()) {
        const Known b = resolve(pop()), a = resolve(pop());
        const bool changes = arg >= NB_INPLACE_ADD;
        const int operation = changes ? arg - NB_INPLACE_ADD : arg;
        push(changes && a.is_array() ? in_place(operation, a, b) : array_binary(operation, a, b));
        return true;
      }
      if (resolve(peek(1)).is_list() || resolve(peek(2)).is_list()) {
        const Known b = resolve(pop()), a = resolve(pop());
        if (arg == NB_MULTIPLY && a.is_list() != b.is_list()) {
          const Known& times = a.is_list() ? b : a;
          if (!times.is_number()) throw Unknown{"a list times what is no number"};
          push(repeated(a.is_list() ? a : b, times));
        } else if (arg == NB_ADD && a.is_list() && b.is_list()) {
          push(joined(a, b));
        } else {
          throw Unknown{"an operation on a list"};
        }
        return true;
      }
      if (auto made = wide_binary(arg, resolve(peek(2)), resolve(peek(1)))) {
        state_.places.resize(state_.places.size() - 2);
        push(*std::move(made));
        return true;
      }
      const Known b = pop_number(), a = pop_number();
      push(binary(arg, a, b));
      return true;
    }
    case FJ_COMPARE_OP: {
      if (resolve(peek(1)).is_tensor() || resolve(peek(2)).is_tensor()) {
        const Known b = resolve(pop()), a = resolve(pop());
        const Known made = tensor_compare(arg, a, b);
        push(instr.arg2 ? python_bool(made.value) : made);
        return true;
      }
      if (resolve(peek(1)).is_array() || resolve(peek(2)).is_array()) {
        if (instr.arg2) throw Unknown{"the truth of an array"};
        const Known b = resolve(pop()), a = resolve(pop());
        push(array_compare(arg, a, b));
        return true;
      }
      const Known b = pop_number(), a = pop_number();
      Known made = compare(arg, a, b);
      if (instr.arg2) made = python_bool(truth(made));
      push(std::move(made));
      return true;
    }
    case FJ_IS_OP: {
      const Known b = resolve(pop()), a = resolve(pop());
      const bool known_a = a.kind == Known::Kind::Object, known_b = b.kind == Known::Kind::Object;
      const auto is_none = [](const Known& known) {
        return known.kind == Known::Kind::Object && known.object.get() == Py_None;
      };
      if (a.is_list() && b.is_list()) {
        push(python_bool(op(arg ? Op::ne : Op::eq, {a.value, b.value})));
        return true;
      }
      if (!(known_a && known_b) && !is_none(a) && !is_none(b)) throw Unknown{"`is` of what is not known"};
      if (a.kind == Known::Kind::Entry || b.kind == Known::Kind::Entry) throw Unknown{"`is` of what is not known"};
      const bool same = known_a && known_b && a.object.get() == b.object.get();
      push(literal(same != bool(arg) ? Py_True : Py_False));
      return true;
    }
    case FJ_CONTAINS_OP: return contains(instr);
    case FJ_BINARY_SUBSCR: {
      const Known index = resolve(pop()), container = resolve(pop());
      subscript(container, index);
      return true;
    }
    case FJ_STORE_SUBSCR: {
      const Known index = resolve(pop()), container = resolve(pop()), value = resolve(pop());
      store_subscript(container, index, value);
      return true;
    }
    case FJ_BUILD_SLICE: case FJ_BINARY_SLICE: case FJ_STORE_SLICE: {
      const int given = instr.opcode == FJ_BUILD_SLICE ? arg : 2;
      Known slice;
      slice.kind = Known::Kind::Slice;
      for (int i = given; i > 0; --i) slice.items.push_back(resolve(peek(i)));
      if (given == 2) slice.items.push_back(object(Py_None));
      state_.places.resize(state_.places.size() - std::size_t(given));
      if (instr.opcode == FJ_BUILD_SLICE) {
        push(std::move(slice));
        return true;
      }
      const Known container = resolve(pop());
      if (instr.opcode == FJ_BINARY_SLICE) subscript(container, slice);
      else store_subscript(container, slice, resolve(pop()));
      return true;
    }
    case FJ_BUILD_TUPLE: {
      for (int i = arg; i > 0; --i)
        if (peek(i).kind == Known::Kind::Expression) force();
      Known made;
      made.kind = Known::Kind::Tuple;
      for (int i = arg; i > 0; --i) made.items.push_back(resolve(peek(i)));
      for (const Known& item : made.items)
        if (item.kind == Known::Kind::Empty || item.is_iterator()) throw Unknown{"a tuple of what is not known"};
      state_.places.resize(state_.places.size() - std::size_t(arg));
      push(std::move(made));
      return true;
    }
    case FJ_BUILD_LIST: {
      std::vector<Known> items;
      for (int i = arg; i > 0; --i) items.push_back(resolve(peek(i)));
      const Known made = build_list(items);
      state_.places.resize(state_.places.size() - std::size_t(arg));
      push(made);
      return true;
    }
    case FJ_LIST_EXTEND: extend_new_list(arg); return true;
    case FJ_UNPACK_SEQUENCE: {
      const Known sequence = resolve(pop());
      if (sequence.is_array()) {
        leave_if(op(Op::ne, {size(sequence, 0), integer(arg)}));
        for (int i = arg; i-- > 0;) push(part(sequence, {python_int(integer(i))}));
        return true;
      }
      if (sequence.is_tensor() && rank(sequence) > 0) {
        leave_if(op(Op::ne, {size(sequence, 0), integer(arg)}));
        for (int i = arg; i-- > 0;) {
          push(tensor_part(sequence, {python_int(integer(i))}));
          peek(1).unbound = true;
        }
        return true;
      }
      const auto items = tuple_items(sequence);
      if (!items || int(items->size()) != arg) throw Unknown{"unpacking of what is no tuple"};
      for (std::size_t i = items->size(); i-- > 0;) push((*items)[i]);
      return true;
    }
    case FJ_LIST_APPEND: {
      const Known value = resolve(pop()), list = resolve(peek(arg));
      if (!list.is_list()) throw Unknown{"an item of a list that is not known"};
      append(list, value);
      return true;
    }
    case FJ_GET_ITER: push(iterator(resolve(pop()))); return true;
    case FJ_FOR_ITER: return next_item(instr, at);
    case FJ_CALL:
      return call_instruction(arg,
                              instr.arg2 < 0 ? nullptr : PyTuple_GET_ITEM(context_->object->co_consts, instr.arg2));
    case FJ_CALL_KW: {
      const Known names = pop();
      if (names.kind != Known::Kind::Object || !PyTuple_Check(names.object.get()))
        throw Unknown{"a call with keywords"};
      return call_instruction(arg, names.object.get());
    }
    case FJ_JUMP:
      if (instr.arg2 && is_inside(arg)) {
        const std::int64_t passes = go_back(arg);
        state_.passes = op(Op::add, {state_.passes, integer(passes)});
      }
      jump(arg, state_);
      return false;
    case FJ_POP_JUMP_IF_FALSE: case FJ_POP_JUMP_IF_TRUE:
    case FJ_JUMP_IF_FALSE_OR_POP: case FJ_JUMP_IF_TRUE_OR_POP: {
      const bool jumps_if = instr.opcode == FJ_POP_JUMP_IF_TRUE || instr.opcode == FJ_JUMP_IF_TRUE_OR_POP;
      const bool pops = instr.opcode == FJ_POP_JUMP_IF_TRUE || instr.opcode == FJ_POP_JUMP_IF_FALSE;
      const Known asked = resolve(peek(1)), value = pop_condition();
      const ValueId condition = truth(value);
      State onward = state_, jumping = state_;
      if (!pops) jumping.places.push_back(asked.is_tensor() ? asked : value);
      if (instr.arg2 && is_inside(arg)) {
        const std::int64_t passes = go_back(arg);
        jumping.passes = op(Op::add, {state_.passes, integer(passes)});
      }
      if (value.object && value.boxing != Boxing::Numpy) {
        const int known = PyObject_IsTrue(value.object.get());
        if (known < 0) throw Unknown{"a condition that raises"};
        const bool taken = bool(known) == jumps_if;
        jump(taken ? arg : at + 1, taken ? jumping : onward);
        return false;
      }
      return jumps_if ? branch(condition, arg, at + 1, jumping, onward)
                      : branch(condition, at + 1, arg, onward, jumping);
    }
    case FJ_POP_JUMP_IF_NONE: case FJ_POP_JUMP_IF_NOT_NONE: {
      const Known value = resolve(pop());
      if (value.kind == Known::Kind::Entry || instr.arg2) throw Unknown{"`is None` of what is not known"};
      const bool none = value.kind == Known::Kind::Object && value.object.get() == Py_None;
      jump(none == (instr.opcode == FJ_POP_JUMP_IF_NONE) ? arg : at + 1, state_);
      return false;
    }
    case FJ_RETURN_VALUE:
      if (context_->caller == nullptr) throw Unknown{""};
      return return_from_function();
    case FJ_RETURN_CONST:
      if (context_->caller == nullptr) throw Unknown{""};
      push(literal(PyTuple_GET_ITEM(context_->object->co_consts, arg)));
      return return_from_function();
    default: throw Unknown{std::string("the instruction ") + fj_opcode_name(instr.opcode)};
  }
}

/// Objects that are let go of in the region end when it is left: the end of one that is not known, or of an array, may be
/// seen.
void RegionBuilder::let_go(int slot) {
  const Known& known = slot_of(slot);
  const bool array = known.kind == Known::Kind::Array, list = known.kind == Known::Kind::List;
  const bool tensor = known.kind == Known::Kind::Tensor && known.is_whole();
  if (known.kind != Known::Kind::Entry && !array && !list && !tensor) return;
  if (tensor ? tensor_ends_unseen(object_at(known.place))
             : array && !facts(known).bytes && ends_unseen(object_at(known.place))) {
    made_.guards[facts(known).guard].ends = true;
    return;
  }
  if (list && list_ends_unseen(object_at(known.place))) {
    made_.guards[lists_.at(known.place).guard].ends = true;
    return;
  }
  const auto holds = [&](const Known& other) {
    return &other != &known && other.kind == known.kind && other.place == known.place && !other.is_part_of_tensor();
  };
  if (known.kind == Known::Kind::Entry || std::none_of(state_.places.begin(), state_.places.end(), holds))
    throw Unknown{"a variable whose object may end here"};
}

bool RegionBuilder::contains(const FjInstr& instr) {
  const Known sequence = pop();
  const Known value = pop_number();
  std::optional<std::vector<Known>> items = tuple_items(sequence);
  // `in {1, 2}`; a scalar of NumPy's may be equal to a number of another hash.
  if (sequence.kind == Known::Kind::Object && PyFrozenSet_CheckExact(sequence.object.get()) && !value.is_numpy()) {
    const Ref<> tuple = Ref<>::steal(PySequence_Tuple(sequence.object.get()));
    items = tuple ? tuple_items(object(tuple.get())) : std::nullopt;
    PyErr_Clear();
  }
  if (!items) throw Unknown{"`in` of what is neither a tuple nor a set"};
  // What is in a tuple as the same object is found, equal to itself or not.
  if (is_float(value.dtype)) leave_if(op(Op::is_nan, {value.value}));
  ValueId found = constant(DType::Bool, false);
  for (const Known& item : *items) {
    if (!item.is_number()) throw Unknown{"`in` of a tuple of what are no numbers"};
    found = op(Op::bit_or, {found, truth(compare(Py_EQ, item, value))});
  }
  push(python_bool(instr.arg ? op(Op::logical_not, {found}) : found));
  return true;
}

namespace {

/// Whether a global variable with this object is one more place, whose numbers and arrays may differ from run to run;
/// else the region is made for this very object.
bool is_looked_into(PyObject* object) {
  if (array_library(object) || numpy_scalar_dtype(object) || PyBytes_CheckExact(object) || PyList_CheckExact(object))
    return true;
  const PyTypeObject* const type = Py_TYPE(object);
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_call == nullptr && !PyType_Check(object) &&
         !PyTuple_Check(object);
}

}  // namespace

namespace {

/// Null: the class has another lookup, or something else than `expected` by the name.
Ref<> looked_up(PyObject* object, PyTypeObject* type, PyObject* name, PyObject* expected) {
  if (Py_TYPE(object) != type || type->tp_getattro != PyObject_GenericGetAttr) return {};
  if (fj_type_lookup(type, name) != expected) return {};
  Ref<> found = Ref<>::steal(PyObject_GenericGetAttr(object, name));
  PyErr_Clear();
  return found;
}

}  // namespace

Ref<> own_attribute(PyObject* object, PyTypeObject* type, PyObject* name) {
  return looked_up(object, type, name, nullptr);
}

bool has_method(PyObject* object, PyTypeObject* type, PyObject* name, PyObject* function) {
  const Ref<> found = looked_up(object, type, name, function);
  // The object may have an attribute of its own by that name, a method of another object too.
  return found && PyMethod_Check(found.get()) && PyMethod_GET_FUNCTION(found.get()) == function &&
         PyMethod_GET_SELF(found.get()) == object;
}

bool share_attributes(PyObject* object, PyObject* other) {
  return object == other || fj_instance_dict(object) == fj_instance_dict(other);
}

RegionGuard* RegionBuilder::known_guard(const RegionGuard& guard) {
  const auto found = std::find_if(made_.guards.begin(), made_.guards.end(), [&](const RegionGuard& other) {
    return other.kind == guard.kind && other.owner == guard.owner && other.names.get() == guard.names.get() &&
           other.object.get() == guard.object.get();
  });
  return found != made_.guards.end() ? &*found : nullptr;
}

Known RegionBuilder::place_of(ReachedPlace::How how, RegionGuard guard, PyObject* object) {
  Known entry;
  entry.kind = Known::Kind::Entry;
  if (const RegionGuard* const known = known_guard(guard)) {
    entry.place = known->place;
    if (const auto stored = state_.stored.find(entry.place); stored != state_.stored.end()) return stored->second;
  } else {
    guard.place = entry.place = reach(how, guard.owner, 0, object);
    made_.guards.push_back(std::move(guard));
  }
  return resolve(entry);
}

std::optional<RegionGuard> RegionBuilder::guard_of_own(const Known& owner, PyObject* name) {
  PyObject* const object = owner.kind == Known::Kind::Entry ? object_at(owner.place) : nullptr;
  if (object == nullptr || !own_attribute(object, Py_TYPE(object), name)) return std::nullopt;
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Attribute;
  guard.owner = owner.place;
  guard.object = Ref<>::borrow(name);
  guard.value = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  return guard;
}

bool RegionBuilder::load_own(const Known& owner, PyObject* name) {
  std::optional<RegionGuard> guard = guard_of_own(owner, name);
  if (!guard) return false;
  for (const RegionGuard& other : made_.guards)
    if (other.writes && other.is_alias_of(*guard) && share_attributes(object_at(other.owner), object_at(owner.place)))
      throw Unknown{"an attribute of one object by two names"};
  const Ref<> found = own_attribute(object_at(owner.place), Py_TYPE(object_at(owner.place)), name);
  push(place_of(ReachedPlace::How::Attribute, *std::move(guard), found.get()));
  return true;
}

/// Only numbers, in the place of numbers: nobody sees when those end.
void RegionBuilder::store_own(const Known& owner, PyObject* name, const Known& value) {
  const std::string what = "the attribute `" + text_of(name) + "` is stored";
  if (!value.is_number() && value.kind != Known::Kind::Complex) throw Unknown{what};
  const std::optional<RegionGuard> guard = guard_of_own(owner, name);
  if (!guard || Py_TYPE(object_at(owner.place))->tp_setattro != PyObject_GenericSetAttr || !load_own(owner, name))
    throw Unknown{what};
  const Known before = pop();
  const bool is_none = before.kind == Known::Kind::Object && before.object.get() == Py_None;
  if (!before.is_number() && before.kind != Known::Kind::Complex && !is_none) throw Unknown{what};
  for (const RegionGuard& other : made_.guards)
    if (other.is_alias_of(*guard) && share_attributes(object_at(other.owner), object_at(owner.place)))
      throw Unknown{what};
  RegionGuard* const known = known_guard(*guard);
  known->writes = true;
  state_.stored.insert_or_assign(known->place, value);
}

bool RegionBuilder::load_method(const Known& owner, PyObject* name) {
  if (owner.is_list()) {
    PyObject* const known = fj_type_lookup(&PyList_Type, name);
    if (known == nullptr || Py_TYPE(known) != &PyMethodDescr_Type) throw Unknown{"an attribute of a list"};
    peek(1) = RegionBuilder::object(known);
    push(owner);
    return true;
  }
  if (owner.kind != Known::Kind::Entry) return false;
  PyObject* const object = object_at(owner.place);
  PyObject* const function = object != nullptr ? fj_type_lookup(Py_TYPE(object), name) : nullptr;
  if (function == nullptr || !PyFunction_Check(function)) return false;
  if (!has_method(object, Py_TYPE(object), name, function)) return false;
  RegionGuard guard{};
  guard.kind = RegionGuard::Kind::Method;
  guard.owner = owner.place;
  guard.object = Ref<>::borrow(name);
  guard.value = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
  guard.names = Ref<>::borrow(function);
  if (!known_guard(guard)) made_.guards.push_back(std::move(guard));
  peek(1) = RegionBuilder::object(function);
  push(owner);
  return true;
}

void RegionBuilder::load_global(const FjInstr& instr) {
  PyObject* const name = PyTuple_GET_ITEM(context_->object->co_names, instr.arg);
  PyObject* const globals = context_->globals;
  PyObject* const builtins = context_->builtins;
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) throw Unknown{"a namespace that is no dict"};
  Known known;
  if (PyObject* const global = PyDict_GetItemWithError(globals, name); global != nullptr && is_looked_into(global)) {
    RegionGuard guard{};
    guard.kind = RegionGuard::Kind::Global;
    guard.names = Ref<>::borrow(globals);
    guard.object = Ref<>::borrow(name);
    known = place_of(ReachedPlace::How::Global, std::move(guard), global);
  } else {
    PyErr_Clear();
    PyObject* value = named(globals, name);
    if (value == nullptr) value = named(builtins, name);
    if (value == nullptr) throw Unknown{"a name that is not bound"};
    known = literal(value);
  }
  if (instr.arg2 && !fj_call_layout_callable_first()) push({});
  push(std::move(known));
  if (instr.arg2 && fj_call_layout_callable_first()) push({});
}

void RegionBuilder::load_attribute(PyObject* name) {
  const Known owner = looked_at(resolve(pop()));
  if (owner.kind == Known::Kind::Object && PyModule_CheckExact(owner.object.get())) {
    if (PyObject* const value = named(PyModule_GetDict(owner.object.get()), name)) return push(literal(value));
  }
  if (owner.is_array() && !is_bytes(owner)) {
    const std::string text = text_of(name);
    if (text == "ndim") return push(python_int(integer(rank(owner))));
    if (text == "shape") {
      Known shape;
      shape.kind = Known::Kind::Tuple;
      for (int axis = 0; axis < rank(owner); ++axis) shape.items.push_back(python_int(size(owner, axis)));
      return push(std::move(shape));
    }
    if (text == "size") {
      std::vector<ValueId> sizes;
      for (int axis = 0; axis < rank(owner); ++axis) sizes.push_back(size(owner, axis));
      return push(python_int(count(sizes)));
    }
    if (text == "T") return push(transposed(owner));
  }
  if (owner.is_tensor())
    if (auto made = tensor_attribute(text_of(name), owner)) return push(*std::move(made));
  if (owner.kind == Known::Kind::Complex) {
    const std::string text = text_of(name);
    if (text == "real") return push(python_float(owner.value));
    if (text == "imag") return push(python_float(owner.imaginary));
  }
  if (!load_own(owner, name)) throw Unknown{"an attribute `" + text_of(name) + "`"};
}

}  // namespace fj
