#include "segment/library_calls/extern_table.h"

#include <algorithm>

#include "graph_ir/graph.h"

namespace fj {
namespace {

/// Those that are known once a node has counted them.
void add_late_sizes(const Graph& graph, const ExternArgument& argument, Dims& found) {
  if (argument.kind == ExternArgument::Kind::Size && graph.is_late(argument.expression) &&
      std::find(found.begin(), found.end(), argument.expression) == found.end())
    found.push_back(argument.expression);
  for (const ExternArgument& item : argument.items) add_late_sizes(graph, item, found);
}

}  // namespace

void ExternTable::put(Attrs& attrs, const Graph& graph, ExternCall call) {
  Dims sizes;
  for (const ExternArgument& argument : call.positional) add_late_sizes(graph, argument, sizes);
  for (const auto& [name, argument] : call.keywords) add_late_sizes(graph, argument, sizes);
  attrs.set("callee", call.name);
  attrs.set("handle", add(std::move(call)));
  if (!sizes.empty()) attrs.set("sizes", std::move(sizes));
}

}  // namespace fj
