// Scheduling, from the last node to the first. Start reading at Scheduler::run, then `place_node`, which chooses by
// operation, and `place`, which decides for a pointwise value: inline it in its readers, or compute it into memory in a
// group of its readers, of a sibling, or of its own.
#include "codegen/schedule/schedule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/group_order.h"
#include "codegen/schedule/index_maps.h"
#include "codegen/schedule/materialise.h"
#include "graph_ir/ops.h"
#include "runtime/base/budget.h"
#include "runtime/base/error.h"

namespace fj {

using loop::Affine;
using loop::Index;
using loop::VarId;

namespace {

// Beyond these a value is better stored than computed again, or a kernel is better cut (measured on registers and
// compile time: kernels of a few hundred operations still compile in some 10 ms).
constexpr int kCheapCost = 4;
constexpr int kExpensive = 16;
// At most this: one simple operation on a value in memory.
constexpr int kConversion = 2;
constexpr int kMaximalRecomputation = 64;
constexpr int kMaximalInlined = 256;
// Times elements: so many choices of the part that an element is in cost less than copies do.
constexpr std::int64_t kFewChoices = 1024;
// More reductions or stores in one loop than there are registers and store streams gain nothing.
constexpr std::size_t kMaximalStages = 16;
constexpr std::size_t kMaximalStores = 16;
// Readers of one value that are looked at for a group to join.
constexpr std::size_t kMaximalSiblings = 64;
constexpr std::int64_t kRowsWorthCopying = 32;
// Elements of a library call's operand: fewer are copied in less time than the object of a view takes.
constexpr std::int64_t kViewWorthwhile = 2048;
// Rows of a fused multi-pass kernel should stay in the cache between passes, or be many.
constexpr std::int64_t kSmallSpace = 16384;
constexpr std::int64_t kFewRows = 4;

struct Use {
  int group;
  Index index;
  bool opaque;  // needs the value in memory: at an address that is data or no polynomial
  bool operator==(const Use&) const = default;
};

bool is_reduction(Op op) { return row(op).lowering == Lowering::Reduce; }

/// Whether a value can be computed where it is read; the others are in memory, or in a register once a row.
bool computed_in_place(Op op) {
  switch (row(op).lowering) {
    case Lowering::Pointwise:
    case Lowering::IndexMap:
    case Lowering::Gather:
    case Lowering::Constant:
    case Lowering::Index: return true;
    default: return false;
  }
}

class Scheduler {
 public:
  Scheduler(const Graph& graph, bool conditions, bool assembles)
      : graph_(graph), conditions_(conditions), assembles_(assembles) {}

  Schedule run() {
    const std::size_t count = graph_.value_count();
    uses_.resize(count);
    cost_.assign(count, 1);
    schedule_.producer.assign(count, -1);
    schedule_.in_memory.assign(count, false);
    schedule_.copied_input.assign(count, false);
    schedule_.contiguous.assign(count, false);
    schedule_.in_place.assign(count, false);
    schedule_.read_again.assign(count, false);
    schedule_.node_of.assign(count, -1);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      for (ValueId result : graph_.nodes[n].results) schedule_.node_of[result.index] = int(n);
    for (const Input& input : graph_.inputs) schedule_.in_memory[input.value.index] = true;
    estimate_costs();
    find_failing_scalars();
    readers_.assign(count, 0);
    for (const Node& n : graph_.nodes)
      for (ValueId operand : n.operands) ++readers_[operand.index];
    find_counts();

    schedule_.conditions = conditions_;
    demanded_ = demanded_values(graph_, conditions_);
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) visit(int(n));
    for (const Input& input : graph_.inputs) copy_input(input);
    order_groups(graph_, schedule_);
    return std::move(schedule_);
  }

 private:
  const Node& node(int n) const { return graph_.nodes[n]; }
  const Dims& shape(ValueId value) const { return graph_.type(value).shape; }
  bool is_input(ValueId value) const { return schedule_.node_of[value.index] < 0; }
  Group& group(int g) { return schedule_.groups[g]; }

  /// The value must be in memory. Inputs are.
  void demand(ValueId value) {
    if (!is_input(value)) demanded_[value.index] = true;
  }

  /// In memory and contiguous: operands of library calls, targets of data-dependent addresses.
  void demand_contiguous(ValueId value) {
    demand(value);
    schedule_.contiguous[value.index] = true;
    if (is_input(value))
      for (const Input& input : graph_.inputs)
        if (input.value == value && !(input_strides(graph_, input) == contiguous_strides(shape(value))))
          schedule_.copied_input[value.index] = true;
  }

  /// The cost of a value where it is inlined: with all that is inlined into it.
  void estimate_costs() {
    for (const Node& n : graph_.nodes) {
      int cost = operation_cost(n.op);
      if (computed_in_place(n.op))
        for (ValueId operand : n.operands) cost = std::min(cost + cost_[operand.index], 1 << 20);
      for (ValueId result : n.results) cost_[result.index] = cost;
    }
  }

  /// A program that writes inputs is to fail before it writes (in_place_writes.h): scalars that may fail are computed
  /// apart from the loops that read them.
  void find_failing_scalars() {
    failing_scalar_.assign(graph_.value_count(), false);
    origin_.assign(graph_.value_count(), UINT32_MAX);
    for (const Input& input : graph_.inputs) origin_[input.value.index] = input.value.index;
    for (const Node& n : graph_.nodes)
      for (ValueId result : n.results) {
        bool fails = row(n.op).effect == OpEffect::Fallible;
        for (ValueId operand : n.operands) {
          fails |= failing_scalar_[operand.index];
          origin_[result.index] = std::min(origin_[result.index], origin_[operand.index]);
        }
        failing_scalar_[result.index] = fails && shape(result).empty() && !graph_.writes.empty();
      }
  }

