/// Python numbers that the program computes: what `.item()` gives, and what floats are computed from such.
///
/// A float is an f64 of no dimensions in the graph, and its arithmetic is CPython's: the same operations of the same C
/// library. Where CPython raises (a division by zero, a power that overflows) the program fails, and CPython runs the
/// piece and raises. Ints have 64 bits: where CPython's would need more, the program fails. What asks for an int takes
/// one as a size (`size_of_number`). A float from outside that changes
/// between calls takes part, so that a learning rate under a schedule is no constant of the trace; and so does an int
/// that is a symbol, where the result is a float. What is computed from such alone is a value from outside too, if its
/// value is asked for (`settled`, derived_values.cpp).
#include "tracer/values/numbers/computed_numbers.h"

#include <opcode.h>

#include <cmath>

#include "cpython/cpython.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/placement.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/outside_objects.h"

namespace fj {
namespace {

/// A float of the graph: computed, or from outside and not always the same. Invalid: something else.
ValueId changing_float(TraceRun& t, const V& value) {
  if (auto* number = as<NumberValue>(value)) return number->dtype == DType::F64 ? number->contents : ValueId{};
  auto* object = as<ObjectValue>(value);
  return object && PyFloat_CheckExact(object->object.get()) ? t.float_input(value) : ValueId{};
}

constexpr std::int64_t kLargestHeld = std::int64_t(1) << 53;  // of ints that doubles hold

/// What arithmetic takes for an int: one, or a bool, of Python or of the program.
bool is_int(const V& value) {
  if (auto* number = as<NumberValue>(value)) return number->dtype != DType::F64;
  auto* object = as<ObjectValue>(value);
  return value->kind == ValueKind::SymInt ||
         (object && (PyLong_CheckExact(object->object.get()) || PyBool_Check(object->object.get())));
}

/// What float arithmetic takes the value for; invalid where it is no number it takes.
ValueId as_float(TraceRun& t, const V& value) {
  if (const ValueId changing = changing_float(t, value); changing.valid()) return changing;
  if (auto* symbolic = as<SymIntValue>(value)) return size_value(t, symbolic->expression, DType::F64);
  if (auto* number = as<NumberValue>(value); number && number->dtype == DType::I64) {
    // Held by a double, or the program fails.
    auto bound = [&](std::int64_t value) { return fj::constant(t, DType::I64, value); };
    const ValueId low = emit(t, Op::ge, {number->contents, bound(-kLargestHeld)}),
                  high = emit(t, Op::le, {number->contents, bound(kLargestHeld)});
    return t.checked(cast(t, number->contents, DType::F64), emit(t, Op::bit_and, {low, high}));
  }
  auto* object = as<ObjectValue>(value);
  if (!object || !(PyFloat_CheckExact(object->object.get()) || PyLong_CheckExact(object->object.get()) ||
                   PyBool_Check(object->object.get())))
    return {};
  PyObject* constant = t.constant_object(value);
  const double number =
      constant ? PyFloat_Check(constant) ? PyFloat_AS_DOUBLE(constant) : PyLong_AsDouble(constant) : 0;
  if (!constant || PyErr_Occurred()) {
    PyErr_Clear();
    return {};
  }
  return fj::constant(t, DType::F64, number);
}

/// What integer arithmetic takes the value for, of a magnitude up to `limit` or the program fails; invalid: no int.
ValueId as_int(TraceRun& t, const V& value, std::int64_t limit) {
  ValueId contents;
  if (auto* number = as<NumberValue>(value)) {
    contents = number->dtype == DType::F64 ? ValueId{} : cast(t, number->contents, DType::I64);
  } else if (auto* symbolic = as<SymIntValue>(value)) {
    contents = size_value(t, symbolic->expression, DType::I64);
  } else if (auto known = t.constant_int(value); known && *known >= -limit && *known <= limit) {
    return fj::constant(t, DType::I64, *known);
  }
  if (!contents.valid()) return contents;
  const ValueId low = emit(t, Op::ge, {contents, fj::constant(t, DType::I64, -limit)}),
                high = emit(t, Op::le, {contents, fj::constant(t, DType::I64, limit)});
  return t.checked(contents, emit(t, Op::bit_and, {low, high}));
}

/// An operator of two ints of which the program computes one; null: it is none that is computed.
V int_binary(TraceRun& t, int op, const V& a, const V& b) {
  const bool divides = op == NB_FLOOR_DIVIDE || op == NB_REMAINDER;
  if (!divides && op != NB_ADD && op != NB_SUBTRACT && op != NB_MULTIPLY) return nullptr;
  if (!is_int(a) || !is_int(b) || settled(t, a) != a || settled(t, b) != b) return nullptr;
  // CPython raises for 0; by other than constants it is left to CPython.
  if (divides && (b->kind != ValueKind::Object || t.constant_int(b).value_or(0) == 0)) return nullptr;
  // Within these the result has 64 bits.
  const std::int64_t limit = op == NB_MULTIPLY ? (std::int64_t(1) << 31) - 1 : (std::int64_t(1) << 62) - 1;
  const ValueId left = as_int(t, a, limit), right = left.valid() ? as_int(t, b, limit) : ValueId{};
  if (!right.valid()) return nullptr;
  const Op made = op == NB_ADD            ? Op::add
                  : op == NB_SUBTRACT     ? Op::sub
                  : op == NB_MULTIPLY     ? Op::mul
                  : op == NB_FLOOR_DIVIDE ? Op::floor_div
                                          : Op::mod;
  return std::make_shared<NumberValue>(emit(t, made, {left, right}), DType::I64);
}

V float_of(ValueId contents) { return std::make_shared<NumberValue>(contents, DType::F64); }

/// The number, and what it is as a value from outside, where `function` makes it of such.
V with_known(TraceRun& t, V made, const std::vector<V>& operands, PyObject* function) {
  as<NumberValue>(made)->known = result_of(t, function, operands, false);
  return made;
}

/// An int that a double holds, asked of a symbol by a guard.
bool fits_double(TraceRun& t, const V& value) {
  const auto expression = t.int_expression(value);
  return expression && t.decide(*expression, Py_LE, kLargestHeld) && t.decide(*expression, Py_GE, -kLargestHeld);
}

/// Whether an operator on an int that is a symbol and another number gives a float that the program can compute: the
/// quotient of ints is rounded once, as that of doubles is that hold them.
bool gives_float(TraceRun& t, int op, const V& a, const V& b) {
  if (a->kind != ValueKind::SymInt && b->kind != ValueKind::SymInt) return false;
  bool real = false;
  for (const V& value : {a, b}) {
    if (value->kind == ValueKind::SymInt) continue;
    auto* object = as<ObjectValue>(value);
    if (!object || !(PyFloat_CheckExact(object->object.get()) || PyLong_CheckExact(object->object.get()))) return false;
    real = real || PyFloat_CheckExact(object->object.get());
  }
  if (!computes_numbers(t)) return false;
  if (!real && (op != NB_TRUE_DIVIDE || !fits_double(t, a) || !fits_double(t, b))) return false;
  if (op != NB_TRUE_DIVIDE) return true;
  // CPython raises.
  auto* divisor = as<SymIntValue>(b);
  return divisor ? !t.decide(divisor->expression, Py_EQ, 0) : PyObject_IsTrue(t.constant_object(b)) == 1;
}

}  // namespace

bool computes_numbers(TraceRun& t) {
  // What is computed leaves the program in one of NumPy's arrays.
  return t.request.generalise.builtin_backend && !t.request.generalise.never_dynamic && numpy_module();
}

V settled(TraceRun& t, const V& value) {
  auto* number = as<NumberValue>(value);
  if (!number || !number->known) return value;
  if (auto* known = as<ObjectValue>(number->known)) guard_type(t, *known);
  return number->known;
}

V symbol_as_float(TraceRun& t, const V& value) {
  auto* symbolic = as<SymIntValue>(value);
  if (!symbolic || !computes_numbers(t)) return nullptr;
  V made = with_known(t, float_of(size_value(t, symbolic->expression, DType::F64)), {value},
                      reinterpret_cast<PyObject*>(&PyFloat_Type));
  return as<NumberValue>(made)->known || t.graph().is_late(symbolic->expression) ? made : nullptr;
}

ValueId TraceRun::checked(ValueId value, ValueId holds) {
  // 1 / 0 fails the program, before it has written anything; else it is 1, and the value is what it was.
  const ValueId unit = fj::constant(*this, DType::I64, 1);
  const ValueId held = emit(*this, Op::floor_div, {unit, cast(*this, holds, DType::I64)});
  const Type type = graph().type(value);
  return emit(*this, Op::mul, {value, broadcast_to(*this, fj::cast(*this, held, type.dtype), type.shape)});
}

V TraceRun::number(const ArrayValue& array) {
  for (const SymDim& size : array.shape)
    if (!decide(size, Py_EQ, 1))
      break_graph(BreakReason::ErrorWhileTracing, "item() of an array that has not one element");
  if (placement->on_device() && array.storage->device == kHost)
    break_graph(BreakReason::ScalarFromArray,
                "an element of an array of cpu becomes a number in a piece on " + device_text(*placement->graph));
  if (array.storage->device != kHost)
    break_graph(BreakReason::ScalarFromArray, "an element of a tensor of " + device_text(array.storage->device) +
                                                  ", for which Python waits, becomes a number");
  // A back end that runs nodes on arrays of its own gives no numbers back.
  if (!request.generalise.builtin_backend || is_complex(array.dtype))
    break_graph(BreakReason::ScalarFromArray, "an element becomes a Python number");
  if (is_unsigned_integer(array.dtype) && size_in_bytes(array.dtype) == 8)
    break_graph(BreakReason::ScalarFromArray, "an int of more than 63 bits");
  const DType dtype = is_float(array.dtype) ? DType::F64 : array.dtype == DType::Bool ? DType::Bool : DType::I64;
  ValueId value = cast(*this, reshape(*this, read(array), {}), dtype);
  if (depends_on_example(*this, value)) refuse_in_torch_transform(*this, "the value of one example");
  if (requires_gradient(value)) {
    // torch's item() is no part of what is derived; a derivative of NumPy code would have to go on through Python's
    // numbers.
    if (array.library == Library::Numpy)
      break_graph(BreakReason::ScalarFromArray, "a Python number is read from an array");
    value = stopped(*this, value);
  }
  return std::make_shared<NumberValue>(value, dtype);
}

std::optional<V> computed_binary(TraceRun& t, int nb_op, const V& a, const V& b) {
  const int plain = nb_op >= NB_INPLACE_ADD ? nb_op - NB_INPLACE_ADD : nb_op;
  const bool known =
      plain == NB_ADD || plain == NB_SUBTRACT || plain == NB_MULTIPLY || plain == NB_TRUE_DIVIDE || plain == NB_POWER;
  const bool computed = a->kind == ValueKind::Number || b->kind == ValueKind::Number;
  if (!computed &&
      (!known || (!changing_float(t, a).valid() && !changing_float(t, b).valid() && !gives_float(t, plain, a, b))))
    return std::nullopt;
  const bool of_floats = known && (plain == NB_TRUE_DIVIDE || !is_int(a) || !is_int(b));
  const ValueId left = of_floats ? as_float(t, a) : ValueId{}, right = left.valid() ? as_float(t, b) : ValueId{};
  if (!right.valid()) {
    if (!computed) return std::nullopt;
    if (V x = settled(t, a), y = settled(t, b); x != a || y != b) return t.binary(nb_op, x, y);
    if (V made = int_binary(t, plain, a, b)) return made;
    for (const V& operand : {a, b}) t.round_as_library(operand);
    break_graph(BreakReason::ScalarFromArray,
                "`" + t.source_text() + "` computes with " + describe(a->kind == ValueKind::Number ? a : b));
  }
  auto make = [&](Op op, std::vector<ValueId> operands) {
    return t.graph().add(op, std::move(operands), {}, t.location());
  };
  auto made = [&](ValueId contents, const char* function) {
    return with_known(t, float_of(contents), {a, b}, operator_function(function));
  };
  switch (plain) {
    case NB_ADD: return made(make(Op::add, {left, right}), "add");
    case NB_SUBTRACT: return made(make(Op::sub, {left, right}), "sub");
    case NB_MULTIPLY: return made(make(Op::mul, {left, right}), "mul");
    case NB_TRUE_DIVIDE: {
      // A constant that is not zero is seen to be none, a symbol is asked.
      auto* divisor = as<ObjectValue>(b);
      auto* symbol = as<SymIntValue>(b);
      const bool not_zero = divisor  ? !changing_float(t, b).valid() && PyObject_IsTrue(divisor->object.get()) == 1
                            : symbol ? !t.graph().is_late(symbol->expression) && !t.decide(symbol->expression, Py_EQ, 0)
                                     : false;
      const ValueId zero = fj::constant(t, DType::F64, 0.0);
      return made(make(Op::div, {left, not_zero ? right : t.checked(right, make(Op::ne, {right, zero}))}), "truediv");
    }
    default: {
      // A device's powers are not the C library's.
      if (t.placement->on_device())
        break_graph(BreakReason::ScalarFromArray, "`" + t.source_text() + "` computes with numbers in a piece on " +
                                                      device_text(*t.placement->graph));
      // A power of finite numbers is finite in CPython, or complex, or an error. Powers of infinity are left to it too.
      const ValueId power = make(Op::pow, {left, right});
      return made(t.checked(power, make(Op::is_finite, {power})), "pow");
    }
  }
}

std::optional<V> computed_unary(TraceRun& t, int opcode, const V& a) {
  const ValueId value = changing_float(t, a);
  if (value.valid() && opcode == FJ_UNARY_NEGATIVE)
    return with_known(t, float_of(t.graph().add(Op::neg, {value}, {}, t.location())), {a}, operator_function("neg"));
  if (value.valid() && opcode == FJ_UNARY_POSITIVE) return a;  // the same object
  if (a->kind != ValueKind::Number) return std::nullopt;
  if (V known = settled(t, a); known != a) return unary(t, opcode, known);
  if (opcode == FJ_UNARY_NEGATIVE)
    if (V made = int_binary(t, NB_SUBTRACT, t.integer(0), a)) return made;
  break_graph(BreakReason::ScalarFromArray, "`" + t.source_text() + "` computes with " + describe(a));
}

V computed_choice(TraceRun& t, const V& condition, const V& yes, const V& no) {
  auto* decides = as<NumberValue>(condition);
  if (!decides || decides->dtype != DType::Bool || t.type_of(yes) != &PyFloat_Type || t.type_of(no) != &PyFloat_Type)
    return nullptr;
  const ValueId left = as_float(t, yes), right = left.valid() ? as_float(t, no) : ValueId{};
  return right.valid() ? float_of(t.graph().add(Op::where, {decides->contents, left, right}, {}, t.location()))
                       : nullptr;
}

V computed_int(TraceRun& t, const V& number) {
  const auto& held = *as<NumberValue>(number);
  if (held.dtype == DType::F64) return nullptr;
  return held.dtype == DType::I64 ? number
                                  : std::make_shared<NumberValue>(cast(t, held.contents, DType::I64), DType::I64);
}

V computed_float(TraceRun& t, const V& number) {
  const auto& held = *as<NumberValue>(number);
  return held.dtype == DType::F64 ? number : float_of(cast(t, held.contents, DType::F64));
}

V computed_function(TraceRun& t, Op op, const V& a) {
  const ValueId value = changing_float(t, a);
  if (!value.valid()) return nullptr;
  const ValueId result = t.graph().add(op, {value}, {}, t.location());
  if (op != Op::sqrt) return with_known(t, float_of(result), {a}, operator_function("abs"));
  // Of a negative number math.sqrt raises; of NaN it is NaN.
  PyObject* const root = once([] { return imported("math", "sqrt").release(); });
  const ValueId negative = t.graph().add(Op::lt, {value, fj::constant(t, DType::F64, 0.0)}, {}, t.location());
  return with_known(t, float_of(t.checked(result, emit(t, Op::logical_not, {negative}))), {a}, root);
}

std::optional<V> computed_compare(TraceRun& t, int comparison, const V& a, const V& b) {
  if (a->kind != ValueKind::Number && b->kind != ValueKind::Number) return std::nullopt;
  // An int that a float holds; others are compared exactly by CPython, not as floats.
  auto comparable = [&](const V& value) -> ValueId {
    if (value->kind == ValueKind::SymInt) return fits_double(t, value) ? as_float(t, value) : ValueId{};
    auto* object = as<ObjectValue>(value);
    if (!object || !PyLong_Check(object->object.get()))
      return value->kind == ValueKind::Number || object ? as_float(t, value) : ValueId{};
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object->object.get(), &overflow);
    return overflow == 0 && std::abs(number) <= (1LL << 53) ? as_float(t, value) : ValueId{};
  };
  // Two ints are compared as such.
  auto whole = [&](const V& value) -> ValueId {
    if (auto* number = as<NumberValue>(value)) return cast(t, number->contents, DType::I64);
    if (auto* symbolic = as<SymIntValue>(value)) return size_value(t, symbolic->expression, DType::I64);
    const auto known = t.constant_int(value);
    return known ? fj::constant(t, DType::I64, *known) : ValueId{};
  };
  const bool ints = is_int(a) && is_int(b) && settled(t, a) == a && settled(t, b) == b;
  ValueId left = ints ? whole(a) : ValueId{}, right = left.valid() ? whole(b) : ValueId{};
  if (!right.valid()) left = comparable(a), right = left.valid() ? comparable(b) : ValueId{};
  if (!right.valid()) {
    if (V x = settled(t, a), y = settled(t, b); x != a || y != b) return t.compare(comparison, x, y);
    break_graph(BreakReason::ScalarFromArray,
                "`" + t.source_text() + "` compares " + describe(a->kind == ValueKind::Number ? a : b));
  }
  constexpr Op kOps[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
  return std::make_shared<NumberValue>(t.graph().add(kOps[comparison], {left, right}, {}, t.location()), DType::Bool);
}

}  // namespace fj
