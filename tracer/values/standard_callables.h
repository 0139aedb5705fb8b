/// Callables of the standard library whose code is C or keeps state of its own: operator.attrgetter and its like,
/// functools.lru_cache and singledispatch, enumerations.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// The class is an enumeration.
bool is_enum_type(PyTypeObject* type);
/// `Color(2)`; null: the class decides by code of its own.
V enum_member(TraceRun& tracer, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);

/// attrgetter("a"), itemgetter(1), methodcaller("f"), object() as a sentinel...: made of constants. Null: another
/// class.
V make_functional(TraceRun& tracer, PyTypeObject* type, const std::vector<V>& positional, const Keywords& keywords);
/// Calls of such objects, of lru_cache's wrapper. Null: another object.
V call_functional(TraceRun& tracer, const V& callable, std::vector<V>& positional, Keywords& keywords);
/// Functions in Python that are better not inlined: singledispatch's wrapper, the operators of flags. Null: another
/// function.
V call_library_object(TraceRun& tracer, const V& callable, std::vector<V>& positional, Keywords& keywords);

/// Guards that the caches which ended the piece are still empty.
void ask_empty_caches(TraceRun& t);

}  // namespace fj
