/// Collectives of torch.distributed: what a run of one has shown about it.
#pragma once

#include "segment/library_calls/extern_table.h"

namespace fj {

/// The next trace expects the call to move the versions of what it writes by `moves`: that depends on the group and its back end. False if it
/// has been corrected often: groups differ.
bool correct_versions(const OnceCall& call, int moves);

}  // namespace fj
