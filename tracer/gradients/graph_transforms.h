/// grad, vmap and their like, which transform the graph so far; branches on data that are followed.
#pragma once

#include <functional>

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// What the functions of framejit/_transforms.py mean that have a marker. Null: none of these.
V transform(TraceRun& t, const std::string& marker, const std::vector<V>& arguments);
/// A branch on data, where these are followed: how it goes in this call.
bool follow(TraceRun& t, const ArrayValue& array);
/// The truth of an array of one element, as bool[].
ValueId condition_of(TraceRun& t, const ArrayValue& array);
/// How the next condition goes, if a run or the reference evaluator said it.
std::optional<bool> outcome_of(TraceRun& t, ValueId condition);
/// The value may not be used here: it belongs to one example of a function that has been batched.
void check_example(TraceRun& t, ValueId value);
/// Adds a derivative to the graph, or breaks where an operation has none, with its place.
void derive_in_graph(TraceRun& t, const std::function<void()>& derive);
/// Library calls that a derivative has added are derived like others.
void derive_again(TraceRun& t);
bool depends_on_example(TraceRun& t, ValueId value);
/// An array of NumPy's, or what has such an item, that a gradient flows through or that is of one example.
bool is_transformed(TraceRun& t, const V& value);

}  // namespace fj
