/// Which Value stands for which real object.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// An object has one Value in a trace, however often and wherever it is met.
struct Identity {
  std::unordered_map<PyObject*, V> values;
  std::unordered_map<PyObject*, V> functions;      // of functions made in the trace: a real one that stands in for each
  std::unordered_map<PyObject*, V> keys;  // what keys of dicts and sets stand for: objects from outside, tuples
  std::unordered_map<SourceRef, V> derived;        // what pure functions gave for values that change between calls
  std::map<void*, V> numbers;                      // id() of each that was asked for it
  std::vector<V> numbered;                         // kept, so that their addresses are not used again
};

}  // namespace fj
