#include "segment/library_calls/numpy_prediction.h"

#include <algorithm>

#include "cpython/objects.h"
#include "cpython/tuples.h"

namespace fj {
namespace {

/// Elements of all operands together.
constexpr std::int64_t kMostElements = 1 << 16;

Ref<> helper(const char* name) {
  Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.numpy"));
  return module ? Ref<>::steal(PyObject_GetAttrString(module.get(), name)) : Ref<>();
}

bool share_memory(PyObject* a, PyObject* b) {
  PyObject* const ask = once([] { return imported("numpy", "may_share_memory").release(); });
  Ref<> answer = ask ? Ref<>::steal(PyObject_CallFunctionObjArgs(ask, a, b, nullptr)) : Ref<>();
  return answer.get() != Py_False;
}

bool has_flag(PyObject* array, const char* name) {
  Ref<> flags = Ref<>::steal(PyObject_GetAttrString(array, "flags"));
  Ref<> flag = flags ? Ref<>::steal(PyObject_GetAttrString(flags.get(), name)) : Ref<>();
  PyErr_Clear();
  return flag.get() == Py_True;
}

bool is_dense(const ArrayInfo& info) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t i = 0; i < info.shape.size(); ++i) axes.emplace_back(info.strides[i], info.shape[i]);
  return fj::is_dense(std::move(axes));
}

struct Reader {
  std::span<const Ref<>> operands;
  Prediction& prediction;
  std::vector<PyObject*> arrays;

  ExternStructure read(PyObject* object) {
    ExternStructure structure;
    if (object == Py_None) return structure;
    if (auto library = array_library(object); library == Library::Numpy) return read_array(object);
    const bool number = PyBool_Check(object) || PyFloat_CheckExact(object) || PyLong_CheckExact(object);
    if (number || numpy_scalar_dtype(object)) {
      const auto dtype = PyBool_Check(object)         ? DType::Bool
                         : PyFloat_CheckExact(object) ? DType::F64
                         : PyLong_CheckExact(object)  ? DType::I64
                                                      : *numpy_scalar_dtype(object);
      structure.kind = ExternStructure::Kind::Number;
      structure.type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
      structure.index = int(prediction.arrays.size());
      prediction.arrays.push_back({dtype, {}, {}});
      arrays.push_back(nullptr);
      return structure;
    }
    const bool list = PyList_CheckExact(object),
               named = PyTuple_Check(object) && PyObject_HasAttrString(object, "_fields");
    if (!list && !PyTuple_CheckExact(object) && !named) throw std::string("returns ") + Py_TYPE(object)->tp_name;
    structure.kind = list ? ExternStructure::Kind::List : ExternStructure::Kind::Tuple;
    if (named) structure.type = Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      structure.items.push_back(read(PySequence_Fast_GET_ITEM(object, i)));
    return structure;
  }

  ExternStructure read_array(PyObject* object) {
    ExternStructure structure;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].get() != object) continue;
      structure.kind = ExternStructure::Kind::Operand;
      structure.index = int(i);
      return structure;
    }
    ArrayInfo info = describe(object);
    if (!info.unsupported.empty()) throw "returns a " + info.unsupported;
    Ref<> base = Ref<>::steal(PyObject_GetAttrString(object, "base"));
    const bool owns = base.get() == Py_None;
    if (!owns && (array_library(base.get()) != Library::Numpy || !has_flag(object, "writeable")))
      throw std::string("returns a view that is read-only, or of no array");
    if (!is_dense(info)) throw std::string("returns an array with gaps or overlaps");
    for (const Ref<>& operand : operands)
      if (share_memory(operand.get(), object)) throw std::string("returns a view of its argument");
    if (std::find(arrays.begin(), arrays.end(), object) != arrays.end()) throw std::string("returns one array twice");
    structure.kind = ExternStructure::Kind::Array;
    structure.index = int(prediction.arrays.size());
    ExternArray array;
    array.dtype = info.dtype;
    if (!owns) array.view_of = ExternArray::kOfNewMemory;
    array.shape.assign(info.shape.begin(), info.shape.end());
    array.strides.assign(info.strides.begin(), info.strides.end());
    prediction.arrays.push_back(std::move(array));
    arrays.push_back(object);
    return structure;
  }
};

}  // namespace

Ref<> numpy_stand_in(const ExternArray& array, bool writeable) {
  PyObject* const make = once([] { return helper("stand_in").release(); });
  auto tuple = [](const std::vector<std::int64_t>& numbers) {
    Ref<> made = Ref<>::steal(PyTuple_New(Py_ssize_t(numbers.size())));
    for (std::size_t i = 0; made && i < numbers.size(); ++i)
      PyTuple_SET_ITEM(made.get(), Py_ssize_t(i), PyLong_FromLongLong(numbers[i]));
    return made;
  };
  Ref<> dtype = dtype_object(Library::Numpy, array.dtype), shape = tuple(array.shape), strides = tuple(array.strides);
  return make && dtype && shape && strides
             ? Ref<>::steal(PyObject_CallFunctionObjArgs(make, dtype.get(), shape.get(), strides.get(),
                                                         writeable ? Py_True : Py_False, nullptr))
             : Ref<>();
}

Ref<> try_on_stand_ins(PyObject* callable, PyObject* positional, PyObject* keywords) {
  PyObject* const tried = once([] { return helper("tried").release(); });
  return tried ? Ref<>::steal(PyObject_CallFunctionObjArgs(tried, callable, positional, keywords, nullptr)) : Ref<>();
}

Prediction try_numpy(const ExternCall& call, std::span<const ExternArray> operands,
                     std::span<const std::int64_t> symbols) {
  Prediction prediction;
  prediction.version_moves.resize(operands.size());
  try {
    std::int64_t elements = 0;
    for (const ExternArray& operand : operands) {
      std::int64_t count = 1;
      for (std::int64_t size : operand.shape) count *= size;
      elements += count;
    }
    if (elements == 0 && !operands.empty() && !call.rule) throw std::string("of no elements");
    if (elements > kMostElements && !call.rule) throw std::string("is too large to be tried");
    std::vector<Ref<>> arrays;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool written = std::find(call.mutated.begin(), call.mutated.end(), int(i)) != call.mutated.end();
      // One that the call does not say it writes is read-only: a function that would write into it is refused.
      arrays.push_back(numpy_stand_in(operands[i], written));
      if (!arrays.back()) throw take_error();
    }
    std::vector<Ref<>> given;
    for (const ExternArgument& argument : call.positional) {
      given.push_back(extern_argument(argument, arrays, symbols));
      if (!given.back()) throw take_error();
    }
    Ref<> positional = tuple_of(given), names = Ref<>::steal(PyDict_New());
    for (auto& [name, argument] : call.keywords) {
      Ref<> made = extern_argument(argument, arrays, symbols);
      if (!made || PyDict_SetItem(names.get(), name.get(), made.get()) < 0) throw take_error();
    }
    PyObject* const callable = call.rule ? call.rule.get() : call.callable.get();
    Ref<> returned = try_on_stand_ins(callable, positional.get(), names.get());
    if (!returned) throw take_error();
    Reader reader{arrays, prediction, {}};
    prediction.structure = reader.read(returned.get());
  } catch (const std::string& why) {
    PyErr_Clear();
    prediction.refusal = why.empty() ? "no reason given" : why;
  }
  return prediction;
}

}  // namespace fj
