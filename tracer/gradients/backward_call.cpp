/// `loss.backward()` and `torch.autograd.grad()` in traced code.
///
/// The graph of this trace is what autograd would have recorded, as long as the tensors it begins with are leaves
/// (guarded). A backward adds the nodes of the gradients behind it, as for framejit.grad, and gives each leaf its
/// `.grad` as torch's AccumulateGrad does: a tensor of its own, in the leaf's layout, where there was none; else the
/// one there is is added to in place. These are writes like any other, so a field that is set to None again before the
/// exit is never made.
///
/// What a backward frees is noted: a second one through it breaks the graph, and torch raises; a tensor that is handed
/// out with freed history gets a grad_fn that raises the same (framejit/_support/autograd.py).
#include "tracer/gradients/backward_call.h"

#include <algorithm>

#include "arrays/torch_hooks.h"
#include "graph_ir/autodiff/autodiff_collected.h"
#include "graph_ir/rules/grad_rules.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/fake_arrays.h"

namespace fj {

namespace {

/// What torch does to a gradient in place, whether a leaf copies it, of how many views it is, and its value before it
/// is stopped.
struct GradientVersion {
  int additions;
  bool copied;
  int views;  // that repeat, see Collected
  ValueId gradient;
};

}  // namespace

static V outside_field(TraceRun& t, const V& tensor, PyObject* name);  // of a real tensor, that C code reads
static void ask_no_anomaly(TraceRun& t);
static void refuse_overwritten(TraceRun& t, std::size_t first);
static std::vector<ValueId> pass_back(TraceRun& t, const Tracer::Backward& call, const std::vector<ValueId>& wanted,
                                      std::vector<GradientVersion>& versions);
static V repeated(TraceRun& t, ValueId gradient, int views);
namespace {

PyObject* grad_name() {
  static PyObject* const name = intern("grad");
  return name;
}

/// The layout that AccumulateGrad gives a gradient: the leaf's, where that has neither gaps nor repetitions, else
/// row-major.
Strides gradient_strides(Tracer& tracer, const ArrayValue& leaf) {
  return is_dense(tracer, leaf.shape, leaf.strides) ? leaf.strides : row_major(leaf.shape);
}

}  // namespace

// ---- fields

V outside_field(TraceRun& t, const V& tensor, PyObject* name) {
  V& field = t.gradients->fields[{tensor.get(), name}];
  if (field) return field;
  Ref<> object = t.sources().fetch(tensor->source, t.request.values);
  Ref<> found = object ? Ref<>::steal(PyObject_GenericGetAttr(object.get(), name)) : Ref<>();
  if (!found) {
    PyErr_Clear();
    break_graph(BreakReason::UnsupportedObject, "attribute '" + text_of(name) + "' of " + describe(tensor));
  }
  return field = t.wrap(t.keep(found).get(), t.sources().make(SourceKind::SlotMember, tensor->source, 0, name));
}

bool TraceRun::is_leaf(const V& tensor) {
  static PyObject* const name = intern("is_leaf");
  auto& array = *as<ArrayValue>(tensor);
  refuse_in_torch_transform(*this, "Tensor.is_leaf");
  if (!tensor->source) return !requires_gradient(array) || made_leaf(*this, array);
  if (!array.requires_grad) return true;
  return truth(outside_field(*this, tensor, name));
}

GradientLedger::Leaf* made_leaf(TraceRun& t, const ArrayValue& array) {
  for (GradientLedger::Leaf& leaf : t.gradients->leaves)
    if (leaf.tensor.get() == &array) return &leaf;
  return nullptr;
}

void refuse_made_history(TraceRun& t, ValueId value) {
  if (t.gradients->leaves.empty() || !t.requires_gradient(value)) return;
  const std::vector<bool> reached = history(t, {value});
  // What requires a gradient by others too loses the part of its history that nobody can see.
  const std::vector<int>& others = t.inputs->requiring_gradient;
  const bool by_others = std::any_of(others.begin(), others.end(), [&](int input) {
    return reached[t.graph().inputs[std::size_t(input)].value.index];
  });
  for (GradientLedger::Leaf& leaf : t.gradients->leaves) {
    if (!reached[leaf.value.index]) continue;
    if (leaf.left || !by_others) refuse_leaf(leaf);
    leaf.lost = true;
  }
}

void refuse_leaf(const GradientLedger::Leaf& leaf) {
  throw CannotRebuildValue{leaf.step, "what is computed from a tensor that became a leaf here", BreakReason::Gradient};
}

V TraceRun::gradient_field(const V& tensor) {
  // Reading it of another one warns.
  if (!is_leaf(tensor)) break_graph(BreakReason::Gradient, "the gradient field of a tensor that is no leaf");
  if (!tensor->source) return none();
  return outside_field(*this, tensor, grad_name());
}

void set_gradient_field(TraceRun& t, const V& tensor, PyObject* name, const V& value) {
  auto& array = *as<ArrayValue>(tensor);
  if (array.library != Library::Torch || !t.is_leaf(tensor))
    break_graph(BreakReason::Gradient, "assigns the gradient field of " + describe(tensor));
  if (!t.is_none(value)) {
    auto* gradient = as<ArrayValue>(value);
    // torch refuses these.
    if (!gradient || gradient->library != Library::Torch || value == tensor || gradient->dtype != array.dtype ||
        gradient->shape != array.shape)
      break_graph(BreakReason::ErrorWhileTracing, "a gradient that is " + describe(value) + ", of " + describe(tensor));
    if (t.requires_gradient(*gradient)) break_graph(BreakReason::Gradient, "a gradient that has a history");
  }
  note_attribute(t, tensor, name, value);
}

// ---- backward

/// Anomaly detection looks at every gradient.
void ask_no_anomaly(TraceRun& t) {
  static PyObject* const nothing = PyTuple_New(0);
  Ref<> asked = Ref<>::steal(PyObject_GetAttrString(torch_module(), "is_anomaly_enabled"));
  Ref<> answer = asked ? Ref<>::steal(PyObject_CallNoArgs(t.keep(asked).get())) : Ref<>();
  PyErr_Clear();
  if (!answer || t.truth(t.wrap(t.keep(answer).get(),
                                t.sources().make(SourceKind::Answer, t.sources().constant(asked.get()), 0, nothing))))
    break_graph(BreakReason::Gradient, "anomaly detection is on");
}

std::vector<bool> history(TraceRun& t, const std::vector<ValueId>& of) {
  std::vector<bool> reached(t.graph().value_count(), false);
  for (ValueId value : of) reached[value.index] = true;
  std::map<std::uint32_t, std::size_t> composites;
  for (std::size_t i = 0; i < t.graph().composites.size(); ++i) composites[t.graph().composites[i].result.index] = i;
  for (std::size_t i = t.graph().nodes.size(); i-- > 0;) {
    const Node& node = t.graph().nodes[i];
    for (ValueId result : node.results) {
      if (!reached[result.index]) continue;
      auto composite = composites.find(result.index);
      for (ValueId operand :
           composite != composites.end() ? t.graph().composites[composite->second].operands : node.operands)
        if (t.requires_gradient(operand)) reached[operand.index] = true;
    }
  }
  return reached;
}

bool is_freed(TraceRun& t, ValueId value) {
  if (t.gradients->freed.empty() || !t.requires_gradient(value)) return false;
  const std::vector<bool> reached = history(t, {value});
  return std::any_of(t.gradients->freed.begin(), t.gradients->freed.end(),
                     [&](ValueId freed) { return reached[freed.index]; });
}

V input_array(TraceRun& t, int input) {
  for (const auto& storage : t.inputs->storages)
    if (storage->input == input)
      if (V array = storage->owner.lock()) return array;
  FJ_CHECK(false, "an input without its array");
  return nullptr;
}

std::map<ValueId, std::size_t> overwritten(TraceRun& t) {
  std::map<ValueId, std::size_t> gone = t.gradients->overwritten;
  for (std::size_t i = 0; i < t.graph().nodes.size() && !gone.empty(); ++i) {
    const Node& node = t.graph().nodes[i];
    if (!stands_for_operand(node.op) || t.gradients->copies.maps.count(node.results[0])) continue;
    if (const auto seen = gone.find(node.operands[0]); seen != gone.end()) gone.emplace(node.results[0], seen->second);
  }
  return gone;
}

/// Breaks the graph if a node from `first` on reads what an in-place operation has replaced: torch knows by the
/// tensor's version.
void refuse_overwritten(TraceRun& t, std::size_t first) {
  const std::map<ValueId, std::size_t> gone = overwritten(t);
  for (std::size_t i = first; i < t.graph().nodes.size() && !gone.empty(); ++i)
    for (ValueId operand : t.graph().nodes[i].operands)
      if (gone.count(operand))
        break_graph(BreakReason::Gradient, "a backward through a tensor that was written in place since");
}

/// The gradients of `wanted`, constants of every other derivative; invalid where none arrives. `versions`: what torch
/// has done to them in place.
std::vector<ValueId> pass_back(TraceRun& t, const Tracer::Backward& call, const std::vector<ValueId>& wanted,
                               std::vector<GradientVersion>& versions) {
  if (t.request.follow || !t.transforms->batches.empty())
    break_graph(BreakReason::Gradient, "torch's backward in a function that framejit derives");
  refuse_in_torch_transform(t, "torch's backward");
  for (int input : t.inputs->requiring_gradient)
    if (t.placement->on_device() && t.inputs->of_host[std::size_t(input)])
      break_graph(BreakReason::SeveralDevices,
                  "the gradient of a tensor of cpu in a piece on " + device_text(*t.placement->graph));
  std::vector<ValueId> of, from;
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    auto* result = as<ArrayValue>(call.results[i]);
    if (!result || result->library != Library::Torch)
      break_graph(BreakReason::Gradient, "a backward from " + describe(call.results[i]));
    if (!t.requires_gradient(*result))
      break_graph(BreakReason::ErrorWhileTracing, "a backward from a tensor that does not require a gradient");
    of.push_back(array_contents(t, *result));
    if (result->source)
      break_graph(BreakReason::Gradient, "the graph of " + describe(call.results[i]) + " begins outside of this piece");
    const V& given = call.cotangents[i];
    if (!given || t.is_none(given)) {
      for (const SymDim& size : result->shape)
        if (!t.decide(size, Py_EQ, 1))
          break_graph(BreakReason::ErrorWhileTracing, "a backward from a tensor of more than one element");
      if (!is_float(result->dtype))
        break_graph(BreakReason::ErrorWhileTracing, "a backward from " + describe(call.results[i]));
      from.push_back(full(t, result->dtype, Scalar(1.0), result->shape));
    } else {
      auto* cotangent = as<ArrayValue>(given);
      if (!cotangent || cotangent->library != Library::Torch || cotangent->dtype != result->dtype ||
          cotangent->shape != result->shape)
        break_graph(BreakReason::ErrorWhileTracing,
                    "a gradient that is " + describe(given) + ", of " + describe(call.results[i]));
      if (t.requires_gradient(*cotangent))
        break_graph(BreakReason::Gradient, "a backward from a gradient that has a history");
      from.push_back(array_contents(t, *cotangent));
    }
    if (is_freed(t, of.back()))
      break_graph(BreakReason::ErrorWhileTracing, "a second backward through what the first has freed");
  }
  static PyObject* const hooks[] = {intern("_backward_hooks"), intern("_post_accumulate_grad_hooks")};
  const std::vector<bool> reached = history(t, of);
  for (int input : t.inputs->requiring_gradient) {
    if (!reached[t.graph().inputs[std::size_t(input)].value.index]) continue;
    V leaf = input_array(t, input);
    if (!t.is_leaf(leaf))
      break_graph(BreakReason::Gradient,
                  "the graph begins outside of this piece: " + leaf->source->text() + " is no leaf");
    for (PyObject* name : hooks)
      if (!t.is_none(outside_field(t, leaf, name)))
        break_graph(BreakReason::Gradient, "a hook on " + leaf->source->text());
    Ref<> object = t.sources().fetch(leaf->source, t.request.values);
    Ref<> answer = object ? Ref<>::steal(PyObject_CallOneArg(accumulator_hooks_function(), object.get())) : Ref<>();
    PyErr_Clear();
    if (!answer || t.truth(t.wrap(t.keep(answer).get(), t.sources().make(SourceKind::AnswerAbout, leaf->source, 0,
                                                                         accumulator_hooks_function()))))
      break_graph(BreakReason::Gradient,
                  "a hook that may be on the node that adds to the gradient of " + leaf->source->text());
  }
  ask_no_anomaly(t);
  std::vector<ValueId> found;
  std::vector<BackwardStep> steps;
  const std::size_t first = t.graph().nodes.size();
  try {
    found = add_gradients(t.graph(), wanted, of, from, &steps);
  } catch (const NoDerivative& missing) {
    if (!missing.location.file.empty()) {
      t.break_location = missing.location;
      t.break_function = "a function that is derived";
    }
    break_graph(BreakReason::NoDerivativeRule, missing.subject);
  }
  for (const BackwardStep& step : steps)
    if (const auto known = t.gradients->also_saved.find(step.result); known != t.gradients->also_saved.end())
      for (ValueId value : known->second)
        if (t.gradients->overwritten.count(value))
          break_graph(BreakReason::Gradient, "a backward through a tensor that was written in place since");
  refuse_overwritten(t, first);
  const Collected collected(t.graph(), steps, t.gradients->copies);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    versions.push_back({collected.additions_in_place(wanted[i]), collected.is_copied(wanted[i]),
                        found[i].valid() ? collected.views_that_repeat(found[i]) : 0, found[i]});
  for (ValueId& gradient : found)
    if (gradient.valid()) gradient = stopped(t, gradient);
  if (!call.retain)
    for (const BackwardStep& step : steps)
      if (step.reads || t.gradients->also_saved.count(step.result)) t.gradients->freed.insert(step.result);
  t.gradients->ran_backward = true;
  return found;
}

