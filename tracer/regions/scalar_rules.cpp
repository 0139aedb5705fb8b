// What Python's operators give for numbers: the rules of int, float and bool, and of NumPy's scalars (NEP 50).
#include <opcode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cpython/cpython.h"
#include "graph_ir/ops.h"
#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

using region::Code;

constexpr std::int64_t kExact = std::int64_t(1) << 53;  // ints up to here are floats
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

bool is_python_float(const Known& value) { return value.boxing == Boxing::Float; }

std::optional<DType> promoted(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  const auto bytes = [](DType dtype) { return size_in_bytes(dtype); };
  if (is_float(a) && is_float(b)) return bytes(a) > bytes(b) ? a : b;
  if (is_float(a) || is_float(b)) {
    const DType number = is_float(a) ? a : b, integer = is_float(a) ? b : a;
    return number == DType::F32 && bytes(integer) <= 2 ? DType::F32 : DType::F64;
  }
  if (is_signed_integer(a) == is_signed_integer(b)) return bytes(a) > bytes(b) ? a : b;
  const DType with_sign = is_signed_integer(a) ? a : b, without = is_signed_integer(a) ? b : a;
  if (bytes(with_sign) > bytes(without)) return with_sign;
  switch (bytes(without)) {
    case 1: return DType::I16;
    case 2: return DType::I32;
    case 4: return DType::I64;
    default: return std::nullopt;  // float64, which loses bits
  }
}

std::int64_t least_of(DType dtype) {
  return is_signed_integer(dtype) ? -(std::int64_t(1) << (8 * size_in_bytes(dtype) - 2)) * 2 : 0;
}

}  // namespace

int plain_operation(int operation) { return operation >= NB_INPLACE_ADD ? operation - NB_INPLACE_ADD : operation; }

/// A Python number is weak.
std::optional<DType> RegionBuilder::common_dtype(const Known& a, const Known& b) {
  if (a.is_numpy() && b.is_numpy()) return promoted(a.dtype, b.dtype);
  const Known& strong = a.is_numpy() ? a : b;
  const Known& weak = a.is_numpy() ? b : a;
  switch (weak.boxing) {
    case Boxing::Bool: return strong.dtype;
    case Boxing::Int: return strong.dtype == DType::Bool ? DType::I64 : strong.dtype;
    default: return is_float(strong.dtype) ? strong.dtype : DType::F64;
  }
}

Known RegionBuilder::number(Boxing boxing, DType dtype, ValueId value) {
  Known made;
  made.kind = Known::Kind::Number;
  made.boxing = boxing;
  made.dtype = dtype;
  made.value = value;
  return made;
}

Known RegionBuilder::object(PyObject* object) {
  Known made;
  made.kind = Known::Kind::Object;
  made.object = Ref<>::borrow(object);
  return made;
}

Known RegionBuilder::literal(PyObject* value) {
  Known made;
  if (PyBool_Check(value)) {
    made = python_bool(constant(DType::Bool, value == Py_True));
  } else if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyErr_Occurred()) PyErr_Clear(), overflow = -1;
    if (overflow < 0) return object(value);
    made = overflow ? unsigned_int(constant(DType::U64, std::uint64_t(large))) : python_int(integer(number));
  } else if (PyFloat_CheckExact(value)) {
    made = python_float(real(PyFloat_AS_DOUBLE(value)));
  } else if (PyComplex_CheckExact(value)) {
    return complex(real(PyComplex_RealAsDouble(value)), real(PyComplex_ImagAsDouble(value)));
  } else if (PySlice_Check(value)) {
    auto* const slice = reinterpret_cast<PySliceObject*>(value);
    made.kind = Known::Kind::Slice;
    for (PyObject* const part : {slice->start, slice->stop, slice->step}) made.items.push_back(literal(part));
    return made;
  } else {
    return object(value);
  }
  made.object = Ref<>::borrow(value);
  return made;
}

