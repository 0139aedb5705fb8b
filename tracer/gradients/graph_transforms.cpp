// Derivatives and batches of functions while they are traced: what the marked functions of framejit/_transforms.py
// mean.
//
// A transformation works on the graph as it stands. `watch` makes a value of its own from which a function computes,
// and `gradients` adds the nodes that lead back from a result to such values; `examples` makes one example out of an
// array of many, and `together` adds what was computed from it once more, for all of them. So they nest in any order,
// and what they make fuses with what is around it.
//
// The other half are branches on data. The outcome is not known while tracing, but it decides what the function is:
// `follow` takes the one of this call, computed by the reference evaluator, and notes the condition, which every run
// checks.
#include "tracer/gradients/graph_transforms.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "graph_ir/ops.h"
#include "graph_ir/rules/grad_rules.h"
#include "runtime/base/error.h"
#include "segment/autograd/extern_derivative.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/numpy/numpy.h"
#include "tracer/gradients/given_derivative.h"
#include "tracer/gradients/torch_transforms.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/nesting.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/modes.h"
#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/values/outside_objects.h"

namespace fj {

static const DenseArray* evaluated(TraceRun& t, ValueId value);

void derive_in_graph(TraceRun& t, const std::function<void()>& derive) {
  const std::size_t first = t.graph().nodes.size();
  try {
    derive();
    t.transforms->derived.emplace_back(first, t.graph().nodes.size());
  } catch (const NoDerivative& missing) {
    if (!missing.location.file.empty()) {
      t.break_location = missing.location;
      t.break_function = "a function that is derived";
    }
    const bool complex = gradient_rule(missing.op) != nullptr;
    break_graph(BreakReason::NoDerivativeRule, complex ? "complex numbers" : missing.subject);
  }
}

void derive_again(TraceRun& t) {
  if (t.externs->size() == 0) return;
  std::vector<bool> needs;
  for (std::uint32_t i = 0; i < t.graph().value_count(); ++i) needs.push_back(t.gradients->flow.needs({i}));
  add_derivatives_of_derivatives(t.graph(), *t.externs, needs);
}

namespace {

Array array_like(Tracer& tracer, const ArrayValue& like, ValueId value, std::optional<Strides> strides = std::nullopt) {
  Array array = tracer.new_array(like.library, value, std::move(strides));
  array->numpy_scalar = like.numpy_scalar && array->shape.empty();
  return array;
}

bool is_real(const ArrayValue& array) { return is_float(array.dtype); }

/// An array or number as an array; a float from outside as an input, since it will be another one in the next call.
Array as_array(TraceRun& t, const V& value) {
  if (Array array = array_of(value)) return array;
  if (const ValueId input = t.float_input(value, true); input.valid()) {
    Array array = t.new_array(Library::Numpy, input);
    array->numpy_scalar = true;
    return array;
  }
  Array array = numpy_array(t, value);
  if (array->shape.empty()) array->numpy_scalar = true;
  return array;
}

/// A node of its own with the same contents; the passes take it away.
ValueId own_value(Tracer& tracer, ValueId value) {
  Attrs attrs;
  attrs.set("shape", tracer.graph().type(value).shape);
  return tracer.graph().add(Op::reshape, {value}, std::move(attrs), tracer.location());
}

V watch(TraceRun& t, const V& leaf) {
  Array array = as_array(t, leaf);
  if (!is_real(*array)) refuse("a derivative with respect to " + describe(leaf));
  if (array->library == Library::Torch && !t.modes->now.grad)
    break_graph(BreakReason::Gradient, "a derivative under torch.no_grad()");
  const ValueId value = own_value(t, t.read(*array));
  t.gradients->flow.want(value);
  // Two arrays: the function may write into its own.
  const Array mark = array_like(t, *array, value);
  t.transforms->only_here.emplace(mark, "what a derivative is taken by, which another piece would not know");
  return t.tuple({array_like(t, *array, value, array->strides), mark});
}

V seeds(TraceRun& t, const V& values) {
  std::vector<V> marks;
  for (const V& value : t.sequence_items(values)) marks.push_back(as<TupleValue>(watch(t, value))->items[1]);
  return t.list(std::move(marks));
}

/// The array with its contents as they are now. What is no array can't be written into.
V kept(TraceRun& t, const V& leaf) {
  const Array array = array_of(leaf);
  return array ? V(array_like(t, *array, t.read(*array))) : leaf;
}

/// A transformed function as it is traced; a compiled one wherever it outlives the trace.
V traced(TraceRun& t, const V& function) {
  t.transforms->only_here.emplace(function, "a function that framejit made, and that has a graph of its own");
  return function;
}

std::vector<V> gradients(TraceRun& t, const V& values, const V& cotangents, const V& marks) {
  Tracer& tracer = t;
  const std::vector<V> results = tracer.sequence_items(values), given = tracer.sequence_items(cotangents);
  std::vector<ValueId> wanted, of, from;
  for (const V& mark : tracer.sequence_items(marks)) {
    if (!t.transforms->only_here.contains(mark))
      break_graph(BreakReason::NoDerivativeRule, "what was computed in another piece");
    wanted.push_back(tracer.read(*array_of(mark)));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    Array result = array_of(results[i]);
    if (!result) {
      // A number, which depends on nothing; what is no number at all is an error.
      if (!t.is_none(given[i])) as_array(t, given[i]);
      result = as_array(t, results[i]);
    }
    if (!is_real(*result)) refuse("a derivative of " + describe(results[i]));
    if (t.is_none(given[i])) {
      if (!result->shape.empty()) refuse("a gradient of " + describe(results[i]));
      from.push_back(constant(tracer, result->dtype, 1.0));
    } else {
      Array cotangent = as_array(t, given[i]);
      if (cotangent->dtype != result->dtype || !same_shape(tracer, cotangent->shape, result->shape))
        refuse("a cotangent that is " + describe(given[i]) + ", of " + describe(results[i]));
      from.push_back(reshape(tracer, tracer.read(*cotangent), result->shape));
    }
    of.push_back(tracer.read(*result));
  }
  std::vector<ValueId> found;
  derive_in_graph(t, [&] { found = add_gradients(tracer.graph(), wanted, of, from); });
  derive_again(t);
  std::vector<V> answers;
  const std::vector<V> all = tracer.sequence_items(marks);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Type type = tracer.graph().type(wanted[i]);
    const ValueId value = found[i].valid() ? found[i] : full(tracer, type.dtype, Scalar(0.0), type.shape);
    answers.push_back(array_like(tracer, *array_of(all[i]), value));
  }
  return answers;
}

// ---- a pullback that outlives the trace

/// The derivative of some results as a graph of its own, which is part of whatever trace calls it.
struct Pullback {
  Graph graph;                          // inputs: what was saved, then cotangents; outputs: the gradients there are
  std::vector<bool> reached;            // by what is derived by: has a gradient
  std::vector<Type> types;              // of what is derived by
  std::vector<std::pair<Library, bool>> kinds;  // and whether it is a NumPy scalar
  std::shared_ptr<const ExternTable> externs;   // whose handles the graph has
};
constexpr const char* kPullback = "framejit.pullback";

V linear(TraceRun& t, const V& values, const V& marks) {
  Tracer& tracer = t;
  auto made = std::make_unique<Pullback>();
  std::vector<ValueId> wanted, of;
  Library library = Library::Numpy;
  for (const V& mark : tracer.sequence_items(marks)) {
    const Array array = array_of(mark);
    if (array->library == Library::Torch) library = Library::Torch;
    wanted.push_back(tracer.read(*array));
    made->types.push_back(tracer.graph().type(wanted.back()));
    made->kinds.emplace_back(array->library, array->numpy_scalar);
  }
  for (const V& value : tracer.sequence_items(values)) {
    const Array array = as_array(t, value);
    if (!is_real(*array)) refuse("a derivative of " + describe(value));
    if (array->library == Library::Torch) library = Library::Torch;
    of.push_back(tracer.read(*array));
  }
  std::vector<ValueId> saved;
  derive_in_graph(t, [&] {
    const Joint joint = differentiate(tracer.graph(), wanted, of);
    saved = choose_saved(tracer.graph(), values_read_backward(joint), {});
    made->graph = backward_graph(joint, saved);
    for (ValueId gradient : joint.gradients) made->reached.push_back(gradient.valid());
  });
  // Sizes are bound by the trace: vjp is compiled for each.
  if (!made->graph.symbols.empty())
    break_graph(BreakReason::UnsupportedOperation, "sizes that vary, in the value of a pullback");
  made->externs = t.externs;
  Ref<> handle = t.keep(Ref<>::steal(PyCapsule_New(made.get(), kPullback, [](PyObject* self) {
    delete static_cast<Pullback*>(PyCapsule_GetPointer(self, kPullback));
  })));
  FJ_CHECK(handle, "no memory");
  made.release();
  std::vector<V> arrays;
  for (ValueId value : saved) arrays.push_back(tracer.new_array(library, value));
  return tracer.tuple({wrap_constant(t, handle.get()), tracer.list(std::move(arrays))});
}

/// The nodes of a pullback added to this graph.
V pulled_back(TraceRun& t, const V& handle, const V& saved, const V& cotangents) {
  Tracer& tracer = t;
  auto* object = as<ObjectValue>(handle);
  if (!object || !PyCapsule_IsValid(object->object.get(), kPullback)) refuse("a pullback that is " + describe(handle));
  if (object->source && object->source->kind != SourceKind::Constant)
    add_guard(t, GuardKind::Identity, object->source, object->object.get());
  const auto& pullback = *static_cast<const Pullback*>(PyCapsule_GetPointer(object->object.get(), kPullback));
  std::vector<V> given = tracer.sequence_items(saved), added = tracer.sequence_items(cotangents);
  given.insert(given.end(), added.begin(), added.end());
  FJ_CHECK(given.size() == pullback.graph.inputs.size(), "a pullback of other values");
  std::vector<ValueId> operands;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Array array = as_array(t, given[i]);
    const Type& expected = pullback.graph.type(pullback.graph.inputs[i].value);
    if (array->dtype != expected.dtype || !same_shape(tracer, array->shape, expected.shape))
      refuse("a cotangent that is " + describe(given[i]));
    ValueId value = tracer.read(*array);
    value = reshape(tracer, value, expected.shape);
    operands.push_back(value);
  }
  if (pullback.externs->size() && !t.uses_torch) t.externs->operand_library = pullback.externs->operand_library;
  std::unordered_map<std::int64_t, std::int64_t> handles;
  const std::vector<ValueId> found = add_graph(tracer.graph(), pullback.graph, operands, [&](std::int64_t call) {
    auto [known, fresh] = handles.try_emplace(call, 0);
    if (fresh) known->second = t.externs->add((*pullback.externs)[call]);
    return known->second;
  });
  derive_again(t);
  std::vector<V> answers;
  for (std::size_t i = 0, next = 0; i < pullback.types.size(); ++i) {
    const Type& type = pullback.types[i];
    const ValueId value = pullback.reached[i] ? found[next++] : full(tracer, type.dtype, Scalar(0.0), type.shape);
    const Array array = tracer.new_array(pullback.kinds[i].first, value);
    array->numpy_scalar = pullback.kinds[i].second;
    answers.push_back(array);
  }
  return tracer.list(answers);
}

