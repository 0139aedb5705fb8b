/* Where CPython's own iterators stand, read from where they keep it: a loop is entered often, and asking them by
 * __reduce__ takes longer than a short loop. tests/trace/test_regions.py goes on with each of them. */
#include "cpython/internal.h"

#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_range.h>
#endif

/* Of list, tuple and bytes iterators, and of those that call __getitem__. */
typedef struct {
  PyObject_HEAD
  Py_ssize_t index;
  PyObject* sequence; /* NULL: it is exhausted */
} FjItems;

typedef struct {
  PyObject_HEAD
  Py_ssize_t index;
  PyObject* iterator;
  PyObject* result;
  PyObject* large; /* the index, once it is beyond Py_ssize_t */
} FjEnumerate;

typedef struct {
  PyObject_HEAD
  Py_ssize_t count;
  PyObject* iterators; /* NULL: it is exhausted */
  PyObject* result;
  int strict;
} FjZip;

#if PY_VERSION_HEX >= 0x030C0000
static FjIterator range_at(PyObject* object) {
  const _PyRangeIterObject* const range = (const _PyRangeIterObject*)object;
  return (FjIterator){FJ_ITERATOR_RANGE, range->start, range->step, range->len, NULL};
}
#else
typedef struct {
  PyObject_HEAD
  long index, start, step, length;
} FjRange;

static FjIterator range_at(PyObject* object) {
  const FjRange* const range = (const FjRange*)object;
  const unsigned long next = (unsigned long)range->start + (unsigned long)range->index * (unsigned long)range->step;
  return (FjIterator){FJ_ITERATOR_RANGE, (long)next, range->step, range->length - range->index, NULL};
}
#endif

static PyTypeObject* bytes_iterator(void) {
  static PyTypeObject* type;
  if (type == NULL) {
    PyObject* const bytes = PyBytes_FromStringAndSize("", 0);
    PyObject* const iterator = bytes != NULL ? PyObject_GetIter(bytes) : NULL;
    if (iterator != NULL) type = Py_TYPE(iterator);
    Py_XDECREF(iterator);
    Py_XDECREF(bytes);
    PyErr_Clear();
  }
  return type;
}

FjIterator fj_iterator(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  const FjIterator none = {FJ_ITERATOR_NONE, 0, 0, 0, NULL};
  if (type == &PyRangeIter_Type) return range_at(object);
  if (type == &PyEnum_Type) {
    const FjEnumerate* const found = (const FjEnumerate*)object;
    return found->large == NULL ? (FjIterator){FJ_ITERATOR_ENUMERATE, found->index, 1, 0, found->iterator} : none;
  }
  if (type == &PyZip_Type) {
    const FjZip* const found = (const FjZip*)object;
    if (found->strict || found->iterators == NULL) return none;
    return (FjIterator){FJ_ITERATOR_ZIP, 0, 1, found->count, found->iterators};
  }
  if (type == &PySeqIter_Type || type == &PyListIter_Type || type == &PyTupleIter_Type || type == bytes_iterator()) {
    const FjItems* const found = (const FjItems*)object;
    return found->sequence != NULL ? (FjIterator){FJ_ITERATOR_ITEMS, found->index, 1, 0, found->sequence} : none;
  }
  return none;
}

/* __setstate__ takes no index beyond the end. */
PyObject* fj_list_iterator(PyObject* list, Py_ssize_t index) {
  PyObject* const made = PyObject_GetIter(list);
  if (made != NULL) ((FjItems*)made)->index = index;
  return made;
}
