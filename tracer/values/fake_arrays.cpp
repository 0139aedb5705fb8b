/// Fake arrays: wrapping real ones, making new ones and views, and reading and writing their memory.
///
/// A FakeStorage is the memory of the array that owns it; its `contents` is a graph value in the owner's shape. An
/// array that is a view has the steps from the owner to itself. Reading runs the steps forwards; writing computes the
/// owner's new contents by running them backwards, so the graph stays pure and every other view sees the write.
#include "tracer/data_loops.h"
#include "tracer/values/fake_arrays.h"

#include <algorithm>

#include "arrays/marked_axes.h"
#include "arrays/torch_modes.h"
#include "guards/input_name.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/backward_call.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/modes/devices.h"
#include "tracer/restart.h"
#include "tracer/state/argument_ledger.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/modes.h"
#include "tracer/state/placement.h"
#include "tracer/state/size_ledger.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/numbers/operators.h"
#include "tracer/values/numbers/size_ranges.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static SymbolId size_symbol(TraceRun& t, const DynamicAxis& mark, std::int64_t size);
static void ensure_input(TraceRun& t, FakeStorage& storage);
/// Breaks the graph if it can't hold an in-place operation that autograd records.
static void refuse_history(TraceRun& t, const ArrayValue& array, bool needed);
static bool shows_again(TraceRun& t, const FakeStorage& storage);
/// The value, or, if it is the contents of some array, another value that is equal.
static ValueId apart(TraceRun& t, ValueId value);
/// Notes that an array has memory with these contents.
static void note_memory(TraceRun& t, ValueId contents);

namespace {

/// First and last byte an array's elements lie in; last < first for an empty one.
std::pair<std::int64_t, std::int64_t> extent(const ArrayInfo& info) {
  std::int64_t low = 0, high = 0;
  for (std::size_t i = 0; i < info.shape.size(); ++i) {
    if (info.shape[i] == 0) return {0, -1};
    const std::int64_t span = (info.shape[i] - 1) * info.strides[i];
    (span < 0 ? low : high) += span;
  }
  const auto size = std::int64_t(size_in_bytes(info.dtype));
  const auto base = reinterpret_cast<std::intptr_t>(info.data);
  return {base + low * size, base + high * size + size - 1};
}

bool overlap(const FakeStorage& a, const FakeStorage& b) {
  return a.first_byte <= b.last_byte && b.first_byte <= a.last_byte;
}

}  // namespace

/// The size of an axis that changes. Bounds the user has given are guarded once, here.
SymbolId size_symbol(TraceRun& t, const DynamicAxis& mark, std::int64_t size) {
  if (!mark.name.empty())
    if (auto known = t.sizes->named.find(mark.name);
        known != t.sizes->named.end() && t.graph().symbols[known->second.index].hint == size)
      return known->second;
  const SymbolId symbol =
      t.graph().new_symbol({"s" + std::to_string(t.graph().symbols.size()), 0, INT64_MAX, size, {}});
  if (mark.min > 0) t.decide(symbol, Py_GE, mark.min);
  if (mark.max < INT64_MAX) t.decide(symbol, Py_LE, mark.max);
  t.graph().symbols[symbol.index].min = mark.min;
  t.graph().symbols[symbol.index].max = mark.max;
  if (!mark.name.empty()) t.sizes->named.emplace(mark.name, symbol);
  return symbol;
}

