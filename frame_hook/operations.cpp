// Instructions that take more than one call of the C API. See operations.h for how errors are told.
#include "frame_hook/operations.h"

#include <array>
#include <utility>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/ref.h"
#include "cpython/tuples.h"

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
    for (int i = 0; i < after; i++)
      items[before + 1 + i] = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, size - after + i));
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
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %d)", before + after,
                     filled);
      else
        PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %d, got %d)", before, filled);
    }
    return fail();
  }
  if (!rest) {
    PyObject* more = PyIter_Next(iterator.get());
    if (more == nullptr) return PyErr_Occurred() ? fail() : true;
    Py_DECREF(more);
    if (fj_unpacking_counts(Py_TYPE(sequence)))
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d, got %zd)", before, PyObject_Size(sequence));
    else
      PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
    return fail();
  }
  PyObject* middle = PySequence_List(iterator.get());
  if (middle == nullptr) return fail();
  items[filled++] = middle;
  const Py_ssize_t size = PyList_GET_SIZE(middle);
  if (size < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after,
                 before + size);
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
  if (flag == 16)
    if (PyObject* const name = fj_giver_qualname(target->func_qualname))
      Ref<>::steal(std::exchange(reinterpret_cast<PyFunctionObject*>(value)->func_qualname, name));
  if (flag == 4 || flag == 16) return fj_set_annotations(function, value);
  // A new function: the fields are empty.
  PyObject** field = flag == 8   ? &target->func_closure
                     : flag == 2 ? &target->func_kwdefaults
                                 : &target->func_defaults;
  PyObject* old = *field;
  *field = value;
  Py_XDECREF(old);
}

namespace {

Ref<> of_templates(const char* name) {
  const Ref<> module = Ref<>::steal(PyImport_ImportModule("string.templatelib"));
  return module ? Ref<>::steal(PyObject_GetAttrString(module.get(), name)) : Ref<>();
}

}  // namespace

PyObject* make_interpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec) {
  const Ref<> type = of_templates("Interpolation");
  const Ref<> letter = conversion == 0 ? Ref<>::borrow(Py_None)
                                       : Ref<>::steal(PyUnicode_FromStringAndSize("sra" + (conversion - 1), 1));
  const Ref<> empty = Ref<>::steal(PyUnicode_FromString(""));
  if (!type || !letter || !empty) return nullptr;
  return PyObject_CallFunctionObjArgs(type.get(), value, text, letter.get(), spec ? spec : empty.get(), nullptr);
}

PyObject* make_template(PyObject* strings, PyObject* interpolations) {
  const Ref<> type = of_templates("Template");
  std::vector<PyObject*> parts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strings); i++) {
    parts.push_back(PyTuple_GET_ITEM(strings, i));
    if (i < PyTuple_GET_SIZE(interpolations)) parts.push_back(PyTuple_GET_ITEM(interpolations, i));
  }
  return type ? PyObject_Vectorcall(type.get(), parts.data(), parts.size(), nullptr) : nullptr;
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

/// Whether this CPython refuses a cause that is no exception (`raise E from C`, where C() gives something else): 3.13
/// does, and 3.11 sets it. Asked of the interpreter itself, since a minor version may change it.
static bool refuses_causes() {
  return once([] {
    constexpr const char* kProgram =
        "class C(BaseException):\n"
        "    def __new__(cls): return None\n"
        "try: raise IndexError from C\n"
        "except TypeError: refuses = True\n"
        "except IndexError: refuses = False\n";
    Ref<> names = Ref<>::steal(PyDict_New());
    if (names) PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins());
    Ref<> done = names ? Ref<>::steal(PyRun_String(kProgram, Py_file_input, names.get(), names.get())) : Ref<>();
    if (!done) PyErr_Clear();
    return done && PyDict_GetItemString(names.get(), "refuses") == Py_True;
  });
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
    if (reason && !PyExceptionInstance_Check(reason.get()) && refuses_causes()) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", cause,
                   Py_TYPE(reason.get()));
      return;
    }
    PyException_SetCause(value.get(), reason.release());
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.get())), value.get());
}

PyObject* match_keys(PyObject* mapping, PyObject* keys) {
  const Py_ssize_t count = PyTuple_GET_SIZE(keys);
  std::vector<Ref<>> values;
  if (count == 0) return tuple_of(values).release();
  Ref<> seen = Ref<>::steal(PySet_New(nullptr));
  if (!seen) return nullptr;
  // `get` with a default of our own, so that a defaultdict is not filled.
  Ref<> get = Ref<>::steal(PyObject_GetAttrString(mapping, "get"));
  Ref<> absent = Ref<>::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  if (!get || !absent) return nullptr;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    const int known = PySet_Contains(seen.get(), key);
    if (known == 1) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
    if (known != 0 || PySet_Add(seen.get(), key) < 0) return nullptr;
    PyObject* arguments[] = {nullptr, key, absent.get()};
    PyObject* value = PyObject_Vectorcall(get.get(), arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (value == nullptr) return nullptr;
    if (value == absent.get()) {
      Py_DECREF(value);
      return Py_NewRef(Py_None);
    }
    values.push_back(Ref<>::steal(value));
  }
  return tuple_of(values).release();
}

