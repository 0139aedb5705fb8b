/// Collectives of torch.distributed: what a run of one has shown about it.
#pragma once

#include "segment/library_calls/extern_table.h"
#include "tracer/tracer.h"

namespace fj {

class TraceRun;

/// The next trace expects the call to move the versions of what it writes by `moves`: that depends on the group and its
/// back end. False if it has been corrected often: groups differ.
bool correct_versions(const OnceCall& call, int moves);

/// A function of torch.distributed as a node (collectives.cpp); null: none, or not with these arguments.
V call_collective(TraceRun& t, const V& callable, PyObject* object, const std::vector<V>& positional,
                  const Keywords& keywords);

}  // namespace fj
