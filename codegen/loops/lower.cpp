// Lowering of groups to loop kernels. `GroupLowering::value` turns a graph value at an index into an expression,
// looking through everything that has no memory; `GroupLowering::run` then arranges the group's stores and reductions
// in loops: which dimensions merge, which one runs over vector lanes, which pass over a row computes what.
#include "codegen/loops/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "codegen/loops/arrange.h"
#include "codegen/schedule/index_maps.h"
#include "codegen/schedule/written_parts.h"
#include "graph_ir/ops.h"
#include "runtime/base/budget.h"
#include "runtime/base/error.h"

namespace fj {

using namespace loop;

namespace {

Reduction reduction_of(Op op) {
  switch (op) {
    case Op::reduce_sum: case Op::cumsum: return Reduction::Sum;
    case Op::reduce_prod: case Op::cumprod: return Reduction::Product;
    case Op::reduce_max: return Reduction::Max;
    case Op::reduce_min: return Reduction::Min;
    case Op::reduce_and: return Reduction::And;
    case Op::reduce_or: return Reduction::Or;
    case Op::argmax: return Reduction::ArgMax;
    case Op::argmin: return Reduction::ArgMin;
    default: FJ_CHECK(false, "not a reduction: " + std::string(name(op)));
  }
}

bool narrow_float(DType dtype) { return is_half(dtype) || dtype == DType::F32; }

/// Where values lie.
struct Memory {
  std::vector<int> buffer;             // by ValueId: -1 where none
  std::vector<int> contiguous_buffer;  // by ValueId: of copied inputs; else as `buffer`
};

Affine address_in(const LoweredProgram& program, int buffer, const Index& index) {
  const Strides& strides = program.buffers[std::size_t(buffer)].strides;
  Affine address;
  for (std::size_t d = 0; d < index.size(); ++d) address = address + index[d] * strides[d];
  return address;
}

class GroupLowering {
 public:
  GroupLowering(const Graph& graph, const Schedule& schedule, int group, const Memory& memory, LoweredProgram& program)
      : graph_(graph),
        schedule_(schedule),
        number_(group),
        group_(schedule.groups[group]),
        memory_(memory),
        program_(program) {
    for (std::size_t d = 0; d < group_.extents.size(); ++d)
      kernel_.add_variable("i" + std::to_string(d), group_.extents[d]);
  }

  void run() {
    kernel_.name = "kernel" + std::to_string(program_.kernels.size());
    int last = group_.node;
    for (ValueId stored : group_.stores) last = std::max(last, schedule_.node_of[stored.index]);
    if (last >= 0 && graph_.nodes[std::size_t(last)].location.line > 0) {
      const Location& at = graph_.nodes[std::size_t(last)].location;
      kernel_.location = at.file + ":" + std::to_string(at.line);
    }
    kernel_.nodes = nodes();
    switch (group_.kind) {
      case GroupKind::Loops: return lower_loops();
      case GroupKind::Scan: return lower_scan();
      case GroupKind::Scatter: return lower_scatter();
      default: FJ_CHECK(false, "not a group of loops");
    }
  }

 private:
  const Node& node_of(ValueId value) const { return graph_.nodes[schedule_.node_of[value.index]]; }

  /// What the group computes, down to what is in memory.
  std::vector<int> nodes() const {
    std::set<int> found;
    std::vector<ValueId> waiting = group_.stages;
    waiting.insert(waiting.end(), group_.stores.begin(), group_.stores.end());
    if (group_.node >= 0) waiting.push_back(graph_.nodes[std::size_t(group_.node)].results[0]);
    while (!waiting.empty()) {
      const int node = schedule_.node_of[waiting.back().index];
      waiting.pop_back();
      if (node < 0 || !found.insert(node).second) continue;
      for (ValueId operand : graph_.nodes[std::size_t(node)].operands)
        if (!schedule_.in_memory[operand.index]) waiting.push_back(operand);
    }
    return {found.begin(), found.end()};
  }
  const Dims& shape(ValueId value) const { return graph_.type(value).shape; }
  DType dtype(ValueId value) const { return graph_.type(value).dtype; }

  static Index identity(const std::vector<std::uint32_t>& variables) {
    Index index;
    for (auto variable : variables) index.push_back(Affine(VarId{variable}));
    return index;
  }

  // ---- expressions

  ExprId position(Affine address) {
    Expr expr;
    expr.kind = ExprKind::Position;
    expr.dtype = DType::I64;
    expr.address = std::move(address);
    return kernel_.add(std::move(expr));
  }

  ExprId pointwise(Op op, DType result, DType operand, std::vector<ExprId> args) {
    Expr expr;
    expr.kind = ExprKind::Pointwise;
    expr.dtype = result;
    expr.op = op;
    expr.operand_dtype = operand;
    expr.args = std::move(args);
    return kernel_.add(std::move(expr));
  }

  ExprId both(ExprId a, ExprId b) {
    if (!a.valid()) return b;
    if (!b.valid()) return a;
    return pointwise(Op::bit_and, DType::Bool, DType::Bool, {a, b});
  }

  ExprId compare(Op op, const Affine& a, const Affine& b) {
    return pointwise(op, DType::Bool, DType::I64, {position(a), position(b)});
  }