  void use(ValueId value, int g, Index index, bool opaque = false) {
    Use use{g, std::move(index), opaque};
    auto& list = uses_[value.index];
    Budget::spend(1 + list.size());
    if (std::find(list.begin(), list.end(), use) == list.end())
      list.push_back(std::move(use));
    else
      schedule_.read_again[value.index] = true;
  }

  // ---- groups

  int new_group(GroupKind kind, const Dims& extents, std::vector<bool> reduced, int n = -1) {
    Group created;
    created.kind = kind;
    created.extents = extents;
    created.reduced = std::move(reduced);
    created.node = n;
    for (std::uint32_t d = 0; d < extents.size(); ++d) created.order.push_back(d);
    schedule_.groups.push_back(std::move(created));
    height_.push_back(0);
    writers_.emplace_back();
    return int(schedule_.groups.size() - 1);
  }

  /// Only groups higher than `to` lead to it: of a long chain few are looked at.
  bool reaches(int from, int to) const {
    if (from == to) return true;
    std::set<int> seen;
    std::vector<int> stack{from};
    while (!stack.empty()) {
      const int g = stack.back();
      stack.pop_back();
      Budget::spend(1);
      if (height_[g] <= height_[to] || !seen.insert(g).second) continue;
      for (int reader : schedule_.groups[g].readers) {
        if (reader == to) return true;
        stack.push_back(reader);
      }
    }
    return false;
  }

  void add_edge(int from, int to) {
    if (from == to) return;
    auto& readers = group(from).readers;
    if (std::find(readers.begin(), readers.end(), to) != readers.end()) return;
    readers.push_back(to);
    writers_[to].push_back(from);
    std::vector<int> raised{from};
    while (!raised.empty()) {
      const int g = raised.back();
      raised.pop_back();
      Budget::spend(1);
      int least = 0;
      for (int reader : group(g).readers) least = std::max(least, height_[reader] + 1);
      if (least <= height_[g]) continue;
      height_[g] = least;
      raised.insert(raised.end(), writers_[g].begin(), writers_[g].end());
    }
  }

  /// `g` may compute `value`: none of the value's other readers has to run before g.
  bool may_compute(int g, ValueId value) const {
    for (const Use& use : uses_[value.index])
      if (use.group != g && reaches(use.group, g)) return false;
    return true;
  }

  void set_producer(ValueId value, int g) {
    schedule_.producer[value.index] = g;
    schedule_.in_memory[value.index] = true;
    if (group(g).stores.empty() && shape(value).empty()) scalars_of_[origin_[value.index]].push_back(g);
    group(g).stores.push_back(value);
    for (const Use& use : uses_[value.index]) add_edge(g, use.group);
  }

  // ---- matching indices

  Index identity(const std::vector<std::uint32_t>& variables) const {
    Index index;
    for (auto variable : variables) index.push_back(Affine(VarId{variable}));
    return index;
  }

  bool matches(const Index& index, const std::vector<std::uint32_t>& variables) const {
    if (index.size() != variables.size()) return false;
    for (std::size_t d = 0; d < index.size(); ++d)
      if (index[d].variable() != VarId{variables[d]}) return false;
    return true;
  }

  /// The distinct variables an index consists of; nullopt if it is anything else.
  std::optional<std::vector<std::uint32_t>> plain_variables(const Index& index) const {
    std::vector<std::uint32_t> variables;
    for (const Affine& affine : index) {
      const auto variable = affine.variable();
      if (!variable || std::find(variables.begin(), variables.end(), variable->index) != variables.end())
        return std::nullopt;
      variables.push_back(variable->index);
    }
    return variables;
  }

  std::int64_t hint(const SymDim& size) const { return fj::hint(size, graph_.symbols); }

  std::int64_t hint(const Dims& extents) const {
    std::int64_t total = 1;
    for (const SymDim& extent : extents) total *= std::max<std::int64_t>(hint(extent), 1);
    return total;
  }

  // ---- visiting

  void visit(int n) {
    const Node& current = node(n);
    place_node(n);
    if (current.results.empty()) return;  // a barrier
    if (const int g = schedule_.producer[current.results[0].index]; g >= 0) use_counts(current, g);
  }

  /// The nodes that count a size.
  void find_counts() {
    for (const Node& n : graph_.nodes)
      if (counts_size(n.op)) counts_.emplace(n.attrs.get<SymDim>("count").symbols()[0], n.results[0]);
  }

  /// A group that computes values of such sizes runs after the sizes are known: as if it read the result of the count.
  void use_counts(const Node& current, int g) {
    if (counts_.empty()) return;
    for (SymbolId symbol : symbols_used(graph_, current)) {
      const auto found = counts_.find(symbol);
      if (found == counts_.end() || found->second == current.results[0]) continue;
      demand(found->second);
      use(found->second, g, {Affine(loop::ExprId{})}, true);
    }
  }

