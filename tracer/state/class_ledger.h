/// What the trace does to classes and relies on of them.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "tracer/value.h"

namespace fj {

/// The real classes do not have the attributes that the trace assigns: code that reads them can't be part of the trace.
struct ClassLedger {
  bool any() const { return !variables.empty(); }

  std::map<std::pair<const PyTypeObject*, PyObject*>, V> variables;  // assigned attributes, by class and interned name
  std::set<std::pair<PyTypeObject*, PyObject*>> versioned;  // guarded: class, interned name; null: any change
  std::unordered_map<PyObject*, int> made;  // classes and descriptors made in the trace: at which step
};

}  // namespace fj
