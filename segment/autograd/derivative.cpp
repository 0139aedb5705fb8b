// Splitting, linking, and running backward. `of` and `compiled` are the graph half, `link` and `backward` the Python
// half.
#include "segment/autograd/derivative.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "arrays/arrays.h"
#include "cpython/signals.h"
#include "cpython/tuples.h"
#include "graph_ir/autodiff/autodiff_collected.h"
#include "graph_ir/autodiff/autodiff_parts.h"
#include "graph_ir/pipeline.h"
#include "guards/check_program.h"
#include "runtime/base/error.h"
#include "segment/autograd/autograd_node.h"
#include "segment/autograd/extern_derivative.h"
#include "segment/library_host.h"

namespace fj {
namespace {

/// The layout of an input for its gradient, so that `.grad` takes it as it is; nullopt where it has gaps or
/// repetitions.
std::optional<Strides> dense_layout(const Dims& shape, const std::optional<Strides>& strides) {
  if (!strides) return std::nullopt;
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].is_constant() || !(*strides)[i].is_constant()) return std::nullopt;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return (*strides)[a].value() < (*strides)[b].value(); });
  std::int64_t expected = 1;
  for (std::size_t axis : order) {
    if (shape[axis].value() == 1) continue;
    if ((*strides)[axis].value() != expected) return std::nullopt;
    expected *= shape[axis].value();
  }
  return strides;
}

enum class Layout : char { Absent = 'n', Contiguous = 'c', Repeated = 's', Other = 'o' };

/// How a cotangent lies in memory. `Repeated`: one element, expanded, as the derivative of sum() gives.
Layout layout_of(PyObject* tensor) {
  ArrayView view;
  if (!guard_program::read_any_array(tensor, view)) return Layout::Other;
  bool contiguous = true, repeated = view.rank > 0;
  std::int64_t expected = 1;
  for (int i = view.rank; i-- > 0;) {
    contiguous = contiguous && (view.shape[i] == 1 || view.strides[i] == expected);
    repeated = repeated && view.strides[i] == 0;
    expected *= view.shape[i];
  }
  return contiguous || expected == 0 ? Layout::Contiguous : repeated ? Layout::Repeated : Layout::Other;
}

bool has_layout(PyObject* tensor, const Type& type, const std::optional<Strides>& strides,
                std::span<const std::int64_t> symbols, int device) {
  ArrayView view;
  if (!guard_program::read_any_array(tensor, view) || view.device != device || view.dtype != type.dtype ||
      view.rank != type.rank())
    return false;
  const Dims expected = strides ? *strides : contiguous_strides(type.shape);
  for (int i = 0; i < view.rank; ++i) {
    const std::int64_t size = type.shape[std::size_t(i)].evaluate(symbols);
    if (view.shape[i] != size || (size > 1 && view.strides[i] != expected[std::size_t(i)].evaluate(symbols)))
      return false;
  }
  return true;
}

Ref<> copy_with_layout(PyObject* tensor, const Type& type, const std::optional<Strides>& strides,
                       std::span<const std::int64_t> symbols, int device) {
  std::vector<std::int64_t> shape, layout;
  for (const SymDim& size : type.shape) shape.push_back(size.evaluate(symbols));
  for (const SymDim& stride : strides ? *strides : contiguous_strides(type.shape))
    layout.push_back(stride.evaluate(symbols));
  Ref<> copy = allocate(Library::Torch, type.dtype, shape, layout, device);
  Ref<> data = copy ? Ref<>::steal(PyObject_CallMethod(tensor, "detach", nullptr)) : Ref<>();
  return data && Ref<>::steal(PyObject_CallMethod(copy.get(), "copy_", "O", data.get())) ? copy : Ref<>();
}