  ExprId negate(ExprId condition) { return pointwise(Op::logical_not, DType::Bool, DType::Bool, {condition}); }

  /// 0 <= at < size. Halves that hold by construction cost nothing.
  ExprId in_range(const Affine& at, const SymDim& size) {
    return both(compare(Op::ge, at, {}), compare(Op::lt, at, Affine(size)));
  }

  ExprId load(int buffer, const Affine& address, DType type, ExprId predicate) {
    Expr expr;
    expr.kind = ExprKind::Load;
    expr.dtype = type;
    expr.buffer = buffer;
    expr.address = address;
    expr.predicate = both(predicate, has_elements(kernel_, program_, buffer, address));
    return kernel_.add(std::move(expr));
  }

  Affine address_in(int buffer, const Index& index) const { return fj::address_in(program_, buffer, index); }

  /// Whether every condition of `wanted` is one of `predicate`. Conjunctions share their parts: each pair is asked
  /// once.
  bool implies(ExprId predicate, ExprId wanted) {
    if (predicate == wanted || !wanted.valid()) return true;
    if (!predicate.valid()) return false;
    const auto key = std::make_pair(predicate.index, wanted.index);
    if (const auto found = implied_.find(key); found != implied_.end()) return found->second;
    const auto parts = [&](ExprId expr) {
      const Expr& condition = kernel_[expr];
      return condition.kind == ExprKind::Pointwise && condition.op == Op::bit_and ? condition.args
                                                                                  : std::vector<ExprId>{};
    };
    bool result = false;
    if (const auto wanted_parts = parts(wanted); !wanted_parts.empty())
      result = implies(predicate, wanted_parts[0]) && implies(predicate, wanted_parts[1]);
    else if (const auto predicate_parts = parts(predicate); !predicate_parts.empty())
      result = implies(predicate_parts[0], wanted) || implies(predicate_parts[1], wanted);
    return implied_[key] = result;
  }

  /// The value at an index, where the predicate holds. What is asked for a second time under another condition is
  /// computed wherever the index lies in the value, which every condition includes: a chain of concatenations or of
  /// updates of slices, each of which reads what is before it under conditions of its own, costs two expressions a link
  /// and not two to the power of its length.
  ExprId value(ValueId id, const Index& index, ExprId predicate) {
    FJ_CHECK(index.size() == shape(id).size(), "an index of another rank than the value's");
    auto& entries = memo_[id.index];
    Budget::spend(1 + entries.size());
    bool again = false;
    for (const auto& entry : entries) {
      if (!(entry.index == index)) continue;
      if (entry.anywhere || implies(predicate, entry.predicate)) return entry.expr;
      again = true;
    }
    again = again && !is_load(id);
    if (again) predicate = inside(id, index);
    const ExprId expr = compute(id, index, predicate);
    memo_[id.index].push_back({index, predicate, expr, again});
    return expr;
  }

  bool is_load(ValueId id) const {
    return schedule_.node_of[id.index] < 0 ||
           (schedule_.in_memory[id.index] && schedule_.producer[id.index] != number_);
  }

  /// Where the index lies in the value; halves that hold by construction are left out.
  ExprId inside(ValueId id, const Index& index) {
    ExprId result;
    for (std::size_t d = 0; d < index.size(); ++d) {
      const SymDim& size = shape(id)[d];
      const auto variable = index[d].variable();
      if (variable && kernel_.variables[variable->index].extent == size) continue;
      const auto at = index[d].is_constant() ? index[d].constant.constant() : std::nullopt;
      const auto end = size.constant();
      if (at && end && *at >= 0 && *at < *end) continue;
      result = both(result, in_range(index[d], size));
    }
    return result;
  }

  ExprId compute(ValueId id, const Index& index, ExprId predicate) {
    const bool ours = schedule_.producer[id.index] == number_;
    const bool input = schedule_.node_of[id.index] < 0;
    if (auto stage = stages_.find(id.index); stage != stages_.end()) return stage->second;
    if (input || (schedule_.in_memory[id.index] && !ours))
      return load(memory_.buffer[id.index], address_in(memory_.buffer[id.index], index), dtype(id), predicate);

    const Node& node = node_of(id);
    switch (node.op) {
      case Op::constant: {
        Expr expr;
        expr.dtype = dtype(id);
        expr.scalar = node.attrs.get<Scalar>("value");
        return kernel_.add(std::move(expr));
      }
      case Op::dim:
        return position(Affine(node.attrs.get<SymDim>("value")));
      case Op::iota:
        return position(index[node.attrs.get<std::int64_t>("axis")]);
      case Op::broadcast: case Op::transpose: case Op::slice: case Op::windows: case Op::reshape: {
        const ValueId operand = node.operands[0];
        if (const auto mapped = operand_index(graph_, node, index)) return value(operand, *mapped, predicate);
        return load(memory_.contiguous_buffer[operand.index], linear_index(shape(id), index), dtype(id), predicate);
      }
      case Op::pad: return pad(node, index, predicate);
      case Op::concat: return concat(node, index, predicate);
      case Op::slice_update: return slice_update(node, index, predicate);
      case Op::gather: return gather(node, index, predicate);
      case Op::take_along: return take_along(node, index, predicate);
      default: break;
    }
    std::vector<ExprId> args;
    for (ValueId operand : node.operands) args.push_back(value(operand, index, predicate));
    if (const auto loud = loud_operand(node)) {
      ExprId& arg = args[*loud];
      const DType type = dtype(node.operands[*loud]);
      if (schedule_.conditions && predicate.valid() && kernel_[arg].kind != ExprKind::Constant)
        arg = select(type, predicate, arg, number(type, quiet_operand(node.op)));
    }
    return pointwise(node.op, dtype(id), dtype(node.operands.back()), std::move(args));
  }

