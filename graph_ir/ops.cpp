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
               std::string_view type, OpEffect effect, std::string_view gradient, Lowering lowering, Samples samples,
               Accepts accepts, Accuracy accuracy, Raises raises) {
  OpRow row{name,   split(operands), false,   {},      shape,    type,  gradient,
            effect, lowering,        samples, accepts, accuracy, raises};
  if (!row.operands.empty() && row.operands.back()[0] == '*') {
    row.variadic = true;
    row.operands.back().erase(0, 1);
  }
  for (const std::string& attr : split(attrs)) {
    const auto colon = attr.find(':');
    const bool optional = attr.back() == '?';
    row.attrs.push_back({attr.substr(0, colon), attr.substr(colon + 1, attr.size() - colon - 1 - optional), optional});
  }
  return row;
}

const std::array<OpRow, kOpCount>& rows() {
  static const std::array<OpRow, kOpCount> table = {{
#define FJ_OP(name, operands, attrs, shape, type, effect, gradient, lowering, samples, accepts, accuracy, raises)  \
  make_row(#name, operands, attrs, #shape, #type, OpEffect::effect, #gradient, Lowering::lowering, Samples::samples, \
           Accepts::accepts, Accuracy::accuracy, Raises::raises),
#include "graph_ir/ops.def"
  }};
  return table;
}

}  // namespace

std::size_t bodies_of(Op op) { return op == Op::cond ? 2 : op == Op::loop ? 1 : 0; }

const char* word_of_body(Op op, std::size_t body) { return op == Op::loop ? "pass" : body == 0 ? "then" : "else"; }

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
  const bool complex = is_complex(dtype), boolean = dtype == DType::Bool;
  switch (row(op).accepts) {
    case Accepts::All: return true;
    case Accepts::Number: return !boolean;
    case Accepts::Real: return !complex;
    case Accepts::RealNumber: return !boolean && !complex;
    case Accepts::Float: return is_float(dtype) || complex;
    case Accepts::RealFloat: return is_float(dtype);
    case Accepts::F32OrF64: return dtype == DType::F32 || dtype == DType::F64;
    case Accepts::Integer: return is_integer(dtype) && !boolean;
    case Accepts::IntegerOrBool: return is_integer(dtype) || boolean;
    case Accepts::Bool: return boolean;
    case Accepts::I64: return dtype == DType::I64;
  }
  return false;
}

}  // namespace fj