namespace {

/// The attribute of a class pattern; null without an error: the subject has none.
PyObject* pattern_attribute(PyObject* subject, PyObject* type, PyObject* name, PyObject* seen) {
  const int known = PySet_Contains(seen, name);
  if (known == 1)
    PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R", reinterpret_cast<PyTypeObject*>(type)->tp_name, name);
  if (known != 0 || PySet_Add(seen, name) < 0) return nullptr;
  PyObject* attribute = PyObject_GetAttr(subject, name);
  if (attribute == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return attribute;
}

}  // namespace

PyObject* match_class(PyObject* subject, PyObject* type, int positional, PyObject* names) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
    return nullptr;
  }
  const int instance = PyObject_IsInstance(subject, type);
  if (instance < 0) return nullptr;
  if (instance == 0) return Py_NewRef(Py_None);
  auto* cls = reinterpret_cast<PyTypeObject*>(type);
  Ref<> seen = Ref<>::steal(PySet_New(nullptr)), attributes = Ref<>::steal(PyList_New(0));
  if (!seen || !attributes) return nullptr;
  auto take = [&](PyObject* name) {
    Ref<> attribute = Ref<>::steal(pattern_attribute(subject, type, name, seen.get()));
    return attribute && PyList_Append(attributes.get(), attribute.get()) == 0;
  };
  auto no_match = [] { return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None); };
  if (positional > 0) {
    Ref<> fields = Ref<>::steal(PyObject_GetAttrString(type, "__match_args__"));
    constexpr unsigned long kMatchSelf = 1UL << 22;  // Py_TPFLAGS_MATCH_SELF, which no header of the API has
    bool itself = false;
    if (fields && !PyTuple_CheckExact(fields.get())) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)", cls->tp_name,
                   Py_TYPE(fields.get())->tp_name);
      return nullptr;
    }
    if (!fields) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
      PyErr_Clear();
      itself = PyType_HasFeature(cls, kMatchSelf);
    }
    const Py_ssize_t allowed = itself ? 1 : fields ? PyTuple_GET_SIZE(fields.get()) : 0;
    if (allowed < positional) {
      PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%d given)", cls->tp_name, allowed,
                   allowed == 1 ? "" : "s", positional);
      return nullptr;
    }
    if (itself && PyList_Append(attributes.get(), subject) < 0) return nullptr;
    for (int i = 0; !itself && i < positional; i++) {
      PyObject* name = PyTuple_GET_ITEM(fields.get(), i);
      if (!PyUnicode_CheckExact(name)) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)", Py_TYPE(name)->tp_name);
        return nullptr;
      }
      if (!take(name)) return no_match();
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
    if (!take(PyTuple_GET_ITEM(names, i))) return no_match();
  return PyList_AsTuple(attributes.get());
}

namespace {

bool is_group(PyObject* exception) {
  return PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup));
}

/// Parts of one group that were split off and not raised anew keep all of this.
bool of_one_group(PyObject* a, PyObject* b) {
  if (!is_group(a) || !is_group(b)) return false;
  auto *x = reinterpret_cast<PyBaseExceptionObject*>(a), *y = reinterpret_cast<PyBaseExceptionObject*>(b);
  return x->notes == y->notes && x->traceback == y->traceback && x->cause == y->cause && x->context == y->context;
}

bool collect_leaves(PyObject* exception, PyObject* leaves) {
  if (!is_group(exception)) {
    Ref<> id = Ref<>::steal(PyLong_FromVoidPtr(exception));
    return id && PySet_Add(leaves, id.get()) == 0;
  }
  Ref<> parts = Ref<>::steal(PyObject_GetAttrString(exception, "exceptions"));
  for (Py_ssize_t i = 0; parts && i < PyTuple_GET_SIZE(parts.get()); i++)
    if (!collect_leaves(PyTuple_GET_ITEM(parts.get(), i), leaves)) return false;
  return bool(parts);
}

