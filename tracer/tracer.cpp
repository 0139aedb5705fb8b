/// The Tracer's public functions: what front ends see of the interpreter's state.
#include "tracer/tracer.h"

#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/interpreter/interpreter.h"
#include "tracer/values/numbers/constant_conditions.h"

namespace fj {

Graph& Tracer::graph() { return *impl_->graph; }
GuardSet& Tracer::guards() { return *impl_->guards; }
SourceTable& Tracer::sources() { return *impl_->sources; }
Location Tracer::location() const { return impl_->location(); }
std::string Tracer::function() const { return impl_->frames.empty() ? "" : text_of(impl_->frames.back()->co->co_qualname); }

void Tracer::note_asked_compiling() { impl_->asked_compiling = true; }

V Tracer::constant(Ref<> object) { return impl_->wrap_constant(impl_->keep(std::move(object)).get()); }
V Tracer::none() { return impl_->none; }
V Tracer::boolean(bool value) { return value ? impl_->true_value : impl_->false_value; }
V Tracer::integer(std::int64_t value) { return std::make_shared<ObjectValue>(Ref<>::steal(PyLong_FromLongLong(value))); }
V Tracer::integer(const SymDim& value) { return impl_->integer(value); }
V Tracer::real(double value) { return std::make_shared<ObjectValue>(Ref<>::steal(PyFloat_FromDouble(value))); }

V Tracer::string(std::string_view text) {
  return std::make_shared<ObjectValue>(Ref<>::steal(PyUnicode_FromStringAndSize(text.data(), text.size())));
}

V Tracer::tuple(std::vector<V> items) {
  auto value = std::make_shared<TupleValue>();
  value->items = std::move(items);
  return value;
}

V Tracer::list(std::vector<V> items) {
  auto value = std::make_shared<ListValue>();
  value->items = std::move(items);
  return value;
}

V Tracer::wrap(PyObject* object, SourceRef source) { return impl_->wrap(object, source); }
PyObject* Tracer::constant_object(const V& value) { return impl_->constant_object(value); }
Ref<> Tracer::constant_object(V&& value) { return impl_->constant_object(std::move(value)); }
bool Tracer::is_none(const V& value) { return impl_->is_none(value); }

std::optional<std::int64_t> Tracer::constant_int(const V& value) {
  if (auto* symbolic = as<SymIntValue>(value)) {
    // Asked for exactly this number: the trace is good for it only.
    if (impl_->graph->is_late(symbolic->expression))
      break_graph(BreakReason::DataDependentShape, "`" + impl_->source_text() + "` asks for a size that depends on data");
    const std::int64_t now = impl_->hint(symbolic->expression);
    if (!impl_->decide(symbolic->expression, Py_EQ, now)) return std::nullopt;
    return now;
  }
  // NumPy's code counts with arrays: `axes[0]`, axes an arange.
  if (auto* array = as<ArrayValue>(value); array && array->library == Library::Numpy && array->numpy_scalar && array->dtype == DType::I64)
    return constant_integer(*impl_->graph, read(*array));
  PyObject* object = as<ObjectValue>(value) && PyLong_Check(as<ObjectValue>(value)->object.get())
                         ? impl_->constant_object(value) : nullptr;
  if (!object || !(PyLong_CheckExact(object) || PyBool_Check(object))) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow) return std::nullopt;
  return number;
}

std::optional<SymDim> Tracer::int_expression(const V& value) { return impl_->int_expression(value); }

std::optional<double> Tracer::constant_float(const V& value) {
  if (V known = impl_->settled(value); known != value) return constant_float(known);
  auto* object = as<ObjectValue>(value);
  if (!object || !PyFloat_CheckExact(object->object.get()) || !impl_->guard_value(*object)) return std::nullopt;
  return PyFloat_AS_DOUBLE(object->object.get());
}

bool Tracer::turn(const V& tensor, const std::function<V()>& view) { return impl_->turn(tensor, view); }
bool Tracer::make_leaf(const V& tensor) { return impl_->make_leaf(tensor); }
ValueId Tracer::float_input(const V& value) { return impl_->float_input(value); }
V Tracer::changing_scalar(const V& value) { return impl_->changing_scalar(value); }
V Tracer::scalar_index(const V& value) { return impl_->scalar_index(value); }

bool Tracer::truth(const V& value) { return impl_->truth(value); }
PyTypeObject* Tracer::type_of(const V& value) { return impl_->type_of(value); }
std::vector<V> Tracer::sequence_items(const V& value) { return impl_->sequence_items(value); }
bool Tracer::decide(const SymDim& a, int comparison, const SymDim& b) { return impl_->decide(a, comparison, b); }

V Tracer::call(const V& callable, std::vector<V> positional, std::vector<std::pair<std::string, V>> keywords) {
  return impl_->call(callable, std::move(positional), std::move(keywords));
}

V Tracer::get_attribute(const V& owner, std::string_view name) {
  Ref<> text = impl_->keep(Ref<>::steal(PyUnicode_FromStringAndSize(name.data(), name.size())));
  V found = impl_->find_attribute(owner, text.get());
  if (!found) break_graph(BreakReason::ErrorWhileTracing, describe(owner) + " has no attribute '" + std::string(name) + "'");
  return found;
}

V Tracer::get_item(const V& container, const V& key) { return impl_->get_item(container, key); }
V Tracer::binary(int nb_op, const V& a, const V& b) { return impl_->binary(nb_op, a, b); }
V Tracer::compare(int comparison, const V& a, const V& b) { return impl_->compare(comparison, a, b); }