V wrap_array(TraceRun& t, PyObject* object, SourceRef source) {
  const ArrayInfo info = describe(object);
  if (!info.unsupported.empty() || !refusal(t, info.device).empty()) return nullptr;
  auto array = std::make_shared<ArrayValue>();
  array->source = source;
  array->library = info.library;
  array->dtype = info.dtype;
  array->requires_grad = info.requires_grad;
  array->writeable = info.writeable;
  array->parameter = info.parameter;

  const int rank = int(info.shape.size());
  const std::string text = source->text();
  const bool constant_source = source->kind == SourceKind::Constant;
  std::vector<bool> dynamic(rank, t.request.generalise.all_dynamic && !constant_source && !info.parameter);
  if (!constant_source)
    for (const auto& [name, axis] : t.request.generalise.dimensions)
      if (name == text && axis >= 0 && axis < rank) dynamic[axis] = true;
  std::vector<DynamicAxis> marks(std::size_t(rank), DynamicAxis{});
  std::vector<DynamicAxis> marked = marked_axes(object);
  for (const auto& [name, mark] : t.request.generalise.marks)
    if (name == text) marked.push_back(mark);
  for (const DynamicAxis& mark : marked) {
    if (mark.axis >= rank) continue;
    dynamic[mark.axis] = true;
    // An array that was resized since is marked wrongly.
    if (info.shape[mark.axis] >= mark.min && info.shape[mark.axis] <= mark.max) marks[std::size_t(mark.axis)] = mark;
  }
  if (t.request.generalise.never_dynamic || constant_source) dynamic.assign(rank, false);
  for (int i = 0; i < rank; ++i) {
    if (!dynamic[i] || info.shape[i] > kLargestSize) {
      array->shape.push_back(info.shape[i]);
      continue;
    }
    const SymbolId symbol = size_symbol(t, marks[std::size_t(i)], info.shape[i]);
    t.sizes->sources.emplace(symbol, t.sources().make(SourceKind::Size, source, i));
    array->shape.push_back(symbol);
  }
  // Strides that follow from the sizes: those of a dense array in some order of its axes; without elements those of a
  // row-major one. For a NumPy array without elements any strides do.
  const bool empty = std::find(info.shape.begin(), info.shape.end(), 0) != info.shape.end(),
             anything = empty && info.library == Library::Numpy;
  std::vector<int> order(rank);
  for (int i = 0; i < rank; ++i)
    order[i] = rank - 1 - i;  // among equal strides the later axis is the inner one, as in a row-major array
  if (!empty)
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      if (info.strides[a] != info.strides[b]) return info.strides[a] < info.strides[b];
      return info.shape[a] <= 1 && info.shape[b] > 1;
    });
  array->strides.resize(rank);
  SymDim expected = 1;
  std::int64_t expected_now = 1;
  bool dense = true;
  std::vector<bool> follows(rank);
  for (int axis : order) {
    follows[axis] = anything || info.strides[axis] == expected_now;
    dense = dense && (follows[axis] || (info.shape[axis] == 1 && !empty));
    array->strides[axis] = expected;
    if (!(array->shape[axis] == SymDim(0))) expected = expected * array->shape[axis];  // as contiguous_strides
    expected_now *= std::max<std::int64_t>(info.shape[axis], 1);
  }
  const bool any_dynamic = std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end();
  for (int i = 0; i < rank; ++i) {
    if (any_dynamic && dense && follows[i]) continue;
    // A stride that may move with the sizes is a symbol of its own.
    if (any_dynamic && info.strides[i] != 0 && info.strides[i] != 1)
      array->strides[i] = t.graph().new_symbol(
          {"s" + std::to_string(t.graph().symbols.size()), INT64_MIN, INT64_MAX, info.strides[i], {}});
    else
      array->strides[i] = info.strides[i];
  }

  auto storage = std::make_shared<FakeStorage>();
  storage->dtype = info.dtype;
  storage->shape = array->shape;
  storage->strides = array->strides;
  storage->library = info.library;
  storage->device = info.device;
  storage->allocated_by_numpy = info.library == Library::Numpy;
  storage->input_array = array.get();
  std::tie(storage->first_byte, storage->last_byte) = extent(info);
  storage->inference = info.inference;
  storage->owner = array;
  storage->torch_version = array->torch_version;
  array->storage = storage;
  array->is_view = false;

  Guard guard;
  guard.kind = GuardKind::Array;
  guard.source = source;
  guard.array.emplace();
  guard.array->type = Py_TYPE(object);
  guard.array->dtype = info.dtype;
  guard.array->shape = array->shape;
  guard.array->strides = array->strides;
  guard.array->requires_grad = info.requires_grad;
  guard.array->key_set = info.key_set;
  guard.array->device = info.device;
  const Location where = t.location();
  guard.location = where.file + ":" + std::to_string(where.line);
  t.guards().add(std::move(guard));

  for (const auto& other : t.inputs->written)
    if (overlap(*other, *storage))
      break_graph(BreakReason::MutationOfInput, "two arrays share memory and one is written");
  t.inputs->storages.push_back(storage);
  note_array(t, *array);
  if (info.device != kHost && torch_modes() & torch_mode_bits::kAutocast)
    break_graph(BreakReason::UnsupportedObject, "autocast is on, of which framejit knows that of the CPU");
  // Kernels add to one place in any order.
  if (info.device != kHost && torch_modes() & torch_mode_bits::kDeterministic)
    break_graph(BreakReason::UnsupportedObject, "a device has to be deterministic");
  return array;
}

namespace {

/// The name of a method or operator of torch.Tensor that somebody outside torch has replaced, or empty. What the front
/// end knows of a method holds for torch's own.
std::string replaced_tensor_method(PyTypeObject* tensor) {
  PyObject *name, *value;
  for (Py_ssize_t position = 0; PyDict_Next(tensor->tp_dict, &position, &name, &value);) {
    if (!PyFunction_Check(value) || !PyUnicode_Check(name)) continue;
    PyObject* module = reinterpret_cast<PyFunctionObject*>(value)->func_module;
    const char* text = module != nullptr && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
    if (text != nullptr && std::string_view(text).substr(0, 5) == "torch") continue;
    // A method of a new name replaces nothing.
    if (fj_type_lookup(tensor->tp_base, name) != nullptr) return PyUnicode_AsUTF8(name);
  }
  return "";
}

}  // namespace

bool TraceRun::requires_gradient(ValueId value) { return gradients->flow.needs(value); }
void TraceRun::note_inner(ValueId value) { gradients->copies.inner.insert(value); }
void TraceRun::note_clone(ValueId value) { gradients->copies.clones.insert(value); }

