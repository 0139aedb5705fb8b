/// What reading and writing attributes share (attributes.cpp).
#pragma once

#include "tracer/interpreter/trace_run.h"

namespace fj {

/// An interned name, kept for ever.
PyObject* intern(const char* text);
/// The instance dict where the type has one. Not for types and modules' own rules.
PyObject* instance_dict(PyObject* object);
/// torch.nn's own method: "Module.__getattr__".
bool is_method_of_module(PyObject* function, const char* qualname);
/// A method a class has in Python; null: C's.
PyObject* overridden(TraceRun& tracer, PyTypeObject* type, PyObject* name);
/// The type has rules of its own in C for attributes: super, weakref.proxy, thread locals. `slot`: __getattribute__ or
/// __setattr__.
bool has_own_rules(PyTypeObject* type, const char* slot, void* usual);

/// Null if there is no such attribute (guarded).
V find_attribute(TraceRun& t, const V& owner, PyObject* name);
/// As object.__getattribute__ does: of an Object or Instance.
V attribute_by_default(TraceRun& t, const V& owner, PyObject* name);
V module_member(TraceRun& t, const V& owner, ObjectValue& value, PyObject* name);
/// An attribute found in the class: bound to `self` as its kind says.
V bind_class_attribute(TraceRun& t, PyObject* found, const V& self, PyTypeObject* type);
/// What the class or its bases have under a name, null if nothing; either is guarded.
PyObject* class_attribute(TraceRun& t, PyTypeObject* type, PyObject* name);
/// The class's bases are relied on.
void guard_bases(TraceRun& t, PyTypeObject* type);
/// Nothing at all of the class may change. Costs a trace for each write to it: name what counts instead.
void guard_type_version(TraceRun& t, PyTypeObject* type);
/// No class is registered with an abstract class meanwhile.
void guard_registrations(TraceRun& t);
bool is_python_method(TraceRun& t, PyObject* found);
void note_descriptor(TraceRun& t, PyTypeObject* type);

}  // namespace fj
