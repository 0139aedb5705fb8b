// The rows of ops.def as a table.
#include "graph_ir/ops.h"

#include <array>
#include <sstream>
#include <unordered_map>

#include "runtime/base/error.h"

namespace fj {
namespace {

/// "a, *b" -> {"a", "*b"}
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, ',');) {
    const auto first = part.find_first_not_of(' ');
    parts.push_back(part.substr(first, part.find_last_not_of(' ') - first + 1));
  }
  return parts;
}

OpRow make_row(std::string_view name, std::string_view operands, std::string_view attrs, std::string_view shape,
               std::string_view type, Effect effect, std::string_view gradient, Lowering lowering, Samples samples) {
  OpRow row{name, split(operands), false, {}, shape, type, gradient, effect, lowering, samples};
  if (!row.operands.empty() && row.operands.back()[0] == '*') {
    row.variadic = true;
    row.operands.back().erase(0, 1);
  }
  for (const std::string& attr : split(attrs)) {
    const auto colon = attr.find(':');
    row.attrs.push_back({attr.substr(0, colon), attr.substr(colon + 1)});
  }
  return row;
}

const std::array<OpRow, kOpCount>& rows() {
  static const std::array<OpRow, kOpCount> table = {{
#define FJ_OP(name, operands, attrs, shape, type, effect, gradient, lowering, samples) \
  make_row(#name, operands, attrs, #shape, #type, Effect::effect, #gradient, Lowering::lowering, Samples::samples),
#include "graph_ir/ops.def"
  }};
  return table;
}

}  // namespace

const OpRow& row(Op op) { return rows()[std::size_t(op)]; }
std::string_view name(Op op) { return row(op).name; }

std::optional<Op> op_from_name(std::string_view name) {
  static const auto* index = [] {
    auto* map = new std::unordered_map<std::string_view, Op>;
    for (int i = 0; i < kOpCount; ++i) map->emplace(rows()[i].name, Op(i));
    return map;
  }();
  const auto found = index->find(name);
  return found == index->end() ? std::nullopt : std::optional(found->second);
}

bool accepts(Op op, DType dtype) {
  switch (op) {
    case Op::neg: case Op::sub: case Op::pow: case Op::floor_div: case Op::mod: case Op::trunc_div: case Op::fmod:
    case Op::shift_left: case Op::shift_right:
      if (dtype == DType::Bool) return false;
      break;
    default:
      break;
  }
  switch (op) {
    case Op::sign: case Op::rsqrt: case Op::exp2: case Op::expm1: case Op::log2: case Op::log1p: case Op::erf:
    case Op::floor: case Op::ceil: case Op::round: case Op::trunc: case Op::sign_bit:
    case Op::floor_div: case Op::mod: case Op::fmod: case Op::atan2: case Op::hypot: case Op::copysign:
    case Op::maximum: case Op::minimum: case Op::fmax: case Op::fmin: case Op::lt: case Op::le: case Op::gt: case Op::ge:
    case Op::reduce_max: case Op::reduce_min: case Op::argmax: case Op::argmin:
      if (is_complex(dtype)) return false;
      break;
    default:
      break;
  }
  if (op == Op::fma) return dtype == DType::F32 || dtype == DType::F64;
  if (op == Op::nonzero) return dtype == DType::Bool;
  const std::string_view rule = row(op).type_rule;
  if (rule == "Float") return is_float(dtype) || is_complex(dtype);
  if (rule == "Integer") return is_integer(dtype) || dtype == DType::Bool;
  if (rule == "BoolOnly") return dtype == DType::Bool;
  if (rule == "Index" && row(op).operands.empty()) return dtype == DType::I64;
  return true;
}

}  // namespace fj
