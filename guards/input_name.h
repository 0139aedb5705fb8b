/// What an input of a graph is called: as the user's code calls the array.
#pragma once

#include <string>

#include "guards/source.h"

namespace fj {

/// "x", "options.rate", "layers.0.weight": names, keys and indices on the way to it, without what Python and torch have
/// between them (`_modules`, `__dict__`) and without a leading `self`. What is computed from values has its expression.
std::string input_name(SourceRef source);

/// Whether it is a parameter or a buffer of a torch module.
bool is_module_state(SourceRef source);

}  // namespace fj