void TraceRun::note_layout(const ArrayValue& array, const ArrayValue* result) {
  if (!assumed) return;
  const auto* from_outside = static_cast<const ArrayValue*>(array.storage->input_array);
  ArgumentLedger::Layout layout{array.storage, {}, nullptr, array.storage->contents};
  if (from_outside) layout.source = from_outside->source;
  if (result) layout.result = result->storage;
  layout.seen = result == nullptr;
  assumed->layouts.push_back(std::move(layout));
}

namespace {

/// Whether the answer decides results: torch's own modules ask to choose among ways to the same.
bool decides(const TraceRun& t) {
  return t.assumed && !t.frames.empty() && !is_of_packages(t.frames.back()->globals.get(), {"torch"});
}

}  // namespace

void TraceRun::note_autograd(const ArrayValue& array, AutogradFact what, bool answer) {
  if (!decides(*this)) return;
  if (array.source) {
    assumed->autograd.push_back({what, answer, array.source});
    return;
  }
  // By all arguments: which ones an array has come from can't be told once it was written.
  const bool inference = what == AutogradFact::IsInference;
  note_mode(*this, inference ? AutogradFact::InferenceMode : AutogradFact::GradMode, true);
  if (!inference) assumed->autograd.push_back({AutogradFact::RequiresGrad});
}

void note_mode(TraceRun& t, AutogradFact mode, bool always) {
  if (!decides(t)) return;
  const auto &outside = t.modes->outside, &now = t.modes->now;
  const bool inference = mode == AutogradFact::InferenceMode;
  const bool set = inference ? now.inference != outside.inference : now.grad != outside.grad;
  if (set && !always) return;  // by the code
  t.assumed->autograd.push_back({mode, inference ? outside.inference : outside.grad});
}

void TraceRun::note_stop() {
  if (assumed) assumed->autograd.push_back({AutogradFact::Stop});
}

void TraceRun::note_torch() {
  if (uses_torch) return;
  uses_torch = true;
  Ref<> tensor = Ref<>::steal(PyObject_GetAttrString(torch_module(), "Tensor"));
  FJ_CHECK(tensor && PyType_Check(tensor.get()), "torch.Tensor is not a class");
  // Guards first: they say how long a refusal holds.
  add_guard(*this, GuardKind::TypeVersion, sources().constant(tensor.get()), tensor.get());
  add_guard(*this, GuardKind::GradMode, nullptr, nullptr, torch_grad_enabled());
  add_guard(*this, GuardKind::TorchModes, nullptr, nullptr, std::int64_t(torch_modes()));
  if (const char* refusal = torch_modes_refusal()) break_graph(BreakReason::UnsupportedObject, refusal);
  const std::string replaced = replaced_tensor_method(reinterpret_cast<PyTypeObject*>(tensor.get()));
  if (!replaced.empty()) break_graph(BreakReason::UnsupportedObject, "torch.Tensor." + replaced + " was replaced");
}

void note_array(TraceRun& t, const ArrayValue& array) {
  if (array.library == Library::Torch) t.note_torch();
  if (array.library == Library::Numpy && !t.uses_numpy) {
    t.uses_numpy = true;
    add_guard(t, GuardKind::NumpyErrState, nullptr, nullptr, numpy_trapped_conditions());
  }
}

void ensure_input(TraceRun& t, FakeStorage& storage) {
  if (storage.contents.valid()) return;
  auto* array = static_cast<ArrayValue*>(storage.input_array);
  FJ_CHECK(array && array->source, "a storage without contents");
  storage.input = int(t.graph().inputs.size());
  storage.contents = t.graph().add_input(input_name(array->source), {storage.dtype, storage.shape}, storage.strides);
  t.inputs->sources.push_back(array->source);
  t.inputs->of_host.push_back(storage.device == kHost);
  t.gradients->in_memory.insert(storage.contents);
  if (array->requires_grad && t.modes->outside.records()) {
    t.gradients->flow.want(storage.contents);
    t.inputs->requiring_gradient.push_back(storage.input);
  }
}

void note_memory(TraceRun& t, ValueId contents) {
  if (!t.gradients->in_memory.insert(contents).second) {
    t.gradients->copies.twice.insert(contents);
    return;
  }
  // Mostly the last node's result.
  for (auto node = t.graph().nodes.rbegin(); node != t.graph().nodes.rend(); ++node) {
    if (std::find(node->results.begin(), node->results.end(), contents) == node->results.end()) continue;
    if (stands_for_operand(node->op)) t.gradients->copies.maps.insert(contents);
    return;
  }
}

bool TraceRun::requires_gradient(const ArrayValue& array) {
  if (array.library != Library::Torch || array.stops_gradient) return false;
  auto* base = static_cast<ArrayValue*>(array.storage->input_array);
  if (base && base->requires_grad && modes->outside.records()) return true;
  return array.storage->contents.valid() && gradients->flow.needs(array.storage->contents);
}