  void place_node(int n) {
    const Node& current = node(n);
    if (current.op == Op::extern_call) return place_extern(n);
    if (!current.bodies.empty()) return place_control(n);
    const ValueId value = current.results[0];
    if (uses_[value.index].empty() && !demanded_[value.index]) return;  // dead
    if (const int scan = rounded_scan(current); scan >= 0) return place_scan(scan, value);
    switch (current.op) {
      case Op::nonzero: case Op::as_size: return place_count(n);
      case Op::matmul:
        return generated_product(graph_, schedule_.node_of, current) ? place_product(n) : place_matmul(n);
      case Op::cumsum: case Op::cumprod: return place_scan(n, value);
      case Op::scatter: case Op::scatter_add: return place_scatter(n);
      default: break;
    }
    if (is_reduction(current.op)) return place_reduction(n);
    if (assembles_ && place_assembly(n)) return;
    place(n);
  }

  /// False: the value is loops.
  bool place_assembly(int n) {
    const Op op = node(n).op;
    if (op != Op::concat && op != Op::slice_update) return false;
    const auto in_memory = [&](ValueId value) { return is_input(value) || demanded_[value.index]; };
    const ValueId value = node(n).results[0];
    std::vector<AssembledPart> parts =
        assembled_parts(graph_, schedule_.node_of, value,
                        [&](ValueId link) { return !in_memory(link) && readers_[link.index] == 1; });
    if (parts.empty() || std::int64_t(parts.size()) * hint(shape(value)) < kFewChoices) return false;
    const int g = new_group(GroupKind::Assembly, {}, {}, n);
    set_producer(value, g);
    for (AssembledPart& part : parts) {
      look_through_views(graph_, schedule_.node_of, part, in_memory);
      demand(part.value);
      use(part.value, g, {}, true);
    }
    group(g).parts = std::move(parts);
    return true;
  }

  void place_count(int n) {
    const int g = new_group(GroupKind::Count, {}, {}, n);
    set_producer(node(n).results[0], g);
    demand_contiguous(node(n).operands[0]);
    use(node(n).operands[0], g, {}, true);
  }

  void place_control(int n) {
    const int g = new_group(GroupKind::Control, {}, {}, n);
    for (ValueId result : node(n).results) {
      set_producer(result, g);
      demand_contiguous(result);
    }
    for (ValueId operand : node(n).operands) {
      demand_contiguous(operand);
      use(operand, g, {}, true);
    }
  }

  void place_extern(int n) {
    const int g = new_group(GroupKind::Extern, {}, {}, n);
    for (ValueId result : node(n).results) set_producer(result, g);
    if (last_extern_ >= 0) add_edge(g, last_extern_);
    last_extern_ = g;
    const auto& layouts = node(n).attrs.get<std::vector<std::optional<Dims>>>("operand_strides");
    for (std::size_t i = 0; i < node(n).operands.size(); ++i) {
      const ValueId operand = node(n).operands[i];
      const Strides layout =
          i < layouts.size() && layouts[i] ? *layouts[i] : contiguous_strides(shape(operand));
      AssembledPart shown = shown_by_view(operand, layout);
      demand(shown.value);
      // A view is of row-major memory, but for that of inputs and of what a library call returned.
      if (!(shown.value == operand) && !strides_given(shown.value)) demand_contiguous(shown.value);
      use(shown.value, g, {}, true);
      group(g).parts.push_back(std::move(shown));
    }
  }

  /// How an input lies, or what a library call returned; nullopt: a value of ours.
  std::optional<Strides> strides_given(ValueId value) const {
    if (is_input(value)) {
      for (const Input& input : graph_.inputs)
        if (input.value == value) return input_strides(graph_, input);
      return std::nullopt;
    }
    const Node& made = node(schedule_.node_of[value.index]);
    if (made.op != Op::extern_call) return std::nullopt;
    const auto& layouts = made.attrs.get<std::vector<std::optional<Dims>>>("result_strides");
    const auto i = std::size_t(std::find(made.results.begin(), made.results.end(), value) - made.results.begin());
    return i < layouts.size() && layouts[i] ? *layouts[i] : contiguous_strides(shape(value));
  }

  /// What a library call is to be given with this layout: a view of what is in memory anyway where that lies so (a
  /// weight that is given transposed, a part of what another call returned), else the operand, computed for the call.
  AssembledPart shown_by_view(ValueId operand, const Strides& layout) const {
    const Index all = identity_index(layout.size());
    const AssembledPart itself{operand, all, shape(operand), all};
    if (is_input(operand) || demanded_[operand.index] || hint(shape(operand)) < kViewWorthwhile) return itself;
    AssembledPart part = itself, found = itself;
    // Every element of it is shown: it is computed in the place of the operand, which would be copied into its layout.
    bool instead = !(layout == contiguous_strides(shape(operand)));
    while (!is_input(part.value) && !demanded_[part.value.index]) {
      const Node& view = node(schedule_.node_of[part.value.index]);
      if (view.op != Op::broadcast && view.op != Op::transpose && view.op != Op::slice && view.op != Op::reshape) break;
      const auto from = operand_index(graph_, view, part.from);
      if (!from) break;
      instead = instead && (view.op == Op::transpose || view.op == Op::reshape);
      part.from = *from;
      part.value = view.operands[0];
      const Dims& sizes = shape(part.value);
      if (std::any_of(sizes.begin(), sizes.end(), [&](const SymDim& size) { return graph_.is_late(size); })) break;
      const auto given = strides_given(part.value);
      if (!instead && !given && !demanded_[part.value.index]) continue;
      const Strides strides = given ? *given : contiguous_strides(sizes);
      Affine place;
      for (std::size_t d = 0; d < part.from.size(); ++d) place = place + part.from[d] * strides[d];
      bool lies_so = place.dynamic.empty();
      for (std::uint32_t d = 0; lies_so && d < layout.size(); ++d)
        lies_so = place.coefficient(VarId{d}).value_or(SymDim(0)) == layout[d] || part.sizes[d] == SymDim(1);
      if (lies_so) found = part;
    }
    return found;
  }