ValueId Tracer::read(const ArrayValue& array) {
  // Of these few of torch's functions have kernels, and which do changes from version to version: its own function answers.
  if (array.library == Library::Torch && is_late_unsigned(array.dtype)) break_graph(BreakReason::UnsupportedOperation, "a tensor of " + std::string(name(array.dtype)));
  if (array.storage->device != kHost && is_complex(array.dtype)) break_graph(BreakReason::UnsupportedOperation, "a complex tensor of " + device_text(array.storage->device));
  return impl_->read(array);
}

void Tracer::write(ArrayValue& array, ValueId value) { impl_->write(array, value); }
void Tracer::write_itself(ArrayValue& array) { impl_->write_itself(array); }

Tracer::Mark Tracer::mark() const { return impl_->mark(); }
bool Tracer::written_since(const Mark& mark) const { return impl_->written_since(mark); }

std::shared_ptr<ArrayValue> Tracer::new_array(Library library, ValueId value, std::optional<Strides> strides) {
  // What is computed under no_grad() or inference_mode() is a constant.
  if (library == Library::Torch && !impl_->modes.records() && impl_->requires_gradient(value)) value = impl_->stopped(value);
  // A copy that a gradient flows through is a value of its own: what is computed from it is not computed from the original alone.
  if (library == Library::Torch && impl_->requires_gradient(value)) value = impl_->apart(value);
  impl_->note_memory(value);
  const Type& type = impl_->graph->type(value);
  auto storage = std::make_shared<FakeStorage>();
  storage->device = library == Library::Torch ? impl_->made_on : kHost;
  // Of numbers of the host alone, or of arrays.
  if (storage->device != kHost || impl_->made_of_arrays) impl_->place_graph(storage->device);
  if (library == Library::Torch && impl_->scopes == 0 && impl_->on_device())
    break_graph(BreakReason::UnsupportedObject, "what is made here in a piece on " + device_text(*impl_->graph_device));
  storage->dtype = type.dtype;
  storage->shape = type.shape;
  storage->strides = strides ? *strides : contiguous_strides(type.shape);
  storage->contents = value;
  storage->batch_depth = impl_->batch_depth;
  storage->library = library;
  storage->inference = library == Library::Torch && impl_->modes.inference;
  storage->allocated_by_numpy = library == Library::Numpy;
  auto array = std::make_shared<ArrayValue>();
  array->library = library;
  array->dtype = storage->dtype;
  array->shape = storage->shape;
  array->strides = storage->strides;
  array->storage = storage;
  storage->owner = array;
  storage->torch_version = array->torch_version;
  impl_->note_array(*array);
  return array;
}

std::shared_ptr<ArrayValue> Tracer::new_view(const std::shared_ptr<ArrayValue>& base, ViewStep step, Dims shape, Strides strides,
                                             SymDim offset) {
  if (base->refused_since >= 0 && base->storage->written_without_gradient && impl_->modes.records() && impl_->requires_gradient(*base))
    break_graph(BreakReason::Gradient, "a view of a view that torch may refuse, since it was written under no_grad()");
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
  array->made_after = std::uint32_t(impl_->graph->value_count());
  if (base->is_view && base->library == Library::Torch && impl_->requires_gradient(*base)) {
    array->viewed = base;
    array->made_at = base->storage->version;
  }
  array->detached = base->detached;
  array->torch_version = base->torch_version;
  array->requires_grad = base->requires_grad;
  array->stops_gradient = base->stops_gradient || (!impl_->modes.records() && impl_->requires_gradient(*base));
  array->refused_since = base->refused_since;
  if (base->library == Library::Torch && !impl_->modes.records()) {
    array->view.back().recorded = false;
    if (array->refused_since < 0) array->refused_since = array->born;
  }
  if (base->library == Library::Torch && !base->storage->input_array) array->storage->views.push_back(array);
  array->writeable = base->writeable;
  array->crossed = base->crosses ? base : base->crossed;
  array->shown_read_only = base->shown_read_only;
  array->viewed_in_inference = base->viewed_in_inference ||
                               (impl_->modes.inference && !impl_->modes_outside().inference && !base->storage->inference && base->library == Library::Torch);
  return array;
}

void Tracer::round_as_library(const V& number) { impl_->round_as_library(number); }
void Tracer::round_as_library(ValueId number) { impl_->round_as_library(number); }
ValueId Tracer::checked(ValueId value, ValueId holds) { return impl_->checked(value, holds); }
V Tracer::number(const ArrayValue& array) { return impl_->number(array); }
void Tracer::backward(const Backward& call) { impl_->backward(call); }
std::vector<V> Tracer::grad(const Backward& call) { return impl_->grad(call); }
V Tracer::gradient_field(const V& tensor) { return impl_->gradient_field(tensor); }
bool Tracer::is_leaf(const V& tensor) { return impl_->is_leaf(tensor); }

void Tracer::note_torch() { impl_->note_torch(); }

void Tracer::composite(CompositeRule rule, std::vector<ValueId> operands, ValueId result, std::vector<ValueId> kept, Attrs attrs) {
  impl_->graph->composites.push_back({rule, std::move(operands), result, std::move(kept), std::move(attrs)});
}
void Tracer::also_saves(ValueId result, std::vector<ValueId> values) {
  std::vector<ValueId>& known = impl_->also_saved[result];
  known.insert(known.end(), values.begin(), values.end());
}
void Tracer::note_inner(ValueId value) { impl_->copies.inner.insert(value); }
bool Tracer::requires_gradient(const ArrayValue& array) { return impl_->requires_gradient(array); }
bool Tracer::requires_gradient(ValueId value) { return impl_->requires_gradient(value); }

}  // namespace fj
