/// warnings.catch_warnings() in the trace and the filters that are set in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// The filters of the contexts that are entered and not left: where there is a context, code that may warn can't be
/// part of the trace.
struct WarningLedger {
  struct Filter {
    std::string action;
    Ref<> category;
    bool conditional = false;                      // for some messages or places only
  };
  struct Context {
    const InstanceValue* context;
    std::size_t filters;                           // how many were there when it was entered
    std::uint32_t conditions;                      // Modes::float_conditions when it was entered
  };
  bool any() const { return !contexts.empty(); }

  std::vector<Filter> filters;                     // the one asked first is the last
  std::vector<Context> contexts;
  std::vector<std::pair<const InstanceValue*, Filter>> plans;  // catch_warnings(action=...)
  std::vector<V> values;                           // the contexts, kept so that no other Value gets their address
  int changes = 0;                                 // of the filters, since the outermost `with` was entered
  int changed_at = 0;                              // the step that entered, left or changed filters last
};

}  // namespace fj
