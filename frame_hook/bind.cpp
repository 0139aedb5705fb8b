// Argument binding: positional arguments and defaults straight, keywords by name, then *args and **kwargs.
#include "frame_hook/bind.h"

#include <algorithm>

namespace fj {

bool BoundArguments::bind_keyword(PyCodeObject* code, PyObject* name, PyObject* value) {
  const Py_ssize_t named = code->co_argcount + code->co_kwonlyargcount;
  PyObject* names = code->co_localsplusnames;
  // Names are interned: identity nearly always decides.
  for (int exact = 1; exact >= 0; exact--) {
    for (Py_ssize_t i = code->co_posonlyargcount; i < named; i++) {
      PyObject* candidate = PyTuple_GET_ITEM(names, i);
      if (exact ? candidate != name : PyUnicode_Compare(candidate, name) != 0) continue;
      if (slots_[i] != nullptr) return false;
      slots_[i] = value;
      return true;
    }
  }
  return keywords_ && PyDict_SetItem(keywords_.get(), name, value) == 0;
}

bool BoundArguments::bind(PyFunctionObject* function, PyObject* const* args, Py_ssize_t count,
                          PyObject* keyword_names) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  size_ = std::size_t(code->co_nlocalsplus);
  if (size_ <= kInline) {
    slots_ = inline_.data();
    std::fill_n(slots_, size_, nullptr);
  } else {
    large_.assign(size_, nullptr);
    slots_ = large_.data();
  }
  const Py_ssize_t positional = code->co_argcount, keyword_only = code->co_kwonlyargcount;
  std::copy_n(args, std::min(count, positional), slots_);
  if (count == positional && keyword_only == 0 && keyword_names == nullptr &&
      !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS))) [[likely]]
    return true;
  if (code->co_flags & CO_VARARGS) {
    rest_ = Ref<>::steal(PyTuple_New(std::max<Py_ssize_t>(0, count - positional)));
    if (!rest_) return PyErr_Clear(), false;
    for (Py_ssize_t i = positional; i < count; i++) PyTuple_SET_ITEM(rest_.get(), i - positional, Py_NewRef(args[i]));
    slots_[positional + keyword_only] = rest_.get();
  } else if (count > positional) {
    return false;
  }
  if (code->co_flags & CO_VARKEYWORDS) {
    keywords_ = Ref<>::steal(PyDict_New());
    if (!keywords_) return PyErr_Clear(), false;
    slots_[positional + keyword_only + ((code->co_flags & CO_VARARGS) != 0)] = keywords_.get();
  }
  const Py_ssize_t keywords = keyword_names != nullptr ? PyTuple_GET_SIZE(keyword_names) : 0;
  for (Py_ssize_t i = 0; i < keywords; i++)
    if (!bind_keyword(code, PyTuple_GET_ITEM(keyword_names, i), args[count + i])) return PyErr_Clear(), false;
  if (count < positional) {
    PyObject* defaults = function->func_defaults;
    const Py_ssize_t first = positional - (defaults != nullptr ? PyTuple_GET_SIZE(defaults) : 0);
    for (Py_ssize_t i = count; i < positional; i++) {
      if (slots_[i] != nullptr) continue;
      if (i < first) return false;
      slots_[i] = PyTuple_GET_ITEM(defaults, i - first);
    }
  }
  for (Py_ssize_t i = positional; i < positional + keyword_only; i++) {
    if (slots_[i] != nullptr) continue;
    if (function->func_kwdefaults == nullptr) return false;
    slots_[i] = PyDict_GetItemWithError(function->func_kwdefaults, PyTuple_GET_ITEM(code->co_localsplusnames, i));
    if (slots_[i] == nullptr) return PyErr_Clear(), false;
  }
  return true;
}

}  // namespace fj