  /// The operand that may raise an IEEE condition where the predicate doesn't hold, though the ones that are loaded are
  /// harmless there: 0 / 0, the logarithm of x - 1.
  std::optional<std::size_t> loud_operand(const Node& node) {
    if (row(node.op).lowering != Lowering::Pointwise || row(node.op).raises != Raises::Any) return std::nullopt;
    const DType type = dtype(node.operands[0]);
    if (!is_float(type) && !is_complex(type)) return std::nullopt;
    switch (node.op) {
      case Op::sqrt: case Op::rsqrt: case Op::log: case Op::log2: case Op::log10: case Op::log1p: case Op::asin:
      case Op::acos: case Op::acosh: case Op::atanh: case Op::pow: return 0;
      case Op::div: case Op::floor_div: case Op::mod: case Op::trunc_div: case Op::fmod: return 1;
      default: return std::nullopt;
    }
  }
  static double quiet_operand(Op op) { return op == Op::atanh ? 0 : 1; }

  ExprId number(DType type, double value) {
    Expr expr;
    expr.dtype = type;
    expr.scalar = value;
    return kernel_.add(std::move(expr));
  }

  ExprId select(DType type, ExprId condition, ExprId a, ExprId b) {
    return pointwise(Op::where, type, type, {condition, a, b});
  }

  ExprId pad(const Node& node, const Index& index, ExprId predicate) {
    const auto& low = node.attrs.get<Dims>("low");
    const auto& high = node.attrs.get<Dims>("high");
    const Dims& inner = shape(node.operands[0]);
    Index mapped = index;
    ExprId inside;
    for (std::size_t d = 0; d < mapped.size(); ++d) {
      mapped[d] = mapped[d] + Affine(SymDim(0) - low[d]);
      if (!(low[d] == SymDim(0))) inside = both(inside, compare(Op::ge, mapped[d], {}));
      if (!(high[d] == SymDim(0))) inside = both(inside, compare(Op::lt, mapped[d], Affine(inner[d])));
    }
    const ExprId kept = value(node.operands[0], mapped, both(predicate, inside));
    if (!inside.valid()) return kept;
    return select(dtype(node.results[0]), inside, kept, value(node.operands[1], {}, predicate));
  }

  ExprId concat(const Node& node, const Index& index, ExprId predicate) {
    const auto axis = node.attrs.get<std::int64_t>("axis");
    const DType type = dtype(node.results[0]);
    std::vector<ExprId> before, values;  // before[k]: the index lies before the end of operand k
    Index mapped = index;
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      const Affine end(shape(node.operands[k])[axis]);
      const bool last = k + 1 == node.operands.size();
      before.push_back(last ? ExprId{} : compare(Op::lt, mapped[axis], end));
      const ExprId after = k == 0 ? ExprId{} : compare(Op::ge, mapped[axis], {});
      values.push_back(value(node.operands[k], mapped, both(predicate, both(after, before.back()))));
      mapped[axis] = mapped[axis] + end * SymDim(-1);
    }
    ExprId result = values.back();
    for (std::size_t k = values.size() - 1; k-- > 0;) result = select(type, before[k], values[k], result);
    return result;
  }

  ExprId slice_update(const Node& node, const Index& index, ExprId predicate) {
    const auto& starts = node.attrs.get<Dims>("starts");
    const auto& steps = node.attrs.get<std::vector<std::int64_t>>("steps");
    const Dims& base = shape(node.operands[0]);
    const Dims& update = shape(node.operands[1]);
    Index mapped = index;
    ExprId inside;
    for (std::size_t d = 0; d < mapped.size(); ++d) {
      if (starts[d] == SymDim(0) && steps[d] == 1 && update[d] == base[d]) continue;
      mapped[d] = mapped[d] + Affine(SymDim(0) - starts[d]);
      if (steps[d] != 1) {
        // distance = step * j: j is the quotient, and the remainder must be 0
        const ExprId distance = position(mapped[d]);
        const ExprId step = position(Affine(SymDim(steps[d])));
        const ExprId remainder = pointwise(Op::fmod, DType::I64, DType::I64, {distance, step});
        inside = both(inside, pointwise(Op::eq, DType::Bool, DType::I64, {remainder, position({})}));
        mapped[d] = Affine(pointwise(Op::trunc_div, DType::I64, DType::I64, {distance, step}));
      }
      inside = both(inside, in_range(mapped[d], update[d]));
    }
    // Where others read the base at this index it is computed once for all: of a chain of updates (`y[i:i + 2] += 1`
    // for each i) every condition would otherwise double what is computed before.
    ExprId kept;
    if (inside.valid() && schedule_.read_again[node.operands[0].index])
      kept = value(node.operands[0], index, predicate);
    const ExprId updated = value(node.operands[1], mapped, both(predicate, inside));
    if (!inside.valid()) return updated;
    if (!kept.valid()) kept = value(node.operands[0], index, both(predicate, negate(inside)));
    return select(dtype(node.results[0]), inside, updated, kept);
  }