// ---- checkpoints

V checkpoint_begins(TraceRun& t) {
  refuse_in_torch_transform(t, "a checkpoint");
  t.gradients->checkpoints.push_back({t.graph().nodes.size(), t.mark()});
  const V number = t.tuple({t.integer(std::int64_t(t.gradients->checkpoints.size()))});
  t.transforms->only_here.emplace(number, "a checkpoint that is open, which another piece would not know");
  return number;
}

/// Draws numbers that would be others if the call were made again as torch's checkpoint does it, which restores the
/// state of torch's default generator, if `restores`.
bool draws_others(const ExternCall& call, bool restores) {
  if (!call.random) return false;
  const auto is_generator = [](const auto& keyword) { return text_of(keyword.first.get()) == "generator"; };
  return !restores || call.library != Library::Torch ||
         std::any_of(call.keywords.begin(), call.keywords.end(), is_generator);
}

/// What was made since is computed again by backward, but the tensors among `results` are their own; of checkpoints
/// inside of others the outermost counts.
/// `called_again`: eager's backward calls the function, with its effects; `restores`: as in draws_others.
V checkpoint_ends(TraceRun& t, const V& number, const V& results, const V& called_again, const V& restores) {
  if (!t.transforms->only_here.contains(number)) return t.none();  // it began in another piece
  const std::optional<std::int64_t> index = t.constant_int(as<TupleValue>(number)->items.at(0));
  FJ_CHECK(index, "a checkpoint's number");
  const GradientLedger::Checkpoint& checkpoint = t.gradients->checkpoints.at(std::size_t(*index) - 1);
  bool derived = false, repeatable = !t.written_since(checkpoint.before);
  for (std::size_t i = checkpoint.nodes; i < t.graph().nodes.size(); ++i) {
    const Node& node = t.graph().nodes[i];
    if (node.op == Op::extern_call && repeatable)
      repeatable = !draws_others((*t.externs)[node.attrs.get<std::int64_t>("handle")], t.truth(restores));
    for (ValueId result : node.results) {
      t.graph().checkpoints[result] = int(*index);
      derived = derived || t.gradients->flow.needs(result);
    }
  }
  if (derived && !repeatable && t.truth(called_again))
    break_graph(BreakReason::Gradient,
                "a checkpoint of a function that writes or draws numbers, which backward does again");
  // The tensors that are returned are another value than what is computed again: they may be written.
  for (const V& value : static_cast<Tracer&>(t).sequence_items(results)) {
    const Array array = array_of(value);
    if (!array || array->library != Library::Torch || !t.requires_gradient(*array)) continue;
    FakeStorage& storage = *array->storage;
    if (!t.graph().checkpoints.count(storage.contents)) continue;
    t.gradients->in_memory.erase(storage.contents);
    storage.contents = same_again(t, storage.contents);
    array->contents_version = -1;
    t.graph().checkpoints[storage.contents] = int(*index);
    t.gradients->in_memory.insert(storage.contents);
    t.gradients->copies.maps.insert(storage.contents);
  }
  return t.none();
}

