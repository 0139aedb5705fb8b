/// Shared by the files that carry out instructions: the symbolic stack, and the parts of instructions that have a file
/// of their own.
#pragma once

#include "runtime/base/error.h"
#include "tracer/interpreter/trace_run.h"

namespace fj {

inline V pop(Frame& frame) {
  FJ_CHECK(!frame.stack.empty(), "symbolic stack underflow");
  V value = std::move(frame.stack.back());
  frame.stack.pop_back();
  return value;
}

inline std::vector<V> pop_many(Frame& frame, int count) {
  FJ_CHECK(int(frame.stack.size()) >= count, "symbolic stack underflow");
  std::vector<V> values(frame.stack.end() - count, frame.stack.end());
  frame.stack.resize(frame.stack.size() - std::size_t(count));
  return values;
}

inline V& peek(Frame& frame, int depth) {
  FJ_CHECK(int(frame.stack.size()) >= depth, "symbolic stack underflow");
  return frame.stack[frame.stack.size() - std::size_t(depth)];
}

// ---- taking values apart (unpacking.cpp)

/// `a, b = value`: asks for one item more than it wants, and for no other.
void unpack_sequence(TraceRun& tracer, Frame& frame, int count);
/// `a, *b, c = value`
void unpack_ex(TraceRun& tracer, Frame& frame, int before, int after);
/// Values of the keys of a mapping pattern, or None.
V match_keys(TraceRun& tracer, const V& subject, const V& keys);
/// Attributes of a class pattern, positional ones first, or None.
V match_class(TraceRun& tracer, const V& subject, const V& type, int positional, const V& names);

}  // namespace fj