ValueId apart(TraceRun& t, ValueId value) { return t.gradients->in_memory.count(value) ? same_again(t, value) : value; }

ValueId stopped(TraceRun& t, ValueId value) {
  const ValueId result = same_again(t, value);  // a new value: earlier readers of the old one are not stopped
  t.graph().composites.push_back({CompositeRule::Stop, {}, result, {}, {}});
  return result;
}

namespace {

/// The part of `value` that the view shows.
ValueId show(Graph& graph, const ViewStep& view, ValueId value, const Location& where) {
  if (view.op != Op::extern_call) return graph.add(view.op, {value}, view.attrs, where);
  return graph.add_extern({value}, view.attrs, view.types, where)[std::size_t(view.result)];
}

}  // namespace

/// A tensor that a Parameter was made of shares memory with it: here there are two.
static void refuse_parameter(const FakeStorage& storage) {
  if (storage.parameter_since >= 0)
    throw CannotRebuildValue{storage.parameter_since, "a tensor that a Parameter was made of", BreakReason::Gradient};
}

ValueId array_contents(TraceRun& t, const ArrayValue& array) {
  FakeStorage& storage = *array.storage;
  refuse_parameter(storage);
  place_graph(t, array);
  ensure_input(t, storage);
  auto* base = static_cast<ArrayValue*>(storage.input_array);
  if (t.modes->now.records() && base && base->requires_grad && !array.stops_gradient) {
    if (!t.modes->outside.records()) break_graph(BreakReason::Gradient, "enable_grad() inside of no_grad()");
    if (storage.written_without_gradient)
      break_graph(BreakReason::Gradient, "it is read after it was written under no_grad()");
  }
  // To torch such a view is a leaf that requires a gradient of its own.
  if (t.modes->now.records() && array.stops_gradient && !array.detached && array.library == Library::Torch)
    throw CannotRebuildValue{array.refused_since,
                             "a view made where nothing is recorded, of a tensor that requires a gradient"};
  if (!t.transforms->batches.empty()) check_example(t, storage.contents);
  if (storage.inference && !t.modes->now.inference && t.modes->inference_read_at < 0)
    t.modes->inference_read_at = t.step;
  if (array.contents.valid() && array.contents_version == storage.version) return array.contents;
  auto is_known = [&](const ArrayValue& known) {
    return known.contents.valid() && known.contents_version == storage.version;
  };
  // A view of a view is computed from the latter, as its gradient passes there.
  std::vector<const ArrayValue*> views{&array};
  while (const ArrayValue* viewed = viewed_now(*views.back())) {
    views.push_back(viewed);
    if (is_known(*viewed)) break;
  }
  const ArrayValue* before = nullptr;
  for (; !views.empty(); views.pop_back()) {
    const ArrayValue& view = *views.back();
    if (!is_known(view)) {
      ValueId value = before ? before->contents : storage.contents;
      for (std::size_t i = before ? before->view.size() : 0; i < view.view.size(); ++i)
        value = show(t.graph(), view.view[i], value, t.location());
      if (view.stops_gradient && t.requires_gradient(value)) value = stopped(t, value);
      else if (view.is_view && t.requires_gradient(value))
        t.gradients->in_memory.insert(value);  // of a copy there may be a gradient of its own
      view.contents = value;
      view.contents_version = storage.version;
    }
    before = &view;
  }
  return array.contents;
}

const ArrayValue* viewed_now(const ArrayValue& view) {
  return view.viewed && !view.stops_gradient && view.made_at == view.storage->version ? view.viewed.get() : nullptr;
}

namespace {

/// `before`, the contents that `step` takes a view of, once the view has become `after`.
ValueId undo(Graph& graph, const ViewStep& step, ValueId before, ValueId after, const Location& where) {
  Attrs attrs;
  switch (step.op) {
    case Op::slice:
      attrs.set("starts", step.attrs.get<Dims>("starts"));
      attrs.set("steps", step.attrs.get<std::vector<std::int64_t>>("steps"));
      return graph.add(Op::slice_update, {before, after}, attrs, where);
    case Op::transpose: {
      const auto& permutation = step.attrs.get<std::vector<std::int64_t>>("permutation");
      std::vector<std::int64_t> inverse(permutation.size());
      for (std::size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = std::int64_t(i);
      attrs.set("permutation", inverse);
      return graph.add(Op::transpose, {after}, attrs, where);
    }
    case Op::reshape:
      attrs.set("shape", step.shape_before);
      return graph.add(Op::reshape, {after}, attrs, where);
    case Op::extern_call:
      break_graph(BreakReason::MutationOfInput, "a write through a view that the library makes");
    default:
      break_graph(BreakReason::MutationOfInput, "a write through a view that shows elements more than once");
  }
}

/// Whether the value is the tensor's contents, or a part of them.
bool shows(const Graph& graph, ValueId value, ValueId contents) {
  while (value != contents) {
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const Node& made) { return !made.results.empty() && made.results[0] == value; });
    if (node == graph.nodes.end() || node->operands.size() != 1) return false;
    value = node->operands[0];
  }
  return true;
}

