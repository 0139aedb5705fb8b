// Views that torch has a gradient of, and the derivative of what an exit returns.
#include <algorithm>

#include "tracer/exits/exit_builder.h"
#include "tracer/gradients/backward_call.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/placement.h"
#include "tracer/values/fake_arrays.h"

namespace fj {

/// A view of a view that is a result too is made of that one, which is then made first.
void ExitBuilder::order_views() {
  auto place = [&](int target) {
    return std::find_if(steps_.begin(), steps_.end(), [&](const RecipeStep& step) { return step.target == target; });
  };
  std::map<const ArrayValue*, std::size_t> built;
  std::stable_sort(gradient_views_.begin(), gradient_views_.end(), [](const BuiltView& a, const BuiltView& b) {
    return std::pair(a.array->made_after, a.array->view.size()) < std::pair(b.array->made_after, b.array->view.size());
  });
  for (const BuiltView& view : gradient_views_) {
    const ArrayValue* viewed = viewed_now(*view.array);
    while (viewed && !built.count(viewed)) viewed = viewed_now(*viewed);
    built.emplace(view.array, built.size());
    if (!viewed) continue;
    const int first = gradient_views_[built.at(viewed)].target;
    RecipeStep& made = *place(view.target);
    made.args = {first};
    made.view.erase(made.view.begin(), made.view.begin() + std::ptrdiff_t(viewed->view.size()));
  }
  for (const BuiltView& view : gradient_views_)
    for (auto here = place(view.target), before = place(here->args[0]); before > here && before != steps_.end();
         before = place(here->args[0]))
      std::rotate(here, before, before + 1);  // `here` is now what was behind it
}

/// Those that the derivative makes: of what the program returns or is given.
std::vector<GradientView> ExitBuilder::views_to_link() const {
  std::vector<GradientView> views;
  std::map<int, int> numbers;  // by register
  for (const BuiltView& built : gradient_views_) {
    FakeStorage& storage = *built.array->storage;
    const bool input = storage.input_array != nullptr;
    if (input ? storage.input < 0 : freed_.count(&storage) > 0) continue;
    const RecipeStep& step = *std::find_if(segment_->recipe.steps.begin(), segment_->recipe.steps.end(),
                                           [&](const RecipeStep& step) { return step.target == built.target; });
    GradientView view{step, input, input ? storage.input : owner_outputs_.at(&storage), built.array->made_after};
    if (auto known = numbers.find(step.args[0]); known != numbers.end()) view.viewed = known->second;
    if (built.array->contents.valid() && built.array->contents_version == storage.version)
      view.value = built.array->contents;
    numbers.emplace(built.target, int(views.size()));
    views.push_back(std::move(view));
  }
  return views;
}

namespace {

/// Views of values that the graph has no more are of nothing it computes.
void forget_erased(const Graph& graph, std::vector<GradientView>& views) {
  std::set<ValueId> there;
  for (const Input& input : graph.inputs) there.insert(input.value);
  for (const Node& node : graph.nodes) there.insert(node.results.begin(), node.results.end());
  for (GradientView& view : views)
    if (!there.count(view.value)) view.value = {};
}

}  // namespace

/// The derivative of the graph, which is as captured still, or as edited; the program returns what it saves behind its results.
void ExitBuilder::derive() {
  if (t_.inputs->requiring_gradient.empty()) return;
  // Their gradients would have to be the host's.
  const bool of_host = t_.placement->on_device() &&
                       std::any_of(t_.inputs->requiring_gradient.begin(), t_.inputs->requiring_gradient.end(),
                                   [&](int input) { return t_.inputs->of_host[std::size_t(input)]; });
  if (t_.request.way && !overwritten(t_).empty()) {
    segment_->eager_gradient = true;  // whether eager refuses a backward would depend on the way
    return;
  }
  std::vector<GradientView> views = views_to_link();
  // Of a graph that was edited, what it replaced is not known by the number of nodes before, nor are values by number.
  const Derivative::Overwritten replaced = segment_->edited ? Derivative::Overwritten() : overwritten(t_);
  if (segment_->edited) forget_erased(t_.graph(), views);
  // autograd saves tensors: a float that varies is none, what is saved is a copy of it.
  Copies copies = t_.gradients->copies;
  for (const auto& [source, number] : t_.inputs->numbers) copies.twice.insert(number);
  try {
    segment_->derivative = Derivative::of(t_.graph(), t_.inputs->requiring_gradient, copies,
                                          t_.gradients->also_saved, views, replaced);
  } catch (const NoDerivative&) {
    segment_->eager_gradient = true;
  }
  if (!segment_->derivative) return;
  // torch refuses a backward then, but perhaps nobody asks for one.
  if (auto written = t_.gradients->written_with_history.find(segment_->derivative->first_overwrite());
      written != t_.gradients->written_with_history.end())
    throw CannotRebuildValue{written->second, "a tensor that a derivative reads is written", BreakReason::Gradient};
  // Nor is an array of NumPy's one, which may be written.
  const bool saves_numpy =
      std::any_of(t_.inputs->storages.begin(), t_.inputs->storages.end(), [&](const auto& storage) {
        return storage->library == Library::Numpy && storage->contents.valid() &&
               segment_->derivative->saves(storage->contents);
      });
  if (of_host || saves_numpy || segment_->derivative->reads_written() ||
      !segment_->derivative->is_exact()) {
    segment_->derivative = nullptr;
    segment_->eager_gradient = true;
    return;
  }
  segment_->derivative->call_with(t_.externs);
  segment_->derivative->work_on(segment_->device);
  segment_->graph = std::make_shared<Graph>(segment_->derivative->forward());
  segment_->output_library.resize(segment_->graph->outputs.size(), Library::Torch);
  for (RecipeStep& step : segment_->recipe.steps)
    for (std::size_t i = 0; i < views.size(); ++i)
      if (step.target == views[i].made.target && step.op == RecipeOp::View) {
        step = RecipeStep{};
        step.op = RecipeOp::Output;
        step.target = views[i].made.target;
        step.index = std::int64_t(segment_->graph->outputs.size() + i);
      }
}

}  // namespace fj
