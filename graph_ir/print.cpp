// Printing. Two columns are aligned (types and locations) so that a reader's eye can run down them.
#include "graph_ir/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "graph_ir/ops.h"

namespace fj {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;  // shortest text that reads back exactly
  std::string result(buffer, end);
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

template <class T, class Print>
std::string list(const T& items, Print print) {
  std::string result = "[";
  for (std::size_t i = 0; i < items.size(); ++i) result += (i ? ", " : "") + print(items[i]);
  return result + "]";
}

std::string dims(const Dims& values) {
  return list(values, [](const SymDim& dim) { return dim.text(); });
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "\"";
}

struct TextOf {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(std::uint64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::pair<double, double>& value) const { return "(" + number(value.first) + ", " + number(value.second) + ")"; }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(DType value) const { return std::string(name(value)); }
  std::string operator()(const Scalar& value) const { return std::visit(*this, value); }
  std::string operator()(const std::vector<std::int64_t>& values) const {
    return list(values, [](std::int64_t v) { return std::to_string(v); });
  }
  std::string operator()(const SymDim& value) const { return value.text(); }
  std::string operator()(const Dims& values) const { return dims(values); }
  std::string operator()(const std::vector<std::optional<Dims>>& values) const {
    return list(values, [](const std::optional<Dims>& v) { return v ? dims(*v) : std::string("contiguous"); });
  }
};

/// "s0 >= 1", "s0 in 2..7", "s1 = s0 // 3"
std::string constraint(const Symbol& symbol) {
  std::string result;
  if (symbol.definition)
    result = symbol.name + " = (" + symbol.definition->dividend.text() + (symbol.definition->remainder ? ") % (" : ") // (") +
             symbol.definition->divisor.text() + ")";
  else if (symbol.max != INT64_MAX)
    result = symbol.name + " in " + std::to_string(symbol.min) + ".." + std::to_string(symbol.max);
  else
    result = symbol.name + " >= " + std::to_string(symbol.min);
  return result;
}

std::string with_strides(const Type& type, const std::optional<Strides>& strides) {
  std::string result = text(type);
  if (strides) {
    std::string inner = dims(*strides);
    inner.front() = '{';
    inner.back() = '}';
    result += inner;
  }
  return result;
}

}  // namespace

std::string text(const Attr& attr) { return std::visit(TextOf(), attr); }

std::string print(const Graph& graph) {
  std::vector<std::string> names(graph.value_count());
  std::ostringstream out;
  out << "graph @" << graph.name << "(";
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Input& input = graph.inputs[i];
    names[input.value.index] = "%" + input.name;
    out << (i ? ", " : "") << "%" << input.name << ": " << with_strides(graph.type(input.value), input.strides);
  }
  out << ")";
  for (std::size_t i = 0; i < graph.symbols.size(); ++i) out << (i ? ", " : " where ") << constraint(graph.symbols[i]);
  out << " {\n";

  struct Line {
    std::string left, type, location;
  };
  std::vector<Line> lines;
  std::size_t left_width = 0, type_width = 0;
  int next = 0;
  for (const Node& node : graph.nodes) {
    Line line;
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      names[node.results[i].index] = "%" + std::to_string(next++);
      line.left += (i ? ", " : "") + names[node.results[i].index];
      line.type += (i ? ", " : "") + text(graph.type(node.results[i]));
    }
    line.left += (node.results.empty() ? "" : " = ") + std::string(name(node.op));
    for (std::size_t i = 0; i < node.operands.size(); ++i) line.left += (i ? ", " : " ") + names[node.operands[i].index];
    if (!node.attrs.items().empty()) {
      // In the order of the op's row.
      std::string attrs;
      for (const AttrRow& row : row(node.op).attrs)
        if (const Attr* attr = node.attrs.find(row.name)) attrs += (attrs.empty() ? "" : ", ") + row.name + " = " + text(*attr);
      line.left += " {" + attrs + "}";
    }
    if (node.location.line > 0) {
      const auto slash = node.location.file.find_last_of('/');
      line.location = "; " + node.location.file.substr(slash == std::string::npos ? 0 : slash + 1) + ":" + std::to_string(node.location.line);
    }
    left_width = std::max(left_width, line.left.size());
    type_width = std::max(type_width, line.type.size());
    lines.push_back(std::move(line));
  }
  for (const Line& line : lines) {
    out << "  " << line.left << std::string(left_width - line.left.size(), ' ') << " : " << line.type;
    if (!line.location.empty()) out << std::string(type_width - line.type.size(), ' ') << "    " << line.location;
    out << "\n";
  }
  for (const Write& write : graph.writes) out << "  write %" << graph.inputs[write.input].name << " <- " << names[write.value.index] << "\n";
  out << "  return";
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    out << (i ? ", " : " ") << names[output.value.index];
    if (output.strides) {
      std::string inner = dims(*output.strides);
      inner.front() = '{';
      inner.back() = '}';
      out << inner;
    }
  }
  out << "\n}\n";
  return out.str();
}

}  // namespace fj
