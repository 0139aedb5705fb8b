// torch.func's derivatives and batches inside of traced code: the markers of framejit/_support/torch_func.py, which is
// traced in the place of torch's own implementation.
//
// torch gives the function wrappers of the tensors. A trace has arrays, so whatever would tell a wrapper from a tensor
// ends the graph: a value that is kept after the function has ended, a write into a tensor from outside, an attribute
// such as `is_leaf`. So do results whose memory torch shares with others.
#include "tracer/gradients/torch_transforms.h"

#include <algorithm>
#include <map>
#include <set>

#include "cpython/objects.h"
#include "graph_ir/autodiff/autodiff_collected.h"
#include "graph_ir/rules/conditions.h"
#include "graph_ir/rules/grad_rules.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/gradients/graph_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/modes.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/fake_arrays.h"

namespace fj {
namespace {

[[noreturn]] void leave(const std::string& what) {
  break_graph(BreakReason::UnsupportedOperation, "torch.func of " + what);
}

Array tensor_of(const V& value, const char* what) {
  Array array = array_of(value);
  if (!array || array->library != Library::Torch) leave(what + (" that is " + describe(value)));
  return array;
}

/// A function is called. `derived`: the tensors its derivative is taken by, `forward`: forwards.
V begins(TraceRun& t, const V& derived, const V& forward) {
  if (t.modes->now.inference) leave("a function in inference mode");
  for (const V& leaf : static_cast<Tracer&>(t).sequence_items(derived)) {
    const Array array = tensor_of(leaf, "an argument");
    if (!is_float(array->dtype)) leave("an argument of " + std::string(name(array->dtype)));
    // torch writes the tangents of many examples into memory that is laid out as the tensor's, and refuses this one's.
    for (std::size_t i = 0; t.truth(forward) && i < array->shape.size(); ++i)
      if (t.decide(array->strides[i], Py_EQ, 0) && t.decide(array->shape[i], Py_GT, 1))
        leave("an argument that repeats elements, by which a function is derived forwards");
  }
  t.transforms->of_torch.push_back({t.mark(), t.graph().nodes.size(), t.graph().composites.size(),
                                      t.effects->effects().size(), t.truth(forward)});
  return t.none();
}

V left(TraceRun& t) {
  t.transforms->of_torch.pop_back();
  return t.none();
}

/// Whether dicts and objects from outside have what they had, or something else that was there before: a module whose
/// parameters are other tensors for a while.
bool names_stay(TraceRun& t, const TransformLedger::OfTorch& open, const std::set<const Value*>& known) {
  std::map<std::pair<const Value*, PyObject*>, V> last;
  const std::vector<Effect>& effects = t.effects->effects();
  for (std::size_t i = open.effects; i < effects.size(); ++i) {
    const Effect& effect = effects[i];
    if (known.count(effect.owner.get())) continue;
    const bool by_name = effect.kind == Effect::Kind::Item || effect.kind == Effect::Kind::Attribute;
    if (!by_name || !effect.owner || !effect.key) return false;
    last[{effect.owner.get(), effect.key.get()}] = effect.arguments.empty() ? nullptr : effect.arguments.back();
  }
  return std::all_of(last.begin(), last.end(), [&](const auto& named) {
    const V& value = named.second;
    if (!value || (value->kind != ValueKind::Array && value->kind != ValueKind::Object)) return false;
    return value->source || value->number < open.before.values || value->kind == ValueKind::Object;
  });
}

/// Leaves a function that is derived forwards to torch where its formula is another one than the transposed one for
/// gradients: at ties, at zero, or where it has none and raises, as for some calls of the library.
void require_one_derivative(TraceRun& t, const TransformLedger::OfTorch& open) {
  const Graph& graph = t.graph();
  const auto other = [&](const Node& node) {
    switch (node.op) {
      case Op::fmax: case Op::fmin: case Op::atan2: case Op::extern_call:
        return std::any_of(node.results.begin(), node.results.end(),
                           [&](ValueId result) { return t.requires_gradient(result); });
      case Op::pow: return t.requires_gradient(node.operands[1]);
      default: return false;
    }
  };
  for (std::size_t i = open.nodes; i < graph.nodes.size(); ++i)
    if (other(graph.nodes[i]))
      leave("a function that is derived forwards, which has a formula of its own for " +
            std::string(name(graph.nodes[i].op)));
  for (std::size_t i = open.composites; i < graph.composites.size(); ++i)
    if (graph.composites[i].rule == CompositeRule::Deviation && t.requires_gradient(graph.composites[i].result))
      leave("a function that is derived forwards, which has a formula of its own for the standard deviation");
}

/// The function has returned, with `results` among its values. `inside`: tensors that it was given and nobody else has.
/// `ours`: lists that this file writes.
V ends(TraceRun& t, const V& inside, const V& results, const V& ours) {
  Tracer& tracer = t;
  std::set<const Value*> known;
  for (const V& list : tracer.sequence_items(ours)) known.insert(list.get());
  const TransformLedger::OfTorch& open = t.transforms->of_torch.back();
  if (t.effects->written_since(open.before, known)) leave("a function that writes into what was there before");
  if (!names_stay(t, open, known)) leave("a function that gives what was there before another attribute or item");
  if (open.forward) require_one_derivative(t, open);
  std::set<const FakeStorage*> given, seen;
  for (const V& value : tracer.sequence_items(inside)) {
    const Array array = tensor_of(value, "a value");
    if (array->storage->version != 0) leave("a function that writes into an argument");
    given.insert(array->storage.get());
  }
  for (const V& value : tracer.sequence_items(results)) {
    const Array array = array_of(value);
    if (!array) continue;
    if (given.count(array->storage.get())) leave("a function that returns an argument or a view of it");
    if (!array->storage->input_array && !seen.insert(array->storage.get()).second)
      leave("a function two of whose results share memory");
  }
  return left(t);
}

/// What torch gives as a view of a gradient with fewer elements.
Array repeated(TraceRun& t, ValueId gradient, int views) {
  const auto [source, dims] = repeat_of(t.graph(), gradient, views);
  const Dims shape = t.graph().type(gradient).shape;
  Axes added;
  for (std::int64_t axis = 0; axis < std::int64_t(shape.size()); ++axis)
    if (std::find(dims.begin(), dims.end(), axis) == dims.end()) added.push_back(axis);
  Array array = t.new_array(Library::Torch, source);
  if (!added.empty()) array = view_expand_axes(t, array, added);
  return view_broadcast(t, array, shape);
}

/// As a tensor lies, if it has no gaps; else row-major.
Strides strides_like(TraceRun& t, const Array& like) {
  return is_dense(t, like->shape, like->strides) ? like->strides : row_major(like->shape);
}

/// The value, in memory of its own: which axes of a cotangent repeat elements is no matter of the derivative.
ValueId not_repeated(TraceRun& t, ValueId value) {
  for (const Node& node : t.graph().nodes)
    if (node.op == Op::broadcast && node.results[0] == value) return same_again(t, value);
  return value;
}

/// The gradients of one number by the marks; zeros where it does not depend on them, as torch.func gives them.
V gradients_of(TraceRun& t, const V& values, const V& cotangents, const V& marks) {
  Tracer& tracer = t;
  std::vector<ValueId> wanted, of, from;
  std::vector<Array> arrays;
  for (const V& mark : tracer.sequence_items(marks)) {
    if (!t.transforms->only_here.contains(mark)) leave("what was computed in another piece");
    arrays.push_back(array_of(mark));
    wanted.push_back(t.read(*arrays.back()));
  }
  const std::vector<V> results = tracer.sequence_items(values), given = tracer.sequence_items(cotangents);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Array result = tensor_of(results[i], "a result");
    if (!is_float(result->dtype)) leave("a result of " + std::string(name(result->dtype)));
    if (t.is_none(given[i])) {
      if (!result->shape.empty()) leave("a result that is no scalar");
      from.push_back(constant(t, result->dtype, 1.0));
    } else {
      const Array cotangent = tensor_of(given[i], "a cotangent");
      if (cotangent->dtype != result->dtype || !same_shape(t, cotangent->shape, result->shape))
        leave("a cotangent of another type");
      from.push_back(reshape(t, not_repeated(t, t.read(*cotangent)), result->shape));
    }
    of.push_back(t.read(*result));
  }
  std::vector<ValueId> found;
  std::vector<BackwardStep> steps;
  derive_in_graph(t, [&] { found = add_gradients(t.graph(), wanted, of, from, &steps); });
  derive_again(t);
  const Collected collected(t.graph(), steps, t.gradients->copies);
  std::vector<V> answers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Type type = t.graph().type(wanted[i]);
    const Strides strides = strides_like(t, arrays[i]);
    if (!found[i].valid()) {
      answers.push_back(t.new_array(Library::Torch, full(t, type.dtype, Scalar(0.0), type.shape), strides));
      continue;
    }
    const ValueId passed_on = collected.passed_on(wanted[i]);
    if (const auto same = std::find(from.begin(), from.end(), passed_on.valid() ? passed_on : found[i]);
        same != from.end()) {
      const V& cotangent = given[std::size_t(same - from.begin())];
      if (t.is_none(cotangent) || !passed_on.valid()) leave("a gradient that is the cotangent itself");
      answers.push_back(cotangent);
      continue;
    }
    if (const int views = collected.views_that_repeat(found[i]); views > 0) {
      answers.push_back(repeated(t, found[i], views));
      continue;
    }
    const Array gradient = t.new_array(Library::Torch, found[i], strides);
    *gradient->torch_version = collected.additions_in_place(wanted[i]);
    answers.push_back(gradient);
  }
  return t.list(std::move(answers));
}

