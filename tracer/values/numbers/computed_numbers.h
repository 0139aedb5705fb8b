/// Python numbers that the program computes.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// Of a number the program computes, or of a float that changes between calls; nothing: of neither, or not such an
/// operator.
std::optional<V> computed_binary(TraceRun& t, int nb_op, const V& a, const V& b);
std::optional<V> computed_unary(TraceRun& t, int opcode, const V& a);
std::optional<V> computed_compare(TraceRun& t, int comparison, const V& a, const V& b);
/// Whether the back end gives back numbers that a program computes.
bool computes_numbers(TraceRun& t);
/// The number as a value from outside, where it is computed from such alone; else the value as it is.
V settled(TraceRun& t, const V& value);
/// float() of an int that is a symbol; null: it is none.
V symbol_as_float(TraceRun& t, const V& value);
/// abs and math.sqrt of such a number; null: it is none.
V computed_function(TraceRun& t, Op op, const V& a);
/// One of two floats by a condition that the program computes; null: it is none, or they are not both floats.
V computed_choice(TraceRun& t, const V& condition, const V& yes, const V& no);
/// int() and float() of a NumberValue; null: not without looking at it.
V computed_int(TraceRun& t, const V& number);
V computed_float(TraceRun& t, const V& number);

}  // namespace fj
