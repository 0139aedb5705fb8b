// The derivative is traced where the results are made, since what it reads is known there. All it may do is compute:
// what it would decide by its cotangents, write or draw, it would do for cotangents that are not there yet.
#include "tracer/gradients/given_derivative.h"

#include <algorithm>
#include <set>
#include <utility>

#include "arrays/torch_modes.h"
#include "graph_ir/ops.h"
#include "runtime/base/error.h"
#include "segment/library_calls/extern_schema.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/torch/torch.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/modes.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/fake_arrays.h"
#include "tracer/values/outside_objects.h"

namespace fj {
namespace {

[[noreturn]] void no_rule(const std::string& why) { break_graph(BreakReason::Gradient, "a derivative in Python " + why); }

/// Several results as one value: a derivative need not be linear, so it is given their cotangents together.
struct Packed {
  Packed(TraceRun& t, const std::vector<Array>& arrays) : t_(t) {
    for (const Array& array : arrays) types_.push_back(t.graph().type(t.read(*array)));
    if (std::any_of(types_.begin(), types_.end(), [&](const Type& type) { return type.dtype != types_[0].dtype; }))
      no_rule("of results of several dtypes");
    std::vector<ValueId> parts;
    for (std::size_t i = 0; i < arrays.size(); ++i)
      parts.push_back(types_.size() == 1 ? t.read(*arrays[i])
                                         : reshape(t, t.read(*arrays[i]), {product(types_[i].shape)}));
    value = same_again(t, parts.size() == 1 ? parts[0] : concatenate(t, parts, 0));
  }
  /// The parts of a value of this type.
  std::vector<ValueId> taken_apart(ValueId whole) const {
    if (types_.size() == 1) return {whole};
    std::vector<ValueId> parts;
    SymDim start = 0;
    for (const Type& type : types_) {
      const SymDim count = product(type.shape);
      parts.push_back(reshape(t_, slice(t_, whole, 0, start, count), type.shape));
      start = start + count;
    }
    return parts;
  }
  ValueId value;

 private:
  TraceRun& t_;
  std::vector<Type> types_;
};

/// Refuses what a trace of the derivative has done besides computing `gradients`. An operator that somebody registered
/// is taken not to draw random numbers, as in a forward, unless it is declared to; what it gives has to be read, since
/// torch calls it whether anybody reads that or not.
void check_computes_only(TraceRun& t, std::size_t nodes_before, const std::vector<ValueId>& gradients) {
  std::set<ValueId> read(gradients.begin(), gradients.end());
  for (std::size_t i = nodes_before; i < t.graph().nodes.size(); ++i)
    read.insert(t.graph().nodes[i].operands.begin(), t.graph().nodes[i].operands.end());
  for (std::size_t i = nodes_before; i < t.graph().nodes.size(); ++i) {
    const Node& node = t.graph().nodes[i];
    if (counts_size(node.op)) no_rule("that has arrays whose size depends on data");
    if (node.op != Op::extern_call) continue;
    const ExternCall& call = (*t.externs)[node.attrs.get<std::int64_t>("handle")];
    const bool is_read = std::any_of(node.results.begin(), node.results.end(),
                                     [&](ValueId result) { return read.contains(result); });
    const bool draws = call.random && !(extern_effects(call.name).repeatable && is_read);
    if (draws || call.once || !call.mutated.empty()) no_rule("that calls `" + call.name + "`");
    t.graph().spare_calls.insert(node.results[0]);
  }
}

/// The values from before that nodes since, their derivatives or the outputs read.
std::vector<ValueId> read_from_before(const Graph& graph, std::size_t nodes_before, std::span<const ValueId> outputs,
                                      ValueId but) {
  std::set<ValueId> made, read;
  for (std::size_t i = nodes_before; i < graph.nodes.size(); ++i) {
    read.insert(graph.nodes[i].operands.begin(), graph.nodes[i].operands.end());
    made.insert(graph.nodes[i].results.begin(), graph.nodes[i].results.end());
  }
  for (const Composite& composite : graph.composites) {
    if (!made.contains(composite.result)) continue;
    read.insert(composite.operands.begin(), composite.operands.end());
    read.insert(composite.kept.begin(), composite.kept.end());
  }
  read.insert(outputs.begin(), outputs.end());
  made.insert(but);
  std::vector<ValueId> found;
  std::set_difference(read.begin(), read.end(), made.begin(), made.end(), std::back_inserter(found));
  return found;
}

std::vector<Array> arrays_of(TraceRun& t, const V& values) {
  std::vector<Array> arrays;
  for (const V& value : static_cast<Tracer&>(t).sequence_items(values)) arrays.push_back(array_of(value));
  return arrays;
}

/// The result as an array that has this derivative.
V with_contents(TraceRun& t, const Array& result, const std::vector<Array>& inputs, ValueId value) {
  FakeStorage& storage = *result->storage;
  const bool shown = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const Array& input) { return input && input->storage == result->storage; });
  const bool is_view = result->is_view || !result->view.empty();
  if (!shown && (storage.input_array || (is_view && result->storage.use_count() != 1)))
    no_rule("of a result that shares memory with what others have");
  // A view of what nobody else has: torch lets nobody write into it.
  const char* const escapes = "a view whose derivative Python code gives";
  if (!shown && is_view) {
    const Array made = t.new_array(result->library, value, result->strides);
    made->storage->derived_view = true;
    t.transforms->only_here.emplace(made, escapes);
    return made;
  }
  t.gradients->in_memory.insert(value);
  if (!shown) {
    storage.contents = value;
    result->contents_version = -1;
    result->stops_gradient = false;
    return result;
  }
  // A view of an argument, with the argument's contents and a derivative of its own.
  const Array view = view_alias(t, result);
  view->stops_gradient = false;
  view->refused_since = -1;
  view->contents = value;
  view->contents_version = storage.version;
  storage.derived_view = true;
  t.transforms->only_here.emplace(view, escapes);
  return view;
}

}  // namespace