/// Whether torch's derivative of the operation, whose result is written into a part of the tensor, reads nothing of the
/// tensor but its old contents, of which torch keeps a copy: sums, and products with another value.
bool saves_nothing_written(const Graph& graph, const Node& node, ValueId contents) {
  switch (node.op) {
    case Op::add: case Op::sub: case Op::neg: return true;
    case Op::mul: return shows(graph, node.operands[0], contents) != shows(graph, node.operands[1], contents);
    case Op::div:
      return shows(graph, node.operands[0], contents) &&
             !shows(graph, node.operands[1], contents);  // that of sigmoid is another
    default: return false;
  }
}

}  // namespace

/// Autograd notes the operation as the last one of the tensor's history: so does the graph, whose values are never
/// written. The graph can't where other arrays see the tensor too: their history changes with it.
void refuse_history(TraceRun& t, const ArrayValue& array, bool needed) {
  FakeStorage& storage = *array.storage;
  std::erase_if(storage.views, [](const std::weak_ptr<ArrayValue>& view) { return view.expired(); });
  const auto seen = [&](const std::weak_ptr<ArrayValue>& view) {
    const auto other = view.lock();
    if (!other || other.get() == &array) return false;
    for (const ArrayValue* step = array.viewed.get(); step; step = step->viewed.get())
      if (step == other.get())
        return other.use_count() > 2;  // a step on the way that nobody else has: here, and in what was made of it
    return true;
  };
  const bool alone = !storage.input_array && !array.stops_gradient && !array.detached &&
                     std::none_of(storage.views.begin(), storage.views.end(), seen);
  if (alone && array.refused_since < 0) return;
  if (needed) break_graph(BreakReason::Gradient, "an in-place operation on a tensor that requires a gradient");
  // torch may refuse a write into a view of a tensor without gradient too, by the way the view was made: a view that we
  // make does not show it.
  if (array.refused_since >= 0)
    throw CannotRebuildValue{array.refused_since, "a view that torch does not allow everything in"};
  break_graph(BreakReason::Gradient, "a value that requires a gradient is written into a tensor");
}

/// Whether an element may be at two indices: an axis does not step over all that those of smaller strides reach.
bool shows_again(TraceRun& t, const FakeStorage& storage) {
  std::vector<std::pair<SymDim, SymDim>> axes;  // stride, size
  for (std::size_t i = 0; i < storage.strides.size(); ++i) {
    const SymDim& stride = storage.strides[i];
    axes.emplace_back(t.decide(stride, Py_LT, 0) ? SymDim(0) - stride : stride, storage.shape[i]);
  }
  std::stable_sort(axes.begin(), axes.end(), [&](const auto& a, const auto& b) {
    return std::pair(hint(t, a.first), hint(t, a.second)) < std::pair(hint(t, b.first), hint(t, b.second));
  });
  SymDim reached = 0;
  for (const auto& [stride, size] : axes) {
    if (t.decide(stride, Py_LE, reached) && !t.decide(size, Py_LE, 1)) return true;
    reached = reached + (size - 1) * stride;
  }
  return false;
}

/// Whether one of the first nodes has a history that begins at the value.
static bool is_derived_from(TraceRun& t, ValueId value, std::size_t nodes) {
  const auto begin = t.graph().nodes.begin();
  return std::any_of(begin, begin + std::ptrdiff_t(nodes), [&](const Node& node) {
    return std::find(node.operands.begin(), node.operands.end(), value) != node.operands.end() &&
           std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId result) { return t.requires_gradient(result); });
  });
}

/// Joined ways have copies in place of views at computed places, which would not see the write.
static void refuse_shown_elsewhere(TraceRun& t, const FakeStorage& storage) {
  const TracedWay* const way = t.request.way;
  if (storage.stands_for_view || storage.may_be_outside || (way && way->shown && way->shown->count(storage.contents)))
    break_graph(BreakReason::BranchOnData,
                "`" + t.source_text() + "` writes an array that is, or may be, shown elsewhere");
}

void TraceRun::stands_for_view(ArrayValue& copy, const ArrayValue& from) {
  TracedWay& way = *request.way;
  const FakeStorage& storage = *from.storage;
  copy.storage->stands_for_view = true;
  if (storage.input_array) return;  // which no way may write
  if (!way.events.empty() && storage.contents.index >= way.events[0].values)
    break_graph(BreakReason::BranchOnData, "`" + source_text() +
                                               "` is a view, at a computed place, of an array that is made in a loop, "
                                               "or behind a branch, on data");
  if (way.shown->insert(storage.contents).second) throw PlanGrown{};
}

