/// What reading and writing attributes share (attributes.cpp).
#pragma once

#include "tracer/interpreter/interpreter.h"

namespace fj {

/// An interned name, kept for ever.
PyObject* intern(const char* text);
/// The instance dict where the type has one. Not for types and modules' own rules.
PyObject* instance_dict(PyObject* object);
/// torch.nn's own method: "Module.__getattr__".
bool is_method_of_module(PyObject* function, const char* qualname);
/// A method a class has in Python; null: C's.
PyObject* overridden(TraceRun& tracer, PyTypeObject* type, PyObject* name);
/// The type has rules of its own in C for attributes: super, weakref.proxy, thread locals. `slot`: __getattribute__ or __setattr__.
bool has_own_rules(PyTypeObject* type, const char* slot, void* usual);

}  // namespace fj