void TraceRun::backward(const Tracer::Backward& call) {
  std::vector<ValueId> wanted;
  std::vector<V> leaves;
  const auto add = [&](const V& leaf, ValueId value) {
    if (call.only_inputs && std::find(call.inputs.begin(), call.inputs.end(), leaf) == call.inputs.end()) return;
    leaves.push_back(leaf);
    wanted.push_back(value);
  };
  for (int input : inputs->requiring_gradient) add(input_array(*this, input), graph().inputs[std::size_t(input)].value);
  for (const GradientLedger::Leaf& leaf : gradients->leaves) add(leaf.tensor, leaf.value);
  for (const V& input : call.inputs)
    if (std::find(leaves.begin(), leaves.end(), input) == leaves.end())
      break_graph(BreakReason::Gradient, "a backward to " + describe(input));
  std::vector<GradientVersion> versions;
  const std::vector<ValueId> gradients = pass_back(*this, call, wanted, versions);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!gradients[i].valid()) continue;
    const V& leaf = leaves[i];
    auto& array = *as<ArrayValue>(leaf);
    auto written = written_attribute(*this, leaf, grad_name());
    V before = written ? *written : gradient_field(leaf);
    if (is_none(before)) {
      const Strides strides = gradient_strides(*this, array);
      auto gradient = new_array(Library::Torch, gradients[i], strides);
      // A copy in the layout of the leaf is written into an empty tensor.
      *gradient->torch_version = versions[i].additions + (versions[i].copied && strides == array.strides);
      note_attribute(*this, leaf, grad_name(), gradient);
      continue;
    }
    auto* sum = as<ArrayValue>(before);
    if (!sum || sum->library != Library::Torch || sum->dtype != array.dtype || sum->shape != array.shape ||
        sum->requires_grad || requires_gradient(*sum))
      break_graph(BreakReason::Gradient, "a gradient is added to " + describe(before));
    write(*sum, graph().add(Op::add, {array_contents(*this, *sum), gradients[i]}, {}, location()));
  }
}