/// What arrives at each of `results` in the `directions`: the derivative by the seeds of what these were pulled back
/// to. torch keeps a tangent apart from all others, and where its tensor has its elements.
V pushed_by_torch(TraceRun& t, const V& pulled, const V& directions, const V& seeds, const V& results) {
  Tracer& tracer = t;
  const std::vector<V> from = tracer.sequence_items(pulled), given = tracer.sequence_items(directions);
  std::vector<ValueId> of, along, wanted;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Array gradient = array_of(from[i]), direction = tensor_of(given[i], "a tangent");
    if (direction->dtype != gradient->dtype || !same_shape(t, direction->shape, gradient->shape))
      leave("a tangent of another type");
    of.push_back(t.read(*gradient));
    along.push_back(reshape(t, t.read(*direction), gradient->shape));
  }
  for (const V& seed : tracer.sequence_items(seeds)) wanted.push_back(t.read(*array_of(seed)));
  std::vector<ValueId> found;
  derive_in_graph(t, [&] { found = add_gradients(t.graph(), wanted, of, along); });
  derive_again(t);
  const std::vector<V> likes = tracer.sequence_items(results);
  std::vector<V> answers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Array like = array_of(likes[i]);
    const ValueId tangent = found[i].valid() ? found[i] : full(t, like->dtype, Scalar(0.0), like->shape);
    answers.push_back(t.new_array(Library::Torch, tangent, strides_like(t, like)));
  }
  return t.list(std::move(answers));
}

