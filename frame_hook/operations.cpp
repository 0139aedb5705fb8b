// Instructions that take more than one call of the C API. See operations.h for how errors are told.
#include "frame_hook/operations.h"

#include <array>

#include "frame_hook/cpython/cpython.h"
#include "frame_hook/cpython/ref.h"

namespace fj {

namespace {

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }
PyObject* in_place_power(PyObject* a, PyObject* b) { return PyNumber_InPlacePower(a, b, Py_None); }

// In the order of NB_ADD, NB_AND, ... of opcode.h.
using Binary = PyObject* (*)(PyObject*, PyObject*);
constexpr std::array<Binary, 26> binary_operations = {
    PyNumber_Add, PyNumber_And, PyNumber_FloorDivide, PyNumber_Lshift, PyNumber_MatrixMultiply, PyNumber_Multiply,
    PyNumber_Remainder, PyNumber_Or, power, PyNumber_Rshift, PyNumber_Subtract, PyNumber_TrueDivide, PyNumber_Xor,
    PyNumber_InPlaceAdd, PyNumber_InPlaceAnd, PyNumber_InPlaceFloorDivide, PyNumber_InPlaceLshift,
    PyNumber_InPlaceMatrixMultiply, PyNumber_InPlaceMultiply, PyNumber_InPlaceRemainder, PyNumber_InPlaceOr,
    in_place_power, PyNumber_InPlaceRshift, PyNumber_InPlaceSubtract, PyNumber_InPlaceTrueDivide, PyNumber_InPlaceXor};

}  // namespace

PyObject* binary_operation(int operation, PyObject* left, PyObject* right) {
  return binary_operations[std::size_t(operation)](left, right);
}

PyObject* compare(PyObject* left, PyObject* right, int comparison, bool to_bool) {
  PyObject* result = PyObject_RichCompare(left, right, comparison);
  if (result == nullptr || !to_bool || PyBool_Check(result)) return result;
  const int truth = PyObject_IsTrue(result);
  Py_DECREF(result);
  return truth < 0 ? nullptr : PyBool_FromLong(truth);
}

PyObject* slice_of(PyObject* start, PyObject* stop) { return PySlice_New(start, stop, nullptr); }

bool unpack(PyObject* sequence, int before, bool rest, int after, PyObject** items, bool& retry) {
  if (PyTuple_CheckExact(sequence) || PyList_CheckExact(sequence)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
    if (rest ? size < before + after : size != before) {
      retry = true;
      return false;
    }
    for (int i = 0; i < before; i++) items[i] = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
    if (!rest) return true;
    for (int i = 0; i < after; i++) items[before + 1 + i] = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, size - after + i));
    PyObject* middle = PyList_New(size - before - after);
    if (middle == nullptr) {
      for (int i = 0; i < before; i++) Py_DECREF(items[i]);
      for (int i = 0; i < after; i++) Py_DECREF(items[before + 1 + i]);
      return false;
    }
    for (Py_ssize_t i = 0; i < size - before - after; i++)
      PyList_SET_ITEM(middle, i, Py_NewRef(PySequence_Fast_GET_ITEM(sequence, before + i)));
    items[before] = middle;
    return true;
  }
  if (Py_TYPE(sequence)->tp_iter == nullptr && !PySequence_Check(sequence)) {
    retry = true;
    return false;
  }
  // An iterator can be consumed only once, so its errors are raised here.
  Ref<> iterator = Ref<>::steal(PyObject_GetIter(sequence));
  if (!iterator) return false;
  int filled = 0;
  auto fail = [&] {
    while (filled > 0) Py_DECREF(items[--filled]);
    return false;
  };
  for (; filled < before; filled++) {
    items[filled] = PyIter_Next(iterator.get());
    if (items[filled] != nullptr) continue;
    if (!PyErr_Occurred()) {
      if (rest)
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)", before + after, filled);
      else
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", before, filled);
    }
    return fail();
  }
  if (!rest) {
    PyObject* more = PyIter_Next(iterator.get());
    if (more == nullptr) return PyErr_Occurred() ? fail() : true;
    Py_DECREF(more);
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
    return fail();
  }
  PyObject* middle = PySequence_List(iterator.get());
  if (middle == nullptr) return fail();
  items[filled++] = middle;
  const Py_ssize_t size = PyList_GET_SIZE(middle);
  if (size < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after, before + size);
    return fail();
  }
  for (int i = 0; i < after; i++) items[filled++] = Py_NewRef(PyList_GET_ITEM(middle, size - after + i));
  if (PyList_SetSlice(middle, size - after, size, nullptr) < 0) return fail();
  return true;
}