  bool node_is(ValueId value, Op op) const { return !is_input(value) && node(schedule_.node_of[value.index]).op == op; }

  /// How many rows of the left matrix meet one right matrix; of each batch, unless the right one is the same for all.
  std::int64_t rows_of(const Node& product) const {
    const Dims& result = shape(product.results[0]);
    return hint(result[result.size() - 2]);
  }

  void place_product(int n) {
    const Node& product = node(n);
    const ValueId value = product.results[0];
    Dims space = shape(value);
    space.push_back(shape(product.operands[0]).back());
    std::vector<bool> reduced(space.size());
    reduced.back() = true;
    int chosen = -1;
    std::vector<std::uint32_t> variables;
    // A weight that is given transposed is copied by rows once it serves enough rows of the left matrix: lanes run over
    // the columns then.
    const bool by_columns = lies_by_columns(graph_, schedule_.node_of, product);
    const bool copied =
        by_columns && node_is(product.operands[1], Op::transpose) && rows_of(product) >= kRowsWorthCopying;
    if (copied) demand(product.operands[1]);
    const bool scalar_rows = by_columns && !copied;
    for (std::size_t u = 0; u < uses_[value.index].size() && chosen < 0; ++u) {
      const int g = uses_[value.index][u].group;
      if (scalar_rows && group(g).expensive > 0) continue;
      if (auto found = join_rows(g, value, space, reduced)) {
        chosen = g;
        variables = *found;
      }
    }
    if (chosen < 0) {
      chosen = new_group(GroupKind::Loops, space, reduced);
      variables = group(chosen).order;
    }
    add_stage(chosen, value);
    const std::size_t batch = space.size() - 3;
    const Index all = identity(variables);
    Index left(all.begin(), all.begin() + std::ptrdiff_t(batch)), right = left;
    left.push_back(all[batch]), left.push_back(all[batch + 2]);
    right.push_back(all[batch + 2]), right.push_back(all[batch + 1]);
    use(product.operands[0], chosen, left);
    use(product.operands[1], chosen, right);
  }

  void place_matmul(int n) {
    const int g = new_group(GroupKind::Matmul, {}, {}, n);
    set_producer(node(n).results[0], g);
    for (ValueId operand : node(n).operands) {
      ValueId source = matmul_operand(graph_, schedule_.node_of, operand).source;
      // Row-major memory is the same for every shape; a value that is returned has memory of its own anyway.
      const ValueId given = source;
      while (node_is(source, Op::reshape) && !demanded_[source.index]) {
        schedule_.in_place[source.index] = true;
        source = node(schedule_.node_of[source.index]).operands[0];
      }
      // An input whose rows or columns lie side by side is read as it lies.
      if (source == given && is_input(source) && has_rows_or_columns(source)) demand(source);
      else demand_contiguous(source);
      use(source, g, {}, true);
    }
  }

  bool has_rows_or_columns(ValueId value) const {
    const auto input = std::find_if(graph_.inputs.begin(), graph_.inputs.end(),
                                    [&](const Input& other) { return other.value == value; });
    const Strides strides = input_strides(graph_, *input);
    return strides.size() >= 2 && (strides.back() == SymDim(1) || strides[strides.size() - 2] == SymDim(1));
  }

  /// The scan that nothing reads but this cast to a narrower float: the scan stores it as it goes. -1: there is none.
  int rounded_scan(const Node& cast) const {
    if (cast.op != Op::cast) return -1;
    const ValueId wide = cast.operands[0];
    const DType from = graph_.type(wide).dtype, to = graph_.type(cast.results[0]).dtype;
    if (!(node_is(wide, Op::cumsum) || node_is(wide, Op::cumprod)) || !is_float(from) || !is_float(to)) return -1;
    return size_in_bytes(to) < size_in_bytes(from) && !demanded_[wide.index] && readers_[wide.index] == 1
               ? schedule_.node_of[wide.index]
               : -1;
  }

  /// `value`: the result of the scan, or the narrower float it is rounded to.
  void place_scan(int n, ValueId value) {
    const auto axis = node(n).attrs.get<std::int64_t>("axis");
    std::vector<bool> reduced(shape(value).size());
    reduced[axis] = true;
    const int g = new_group(GroupKind::Scan, shape(value), reduced, n);
    set_producer(value, g);
    use(node(n).operands[0], g, identity(group(g).order));
  }

  // Space: the dimensions of `updates`; those of the indices are serial, so that repeated indices are met in order.
  void place_scatter(int n) {
    const Node& scatter = node(n);
    const Dims& updates = shape(scatter.operands[1]);
    const auto axis = std::size_t(scatter.attrs.get<std::int64_t>("axis"));
    const std::size_t index_rank = shape(scatter.operands[2]).size();
    std::vector<bool> reduced(updates.size());
    for (std::size_t d = 0; d < index_rank; ++d) reduced[axis + d] = true;
    const int g = new_group(GroupKind::Scatter, updates, reduced, n);
    set_producer(scatter.results[0], g);
    demand(scatter.operands[0]);
    use(scatter.operands[0], g, {}, true);
    const Index all = identity(group(g).order);
    for (std::size_t i = 2; i < scatter.operands.size(); ++i)
      use(scatter.operands[i], g, Index(all.begin() + axis, all.begin() + axis + index_rank));
    use(scatter.operands[1], g, all);
  }