/// The part of `exception` whose leaves are in the set, in its shape: None if there is none, null with an error set.
PyObject* projected(PyObject* exception, PyObject* leaves) {
  if (!is_group(exception)) {
    Ref<> id = Ref<>::steal(PyLong_FromVoidPtr(exception));
    const int found = id ? PySet_Contains(leaves, id.get()) : -1;
    return found < 0 ? nullptr : Py_NewRef(found ? exception : Py_None);
  }
  Ref<> parts = Ref<>::steal(PyObject_GetAttrString(exception, "exceptions")), kept = Ref<>::steal(PyList_New(0));
  if (!parts || !kept) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); i++) {
    Ref<> part = Ref<>::steal(projected(PyTuple_GET_ITEM(parts.get(), i), leaves));
    if (!part || (part.get() != Py_None && PyList_Append(kept.get(), part.get()) < 0)) return nullptr;
  }
  if (PyList_GET_SIZE(kept.get()) == 0) return Py_NewRef(Py_None);
  Ref<> group = Ref<>::steal(PyObject_CallMethod(exception, "derive", "(O)", kept.get()));
  if (!group) return nullptr;
  if (!is_group(group.get())) {
    PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    return nullptr;
  }
  if (Ref<> traceback = Ref<>::steal(PyException_GetTraceback(exception)))
    if (PyException_SetTraceback(group.get(), traceback.get()) < 0) return nullptr;
  PyException_SetContext(group.get(), PyException_GetContext(exception));
  PyException_SetCause(group.get(), PyException_GetCause(exception));
  if (PyObject* notes = reinterpret_cast<PyBaseExceptionObject*>(exception)->notes;
      notes != nullptr && PySequence_Check(notes)) {
    Ref<> copy = Ref<>::steal(PySequence_List(notes));
    if (!copy || PyObject_SetAttrString(group.get(), "__notes__", copy.get()) < 0) return nullptr;
  }
  return group.release();
}

}  // namespace

bool split_group(PyObject* exception, PyObject* type, PyObject*& rest, PyObject*& match, bool& retry) {
  rest = match = nullptr;
  Ref<> types = PyTuple_Check(type) ? Ref<>::borrow(type) : Ref<>::steal(PyTuple_Pack(1, type));
  if (!types) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types.get()); i++) {
    PyObject* one = PyTuple_GET_ITEM(types.get(), i);
    if (!PyExceptionClass_Check(one) || PyObject_IsSubclass(one, PyExc_BaseExceptionGroup) != 0) retry = true;
  }
  // An exception alone becomes a group, whose traceback differs between patch releases: CPython makes it.
  if (exception != Py_None && !is_group(exception) && PyErr_GivenExceptionMatches(exception, type)) retry = true;
  if (retry) {
    PyErr_Clear();
    return false;
  }
  if (exception == Py_None) {
    rest = Py_NewRef(Py_None);
    match = Py_NewRef(Py_None);
  } else if (PyErr_GivenExceptionMatches(exception, type)) {
    rest = Py_NewRef(Py_None);
    match = Py_NewRef(exception);
  } else if (is_group(exception)) {
    Ref<> pair = Ref<>::steal(PyObject_CallMethod(exception, "split", "(O)", type));
    if (!pair) return false;
    if (!PyTuple_CheckExact(pair.get()) || PyTuple_GET_SIZE(pair.get()) < 2) {
      PyErr_Format(PyExc_TypeError, "%.200s.split must return a 2-tuple", Py_TYPE(exception)->tp_name);
      return false;
    }
    match = Py_NewRef(PyTuple_GET_ITEM(pair.get(), 0));
    rest = Py_NewRef(PyTuple_GET_ITEM(pair.get(), 1));
  } else {
    match = Py_NewRef(Py_None);
    rest = Py_NewRef(exception);
  }
  return true;
}

PyObject* join_groups(PyObject* original, PyObject* raised) {
  const Py_ssize_t count = PyList_GET_SIZE(raised);
  if (count == 0) return Py_NewRef(Py_None);
  // An exception alone was caught: one clause has run, which raised at most one.
  if (!is_group(original)) return Py_NewRef(PyList_GET_ITEM(raised, 0));
  Ref<> fresh = Ref<>::steal(PyList_New(0)), leaves = Ref<>::steal(PySet_New(nullptr));
  if (!fresh || !leaves) return nullptr;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* exception = PyList_GET_ITEM(raised, i);
    if (exception == Py_None) continue;
    const bool kept = of_one_group(exception, original) ? collect_leaves(exception, leaves.get())
                                                        : PyList_Append(fresh.get(), exception) == 0;
    if (!kept) return nullptr;
  }
  // What no clause has handled, in the shape it had in the original group.
  Ref<> left = Ref<>::steal(projected(original, leaves.get()));
  if (!left) return nullptr;
  if (PyList_GET_SIZE(fresh.get()) == 0) return left.release();
  if (left.get() != Py_None && PyList_Append(fresh.get(), left.get()) < 0) return nullptr;
  if (PyList_GET_SIZE(fresh.get()) == 1) return Py_NewRef(PyList_GET_ITEM(fresh.get(), 0));
  return PyObject_CallFunction(PyExc_BaseExceptionGroup, "sO", "", fresh.get());
}

}  // namespace fj
