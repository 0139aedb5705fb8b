// The short form of a graph. `Inside` decides which nodes have no line of their own: constants and broadcasts by who
// reads them; then reshapes, transposes and slices, node by node, as long as the reader's line stays short. What is
// decided depends on nothing that parsing the text would change (numbers count as three digits), so that the text of
// what was parsed is the same.
#include <algorithm>
#include <cstring>
#include <utility>

#include "graph_ir/inside.h"
#include "graph_ir/ops.h"
#include "graph_ir/print_parts.h"

namespace fj {
namespace {

constexpr std::size_t kWidestWithComment = 158, kNumberWidth = std::strlen("%999");

struct Read {
  std::size_t node, operand;
};

/// `[:, None]`: the axes of an array from the first one that `dims` names on; "" where NumPy puts them by itself.
std::string axes_text(const std::vector<std::int64_t>& dims, std::size_t rank) {
  if (dims.empty() || dims[0] == std::int64_t(rank - dims.size())) return "";
  std::string result;
  for (std::int64_t axis = dims[0], next = 0; axis < std::int64_t(rank); ++axis) {
    const bool own = next < std::int64_t(dims.size()) && dims[std::size_t(next)] == axis;
    next += own;
    result += (result.empty() ? "[" : ", ") + std::string(own ? ":" : "None");
  }
  return result + "]";
}

/// `[1:3, :, 0:5]` without the last axes that are whole: of a slice of an array of this shape.
std::string ranges_text(const Node& slice, const Dims& shape) {
  const Dims& starts = slice.attrs.get<Dims>("starts");
  const Dims& sizes = slice.attrs.get<Dims>("sizes");
  std::string result, whole;  // the axes up to the last that is no whole one, and those after it
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const bool all = starts[axis] == SymDim(0) && sizes[axis] == shape[axis];
    whole += (axis ? ", " : "") + (all ? ":" : starts[axis].text() + ":" + (starts[axis] + sizes[axis]).text());
    if (!all) result += std::exchange(whole, "");
  }
  return "[" + result + "]";
}

/// `, [1, 0]`; "": the axes are reversed, as NumPy's `transpose` does by itself.
std::string permutation_text(const std::vector<std::int64_t>& permutation) {
  for (std::size_t i = 0; i < permutation.size(); ++i)
    if (permutation[i] != std::int64_t(permutation.size() - 1 - i)) return ", " + text(Attr(permutation));
  return "";
}

class Inside {
 public:
  explicit Inside(const Graph& graph)
      : graph_(graph),
        producers_(graph.value_count(), -1),
        reads_(graph.value_count()),
        kept_(graph.value_count(), false),
        nodes_(graph.nodes.size(), false) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      for (ValueId result : node.results) producers_[result.index] = int(i);
      for (std::size_t operand = 0; operand < node.operands.size(); ++operand)
        reads_[node.operands[operand].index].push_back({i, operand});
    }
    for (const Output& output : graph.outputs) kept_[output.value.index] = true;
    for (const Write& write : graph.writes) kept_[write.value.index] = true;
    for (const auto& [value, name] : graph.names) kept_[value.index] = true;
    estimates_ = value_names(graph);
    for (const Node& node : graph.nodes)
      for (ValueId result : node.results)
        if (!graph.names.contains(result)) estimates_[result.index].assign(kNumberWidth, '%');
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) nodes_[i] = is_plain_broadcast(i);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      nodes_[i] = nodes_[i] || (graph.nodes[i].op == Op::constant && is_number(i));
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (!nodes_[i]) put_inside(i);
  }

  /// By node.
  const std::vector<bool>& nodes() const { return nodes_; }

  std::string text(ValueId value, const Names& names) const {
    const Node* node = inside(value);
    if (!node) return name_of(names, value);
    if (node->op == Op::constant) return fj::text(node->attrs.get<Scalar>("value"));
    const std::string operand = text(node->operands[0], names);
    if (node->op == Op::reshape) return "reshape(" + operand + ", " + fj::text(graph_.type(value).shape) + ")";
    if (node->op == Op::transpose)
      return "transpose(" + operand + permutation_text(node->attrs.get<std::vector<std::int64_t>>("permutation")) + ")";
    if (node->op == Op::slice) return operand + ranges_text(*node, graph_.type(node->operands[0]).shape);
    return operand + axes_text(node->attrs.get<std::vector<std::int64_t>>("dims"), graph_.type(value).shape.size());
  }

 private:
  const Node* inside(ValueId value) const {
    const int producer = producers_[value.index];
    return producer >= 0 && nodes_[std::size_t(producer)] ? &graph_.nodes[std::size_t(producer)] : nullptr;
  }

  const Node* producer(ValueId value) const {
    const int found = producers_[value.index];
    return found >= 0 ? &graph_.nodes[std::size_t(found)] : nullptr;
  }

  bool is_read(const Node& node) const {
    return node.results.size() == 1 && !kept_[node.results[0].index] && !reads_[node.results[0].index].empty();
  }

  const Dims& shape(ValueId value) const { return graph_.type(value).shape; }

  /// A broadcast that only operations element by element read, and that `%x` or `%x[:, None]` says wholly there.
  bool is_plain_broadcast(std::size_t index) const {
    const Node& node = graph_.nodes[index];
    if (node.op != Op::broadcast || !is_read(node) || node.operands.size() != 1) return false;
    const auto& dims = node.attrs.get<std::vector<std::int64_t>>("dims");
    const ValueId result = node.results[0], operand = node.operands[0];
    if (shape(operand) == shape(result) || dims.size() != shape(operand).size()) return false;
    if (!std::is_sorted(dims.begin(), dims.end())) return false;
    for (Read read : reads_[result.index]) {
      const Node& reader = graph_.nodes[read.node];
      if (!is_pointwise(reader.op) || reader.results.size() != 1) return false;
      if (shape(reader.results[0]) != shape(result)) return false;
    }
    return true;
  }

  /// What may come to be written as a number: a constant, and a broadcast of one.
  bool may_be_number(ValueId value) const {
    const Node* node = producer(value);
    if (const Node* broadcast = inside(value); broadcast && broadcast->op == Op::broadcast)
      node = producer(broadcast->operands[0]);
    return node && node->op == Op::constant && !kept_[node->results[0].index];
  }

  bool takes_number(Read read, ValueId value) const {
    const Node& reader = graph_.nodes[read.node];
    if (reader.results.size() != 1) return false;
    const Type& result = graph_.type(reader.results[0]);
    if (shape(value) != number_shape(reader.op, result.shape)) return false;
    std::vector<std::optional<DType>> others;
    for (ValueId operand : reader.operands)
      others.push_back(may_be_number(operand) ? std::nullopt : std::optional(graph_.type(operand).dtype));
    return number_dtype(reader.op, read.operand, result.dtype, others) == graph_.type(value).dtype;
  }

  bool is_number(std::size_t index) const {
    const Node& node = graph_.nodes[index];
    if (!is_read(node)) return false;
    const auto taken_by_all = [&](ValueId value) {
      const auto& reads = reads_[value.index];
      return std::all_of(reads.begin(), reads.end(), [&](Read read) { return takes_number(read, value); });
    };
    const auto& reads = reads_[node.results[0].index];
    return std::all_of(reads.begin(), reads.end(), [&](Read read) {
      return nodes_[read.node] ? taken_by_all(graph_.nodes[read.node].results[0])
                               : takes_number(read, node.results[0]);
    });
  }

  std::size_t width(ValueId value) const { return text(value, estimates_).size(); }

  int depth(ValueId value) const {
    const Node* node = inside(value);
    if (!node || node->op == Op::constant) return 0;
    return depth(node->operands[0]) + (node->op == Op::reshape || node->op == Op::transpose);
  }

  /// What may stand in its reader's line: a reshape, a transpose, a slice of neighbours that leaves something out.
  bool is_move(const Node& node) const {
    if (node.op == Op::reshape || node.op == Op::transpose) return true;
    if (node.op != Op::slice) return false;
    const auto& steps = node.attrs.get<std::vector<std::int64_t>>("steps");
    const Node* of = inside(node.operands[0]);
    return std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; }) &&
           node.attrs.get<Dims>("sizes") != shape(node.operands[0]) && !(of && of->op == Op::slice);
  }

  /// Puts moves into this node's line, from its first operand on, as far as they fit.
  void put_inside(std::size_t index) {
    const Node& reader = graph_.nodes[index];
    if (reader.op == Op::extern_call || !reader.bodies.empty() || reader.operands.empty()) return;
    const std::size_t commas = reader.results.size() + reader.operands.size() - 2;
    std::size_t used = std::strlen("   =    : ") + 2 * commas + name(reader.op).size() + attributes(reader).size() +
                       result_types(graph_, reader).size();
    for (ValueId result : reader.results) used += estimates_[result.index].size();
    for (ValueId operand : reader.operands) used += width(operand);
    for (ValueId operand : reader.operands) {
      if (const Node* broadcast = inside(operand); broadcast && broadcast->op == Op::broadcast) {
        if (reads_[operand.index].size() != 1) continue;
        operand = broadcast->operands[0];
      }
      const Node* node = producer(operand);
      if (!node || !is_read(*node) || !is_move(*node)) continue;
      if (reads_[operand.index].size() != 1 || place(node->location) != place(reader.location)) continue;
      if (inside(operand)) continue;
      const std::size_t before = width(operand);
      nodes_[std::size_t(producers_[operand.index])] = true;
      const std::size_t wider = used + width(operand) - before;
      if (wider > kWidestLine || depth(operand) > kDeepestInside)
        nodes_[std::size_t(producers_[operand.index])] = false;
      else
        used = wider;
    }
  }

  const Graph& graph_;
  std::vector<int> producers_;            // by value: its node, or -1
  std::vector<std::vector<Read>> reads_;  // by value
  std::vector<bool> kept_;                // by value: returned, written or named
  std::vector<bool> nodes_;
  Names estimates_;  // as wide as names may become
};

