// Arguments and results of a call as values of the graph. What is neither an array nor plain data leaves the call
// unnoted: the graph then has the operations that it is made of.
#include "tracer/library_calls/call_recorder.h"

#include <cstring>

#include "cpython/objects.h"
#include "tracer/nesting.h"
#include "tracer/values/fake_arrays.h"

namespace fj {

Ref<> recorded_function(const V& callable) {
  if (auto* method = as<BuiltinValue>(callable)) {
    if (!method->owner || method->owner->kind != ValueKind::Array) return {};
    const bool torch = as<ArrayValue>(method->owner)->library == Library::Torch;
    PyObject* module = torch ? torch_module() : numpy_module();
    Ref<> type = Ref<>::steal(PyObject_GetAttrString(module, torch ? "Tensor" : "ndarray"));
    Ref<> found = type ? Ref<>::steal(PyObject_GetAttrString(type.get(), method->name.c_str())) : Ref<>();
    PyErr_Clear();
    return found;
  }
  auto* known = as<ObjectValue>(callable);
  PyObject* object = known ? known->object.get() : nullptr;
  if (!object) return {};
  const char* type = Py_TYPE(object)->tp_name;
  if (!PyCFunction_Check(object) && !PyFunction_Check(object) && Py_TYPE(object) != &PyMethodDescr_Type &&
      std::strcmp(type, "numpy.ufunc") && std::strcmp(type, "numpy._ArrayFunctionDispatcher"))
    return {};
  Ref<> module = Ref<>::steal(PyObject_GetAttrString(object, "__module__"));
  PyErr_Clear();
  const std::string place = module && PyUnicode_Check(module.get()) ? text_of(module.get()) : "";
  const bool of_torch = PyCFunction_Check(object) && place.empty();  // torch.relu says nothing
  if (place.rfind("torch.nn.modules", 0) == 0) return {};           // the machinery around forward
  if (place.rfind("torch", 0) != 0 && place.rfind("numpy", 0) != 0 && !of_torch &&
      Py_TYPE(object) != &PyMethodDescr_Type && std::strcmp(type, "numpy.ufunc"))
    return {};
  return Ref<>::borrow(object);
}

CallRecorder::CallRecorder(TraceRun& t, Ref<> function, const V& callable, const std::vector<V>& positional,
                           const Keywords& keywords)
    : t_(t) {
  call_.function = std::move(function);
  call_.location = t.location();
  const auto add = [&](const V& value) {
    std::optional<ExternArgument> made = wanted_ ? argument(value) : std::nullopt;
    wanted_ = wanted_ && made;
    return made.value_or(ExternArgument{});
  };
  if (auto* method = as<BuiltinValue>(callable)) call_.positional.push_back(add(method->owner));
  for (const V& value : positional) call_.positional.push_back(add(value));
  for (const auto& [name, value] : keywords) call_.keywords.emplace_back(name, add(value));
  call_.first = std::uint32_t(t.graph().value_count());
}

std::optional<ExternArgument> CallRecorder::argument(const V& value) {
  const Nesting nesting;
  ExternArgument made;
  if (auto* array = as<ArrayValue>(value)) {
    made.kind = ExternArgument::Kind::Operand;
    made.index = int(call_.operands.size());
    call_.operands.push_back(t_.read(*array));
    arrays_.push_back(array);
    alive_.push_back(value);
    return made;
  }
  if (value->kind == ValueKind::SymInt) {
    made.kind = ExternArgument::Kind::Size;
    made.expression = *t_.int_expression(value);
    return made;
  }
  if (value->kind == ValueKind::Tuple || value->kind == ValueKind::List) {
    made.kind = value->kind == ValueKind::Tuple ? ExternArgument::Kind::Tuple : ExternArgument::Kind::List;
    for (const V& item : t_.sequence_items(value)) {
      std::optional<ExternArgument> part = argument(item);
      if (!part) return std::nullopt;
      made.items.push_back(*std::move(part));
    }
    return made;
  }
  auto* known = as<ObjectValue>(value);
  if (!known) return std::nullopt;
  made.object = known->object;
  return made;
}

std::optional<ExternStructure> CallRecorder::structure(const V& value) {
  const Nesting nesting;
  ExternStructure made;
  if (auto* array = as<ArrayValue>(value)) {
    for (const ArrayValue* operand : arrays_)
      if (operand == array) return ExternStructure{ExternStructure::Kind::Operand};
    made.kind = ExternStructure::Kind::Array;
    made.index = int(call_.results.size());
    call_.results.push_back(t_.read(*array));
    return made;
  }
  if (value->kind == ValueKind::Tuple || value->kind == ValueKind::List) {
    made.kind = ExternStructure::Kind::Tuple;
    for (const V& item : t_.sequence_items(value)) {
      std::optional<ExternStructure> part = structure(item);
      if (!part || (part->kind != ExternStructure::Kind::Array && part->kind != ExternStructure::Kind::None))
        return std::nullopt;
      made.items.push_back(*std::move(part));
    }
    return made;
  }
  return t_.is_none(value) ? std::optional(made) : std::nullopt;
}

void CallRecorder::done(const V& result) {
  if (!wanted_ || call_.operands.empty()) return;
  std::optional<ExternStructure> returned = structure(result);
  if (!returned) return;
  call_.structure = *std::move(returned);
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const ValueId now = t_.read(*arrays_[i]);
    if (now == call_.operands[i]) continue;
    call_.written.push_back(int(i));
    call_.results.push_back(now);
  }
  if (call_.results.empty()) return;
  call_.last = std::uint32_t(t_.graph().value_count());
  t_.request.record->push_back(std::move(call_));
}

}  // namespace fj
