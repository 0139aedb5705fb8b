/// Extern nodes: an array library's own function run inside the program.
///
/// What comes back is predicted by running the function on meta-device tensors (sizes and strides, no memory, no kernel),
/// and checked at each run. Functions that write into their arguments, draw random numbers, or whose results' sizes are
/// not known break the graph.
#include "runtime/base/error.h"
#include "tracer/interpreter.h"

namespace fj {

namespace {

/// Gives up on one call: another way to run it exists.
[[noreturn]] void give_up(const std::string& what) { break_graph(BreakReason::UnsupportedOperation, what); }

class ExternBuilder {
 public:
  ExternBuilder(TracerImpl& tracer, const V& callable) : t_(tracer), callable_(as<ObjectValue>(callable)->object) {
    Ref<> name = Ref<>::steal(PyObject_GetAttrString(callable_.get(), "__name__"));
    if (!name) PyErr_Clear();
    call_.name = name ? text_of(name.get()) : std::string(Py_TYPE(callable_.get())->tp_name);
    call_.callable = callable_;
  }

  std::vector<std::shared_ptr<ArrayValue>> run(const std::vector<V>& positional, const Keywords& keywords);

 private:
  ExternArgument argument(const V& value);
  Ref<> meta(const ExternArgument& argument);
  Ref<> meta_of(const ArrayValue& array);

  TracerImpl& t_;
  Ref<> callable_;
  ExternCall call_;
  std::vector<ValueId> operands_;
  std::vector<std::optional<Dims>> operand_strides_;
  std::vector<Ref<>> metas_;
  bool requires_grad_ = false;
};

ExternArgument ExternBuilder::argument(const V& value) {
  ExternArgument result;
  switch (value->kind) {
    case ValueKind::Array: {
      auto& array = *as<ArrayValue>(value);
      if (array.library != Library::Torch) give_up("`" + call_.name + "` of a NumPy array");
      requires_grad_ = requires_grad_ || array.requires_grad;
      for (const SymDim& size : array.shape)
        if (!size.is_constant()) give_up("`" + call_.name + "` of an array whose sizes vary");
      result.kind = ExternArgument::Kind::Operand;
      result.index = int(operands_.size());
      operands_.push_back(t_.read(array));
      operand_strides_.push_back(array.strides);
      metas_.push_back(meta_of(array));
      return result;
    }
    case ValueKind::SymInt:
      result.kind = ExternArgument::Kind::Size;
      result.expression = as<SymIntValue>(value)->expression;
      return result;
    case ValueKind::Tuple: case ValueKind::List:
      result.kind = value->kind == ValueKind::Tuple ? ExternArgument::Kind::Tuple : ExternArgument::Kind::List;
      for (const V& item : t_.sequence_items(value)) result.items.push_back(argument(item));
      return result;
    case ValueKind::Slice: {
      auto& slice = *as<SliceValue>(value);
      result.kind = ExternArgument::Kind::Slice;
      for (const V& part : {slice.start, slice.stop, slice.step}) result.items.push_back(argument(part));
      return result;
    }
    default: {
      PyObject* object = t_.constant_object(value);
      if (!object) give_up("`" + call_.name + "` of " + describe(value));
      result.object = Ref<>::borrow(object);
      return result;
    }
  }
}

Ref<> int_list(TracerImpl& t, const Dims& dims) {
  Ref<> result = Ref<>::steal(PyTuple_New(Py_ssize_t(dims.size())));
  for (std::size_t i = 0; i < dims.size(); ++i)
    PyTuple_SET_ITEM(result.get(), Py_ssize_t(i), PyLong_FromLongLong(t.hint(dims[i])));
  return result;
}

Ref<> ExternBuilder::meta_of(const ArrayValue& array) {
  Ref<> make = Ref<>::steal(PyObject_GetAttrString(torch_module(), "empty_strided"));
  Ref<> arguments = Ref<>::steal(PyTuple_Pack(2, int_list(t_, array.shape).get(), int_list(t_, array.strides).get()));
  Ref<> names = Ref<>::steal(Py_BuildValue("{sNss}", "dtype", dtype_object(Library::Torch, array.dtype).release(), "device", "meta"));
  Ref<> result = make && arguments && names ? Ref<>::steal(PyObject_Call(make.get(), arguments.get(), names.get())) : Ref<>();
  if (!result) give_up("`" + call_.name + "`: " + take_error());
  return result;
}

Ref<> ExternBuilder::meta(const ExternArgument& argument) {
  switch (argument.kind) {
    case ExternArgument::Kind::Constant: return argument.object;
    case ExternArgument::Kind::Operand: return metas_[std::size_t(argument.index)];
    case ExternArgument::Kind::Size: return Ref<>::steal(PyLong_FromLongLong(t_.hint(argument.expression)));
    case ExternArgument::Kind::Slice:
      return Ref<>::steal(PySlice_New(meta(argument.items[0]).get(), meta(argument.items[1]).get(), meta(argument.items[2]).get()));
    default: {
      const bool tuple = argument.kind == ExternArgument::Kind::Tuple;
      Ref<> list = Ref<>::steal(PyList_New(0));
      for (const ExternArgument& item : argument.items) PyList_Append(list.get(), meta(item).get());
      return tuple ? Ref<>::steal(PyList_AsTuple(list.get())) : list;
    }
  }
}

std::int64_t version_of(PyObject* tensor) {
  Ref<> version = Ref<>::steal(PyObject_GetAttrString(tensor, "_version"));
  const std::int64_t number = version ? PyLong_AsLongLong(version.get()) : -1;
  PyErr_Clear();
  return number;
}

bool is_random(const std::string& name) {
  for (const char* word : {"rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "rrelu", "seed", "exponential", "uniform"})
    if (name.find(word) != std::string::npos && name.find("norm") == std::string::npos) return true;
  return name == "normal" || name == "normal_" || name == "scaled_dot_product_attention";
}

std::vector<std::shared_ptr<ArrayValue>> ExternBuilder::run(const std::vector<V>& positional, const Keywords& keywords) {
  if (is_random(call_.name)) {
    bool inert = false;
    if (call_.name == "scaled_dot_product_attention") {
      // Draws only if dropout_p is not zero.
      inert = positional.size() <= 4;
      for (auto& [name, value] : keywords)
        if (name == "dropout_p") inert = t_.tracer.constant_float(value).value_or(1.0) == 0.0;
      if (positional.size() > 4) inert = t_.tracer.constant_float(positional[4]).value_or(1.0) == 0.0;
    }
    if (!inert) break_graph(BreakReason::RandomState, call_.name);
  }
  for (const V& value : positional) call_.positional.push_back(argument(value));
  for (auto& [name, value] : keywords) {
    if (name == "out") give_up("`" + call_.name + "` with out=");
    call_.keywords.emplace_back(Ref<>::steal(PyUnicode_InternFromString(name.c_str())), argument(value));
  }
  if (requires_grad_ && t_.modes.grad) t_.needs_gradient = true;

  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(call_.positional.size())));
  for (std::size_t i = 0; i < call_.positional.size(); ++i)
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), meta(call_.positional[i]).release());
  Ref<> names = Ref<>::steal(PyDict_New());
  for (auto& [name, value] : call_.keywords) PyDict_SetItem(names.get(), name.get(), meta(value).get());
  std::vector<std::int64_t> versions;
  for (const Ref<>& tensor : metas_) versions.push_back(version_of(tensor.get()));
  Ref<> predicted = Ref<>::steal(PyObject_Call(callable_.get(), arguments.get(), names.get()));
  if (!predicted) give_up("`" + call_.name + "`: " + take_error());
  for (std::size_t i = 0; i < metas_.size(); ++i)
    if (version_of(metas_[i].get()) != versions[i]) give_up("`" + call_.name + "` writes into its argument");