/// The identity matrix with its columns in the shape of `value`: one cotangent (or tangent) after the other.
V basis(TraceRun& t, const V& value) {
  Array array = as_array(t, value);
  const SymDim size = product(array->shape);
  Dims shape{size};
  shape.insert(shape.end(), array->shape.begin(), array->shape.end());
  return t.new_array(array->library, reshape(t, eye(t, array->dtype, size, size, 0), shape));
}

std::int64_t axis_of(TraceRun& t, const V& value, int rank) {
  std::optional<std::int64_t> axis = t.constant_int(value);
  if (!axis || *axis < -rank || *axis >= rank) refuse("an axis that is out of range");
  return *axis < 0 ? *axis + rank : *axis;
}

/// The number of the batch, and one example of each array.
V examples(TraceRun& t, const V& arrays, const V& axes) {
  Tracer& tracer = t;
  const std::vector<V> leaves = tracer.sequence_items(arrays), along = tracer.sequence_items(axes);
  std::vector<Batched> batched;
  std::vector<V> answers;
  std::optional<SymDim> count;
  const std::size_t first = t.graph().nodes.size();
  ++t.transforms->depth;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Array array = as_array(t, leaves[i]);
    const std::int64_t axis = axis_of(t, along[i], array->rank());
    Axes order{axis};
    for (std::int64_t other = 0; other < array->rank(); ++other)
      if (other != axis) order.push_back(other);
    ValueId all = transpose(tracer, tracer.read(*array), order);
    Dims wide = tracer.graph().type(all).shape;
    if (!count) count = wide[0];
    if (!t.decide(wide[0], Py_EQ, *count) || !t.decide(wide[0], Py_GT, 0))
      refuse("axes of other sizes, or none, to batch over");
    wide[0] = *count;
    all = reshape(tracer, all, wide);
    const Dims shape(wide.begin() + 1, wide.end());
    Attrs attrs;
    attrs.set("shape", shape);
    const ValueId one =
        tracer.graph().add(Op::reshape, {slice(tracer, all, 0, 0, 1)}, std::move(attrs), tracer.location());
    batched.push_back({one, all});
    Array example = tracer.new_array(array->library, one);
    example->numpy_scalar = array->library == Library::Numpy && shape.empty();
    answers.push_back(example);
  }
  std::vector<ValueId> ones;
  for (const Batched& pair : batched) ones.push_back(pair.example);
  t.transforms->batches.push_back({std::move(batched), Dependence(tracer.graph(), ones), false, first});
  return tracer.tuple({t.integer(std::int64_t(t.transforms->batches.size()) - 1), tracer.list(answers)});
}