/// As views of torch: what a broadcast does.
std::vector<ViewStep> steps_of(const Graph& graph, const Repeat& repeat, const Dims& result) {
  const Dims& shape = graph.type(repeat.source).shape;
  Dims between(result.size(), SymDim(1));
  for (std::size_t i = 0; i < repeat.dims.size(); ++i) between[std::size_t(repeat.dims[i])] = shape[i];
  std::vector<ViewStep> steps;
  if (between != shape) steps.push_back({Op::reshape, {}, shape, between});
  steps.push_back({Op::broadcast, {}, between, result});
  return steps;
}

/// The first in-place operation, by the nodes before it, that replaced what the derivative of an operation before it
/// reads, or what eager saves of that one. -1: none.
int earliest_overwrite(const Joint& joint, const Derivative::Overwritten& overwritten, const AlsoSaved& also_saved) {
  if (overwritten.empty()) return -1;
  int first = -1;
  std::map<ValueId, std::size_t> node_of;
  for (std::size_t n = 0; n < joint.forward_nodes; ++n)
    for (ValueId result : joint.graph.nodes[n].results) node_of[result] = n;
  for (const BackwardStep& step : joint.steps) {
    const auto look = [&](ValueId read) {
      const auto known = overwritten.find(read);
      if (known != overwritten.end() && node_of.at(step.result) < known->second &&
          (first < 0 || int(known->second) < first))
        first = int(known->second);
    };
    std::for_each(step.read.begin(), step.read.end(), look);
    if (const auto also = also_saved.find(step.result); also != also_saved.end())
      std::for_each(also->second.begin(), also->second.end(), look);
  }
  return first;
}

}  // namespace

std::vector<ValueId> Derivative::variables() const {
  std::vector<ValueId> values;
  for (int input : wanted_) values.push_back(graph_.inputs[std::size_t(input)].value);
  for (const GradientView& view : views_)
    if (view.value.valid()) values.push_back(view.value);
  return values;
}

std::optional<Strides> Derivative::strides_of(End::Kind kind, int index) const {
  switch (kind) {
    case End::Input: return forward_.inputs[std::size_t(index)].strides;
    case End::Output: return forward_.outputs[std::size_t(index)].strides;
    case End::View: return views_[std::size_t(index)].made.strides;
    default: return std::nullopt;
  }
}

std::shared_ptr<Derivative> Derivative::of(const Graph& graph, const std::vector<int>& wanted, const Copies& copies,
                                           const AlsoSaved& also_saved, std::vector<GradientView> views,
                                           const Overwritten& overwritten) {
  auto result = std::make_shared<Derivative>();
  result->graph_ = graph;
  result->wanted_ = wanted;
  result->views_ = std::move(views);
  result->copies_ = copies;
  const std::vector<ValueId> wanted_values = result->variables();
  std::vector<ValueId> of;
  const std::vector<bool> needs = gradient_flow(graph, wanted_values);
  for (const Output& output : graph.outputs)
    if (needs[output.value.index] && std::find(of.begin(), of.end(), output.value) == of.end())
      of.push_back(output.value);
  if (of.empty()) return nullptr;
  Joint joint = differentiate(graph, wanted_values, of, true);
  for (BackwardStep& step : joint.steps) step.reads = step.reads || also_saved.count(step.result);
  std::vector<ValueId> visible;
  std::map<std::uint32_t, Saved> place;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) place[graph.outputs[i].value.index] = {End::Output, int(i)};
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) place[graph.inputs[i].value.index] = {End::Input, int(i)};
  for (std::size_t i = 0; i < result->views_.size(); ++i)
    if (ValueId value = result->views_[i].value; value.valid()) place[value.index] = {End::View, int(i)};
  // A tensor that was given has what was written last: a later piece may write it again, which is an error of backward.
  for (const Write& write : graph.writes)
    if (!needs[write.value.index]) place[write.value.index] = {End::Input, write.input};
  // Which of several arrays is read does not show: what is saved is in memory that nobody else sees.
  for (ValueId value : copies.twice) place.erase(value.index);
  for (auto& [value, where] : place) visible.push_back({value});
  result->first_overwrite_ = earliest_overwrite(joint, overwritten, also_saved);
  if (!result->split(parts_of(joint, wanted_values, of), joint, visible, place, copies, also_saved, needs)) {
    // One node for all: a view of its results can't lie before it.
    for (std::size_t i = wanted.size(); i < wanted_values.size(); ++i)
      result->exact_ = result->exact_ && !joint.gradients[i].valid();
    if (!result->exact_) return result;
    DerivativeParts whole;
    whole.all.push_back({of, {}});
    for (std::size_t i = 0; i < wanted_values.size(); ++i)
      if (joint.gradients[i].valid()) whole.all[0].sources.push_back(wanted_values[i]);
    FJ_CHECK(result->split(whole, joint, visible, place, copies, also_saved, needs), "one node needs no other");
  }
  return result;
}