/// The pieces of a line between which it may be broken: at spaces outside of quotes and, but for `inside`, of brackets,
/// not at those around `=`.
std::vector<std::string> pieces(const std::string& line, bool inside) {
  std::vector<std::string> result(1);
  int depth = 0;
  bool quoted = false, escaped = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool equation = c == ' ' && (line.compare(i, 3, " = ") == 0 || (i > 0 && line[i - 1] == '='));
    if (c == ' ' && !quoted && (inside || (depth == 0 && !equation)) && !result.back().empty()) {
      result.emplace_back();
      continue;
    }
    result.back() += c;
    if (escaped || (quoted && c == '\\')) {
      escaped = !escaped;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    }
  }
  return result;
}

/// In lines of at most kWidestLine columns, where there is a place to break it; a comment may go beyond.
std::string wrapped(const std::string& line, const std::string& comment) {
  constexpr const char *kFirst = "  ", *kOthers = "      ";
  const auto fits = [&](std::size_t width, bool last) {
    return width <= kWidestLine && (!last || width + comment.size() <= kWidestWithComment);
  };
  if (fits(std::strlen(kFirst) + line.size(), true)) return kFirst + line + comment + "\n";
  std::string result, current = kFirst;
  const auto add = [&](const std::string& piece, bool last) {
    const bool first = current.find_first_not_of(' ') == std::string::npos;
    if (!first && !fits(current.size() + 1 + piece.size(), last)) {
      result += current + "\n";
      current = kOthers + piece;
    } else {
      current += (first ? "" : " ") + piece;
    }
  };
  const std::vector<std::string> whole = pieces(line, false);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool last = i + 1 == whole.size();
    if (fits(std::strlen(kOthers) + whole[i].size(), last)) {
      add(whole[i], last);
      continue;
    }
    const std::vector<std::string> parts = pieces(whole[i], true);
    for (std::size_t k = 0; k < parts.size(); ++k) add(parts[k], last && k + 1 == parts.size());
  }
  return result + current + comment + "\n";
}