TransformLedger::Batch& open_batch(TraceRun& t, const V& number) {
  const std::optional<std::int64_t> index = t.constant_int(number);
  FJ_CHECK(index && *index >= 0 && std::size_t(*index) < t.transforms->batches.size() &&
               !t.transforms->batches[std::size_t(*index)].ended,
           "a batch that is open");
  return t.transforms->batches[std::size_t(*index)];
}

/// An exception leaves the function that is batched.
V left(TraceRun& t, const V& number) {
  open_batch(t, number).ended = true;
  --t.transforms->depth;
  return t.none();
}

/// With arrays in the place of numbers.
ExternStructure of_arrays(ExternStructure structure) {
  if (structure.kind == ExternStructure::Kind::Number) structure.kind = ExternStructure::Kind::Array;
  for (ExternStructure& item : structure.items) item = of_arrays(std::move(item));
  return structure;
}

/// A library call that takes all examples at once.
std::optional<std::int64_t> call_of_all(TraceRun& t, std::int64_t handle, const SymDim& count) {
  ExternCall call = (*t.externs)[handle];
  if (!call.stacked) return std::nullopt;
  if (call.of_all) call.callable = call.of_all;
  for (ExternResult& result : call.results) {
    result.shape.insert(result.shape.begin(), count);
    result.strides = row_major(result.shape);
  }
  call.structure = of_arrays(std::move(call.structure));
  return t.externs->add(std::move(call));
}

