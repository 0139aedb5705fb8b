/// What single instructions do to Python objects, over the C API, where that is more than one call of it.
///
/// Results are new references; null with an error set is a Python exception. `retry` set (and no error) means that
/// nothing has happened and CPython is to run the instruction itself: that is how errors get its own text.
#pragma once

#include <Python.h>

namespace fj {

PyObject* binary_operation(int operation, PyObject* left, PyObject* right);
/// -1 with an error set; otherwise the truth.
PyObject* compare(PyObject* left, PyObject* right, int comparison, bool to_bool);
PyObject* slice_of(PyObject* start, PyObject* stop);

/// Puts `before` items, then (if `rest`) a list of what lies between, then `after` items into `items`.
bool unpack(PyObject* sequence, int before, bool rest, int after, PyObject** items, bool& retry);
bool extend_list(PyObject* list, PyObject* iterable, bool& retry);
bool update_set(PyObject* set, PyObject* iterable);
bool update_dict(PyObject* dict, PyObject* mapping, bool& retry);
/// Keyword arguments of one call: an error if a key is there twice.
bool merge_dict(PyObject* dict, PyObject* mapping, bool& retry);

PyObject* join_strings(PyObject* const* pieces, int count);
/// Of a template string: `conversion` as below, `spec` may be null. The classes are string.templatelib's.
PyObject* make_interpolation(PyObject* value, PyObject* text, int conversion, PyObject* spec);
PyObject* make_template(PyObject* strings, PyObject* interpolations);
/// conversion: 0 none, 1 str, 2 repr, 3 ascii. `spec` may be null.
PyObject* convert_value(PyObject* value, int conversion);
PyObject* format_value(PyObject* value, int conversion, PyObject* spec);

PyObject* make_function(PyObject* code, PyObject* globals);
/// flag as of MAKE_FUNCTION: 1 defaults, 2 keyword defaults, 4 annotations, 8 closure. Steals `value`.
void set_function_attribute(PyObject* function, int flag, PyObject* value);

PyObject* import_name(PyObject* builtins, PyObject* globals, PyObject* name, PyObject* fromlist, PyObject* level);
/// `type(object).name` bound to the object, as the interpreter looks up special methods; null without error: absent.
PyObject* special_method(PyObject* object, const char* name);

/// True if `types` may stand after `except`.
bool valid_exception_filter(PyObject* types);
/// Sets the exception of `raise exception from cause` (cause may be null).
void raise(PyObject* exception, PyObject* cause, bool& retry);

/// The values of a mapping pattern's `keys` as a tuple, or None.
PyObject* match_keys(PyObject* mapping, PyObject* keys);
/// The attributes of a class pattern, `positional` ones first, as a tuple, or None.
PyObject* match_class(PyObject* subject, PyObject* type, int positional, PyObject* names);

/// `except* type` of a group: what matches and what is left, None where there is nothing. False: an error, or `retry`.
bool split_group(PyObject* exception, PyObject* type, PyObject*& rest, PyObject*& match, bool& retry);
/// What is raised at the end of `except*` clauses, None if nothing: `raised` has what each clause raised or left over.
PyObject* join_groups(PyObject* original, PyObject* raised);

}  // namespace fj
