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

/// A function is called. `derived`: the tensors its derivative is taken by.
V begins(TraceRun& t, const V& derived) {
  if (t.modes->now.inference) leave("a function in inference mode");
  for (const V& leaf : static_cast<Tracer&>(t).sequence_items(derived)) {
    const Array array = tensor_of(leaf, "an argument");
    if (!is_float(array->dtype)) leave("an argument of " + std::string(name(array->dtype)));
  }
  t.transforms->of_torch.push_back({t.mark(), t.graph().nodes.size(), t.effects->effects().size()});
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

/// The function has returned, with `results` among its values. `inside`: tensors that it was given and nobody else has.
/// `ours`: lists that this file writes.
V ends(TraceRun& t, const V& inside, const V& results, const V& ours) {
  Tracer& tracer = t;
  std::set<const Value*> known;
  for (const V& list : tracer.sequence_items(ours)) known.insert(list.get());
  const TransformLedger::OfTorch& open = t.transforms->of_torch.back();
  if (t.effects->written_since(open.before, known)) leave("a function that writes into what was there before");
  if (!names_stay(t, open, known)) leave("a function that gives what was there before another attribute or item");
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
      from.push_back(t.read(*cotangent));
    }
    of.push_back(t.read(*result));
  }
  std::vector<ValueId> found;
  std::vector<BackwardStep> steps;
  derive_in_graph(t, [&] { found = add_gradients(t.graph(), wanted, of, from, &steps); });
  derive_again(t);
  const Collected collected(t.graph(), steps, t.gradients->copies.inner);
  std::vector<V> answers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Type type = t.graph().type(wanted[i]);
    const Array& like = arrays[i];
    const Strides strides = is_dense(t, like->shape, like->strides) ? like->strides : row_major(like->shape);
    if (!found[i].valid()) {
      answers.push_back(t.new_array(Library::Torch, full(t, type.dtype, Scalar(0.0), type.shape), strides));
      continue;
    }
    if (std::find(from.begin(), from.end(), found[i]) != from.end()) leave("a gradient that is the cotangent itself");
    if (const int views = collected.views_that_repeat(found[i]); views > 0) {
      if (!t.transforms->batches.empty()) leave("a gradient that repeats elements, beside vmap");
      answers.push_back(repeated(t, found[i], views));
      continue;
    }
    const Array gradient = t.new_array(Library::Torch, found[i], strides);
    *gradient->torch_version = collected.additions_in_place(wanted[i]);
    answers.push_back(gradient);
  }
  return t.list(std::move(answers));
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
/// matrices, whose columns are the examples.
bool has_columns_of_examples(TraceRun& t, std::size_t first) {
  for (std::size_t i = first; i < t.graph().nodes.size(); ++i) {
    const Node& node = t.graph().nodes[i];
    if (node.op != Op::matmul) continue;
    if (!depends_on_example(t, node.operands[0]) && depends_on_example(t, node.operands[1])) return true;
  }
  return false;
}

/// Which results depend on the example. The memory of each is its own, and lies as torch has it.
V batched_results(TraceRun& t, const V& results) {
  Tracer& tracer = t;
  const TransformLedger::OfTorch& open = t.transforms->of_torch.back();
  std::vector<V> answers;
  for (const V& result : tracer.sequence_items(results)) {
    const Array array = tensor_of(result, "a result");
    const bool depends = depends_on_example(t, t.read(*array));
    answers.push_back(t.boolean(depends));
    if (!depends) continue;
    const FakeStorage& storage = *array->storage;
    if (storage.input_array || !array->view.empty() || array->is_view || storage.made_as_view ||
        storage.batch_depth != t.transforms->depth)
      leave("a function that returns a view");
    if (array->strides != row_major(array->shape)) leave("a result that is not row-major");
    if (!array->shape.empty() && has_columns_of_examples(t, open.nodes))
      leave("a product by a matrix that is the same for all examples, which lie in its columns");
  }
  return t.list(std::move(answers));
}

/// Whether two lists of results can be chosen from when both are computed: neither computation fails, draws numbers or
/// calls the library, and tensors at the same place are alike but for their elements.
V are_alternatives(TraceRun& t, const V& first, const V& second) {
  Tracer& tracer = t;
  for (std::size_t i = t.transforms->of_torch.back().nodes; i < t.graph().nodes.size(); ++i)
    if (!only_computes(t.graph().nodes[i])) return t.boolean(false);
  const std::vector<V> ones = tracer.sequence_items(first), others = tracer.sequence_items(second);
  if (ones.size() != others.size()) return t.boolean(false);
  const auto is_own = [&](const Array& array) {
    return array && array->library == Library::Torch && !array->storage->input_array && array->view.empty() &&
           !array->is_view && !t.requires_gradient(*array);
  };
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const Array one = array_of(ones[i]), other = array_of(others[i]);
    if (!is_own(one) || !is_own(other) || one->dtype != other->dtype || one->shape != other->shape ||
        one->strides != other->strides)
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
  Strides strides;
  for (std::int64_t from : order) strides.push_back(array->strides[std::size_t(from)]);
  return t.new_array(Library::Torch, transpose(t, t.read(*array), order), std::move(strides));
}

}  // namespace

V torch_transform(TraceRun& t, const std::string& marker, const std::vector<V>& arguments) {
  if (marker == "function_begins") return begins(t, arguments.at(0));
  if (marker == "function_left") return left(t);
  if (marker == "function_ends") return ends(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "gradients_of_torch") return gradients_of(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "constant_result") return constant_result(t, arguments.at(0));
  if (marker == "lies_by_examples") return lies_by_examples(t, arguments.at(0), arguments.at(1));
  if (marker == "batched_results") return batched_results(t, arguments.at(0));
  if (marker == "are_alternatives") return are_alternatives(t, arguments.at(0), arguments.at(1));
  if (marker == "with_axis_at") return with_axis_at(t, arguments.at(0), arguments.at(1));
  if (marker == "left_to_torch") leave(text_of(t.constant_object(arguments.at(0))));
  return nullptr;
}

void refuse_in_torch_transform(TraceRun& t, const std::string& what) {
  if (!t.transforms->of_torch.empty()) leave("a function that uses " + what);
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