  std::vector<std::int64_t> reduced_axes(const Node& reduction) const {
    if (reduction.op == Op::argmax || reduction.op == Op::argmin) return {reduction.attrs.get<std::int64_t>("axis")};
    return reduction.attrs.get<std::vector<std::int64_t>>("axes");
  }

  void place_reduction(int n) {
    const Node& reduction = node(n);
    const ValueId value = reduction.results[0];
    const ValueId operand = reduction.operands[0];
    const Dims& space = shape(operand);
    std::vector<bool> reduced(space.size());
    for (auto axis : reduced_axes(reduction)) reduced[axis] = true;

    int chosen = -1;
    std::vector<std::uint32_t> variables;  // of the chosen group, by dimension of the operand
    for (std::size_t u = 0; u < uses_[value.index].size() && chosen < 0; ++u) {
      const int g = uses_[value.index][u].group;
      if (auto found = join_rows(g, value, space, reduced)) {
        chosen = g;
        variables = *found;
      }
    }
    if (chosen < 0) {
      // A sibling: the same space, split the same way, reading something we read.
      for (int g : readers_of({operand})) {
        if (chosen >= 0) break;
        const Group& candidate = group(g);
        if (candidate.kind != GroupKind::Loops || candidate.order.size() != space.size() || used_in(g, value)) continue;
        if (candidate.stages.size() >= kMaximalStages) continue;
        const bool unsplit = candidate.stages.empty() && candidate.reductions().empty();
        if (!same_space(candidate, space, unsplit ? nullptr : &reduced)) continue;
        if (!reads_at_identity(g, operand) || !may_compute(g, value)) continue;
        if (unsplit)
          for (std::size_t d = 0; d < space.size(); ++d) group(g).reduced[candidate.order[d]] = reduced[d];
        chosen = g;
        variables = candidate.order;
      }
    }
    if (chosen < 0) {
      chosen = new_group(GroupKind::Loops, space, reduced);
      variables = group(chosen).order;
    }
    add_stage(chosen, value);
    use(operand, chosen, identity(variables));
  }

  void add_stage(int g, ValueId value) {
    group(g).stages.push_back(value);
    bool elsewhere = demanded_[value.index];
    for (const Use& use : uses_[value.index]) elsewhere |= use.group != g;
    schedule_.producer[value.index] = g;
    if (elsewhere) set_producer(value, g);
  }

  bool used_in(int g, ValueId value) const {
    for (const Use& use : uses_[value.index])
      if (use.group == g) return true;
    return false;
  }

  bool reads_at_identity(int g, ValueId value) const {
    for (const Use& use : uses_[value.index])
      if (use.group == g && !use.opaque && matches(use.index, schedule_.groups[g].order)) return true;
    return false;
  }

