// Python's ints of 64 bits without a sign, as hashes and generators of random numbers have them, and those that are
// larger until a mask takes their low bits: `(h * 0x100000001b3) & 0xFFFFFFFFFFFFFFFF`.
#include <opcode.h>

#include <cmath>
#include <limits>

#include "tracer/regions/region_builder.h"

namespace fj {

namespace {

using region::Code;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr int kBits = 64;
constexpr std::uint64_t kFarthest = 1 << 12;  // a shift

/// The low bits of its result are known by those of its operands, whatever is above them.
bool is_modular(int operation) {
  switch (plain_operation(operation)) {
    case NB_ADD: case NB_SUBTRACT: case NB_MULTIPLY: case NB_LSHIFT: case NB_AND: case NB_OR: case NB_XOR: return true;
    default: return false;
  }
}

/// The bits that `x & number` (x % number) keeps; nothing: the number is none from 0 to 2**64 - 1 (no power of 2 to
/// 2**64).
std::optional<std::uint64_t> kept_bits(PyObject* number, bool remainder) {
  if (number == nullptr || !PyLong_CheckExact(number)) return std::nullopt;
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow < 0 || (overflow == 0 && small < 0)) return std::nullopt;
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t value = std::uint64_t(small);
  if (overflow > 0) {
    value = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      const Ref<> all = Ref<>::steal(PyLong_FromUnsignedLongLong(kAll));
      const Ref<> above = all ? Ref<>::steal(PyNumber_Subtract(number, all.get())) : Ref<>();
      int far = 0;
      const bool is_next = above && PyLong_AsLongAndOverflow(above.get(), &far) == 1;  // 2**64
      PyErr_Clear();
      return remainder && is_next ? std::optional(kAll) : std::nullopt;
    }
  }
  if (!remainder) return value;
  return value != 0 && (value & (value - 1)) == 0 ? std::optional(value - 1) : std::nullopt;
}

PyObject* constant_of(const Known& known) {
  const bool may = known.kind == Known::Kind::Object || (known.is_number() && known.boxing == Boxing::Int);
  return may ? known.object.get() : nullptr;
}

bool is_int(const Known& known) {
  if (known.kind == Known::Kind::Wide) return true;
  return known.is_number() && (known.boxing == Boxing::Int || known.boxing == Boxing::Bool);
}
}  // namespace

bool is_large(const Known& known) {
  return known.kind == Known::Kind::Wide || (is_int(known) && known.dtype == DType::U64);
}

bool is_unsigned_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return false;
  (void)PyLong_AsUnsignedLongLong(object);
  const bool fits = PyErr_Occurred() == nullptr;
  PyErr_Clear();
  return fits;
}

Known RegionBuilder::unsigned_int(ValueId value) { return number(Boxing::Int, DType::U64, value); }

/// The number behind this instruction that is loaded there, if it is a constant: of the code, or a global variable.
PyObject* RegionBuilder::constant_loaded(int at) const {
  const FjInstr& instr = context_->code->instrs[at];
  if (instr.opcode == FJ_LOAD_CONST) return PyTuple_GET_ITEM(context_->object->co_consts, instr.arg);
  if (instr.opcode != FJ_LOAD_GLOBAL || instr.arg2 || !PyDict_CheckExact(context_->globals)) return nullptr;
  PyObject* const found =
      PyDict_GetItemWithError(context_->globals, PyTuple_GET_ITEM(context_->object->co_names, instr.arg));
  PyErr_Clear();
  return found;
}

