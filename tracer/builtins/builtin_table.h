/// Functions of C that the tracer runs on symbolic values: the rows of builtins.def and itertools.def, and what their
/// handlers share. `find_builtin` (trace_run.h) looks in both.
#pragma once

#include <span>

#include "tracer/interpreter/trace_run.h"

namespace fj {

struct BuiltinRow {
  const char *module, *name;  // with a dot: a method of a class there
  BuiltinHandler handler;
};
std::span<const BuiltinRow> builtin_rows();    // builtins.cpp
std::span<const BuiltinRow> iteration_rows();  // values/containers/itertools.cpp

// Handlers of rows of builtins.def that have a file of their own: class_questions.cpp.
V builtin_isinstance(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
V builtin_issubclass(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
V builtin_type(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
V builtin_callable(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);
V builtin_dir(TraceRun& tracer, std::vector<V>& positional, Keywords& keywords);

/// Breaks the graph at a call that a handler has no way for.
[[noreturn]] void unknown_call(const char* name, const std::vector<V>& arguments);
[[noreturn]] void unknown_call(const char* name);
/// The argument given by this name, taken out; null: there is none.
V take_keyword(Keywords& keywords, const char* name);
/// Breaks unless there are between `least` and `most` arguments and no keywords (that are left).
void expect(const char* name, const std::vector<V>& arguments, const Keywords& keywords, std::size_t least,
            std::size_t most);
/// Lets an exit make the iterator again, as long as nothing was taken from it: `arguments` are as they were before the
/// first `next`.
V made_by(const char* module, const char* name, const std::shared_ptr<IteratorValue>& iterator,
          std::vector<V> arguments);

}  // namespace fj
