/// By how much a collective of torch.distributed moves the versions of the tensors it writes: that depends on the group
/// and its back end.
#pragma once

#include <optional>

#include "segment/library_calls/extern_table.h"

namespace fj {

/// What runs of the collective with this code have shown; nothing: as its row says.
std::optional<int> corrected_versions(PyObject* code);
/// The next trace expects the call to move the versions by `moves`. False if it has been corrected often: groups
/// differ.
bool correct_versions(const OnceCall& call, int moves);

}  // namespace fj
