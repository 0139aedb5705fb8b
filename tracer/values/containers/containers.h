/// Functions of the files of containers that are of no use to others.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tracer/interpreter/trace_run.h"
#include "tracer/state/exception_ledger.h"

namespace fj {

/// Runs C code on the part that an object of a derived class is. A TypeError of its would name the part's class: Python
/// raises those.
template <class Run>
auto on_part_of(const V& owner, Run run) {
  try {
    return run();
  } catch (const RaisedInTrace& raised) {
    auto* error = as<InstanceValue>(raised.exception);
    if (error && PyType_IsSubtype(error->type.get(), reinterpret_cast<PyTypeObject*>(PyExc_TypeError)))
      break_graph(BreakReason::ErrorWhileTracing, "a TypeError about " + describe(owner));
    throw;
  }
}

/// The bounds of a constant slice over `length` items.
struct Bounds {
  Py_ssize_t start, stop, step, count;
};
Bounds slice_of(TraceRun& tracer, const V& key, std::size_t length);
/// The place an index means; IndexError with this message if there is none.
std::size_t index_of(TraceRun& tracer, const V& key, std::size_t length, const char* message);
/// Keys of dicts and sets, as a dict compares them: proxies run what their classes define.
bool same_key(PyObject* a, PyObject* b);
/// What id() gave: an int that is known by its object only, good for comparing with others of its kind.
bool is_identity_number(const V& value);
/// Whether this thread has met such a number: else there is nothing to refuse.
bool any_identity_number();
/// Breaks the graph where one of two keys is such a number and the other an int: nobody knows whether they are the
/// same.
void refuse_unknown_numbers(PyObject* key, PyObject* known);
/// What containers ask of two elements: `a is b or a == b`.
bool same_or_equal(TraceRun& tracer, const V& a, const V& b);
/// collections.defaultdict
PyObject* defaultdict_type();
/// A class made by collections.namedtuple or typing.NamedTuple that is a tuple with names and no more: instances have
/// no attributes of their own, and what tuples do is C code's.
bool is_plain_named_tuple(PyTypeObject* type);
/// A class, function or dtype that no code of the user's compares with others, and that a piece may keep.
bool is_itself_alone(PyObject* object);
/// The object of a constant, or of what types are written with that nobody can change: `list[int]`, `int | None`, a
/// tuple of such. Null: neither.
PyObject* type_expression(TraceRun& t, const V& value);
/// A function of the modules typing or types.
bool is_of_typing(PyObject* callable);

/// The dict that dict.update() and `**` read a mapping as: a class derived from dict that iterates as dicts do is read
/// as one, whatever else it defines. Null: it is asked for keys() and items.
V read_as_dict(TraceRun& tracer, const V& mapping);
/// The elements of a set or frozenset as a list, in its order, whatever a derived class makes of iterating over it.
Ref<> elements_of(PyObject* set);
/// What an iterator still gives.
std::vector<V> drained(TraceRun& tracer, const V& iterator);

// Methods by name; null: not known, or not with these arguments.
void list_append(TraceRun& tracer, const V& owner, const V& item);
V list_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments, Keywords& keywords);
V sequence_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments);
V dict_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments, Keywords& keywords);
V view_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments);
V set_method(TraceRun& tracer, const V& owner, const std::string& name, std::vector<V>& arguments);

void list_set_item(TraceRun& tracer, const V& owner, const V& key, const V& value);
void list_delete_item(TraceRun& tracer, const V& owner, const V& key);
/// collections.deque(iterable=(), maxlen=None) and what such a deque keeps of its items.
V make_deque(TraceRun& tracer, PyTypeObject* type, std::vector<V> positional, Keywords keywords);
/// What PyDict_Copy makes of a dict, or of an object of a class derived from dict.
V dict_copy(TraceRun& tracer, const V& owner);
/// What dict.update(*arguments, **keywords) does.
void dict_update(TraceRun& tracer, const V& owner, const std::vector<V>& arguments, const Keywords& keywords);

/// The set operators on two sets, keys or items views (a view counts as a set); null: not such operands.
V set_operator(TraceRun& tracer, int nb_op, const V& a, const V& b);
bool set_contains(TraceRun& tracer, const SetValue& set, const Ref<>& key);
V set_comparison(TraceRun& tracer, int comparison, const V& a, const V& b);

V hash_of(TraceRun& t, const V& value);
/// id(value): a value of its own, good for comparing and as a key only.
V identity_number(TraceRun& t, const V& value);
/// As list() and tuple() take them: they ask for the length first.
std::vector<V> listed_items(TraceRun& t, const V& value);
/// iter(value), whose class is then asked how long it is.
V make_measured_iterator(TraceRun& t, const V& value);
void set_item(TraceRun& t, const V& container, const V& key, const V& value);
void delete_item(TraceRun& t, const V& container, const V& key);
V length(TraceRun& t, const V& value);
[[noreturn]] void no_key(TraceRun& t, const V& key);
/// A container from outside, or what an object of a derived class is of it; null: too long, or with keys unknown here.
V wrap_builtin(TraceRun& t, PyObject* object, SourceRef source);
/// The List, Dict, Set, Tuple or constant that an object of a derived class is; null: it is none.
V builtin_part(TraceRun& t, const V& value);
/// The items of an operand of `**`: a dict, or what has keys() and items.
std::vector<std::pair<V, V>> mapping_items(TraceRun& t, const V& mapping);
V container_method(TraceRun& t, const V& owner, const std::string& name, std::vector<V>& positional,
                   Keywords& keywords);
Ref<> constant_key(TraceRun& t, const V& value);                     // breaks if not a constant
/// The same, but that a text that changes between calls need not be known: it is told from the other keys (dict_place).
Ref<> dict_key(TraceRun& t, const V& dict, const V& value);

}  // namespace fj