  /// A data-dependent index into a dimension of `size`, and where it may be used.
  Affine checked_index(ExprId raw, const SymDim& size, ExprId predicate, ExprId& in_bounds) {
    const ExprId low = position(Affine(SymDim(0) - size)), high = position(Affine(size));
    in_bounds = both(in_bounds, both(pointwise(Op::ge, DType::Bool, DType::I64, {raw, low}),
                                     pointwise(Op::lt, DType::Bool, DType::I64, {raw, high})));
    Expr expr;
    expr.kind = ExprKind::CheckedIndex;
    expr.dtype = DType::I64;
    expr.args = {raw};
    expr.address = Affine(size);
    expr.predicate = predicate;
    return Affine(kernel_.add(std::move(expr)));
  }

  /// The index is checked where it is computed, which a stride of 0 (of an empty or repeated axis) would leave out of
  /// the address.
  ExprId with_checks(const Affine& address, const Affine& checked, ExprId in_bounds) {
    const ExprId index = checked.dynamic[0].first;
    const bool computed = std::any_of(address.dynamic.begin(), address.dynamic.end(),
                                      [&](const auto& term) { return term.first == index; });
    return computed ? in_bounds : both(in_bounds, pointwise(Op::ge, DType::Bool, DType::I64, {index, position({})}));
  }

  /// Where an element of what the indices (the node's operands from `first` on) pick of the node's first operand lies
  /// in `buffer`.
  Affine picked(const Node& node, std::size_t first, int buffer, const Index& index, ExprId predicate,
                ExprId& in_bounds, ExprId checked = {}) {
    const auto axis = std::size_t(node.attrs.get<std::int64_t>("axis"));
    const std::size_t rank = shape(node.operands[first]).size();
    const Index at(index.begin() + axis, index.begin() + axis + rank);
    Index mapped(index.begin(), index.begin() + axis);
    for (std::size_t i = first; i < node.operands.size(); ++i)
      mapped.push_back(checked_index(value(node.operands[i], at, predicate), shape(node.operands[0])[mapped.size()],
                                     both(predicate, checked), in_bounds));
    const std::size_t end = mapped.size();
    mapped.insert(mapped.end(), index.begin() + axis + rank, index.end());
    const Affine address = address_in(buffer, mapped);
    for (std::size_t d = axis; d < end; ++d) in_bounds = with_checks(address, mapped[d], in_bounds);
    return address;
  }

  ExprId gather(const Node& node, const Index& index, ExprId predicate) {
    const ValueId source = node.operands[0];
    const int buffer = memory_.buffer[source.index];
    ExprId in_bounds = predicate;
    const Affine address = picked(node, 1, buffer, index, predicate, in_bounds);
    return load(buffer, address, dtype(source), in_bounds);
  }

  ExprId take_along(const Node& node, const Index& index, ExprId predicate) {
    const ValueId source = node.operands[0];
    const auto axis = std::size_t(node.attrs.get<std::int64_t>("axis"));
    const ExprId raw = value(node.operands[1], index, predicate);
    ExprId in_bounds = predicate;
    Index mapped = index;
    mapped[axis] = checked_index(raw, shape(source)[axis], predicate, in_bounds);
    const int buffer = memory_.buffer[source.index];
    const Affine address = address_in(buffer, mapped);
    return load(buffer, address, dtype(source), with_checks(address, mapped[axis], in_bounds));
  }

  // ---- groups

  int add_accumulator(Op op, DType type) {
    kernel_.accumulators.push_back({reduction_of(op), compute_dtype(type), {}});
    return int(kernel_.accumulators.size() - 1);
  }

  /// The final value of an accumulator, in the dtype of the graph.
  ExprId read_accumulator(int accumulator, DType result) {
    const AccumulatorInfo& info = kernel_.accumulators[accumulator];
    const bool index = info.reduction == Reduction::ArgMax || info.reduction == Reduction::ArgMin;
    Expr expr;
    expr.kind = ExprKind::Accumulator;
    expr.dtype = index ? DType::I64 : info.dtype;
    expr.accumulator = accumulator;
    const ExprId read = kernel_.add(expr);
    return !index && info.dtype != result ? pointwise(Op::cast, result, info.dtype, {read}) : read;
  }

  ExprId accumulated_operand(ValueId operand, const Index& index) {
    const ExprId expr = value(operand, index, {});
    return is_half(dtype(operand)) ? pointwise(Op::cast, DType::F32, dtype(operand), {expr}) : expr;
  }