std::vector<V> together(TraceRun& t, const V& number, const V& values, const V& axes) {
  Tracer& tracer = t;
  TransformLedger::Batch* batch = &open_batch(t, number);
  const std::vector<V> results = tracer.sequence_items(values), along = tracer.sequence_items(axes);
  std::vector<Array> arrays;
  std::vector<ValueId> ones;
  for (const V& result : results) {
    arrays.push_back(as_array(t, result));
    ones.push_back(tracer.read(*arrays.back()));
  }
  const std::size_t first = t.graph().nodes.size();
  std::vector<ValueId> all;
  try {
    all = add_batched(tracer.graph(), batch->examples, ones, [&](std::int64_t handle, const SymDim& count) {
      return call_of_all(t, handle, count);
    });
  } catch (const NoBatch& missing) {
    if (!missing.location.file.empty()) {
      t.break_location = missing.location;
      t.break_function = "a function that is batched";
    }
    break_graph(BreakReason::OneExample, missing.what());
  }
  bool products = false;  // beside those of derivatives
  for (std::size_t i = batch->nodes; i < first; ++i)
    products = products || (t.graph().nodes[i].op == Op::matmul && !t.transforms->is_derived(i));
  if (!products) t.transforms->derived.emplace_back(first, t.graph().nodes.size());
  batch->ended = true;
  --t.transforms->depth;
  const SymDim count = tracer.graph().type(batch->examples[0].all).shape[0];
  std::vector<V> answers;
  for (std::size_t i = 0; i < results.size(); ++i) {
    ValueId value = all[i];
    if (t.is_none(along[i])) {
      if (value.valid())
        break_graph(BreakReason::OneExample, "a result that differs between examples, and whose out_axes is None");
      answers.push_back(results[i]);
      continue;
    }
    if (!value.valid()) {
      Dims wide{count};
      wide.insert(wide.end(), arrays[i]->shape.begin(), arrays[i]->shape.end());
      value = broadcast_to(tracer, ones[i], wide);
    }
    const int rank = arrays[i]->rank() + 1;
    const std::int64_t axis = axis_of(t, along[i], rank);
    Axes order;
    for (std::int64_t other = 1; other < rank; ++other) order.push_back(other);
    order.insert(order.begin() + axis, 0);
    answers.push_back(tracer.new_array(arrays[i]->library, transpose(tracer, value, order)));
  }
  return answers;
}

}  // namespace

