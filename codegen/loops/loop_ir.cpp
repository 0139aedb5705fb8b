// The loop IR's bookkeeping: arithmetic on addresses, hash-consing of expressions, text for logs.
#include "codegen/loops/loop_ir.h"

#include <algorithm>

#include "runtime/base/budget.h"

namespace fj::loop {

namespace {

template <class Key>
std::vector<std::pair<Key, SymDim>> merge(const std::vector<std::pair<Key, SymDim>>& a,
                                          const std::vector<std::pair<Key, SymDim>>& b) {
  std::vector<std::pair<Key, SymDim>> sum;
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    if (j == b.end() || (i != a.end() && i->first < j->first)) {
      sum.push_back(*i++);
    } else if (i == a.end() || j->first < i->first) {
      sum.push_back(*j++);
    } else {
      SymDim coefficient = i->second + j->second;
      if (!(coefficient == SymDim())) sum.push_back({i->first, coefficient});
      ++i, ++j;
    }
  }
  return sum;
}

std::size_t combine(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15 + (seed << 6) + (seed >> 2));
}

std::size_t hash(const Affine& affine) {
  std::size_t seed = affine.constant.hash();
  for (const auto& [variable, coefficient] : affine.terms)
    seed = combine(combine(seed, variable.index), coefficient.hash());
  for (const auto& [expression, coefficient] : affine.dynamic)
    seed = combine(combine(seed, expression.index), coefficient.hash());
  return seed;
}

// Bits, not ==: 0.0 and -0.0 are different constants and NaN equals itself.
std::size_t bits(double value) {
  std::size_t result;
  static_assert(sizeof result == sizeof value);
  std::copy_n(reinterpret_cast<const char*>(&value), sizeof value, reinterpret_cast<char*>(&result));
  return result;
}

std::size_t hash(const Scalar& scalar) {
  std::size_t seed = scalar.index();
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, double>)
          seed = combine(seed, bits(value));
        else if constexpr (std::is_same_v<T, std::pair<double, double>>)
          seed = combine(combine(seed, bits(value.first)), bits(value.second));
        else
          seed = combine(seed, std::size_t(value));
      },
      scalar);
  return seed;
}

bool same_scalar(const Scalar& a, const Scalar& b) { return a.index() == b.index() && hash(a) == hash(b); }

bool same(const Expr& a, const Expr& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.operand_dtype == b.operand_dtype &&
         a.args == b.args && a.buffer == b.buffer && a.predicate == b.predicate && a.accumulator == b.accumulator &&
         a.address == b.address && same_scalar(a.scalar, b.scalar);
}

std::size_t hash(const Expr& expr) {
  std::size_t seed = combine(std::size_t(expr.kind) * 64 + std::size_t(expr.dtype), std::size_t(expr.op));
  seed = combine(seed, std::size_t(expr.buffer + 1) * 1024 + std::size_t(expr.accumulator + 1));
  for (ExprId arg : expr.args) seed = combine(seed, arg.index);
  return combine(combine(seed, hash(expr.address)), hash(expr.scalar));
}

std::string text(const Scalar& scalar) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>)
          return value ? "true" : "false";
        else if constexpr (std::is_same_v<T, std::pair<double, double>>)
          return "(" + std::to_string(value.first) + ", " + std::to_string(value.second) + ")";
        else
          return std::to_string(value);
      },
      scalar);
}

bool same_body(const std::vector<Statement>& a, const std::vector<Statement>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Statement& left, const Statement& right) {
    return left.kind == right.kind && left.variable == right.variable && left.accumulator == right.accumulator &&
           left.buffer == right.buffer && left.address == right.address && left.value == right.value &&
           left.predicate == right.predicate && same_body(left.body, right.body);
  });
}

/// What says how far a loop runs, where that is not left to the launch.
bool same_loops(const Kernel& a, const Kernel& b) {
  const auto left_to_launch = [](const Kernel& kernel, std::size_t variable) {
    return kernel.vector_is_parallel() && kernel.vector_var.index == variable;
  };
  if (a.variables.size() != b.variables.size() || a.parallel != b.parallel || a.vector_var != b.vector_var)
    return false;
  for (std::size_t v = 0; v < a.variables.size(); ++v) {
    const Variable &left = a.variables[v], &right = b.variables[v];
    if (left.chunk != right.chunk || !(left.chunk_length == right.chunk_length)) return false;
    if (!(left.extent == right.extent) && !left_to_launch(a, v)) return false;
  }
  return true;
}

constexpr const char* reduction_names[] = {"sum", "product", "max", "min", "and", "or", "argmax", "argmin"};

void print(const Kernel& kernel, const std::vector<Statement>& body, int depth, std::string& out) {
  const std::string indent(std::size_t(depth) * 2, ' ');
  for (const Statement& statement : body) {
    out += indent;
    auto value = [&] { return "%" + std::to_string(statement.value.index); };
    switch (statement.kind) {
      case StatementKind::Loop: {
        const Variable& variable = kernel.variables[statement.variable.index];
        out += "for " + variable.name + " < " + variable.extent.text();
        if (statement.variable == kernel.vector_var) out += " vector";
        out += "\n";
        print(kernel, statement.body, depth + 1, out);
        break;
      }
      case StatementKind::Initialise:
        out += "acc" + std::to_string(statement.accumulator) + " = " +
               reduction_names[int(kernel.accumulators[statement.accumulator].reduction)] + "()\n";
        break;
      case StatementKind::Update:
        out += "acc" + std::to_string(statement.accumulator) + " <- " + value() + "\n";
        break;
      case StatementKind::Store:
      case StatementKind::Add: case StatementKind::Put:
        out += "b" + std::to_string(statement.buffer) + "[" + text(statement.address) +
               (statement.kind == StatementKind::Add ? "] += " : "] = ") + value() + "\n";
        break;
      case StatementKind::Check:
        out += "check " + value() + "\n";
        break;
    }
  }
}

}  // namespace

