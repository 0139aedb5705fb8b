/// Whether letting go of objects runs Python code: a __del__, a weakref's callback, what a half-run generator has in
/// `finally`, a finalizer of C code (an open file's).
///
/// A compiled piece lets go of what it replaces at its end. Where that can be seen it is not run: the tracer ends the
/// piece before the instruction that lets go of a variable's object, and a piece that meets such an object when it runs
/// leaves the frame to CPython.
#pragma once

#include <Python.h>

#include <span>

namespace fj {

struct Drop {
  PyObject* object;
  Py_ssize_t references;  // how many of its references go at most; the rest are somebody else's
};

/// Nothing, a constant, or an array that owns its memory and that no weakref watches: freeing it frees nothing else.
/// Cheap.
bool ends_alone(PyObject* object);
/// Looks at what would be freed and nothing else: the objects whose last references these are, and what only they hold.
bool drops_quietly(std::span<const Drop> drops);
/// The class has a __del__.
bool has_finalizer(PyObject* object);

/// Somebody notices when the object goes, so that nothing of ours may hold it.
bool is_watched(PyObject* object);

}  // namespace fj