std::string short_text(const Graph& graph, const char* body) {
  const Inside inside(graph);
  const Names names = number_values(graph, inside.nodes());
  std::string result = header(graph, names, false, body) + "\n";
  Places places;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (inside.nodes()[i]) continue;
    const Node& node = graph.nodes[i];
    std::string line;
    for (ValueId value : node.results) line += (line.empty() ? "" : ", ") + name_of(names, value);
    line += (line.empty() ? "" : " = ") + std::string(name(node.op));
    for (std::size_t k = 0; k < node.operands.size(); ++k)
      line += (k ? ", " : " ") + inside.text(node.operands[k], names);
    if (const std::string attrs = attributes(node, true); !attrs.empty()) line += " " + attrs;
    if (const std::string bodies = bodies_text(node, short_text); !bodies.empty()) {
      result += wrapped(line + " {", "") + bodies.substr(std::strlen(" {\n"), bodies.rfind('\n') + 1 - 3);
      line = "}";
    }
    if (const std::string types = result_types(graph, node); !types.empty()) line += " : " + types;
    result += wrapped(line, places.comment(node.location));
  }
  for (const std::string& line : border(graph, names, false)) result += wrapped(line, "");
  return result + "}\n";
}

}  // namespace

std::string print_short(const Graph& graph) { return short_text(graph, nullptr); }

std::vector<ShownValue> shown_values(const Graph& graph) {
  const Inside inside(graph);
  const Names names = number_values(graph, inside.nodes());
  std::vector<ShownValue> result;
  for (std::uint32_t value = 0; value < names.size(); ++value)
    result.push_back({names[value].substr(1), inside.text(ValueId{value}, names)});
  return result;
}

}  // namespace fj