bool extend_list(PyObject* list, PyObject* iterable, bool& retry) {
  if (Py_TYPE(iterable)->tp_iter == nullptr && !PySequence_Check(iterable)) {
    retry = true;
    return false;
  }
  return bool(Ref<>::steal(PyObject_CallMethod(list, "extend", "(O)", iterable)));
}

bool update_set(PyObject* set, PyObject* iterable) {
  return bool(Ref<>::steal(PyObject_CallMethod(set, "update", "(O)", iterable)));
}

bool update_dict(PyObject* dict, PyObject* mapping, bool& retry) {
  if (!PyDict_CheckExact(mapping)) {
    retry = true;
    return false;
  }
  return PyDict_Update(dict, mapping) == 0;
}

bool merge_dict(PyObject* dict, PyObject* mapping, bool& retry) {
  if (!PyDict_CheckExact(mapping)) {
    retry = true;
    return false;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(mapping, &position, &key, &value)) {
    if (PyUnicode_CheckExact(key) && PyDict_GetItemWithError(dict, key) == nullptr) continue;
    retry = true;
    return false;
  }
  return PyDict_Update(dict, mapping) == 0;
}

PyObject* join_strings(PyObject* const* pieces, int count) {
  Ref<> list = Ref<>::steal(PyList_New(count)), empty = Ref<>::steal(PyUnicode_FromStringAndSize("", 0));
  if (!list || !empty) return nullptr;
  for (int i = 0; i < count; i++) PyList_SET_ITEM(list.get(), i, Py_NewRef(pieces[i]));
  return PyUnicode_Join(empty.get(), list.get());
}

PyObject* convert_value(PyObject* value, int conversion) {
  switch (conversion) {
    case 1: return PyObject_Str(value);
    case 2: return PyObject_Repr(value);
    case 3: return PyObject_ASCII(value);
    default: return Py_NewRef(value);
  }
}

PyObject* format_value(PyObject* value, int conversion, PyObject* spec) {
  Ref<> converted = Ref<>::steal(convert_value(value, conversion));
  return converted ? PyObject_Format(converted.get(), spec) : nullptr;
}

PyObject* make_function(PyObject* code, PyObject* globals) { return PyFunction_New(code, globals); }

void set_function_attribute(PyObject* function, int flag, PyObject* value) {
  auto* target = reinterpret_cast<PyFunctionObject*>(function);
  // A new function: the fields are empty but for annotations, which are kept as compiled (a tuple) until asked for.
  PyObject** field = flag == 8   ? &target->func_closure
                     : flag == 4 ? &target->func_annotations
                     : flag == 2 ? &target->func_kwdefaults
                                 : &target->func_defaults;
  PyObject* old = *field;
  *field = value;
  Py_XDECREF(old);
}

PyObject* import_name(PyObject* builtins, PyObject* globals, PyObject* name, PyObject* fromlist, PyObject* level) {
  PyObject* importer = PyDict_GetItemString(builtins, "__import__");
  if (importer == nullptr) {
    PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* arguments[] = {name, globals, Py_None, fromlist, level};
  return PyObject_Vectorcall(importer, arguments, 5, nullptr);
}

PyObject* special_method(PyObject* object, const char* name) {
  Ref<> text = Ref<>::steal(PyUnicode_InternFromString(name));
  if (!text) return nullptr;
  PyObject* found = fj_type_lookup(Py_TYPE(object), text.get());
  if (found == nullptr) return nullptr;
  descrgetfunc get = Py_TYPE(found)->tp_descr_get;
  return get != nullptr ? get(found, object, reinterpret_cast<PyObject*>(Py_TYPE(object))) : Py_NewRef(found);
}

bool valid_exception_filter(PyObject* types) {
  if (!PyTuple_Check(types)) return PyExceptionClass_Check(types);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
    if (!PyExceptionClass_Check(PyTuple_GET_ITEM(types, i))) return false;
  return true;
}

void raise(PyObject* exception, PyObject* cause, bool& retry) {
  auto made = [](PyObject* value) {
    return Ref<>::steal(PyExceptionClass_Check(value) ? PyObject_CallNoArgs(value) : Py_NewRef(value));
  };
  // What is neither gets CPython's own message.
  auto raisable = [](PyObject* value) { return PyExceptionClass_Check(value) || PyExceptionInstance_Check(value); };
  if (!raisable(exception) || (cause != nullptr && cause != Py_None && !raisable(cause))) {
    retry = true;
    return;
  }
  Ref<> value = made(exception);
  if (!value) return;
  if (!PyExceptionInstance_Check(value.get())) {
    PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", exception,
                 Py_TYPE(value.get()));
    return;
  }
  if (cause != nullptr) {
    Ref<> reason = cause == Py_None ? Ref<>() : made(cause);
    if (cause != Py_None && !reason) return;
    PyException_SetCause(value.get(), reason.release());
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.get())), value.get());
}

}  // namespace fj
