/// str(), repr() and format() of Values.
#pragma once

#include "tracer/tracer.h"
#include "tracer/value.h"

namespace fj {

class TraceRun;

/// Constants of type str; break where the text isn't known (an address, an array's contents).
V str_of(TraceRun& tracer, const V& value);
V repr_of(TraceRun& tracer, const V& value);
V format_of(TraceRun& tracer, const V& value, const V& specification);
/// A real object for CPython functions that only read it and make text or a plain value of it: constants as they are,
/// containers copied, the rest as proxies. Due afterwards: check_proxies().
Ref<> readable_object(TraceRun& tracer, const V& value);

/// `str % value`; null: not such operands.
V format_percent(TraceRun& t, const V& format, const V& value);
/// A method of a text, a pattern or a match, of operands that are plain. Null: not such ones.
V text_method(TraceRun& t, const V& owner, const std::string& name, const std::vector<V>& positional,
              const Keywords& keywords);

}  // namespace fj