V transform(TraceRun& t, const std::string& marker, const std::vector<V>& arguments) {
  const DeviceScope scope(t, arguments);
  if (marker == "watch") return watch(t, arguments.at(0));
  if (marker == "gradients") return t.list(gradients(t, arguments.at(0), arguments.at(1), arguments.at(2)));
  if (marker == "linear") return linear(t, arguments.at(0), arguments.at(1));
  if (marker == "pulled_back") return pulled_back(t, arguments.at(0), arguments.at(1), arguments.at(2));
  if (marker == "basis") return basis(t, arguments.at(0));
  if (marker == "seeds") return seeds(t, arguments.at(0));
  if (marker == "kept") return kept(t, arguments.at(0));
  if (marker == "traced") return traced(t, arguments.at(0));
  if (marker == "checkpoint_begins") return checkpoint_begins(t);
  if (marker == "checkpoint_ends")
    return checkpoint_ends(t, arguments.at(0), arguments.at(1), arguments.at(2), arguments.at(3));
  if (marker == "examples") return examples(t, arguments.at(0), arguments.at(1));
  if (marker == "leave_to_torch")
    break_graph(BreakReason::Gradient, "a derivative in Python that " + text_of(t.constant_object(arguments.at(0))));
  if (marker == "derived_by")
    return derived_by(t, arguments.at(0), arguments.at(1), arguments.at(2), arguments.at(3), arguments.at(4),
                      arguments.at(5));
  if (marker == "left") return left(t, arguments.at(0));
  if (marker == "together") return t.list(together(t, arguments.at(0), arguments.at(1), arguments.at(2)));
  return nullptr;
}

bool is_transformed(TraceRun& t, const V& value) {
  switch (value->kind) {
    case ValueKind::Array: {
      const ArrayValue& array = *as<ArrayValue>(value);
      if (array.library != Library::Numpy || (!t.gradients->flow.wants_any() && t.transforms->depth == 0)) return false;
      const ValueId contents = t.read(array);
      return t.gradients->flow.needs(contents) || depends_on_example(t, contents);
    }
    case ValueKind::Tuple: case ValueKind::List: {
      const Nesting nesting;
      const std::vector<V> items = static_cast<Tracer&>(t).sequence_items(value);
      return std::any_of(items.begin(), items.end(), [&](const V& item) { return is_transformed(t, item); });
    }
    default: return false;
  }
}

bool depends_on_example(TraceRun& t, ValueId value) {
  return std::any_of(t.transforms->batches.begin(), t.transforms->batches.end(),
                     [&](TransformLedger::Batch& batch) { return !batch.ended && batch.dependence.depends(value); });
}

void check_example(TraceRun& t, ValueId value) {
  for (TransformLedger::Batch& batch : t.transforms->batches) {
    if (!batch.ended || !batch.dependence.depends(value)) continue;
    if (!t.frames.empty())
      break_graph(BreakReason::OneExample,
                  "`" + t.source_text() + "` uses a value of one example after the function that was batched");
    for (const Node& node : t.graph().nodes)
      if (std::find(node.results.begin(), node.results.end(), value) != node.results.end())
        t.break_location = node.location;
    t.break_function = "a function that is batched";
    break_graph(BreakReason::OneExample, "a value of one example is kept after the function that was batched");
  }
}

// ---- branches on data

namespace {

/// The contents of an array or float; nothing if they can't be read.
std::optional<DenseArray> contents_of(PyObject* object) {
  if (PyFloat_Check(object)) return scalar_array(DType::F64, PyFloat_AS_DOUBLE(object));
  const ArrayInfo info = describe(object);
  if (!info.unsupported.empty() || info.device != kHost) return std::nullopt;
  DenseArray array(info.dtype, info.shape);
  const std::size_t size = size_in_bytes(info.dtype);
  std::vector<std::int64_t> index(info.shape.size(), 0);
  for (std::int64_t i = 0, count = array.element_count(); i < count; ++i) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * info.strides[axis];
    std::memcpy(array.element(i), static_cast<const std::byte*>(info.data) + offset * std::int64_t(size), size);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < info.shape[axis]) break;
      index[axis] = 0;
    }
  }
  return array;
}

}  // namespace

