// Graph to text. Two columns are aligned (types and locations), so each node is first taken apart into
// its three columns.
#include "graph_ir/print.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "graph_ir/ops.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

std::string text_of(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;  // shortest that reads back the same
  std::string result(buffer, end);
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

std::string quoted(const std::string& value) {
  std::string result = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result + "\"";
}

template <class List, class Text>
std::string bracketed(const List& list, Text text_of_item) {
  std::string result = "[";
  for (std::size_t i = 0; i < list.size(); ++i) result += (i ? ", " : "") + text_of_item(list[i]);
  return result + "]";
}

std::string text_of(const Dims& dims) {
  return bracketed(dims, [](const SymDim& dim) { return dim.text(); });
}

struct AttrText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return text_of(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(DType value) const { return std::string(name(value)); }
  std::string operator()(const Scalar& value) const { return text(value); }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    return bracketed(value, [](std::int64_t item) { return std::to_string(item); });
  }
  std::string operator()(const SymDim& value) const { return value.text(); }
  std::string operator()(const Dims& value) const { return text_of(value); }
  std::string operator()(const std::vector<std::optional<Dims>>& value) const {
    return bracketed(value,
                     [](const std::optional<Dims>& item) { return item ? text_of(*item) : std::string("contiguous"); });
  }
};

struct ScalarText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(std::uint64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return text_of(value); }
  std::string operator()(const std::pair<double, double>& value) const {
    return "(" + text_of(value.first) + ", " + text_of(value.second) + ")";
  }
};

// Input names are Python expressions (`L.self.weights[0]`); in text they are plain words.
std::string word(std::string_view name, std::string_view also_allowed) {
  std::string result;
  for (char c : name) {
    const bool allowed =
        std::isalnum(static_cast<unsigned char>(c)) || c == '_' || also_allowed.find(c) != std::string_view::npos;
    if (allowed)
      result += c;
    else if (result.empty() || result.back() != '_')
      result += '_';
  }
  return result.empty() ? "_" : result;
}

std::string operand_of_definition(const SymDim& dim) {
  return dim.terms().size() > 1 ? "(" + dim.text() + ")" : dim.text();
}

std::string symbol_text(const Graph& graph, std::size_t index) {
  const Symbol& symbol = graph.symbols[index];
  std::string result = SymDim(SymbolId{std::uint32_t(index)}).text();
  if (symbol.definition)
    result += " = " + operand_of_definition(symbol.definition->dividend) +
              (symbol.definition->remainder ? " % " : " // ") + operand_of_definition(symbol.definition->divisor);
  const bool has_min = symbol.min != INT64_MIN, has_max = symbol.max != INT64_MAX;
  if (has_min && has_max)
    result += " in " + std::to_string(symbol.min) + ".." + std::to_string(symbol.max);
  else if (has_min)
    result += " >= " + std::to_string(symbol.min);
  else if (has_max)
    result += " <= " + std::to_string(symbol.max);
  return result;
}

std::string strides_text(const std::optional<Strides>& strides) {
  return strides ? " strides " + text_of(*strides) : "";
}

struct Columns {
  std::string operation, types, location;
};

Columns columns(const Graph& graph, const Node& node, const std::vector<std::string>& names) {
  Columns result;
  auto name_of = [&](ValueId value) { return value.index < names.size() ? names[value.index] : std::string("%?"); };
  for (std::size_t i = 0; i < node.results.size(); ++i) {
    result.operation += (i ? ", " : "") + name_of(node.results[i]);
    result.types += (i ? ", " : "") + text(graph.type(node.results[i]));
  }
  if (!node.results.empty()) result.operation += " = ";
  result.operation += name(node.op);
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    result.operation += (i ? ", " : " ") + name_of(node.operands[i]);
  std::string attrs;
  for (const AttrRow& attr : row(node.op).attrs) {
    const Attr* value = node.attrs.find(attr.name);
    if (!value || repeats_result_shape(node.op, attr.name)) continue;
    attrs += (attrs.empty() ? "" : ", ") + attr.name + " = " + text(*value);
  }
  if (!attrs.empty()) result.operation += " {" + attrs + "}";
  if (node.location.line > 0) {
    const std::size_t slash = node.location.file.find_last_of("/\\");
    std::string file = slash == std::string::npos ? node.location.file : node.location.file.substr(slash + 1);
    result.location = file + ":" + std::to_string(node.location.line);
    if (!node.location.module.empty()) result.location += " " + node.location.module;
  }
  return result;
}

}  // namespace

