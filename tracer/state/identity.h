/// Which Value stands for which real object.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// An object has one Value in a trace, however often and wherever it is met; an object whose Value carries no state (a
/// number, a function, a class) may have several, and is not in `values`.
struct Identity {
  std::unordered_map<PyObject*, V> values;
  std::unordered_map<PyObject*, V> functions;      // by the real function that stands in for one made in the trace
  std::unordered_map<PyObject*, V> keys;  // by key of a dict or set: the Value it stands for (from outside, a tuple)
  std::unordered_map<SourceRef, V> derived;        // results of pure functions on values that change between calls
  std::map<void*, V> numbers;                      // the id() of each object or Value that was asked for it
  std::vector<V> numbered;                         // Values with an id(), kept so that no other gets their address
};

}  // namespace fj
