// Index-set splitting: the vector loop in pieces between the places where comparisons of positions change.
#include "codegen/llvm/emitter.h"

#include <algorithm>

namespace fj {

namespace {

// Every piece is the whole loop once more.
constexpr std::size_t kMostCuts = 4;
constexpr std::size_t kMostExpressions = 150;

bool compares(Op op) { return op == Op::lt || op == Op::ge || op == Op::le || op == Op::gt; }

}  // namespace

std::vector<Emitter::Cut> Emitter::find_cuts(VarId variable) const {
  std::vector<Cut> cuts;
  if (kernel_.expressions.size() > kMostExpressions) return cuts;
  const auto in_scope = [&](VarId candidate) {
    for (const Scope& scope : scopes_)
      if (scope.index.contains(candidate.index)) return true;
    return false;
  };
  for (std::uint32_t i = 0; i < kernel_.expressions.size(); ++i) {
    const Expr& expr = kernel_.expressions[i];
    if (expr.kind != ExprKind::Pointwise || !compares(expr.op) || expr.operand_dtype != DType::I64) continue;
    const Expr &left = kernel_[expr.args[0]], &right = kernel_[expr.args[1]];
    if (left.kind != ExprKind::Position || right.kind != ExprKind::Position) continue;
    // index + rest compared with 0: the comparison changes at -rest, or one behind it.
    const Affine apart = left.address + right.address * SymDim(-1);
    if (apart.coefficient(variable) != SymDim(1) || !apart.dynamic.empty()) continue;
    Affine at = (apart + Affine(variable) * SymDim(-1)) * SymDim(-1);
    if (!std::all_of(at.terms.begin(), at.terms.end(), [&](const auto& term) { return in_scope(term.first); }))
      continue;
    if (expr.op == Op::gt || expr.op == Op::le) at.constant = at.constant + SymDim(1);
    const bool behind = expr.op == Op::ge || expr.op == Op::gt;
    auto cut = std::find_if(cuts.begin(), cuts.end(), [&](const Cut& known) { return known.at == at; });
    if (cut == cuts.end()) cut = cuts.insert(cuts.end(), Cut{at, {}});
    cut->facts.push_back({ExprId{i}, behind});
  }
  if (cuts.size() > kMostCuts) return {};
  // In order as far as that is known; the order is tested where it is not.
  std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) {
    const Affine apart = b.at + a.at * SymDim(-1);
    return apart.is_constant() && apart.constant.constant().value_or(0) > 0;
  });
  return cuts;
}

void Emitter::emit_pieces(Value* begin, Value* end, const std::vector<Cut>& cuts,
                          llvm::function_ref<void(Value*, Value*)> emit_piece) {
  if (cuts.empty()) return emit_piece(begin, end);
  auto& context = module_.getContext();
  std::vector<Value*> places;
  for (const Cut& cut : cuts) places.push_back(scalar_address(cut.at));
  Value* unordered = nullptr;
  for (std::size_t c = 1; c < cuts.size(); ++c) {
    const Affine apart = cuts[c].at + cuts[c - 1].at * SymDim(-1);
    if (apart.is_constant() && apart.constant.constant().value_or(-1) >= 0) continue;
    Value* wrong = b.CreateICmpSLT(places[c], places[c - 1]);
    unordered = unordered ? b.CreateOr(unordered, wrong) : wrong;
  }
  BasicBlock* done = nullptr;
  if (unordered) {
    BasicBlock* whole = BasicBlock::Create(context, "whole", function_);
    BasicBlock* pieces = BasicBlock::Create(context, "pieces", function_);
    done = BasicBlock::Create(context, "after_pieces", function_);
    b.CreateCondBr(unordered, whole, pieces);
    b.SetInsertPoint(whole);
    emit_piece(begin, end);
    b.CreateBr(done);
    b.SetInsertPoint(pieces);
  }
  for (std::size_t piece = 0; piece <= cuts.size(); ++piece) {
    known_.clear();
    for (std::size_t c = 0; c < cuts.size(); ++c)
      for (const auto& [condition, behind] : cuts[c].facts) known_[condition.index] = (c < piece) == behind;
    Value* stop = end;
    if (piece < cuts.size()) {
      stop = b.CreateSelect(b.CreateICmpSLT(places[piece], end), places[piece], end);
      stop = b.CreateSelect(b.CreateICmpSLT(stop, begin), begin, stop);
    }
    emit_piece(begin, stop);
    begin = stop;
  }
  known_.clear();
  if (!done) return;
  b.CreateBr(done);
  b.SetInsertPoint(done);
}

std::optional<bool> Emitter::known(ExprId condition) const {
  if (known_.empty()) return std::nullopt;
  if (const auto found = known_.find(condition.index); found != known_.end()) return found->second;
  const Expr& expr = kernel_[condition];
  if (expr.kind != ExprKind::Pointwise || expr.dtype != DType::Bool) return std::nullopt;
  if (expr.op == Op::logical_not) {
    const auto operand = kernel_[expr.args[0]].dtype == DType::Bool ? known(expr.args[0]) : std::nullopt;
    return operand ? std::optional(!*operand) : std::nullopt;
  }
  if ((expr.op != Op::bit_and && expr.op != Op::bit_or) || expr.operand_dtype != DType::Bool) return std::nullopt;
  const bool deciding = expr.op == Op::bit_or;
  const auto a = known(expr.args[0]), c = known(expr.args[1]);
  if (a == deciding || c == deciding) return deciding;
  return a && c ? std::optional(!deciding) : std::nullopt;
}

ExprId Emitter::unknown_part(ExprId condition) const {
  if (!condition.valid() || known(condition) == true) return {};
  const Expr& expr = kernel_[condition];
  if (known_.empty() || expr.kind != ExprKind::Pointwise || expr.op != Op::bit_and || expr.dtype != DType::Bool)
    return condition;
  if (known(expr.args[0]) == true) return unknown_part(expr.args[1]);
  if (known(expr.args[1]) == true) return unknown_part(expr.args[0]);
  return condition;
}

bool Emitter::leaves_no_trace(ExprId id) const {
  std::set<std::uint32_t> seen;
  auto visit = [&](auto&& self, ExprId at) -> bool {
    if (!at.valid() || !seen.insert(at.index).second) return true;
    const Expr& expr = kernel_[at];
    if (expr.kind == ExprKind::CheckedIndex) return false;
    if (expr.kind == ExprKind::Pointwise) {
      const bool floats = is_float(expr.operand_dtype) || is_complex(expr.operand_dtype) || is_float(expr.dtype);
      const bool divides =
          expr.op == Op::floor_div || expr.op == Op::mod || expr.op == Op::trunc_div || expr.op == Op::fmod;
      if (floats ? ops_.conditions : divides) return false;
    }
    return !any_operand(expr, [&](ExprId operand) { return !self(self, operand); });
  };
  return visit(visit, id);
}

}  // namespace fj