Known RegionBuilder::complex(ValueId real, ValueId imaginary) {
  Known made;
  made.kind = Known::Kind::Complex;
  made.value = real;
  made.imaginary = imaginary;
  return made;
}

Known RegionBuilder::as_complex(const Known& value) {
  if (value.kind == Known::Kind::Complex) return value;
  if (!value.is_number() || value.is_numpy()) throw Unknown{"a complex number with what is none of Python's"};
  return complex(as_float(value), real(0));
}

std::optional<std::int64_t> RegionBuilder::known_int(const Known& value) const {
  if (!value.is_number() || value.boxing != Boxing::Int || value.dtype != DType::I64 || !value.object)
    return std::nullopt;
  return PyLong_AsLongLong(value.object.get());
}

ValueId RegionBuilder::as_int(const Known& value) {
  const ValueId made = cast(value.value, DType::I64);
  if (value.dtype == DType::U64) leave_if(op(Op::lt, {made, integer(0)}));
  return made;
}

ValueId RegionBuilder::as_float(const Known& value) {
  // A bool has no way to a float of its own.
  return cast(value.dtype == DType::Bool ? as_int(value) : value.value, DType::F64);
}

ValueId RegionBuilder::as_dtype(const Known& value, DType dtype) {
  if (value.is_numpy() || value.boxing == Boxing::Bool) {
    if (value.dtype == DType::Bool && is_float(dtype)) return cast(as_int(value), dtype);
    return cast(value.value, dtype);
  }
  if (value.boxing == Boxing::Int && value.dtype == DType::U64)
    return dtype == DType::U64 || dtype == DType::F64 ? cast(value.value, dtype)
                                                      : as_dtype(python_int(as_int(value)), dtype);
  if (value.boxing == Boxing::Int) {
    if (is_float(dtype)) {
      if (dtype != DType::F64)
        leave_if(
            op(Op::bit_or, {op(Op::gt, {value.value, integer(kExact)}), op(Op::lt, {value.value, integer(-kExact)})}));
      return cast(value.value, dtype);
    }
    const ValueId made = cast(value.value, dtype);
    if (dtype == DType::U64) {
      leave_if(op(Op::lt, {value.value, integer(0)}));
    } else if (dtype != DType::I64) {
      leave_if(op(Op::ne, {cast(made, DType::I64), value.value}));
    }
    return made;
  }
  const ValueId made = cast(value.value, dtype);
  if (dtype != DType::F64)
    leave_if(op(Op::bit_and, {op(Op::logical_not, {op(Op::is_finite, {made})}), op(Op::is_finite, {value.value})}));
  return made;
}

ValueId RegionBuilder::truth(const Known& value) {
  if (value.is_list()) return op(Op::ne, {length(value), integer(0)});
  if (value.dtype == DType::Bool) return value.value;
  const ValueId zero = is_float(value.dtype)             ? constant(value.dtype, 0.0)
                       : is_signed_integer(value.dtype) ? constant(value.dtype, std::int64_t(0))
                                                        : constant(value.dtype, std::uint64_t(0));
  return op(Op::ne, {value.value, zero});
}

/// One look at the result of several operations will do where it is finite only if each of them was: such looks are put
/// off until the region does what can be seen, or is left.
void RegionBuilder::leave_if_reported(ValueId result, std::vector<ValueId> operands) {
  const auto& body = block().body;
  const bool is_made_here = !body.empty() && body.back().result == result && body.back().code == Code::Pointwise;
  const Op made_by = is_made_here ? body.back().op : Op::where;
  UnseenReports here{leaving(), {}};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool passes_on =
        made_by == Op::add || made_by == Op::sub || made_by == Op::mul || (made_by == Op::div && i == 0);
    const auto known = std::find_if(unseen_.begin(), unseen_.end(), [&](const UnseenReports& unseen) {
      return unseen.results.front().front() == operands[i];
    });
    if (!passes_on || known == unseen_.end()) continue;
    // CPython goes on where the first of them is.
    if (here.results.empty() || known->number < here.number) {
      here.where = std::move(known->where);
      here.number = known->number;
    }
    here.results.insert(here.results.end(), known->results.begin(), known->results.end());
    unseen_.erase(known);
  }
  if (here.results.empty()) here.number = reports_++;
  operands.insert(operands.begin(), result);
  here.results.insert(here.results.begin(), std::move(operands));
  unseen_.push_back(std::move(here));
}