void TraceRun::write(ArrayValue& array, ValueId value) {
  FakeStorage& storage = *array.storage;
  place_graph(*this, storage.device);  // a program on a device has only a copy of a host array
  refuse_shown_elsewhere(*this, storage);
  if (!array.writeable || array.numpy_scalar) break_graph(BreakReason::ErrorWhileTracing, "the array is read-only");
  refuse_parameter(storage);
  if (storage.derived_view)
    break_graph(BreakReason::Gradient, "a write into memory that a function with a derivative in Python gave a view of");
  auto* base = static_cast<ArrayValue*>(storage.input_array);
  if (storage.inference && !modes->now.inference)
    break_graph(BreakReason::ErrorWhileTracing, "a write into an inference tensor outside of inference mode");
  ensure_input(*this, storage);
  if (assumed) assumed->note_write(&storage);
  bool needed = false, with_history = false;
  // Autograd is told nothing of a write into `.data`: what was saved before shows it. Views save nothing.
  const bool data = array.detached && array.detached->data;
  const auto derived = [&](const Node& node) {
    return !stands_for_operand(node.op) &&
           std::any_of(node.results.begin(), node.results.end(), [&](ValueId made) { return requires_gradient(made); });
  };
  if (data && (requires_gradient(value) || std::any_of(graph().nodes.begin(), graph().nodes.end(), derived)))
    break_graph(BreakReason::Gradient, "a write into Tensor.data beside what requires a gradient");
  if (array.library == Library::Torch) {
    needed = (base && base->requires_grad && (modes->now.records() || modes->outside.records())) ||
             requires_gradient(storage.contents);
    const auto leaf = std::find_if(gradients->leaves.begin(), gradients->leaves.end(), [&](const auto& known) {
      return as<ArrayValue>(known.tensor)->storage.get() == &storage;
    });
    if (needed && leaf != gradients->leaves.end()) {
      // Under no_grad() a leaf is filled, as layers do with their parameters.
      const bool fills = !modes->now.records() && array.view.empty() && !data && leaf->value == storage.contents;
      if (!fills || is_derived_from(*this, leaf->value, nodes_before_instruction))
        break_graph(BreakReason::Gradient, "a write into a leaf");
      if (requires_gradient(value)) value = stopped(*this, value);
      leaf->value = storage.contents = same_again(*this, value);
      gradients->in_memory.insert(storage.contents);
      gradients->flow.want(storage.contents);
      effects->note_write(storage.owner.lock().get());
      ++storage.version;
      ++*array.torch_version;
      return;
    }
    if (modes->now.records() && !data) {
      with_history = needed || requires_gradient(value);
      if (with_history) refuse_history(*this, array, needed);
    } else {
      // The tensor's history stays, but says nothing of its new contents.
      if (needed && !base)
        break_graph(BreakReason::Gradient, "a write under no_grad() into a tensor that requires a gradient");
      if (needed) storage.written_without_gradient = true;
      if (requires_gradient(value)) value = stopped(*this, value);
    }
  }
  const Type& type = graph().type(value);
  if (storage.batch_depth < transforms->depth)
    break_graph(BreakReason::OneExample,
                "`" + source_text() + "` writes into an array from outside the function that is batched");
  FJ_CHECK(type.dtype == array.dtype && type.shape == array.shape, "a write of " + text(type) + " into another type");
  const Location where = location();
  const auto made_here = [&](ValueId value) -> const Node* {
    for (std::size_t i = graph().nodes.size(); i-- > nodes_before_instruction;)
      if (!graph().nodes[i].results.empty() && graph().nodes[i].results[0] == value) return &graph().nodes[i];
    return nullptr;
  };
  // The result of this operation is in the tensor alone: no other array has it.
  const bool given_here = array.library == Library::Torch && made_here(value);
  if (given_here && with_history && !array.view.empty()) {
    const Node* made = made_here(value);
    while (made && stands_for_operand(made->op)) made = made_here(made->operands[0]);
    // What torch saves of it is in the tensor too, but not in a value of the graph.
    if (made && !made->operands.empty() && !saves_nothing_written(graph(), *made, storage.contents))
      break_graph(BreakReason::Gradient, "an in-place operation on a view of a tensor that requires a gradient");
  }
  std::vector<ValueId> contents{storage.contents};
  for (const ViewStep& view : array.view) contents.push_back(show(graph(), view, contents.back(), where));
  for (std::size_t i = array.view.size(); i-- > 0;) value = undo(graph(), array.view[i], contents[i], value, where);
  if (storage.input_array) {
    if (shows_again(*this, storage))
      break_graph(BreakReason::MutationOfInput, "a write into an array that shows elements more than once");
    auto known = [&](const auto& other) { return other.get() == &storage; };
    if (std::none_of(inputs->written.begin(), inputs->written.end(), known)) {
      for (const auto& other : inputs->storages)
        if (other.get() != &storage && overlap(*other, storage))
          break_graph(BreakReason::MutationOfInput, "two arrays share memory and one is written");
      inputs->written.push_back(array.storage);
    }
  }
  if (with_history) {
    // The old contents stay in the tensor's history though nothing of them is left: their gradient is zeros.
    if (needed && !history(*this, {value})[storage.contents.index])
      value = graph().add(
          Op::where,
          {full(*this, DType::Bool, scalar_of(DType::Bool, std::int64_t{1}), storage.shape), value, storage.contents},
          {}, where);
    gradients->written_with_history.emplace(int(nodes_before_instruction), step);
    // A write through a view is a node of torch's that a backward frees, though nothing is saved for it.
    if (!array.view.empty()) {
      value = apart(*this, value);
      gradients->also_saved[value];
    }
  }
  // Where torch saves the result of the operation, it saves the tensor. Another value is copied into the tensor.
  if (given_here && array.view.empty())
    gradients->in_memory.erase(value);
  else if (with_history)
    value = apart(*this, value);
  if (array.library == Library::Torch) gradients->overwritten.emplace(storage.contents, nodes_before_instruction);
  effects->note_write(storage.owner.lock().get());
  storage.contents = value;
  note_memory(*this, value);
  ++storage.version;
  if (array.library == Library::Torch) ++*array.torch_version;
}