/// Whether of the result of the operation at `at` the low bits alone are used: nothing but operations that need no more
/// comes before a mask.
bool RegionBuilder::is_masked_later(int at) const {
  constexpr int kFar = 16;
  int above = 0;  // entries of the stack above the result
  for (int i = at + 1; i < std::min(at + kFar, context_->code->count) && is_inside(i); ++i) {
    if (context_->entrances[std::size_t(i)] > 1) return false;
    const FjInstr& instr = context_->code->instrs[i];
    switch (instr.opcode) {
      case FJ_LOAD_CONST: case FJ_LOAD_FAST: case FJ_LOAD_SMALL_INT: case FJ_LOAD_GLOBAL:
        if (instr.opcode == FJ_LOAD_GLOBAL && instr.arg2) return false;
        ++above;
        break;
      case FJ_STORE_FAST: {
        // h *= p; h &= mask
        if (above != 0 || i + 4 >= context_->code->count) return false;
        const FjInstr* const next = context_->code->instrs + i + 1;
        const bool same = next[0].opcode == FJ_LOAD_FAST && next[0].arg == instr.arg &&
                          next[2].opcode == FJ_BINARY_OP && next[3].opcode == FJ_STORE_FAST &&
                          next[3].arg == instr.arg;
        for (int j = 1; j <= 4; ++j)
          if (context_->entrances[std::size_t(i + j)] > 1) return false;
        const int operation = same ? plain_operation(next[2].arg) : -1;
        return (operation == NB_AND || operation == NB_REMAINDER) &&
               kept_bits(constant_loaded(i + 2), operation == NB_REMAINDER).has_value();
      }
      case FJ_BINARY_OP: {
        const int operation = plain_operation(instr.arg);
        if (above > 1) {
          --above;
          break;
        }
        if (above == 1 && (operation == NB_AND || operation == NB_REMAINDER) &&
            kept_bits(constant_loaded(i - 1), operation == NB_REMAINDER))
          return true;
        if (!is_modular(operation) || (operation == NB_LSHIFT && above == 0)) return false;
        above = 0;
        break;
      }
      default: return false;
    }
  }
  return false;
}

/// The low 64 bits.
ValueId RegionBuilder::low_bits(const Known& known) {
  if (known.kind == Known::Kind::Object)
    return constant(DType::U64, std::uint64_t(PyLong_AsUnsignedLongLongMask(known.object.get())));
  return cast(known.value, DType::U64);
}

/// The number itself, which is not negative.
ValueId RegionBuilder::without_sign(const Known& known) {
  if (known.kind == Known::Kind::Wide) throw Unknown{"an int of more than 64 bits"};
  if (known.dtype == DType::I64 && known_int(known).value_or(-1) < 0) leave_if(op(Op::lt, {known.value, integer(0)}));
  return cast(known.value, DType::U64);
}