void RegionBuilder::look_at_reports() {
  std::vector<UnseenReports> unseen = std::exchange(unseen_, {});
  std::sort(unseen.begin(), unseen.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  for (UnseenReports& of : unseen) {
    region::Instruction made{};
    made.code = Code::LeaveIfReported;
    for (const auto& result : of.results) {
      made.operands.insert(made.operands.end(), result.begin(), result.end());
      made.parts.push_back(int(result.size()));
    }
    made.leave = leave(*of.where.context, of.where.instruction, of.where.state);
    block().body.push_back(std::move(made));
  }
}

void RegionBuilder::leave_unless_finite(ValueId value) {
  leave_if(op(Op::logical_not, {op(Op::is_finite, {value})}));
}

namespace {

/// Quotient and remainder of floats, as Python and NumPy have them; the divisor is not zero.
struct Division {
  ValueId quotient, remainder;
};

Division divide(RegionBuilder& b, ValueId x, ValueId y, bool quotient) {
  const DType dtype = b.type(x);
  const auto number = [&](double value) { return b.constant(dtype, value); };
  ValueId rest = b.cast(b.call("fmod", {b.cast(x, DType::F64), b.cast(y, DType::F64)}), dtype);
  const ValueId some = b.op(Op::ne, {rest, number(0)});
  const ValueId other_sign = b.op(Op::ne, {b.op(Op::lt, {y, number(0)}), b.op(Op::lt, {rest, number(0)})});
  const ValueId shifted = b.op(Op::bit_and, {some, other_sign});
  Division made;
  if (quotient) {
    ValueId whole = b.op(Op::div, {b.op(Op::sub, {x, rest}), y});
    whole = b.op(Op::where, {shifted, b.op(Op::sub, {whole, number(1)}), whole});
    ValueId floor = b.op(Op::floor, {whole});
    const ValueId above = b.op(Op::gt, {b.op(Op::sub, {whole, floor}), number(0.5)});
    floor = b.op(Op::where, {above, b.op(Op::add, {floor, number(1)}), floor});
    const ValueId zero = b.op(Op::copysign, {number(0), b.op(Op::div, {x, y})});
    made.quotient = b.op(Op::where, {b.op(Op::ne, {whole, number(0)}), floor, zero});
  }
  rest = b.op(Op::where, {shifted, b.op(Op::add, {rest, y}), rest});
  made.remainder = b.op(Op::where, {some, rest, b.op(Op::copysign, {number(0), y})});
  return made;
}

void leave_if_zero(RegionBuilder& b, ValueId value) {
  const DType dtype = b.type(value);
  const ValueId zero = is_float(dtype)             ? b.constant(dtype, 0.0)
                       : is_signed_integer(dtype) ? b.constant(dtype, std::int64_t(0))
                                                  : b.constant(dtype, std::uint64_t(0));
  b.leave_if(b.op(Op::eq, {value, zero}));
}

/// Quotient or remainder of integers of one type.
ValueId divide_integers(RegionBuilder& b, Op op, ValueId x, ValueId y) {
  leave_if_zero(b, y);
  const DType dtype = b.type(x);
  if (is_signed_integer(dtype))
    b.leave_if(b.op(Op::bit_and, {b.op(Op::eq, {x, b.constant(dtype, least_of(dtype))}),
                                  b.op(Op::eq, {y, b.constant(dtype, std::int64_t(-1))})}));
  return b.op(op, {x, y});
}

ValueId float_power(RegionBuilder& b, ValueId x, ValueId y) {
  const auto is_not_finite = [&](ValueId value) { return b.op(Op::logical_not, {b.op(Op::is_finite, {value})}); };
  b.leave_if(b.op(Op::bit_or, {is_not_finite(x), is_not_finite(y)}));
  const ValueId zero = b.real(0);
  const ValueId whole = b.op(Op::eq, {b.op(Op::floor, {y}), y});
  b.leave_if(b.op(Op::bit_or, {b.op(Op::bit_and, {b.op(Op::eq, {x, zero}), b.op(Op::lt, {y, zero})}),
                               b.op(Op::bit_and, {b.op(Op::lt, {x, zero}), b.op(Op::logical_not, {whole})})}));
  const ValueId made = b.call("pow", {x, y});
  b.leave_unless_finite(made);
  return made;
}

ValueId shift(RegionBuilder& b, bool left, ValueId x, ValueId y) {
  const DType dtype = b.type(x);
  const std::int64_t bits = std::int64_t(8 * size_in_bytes(dtype));
  const ValueId far =
      is_signed_integer(dtype) ? b.constant(dtype, bits - 1) : b.constant(dtype, std::uint64_t(bits - 1));
  ValueId out = b.op(Op::gt, {y, far});
  if (is_signed_integer(dtype)) out = b.op(Op::bit_or, {out, b.op(Op::lt, {y, b.constant(dtype, std::int64_t(0))})});
  b.leave_if(out);
  return b.op(left ? Op::shift_left : Op::shift_right, {x, y});
}

Known python_binary(RegionBuilder& b, int operation, const Known& x, const Known& y) {
  const bool floats = is_python_float(x) || is_python_float(y);
  switch (operation) {
    case NB_AND: case NB_OR: case NB_XOR: {
      if (floats) throw Unknown{"a bitwise operation of floats"};
      const Op op = operation == NB_AND ? Op::bit_and : operation == NB_OR ? Op::bit_or : Op::bit_xor;
      if (x.boxing == Boxing::Bool && y.boxing == Boxing::Bool)
        return RegionBuilder::python_bool(b.op(op, {x.value, y.value}));
      return RegionBuilder::python_int(b.op(op, {b.as_int(x), b.as_int(y)}));
    }
    case NB_LSHIFT: case NB_RSHIFT: {
      if (floats) throw Unknown{"a shift of floats"};
      const ValueId value = b.as_int(x), by = b.as_int(y);
      const ValueId made = shift(b, operation == NB_LSHIFT, value, by);
      if (operation == NB_LSHIFT) b.leave_if(b.op(Op::ne, {b.op(Op::shift_right, {made, by}), value}));
      return RegionBuilder::python_int(made);
    }
    case NB_TRUE_DIVIDE: {
      if (!floats) {
        const ValueId numerator = b.as_int(x), denominator = b.as_int(y);
        for (ValueId value : {numerator, denominator})
          b.leave_if(
              b.op(Op::bit_or, {b.op(Op::gt, {value, b.integer(kExact)}), b.op(Op::lt, {value, b.integer(-kExact)})}));
        leave_if_zero(b, denominator);
        return RegionBuilder::python_float(
            b.op(Op::div, {b.cast(numerator, DType::F64), b.cast(denominator, DType::F64)}));
      }
      const ValueId divisor = b.as_float(y);
      leave_if_zero(b, divisor);
      return RegionBuilder::python_float(b.op(Op::div, {b.as_float(x), divisor}));
    }
    case NB_POWER:
      if (!floats) {
        const auto exponent = b.known_int(y);
        if (!exponent || *exponent < 0 || *exponent > 4) throw Unknown{"a power whose exponent is not known"};
        ValueId made = b.integer(1);
        for (int i = 0; i < *exponent; ++i) made = i ? b.checked(Code::CheckedMul, made, b.as_int(x)) : b.as_int(x);
        return RegionBuilder::python_int(made);
      }
      return RegionBuilder::python_float(float_power(b, b.as_float(x), b.as_float(y)));
    default: break;
  }
  if (!floats) {
    const ValueId p = b.as_int(x), q = b.as_int(y);
    switch (operation) {
      case NB_ADD: return RegionBuilder::python_int(b.checked(Code::CheckedAdd, p, q));
      case NB_SUBTRACT: return RegionBuilder::python_int(b.checked(Code::CheckedSub, p, q));
      case NB_MULTIPLY: return RegionBuilder::python_int(b.checked(Code::CheckedMul, p, q));
      case NB_FLOOR_DIVIDE: return RegionBuilder::python_int(divide_integers(b, Op::floor_div, p, q));
      case NB_REMAINDER: return RegionBuilder::python_int(divide_integers(b, Op::mod, p, q));
      default: throw Unknown{"an operator of ints"};
    }
  }
  const ValueId p = b.as_float(x), q = b.as_float(y);
  switch (operation) {
    case NB_ADD: return RegionBuilder::python_float(b.op(Op::add, {p, q}));
    case NB_SUBTRACT: return RegionBuilder::python_float(b.op(Op::sub, {p, q}));
    case NB_MULTIPLY: return RegionBuilder::python_float(b.op(Op::mul, {p, q}));
    case NB_FLOOR_DIVIDE:
      leave_if_zero(b, q);
      return RegionBuilder::python_float(divide(b, p, q, true).quotient);
    case NB_REMAINDER:
      leave_if_zero(b, q);
      return RegionBuilder::python_float(divide(b, p, q, false).remainder);
    default: throw Unknown{"an operator of floats"};
  }
}

Known numpy_binary(RegionBuilder& b, int operation, const Known& x, const Known& y) {
  const auto dtype = RegionBuilder::common_dtype(x, y);
  if (!dtype) throw Unknown{"an operation of NumPy scalars of signed and unsigned 64 bits"};
  DType type = *dtype;
  if (operation == NB_TRUE_DIVIDE && !is_float(type)) {
    // Numbers of 64 bits become floats as they are.
    if (type == DType::Bool) throw Unknown{"a division of NumPy bools"};
    const ValueId p = b.as_dtype(x, type), q = b.as_dtype(y, type);
    const ValueId made = b.op(Op::div, {b.cast(p, DType::F64), b.cast(q, DType::F64)});
    b.leave_unless_finite(made);
    return RegionBuilder::numpy(made, DType::F64);
  }
  const ValueId p = b.as_dtype(x, type), q = b.as_dtype(y, type);
  const auto made = [&](ValueId value) { return RegionBuilder::numpy(value, type); };
  const auto reported = [&](ValueId value) {
    b.leave_if_reported(value, {p, q});
    return RegionBuilder::numpy(value, type);
  };
  if (operation == NB_AND || operation == NB_OR || operation == NB_XOR) {
    if (is_float(type)) throw Unknown{"a bitwise operation of floats"};
    return made(b.op(operation == NB_AND ? Op::bit_and : operation == NB_OR ? Op::bit_or : Op::bit_xor, {p, q}));
  }
  if (type == DType::Bool) throw Unknown{"arithmetic of NumPy bools"};
  if (is_float(type)) switch (operation) {
      case NB_ADD: return reported(b.op(Op::add, {p, q}));
      case NB_SUBTRACT: return reported(b.op(Op::sub, {p, q}));
      case NB_MULTIPLY: return reported(b.op(Op::mul, {p, q}));
      case NB_TRUE_DIVIDE: return reported(b.op(Op::div, {p, q}));
      case NB_FLOOR_DIVIDE:
        leave_if_zero(b, q);
        b.leave_unless_finite(p);
        b.leave_unless_finite(q);
        return reported(divide(b, p, q, true).quotient);
      case NB_REMAINDER:
        leave_if_zero(b, q);
        b.leave_unless_finite(p);
        b.leave_unless_finite(q);
        return reported(divide(b, p, q, false).remainder);
      case NB_POWER:
        if (type != DType::F64) throw Unknown{"a power of float32"};
        return reported(float_power(b, p, q));
      default: throw Unknown{"an operator of NumPy scalars"};
    }
  switch (operation) {
    case NB_ADD: return made(b.checked(Code::CheckedAdd, p, q));
    case NB_SUBTRACT: return made(b.checked(Code::CheckedSub, p, q));
    case NB_MULTIPLY: return made(b.checked(Code::CheckedMul, p, q));
    case NB_FLOOR_DIVIDE: return made(divide_integers(b, Op::floor_div, p, q));
    case NB_REMAINDER: return made(divide_integers(b, Op::mod, p, q));
    case NB_LSHIFT: return made(shift(b, true, p, q));
    case NB_RSHIFT: return made(shift(b, false, p, q));
    case NB_POWER: {
      const auto exponent = b.known_int(y);
      if (!exponent || *exponent < 1 || *exponent > 3) throw Unknown{"a power whose exponent is not known"};
      ValueId power = p;
      for (int i = 1; i < *exponent; ++i) power = b.checked(Code::CheckedMul, power, p);
      return made(power);
    }
    default: throw Unknown{"an operator of NumPy scalars"};
  }
}

}  // namespace

Known RegionBuilder::binary(int operation, const Known& a, const Known& b) {
  return a.is_numpy() || b.is_numpy() ? numpy_binary(*this, plain_operation(operation), a, b)
                                      : python_binary(*this, plain_operation(operation), a, b);
}

/// As CPython's complexobject.c computes them: before 3.14 with real numbers as complex ones.
Known RegionBuilder::complex_binary(int operation, const Known& a, const Known& b) {
  const bool apart = fj_complex_keeps_reals_apart();
  const auto product = [&](const Known& p, const Known& q) {
    const Known made =
        complex(op(Op::sub, {op(Op::mul, {p.value, q.value}), op(Op::mul, {p.imaginary, q.imaginary})}),
                op(Op::add, {op(Op::mul, {p.value, q.imaginary}), op(Op::mul, {p.imaginary, q.value})}));
    // Where both are NaN, infinities among the parts decide.
    if (apart) leave_if(op(Op::bit_and, {op(Op::is_nan, {made.value}), op(Op::is_nan, {made.imaginary})}));
    return made;
  };
  const bool first = a.kind == Known::Kind::Complex, second = b.kind == Known::Kind::Complex;
  if (const int operator_ = plain_operation(operation); apart && first != second && operator_ != NB_POWER) {
    const Known& number = first ? a : b;
    const ValueId real_number = as_complex(first ? b : a).value;
    const ValueId left = first ? number.value : real_number, right = first ? real_number : number.value;
    if (operator_ == NB_ADD) return complex(op(Op::add, {left, right}), number.imaginary);
    if (operator_ == NB_SUBTRACT)
      return complex(op(Op::sub, {left, right}), first ? number.imaginary : op(Op::neg, {number.imaginary}));
    if (operator_ == NB_MULTIPLY)
      return complex(op(Op::mul, {left, right}), op(Op::mul, {number.imaginary, real_number}));
  }
  const Known x = as_complex(a);
  switch (plain_operation(operation)) {
    case NB_ADD: {
      const Known y = as_complex(b);
      return complex(op(Op::add, {x.value, y.value}), op(Op::add, {x.imaginary, y.imaginary}));
    }
    case NB_SUBTRACT: {
      const Known y = as_complex(b);
      return complex(op(Op::sub, {x.value, y.value}), op(Op::sub, {x.imaginary, y.imaginary}));
    }
    case NB_MULTIPLY: return product(x, as_complex(b));
    case NB_POWER: {
      const auto exponent = known_int(b);
      if (!exponent || *exponent < 1 || *exponent > 8) throw Unknown{"a power of a complex number"};
      // Squares, and the product of those that the exponent's bits name.
      Known made = complex(real(1), real(0)), square = x;
      for (std::int64_t bit = 1; bit <= *exponent; bit <<= 1) {
        if (*exponent & bit) made = product(made, square);
        square = product(square, square);
      }
      leave_unless_finite(made.value);
      leave_unless_finite(made.imaginary);
      return made;
    }
    default: throw Unknown{"an operator of complex numbers"};
  }
}

Known RegionBuilder::compare(int operation, const Known& a, const Known& b) {
  static constexpr Op kComparisons[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};  // Py_LT ...
  const Op comparison = kComparisons[operation];
  if (auto made = wide_compare(comparison, a, b)) return *std::move(made);
  if (a.is_numpy() != b.is_numpy() && (is_large(a) || is_large(b)))
    return compare(operation, with_sign(a), with_sign(b));
  if (!a.is_numpy() && !b.is_numpy()) {
    const bool float_a = is_python_float(a), float_b = is_python_float(b);
    if (!float_a && !float_b) return python_bool(op(comparison, {as_int(a), as_int(b)}));
    // An int that no float holds is compared as it is.
    if (float_a != float_b) {
      const ValueId whole = as_int(float_a ? b : a);
      leave_if(op(Op::bit_or, {op(Op::gt, {whole, integer(kExact)}), op(Op::lt, {whole, integer(-kExact)})}));
    }
    return python_bool(op(comparison, {as_float(a), as_float(b)}));
  }
  const auto result = [&](ValueId p, ValueId q) { return numpy(op(comparison, {p, q}), DType::Bool); };
  const auto is_weak_int = [](const Known& value) { return !value.is_numpy() && value.boxing != Boxing::Float; };
  if ((is_weak_int(a) || is_weak_int(b)) && !is_float(a.dtype) && !is_float(b.dtype)) {
    // Python ints that the dtype does not hold are compared all the same.
    if (a.dtype != DType::U64 && b.dtype != DType::U64) return result(as_int(a), as_int(b));
    const ValueId python = as_int(is_weak_int(a) ? a : b);
    leave_if(op(Op::lt, {python, integer(0)}));
    return result(cast(a.value, DType::U64), cast(b.value, DType::U64));
  }
  const auto dtype = common_dtype(a, b);
  if (!dtype) throw Unknown{"a comparison of NumPy scalars of signed and unsigned 64 bits"};
  return result(as_dtype(a, *dtype), as_dtype(b, *dtype));
}

Known RegionBuilder::negative(const Known& value) {
  if (value.dtype == DType::Bool) {
    if (value.is_numpy()) throw Unknown{"`-` of a NumPy bool"};
    return python_int(op(Op::neg, {as_int(value)}));
  }
  if (is_float(value.dtype)) return number(value.boxing, value.dtype, op(Op::neg, {value.value}));
  if (value.dtype == DType::U64 && !value.is_numpy()) return negative(python_int(as_int(value)));
  if (is_unsigned_integer(value.dtype)) throw Unknown{"`-` of an unsigned NumPy scalar"};
  return number(value.boxing, value.dtype,
                checked(Code::CheckedSub, constant(value.dtype, std::int64_t(0)), value.value));
}

Known RegionBuilder::inverted(const Known& value) {
  if (is_float(value.dtype)) throw Unknown{"`~` of a float"};
  if (value.dtype == DType::Bool) {
    if (!value.is_numpy()) throw Unknown{"`~` of a bool"};
    return numpy(op(Op::logical_not, {value.value}), DType::Bool);
  }
  if (value.dtype == DType::U64 && !value.is_numpy()) return inverted(python_int(as_int(value)));
  return number(value.boxing, value.dtype, op(Op::bit_not, {value.value}));
}

Known RegionBuilder::absolute(const Known& value) {
  if (value.dtype == DType::Bool) {
    if (value.is_numpy()) throw Unknown{"abs() of a NumPy bool"};
    return python_int(as_int(value));
  }
  if (is_unsigned_integer(value.dtype)) return value;
  if (is_float(value.dtype)) return number(value.boxing, value.dtype, op(Op::abs, {value.value}));
  const ValueId zero = constant(value.dtype, std::int64_t(0));
  leave_if(op(Op::eq, {value.value, constant(value.dtype, least_of(value.dtype))}));
  const ValueId negated = op(Op::sub, {zero, value.value});
  return number(value.boxing, value.dtype, op(Op::where, {op(Op::lt, {value.value, zero}), negated, value.value}));
}

/// To a Python int, as int(), round(), math.floor() and math.ceil() do.
Known RegionBuilder::floored(const Known& value, Op rounding) {
  if (!is_float(value.dtype)) {
    if (value.dtype == DType::U64 && !value.is_numpy()) return value;
    return python_int(as_int(value));
  }
  const ValueId whole = op(rounding, {cast(value.value, DType::F64)});
  const ValueId in_range = op(Op::bit_and, {op(Op::ge, {whole, real(-0x1p62)}), op(Op::le, {whole, real(0x1p62)})});
  leave_if(op(Op::logical_not, {in_range}));
  return python_int(cast(whole, DType::I64));
}

Known RegionBuilder::converted(const Known& value, Boxing boxing, DType dtype) {
  switch (boxing) {
    case Boxing::Int: return floored(value, Op::trunc);
    case Boxing::Float: return python_float(as_float(value));
    case Boxing::Bool: return python_bool(truth(value));
    case Boxing::Numpy: break;
  }
  if (dtype == DType::Bool) return numpy(truth(value), DType::Bool);
  if (is_float(value.dtype) && !is_float(dtype)) throw Unknown{"a float that becomes a NumPy integer"};
  return numpy(stored(value, dtype), dtype);
}

ValueId RegionBuilder::stored(const Known& value, DType dtype) {
  if (value.dtype == dtype) return value.value;
  if (dtype == DType::Bool) return truth(value);
  if (value.dtype == DType::Bool) return is_float(dtype) ? cast(as_int(value), dtype) : cast(value.value, dtype);
  if (is_float(value.dtype)) {
    if (is_float(dtype)) {
      const ValueId made = cast(value.value, dtype);
      if (dtype != DType::F64)
        leave_if(op(Op::bit_and, {op(Op::logical_not, {op(Op::is_finite, {made})}), op(Op::is_finite, {value.value})}));
      return made;
    }
    // Towards zero; what does not fit is NumPy's to report.
    const ValueId whole = op(Op::trunc, {cast(value.value, DType::F64)});
    if (dtype == DType::U64) throw Unknown{"a float that becomes a uint64"};
    const double most = std::ldexp(1.0, int(8 * size_in_bytes(dtype)) - (is_signed_integer(dtype) ? 1 : 0));
    const ValueId fits = op(Op::bit_and, {op(Op::ge, {whole, real(is_signed_integer(dtype) ? -most : 0)}),
                                          op(Op::lt, {whole, real(most)})});
    leave_if(op(Op::logical_not, {fits}));
    return cast(cast(whole, DType::I64), dtype);
  }
  if (is_float(dtype)) return as_dtype(value, dtype);
  if (!value.is_numpy()) return as_dtype(value, dtype);
  // NumPy's integers wrap where an array is assigned; the language of scalars is left to it.
  const ValueId made = cast(value.value, dtype);
  leave_if(op(Op::ne, {cast(made, value.dtype), value.value}));
  if (is_signed_integer(dtype) != is_signed_integer(value.dtype)) {
    const bool of_value = is_signed_integer(value.dtype);
    const ValueId with_sign = of_value ? value.value : made;
    leave_if(op(Op::lt, {with_sign, constant(type(with_sign), std::int64_t(0))}));
  }
  return made;
}

}  // namespace fj