/// Whether the tensor was made in the function, or is a view of such a one by operations that have no library call.
bool is_of_function(const ArrayValue& array) {
  const FakeStorage& storage = *array.storage;
  return !storage.input_array && !storage.made_as_view && !array.detached && array.is_view == !array.view.empty() &&
         std::none_of(array.view.begin(), array.view.end(),
                      [](const ViewStep& step) { return step.op == Op::extern_call; });
}

/// The tensors whose memory these show, from their first element on.
V memory_of(TraceRun& t, const V& tensors) {
  Tracer& tracer = t;
  std::vector<V> answers;
  for (const V& tensor : tracer.sequence_items(tensors)) {
    const Array array = tensor_of(tensor, "a result");
    if (!is_of_function(*array)) leave("a function that returns a view");
    answers.push_back(array->view.empty()
                          ? tensor
                          : V(t.new_array(Library::Torch, array->storage->contents, array->storage->strides)));
  }
  return t.list(std::move(answers));
}

/// The view `like` of other memory, which has an axis of examples in front of it if there is a `count`.
Array shown(TraceRun& t, const Array& memory, const ArrayValue& like, const std::optional<SymDim>& count) {
  const auto of_all = [&](auto sizes, const SymDim& first) {
    if (count) sizes.insert(sizes.begin(), first);
    return sizes;
  };
  // What a gradient passes on its way through views is known; of others only the last is seen.
  const std::size_t known = like.viewed ? like.view.size() - 1 : 0;
  Array view = known ? shown(t, memory, *like.viewed, count) : memory;
  for (std::size_t i = known; i < like.view.size(); ++i) {
    const ViewStep& one = like.view[i];
    const Dims after = of_all(one.shape_after, count.value_or(SymDim(1)));
    ViewStep step{one.op, count ? attrs_of_all(one.attrs, *count) : one.attrs,
                  of_all(one.shape_before, count.value_or(SymDim(1))), after};
    const bool last = i + 1 == like.view.size();
    Strides strides = last ? of_all(like.strides, count ? memory->strides[0] : SymDim(0)) : row_major(after);
    view = t.new_view(view, std::move(step), after, std::move(strides), like.offset);
  }
  return view;
}