namespace {

/// While it lives, what is traced is the code of a backward that torch will call, in modes of that time.
class BackwardToCome {
 public:
  explicit BackwardToCome(ModeLedger& modes) : modes_(modes), before_(std::exchange(modes.backward_to_come, true)) {}
  ~BackwardToCome() { modes_.backward_to_come = before_; }
  BackwardToCome(const BackwardToCome&) = delete;

 private:
  ModeLedger& modes_;
  const bool before_;
};

}  // namespace

V derived_by(TraceRun& t, const V& results, const V& values, const V& inputs, const V& prepare, const V& back,
             const V& once) {
  Tracer& tracer = t;
  if (torch_autocast_dtype()) no_rule("under autocast, which is off when torch calls it");
  if (t.transforms->depth > 0) break_graph(BreakReason::OneExample, "a derivative in Python is that of all examples");
  const std::vector<Array> arrays = arrays_of(t, inputs), shown = arrays_of(t, results);
  std::vector<ValueId> wanted;
  for (const Array& array : arrays) wanted.push_back(t.read(*array));
  const Packed packed(t, arrays_of(t, values));
  Graph& graph = t.graph();
  const std::size_t place = graph.composites.size();
  graph.composites.push_back({CompositeRule::Pullback, wanted, packed.value, {}, {}, nullptr});

  std::vector<V> answers;
  const std::vector<ValueId> parts = packed.taken_apart(packed.value);
  for (std::size_t i = 0; i < parts.size(); ++i) answers.push_back(with_contents(t, shown[i], arrays, parts[i]));

  t.call(prepare, {t.tuple(answers)}, {});
  const Tracer::Mark before = t.mark();
  const std::size_t followed = t.transforms->followed.size();
  const BackwardToCome to_come(*t.modes);
  // Any value of that type, but no constant: code would be decided by that.
  const ValueId cotangent = same_again(t, packed.value);
  const std::size_t nodes = graph.nodes.size();
  std::vector<V> cotangents;
  for (ValueId part : packed.taken_apart(cotangent)) cotangents.push_back(t.new_array(Library::Torch, part));
  const std::vector<V> found = tracer.sequence_items(t.call(back, {t.tuple(std::move(cotangents))}, {}));
  if (t.written_since(before)) no_rule("that writes into what was there before");
  if (t.transforms->followed.size() != followed) no_rule("that branches on data");
  FJ_CHECK(found.size() == arrays.size(), "a gradient for each input");
  std::vector<ValueId> gradients;
  std::vector<std::int64_t> places;  // of each input's gradient among those, or -1: there is none
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Array gradient = array_of(found[i]);
    if (!gradient && !t.is_none(found[i])) no_rule("that returns " + describe(found[i]));
    places.push_back(gradient ? std::int64_t(gradients.size()) : -1);
    if (!gradient) continue;
    gradients.push_back(t.read(*gradient));
    if (graph.type(gradients.back()) != graph.type(wanted[i])) no_rule("that returns a gradient of another type");
  }
  check_computes_only(t, nodes, gradients);
  std::vector<ValueId> kept = read_from_before(graph, nodes, gradients, cotangent), all{cotangent};
  all.insert(all.end(), kept.begin(), kept.end());
  auto pullback = std::make_shared<Graph>(part_of_graph(graph, all, gradients));
  if (t.truth(once))
    for (const Output& output : std::vector<Output>(pullback->outputs)) {
      std::vector<ValueId> from;
      for (const Input& input : pullback->inputs) from.push_back(input.value);
      pullback->composites.push_back({CompositeRule::Once, from, output.value, {}, {}, nullptr});
    }
  Composite& composite = graph.composites[place];
  composite.kept = std::move(kept);
  composite.attrs.set("gradients", std::move(places));
  composite.pullback = std::move(pullback);
  return t.list(std::move(answers));
}

