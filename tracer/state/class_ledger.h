/// What the trace does to classes and relies on of them.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tracer/value.h"

namespace fj {

/// The real classes do not have what is assigned here: code that reads them can't be part of the trace.
struct ClassLedger {
  bool any() const { return !variables.empty(); }

  std::map<std::pair<const PyTypeObject*, PyObject*>, V> variables;  // assigned attributes, by class and interned name
  std::set<std::pair<PyTypeObject*, PyObject*>> versioned;  // guarded lookups: and the interned name; null: anything
  std::unordered_map<PyObject*, int> made;  // classes and descriptors made in the trace: the step
};

}  // namespace fj