/// What is to `all` as `like` is to its memory: the same views, one axis further if `all` is of all examples.
V shown_as(TraceRun& t, const V& all, const V& like, const V& of_examples) {
  const Array memory = array_of(all), array = array_of(like);
  return shown(t, memory, *array, t.truth(of_examples) ? std::optional(memory->shape[0]) : std::nullopt);
}

/// A result that was computed while gradients were recorded, where they are not.
V constant_result(TraceRun& t, const V& value) {
  const Array array = array_of(value);
  if (!array || array->source || array->library != Library::Torch || !t.requires_gradient(*array)) return value;
  if (!array->view.empty()) leave("a function that returns a view, where nothing is recorded");
  return t.new_array(Library::Torch, stopped(t, t.read(*array)), array->strides);
}

/// Whether every tensor lies as one example after the other, each of them row-major.
V lies_by_examples(TraceRun& t, const V& tensors, const V& axes) {
  Tracer& tracer = t;
  const std::vector<V> all = tracer.sequence_items(tensors), along = tracer.sequence_items(axes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Array array = array_of(all[i]);
    const auto axis = t.constant_int(along[i]);
    if (!array || array->library != Library::Torch || !axis || *axis != 0 ||
        array->strides != row_major(array->shape))
      return t.boolean(false);
  }
  return t.boolean(true);
}

/// The matrix that one vector of each example is multiplied by is the same for all: torch makes that one product of
/// matrices, whose columns are the examples. Not among what derivatives added, which lies by rules of its own
/// (docs/gradients.md).
bool has_columns_of_examples(TraceRun& t, std::size_t first) {
  for (std::size_t i = first; i < t.graph().nodes.size(); ++i) {
    const Node& node = t.graph().nodes[i];
    if (node.op != Op::matmul || t.transforms->is_derived(i)) continue;
    if (!depends_on_example(t, node.operands[0]) && depends_on_example(t, node.operands[1])) return true;
  }
  return false;
}

/// The batch whose function is being traced.
TransformLedger::Batch& innermost(TraceRun& t) {
  const auto open = std::find_if(t.transforms->batches.rbegin(), t.transforms->batches.rend(),
                                 [](const TransformLedger::Batch& batch) { return !batch.ended; });
  FJ_CHECK(open != t.transforms->batches.rend(), "a batch that is open");
  return *open;
}

/// A value without an example that was computed since: torch takes numbers for one of each example where they were made
/// in the likeness of one (`torch.zeros_like`), which the graph doesn't tell from others.
void require_same_for_all(TraceRun& t, ValueId value, std::size_t first) {
  std::set<ValueId> needed{value};
  for (std::size_t i = t.graph().nodes.size(); i-- > first;) {
    const Node& node = t.graph().nodes[i];
    if (std::none_of(node.results.begin(), node.results.end(), [&](ValueId result) { return needed.count(result); }))
      continue;
    if (node.operands.empty()) leave("a result that is the same for all examples, and made of numbers");
    needed.insert(node.operands.begin(), node.operands.end());
  }
}

/// Which results depend on the example of this batch. The memory of each is its own, and lies as torch has it.
V batched_results(TraceRun& t, const V& results) {
  Tracer& tracer = t;
  const TransformLedger::OfTorch& open = t.transforms->of_torch.back();
  std::vector<V> answers;
  for (const V& result : tracer.sequence_items(results)) {
    const Array array = tensor_of(result, "a result");
    const bool depends = innermost(t).dependence.depends(t.read(*array));
    answers.push_back(t.boolean(depends));
    if (!depends) {
      if (!array->storage->input_array && array->number >= open.before.values)
        require_same_for_all(t, t.read(*array), open.nodes);
      continue;
    }
    const FakeStorage& storage = *array->storage;
    if (!is_of_function(*array) || storage.batch_depth != t.transforms->depth) leave("a function that returns a view");
    if (storage.strides != row_major(storage.shape)) leave("a result that is not row-major");
    if (!storage.shape.empty() && has_columns_of_examples(t, open.nodes))
      leave("a product by a matrix that is the same for all examples, which lie in its columns");
  }
  return t.list(std::move(answers));
}

bool is_own(const ArrayValue& array) {
  return array.library == Library::Torch && !array.source && !array.storage->input_array && array.view.empty() &&
         !array.is_view;
}

/// Whether a list has tensors alone that show no memory but their own, each another one and none of those `beside`, and
/// unless `gradients` none that needs a gradient.
V own_tensors(TraceRun& t, const V& values, const V& beside, const V& gradients) {
  Tracer& tracer = t;
  std::set<const FakeStorage*> memory;
  for (const V& value : tracer.sequence_items(beside))
    if (const Array array = array_of(value)) memory.insert(array->storage.get());
  for (const V& value : tracer.sequence_items(values)) {
    const Array array = array_of(value);
    if (!array || !is_own(*array) || !memory.insert(array->storage.get()).second) return t.boolean(false);
    if (!tracer.truth(gradients) && t.requires_gradient(*array)) return t.boolean(false);
  }
  return t.boolean(true);
}