  /// Whether the group reads one of these, which is a reduction, once a row.
  bool reads_at_row(int g, const std::vector<ValueId>& operands) const {
    const std::vector<std::uint32_t> rows = schedule_.groups[std::size_t(g)].rows();
    return std::any_of(operands.begin(), operands.end(), [&](ValueId operand) {
      if (is_input(operand) || !is_reduction(node(schedule_.node_of[operand.index]).op)) return false;
      const auto& uses = uses_[operand.index];
      return std::any_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return use.group == g && !use.opaque && matches(use.index, rows); });
    });
  }

  bool covers(const Group& candidate, const std::vector<std::uint32_t>& variables, const Dims& space) const {
    if (variables.size() != space.size()) return false;
    for (std::size_t d = 0; d < space.size(); ++d)
      if (!(candidate.extents[variables[d]] == space[d])) return false;
    return true;
  }

  bool same_space(const Group& candidate, const Dims& space, const std::vector<bool>* reduced) const {
    for (std::size_t d = 0; d < space.size(); ++d) {
      if (!(candidate.extents[candidate.order[d]] == space[d])) return false;
      if (reduced && candidate.reduced[candidate.order[d]] != (*reduced)[d]) return false;
    }
    return true;
  }

  /// Whether a reduction of `space` over `reduced` can be a stage of group g, which uses it; makes g a group of rows
  /// if it was none. Returns g's variables by dimension of the space.
  std::optional<std::vector<std::uint32_t>> join_rows(int g, ValueId value, const Dims& space,
                                                      const std::vector<bool>& reduced) {
    Group& target = group(g);
    if (target.kind != GroupKind::Loops || target.stages.size() >= kMaximalStages || !may_compute(g, value))
      return std::nullopt;
    // Every use inside the group must be at the same row.
    std::optional<std::vector<std::uint32_t>> kept;
    for (const Use& use : uses_[value.index]) {
      if (use.group != g) continue;
      if (use.opaque) return std::nullopt;
      const auto variables = plain_variables(use.index);
      if (!variables || (kept && *kept != *variables)) return std::nullopt;
      kept = variables;
    }
    // Into rows and what is reduced: by its first stage, or by split_at_rows() before there is one.
    const bool is_split = !target.stages.empty() || !target.reductions().empty();
    if (!is_split && kept->size() == target.order.size()) {
      // The group is over our rows: it becomes the epilogue of each row.
      if (*kept != target.order || !covers(target, target.order, shape(value))) return std::nullopt;
      std::vector<std::uint32_t> variables;
      std::size_t row = 0;
      for (std::size_t d = 0; d < space.size(); ++d) {
        if (!reduced[d]) {
          variables.push_back((*kept)[row++]);
          continue;
        }
        variables.push_back(std::uint32_t(target.extents.size()));
        target.extents.push_back(space[d]);
        target.reduced.push_back(true);
      }
      target.order = variables;
      return variables;
    }
    // The group is over the whole space (or already one of rows): the split must agree.
    if (target.order.size() != space.size() || !same_space(target, space, nullptr)) return std::nullopt;
    std::size_t row = 0;
    for (std::size_t d = 0; d < space.size(); ++d)
      if (!reduced[d] && (row >= kept->size() || (*kept)[row++] != target.order[d])) return std::nullopt;
    if (row != kept->size()) return std::nullopt;
    if (is_split) {
      if (!same_space(target, space, &reduced)) return std::nullopt;
      if (!worth_rows(space, reduced) && feeds_whole_space(target, value)) return std::nullopt;
      return target.order;
    }
    if (!worth_rows(space, reduced)) return std::nullopt;
    for (std::size_t d = 0; d < space.size(); ++d) target.reduced[target.order[d]] = reduced[d];
    return target.order;
  }

  /// Whether another stage or a store over the whole space needs the value, a stage's result: that takes a second pass.
  bool feeds_whole_space(const Group&, ValueId value) const {
    // The result is used at row level only if nothing broadcasts it back, which no use tells once indices are
    // mapped; a broadcast among its direct or indirect readers does.
    std::vector<bool> seen(graph_.value_count());
    seen[value.index] = true;
    for (int n = schedule_.node_of[value.index] + 1; n < int(graph_.nodes.size()); ++n) {
      const Node& reader = node(n);
      bool reads = false;
      for (ValueId operand : reader.operands) reads |= seen[operand.index];
      if (!reads) continue;
      if (reader.op == Op::broadcast) return true;
      for (ValueId result : reader.results) seen[result.index] = true;
    }
    return false;
  }

  bool worth_rows(const Dims& space, const std::vector<bool>& reduced) const {
    Dims rows;
    for (std::size_t d = 0; d < space.size(); ++d)
      if (!reduced[d]) rows.push_back(space[d]);
    return hint(space) <= kSmallSpace || (!rows.empty() && hint(rows) >= kFewRows);
  }

  // ---- values computed pointwise or by index maps

  void place(int n) {
    const Node& current = node(n);
    const ValueId value = current.results[0];
    if (!demanded_[value.index] && !worth_storing(current.op, value)) {
      for (const Use& use : std::vector<Use>(uses_[value.index])) {
        group(use.group).inlined += operation_cost(current.op) > 0;
        group(use.group).expensive += operation_cost(current.op) >= kExpensive;
        use_operands(current, use.group, use.index);
      }
      return;
    }
    const int g = choose_group(value, current.operands);
    const bool over_rows = group(g).order.size() != shape(value).size();
    const Index index = identity(over_rows ? group(g).rows() : group(g).order);
    set_producer(value, g);
    group(g).inlined += 1;
    group(g).expensive += operation_cost(current.op) >= kExpensive;
    // Other uses inside g are recomputed at their index.
    std::vector<Index> indices{index};
    for (const Use& use : uses_[value.index])
      if (use.group == g && !(use.index == index)) indices.push_back(use.index);
    group(g).inlined += int(indices.size()) - 1;
    for (const Index& at : indices) use_operands(current, g, at);
  }

  bool worth_storing(Op op, ValueId value) const {
    const auto& uses = uses_[value.index];
    const int cost = cost_[value.index];
    if (operation_cost(op) == 0) return false;
    bool several = false, crowded = false;
    for (const Use& use : uses) {
      if (use.opaque) return true;
      several |= use.group != uses[0].group;
      crowded |= schedule_.groups[use.group].inlined > kMaximalInlined;
    }
    if (crowded) return true;
    if (failing_scalar_[value.index])
      for (const Use& use : uses)
        if (!schedule_.groups[use.group].order.empty()) return true;
    // An element of a product's operand is used in as many steps as the other operand has rows.
    if (cost > kConversion &&
        std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return has_product(use.group); }))
      return true;
    for (const Use& use : uses)
      if (const std::int64_t times = readings(use, value);
          times > 1 && (cost > kConversion || cost * times > kMaximalRecomputation))
        return true;
    if (cost <= kCheapCost) return false;
    if (several || cost * int(uses.size() - 1) > kMaximalRecomputation) return true;
    return repeated(uses[0]);
  }

  /// How often a group reads an element at the index, about: windows that overlap show it several times.
  std::int64_t readings(const Use& use, ValueId value) const {
    std::set<std::uint32_t> variables;
    bool several = false;
    for (const Affine& affine : use.index) {
      several |= affine.terms.size() > 1;
      for (const auto& [variable, coefficient] : affine.terms) variables.insert(variable.index);
    }
    if (!several) return 1;
    Dims extents;
    for (std::uint32_t variable : variables) extents.push_back(schedule_.groups[use.group].extents[variable]);
    return hint(extents) / hint(shape(value));
  }

  bool has_product(int g) const {
    const auto& stages = schedule_.groups[g].stages;
    return std::any_of(stages.begin(), stages.end(),
                       [&](ValueId stage) { return node(schedule_.node_of[stage.index]).op == Op::matmul; });
  }

  /// Inlined at this index the value would be computed again for each step of an outer loop it doesn't depend on.
  bool repeated(const Use& use) const {
    const Group& g = schedule_.groups[use.group];
    if (g.kind != GroupKind::Loops) return true;
    bool missing = false;
    for (auto variable : g.order) {
      bool present = false;
      for (const Affine& affine : use.index)
        present |= affine.coefficient(VarId{variable}).has_value() || !affine.dynamic.empty();
      if (!present && !(g.extents[variable] == SymDim(1))) missing = true;
      if (present && missing) return true;
    }
    return false;
  }

  /// Stored by the group of `use`, the value would be computed again at each other index at which the group reads it,
  /// with all that is inlined into it: the steps of a stencil would multiply.
  bool computed_again(const Use& use, ValueId value) const {
    const auto others = std::count_if(uses_[value.index].begin(), uses_[value.index].end(), [&](const Use& other) {
      return other.group == use.group && !(other.index == use.index);
    });
    return std::int64_t(cost_[value.index]) * others > kMaximalRecomputation;
  }

  /// The reduction of a whole space that the value, one of each row, is computed from at the row itself; null if there
  /// is none.
  const Node* reduced_at_row(ValueId value, const Dims& space) const {
    const Dims& rows = shape(value);
    for (int depth = 0; depth < 8 && !is_input(value); ++depth) {
      const Node& current = node(schedule_.node_of[value.index]);
      if (is_reduction(current.op)) return shape(current.operands[0]) == space ? &current : nullptr;
      if (!is_pointwise(current.op)) return nullptr;
      const auto varying = std::find_if(current.operands.begin(), current.operands.end(), [&](ValueId operand) {
        if (is_input(operand) || !(shape(operand) == rows)) return false;
        const Op op = node(schedule_.node_of[operand.index]).op;
        return is_pointwise(op) || is_reduction(op);
      });
      if (varying == current.operands.end()) return nullptr;
      value = *varying;
    }
    return nullptr;
  }

  /// Makes a group over a whole space one of rows, for a value of each row that is used there and elsewhere: it is
  /// computed between the passes over the row and stored once.
  bool split_at_rows(const Use& use, ValueId value) {
    Group& candidate = group(use.group);
    if (candidate.kind != GroupKind::Loops || !candidate.stages.empty() || !candidate.reductions().empty())
      return false;
    const auto variables = plain_variables(use.index);
    if (!variables || variables->empty() || variables->size() >= candidate.order.size() ||
        candidate.inlined > kMaximalInlined)
      return false;
    for (const Use& other : uses_[value.index])
      if (other.group == use.group && !(other.index == use.index)) return false;
    Dims space;
    std::vector<bool> reduced;
    std::size_t row = 0;
    for (std::uint32_t variable : candidate.order) {
      space.push_back(candidate.extents[variable]);
      reduced.push_back(row >= variables->size() || (*variables)[row] != variable);
      row += !reduced.back();
    }
    if (row != variables->size() || !worth_rows(space, reduced)) return false;
    const Node* reduction = reduced_at_row(value, space);
    if (!reduction) return false;
    for (std::size_t d = 0; d < space.size(); ++d) {
      const auto axes = reduced_axes(*reduction);
      if (reduced[d] != (std::find(axes.begin(), axes.end(), std::int64_t(d)) != axes.end())) return false;
    }
    for (std::size_t d = 0; d < space.size(); ++d) candidate.reduced[candidate.order[d]] = reduced[d];
    return true;
  }

  /// The groups that read one of the values, in order; of one that is read everywhere (a number that each step takes)
  /// the latest.
  std::set<int> readers_of(const std::vector<ValueId>& values) const {
    std::set<int> found;
    for (ValueId value : values) {
      const auto& uses = uses_[value.index];
      const std::size_t first = uses.size() > kMaximalSiblings ? uses.size() - kMaximalSiblings : 0;
      for (std::size_t u = first; u < uses.size(); ++u) found.insert(uses[u].group);
    }
    return found;
  }

  /// Groups that may have something in common with a value of these operands: they read one of them, or, for scalars,
  /// they compute scalars of the same first input.
  std::set<int> siblings_of(ValueId value, const std::vector<ValueId>& operands) const {
    std::set<int> found = readers_of(operands);
    if (!shape(value).empty() || origin_[value.index] == UINT32_MAX) return found;
    if (const auto scalars = scalars_of_.find(origin_[value.index]); scalars != scalars_of_.end())
      found.insert(scalars->second.begin(), scalars->second.end());
    return found;
  }

  int choose_group(ValueId value, const std::vector<ValueId>& operands) {
    const auto& uses = uses_[value.index];
    auto opaque_in = [&](int g) {
      for (const Use& use : uses)
        if (use.group == g && use.opaque) return true;
      return false;
    };
    for (const Use& use : uses)
      if (!opaque_in(use.group) && may_compute(use.group, value) && split_at_rows(use, value)) return use.group;
    for (const Use& use : uses) {
      const Group& candidate = group(use.group);
      if (candidate.kind != GroupKind::Loops || opaque_in(use.group) || candidate.inlined > kMaximalInlined) continue;
      const bool over_space = matches(use.index, candidate.order);
      if (!over_space && !matches(use.index, candidate.rows())) continue;
      if (computed_again(use, value)) continue;
      // A use of a part that starts at 0 has the identity's index too; the whole must be stored.
      if (!covers(candidate, over_space ? candidate.order : candidate.rows(), shape(value))) continue;
      if (may_compute(use.group, value)) return use.group;
    }
    for (int g : siblings_of(value, operands)) {
      const Group& candidate = group(g);
      if (candidate.kind != GroupKind::Loops || used_in(g, value)) continue;
      if (candidate.inlined > kMaximalInlined || candidate.stores.size() >= kMaximalStores) continue;
      if (candidate.order.size() != shape(value).size()) {
        // Of each row of a reduction: the mean that a variance is computed with.
        if (!candidate.stages.empty() && !shape(value).empty() && covers(candidate, candidate.rows(), shape(value)) &&
            reads_at_row(g, operands) && may_compute(g, value))
          return g;
        continue;
      }
      if (!same_space(candidate, shape(value), nullptr)) continue;
      // Scalars of one input belong together: all those computed from a step count.
      bool shares = shape(value).empty() && origin_[value.index] != UINT32_MAX && !candidate.stores.empty() &&
                    origin_[candidate.stores[0].index] == origin_[value.index];
      // Numbers that are repeated everywhere are nothing to share.
      for (ValueId operand : operands) shares |= origin_[operand.index] != UINT32_MAX && reads_at_identity(g, operand);
      if (shares && may_compute(g, value)) return g;
    }
    return new_group(GroupKind::Loops, shape(value), std::vector<bool>(shape(value).size()));
  }

  void use_operands(const Node& current, int g, const Index& index) {
    use_counts(current, g);
    const Affine unknown(loop::ExprId{});  // an address that is data
    switch (current.op) {
      case Op::constant: case Op::dim: case Op::iota:
        return;
      case Op::broadcast: case Op::transpose: case Op::slice: case Op::windows: case Op::reshape: {
        if (const auto mapped = operand_index(graph_, current, index)) return use(current.operands[0], g, *mapped);
        demand_contiguous(current.operands[0]);
        return use(current.operands[0], g, {unknown}, true);
      }
      case Op::pad: {
        Index mapped = index;
        const auto& low = current.attrs.get<Dims>("low");
        for (std::size_t d = 0; d < mapped.size(); ++d) mapped[d] = mapped[d] + Affine(SymDim(0) - low[d]);
        use(current.operands[0], g, mapped);
        return use(current.operands[1], g, {});
      }
      case Op::concat: {
        const auto axis = current.attrs.get<std::int64_t>("axis");
        Index mapped = index;
        for (ValueId operand : current.operands) {
          use(operand, g, mapped);
          mapped[axis] = mapped[axis] + Affine(SymDim(0) - shape(operand)[axis]);
        }
        return;
      }
      case Op::slice_update: {
        use(current.operands[0], g, index);
        const auto& starts = current.attrs.get<Dims>("starts");
        const auto& steps = current.attrs.get<std::vector<std::int64_t>>("steps");
        Index mapped = index;
        for (std::size_t d = 0; d < mapped.size(); ++d) {
          const bool whole = starts[d] == SymDim(0) && steps[d] == 1 &&
                             shape(current.operands[1])[d] == shape(current.operands[0])[d];
          if (!whole) mapped[d] = steps[d] == 1 ? mapped[d] + Affine(SymDim(0) - starts[d]) : unknown;
        }
        return use(current.operands[1], g, mapped);
      }
      case Op::gather: {
        demand(current.operands[0]);
        use(current.operands[0], g, {unknown}, true);
        const auto axis = std::size_t(current.attrs.get<std::int64_t>("axis"));
        const std::size_t rank = shape(current.operands[1]).size();
        for (std::size_t i = 1; i < current.operands.size(); ++i)
          use(current.operands[i], g, Index(index.begin() + axis, index.begin() + axis + rank));
        return;
      }
      case Op::take_along:
        demand(current.operands[0]);
        use(current.operands[0], g, {unknown}, true);
        return use(current.operands[1], g, index);
      default:
        for (ValueId operand : current.operands) use(operand, g, index);
    }
  }

  // ---- the end

  /// Inputs that must be contiguous get a group that copies them.
  void copy_input(const Input& input) {
    const ValueId value = input.value;
    if (!schedule_.copied_input[value.index] || schedule_.producer[value.index] >= 0) return;
    const int g = new_group(GroupKind::Loops, shape(value), std::vector<bool>(shape(value).size()));
    schedule_.producer[value.index] = g;
    group(g).stores.push_back(value);
    for (const Use& use : uses_[value.index])
      if (use.opaque) add_edge(g, use.group);
  }

  const Graph& graph_;
  const bool conditions_, assembles_;
  Schedule schedule_;
  std::vector<std::vector<Use>> uses_;
  std::vector<bool> demanded_;
  std::vector<int> cost_;
  std::vector<int> readers_;  // by ValueId: how many operands of nodes it is
  std::map<SymbolId, ValueId> counts_;  // by symbol: the result of the node that counts it
  std::vector<bool> failing_scalar_;    // by ValueId
  std::vector<std::uint32_t> origin_;   // by ValueId: the first input it is computed from
  std::vector<int> height_;                // by group: the longest way to one that nothing reads
  std::vector<std::vector<int>> writers_;  // by group: those that have it among their readers
  std::map<std::uint32_t, std::vector<int>> scalars_of_;  // by origin: groups whose first store is a scalar of it
  int last_extern_ = -1;
};

}  // namespace

Schedule schedule(const Graph& graph, bool conditions, bool assembles) {
  return Scheduler(graph, conditions, assembles).run();
}

}  // namespace fj
