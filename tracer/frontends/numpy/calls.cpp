/// The table of calls.def, resolved once, by identity. Bound methods of universal functions, which are made anew at
/// each look, are known by their parts.
#include "tracer/frontends/numpy/calls.h"

#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "arrays/arrays.h"
#include "cpython/cpython.h"

namespace fj {
namespace {

enum Kind { Reads, Writes, Stacked };
struct Row {
  std::string_view path;
  Kind kind;
};
constexpr Row kRows[] = {
#define FJ_NUMPY_CALL(path, effect) {path, effect},
#include "tracer/frontends/numpy/calls.def"
};

Ref<> walk(PyObject* object, std::string_view path) {
  Ref<> found = Ref<>::borrow(object);
  while (found && !path.empty()) {
    const std::size_t dot = path.find('.');
    found = Ref<>::steal(PyObject_GetAttrString(found.get(), std::string(path.substr(0, dot)).c_str()));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  PyErr_Clear();
  return found;
}

/// The modules whose code is traced. Null: it can't be imported. Never destroyed.
struct TracedModules {
  PyObject *stacked, *derived;
};

const TracedModules& traced_modules() {
  return *once([] {
    const auto import = [](const char* name) {
      PyObject* made = PyImport_ImportModule(name);
      PyErr_Clear();
      return made;
    };
    return new TracedModules{import("framejit._support.numpy_stacked"), import("framejit._support.numpy_derived")};
  });
}

/// A dict of the module's.
PyObject* table_of(PyObject* module, const char* name) {
  PyObject* table = module ? PyObject_GetAttrString(module, name) : nullptr;  // the module keeps it alive
  PyErr_Clear();
  Py_XDECREF(table);
  return table && PyDict_Check(table) ? table : nullptr;
}

PyObject* found_in(PyObject* table, PyObject* key) {
  PyObject* found = table ? PyDict_GetItemWithError(table, key) : nullptr;
  PyErr_Clear();
  return found;
}

using Table = std::unordered_map<PyObject*, NumpyCall>;

/// Never destroyed: it owns Python objects.
Table& table() {
  Table* known = once([] {
    auto* made = new Table;
    Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._support.numpy"));
    PyErr_Clear();
    for (const Row& row : kRows) {
      const bool is_ours = row.path.starts_with("framejit.");
      PyObject* ours = row.kind == Stacked ? traced_modules().stacked : helpers.get();
      if (is_ours && !ours) continue;
      Ref<> found = walk(is_ours ? ours : numpy_module(), row.path.substr(row.path.find('.') + 1));
      Ref<> function = found && helpers
                           ? Ref<>::steal(PyObject_CallMethod(helpers.get(), "without_warnings", "O", found.get()))
                           : Ref<>();
      PyErr_Clear();
      if (!function) continue;
      PyObject* pullbacks = row.kind == Stacked ? table_of(traced_modules().stacked, "pullbacks") : nullptr;
      NumpyCall call{function, row.kind == Writes, row.kind == Stacked, found_in(pullbacks, found.get())};
      made->emplace(found.release(), std::move(call));
    }
    return made;
  });
  return *known;
}

bool is_ufunc(PyObject* object) { return !std::strcmp(Py_TYPE(object)->tp_name, "numpy.ufunc"); }

/// Made of a Python function, which may do anything.
bool is_of_python(PyObject* ufunc) {
  Ref<> types = Ref<>::steal(PyObject_GetAttrString(ufunc, "types"));
  PyErr_Clear();
  if (!types || !PyList_Check(types.get())) return true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(types.get()); ++i) {
    const char* loop = PyUnicode_AsUTF8(PyList_GET_ITEM(types.get(), i));
    if (loop && loop[0] != 'O') return false;
  }
  PyErr_Clear();
  return true;
}

const NumpyCall* universal(PyObject* callable) {
  auto& functions = once([] { return Table(); });
  if (is_ufunc(callable)) {
    auto known = functions.find(callable);
    if (known != functions.end()) return &known->second;
    if (is_of_python(callable)) return nullptr;
    return &functions.emplace(Py_NewRef(callable), NumpyCall{Ref<>::borrow(callable), false}).first->second;
  }
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  if (!self || !is_ufunc(self) || is_of_python(self)) return nullptr;
  static auto* methods = new std::unordered_map<std::string, NumpyCall>;
  const std::string name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  const bool at = name == "at";
  if (!at && name != "reduce" && name != "accumulate" && name != "reduceat" && name != "outer") return nullptr;
  const std::string key = std::to_string(reinterpret_cast<std::uintptr_t>(self)) + name;
  auto known = methods->find(key);
  if (known == methods->end()) known = methods->emplace(key, NumpyCall{Ref<>::borrow(callable), at}).first;
  return &known->second;
}

}  // namespace

const NumpyCall* find_numpy_call(PyObject* callable) {
  if (!numpy_module()) return nullptr;
  if (const NumpyCall* found = universal(callable)) return found;
  auto known = table().find(callable);
  return known == table().end() ? nullptr : &known->second;
}

PyObject* traced_instead(PyObject* callable) {
  if (!numpy_module()) return nullptr;
  PyObject* const known = once([] {
    Ref<> helpers = Ref<>::steal(PyImport_ImportModule("framejit._support.numpy"));
    PyObject* made = helpers ? PyObject_CallMethod(helpers.get(), "traced_instead", nullptr) : nullptr;
    PyErr_Clear();
    return made;
  });
  const bool hashable = !std::strcmp(Py_TYPE(callable)->tp_name, "numpy._ArrayFunctionDispatcher");
  PyObject* found = known && hashable ? PyDict_GetItemWithError(known, callable) : nullptr;
  PyErr_Clear();
  return found;
}

PyObject* traced_when_transformed(PyObject* callable) {
  if (!numpy_module()) return nullptr;
  const char* type = Py_TYPE(callable)->tp_name;
  const bool hashable = !std::strcmp(type, "numpy._ArrayFunctionDispatcher") || is_ufunc(callable) ||
                        Py_TYPE(callable) == &PyMethodDescr_Type || PyCFunction_Check(callable);
  return hashable ? found_in(table_of(traced_modules().derived, "instead"), callable) : nullptr;
}

PyObject* ndarray_method(const char* name) {
  // Of the class, which keeps it alive: what its own class has (`__instancecheck__`) is made for who asks.
  const Ref<> type = walk(numpy_module(), "ndarray");
  const Ref<> text = Ref<>::steal(PyUnicode_InternFromString(name));
  return type && text ? fj_type_lookup(reinterpret_cast<PyTypeObject*>(type.get()), text.get()) : nullptr;
}

}  // namespace fj