std::optional<Known> RegionBuilder::wide_binary(int operation, const Known& x, const Known& y) {
  const auto is_constant = [&](const Known& known) {
    return known.kind == Known::Kind::Object && PyLong_CheckExact(known.object.get());
  };
  if ((!is_int(x) && !is_constant(x)) || (!is_int(y) && !is_constant(y))) return std::nullopt;
  const int op_code = plain_operation(operation);
  const auto unsigned_constant = [&](std::uint64_t value) { return constant(DType::U64, value); };
  const auto kept = [&](const Known& of, std::uint64_t bits) {
    const ValueId made = op(Op::bit_and, {low_bits(of), unsigned_constant(bits)});
    return bits <= std::uint64_t(kMost) ? python_int(cast(made, DType::I64)) : unsigned_int(made);
  };
  const bool large = is_large(x) || is_large(y), pending = x.kind == Known::Kind::Wide || y.kind == Known::Kind::Wide;
  if (op_code == NB_AND || op_code == NB_REMAINDER) {
    const auto bits = kept_bits(constant_of(y), op_code == NB_REMAINDER);
    if (bits && is_int(x) && (large || *bits > std::uint64_t(kMost))) return kept(x, *bits);
    const auto other = op_code == NB_AND ? kept_bits(constant_of(x), false) : std::nullopt;
    if (other && is_int(y) && (large || *other > std::uint64_t(kMost))) return kept(y, *other);
  }
  if (is_modular(op_code) && is_masked_later(at_)) {
    Known made;
    made.kind = Known::Kind::Wide;
    made.dtype = DType::U64;
    if (op_code == NB_LSHIFT) {
      if (is_large(y) || is_constant(y)) throw Unknown{"a shift by much"};
      const ValueId by = as_int(y);
      // Negative it raises, and far it is more memory than there is.
      leave_if(op(Op::gt, {cast(by, DType::U64), unsigned_constant(kFarthest)}));
      const ValueId shifted = op(Op::shift_left, {low_bits(x), cast(by, DType::U64)});
      made.value = op(Op::where, {op(Op::lt, {by, integer(kBits)}), shifted, unsigned_constant(0)});
      return made;
    }
    static constexpr std::pair<int, Op> kOps[] = {{NB_ADD, Op::add},    {NB_SUBTRACT, Op::sub}, {NB_MULTIPLY, Op::mul},
                                                  {NB_AND, Op::bit_and}, {NB_OR, Op::bit_or},   {NB_XOR, Op::bit_xor}};
    for (const auto& [code, of] : kOps)
      if (code == op_code) made.value = op(of, {low_bits(x), low_bits(y)});
    return made;
  }
  if (pending) throw Unknown{"an int of more than 64 bits"};
  if (op_code == NB_TRUE_DIVIDE && large && is_int(x)) {
    // By a power of 2: the float next to the number, with another exponent.
    const auto bits = kept_bits(constant_of(y), true);
    if (!bits) return std::nullopt;
    const int exponent = *bits == std::numeric_limits<std::uint64_t>::max() ? kBits : int(std::log2(double(*bits + 1)));
    return python_float(op(Op::mul, {cast(without_sign(x), DType::F64), real(std::ldexp(1.0, -exponent))}));
  }
  if (!large || is_constant(x) || is_constant(y)) return std::nullopt;
  const auto both = [&](auto&& made) { return unsigned_int(made(without_sign(x), without_sign(y))); };
  const auto checked_both = [&](Code code) {
    return both([&](ValueId p, ValueId q) { return checked(code, p, q); });
  };
  switch (op_code) {
    case NB_AND: return unsigned_int(op(Op::bit_and, {low_bits(x), low_bits(y)}));  // one has no sign
    case NB_OR: return both([&](ValueId p, ValueId q) { return op(Op::bit_or, {p, q}); });
    case NB_XOR: return both([&](ValueId p, ValueId q) { return op(Op::bit_xor, {p, q}); });
    case NB_ADD: return checked_both(Code::CheckedAdd);
    case NB_SUBTRACT: return checked_both(Code::CheckedSub);
    case NB_MULTIPLY: return checked_both(Code::CheckedMul);
    case NB_FLOOR_DIVIDE: case NB_REMAINDER: {
      const ValueId divisor = without_sign(y);
      leave_if(op(Op::eq, {divisor, unsigned_constant(0)}));
      const bool quotient = op_code == NB_FLOOR_DIVIDE;
      const ValueId made = op(quotient ? Op::floor_div : Op::mod, {without_sign(x), divisor});
      const bool fits = quotient ? known_int(y).value_or(0) >= 2 : y.dtype != DType::U64;
      return fits ? python_int(cast(made, DType::I64)) : unsigned_int(made);
    }
    case NB_RSHIFT: case NB_LSHIFT: {
      const ValueId value = without_sign(x), by = as_int(y);
      leave_if(op(Op::ge, {cast(by, DType::U64), unsigned_constant(kBits)}));
      const ValueId distance = cast(by, DType::U64);
      if (op_code == NB_RSHIFT) {
        const ValueId made = op(Op::shift_right, {value, distance});
        return known_int(y).value_or(0) > 0 ? python_int(cast(made, DType::I64)) : unsigned_int(made);
      }
      const ValueId made = op(Op::shift_left, {value, distance});
      leave_if(op(Op::ne, {op(Op::shift_right, {made, distance}), value}));
      return unsigned_int(made);
    }
    default: return std::nullopt;
  }
}

/// NumPy takes an int for what its number is: one that int64 does not hold leaves the region.
Known RegionBuilder::with_sign(const Known& known) { return is_large(known) ? python_int(as_int(known)) : known; }

/// Of ints one of which has no sign.
std::optional<Known> RegionBuilder::wide_compare(Op comparison, const Known& a, const Known& b) {
  if (!is_int(a) || !is_int(b) || !(is_large(a) || is_large(b))) return std::nullopt;
  return python_bool(op(comparison, {without_sign(a), without_sign(b)}));
}

}  // namespace fj