bool repeats_result_shape(Op op, std::string_view attr) {
  return (attr == "shape" && row(op).shape_rule == "Attr") || (attr == "sizes" && row(op).shape_rule == "Sizes");
}

std::string text(const Scalar& scalar) { return std::visit(ScalarText{}, scalar); }
std::string text(const Attr& attr) { return std::visit(AttrText{}, attr); }

std::vector<std::string> value_names(const Graph& graph) {
  std::vector<std::string> names(graph.value_count(), "%?");
  std::set<std::string> taken;
  for (const Input& input : graph.inputs) {
    std::string base = "%" + word(input.name, ".");
    // Plain numbers are the nodes'.
    if (base.find_first_not_of("0123456789", 1) == std::string::npos) base.insert(1, "_");
    std::string unique = base;
    for (int copy = 2; !taken.insert(unique).second; ++copy) unique = base + "_" + std::to_string(copy);
    if (input.value.index < names.size()) names[input.value.index] = unique;
  }
  std::size_t number = 0;
  for (const Node& node : graph.nodes)
    for (ValueId result : node.results) {
      const std::string counted = "%" + std::to_string(number++);
      const auto given = graph.names.find(result);
      const bool free = given != graph.names.end() && taken.insert("%" + given->second).second;
      if (result.index < names.size()) names[result.index] = free ? "%" + given->second : counted;
    }
  return names;
}

std::string print(const Graph& graph, const Node& node) {
  const Columns parts = columns(graph, node, value_names(graph));
  return parts.operation + (parts.types.empty() ? "" : " : " + parts.types);
}

std::string print(const Graph& graph) {
  const std::vector<std::string> names = value_names(graph);
  auto name_of = [&](ValueId value) { return value.index < names.size() ? names[value.index] : std::string("%?"); };

  std::string result = "graph @" + word(graph.name, ".<>") + "(";
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Input& input = graph.inputs[i];
    result +=
        (i ? ", " : "") + name_of(input.value) + ": " + text(graph.type(input.value)) + strides_text(input.strides);
  }
  result += ")";
  for (std::size_t i = 0; i < graph.symbols.size(); ++i) result += (i ? ", " : " where ") + symbol_text(graph, i);
  result += " {\n";

  std::vector<Columns> lines;
  std::size_t operation_width = 0, types_width = 0;
  for (const Node& node : graph.nodes) {
    lines.push_back(columns(graph, node, names));
    operation_width = std::max(operation_width, lines.back().operation.size());
    types_width = std::max(types_width, lines.back().types.size());
  }
  for (const Columns& line : lines) {
    std::string padded = "  " + line.operation;
    if (!line.types.empty()) padded += std::string(operation_width - line.operation.size(), ' ') + " : " + line.types;
    if (!line.location.empty()) {
      padded.resize(std::max(padded.size(), 2 + operation_width + 3 + types_width), ' ');
      padded += "    ; " + line.location;
    }
    result += padded + "\n";
  }
  for (const Write& write : graph.writes) {
    const bool known = write.input >= 0 && std::size_t(write.input) < graph.inputs.size();
    result += "  write " + (known ? name_of(graph.inputs[std::size_t(write.input)].value) : "%?") + " <- " +
              name_of(write.value) + "\n";
  }
  result += "  return";
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    result += (i ? ", " : " ") + name_of(graph.outputs[i].value) + strides_text(graph.outputs[i].strides);
  return result + "\n}\n";
}

}  // namespace fj