/// Null: it depends on what only a library can compute.
const DenseArray* evaluated(TraceRun& t, ValueId value) {
  std::vector<bool> needed(t.graph().value_count(), false);
  needed[value.index] = true;
  std::vector<std::int64_t> symbols = symbol_hints(t.graph().symbols);
  std::map<SymbolId, ValueId> counted;
  for (const Node& node : t.graph().nodes) {
    if (!counts_size(node.op)) continue;
    const SymbolId symbol = node.attrs.get<SymDim>("count").symbols()[0];
    counted.emplace(symbol, node.results[0]);
    const auto known = t.transforms->evaluated.find(node.results[0].index);
    if (known == t.transforms->evaluated.end()) continue;
    symbols[symbol.index] = node.op == Op::as_size ? std::get<std::int64_t>(known->second.scalar(0))
                                                   : known->second.element_count();
  }
  if (!evaluate_definitions(t.graph(), symbols)) return nullptr;
  std::vector<const Node*> order;
  for (std::size_t i = t.graph().nodes.size(); i-- > 0;) {
    const Node& node = t.graph().nodes[i];
    bool wanted = false;
    for (ValueId result : node.results)
      wanted = wanted || (needed[result.index] && !t.transforms->evaluated.contains(result.index));
    if (!wanted) continue;
    if (node.op == Op::extern_call) return nullptr;
    order.push_back(&node);
    for (ValueId operand : node.operands) needed[operand.index] = true;
    if (counted.empty()) continue;
    for (SymbolId symbol : symbols_used(t.graph(), node))
      if (auto found = counted.find(symbol); found != counted.end()) needed[found->second.index] = true;
  }
  for (std::size_t i = 0; i < t.graph().inputs.size(); ++i) {
    const std::uint32_t index = t.graph().inputs[i].value.index;
    if (!needed[index] || t.transforms->evaluated.contains(index)) continue;
    Ref<> object = t.sources().fetch(t.inputs->sources[i], t.request.values);
    std::optional<DenseArray> contents = object ? contents_of(object.get()) : std::nullopt;
    PyErr_Clear();
    if (!contents) return nullptr;
    t.transforms->evaluated.emplace(index, std::move(*contents));
  }
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    std::vector<const DenseArray*> operands;
    for (ValueId operand : (*node)->operands) operands.push_back(&t.transforms->evaluated.at(operand.index));
    DenseArray result;
    if (count_size(t.graph(), **node, operands, symbols)) return nullptr;
    if (evaluate(t.graph(), **node, operands, symbols, result) & (kIndexOutOfRange | kIntegerDivisionByZero))
      return nullptr;
    t.transforms->evaluated.emplace((*node)->results[0].index, std::move(result));
  }
  return &t.transforms->evaluated.at(value.index);
}

ValueId condition_of(TraceRun& t, const ArrayValue& array) {
  for (const SymDim& size : array.shape)
    if (!t.decide(size, Py_EQ, 1)) refuse("the truth value of an array with more than one element");
  const ValueId condition = reshape(t, t.read(array), {});
  return array.dtype == DType::Bool ? condition : emit(t, Op::ne, {condition, constant_like(t, condition, 0)});
}

bool follow(TraceRun& t, const ArrayValue& array) {
  if (array.storage->device != kHost || t.placement->on_device())
    break_graph(BreakReason::BranchOnData, "`" + t.source_text() + "` branches in a piece on " +
                                               device_text(t.placement->graph.value_or(array.storage->device)));
  const ValueId condition = condition_of(t, array);
  if (depends_on_example(t, condition))
    break_graph(BreakReason::OneExample, "`" + t.source_text() + "` branches on each example by itself");
  // Where nothing says how it goes, a run will.
  const bool outcome = outcome_of(t, condition).value_or(false);
  t.transforms->followed.push_back({condition, outcome});
  return outcome;
}

std::optional<bool> outcome_of(TraceRun& t, ValueId condition) {
  if (t.transforms->followed.size() < t.request.decisions.size())
    return t.request.decisions[t.transforms->followed.size()];
  const DenseArray* value = evaluated(t, condition);
  return value ? std::optional(std::get<bool>(value->scalar(0))) : std::nullopt;
}

}  // namespace fj