bool Derivative::split(const DerivativeParts& parts, const Joint& joint, const std::vector<ValueId>& visible,
                       const std::map<std::uint32_t, Saved>& place, const Copies& copies, const AlsoSaved& also_saved,
                       const std::vector<bool>& needs) {
  forward_ = graph_;
  saved_.clear();
  nodes_.clear();
  empties_ = 0;
  reads_written_ = false;
  // Each part saves for itself: an array the user can see that another one reads is not a source for what this one
  // reads.
  std::vector<std::vector<ValueId>> saved;
  std::set<ValueId> together;
  for (const DerivativePart& part : parts.all) {
    const bool whole = parts.all.size() == 1;
    const Joint own = whole ? Joint{} : differentiate(graph_, part.sources, part.results, true);
    // It begins with its sources: what they are computed from would lead a second derivative past them.
    Graph after = graph_;
    std::erase_if(after.nodes, [&](const fj::Node& node) {
      return std::any_of(node.results.begin(), node.results.end(), [&](ValueId value) {
        return std::find(part.sources.begin(), part.sources.end(), value) != part.sources.end();
      });
    });
    saved.push_back(choose_saved(after, values_read_backward(whole ? joint : own), visible, copies.maps, together));
    together.insert(saved.back().begin(), saved.back().end());
  }
  // What only torch's own formula reads is saved where the user can see it.
  auto seen = [&](ValueId value) {
    while (!place.count(value.index)) {
      const auto node = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const fj::Node& node) {
        return !node.results.empty() && node.results[0] == value;
      });
      if (node == graph_.nodes.end() || !stands_for_operand(node->op) || copies.maps.count(value)) return ValueId{};
      value = node->operands[0];
    }
    return value;
  };
  std::vector<bool> frees(parts.all.size(), false);
  for (const BackwardStep& step : joint.steps) {
    const auto known = also_saved.find(step.result);
    const auto part = parts.of.find(step.result);
    if (known == also_saved.end() || (part == parts.of.end() && !parts.of.empty())) continue;
    const std::size_t n = part == parts.of.end() ? 0 : std::size_t(part->second);
    frees[n] = true;
    for (ValueId value : known->second)
      if (const ValueId there = seen(value);
          there.valid() && std::find(saved[n].begin(), saved[n].end(), there) == saved[n].end()) {
        saved[n].push_back(there);
        together.insert(there);
      }
  }
  saved_values_.assign(together.begin(), together.end());
  for (ValueId value : saved_values_) {
    auto known = place.find(value.index);
    if (known != place.end()) {
      saved_.push_back(known->second);
    } else {
      saved_.push_back({End::Output, int(forward_.outputs.size())});
      forward_.outputs.push_back({value, std::nullopt});
    }
    const auto [kind, index] = saved_.back();
    const int input = kind == End::Input                                      ? index
                      : kind == End::View && views_[std::size_t(index)].input ? views_[std::size_t(index)].owner
                                                                              : -1;
    for (const Write& write : graph_.writes)
      reads_written_ = reads_written_ || (write.input == input && write.value != value);
  }
  make_nodes(parts, saved, needs);
  for (std::size_t n = 0; n < nodes_.size(); ++n) nodes_[n].frees = frees[n];
  return sort_nodes();
}