void TraceRun::write_itself(ArrayValue& array) {
  FakeStorage& storage = *array.storage;
  refuse_shown_elsewhere(*this, storage);
  // To what torch has saved of it before, it is written like any other.
  gradients->overwritten.emplace(storage.contents, nodes_before_instruction);
  storage.contents = apart(*this, storage.contents);
  note_memory(*this, storage.contents);
  effects->note_write(storage.owner.lock().get());
  ++storage.version;
  ++*array.torch_version;
}

namespace {

/// A tensor made in the trace whose memory no other array and no library has: nobody else sees a change of it.
bool is_alone(TraceRun& t, const ArrayValue& array) {
  const FakeStorage& storage = *array.storage;
  const bool of_torch = array.library == Library::Torch && storage.library == Library::Torch && !storage.inference &&
                        !t.modes->now.inference;
  const bool seen =
      array.storage.use_count() != 1 || !array.view.empty() || array.is_view || array.crosses || array.detached;
  return of_torch && !seen && !storage.input_array && !storage.made_as_view && !t.requires_gradient(array);
}

}  // namespace

bool TraceRun::make_leaf(const V& tensor) {
  auto* array = as<ArrayValue>(tensor);
  if (!array || tensor->source || !is_float(array->dtype) || !is_alone(*this, *array) || array->stops_gradient)
    return false;
  FakeStorage& storage = *array->storage;
  if (modes->outside.inference || request.follow || !transforms->batches.empty() || !transforms->of_torch.empty() ||
      storage.version != 0)
    return false;
  storage.contents = same_again(*this, array_contents(*this, *array));
  gradients->in_memory.insert(storage.contents);
  array->contents_version = -1;
  gradients->flow.want(storage.contents);
  gradients->leaves.push_back({tensor, storage.contents, step});
  return true;
}

V TraceRun::make_parameter(const V& tensor, bool requires_gradient) {
  auto* array = as<ArrayValue>(tensor);
  if (!array || tensor->source || !is_alone(*this, *array) || array->stops_gradient || array->parameter) return nullptr;
  FakeStorage& storage = *array->storage;
  if (modes->outside.inference || storage.version != 0 || storage.library_version != 0) return nullptr;
  auto made = new_array(Library::Torch, same_again(*this, array_contents(*this, *array)), array->strides);
  made->parameter = true;
  if (requires_gradient && !make_leaf(made)) return nullptr;
  storage.parameter_since = step;
  return made;
}

bool TraceRun::turn(const V& tensor, const std::function<V()>& view) {
  auto& array = *as<ArrayValue>(tensor);
  if (!is_alone(*this, array) || array.storage->batch_depth != transforms->depth) return false;
  const auto old = array.storage;
  auto fresh = [&] {
    auto shown = std::static_pointer_cast<ArrayValue>(view());
    return shown->offset == SymDim(0) ? new_array(Library::Torch, array_contents(*this, *shown), shown->strides)
                                      : nullptr;
  }();
  if (!fresh) return false;
  effects->note_write(tensor.get());
  array.shape = fresh->shape;
  array.strides = fresh->strides;
  array.storage = fresh->storage;
  array.contents_version = -1;
  array.storage->owner = tensor;
  array.storage->version = old->version + 1;
  array.storage->torch_version = array.torch_version;
  ++*array.torch_version;
  return true;
}

ValueId TraceRun::read(const ArrayValue& array) {
  // Few of torch's functions have kernels for these dtypes, and which do changes from version to version: torch's own
  // function answers.
  if (array.library == Library::Torch && is_late_unsigned(array.dtype))
    break_graph(BreakReason::UnsupportedOperation, "a tensor of " + std::string(name(array.dtype)));
  if (array.storage->device != kHost && is_complex(array.dtype))
    break_graph(BreakReason::UnsupportedOperation, "a complex tensor of " + device_text(array.storage->device));
  return array_contents(*this, array);
}