  std::vector<PyObject*> results;
  if (PyTuple_Check(predicted.get()) || PyList_Check(predicted.get())) {
    call_.returns_sequence = true;
    if (!PyTuple_CheckExact(predicted.get())) give_up("`" + call_.name + "` returns " + Py_TYPE(predicted.get())->tp_name);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(predicted.get()); ++i) results.push_back(PyTuple_GET_ITEM(predicted.get(), i));
  } else {
    results.push_back(predicted.get());
  }
  std::vector<Type> types;
  std::vector<Dims> strides;
  for (PyObject* result : results) {
    if (!array_library(result)) give_up("`" + call_.name + "` returns " + Py_TYPE(result)->tp_name);
    for (const Ref<>& operand : metas_) {
      Ref<> base = Ref<>::steal(PyObject_GetAttrString(result, "_base"));
      PyErr_Clear();
      if (operand.get() == result || (base && base.get() != Py_None)) give_up("`" + call_.name + "` returns a view of its argument");
    }
    Type type;
    Dims layout;
    auto sizes = [&](const char* method, Dims& dims) {
      Ref<> tuple = Ref<>::steal(PyObject_CallMethod(result, method, nullptr));
      if (!tuple || !PyTuple_Check(tuple.get())) give_up("`" + call_.name + "`: " + take_error());
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i)
        dims.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple.get(), i)));
    };
    sizes("size", type.shape);
    sizes("stride", layout);
    Ref<> dtype_value = Ref<>::steal(PyObject_GetAttrString(result, "dtype"));
    auto dtype = dtype_value ? dtype_from_object(dtype_value.get()) : std::nullopt;
    PyErr_Clear();
    if (!dtype) give_up("`" + call_.name + "` returns an array of unsupported dtype");
    type.dtype = *dtype;
    call_.results.push_back({type.dtype, type.shape, layout});
    types.push_back(type);
    strides.push_back(layout);
  }
  if (results.empty()) give_up("`" + call_.name + "` returns nothing");

  Attrs attrs;
  attrs.set("callee", call_.name);
  attrs.set("handle", t_.externs->add(call_));
  attrs.set("operand_strides", operand_strides_);
  std::vector<std::optional<Dims>> result_strides(strides.begin(), strides.end());
  attrs.set("result_strides", result_strides);
  std::vector<ValueId> values = t_.graph->add_extern(operands_, attrs, types, t_.location());
  std::vector<std::shared_ptr<ArrayValue>> arrays;
  for (std::size_t i = 0; i < values.size(); ++i) arrays.push_back(t_.tracer.new_array(Library::Torch, values[i], strides[i]));
  return arrays;
}

}  // namespace

std::vector<std::shared_ptr<ArrayValue>> Tracer::extern_call(const V& callable, const std::vector<V>& positional,
                                                             const std::vector<std::pair<std::string, V>>& keywords) {
  FJ_CHECK(as<ObjectValue>(callable), "extern call of something made in the trace");
  return ExternBuilder(*impl_, callable).run(positional, keywords);
}

}  // namespace fj