  /// What a matrix product sums over the last variable of the space: a[.., m, k] * b[.., k, n]. Of booleans, any(a and
  /// b).
  Body::Stage product_stage(const Node& node) {
    const Index all = identity(group_.order);
    Index left(all.begin(), all.end() - 3), right = left;
    const std::size_t batch = left.size();
    left.push_back(all[batch]), left.push_back(all[batch + 2]);
    right.push_back(all[batch + 2]), right.push_back(all[batch + 1]);
    const ExprId a = accumulated_operand(node.operands[0], left), b = accumulated_operand(node.operands[1], right);
    const DType type = dtype(node.results[0]), wide = compute_dtype(type);
    const bool boolean = type == DType::Bool;
    const ExprId term = pointwise(boolean ? Op::bit_and : Op::mul, wide, wide, {a, b});
    kernel_.accumulators.push_back({boolean ? Reduction::Or : Reduction::Sum, wide, {}, is_float(wide)});
    return {int(kernel_.accumulators.size() - 1), term, {}};
  }

  Body body() const {
    Body result;
    result.rows = group_.rows();
    result.reductions = group_.reductions();
    return result;
  }

  int target(ValueId stored) const {
    return schedule_.copied_input[stored.index] ? memory_.contiguous_buffer[stored.index]
                                                : memory_.buffer[stored.index];
  }

  void lower_loops() {
    Body parts = body();
    for (ValueId stage : group_.stages) {
      const Node& node = node_of(stage);
      if (node.op == Op::matmul) {
        parts.stages.push_back(product_stage(node));
        stages_[stage.index] = read_accumulator(parts.stages.back().accumulator, dtype(stage));
        continue;
      }
      const Index index = identity(group_.order);
      const ExprId operand = accumulated_operand(node.operands[0], index);
      Affine at;
      if (node.op == Op::argmax || node.op == Op::argmin) at = index[node.attrs.get<std::int64_t>("axis")];
      const int accumulator = add_accumulator(node.op, dtype(node.operands[0]));
      parts.stages.push_back({accumulator, operand, at});
      stages_[stage.index] = read_accumulator(accumulator, dtype(stage));
    }
    for (ValueId stored : group_.stores) {
      const bool whole = shape(stored).size() == group_.order.size();
      const Index index = identity(whole ? group_.order : group_.rows());
      ExprId expr;
      if (schedule_.node_of[stored.index] < 0)
        expr = load(memory_.buffer[stored.index], address_in(memory_.buffer[stored.index], index), dtype(stored), {});
      else
        expr = value(stored, index, {});
      const int buffer = target(stored);
      (whole ? parts.stores : parts.row_stores).push_back({buffer, address_in(buffer, index), expr});
    }
    arrange(std::move(kernel_), std::move(parts), program_);
  }

  void lower_scan() {
    const Node& node = graph_.nodes[group_.node];
    const ValueId operand = node.operands[0], result = node.results[0], stored = group_.stores[0];
    const Index index = identity(group_.order);
    Body parts = body();
    const Reduction reduction = reduction_of(node.op);
    const int accumulator = int(kernel_.accumulators.size());
    kernel_.accumulators.push_back(
        {reduction, dtype(result), VarId{parts.reductions[0]}});  // every step is rounded, half types too
    parts.stages.push_back({accumulator, value(operand, index, {}), {}});
    stages_[result.index] = read_accumulator(accumulator, dtype(result));
    const int buffer = memory_.buffer[stored.index];
    parts.stores.push_back({buffer, address_in(buffer, index), value(stored, index, {})});
    // Another order of additions may overflow where theirs doesn't, and cancel where theirs does. Sums in float64 of
    // what was narrower don't overflow, and once they are narrow again the order shows as one rounding of a sum that is
    // better than the library's.
    const bool widened = schedule_.node_of[operand.index] >= 0 && node_of(operand).op == Op::cast &&
                         narrow_float(dtype(node_of(operand).operands[0]));
    const bool any_order = !is_float(dtype(result)) || (reduction == Reduction::Sum && dtype(result) == DType::F64 &&
                                                        widened && narrow_float(dtype(stored)));
    arrange_scan(std::move(kernel_), std::move(parts), any_order, program_);
  }

  void lower_scatter() {
    const Node& node = graph_.nodes[group_.node];
    const ValueId result = node.results[0], base = node.operands[0];
    const int buffer = memory_.buffer[result.index];
    if (memory_.buffer[base.index] != buffer) copy_buffer(memory_.buffer[base.index], buffer, program_);

    kernel_.name = "kernel" + std::to_string(program_.kernels.size());
    const Index all = identity(group_.order);
    ExprId in_bounds;
    // An index that is the same for all elements is checked before the loop, also where that is empty.
    ExprId some;
    for (const SymDim& size : shape(node.operands[1]))
      if (!size.is_constant() || size.value() == 0)
        some = both(some,
                    pointwise(Op::gt, DType::Bool, DType::I64, {position(Affine(size)), position(Affine(SymDim()))}));
    const Affine address = picked(node, 2, buffer, all, {}, in_bounds, some);
    const ExprId update = value(node.operands[1], all, {});
    const StatementKind kind = node.op == Op::scatter ? StatementKind::Put : StatementKind::Add;
    arrange_scatter(std::move(kernel_), body(), kind, {buffer, address, update}, in_bounds, program_);
  }

  struct Memoised {
    Index index;
    ExprId predicate, expr;
    bool anywhere;  // computed wherever the index lies in the value
  };

