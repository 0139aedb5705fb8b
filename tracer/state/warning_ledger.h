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
    std::size_t filters;                           // as many were there before
    std::uint32_t conditions;
  };
  bool any() const { return !contexts.empty(); }

  std::vector<Filter> filters;                     // the uppermost last
  std::vector<Context> contexts;
  std::vector<std::pair<const InstanceValue*, Filter>> plans;  // catch_warnings(action=...)
  std::vector<V> values;                           // keeps their addresses
  int changes = 0;                                 // of the filters, since the outermost `with` was entered
  int changed_at = 0;                              // the step
};

}  // namespace fj
