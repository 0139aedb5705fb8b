// Addresses, loads and expressions.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "codegen/cuda/emitter.h"
#include "graph_ir/evaluate/elements.h"
#include "runtime/base/error.h"

namespace fj::cuda {

using namespace loop;

namespace {

std::string_view spelling(Op op) {
  switch (op) {
#define FJ_POINTWISE(name, cost, rule, cuda) \
  case Op::name: return cuda;
#include "codegen/pointwise.def"
    default: break;
  }
  FJ_CHECK(false, "no pointwise rule for " + std::string(name(op)));
  return {};
}

/// Of half values, always one again: nothing to round.
bool keeps_halves(Op op) {
  switch (op) {
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::where:
    case Op::maximum:
    case Op::minimum:
    case Op::fmax:
    case Op::fmin:
    case Op::floor: case Op::ceil: case Op::round: case Op::trunc: case Op::copysign: case Op::cast:
      return true;
    default: return false;
  }
}

bool can_fail(const Expr& expr) {
  if (expr.kind == ExprKind::CheckedIndex) return true;
  return expr.kind == ExprKind::Pointwise && !is_float(expr.operand_dtype) &&
         (expr.op == Op::floor_div || expr.op == Op::mod || expr.op == Op::trunc_div || expr.op == Op::fmod);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The names a, b, c, T, F of a row of pointwise.def replaced.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end == i) {
      out += text[i++];
      continue;
    }
    const auto found = names.find(text.substr(i, end - i));
    out += found == names.end() ? std::string(text.substr(i, end - i)) : found->second;
    i = end;
  }
  return out;
}

}  // namespace

std::string element_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "boolean";
    case DType::F16: return "f16";
    case DType::BF16: return "bf16";
    case DType::F32: return "float";
    case DType::F64: return "double";
    default: return std::string(name(dtype));
  }
}

std::string register_type(DType dtype) {
  if (dtype == DType::Bool) return "bool";
  return is_half(dtype) ? "float" : element_type(dtype);
}

std::string Emitter::size(const SymDim& dim) {
  if (const auto constant = dim.constant())
    return std::to_string(*constant) + (binding_.narrow || std::llabs(*constant) < INT32_MAX ? "" : "ll");
  std::string sum;
  for (const SymDim::Term& term : dim.terms()) {
    std::string product;
    if (term.coefficient != 1 || term.symbols.empty()) product = std::to_string(term.coefficient);
    for (SymbolId symbol : term.symbols) {
      symbols_.insert(symbol.index);
      product += (product.empty() ? "s" : " * s") + std::to_string(symbol.index);
    }
    sum += (sum.empty() ? "" : " + ") + product;
  }
  return "(" + sum + ")";
}

int Emitter::scope_of(std::uint64_t variables) const {
  int result = 0;
  for (std::size_t s = 0; s < scopes_.size(); ++s)
    if (scopes_[s].variables & variables) result = int(s);
  return result;
}

int Emitter::innermost_conditional() const {
  for (int s = top(); s > 0; --s)
    if (scopes_[std::size_t(s)].may_not_run) return s;
  return 0;
}

Emitter::Printed Emitter::define(int scope, const std::string& type, const char* prefix, const std::string& text) {
  const std::string name = fresh(prefix);
  line(scope, "const " + type + " " + name + " = " + text + ";");
  return {name, scope};
}

/// As text, and the scope it can be computed in. `at_pack`: of a pack's first element.
Emitter::Printed Emitter::address(const Affine& address, bool at_pack) {
  std::string sum;
  int scope = 0;
  auto add = [&](const std::string& index, const SymDim& factor) {
    sum += (sum.empty() ? "" : " + ") + index + (factor == SymDim(1) ? "" : " * " + size(factor));
  };
  for (const auto& [variable, factor] : address.terms) {
    if (at_pack && variable == kernel_.vector_var) {
      add("at", factor);
      scope = std::max(scope, pack_scope_);
      continue;
    }
    add(index_name(variable), factor);
    scope = std::max(scope, scope_of(bit(variable)));
  }
  for (const auto& [dynamic, factor] : address.dynamic) {
    const Printed printed = emit(dynamic);
    add(printed.name, factor);
    scope = std::max(scope, printed.scope);
  }
  if (!(address.constant == SymDim()) || sum.empty()) sum += (sum.empty() ? "" : " + ") + size(address.constant);
  return {sum, scope};
}