/// Whether two lists of results can be chosen from when both are computed: neither computation fails, draws numbers or
/// calls the library, and tensors at the same place are alike but for their elements.
V are_alternatives(TraceRun& t, const V& first, const V& second) {
  Tracer& tracer = t;
  for (std::size_t i = t.transforms->of_torch.back().nodes; i < t.graph().nodes.size(); ++i)
    if (!only_computes(t.graph().nodes[i])) return t.boolean(false);
  const std::vector<V> ones = tracer.sequence_items(first), others = tracer.sequence_items(second);
  if (ones.size() != others.size()) return t.boolean(false);
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const Array one = array_of(ones[i]), other = array_of(others[i]);
    if (!one || !is_own(*one) || t.requires_gradient(*one) || !other || !is_own(*other) || t.requires_gradient(*other))
      return t.boolean(false);
    if (one->dtype != other->dtype || one->shape != other->shape || one->strides != other->strides)
      return t.boolean(false);
  }
  return t.boolean(true);
}

/// A tensor whose axis of examples, the first one, is `axis` of the result: the memory stays as it is.
V with_axis_at(TraceRun& t, const V& value, const V& number) {
  const Array array = tensor_of(value, "a result");
  const int rank = array->rank();
  const auto given = t.constant_int(number);
  if (!given || *given < -rank || *given >= rank) leave("an axis that is out of range");
  const std::int64_t axis = *given < 0 ? *given + rank : *given;
  if (axis == 0) return value;
  Axes order;
  for (std::int64_t other = 1; other < rank; ++other) order.push_back(other);
  order.insert(order.begin() + axis, 0);
  return view_transpose(t, array, order);
}

}  // namespace

V torch_transform(TraceRun& t, const std::string& marker, const std::vector<V>& arguments) {
  if (marker == "function_begins") return begins(t, arguments.at(0), arguments.at(1));
  if (marker == "function_left") return left(t);
  if (marker == "function_ends") return ends(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "gradients_of_torch") return gradients_of(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "pushed_by_torch")
    return pushed_by_torch(t, arguments.at(0), arguments.at(1), arguments.at(2), arguments.at(3));
  if (marker == "writes_of")
    return t.integer(std::int64_t(tensor_of(arguments.at(0), "a result")->storage->version));
  if (marker == "memory_of") return memory_of(t, arguments.at(0));
  if (marker == "shown_as") return shown_as(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "constant_result") return constant_result(t, arguments.at(0));
  if (marker == "lies_by_examples") return lies_by_examples(t, arguments.at(0), arguments.at(1));
  if (marker == "batched_results") return batched_results(t, arguments.at(0));
  if (marker == "are_alternatives") return are_alternatives(t, arguments.at(0), arguments.at(1));
  if (marker == "own_tensors") return own_tensors(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "joins_branches") {
    const bool inside = t.transforms->depth > 0 || !t.transforms->of_torch.empty();
    return t.boolean((t.request.way || t.request.branches) && !inside);
  }
  if (marker == "with_axis_at") return with_axis_at(t, arguments.at(0), arguments.at(1));
  if (marker == "left_to_torch") leave(text_of(t.constant_object(arguments.at(0))));
  return nullptr;
}

void refuse_in_torch_transform(TraceRun& t, const std::string& what) {
  if (!t.transforms->of_torch.empty()) leave("a function that uses " + what);
}

void refuse_unrecorded_in_forward(TraceRun& t) {
  const auto& open = t.transforms->of_torch;
  if (std::any_of(open.begin(), open.end(), [](const TransformLedger::OfTorch& function) { return function.forward; }))
    leave("a function that is derived forwards, through what no_grad() hides from gradients");
}

PyObject* code_of_torch_transform(PyObject* callable) {
  if (!torch_module()) return nullptr;
  PyObject* const known = once([] {
    Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._support.torch_func"));
    PyObject* made = helpers ? PyObject_CallMethod(helpers.get(), "traced_instead", nullptr) : nullptr;
    PyErr_Clear();
    return made;
  });
  PyObject* found = known ? PyDict_GetItemWithError(known, callable) : nullptr;
  PyErr_Clear();
  return found;
}

}  // namespace fj