void Derivative::make_nodes(const DerivativeParts& parts, const std::vector<std::vector<ValueId>>& saved,
                            const std::vector<bool>& needs) {
  nodes_.resize(parts.all.size());
  std::map<ValueId, End> ends;  // of values that are a result of some node
  auto add_result = [&](std::size_t node, End end) {
    nodes_[node].results.push_back(end);
    ends.emplace(end.value, end);
  };
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    for (ValueId value : parts.all[n].results)
      for (std::size_t i = 0; i < graph_.outputs.size(); ++i)
        if (graph_.outputs[i].value == value) add_result(n, {End::Output, int(i), value});
  // What is saved and needs a gradient itself is a result too: of the part it is in, else of the node that reads it
  // first.
  std::vector<ValueId> more;  // results of the second kind
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    for (ValueId value : saved[n]) {
      const auto s =
          std::size_t(std::lower_bound(saved_values_.begin(), saved_values_.end(), value) - saved_values_.begin());
      nodes_[n].saved.push_back(int(s));
      if (saved_[s].kind != End::Output || !needs[value.index] || (returned(saved_[s]) && ends.count(value))) continue;
      auto is_known = [&](const End& end) { return end.value == value && end.index == saved_[s].index; };
      if (std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
            return std::any_of(node.results.begin(), node.results.end(), is_known);
          }))
        continue;
      const auto part = parts.of.find(value);
      add_result(part == parts.of.end() ? n : std::size_t(part->second), {End::Output, saved_[s].index, value});
      if (part == parts.of.end()) more.push_back(value);
    }
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    for (ValueId value : parts.all[n].results)
      if (!ends.count(value)) add_result(n, {End::Empty, empties_++, value});

  std::map<ValueId, End> given;
  for (int input : wanted_)
    given.emplace(graph_.inputs[std::size_t(input)].value,
                  End{End::Input, input, graph_.inputs[std::size_t(input)].value});
  for (std::size_t i = 0; i < views_.size(); ++i)
    if (views_[i].value.valid()) given.emplace(views_[i].value, End{End::View, int(i), views_[i].value});
  auto source = [&](ValueId value) { return given.count(value) ? given.at(value) : ends.at(value); };
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    std::set<ValueId> sources(parts.all[n].sources.begin(), parts.all[n].sources.end());
    std::vector<ValueId> extra;
    for (const End& result : nodes_[n].results)
      if (std::find(more.begin(), more.end(), result.value) != more.end()) extra.push_back(result.value);
    if (!extra.empty()) {
      std::vector<ValueId> possible;
      for (auto& [value, end] : given) possible.push_back(value);
      for (auto& [value, end] : ends)
        if (std::find(extra.begin(), extra.end(), value) == extra.end()) possible.push_back(value);
      const Joint joint = differentiate(graph_, possible, extra, true);
      for (std::size_t i = 0; i < possible.size(); ++i)
        if (joint.gradients[i].valid()) sources.insert(possible[i]);
    }
    for (ValueId value : sources)
      if (std::none_of(nodes_[n].results.begin(), nodes_[n].results.end(),
                       [&](const End& end) { return end.value == value && !given.count(value); }))
        nodes_[n].sources.push_back(source(value));
    std::sort(nodes_[n].saved.begin(), nodes_[n].saved.end());
  }
}

