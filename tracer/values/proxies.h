/// Proxies: real objects that stand for Values where CPython's own code is run while tracing.
///
/// Sets, dict keys and formatting are left to CPython's functions, so that order and text come out exactly. What is no
/// constant is given to them as a proxy, whose hash, ==, str, repr and format are those of its Value: Python code of
/// the class is inlined, as when the program runs it. What such a method throws can't pass through CPython: it is kept,
/// and thrown again by `check_proxies`, which is due after each call that may have met a proxy.
#pragma once

#include <optional>

#include "tracer/value.h"

namespace fj {

class TraceRun;

/// `hash`: what hash(value) gives, asked beforehand; none: by address, or nothing is hashed.
Ref<> make_proxy(TraceRun& tracer, const V& value, std::optional<Py_hash_t> hash = std::nullopt);
/// The Value behind a proxy; null: not a proxy.
V proxied(PyObject* object);
/// Whether two keys of dicts that are texts, one of them a proxy of a text that changes between calls, are the same
/// one. Nothing: others.
std::optional<bool> same_text(PyObject* a, PyObject* b);
/// A proxy, or a tuple with one.
bool holds_proxy(PyObject* object);
/// A proxy that hashes by its address, or a tuple with one: nobody knows its place in a set.
bool hashes_by_address(PyObject* object);
/// Throws what the methods of proxies threw since the last call. A Python error that was set for it is cleared.
void check_proxies();

}  // namespace fj