/// What torch gives as a view of a gradient with fewer elements, made where nothing is recorded.
V repeated(TraceRun& t, ValueId gradient, int views) {
  const auto [source, dims] = repeat_of(t.graph(), gradient, views);
  const Dims shape = t.graph().type(gradient).shape;
  Array array = t.new_array(Library::Torch, stopped(t, source));
  Axes added;
  for (std::int64_t axis = 0; axis < std::int64_t(shape.size()); ++axis)
    if (std::find(dims.begin(), dims.end(), axis) == dims.end()) added.push_back(axis);
  if (!added.empty()) array = view_expand_axes(t, array, added);
  array = view_broadcast(t, array, shape);
  for (ViewStep& step : array->view) step.recorded = false;
  array->refused_since = array->born;
  return array;
}

/// Breaks where torch may hand out one tensor as several gradients, or the cotangent that it was given, or views of
/// these: who writes into one of them writes into the others.
void refuse_shared_gradients(TraceRun& t, const Tracer::Backward& call, const std::vector<GradientVersion>& versions) {
  std::map<std::uint32_t, ValueId> shown;  // by result of a node that gives a view: what it is of
  for (const Node& node : t.graph().nodes)
    if (node.op == Op::reshape || node.op == Op::transpose || node.op == Op::slice)
      shown.emplace(node.results[0].index, node.operands[0]);
  const auto memory = [&](ValueId value) {
    for (auto view = shown.find(value.index); view != shown.end(); view = shown.find(value.index)) value = view->second;
    return value;
  };
  std::set<ValueId> known;
  for (const V& cotangent : call.cotangents)
    if (cotangent && cotangent->kind == ValueKind::Array)
      known.insert(memory(array_contents(t, *as<ArrayValue>(cotangent))));
  for (const GradientVersion& version : versions) {
    if (!version.gradient.valid() || version.views > 0) continue;  // nobody writes into what repeats elements
    if (!known.insert(memory(version.gradient)).second)
      break_graph(BreakReason::Gradient, "a gradient that torch may hand out as memory of another one");
  }
}