/// Each after those whose results it begins with or saves, else as their results were computed: autograd runs the last
/// one first.
bool Derivative::sort_nodes() {
  const std::size_t count = nodes_.size();
  std::map<std::pair<int, int>, std::size_t> maker;  // by kind and index
  for (std::size_t n = 0; n < count; ++n)
    for (const End& end : nodes_[n].results) maker[{end.kind, end.index}] = n;
  std::vector<std::set<std::size_t>> users(count);
  std::vector<std::size_t> missing(count, 0);
  auto needs = [&](std::size_t n, End::Kind kind, int index) {
    if (kind == End::View) {
      const GradientView& view = views_[std::size_t(index)];
      kind = view.input ? End::Input : End::Output;
      index = view.owner;
    }
    const auto made = maker.find({kind, index});
    if (made != maker.end() && made->second != n && users[made->second].insert(n).second) ++missing[n];
  };
  for (std::size_t n = 0; n < count; ++n) {
    for (const End& end : nodes_[n].sources) needs(n, end.kind, end.index);
    for (int s : nodes_[n].saved)
      needs(n, saved_[std::size_t(s)].kind, saved_[std::size_t(s)].index);
  }
  auto last = [](const Node& node) {
    ValueId value{0};
    for (const End& end : node.results) value = std::max(value, end.value);
    return value;
  };
  std::set<std::pair<ValueId, std::size_t>> ready;
  for (std::size_t n = 0; n < count; ++n)
    if (missing[n] == 0) ready.insert({last(nodes_[n]), n});
  std::vector<Node> sorted;
  while (!ready.empty()) {
    const std::size_t n = ready.begin()->second;
    ready.erase(ready.begin());
    sorted.push_back(std::move(nodes_[n]));
    for (std::size_t user : users[n])
      if (--missing[user] == 0) ready.insert({last(nodes_[user]), user});
  }
  nodes_ = std::move(sorted);
  for (std::size_t v = 0; v < views_.size(); ++v) {
    bool made = views_[v].input;
    for (Node& node : nodes_) {
      if (made && last(node).index >= views_[v].made_after) {
        node.views.push_back(int(v));
        break;
      }
      for (const End& end : node.results) made = made || (end.kind == End::Output && end.index == views_[v].owner);
    }
  }
  return nodes_.size() == count;
}

std::int64_t Derivative::saved_bytes() const {
  std::int64_t result = 0;
  for (std::size_t i = graph_.outputs.size(); i < forward_.outputs.size(); ++i) {
    const Type& type = forward_.type(forward_.outputs[i].value);
    result += hint(product(type.shape), forward_.symbols) * std::int64_t(size_in_bytes(type.dtype));
  }
  return result;
}

bool Derivative::saves(ValueId value) const {
  return std::find(saved_values_.begin(), saved_values_.end(), value) != saved_values_.end();
}