  const Graph& graph_;
  const Schedule& schedule_;
  const int number_;
  const Group& group_;
  const Memory& memory_;
  LoweredProgram& program_;
  Kernel kernel_;
  std::map<std::uint32_t, std::vector<Memoised>> memo_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> implied_;
  std::map<std::uint32_t, ExprId> stages_;
};

class ProgramLowering {
 public:
  ProgramLowering(const Graph& graph, const Schedule& schedule, LoopTarget target)
      : graph_(graph), schedule_(schedule) {
    program_.target = target;
  }

  LoweredProgram run() {
    program_.symbols = graph_.symbols;
    memory_.buffer.assign(graph_.value_count(), -1);
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Input& input = graph_.inputs[i];
      memory_.buffer[input.value.index] =
          add_buffer(BufferKind::Input, int(i), input.value, input_strides(graph_, input));
    }
    place_outputs();
    for (std::uint32_t v = 0; v < graph_.value_count(); ++v)
      if (schedule_.in_memory[v] && memory_.buffer[v] < 0)
        memory_.buffer[v] =
            add_buffer(BufferKind::Temporary, -1, ValueId{v}, contiguous_strides(graph_.type(ValueId{v}).shape));
    scatter_in_one_buffer();
    for (const Group& group : schedule_.groups)
      if (group.kind == GroupKind::Assembly) update_in_one_buffer(group);
    memory_.contiguous_buffer = memory_.buffer;
    for (std::uint32_t v = 0; v < graph_.value_count(); ++v)
      if (schedule_.copied_input[v])
        memory_.contiguous_buffer[v] =
            add_buffer(BufferKind::Temporary, -1, ValueId{v}, contiguous_strides(graph_.type(ValueId{v}).shape));

    for (std::size_t g = 0; g < schedule_.groups.size(); ++g) {
      const Group& group = schedule_.groups[g];
      if (group.kind == GroupKind::Matmul)
        lower_matmul(graph_.nodes[group.node]);
      else if (group.kind == GroupKind::Count)
        lower_count(graph_.nodes[group.node]);
      else if (group.kind == GroupKind::Extern)
        lower_extern(group);
      else if (group.kind == GroupKind::Assembly)
        lower_assembly(group);
      else if (group.kind == GroupKind::Control)
        lower_control(graph_.nodes[group.node]);
      else
        GroupLowering(graph_, schedule_, int(g), memory_, program_).run();
    }
    finish_outputs();
    commit_writes();
    return std::move(program_);
  }

 private:
  int add_buffer(BufferKind kind, int number, ValueId value, Strides strides) {
    const Type& type = graph_.type(value);
    program_.buffers.push_back({kind, number, type.dtype, type.shape, std::move(strides)});
    return int(program_.buffers.size() - 1);
  }