Emitter::Printed Emitter::emit(ExprId id) {
  for (int s = top(); s >= 0; --s)
    if (auto found = scopes_[std::size_t(s)].memo.find(id.index); found != scopes_[std::size_t(s)].memo.end())
      return {found->second, s};
  const Printed printed = compute(id);
  scopes_[std::size_t(printed.scope)].memo[id.index] = printed.name;
  return printed;
}

Emitter::Printed Emitter::compute(ExprId id) {
  const Expr& expr = kernel_[id];
  switch (expr.kind) {
    case ExprKind::Constant: return {constant(expr.dtype, expr.scalar), 0};
    case ExprKind::Position: {
      const Printed at = address(expr.address);
      return define(at.scope, "i64", "v", "i64(" + at.name + ")");
    }
    case ExprKind::Load: return load(id);
    case ExprKind::Accumulator: {
      const AccumulatorInfo& info = kernel_.accumulators[std::size_t(expr.accumulator)];
      const std::string number = std::to_string(expr.accumulator);
      if (info.scan.valid()) return {"run" + number, top()};
      const bool index = info.reduction == Reduction::ArgMax || info.reduction == Reduction::ArgMin;
      return {"acc" + number + (index ? ".index" : ""), accumulator_scope_[std::size_t(expr.accumulator)]};
    }
    case ExprKind::CheckedIndex: {
      const Printed raw = emit(expr.args[0]);
      const Printed counts = expr.predicate.valid() ? emit(expr.predicate) : Printed{"true", 0};
      fallible_ = true;
      const int scope = std::max({raw.scope, counts.scope, innermost_conditional()});
      return define(
          scope, "i64", "v",
          "checked_index(" + raw.name + ", " + size(expr.address.constant) + ", " + counts.name + ", status)");
    }
    case ExprKind::Pointwise: return pointwise(id);
  }
  return {};
}

bool Emitter::in_pack(int buffer, const Affine& address) const {
  return pack_scope_ >= 0 && packed(kernel_, program_, binding_, buffer, address);
}

Emitter::Printed Emitter::load(ExprId id) {
  const Expr& expr = kernel_[id];
  const std::string type = element_type(program_.buffers[std::size_t(expr.buffer)].dtype),
                    buffer = "b" + std::to_string(expr.buffer);
  bool together = in_pack(expr.buffer, expr.address) && !(expr.predicate.valid() && varies(expr.predicate));
  for (const auto& [dynamic, factor] : expr.address.dynamic) together = together && !varies(dynamic);
  const Printed at = address(expr.address, together);
  const Printed predicate = expr.predicate.valid() ? emit(expr.predicate) : Printed{"", 0};
  int scope = std::max({at.scope, predicate.scope, innermost_conditional()});
  // What a round of a team loads is there in the rounds of later passes too.
  const bool keeps = kept_round_scope_ >= 0 && !expr.predicate.valid() && expr.address.dynamic.empty() &&
                     at.scope >= kept_round_scope_ && together == (binding_.width > 1);
  if (together) {
    scope = std::min(scope, pack_scope_);
    std::string pack;
    const std::string width = std::to_string(binding_.width), pack_type = "Pack<" + type + ", " + width + ">";
    const std::string text = "load_pack<" + width + ">(" + buffer + " + (" + at.name + "))";
    if (keeps) {
      const std::string place = "kept" + std::to_string(id.index);
      if (!kept_.contains(id.index) && !kept_now_.contains(id.index)) {
        line(item_scope_, pack_type + " " + place + "[" + std::to_string(binding_.kept) + "];");
        line(scope, place + "[round] = " + text + ";");
        kept_now_.insert(id.index);
      }
      pack = place + "[round]";
    } else if (expr.predicate.valid()) {
      pack = fresh("p");
      line(scope, pack_type + " " + pack + " = {};");
      line(scope, "if (" + predicate.name + ") " + pack + " = " + text + ";");
    } else {
      pack = define(scope, pack_type, "p", text).name;
    }
    return define(top(), register_type(expr.dtype), "v", "read(" + pack + ".at[lane])");
  }
  const std::string text = "read(" + buffer + "[" + at.name + "])";
  if (keeps) {
    const std::string place = "kept" + std::to_string(id.index);
    if (!kept_.contains(id.index) && !kept_now_.contains(id.index)) {
      line(item_scope_, register_type(expr.dtype) + " " + place + "[" + std::to_string(binding_.kept) + "];");
      line(scope, place + "[round] = " + text + ";");
      kept_now_.insert(id.index);
    }
    return {place + "[round]", scope};
  }
  const std::string other = register_type(expr.dtype) + "(0)";
  return define(scope, register_type(expr.dtype), "v",
                predicate.name.empty() ? text : predicate.name + " ? " + text + " : " + other);
}