const Derivative::Backward& Derivative::compiled(int number, const std::string& layouts,
                                                 const std::vector<bool>& requiring) {
  const auto key = std::make_tuple(number, layouts, requiring);
  if (auto known = backwards_.find(key); known != backwards_.end()) return known->second;
  const HeldSignals held;
  const Node& node = nodes_[std::size_t(number)];
  std::vector<ValueId> wanted, of, saved;
  for (const End& end : node.sources) wanted.push_back(end.value);
  for (int s : node.saved) saved.push_back(saved_values_[std::size_t(s)]);
  for (std::size_t i = 0; i < node.results.size(); ++i)
    if (Layout(layouts[i]) != Layout::Absent) of.push_back(node.results[i].value);
  const Joint joint = differentiate(graph_, wanted, of, true);
  Backward made;
  made.graph = backward_graph(joint, saved);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Saved& from = saved_[std::size_t(node.saved[i])];
    made.graph.inputs[i].strides = strides_of(from.kind, from.index);
  }
  const Collected collected(joint.graph, joint.steps, copies_);
  std::size_t next = saved.size();
  std::map<ValueId, int> result_of;  // by cotangent
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (Layout(layouts[i]) == Layout::Absent) continue;
    result_of[joint.cotangents[next - saved.size()]] = int(i);
    Input& input = made.graph.inputs[next++];
    if (Layout(layouts[i]) == Layout::Repeated) input.strides = Strides(made.graph.type(input.value).shape.size(), 0);
  }
  std::vector<Output> computed;
  std::size_t output = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool reached = joint.gradients[i].valid();
    // Of a result that is a copy of what is wanted no operation is between.
    const bool is_result = std::find(of.begin(), of.end(), wanted[i]) != of.end();
    const ValueId cotangent = !reached                                            ? ValueId{}
                              : is_result && result_of.count(joint.gradients[i]) ? joint.gradients[i]
                                                                                 : collected.passed_on(wanted[i]);
    const bool passed_on = cotangent.valid();
    made.passed_on.push_back(passed_on ? result_of.at(cotangent) : -1);
    made.gradients.push_back(reached && !passed_on ? int(computed.size()) : -1);
    made.repeated.emplace_back();
    made.additions.push_back(reached ? collected.additions_in_place(wanted[i]) : 0);
    if (!reached) continue;
    Output gradient = made.graph.outputs[output++];
    if (passed_on) continue;
    const End& end = node.sources[i];
    const int views = collected.views_that_repeat(joint.gradients[i]);
    // One tensor that a sum has handed on to several is given to each, as by the library.
    const auto same = std::find(joint.gradients.begin(), joint.gradients.begin() + std::ptrdiff_t(i), joint.gradients[i]);
    if (const auto first = std::size_t(same - joint.gradients.begin()); views == 0 && first < i && made.gradients[first] >= 0) {
      made.gradients.back() = made.gradients[first];
      made.additions.back() = 0;
      continue;
    }
    if (views > 0) {
      const Repeat repeat = repeat_of(made.graph, gradient.value, views);
      made.repeated.back() = steps_of(made.graph, repeat, made.graph.type(gradient.value).shape);
      gradient.value = repeat.source;
    } else {
      gradient.strides = dense_layout(graph_.type(end.value).shape, strides_of(end.kind, end.index));
    }
    computed.push_back(std::move(gradient));
  }
  made.graph.outputs = std::move(computed);
  std::vector<int> differentiated;
  for (std::size_t i = 0; i < requiring.size(); ++i)
    if (requiring[i]) differentiated.push_back(int(i));
  if (!differentiated.empty()) {
    std::vector<ValueId> requiring_values;
    for (int input : differentiated) requiring_values.push_back(made.graph.inputs[std::size_t(input)].value);
    // With rows of its own: a table is never changed once programs read it.
    const auto externs = externs_ ? std::make_shared<ExternTable>(*externs_) : nullptr;
    if (externs) add_derivatives_of_derivatives(made.graph, *externs, gradient_flow(made.graph, requiring_values));
    made.next = Derivative::of(made.graph, differentiated);
    if (made.next) {
      made.next->compile_ = compile_;
      made.next->externs_ = externs;
      made.next->device_ = device_;
      made.graph = made.next->forward_;
    }
  }
  optimise(made.graph);
  if (!made.graph.outputs.empty()) made.program = compile_(made.graph);
  // Compiling lets other threads in: one of them may have been here.
  return backwards_.try_emplace(key, std::move(made)).first->second;
}

