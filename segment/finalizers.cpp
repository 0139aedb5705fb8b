/// Follows the references as freeing would: an object is freed when as many references have gone as it has; then those
/// it holds go. Nothing is changed and no code runs.
#include "segment/finalizers.h"

#include <unordered_map>
#include <vector>

#include "arrays/numpy_arrays.h"
#include "cpython/objects.h"

namespace fj {
namespace {

bool has_callback(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return false;
  auto* reference = reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; reference; reference = reference->wr_next)
    if (reference->wr_callback) return true;
  return false;
}

/// A generator that would be closed where it stands, inside a try or with.
bool may_have_to_close(PyObject* object) {
  Ref<> frame = Ref<>::steal(PyObject_GetAttrString(object, PyGen_CheckExact(object) ? "gi_frame" : "cr_frame"));
  PyErr_Clear();
  if (!frame) return true;
  if (frame.get() == Py_None) return false;
  auto* code = PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.get()));
  const bool handles = PyBytes_GET_SIZE(code->co_exceptiontable) != 0;
  Py_DECREF(code);
  return handles;
}

bool ends_quietly(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (has_callback(object) || type->tp_del) return false;
  if (!type->tp_finalize) return true;
  return (PyGen_CheckExact(object) || PyCoro_CheckExact(object)) && !may_have_to_close(object);
}

/// Attributes and hooks of a tensor. What its storage and its place in an autograd graph hold is not seen: C++ frees
/// that.
bool tensor_holds_objects(PyObject* tensor) {
  return Py_TYPE(tensor)->tp_traverse(
             tensor, [](PyObject* held, void* type) -> int { return held != type; }, Py_TYPE(tensor)) != 0;
}

struct Walk {
  std::unordered_map<PyObject*, Py_ssize_t> gone;
  std::vector<PyObject*> freed;

  void drop(PyObject* object, Py_ssize_t references) {
    if (ends_alone(object)) return;
    Py_ssize_t& count = gone[object];
    const bool before = count >= Py_REFCNT(object);
    count += references;
    if (!before && count >= Py_REFCNT(object)) freed.push_back(object);
  }
};

}  // namespace

bool has_finalizer(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type->tp_flags & Py_TPFLAGS_HEAPTYPE && type->tp_finalize && !array_library(object);
}

bool ends_alone(PyObject* object) {
  if (!object || is_plain(object)) return true;
  const auto library = array_library(object);
  if (!library || has_callback(object)) return false;
  if (*library == Library::Torch) return !tensor_holds_objects(object);
  const NumpyHolds holds = numpy_holds(object);
  return !holds.base && !holds.objects;
}

bool drops_quietly(std::span<const Drop> drops) {
  Walk walk;
  for (const Drop& drop : drops) walk.drop(drop.object, drop.references);
  while (!walk.freed.empty()) {
    PyObject* object = walk.freed.back();
    walk.freed.pop_back();
    if (!ends_quietly(object)) return false;
    PyTypeObject* type = Py_TYPE(object);
    if (const auto library = array_library(object); library && *library == Library::Numpy) {
      const NumpyHolds holds = numpy_holds(object);
      if (holds.objects) return false;
      if (holds.base) walk.drop(holds.base, 1);
      continue;
    }
    if (!PyType_IS_GC(type) || !type->tp_traverse) continue;
    type->tp_traverse(object, [](PyObject* held, void* place) {
      static_cast<Walk*>(place)->drop(held, 1);
      return 0;
    }, &walk);
  }
  return true;
}

bool is_watched(PyObject* object) {
  if (is_plain(object) || PyType_Check(object)) return false;
  const Drop all{object, Py_REFCNT(object)};
  return has_finalizer(object) || !drops_quietly({&all, 1});
}

}  // namespace fj
