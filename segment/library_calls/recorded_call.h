/// A call of the array library as the user wrote it, whatever the graph has in its place: framejit.capture(level="library").
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph_ir/graph.h"
#include "segment/library_calls/extern_table.h"

namespace fj {

struct RecordedCall {
  Ref<> function;  // of a method: the type's descriptor
  std::vector<ExternArgument> positional;
  std::vector<std::pair<std::string, ExternArgument>> keywords;
  std::vector<ValueId> operands;   // contents before the call
  ExternStructure structure;       // of what it returned
  std::vector<ValueId> results;    // those in `structure`, then the new contents of the operands in `written`
  std::vector<int> written;
  std::uint32_t first = 0, last = 0;  // values of the graph that the call has made: from the first on, before the last
  Location location;
};

}  // namespace fj