bool Derivative::link(std::span<const ArrayRef> inputs, std::span<ArrayRef> outputs,
                      std::span<const std::int64_t> symbols) const {
  std::vector<Ref<>> empties(static_cast<std::size_t>(empties_));
  ViewsMade views_made;
  // The tensor at an end; a view is made when it is first asked for. Null: a Python error is set.
  const std::function<PyObject*(End::Kind, int)> tensor = [&](End::Kind kind, int index) -> PyObject* {
    if (kind == End::Empty) return empties[std::size_t(index)].get();
    if (kind != End::View)
      return static_cast<PyObject*>((kind == End::Input ? inputs : outputs)[std::size_t(index)].object);
    ArrayRef& made = outputs[forward_.outputs.size() + std::size_t(index)];
    if (made.object != nullptr) return static_cast<PyObject*>(made.object);
    const GradientView& view = views_[std::size_t(index)];
    PyObject* viewed =
        view.viewed >= 0 ? tensor(End::View, view.viewed) : tensor(view.input ? End::Input : End::Output, view.owner);
    Ref<> object = viewed ? torch_view(viewed, view.made.view, view.made.strides, symbols, &views_made) : Ref<>();
    if (!object) return nullptr;
    made = {data_pointer(object.get()), object.get()};
    return object.release();
  };
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    for (int view : node.views)
      if (tensor(End::View, view) == nullptr) return false;
    std::vector<Ref<>> given, kept;
    for (const End& end : node.results) {
      if (end.kind == End::Empty) {
        const Type& type = graph_.type(end.value);
        std::vector<std::int64_t> shape;
        for (const SymDim& size : type.shape) shape.push_back(size.evaluate(symbols));
        empties[std::size_t(end.index)] =
            allocate(Library::Torch, type.dtype, shape, std::vector<std::int64_t>(shape.size(), 0), device_);
        if (!empties[std::size_t(end.index)]) return false;
      }
      given.push_back(Ref<>::borrow(tensor(end.kind, end.index)));
      if (!given.back()) return false;
    }
    for (int number : node.saved) {
      const Saved& from = saved_[std::size_t(number)];
      kept.push_back(Ref<>::borrow(tensor(from.kind, from.index)));
      if (!kept.back()) return false;
    }
    Ref<> results = tuple_of(given), saved = tuple_of(kept);
    if (!results || !saved) return false;
    std::vector<PyObject*> sources;
    for (const End& end : node.sources) {
      sources.push_back(tensor(end.kind, end.index));
      if (sources.back() == nullptr) return false;
    }
    RunBackward run = [self = std::const_pointer_cast<Derivative>(shared_from_this()), n,
                       sizes = std::vector(symbols.begin(), symbols.end())](std::vector<Ref<>> read,
                                                                            std::span<PyObject* const> cotangents) {
      return self->backward(int(n), std::move(read), cotangents, sizes);
    };
    const Ref<> joined = make_autograd_node(std::move(results), std::move(saved), node.frees, sources, std::move(run));
    if (!joined) return false;
    FJ_CHECK(PyTuple_Check(joined.get()) && std::size_t(PyTuple_GET_SIZE(joined.get())) == node.results.size(),
             "a result for each output");
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      Ref<> object = Ref<>::borrow(PyTuple_GET_ITEM(joined.get(), Py_ssize_t(i)));
      if (node.results[i].kind == End::Empty) {
        empties[std::size_t(node.results[i].index)] = std::move(object);
        continue;
      }
      ArrayRef& output = outputs[std::size_t(node.results[i].index)];
      PyObject* old = static_cast<PyObject*>(output.object);
      output.object = object.release();
      Py_DECREF(old);
    }
  }
  for (std::size_t i = 0; i < views_.size(); ++i)
    if (tensor(End::View, int(i)) == nullptr) return false;
  return true;
}