std::optional<VarId> Affine::variable() const {
  if (terms.size() == 1 && dynamic.empty() && constant == SymDim() && terms[0].second == SymDim(1))
    return terms[0].first;
  return std::nullopt;
}

std::optional<SymDim> Affine::coefficient(VarId variable) const {
  for (const auto& [candidate, coefficient] : terms)
    if (candidate == variable) return coefficient;
  return std::nullopt;
}

Affine operator+(const Affine& a, const Affine& b) {
  Affine sum;
  sum.constant = a.constant + b.constant;
  sum.terms = merge(a.terms, b.terms);
  sum.dynamic = merge(a.dynamic, b.dynamic);
  return sum;
}

Affine operator*(const Affine& a, const SymDim& factor) {
  if (factor == SymDim()) return {};
  Affine product = a;
  product.constant = a.constant * factor;
  for (auto& term : product.terms) term.second = term.second * factor;
  for (auto& term : product.dynamic) term.second = term.second * factor;
  return product;
}

std::string text(const Affine& affine) {
  std::string out;
  for (const auto& [variable, coefficient] : affine.terms)
    out += (out.empty() ? "i" : " + i") + std::to_string(variable.index) +
           (coefficient == SymDim(1) ? "" : "*(" + coefficient.text() + ")");
  for (const auto& [expression, coefficient] : affine.dynamic)
    out += (out.empty() ? "%" : " + %") + std::to_string(expression.index) + "*(" + coefficient.text() + ")";
  if (out.empty() || !(affine.constant == SymDim())) out += (out.empty() ? "" : " + ") + affine.constant.text();
  return out;
}

ExprId Kernel::add(Expr expression) {
  Budget::spend(1);
  const std::size_t key = hash(expression);
  auto [begin, end] = index_.equal_range(key);
  for (auto entry = begin; entry != end; ++entry)
    if (same(expressions[entry->second], expression)) return {entry->second};
  const auto number = std::uint32_t(expressions.size());
  expressions.push_back(std::move(expression));
  index_.emplace(key, number);
  return {number};
}

VarId Kernel::add_variable(std::string name, SymDim extent) {
  variables.push_back({std::move(name), std::move(extent), {}, {}});
  return {std::uint32_t(variables.size() - 1)};
}

bool same_work(const Kernel& a, const Kernel& b) {
  const auto same_accumulator = [](const AccumulatorInfo& left, const AccumulatorInfo& right) {
    return left.reduction == right.reduction && left.dtype == right.dtype && left.scan == right.scan &&
           left.contracts == right.contracts;
  };
  return same_loops(a, b) &&
         std::equal(a.expressions.begin(), a.expressions.end(), b.expressions.begin(), b.expressions.end(), same) &&
         std::equal(a.accumulators.begin(), a.accumulators.end(), b.accumulators.begin(), b.accumulators.end(),
                    same_accumulator) &&
         a.scratch_bytes == b.scratch_bytes && same_body(a.body, b.body);
}

std::size_t work_hash(const Kernel& kernel) {
  std::size_t seed = combine(kernel.variables.size(), kernel.accumulators.size());
  for (const Expr& expr : kernel.expressions) seed = combine(seed, hash(expr));
  return seed;
}

std::string text(const Kernel& kernel) {
  std::string out = "kernel " + kernel.name + "(";
  for (std::size_t i = 0; i < kernel.parallel.size(); ++i) {
    const Variable& variable = kernel.variables[kernel.parallel[i].index];
    out += (i ? ", " : "") + variable.name + " < " + variable.extent.text();
    if (kernel.parallel[i] == kernel.vector_var) out += " vector";
  }
  out += ")\n";
  for (std::size_t i = 0; i < kernel.expressions.size(); ++i) {
    const Expr& expr = kernel.expressions[i];
    out += "  %" + std::to_string(i) + " = ";
    auto args = [&] {
      std::string list;
      for (ExprId arg : expr.args) list += (list.empty() ? " %" : ", %") + std::to_string(arg.index);
      return list;
    };
    switch (expr.kind) {
      case ExprKind::Constant: out += text(expr.scalar); break;
      case ExprKind::Position: out += "position " + text(expr.address); break;
      case ExprKind::Load: out += "b" + std::to_string(expr.buffer) + "[" + text(expr.address) + "]"; break;
      case ExprKind::Accumulator: out += "acc" + std::to_string(expr.accumulator); break;
      case ExprKind::Pointwise: out += std::string(name(expr.op)) + args(); break;
      case ExprKind::CheckedIndex: out += "index" + args() + " of " + text(expr.address); break;
    }
    if (expr.predicate.valid()) out += " if %" + std::to_string(expr.predicate.index);
    out += " : " + std::string(name(expr.dtype)) + "\n";
  }
  print(kernel, kernel.body, 1, out);
  return out;
}

}  // namespace fj::loop