namespace {

/// Breaks where there is no such array, by its size or its number of axes: the library raises, though nobody may use it.
/// Of sizes that are symbols those of this call are asked.
void refuse_impossible(TraceRun& t, DType dtype, const Dims& shape, double most_bytes) {
  constexpr std::size_t kMostAxes = 64;
  if (shape.size() > kMostAxes)
    break_graph(BreakReason::ErrorWhileTracing, "an array of " + std::to_string(shape.size()) + " axes");
  double bytes = double(size_in_bytes(dtype));
  for (const SymDim& size : shape) bytes *= double(hint(t, size));
  if (bytes > most_bytes) break_graph(BreakReason::ErrorWhileTracing, "an array that no memory holds");
}

constexpr double kMostMemory = 1099511627776.0;      // 2^40 bytes
constexpr double kMostShown = 4611686018427387904.0;  // 2^62, by a view that repeats elements

}  // namespace

std::shared_ptr<ArrayValue> TraceRun::new_array(Library library, ValueId value, std::optional<Strides> strides) {
  // A result under no_grad() or inference_mode() is a constant.
  if (library == Library::Torch && !modes->now.records() && requires_gradient(value)) value = stopped(*this, value);
  // A copy that a gradient flows through is a value of its own: results of the copy are no results of the original
  // alone.
  if (library == Library::Torch && requires_gradient(value)) value = apart(*this, value);
  note_memory(*this, value);
  const Type& type = graph().type(value);
  refuse_impossible(*this, type.dtype, type.shape, kMostMemory);
  auto storage = std::make_shared<FakeStorage>();
  storage->device = library == Library::Torch ? placement->made_on : kHost;
  // An array made on the host of numbers alone leaves the device of the graph open.
  if (storage->device != kHost || placement->made_of_arrays) place_graph(*this, storage->device);
  if (library == Library::Torch && placement->scopes == 0 && placement->on_device())
    break_graph(BreakReason::UnsupportedObject, "what is made here in a piece on " + device_text(*placement->graph));
  storage->dtype = type.dtype;
  storage->shape = type.shape;
  storage->strides = strides ? *strides : contiguous_strides(type.shape);
  // NumPy gives an array without elements strides of 0; torch shows them where it is given the array.
  const bool empty = std::any_of(type.shape.begin(), type.shape.end(),
                                 [](const SymDim& size) { return size.is_constant() && size.value() == 0; });
  if (library == Library::Numpy && empty) storage->strides.assign(type.shape.size(), SymDim(0));
  storage->contents = value;
  storage->batch_depth = transforms->depth;
  storage->library = library;
  storage->inference = library == Library::Torch && modes->now.inference;
  storage->allocated_by_numpy = library == Library::Numpy;
  auto array = std::make_shared<ArrayValue>();
  array->library = library;
  array->dtype = storage->dtype;
  array->shape = storage->shape;
  array->strides = storage->strides;
  array->storage = storage;
  storage->owner = array;
  storage->torch_version = array->torch_version;
  note_array(*this, *array);
  return array;
}

std::shared_ptr<ArrayValue> TraceRun::new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape,
                                               Strides strides, SymDim offset) {
  if (base->refused_since >= 0 && base->storage->written_without_gradient && modes->now.records() &&
      requires_gradient(*base))
    break_graph(BreakReason::Gradient, "a view of a view that torch may refuse, since it was written under no_grad()");
  refuse_impossible(*this, base->dtype, shape, kMostShown);
  auto array = std::make_shared<ArrayValue>();
  array->library = base->library;
  array->dtype = base->dtype;
  array->shape = std::move(shape);
  array->strides = std::move(strides);
  array->offset = std::move(offset);
  array->storage = base->storage;
  array->view = base->view;
  array->view.push_back(std::move(step));
  array->is_view = true;
  array->made_after = std::uint32_t(graph().value_count());
  if (base->is_view && base->library == Library::Torch && requires_gradient(*base)) {
    array->viewed = base;
    array->made_at = base->storage->version;
  }
  array->detached = base->detached;
  array->torch_version = base->torch_version;
  array->requires_grad = base->requires_grad;
  array->stops_gradient = base->stops_gradient || (!modes->now.records() && requires_gradient(*base));
  array->refused_since = base->refused_since;
  if (base->library == Library::Torch && !modes->now.records()) {
    array->view.back().recorded = false;
    if (array->refused_since < 0) array->refused_since = array->born;
  }
  if (base->library == Library::Torch && !base->storage->input_array) array->storage->views.push_back(array);
  array->writeable = base->writeable;
  array->crossed = base->crosses ? base : base->crossed;
  array->shown_read_only = base->shown_read_only;
  array->viewed_in_inference =
      base->viewed_in_inference || (modes->now.inference && !modes->outside.inference && !base->storage->inference &&
                                    base->library == Library::Torch);
  return array;
}

void TraceRun::composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept,
                         Attrs attrs) {
  graph().composites.push_back({rule, std::move(operands), result, std::move(kept), std::move(attrs)});
}

void TraceRun::also_saves(ValueId result, std::vector<ValueId> values) {
  std::vector<ValueId>& known = gradients->also_saved[result];
  known.insert(known.end(), values.begin(), values.end());
}

}  // namespace fj