Ref<> Derivative::backward(int number, std::vector<Ref<>> saved, std::span<PyObject* const> cotangents,
                           const std::vector<std::int64_t>& given_symbols) {
  const Node& node = nodes_[std::size_t(number)];
  FJ_CHECK(saved.size() == node.saved.size() && cotangents.size() == node.results.size(),
           "backward of another program");
  std::string layouts;
  std::vector<Ref<>> objects = std::move(saved);
  for (PyObject* cotangent : cotangents) {
    Layout layout = cotangent == Py_None ? Layout::Absent : layout_of(cotangent);
    Ref<> object = Ref<>::borrow(cotangent);
    if (layout == Layout::Other) {
      object = Ref<>::steal(PyObject_CallMethod(cotangent, "contiguous", nullptr));
      if (!object) return {};
      layout = Layout::Contiguous;
    }
    layouts.push_back(char(layout));
    if (layout != Layout::Absent) objects.push_back(std::move(object));
  }
  std::vector<bool> requiring;
  if (torch_grad_enabled()) {
    for (const Ref<>& object : objects) {
      ArrayView view;
      requiring.push_back(guard_program::read_any_array(object.get(), view) && view.requires_grad);
    }
    if (std::none_of(requiring.begin(), requiring.end(), [](bool required) { return required; })) requiring.clear();
  }
  const bool nothing =
      std::all_of(layouts.begin(), layouts.end(), [](char layout) { return Layout(layout) == Layout::Absent; });
  std::vector<Ref<>> result(node.sources.size(), Ref<>::borrow(Py_None));
  if (nothing) return tuple_of(result);

  const Backward& backward = compiled(number, layouts, requiring);
  for (std::size_t i = 0; i < node.sources.size(); ++i)
    if (const int from = backward.passed_on[i]; from >= 0)
      result[i] = Ref<>::borrow(cotangents[std::size_t(from)]);
  if (!backward.program) return tuple_of(result);
  const Graph& graph = backward.graph;
  std::vector<std::int64_t> symbols(given_symbols);
  symbols.resize(std::max(symbols.size(), graph.symbols.size()));
  struct Owned {
    std::vector<ArrayRef> arrays;
    ~Owned() {
      for (const ArrayRef& array : arrays) Py_XDECREF(static_cast<PyObject*>(array.object));
    }
  } read;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Input& input = graph.inputs[i];
    // Hooks on saved tensors may bring them back in another layout, or elsewhere; what the forward program was given
    // may be the host's.
    Ref<> plain;
    if (!has_layout(objects[i].get(), graph.type(input.value), input.strides, symbols, device_)) {
      plain = copy_with_layout(objects[i].get(), graph.type(input.value), input.strides, symbols, device_);
      if (!plain) return {};
    }
    PyObject* object = plain ? plain.release() : backward.next ? Py_NewRef(objects[i].get()) : objects[i].release();
    read.arrays.push_back({data_pointer(object), object});
  }
  const std::vector<ArrayRef> inputs = read.arrays;
  Owned made{std::vector<ArrayRef>(graph.outputs.size())};
  std::vector<ArrayRef>& outputs = made.arrays;
  const std::vector<Library> libraries(graph.outputs.size(), Library::Torch);
  SegmentHost host(libraries, externs_.get(), nullptr, device_);
  Call call;
  call.host = &host;
  call.inputs = inputs;
  call.symbols = symbols;
  call.outputs = outputs;
  call.handed_over = read.arrays;
  call.ranges = torch_recorded();
  if (const std::uint32_t status = backward.program->run(call); status != kOk) {
    if (status & kInterrupted) return fj_restore_exception(host.take_interrupt().release()), Ref<>();
    // Nobody runs a backward again in another way: the library's error is the user's.
    if (!PyErr_Occurred() && host.raised())
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(host.raised())), host.raised());
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "framejit: backward failed (%s)", host.failure().c_str());
    return {};
  }
  if (backward.next) {
    // Autograd's own objects, so that the graph of the derivative goes on from them.
    std::vector<ArrayRef> given;
    for (std::size_t i = 0; i < objects.size(); ++i) given.push_back({inputs[i].data, objects[i].get()});
    if (!backward.next->link(given, outputs, symbols)) return {};
  }
  std::vector<PyObject*> added;
  for (std::size_t i = 0; i < node.sources.size(); ++i)
    if (backward.gradients[i] >= 0) {
      PyObject* gradient = static_cast<PyObject*>(outputs[std::size_t(backward.gradients[i])].object);
      if (std::vector<ViewStep> steps = backward.repeated[i]; !steps.empty()) {
        for (ViewStep& step : steps) step.recorded = torch_grad_enabled();
        Ref<> view = torch_view(gradient, steps, contiguous_strides(steps.back().shape_after), symbols);
        if (!view) return {};
        result[i] = std::move(view);
        continue;
      }
      result[i] = Ref<>::borrow(gradient);
      // Under create_graph autograd adds out of place.
      if (!torch_grad_enabled()) added.insert(added.end(), std::size_t(backward.additions[i]), gradient);
    }
  if (!added.empty() && !bump_versions(added)) return {};
  return tuple_of(result);
}

}  // namespace fj