  /// A scatter into what only another scatter made goes on where that one wrote.
  void scatter_in_one_buffer() {
    std::vector<int> readers(graph_.value_count());
    for (const Node& node : graph_.nodes)
      for (ValueId operand : node.operands) ++readers[operand.index];
    for (const Output& output : graph_.outputs) ++readers[output.value.index];
    for (const WrittenPart& part : written_parts(graph_)) ++readers[part.value.index];
    const auto scatters = [](const Node& node) { return node.op == Op::scatter || node.op == Op::scatter_add; };
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (!scatters(node) || !schedule_.in_memory[node.results[0].index]) continue;
      const ValueId base = node.operands[0];
      const int before = schedule_.node_of[base.index];
      if (before >= 0 && readers[base.index] == 1 && scatters(graph_.nodes[std::size_t(before)]))
        memory_.buffer[base.index] = memory_.buffer[node.results[0].index];
    }
  }

  /// What the parts are copied over is computed where they go, where only they are its readers.
  void update_in_one_buffer(const Group& group) {
    const Node& node = graph_.nodes[std::size_t(group.node)];
    const ValueId base = group.parts[0].value, value = node.results[0];
    if (node.op != Op::slice_update || schedule_.node_of[base.index] < 0 || from_extern(base)) return;
    const int producer = schedule_.producer[base.index];
    if (schedule_.groups[std::size_t(producer)].kind != GroupKind::Loops || schedule_.contiguous[base.index]) return;
    std::ptrdiff_t readers = 0;
    bool updated = false;  // by the first of the chain, not seen through a view that others may read
    for (const Node& reader : graph_.nodes) {
      readers += std::count(reader.operands.begin(), reader.operands.end(), base);
      updated = updated || (reader.op == Op::slice_update && reader.operands[0] == base);
    }
    for (const Output& output : graph_.outputs) readers += output.value == base;
    for (const WrittenPart& part : written_parts(graph_)) readers += part.value == base;
    if (updated && readers == 1) memory_.buffer[base.index] = memory_.buffer[value.index];
  }

  void lower_assembly(const Group& group) {
    const Node& node = graph_.nodes[std::size_t(group.node)];
    ProgramStep step;
    step.kind = StepKind::Copies;
    step.node = int(&node - graph_.nodes.data());
    step.copies.target = memory_.buffer[node.results[0].index];
    step.copies.apart = node.op == Op::concat;
    const auto place = [&](int buffer, const Index& index, std::size_t rank, SymDim& offset, Dims& strides) {
      const Affine address = address_in(program_, buffer, index);
      FJ_CHECK(address.dynamic.empty(), "a part whose place depends on data");
      offset = address.constant;
      for (std::uint32_t d = 0; d < rank; ++d) strides.push_back(address.coefficient(VarId{d}).value_or(SymDim(0)));
    };
    for (const AssembledPart& part : group.parts) {
      ProgramCopies::Part made;
      made.source = memory_.buffer[part.value.index];
      made.sizes = part.sizes;
      if (made.source == step.copies.target) continue;  // it is there
      place(made.source, part.from, part.sizes.size(), made.from, made.from_strides);
      place(step.copies.target, part.to, part.sizes.size(), made.to, made.to_strides);
      step.copies.parts.push_back(std::move(made));
    }
    program_.steps.push_back(std::move(step));
  }

  Strides output_strides(const Output& output) const {
    return output.strides ? *output.strides : contiguous_strides(graph_.type(output.value).shape);
  }

  bool from_extern(ValueId value) const {
    const int n = schedule_.node_of[value.index];
    return n >= 0 && graph_.nodes[n].op == Op::extern_call;
  }

  /// A value computed by us is computed straight into the first output that returns it, unless someone
  /// needs it contiguous and that output isn't.
  void place_outputs() {
    program_.output_buffers.assign(graph_.outputs.size(), -1);
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      const Strides strides = output_strides(output);
      const int buffer = add_buffer(BufferKind::Output, int(i), output.value, strides);
      program_.output_buffers[i] = buffer;
      const bool contiguous = strides == contiguous_strides(graph_.type(output.value).shape);
      const int producer = schedule_.producer[output.value.index];
      const bool must_be = schedule_.contiguous[output.value.index] ||
                           (producer >= 0 && (schedule_.groups[std::size_t(producer)].kind == GroupKind::Matmul ||
                                              schedule_.groups[std::size_t(producer)].kind == GroupKind::Count));
      int& place = memory_.buffer[output.value.index];
      if (place < 0 && !from_extern(output.value) && (contiguous || !must_be)) place = buffer;
    }
  }

  /// Outputs that are inputs or returned twice are copies. What a library call returned is returned itself: it may be a
  /// view of something larger, which can be seen of it.
  void finish_outputs() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const int source = memory_.buffer[graph_.outputs[i].value.index];
      const ProgramBuffer& made = program_.buffers[source];
      const auto& returned = program_.output_buffers;
      if (made.kind == BufferKind::ExternResult && made.strides == output_strides(graph_.outputs[i]) &&
          std::find(returned.begin(), returned.end(), source) == returned.end()) {
        program_.buffers[program_.output_buffers[i]].kind = BufferKind::Temporary;
        program_.output_buffers[i] = source;
        continue;
      }
      if (source != program_.output_buffers[i]) copy_buffer(source, program_.output_buffers[i], program_);
    }
  }

  /// The last steps. A value that is itself an input to be written is saved before any input changes.
  void commit_writes() {
    const std::vector<WrittenPart> parts = written_parts(graph_);
    const auto target_of = [&](const WrittenPart& part) {
      return memory_.buffer[graph_.inputs[std::size_t(part.input)].value.index];
    };
    std::vector<int> sources;
    for (const WrittenPart& part : parts) {
      int source = memory_.buffer[part.value.index];
      if (program_.buffers[source].kind == BufferKind::Input && parts.size() > 1) {
        const int saved =
            add_buffer(BufferKind::Temporary, -1, part.value, contiguous_strides(graph_.type(part.value).shape));
        copy_buffer(source, saved, program_);
        source = saved;
      }
      sources.push_back(source);
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const int target = target_of(parts[p]);
      if (sources[p] == target) continue;
      copy_into(sources[p], target, parts[p].at, program_);
      program_.steps.back().commit = true;
    }
  }

  void lower_matmul(const Node& node) {
    const ValueId result = node.results[0];
    ProgramMatmul plan;
    plan.dtype = graph_.type(result).dtype;
    auto operand = [&](ValueId value, int& buffer, Strides& strides) {
      const MatmulOperand found = matmul_operand(graph_, schedule_.node_of, value);
      ValueId source = found.source;
      while (schedule_.in_place[source.index])
        source = graph_.nodes[std::size_t(schedule_.node_of[source.index])].operands[0];
      buffer = memory_.contiguous_buffer[source.index];
      const Strides lies = source == found.source ? program_.buffers[buffer].strides
                                                  : contiguous_strides(graph_.type(found.source).shape);
      for (auto d : found.permutation) strides.push_back(lies[std::size_t(d)]);
    };
    operand(node.operands[0], plan.a, plan.a_strides);
    operand(node.operands[1], plan.b, plan.b_strides);
    plan.c = memory_.buffer[result.index];
    plan.c_strides = program_.buffers[plan.c].strides;
    const Dims& shape = graph_.type(result).shape;
    plan.batch.assign(shape.begin(), shape.end() - 2);
    plan.m = shape[shape.size() - 2];
    plan.n = shape.back();
    plan.k = graph_.type(node.operands[0]).shape.back();
    ProgramStep step;
    step.kind = StepKind::Matmul;
    step.node = int(&node - graph_.nodes.data());
    step.matmul = std::move(plan);
    program_.steps.push_back(std::move(step));
  }

  void lower_count(const Node& node) {
    ProgramStep step;
    step.kind = StepKind::Count;
    step.node = int(&node - graph_.nodes.data());
    step.count.of_number = node.op == Op::as_size;
    step.count.source = memory_.contiguous_buffer[node.operands[0].index];
    step.count.result = memory_.buffer[node.results[0].index];
    step.count.count = node.attrs.get<SymDim>("count").symbols()[0];
    step.count.excluded = node.attrs.get<std::vector<std::int64_t>>("excluded");
    program_.steps.push_back(std::move(step));
  }

  /// Its programs are compiled by who has this one compiled.
  void lower_control(const Node& node) {
    ProgramStep step;
    step.node = int(&node - graph_.nodes.data());
    const int condition = memory_.contiguous_buffer[node.operands[0].index];
    std::vector<int> operands, results;
    for (std::size_t i = 1; i < node.operands.size(); ++i)
      operands.push_back(memory_.contiguous_buffer[node.operands[i].index]);
    for (ValueId result : node.results) results.push_back(memory_.buffer[result.index]);
    if (node.op == Op::cond) {
      step.kind = StepKind::Cond;
      step.cond = {condition, std::move(operands), std::move(results)};
    } else {
      step.kind = StepKind::Loop;
      step.loop = {condition, std::move(operands), std::move(results)};
    }
    program_.steps.push_back(std::move(step));
  }

  void lower_extern(const Group& group) {
    const Node& node = graph_.nodes[std::size_t(group.node)];
    using Layouts = std::vector<std::optional<Dims>>;
    const Layouts& operand_layouts = node.attrs.get<Layouts>("operand_strides");
    const Layouts& result_layouts = node.attrs.get<Layouts>("result_strides");
    auto layout = [&](const Layouts& layouts, std::size_t i, ValueId value) {
      return i < layouts.size() && layouts[i] ? *layouts[i] : contiguous_strides(graph_.type(value).shape);
    };
    ProgramStep step;
    step.kind = StepKind::Extern;
    step.node = int(&node - graph_.nodes.data());
    step.extern_call.handle = node.attrs.get<std::int64_t>("handle");
    step.extern_call.callee = node.attrs.get<std::string>("callee");
    for (std::size_t i = 0; i < operand_layouts.size(); ++i) {
      const ValueId value = node.operands[i];
      const Strides strides = layout(operand_layouts, i, value);
      const AssembledPart& shown = group.parts[i];
      int buffer = memory_.buffer[shown.value.index];
      step.extern_call.views.emplace_back();
      if (!(shown.value == value)) {
        if (program_.buffers[buffer].kind == BufferKind::Temporary)
          program_.buffers[buffer].kind = BufferKind::HostArray;
        const Affine place = address_in(program_, buffer, shown.from);
        for (std::uint32_t d = 0; d < strides.size(); ++d)
          FJ_CHECK(shown.sizes[d] == SymDim(1) || place.coefficient(VarId{d}).value_or(SymDim(0)) == strides[d],
                   "an operand lies as the scheduler has seen it");
        step.extern_call.views.back() = ProgramExtern::View{place.constant, shown.sizes, strides};
        step.extern_call.operands.push_back(buffer);
        continue;
      }
      const BufferKind kind = program_.buffers[buffer].kind;
      if (kind == BufferKind::Temporary) {
        // Nobody has an array object for it yet: computed into one from the start if its layout suits.
        if (program_.buffers[buffer].strides == strides) program_.buffers[buffer].kind = BufferKind::HostArray;
      }
      if (program_.buffers[buffer].kind == BufferKind::Temporary || !(program_.buffers[buffer].strides == strides)) {
        const int copy = add_buffer(BufferKind::HostArray, -1, value, strides);
        copy_buffer(buffer, copy, program_);
        buffer = copy;
      }
      step.extern_call.operands.push_back(buffer);
    }
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      const int buffer = memory_.buffer[node.results[i].index];
      program_.buffers[buffer].kind = BufferKind::ExternResult;
      program_.buffers[buffer].strides = layout(result_layouts, i, node.results[i]);
      step.extern_call.results.push_back(buffer);
    }
    program_.steps.push_back(std::move(step));
    for (ValueId result : node.results) {
      const int buffer = memory_.buffer[result.index];
      const Strides strides = contiguous_strides(graph_.type(result).shape);
      if (!schedule_.contiguous[result.index] || program_.buffers[buffer].strides == strides) continue;
      const int copy = add_buffer(BufferKind::Temporary, -1, result, strides);
      copy_buffer(buffer, copy, program_);
      memory_.contiguous_buffer[result.index] = copy;
    }
  }

  const Graph& graph_;
  const Schedule& schedule_;
  Memory memory_;
  LoweredProgram program_;
};

}  // namespace

LoweredProgram lower(const Graph& graph, const Schedule& schedule, LoopTarget target) {
  return ProgramLowering(graph, schedule, target).run();
}

}  // namespace fj