std::vector<V> TraceRun::grad(const Tracer::Backward& call) {
  std::vector<ValueId> wanted;
  for (const V& input : call.inputs) {
    auto* array = as<ArrayValue>(input);
    if (!array || array->library != Library::Torch)
      break_graph(BreakReason::Gradient, "a derivative by " + describe(input));
    // What was computed before it was written was computed from another version.
    if (array->storage->version != 0) break_graph(BreakReason::Gradient, "a derivative by a tensor that was written");
    if (!requires_gradient(*array))
      break_graph(BreakReason::ErrorWhileTracing, "a derivative by a tensor that does not require a gradient");
    wanted.push_back(array_contents(*this, *array));
  }
  std::vector<V> answers;
  std::vector<GradientVersion> versions;
  const std::vector<ValueId> found = pass_back(*this, call, wanted, versions);
  refuse_shared_gradients(*this, call, versions);
  for (std::size_t i = 0; i < found.size(); ++i) {
    answers.push_back(none());
    if (!found[i].valid()) continue;
    if (versions[i].views > 0) {
      answers.back() = repeated(*this, versions[i].gradient, versions[i].views);
      continue;
    }
    auto gradient = new_array(Library::Torch, found[i]);
    *gradient->torch_version = versions[i].additions;
    answers.back() = gradient;
  }
  return answers;
}

}  // namespace fj