namespace {

/// Calls Python code of ours in the place of a callable of torch's, which messages call `name`.
V call_instead(TraceRun& t, const Ref<>& code, const V& callable, const std::string& name, std::vector<V> positional,
               const Keywords& keywords) {
  auto& value = *as<ObjectValue>(callable);
  if (!guard_value(t, value) && value.source)
    add_guard(t, GuardKind::Identity, value.source, value.object.get());
  try {
    return t.call(wrap_constant(t, t.keep(code).get()), std::move(positional), keywords);
  } catch (const BreakGraph& inside) {
    t.break_location.reset();  // in code of ours
    break_graph(inside.reason, "`" + name + "`: " + inside.detail);
  }
}

Ref<> of_ours(const char* name) { return imported("framejit._support.given_derivatives", name); }

}  // namespace

V call_function_with_derivative(TraceRun& t, const V& callable, const std::vector<V>& positional,
                                const Keywords& keywords) {
  PyObject* object = as<ObjectValue>(callable)->object.get();
  if (!PyFunction_Check(object) || !torch_module()) return nullptr;
  PyObject* const theirs = once([] { return of_ours("apply_of_torch").release(); });
  if (object != theirs || positional.empty()) return nullptr;
  refuse_in_torch_transform(t, "torch.autograd.Function");
  PyObject* kind = t.constant_object(positional[0]);
  Ref<> name = kind ? Ref<>::steal(PyObject_GetAttrString(kind, "__qualname__")) : Ref<>();
  PyErr_Clear();
  return call_instead(t, of_ours("apply"), callable, (name ? text_of(name.get()) : "Function") + ".apply", positional,
                      keywords);
}

V call_operator_with_derivative(TraceRun& t, const V& callable, const std::vector<V>& positional,
                                const Keywords& keywords) {
  PyObject* object = as<ObjectValue>(callable)->object.get();
  if (!t.modes->now.records() || torch_operator_name(object).find("::") == std::string::npos) return nullptr;
  const auto derived = [&](const V& value) {
    const Array array = array_of(value);
    return array && t.requires_gradient(*array);
  };
  if (std::none_of(positional.begin(), positional.end(), derived) &&
      std::none_of(keywords.begin(), keywords.end(), [&](const auto& named) { return derived(named.second); }))
    return nullptr;
  const Ref<> ask = of_ours("derivative_of");
  const Ref<> found = ask ? Ref<>::steal(PyObject_CallOneArg(ask.get(), object)) : Ref<>();
  PyErr_Clear();
  if (!found || found.get() == Py_None) return nullptr;
  std::vector<V> arguments{callable};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(found.get()); ++i)
    arguments.push_back(wrap_constant(t, t.keep(Ref<>::borrow(PyTuple_GET_ITEM(found.get(), i))).get()));
  arguments.insert(arguments.end(), positional.begin(), positional.end());
  return call_instead(t, of_ours("operator"), callable, torch_operator_name(object), std::move(arguments), keywords);
}

}  // namespace fj