Emitter::Printed Emitter::pointwise(ExprId id) {
  const Expr& expr = kernel_[id];
  if (pack_scope_ >= 0 && turns_between_packs(kernel_, expr, binding_.width)) {
    const Printed left = address(kernel_[expr.args[0]].address, true);
    const Printed right = address(kernel_[expr.args[1]].address, true);
    const std::string comparison = expr.op == Op::lt ? " < " : " >= ";
    return define(std::max(left.scope, right.scope), "bool", "v", left.name + comparison + right.name);
  }
  std::map<std::string_view, std::string> names{{"T", element_type(expr.dtype)},
                                                {"F", element_type(expr.operand_dtype)}};
  constexpr std::string_view operands[] = {"a", "b", "c"};
  int scope = 0;
  for (std::size_t i = 0; i < expr.args.size(); ++i) {
    const Printed arg = emit(expr.args[i]);
    names[operands[i]] = arg.name;
    scope = std::max(scope, arg.scope);
  }
  const std::string_view row = spelling(expr.op);
  if (row.find("status") != std::string_view::npos) {
    const bool fails = can_fail(expr);
    fallible_ = fallible_ || fails;
    if (!fails) names["status"] = "nullptr";
    if (fails) scope = std::max(scope, innermost_conditional());
  }
  std::string text = filled(row, names);
  if (is_half(expr.dtype) && !keeps_halves(expr.op)) text = "rounded<" + element_type(expr.dtype) + ">(" + text + ")";
  return define(scope, register_type(expr.dtype), "v", text);
}

std::string Emitter::constant(DType dtype, const Scalar& scalar) const {
  auto real = [&](double value) -> std::string {
    const std::string type = register_type(dtype);
    if (dtype == DType::F16) value = Half::decode(Half::encode(value));
    if (dtype == DType::BF16) value = BFloat::decode(BFloat::encode(value));
    if (dtype != DType::F64) value = float(value);
    if (std::isnan(value)) return type == "double" ? "double_of(0x7ff8000000000000ull)" : "float_of(0x7fc00000u)";
    if (std::isinf(value)) return "Limits<" + type + ">::" + (value > 0 ? "largest()" : "lowest()");
    char text[64];
    std::snprintf(text, sizeof text, type == "double" ? "%.17g" : "%.9g", value);
    std::string out = text;
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    if (type != "double") out += "f";
    return value < 0 || std::signbit(value) ? "(" + out + ")" : out;
  };
  auto integer = [&](std::uint64_t bits) -> std::string {
    return register_type(dtype) + "(" + std::to_string(bits) + "ull)";
  };
  return std::visit(
      [&](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::pair<double, double>>) {
          FJ_CHECK(false, "a complex constant");
          return {};
        } else if constexpr (std::is_same_v<T, double>) {
          return is_float(dtype) ? real(value) : integer(std::uint64_t(std::int64_t(value)));
        } else {
          if (dtype == DType::Bool) return value ? "true" : "false";
          return is_float(dtype) ? real(double(value)) : integer(std::uint64_t(value));
        }
      },
      scalar);
}

}  // namespace fj::cuda
