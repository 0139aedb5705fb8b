// Nodes are compared by text: attributes have no hash, and -0.0 and NaN, which == confuses, differ or agree there
// as they should.
#include "graph_ir/passes/cse.h"

#include <string>
#include <unordered_map>

#include "graph_ir/ops.h"
#include "graph_ir/passes/rewrite.h"
#include "graph_ir/print.h"

namespace fj {

bool cse(Graph& graph) {
  std::unordered_map<std::string, ValueId> seen;
  Rewrite rewrite(graph);
  return rewrite.run([&](const Node& node) -> ValueId {
    if (row(node.op).effect == OpEffect::Extern) return {};
    std::string key(name(node.op));
    for (ValueId operand : node.operands) key += " %" + std::to_string(operand.index);
    for (const auto& [name, attr] : node.attrs.items()) key += " " + name + "=" + text(attr);
    key += " : " + text(graph.type(node.results[0]));
    const auto [place, is_new] = seen.emplace(std::move(key), node.results[0]);
    return is_new ? ValueId{} : place->second;
  });
}

}  // namespace fj
