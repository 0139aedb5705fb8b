// The type of proxies: a plain C type whose slots call back into the tracer.
#include "tracer/values/proxies.h"

#include <exception>
#include <new>

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/values/classes/attributes.h"
#include "tracer/values/numbers/derived_values.h"
#include "tracer/values/outside_objects.h"
#include "tracer/values/text.h"

namespace fj {
namespace {

struct Proxy {
  PyObject_HEAD
  V value;
  TraceRun* tracer;
  Py_hash_t hash;
  bool by_address;
};

thread_local std::exception_ptr thrown;

Proxy* as_proxy(PyObject* object) { return reinterpret_cast<Proxy*>(object); }

/// Runs `body`, which gives a Ref<>; a C++ exception becomes a Python error and waits for `check_proxies`.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    Ref<> result = body();
    return result ? Py_NewRef(result.get()) : nullptr;
  } catch (...) {
    thrown = std::current_exception();
    PyErr_SetString(PyExc_SystemError, "framejit: left the trace");
    return nullptr;
  }
}

Ref<> text_object(TraceRun& tracer, const V& text) {
  PyObject* object = tracer.constant_object(text);
  if (!object || !PyUnicode_CheckExact(object))
    break_graph(BreakReason::UnsupportedObject, "a text that is " + describe(text));
  return Ref<>::borrow(object);
}

void proxy_dealloc(PyObject* self) {
  as_proxy(self)->value.~V();
  PyObject_Free(self);
}

Py_hash_t proxy_hash(PyObject* self) { return as_proxy(self)->hash; }

PyObject* proxy_compare(PyObject* a, PyObject* b, int comparison) {
  // Either side may be the proxy.
  V known = proxied(a), other = proxied(b);
  if (known && known == other && (comparison == Py_EQ || comparison == Py_NE))
    return PyBool_FromLong(comparison == Py_EQ);
  TraceRun& tracer = *(known ? as_proxy(a) : as_proxy(b))->tracer;
  return guarded([&] {
    V left = wrap_constant(tracer, a), right = wrap_constant(tracer, b);
    return Ref<>::borrow(tracer.truth(tracer.compare(comparison, left, right)) ? Py_True : Py_False);
  });
}

PyObject* proxy_str(PyObject* self) {
  Proxy& proxy = *as_proxy(self);
  return guarded([&] { return text_object(*proxy.tracer, str_of(*proxy.tracer, proxy.value)); });
}

PyObject* proxy_repr(PyObject* self) {
  Proxy& proxy = *as_proxy(self);
  return guarded([&] { return text_object(*proxy.tracer, repr_of(*proxy.tracer, proxy.value)); });
}

PyObject* proxy_format(PyObject* self, PyObject* specification) {
  Proxy& proxy = *as_proxy(self);
  return guarded([&] {
    return text_object(*proxy.tracer,
                       format_of(*proxy.tracer, proxy.value,
                                 wrap_constant(*proxy.tracer, proxy.tracer->keep(Ref<>::borrow(specification)).get())));
  });
}

/// "{a.b}".format(a=...)
PyObject* proxy_attribute(PyObject* self, PyObject* name) {
  if (PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name) > 1 && PyUnicode_READ_CHAR(name, 0) == '_')
    return PyObject_GenericGetAttr(self, name);
  Proxy& proxy = *as_proxy(self);
  return guarded([&] {
    V found = find_attribute(*proxy.tracer, proxy.value, name);
    if (!found)
      break_graph(BreakReason::ErrorWhileTracing, describe(proxy.value) + " has no attribute '" + text_of(name) + "'");
    return readable_object(*proxy.tracer, found);
  });
}

PyObject* proxy_item(PyObject* self, PyObject* key) {
  Proxy& proxy = *as_proxy(self);
  return guarded([&] {
    return readable_object(*proxy.tracer, proxy.tracer->get_item(proxy.value, wrap_constant(*proxy.tracer, key)));
  });
}

PyTypeObject* proxy_type() {
  static PyMethodDef methods[] = {{"__format__", proxy_format, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
  static PyMappingMethods mapping = {nullptr, proxy_item, nullptr};
  PyTypeObject* const type = once([] {
    static PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "framejit.proxy";
    made.tp_basicsize = sizeof(Proxy);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_dealloc = proxy_dealloc;
    made.tp_hash = proxy_hash;
    made.tp_richcompare = proxy_compare;
    made.tp_str = proxy_str;
    made.tp_repr = proxy_repr;
    made.tp_getattro = proxy_attribute;
    made.tp_as_mapping = &mapping;
    made.tp_methods = methods;
    FJ_CHECK(PyType_Ready(&made) == 0, "the type of proxies");
    return &made;
  });
  return type;
}

}  // namespace

Ref<> make_proxy(TraceRun& tracer, const V& value, std::optional<Py_hash_t> hash) {
  Proxy* proxy = PyObject_New(Proxy, proxy_type());
  if (!proxy) throw std::bad_alloc();
  new (&proxy->value) V(value);
  proxy->tracer = &tracer;
  proxy->hash = hash ? *hash : Py_hash_t(reinterpret_cast<std::uintptr_t>(value.get()) >> 4);
  proxy->by_address = !hash;
  return Ref<>::steal(reinterpret_cast<PyObject*>(proxy));
}

V proxied(PyObject* object) { return Py_TYPE(object) == proxy_type() ? as_proxy(object)->value : nullptr; }

std::optional<bool> same_text(PyObject* a, PyObject* b) {
  auto text = [](PyObject* key) -> PyObject* {
    V value = proxied(key);
    auto* held = value ? as<ObjectValue>(value) : nullptr;
    PyObject* object = value ? held ? held->object.get() : nullptr : key;
    return object && PyUnicode_CheckExact(object) ? object : nullptr;
  };
  const V left = proxied(a), right = proxied(b);
  if ((!left && !right) || !text(a) || !text(b)) return std::nullopt;
  if (left == right) return true;
  TraceRun& tracer = *as_proxy(left ? a : b)->tracer;
  const V x = wrap_constant(tracer, a), y = wrap_constant(tracer, b);
  // Both may change: what is guarded is the answer.
  if (x->source == y->source && x->source) return true;
  PyObject* const equal = once([] { return operator_function("__eq__"); });
  if (changes(tracer, x) && changes(tracer, y))
    if (V answer = result_of(tracer, equal, {x, y})) return tracer.truth(answer);
  return tracer.truth(tracer.compare(Py_EQ, x, y));
}

bool holds_proxy(PyObject* object) {
  if (proxied(object)) return true;
  if (PyTuple_Check(object))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (holds_proxy(PyTuple_GET_ITEM(object, i))) return true;
  return false;
}

bool hashes_by_address(PyObject* object) {
  if (proxied(object)) return as_proxy(object)->by_address;
  if (PyTuple_Check(object))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (hashes_by_address(PyTuple_GET_ITEM(object, i))) return true;
  return false;
}

void check_proxies() {
  if (!thrown) return;
  PyErr_Clear();
  std::rethrow_exception(std::exchange(thrown, nullptr));
}

}  // namespace fj
