// Graph to text: the exact form, and what both forms are made of. print_short.cpp has the other one.
#include "graph_ir/print.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "graph_ir/inside.h"
#include "graph_ir/ops.h"
#include "graph_ir/print_parts.h"
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

std::string quoted(const std::string& value, std::size_t longest = std::string::npos) {
  std::string result = "\"";
  std::size_t begin = 0;
  for (char c : value) {
    if (result.size() - begin > longest && (static_cast<unsigned char>(c) & 0xc0) != 0x80) {  // between characters
      result += "\" \"";
      begin = result.size();
    }
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
  std::string operator()(const Dims& value) const { return fj::text(value); }
  std::string operator()(const std::vector<std::optional<Dims>>& value) const {
    return bracketed(value,
                     [](const std::optional<Dims>& item) { return item ? text(*item) : std::string("contiguous"); });
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

// Input names are Python expressions (`self.weights[0]`); in text they are plain words.
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

std::string strides_text(const Graph& graph, ValueId value, const std::optional<Strides>& strides, bool all) {
  if (!strides || (!all && *strides == contiguous_strides(graph.type(value).shape))) return "";
  return " strides " + text(*strides);
}

std::string exact_text(const Graph& graph, const char* body);

std::string operation_text(const Graph& graph, const Node& node, const Names& names, bool whole = true) {
  std::string result;
  for (std::size_t i = 0; i < node.results.size(); ++i) result += (i ? ", " : "") + name_of(names, node.results[i]);
  if (!node.results.empty()) result += " = ";
  result += name(node.op);
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    result += (i ? ", " : " ") + name_of(names, node.operands[i]);
  if (const std::string attrs = attributes(node); !attrs.empty()) result += " " + attrs;
  if (whole) result += bodies_text(node, exact_text);
  if (const std::string types = result_types(graph, node); !types.empty()) result += " : " + types;
  return result;
}

std::string exact_text(const Graph& graph, const char* body) {
  const Names names = value_names(graph);
  std::string result = header(graph, names, true, body) + "\n";
  Places places;
  for (const Node& node : graph.nodes)
    result += "  " + operation_text(graph, node, names) + places.comment(node.location) + "\n";
  for (const std::string& line : border(graph, names, true)) result += "  " + line + "\n";
  return result + "}\n";
}

}  // namespace

std::string bodies_text(const Node& node, const std::function<std::string(const Graph&, const char* word)>& printed) {
  if (node.bodies.empty()) return "";
  std::string result = " {\n";
  for (std::size_t i = 0; i < node.bodies.size(); ++i) {
    const std::string text = printed(*node.bodies[i], word_of_body(node.op, i));
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      result += "    " + text.substr(begin, end - begin);
      begin = end;
    }
  }
  return result + "  }";
}

bool repeats_result_shape(Op op, std::string_view attr) {
  return (attr == "shape" && row(op).shape_rule == "Attr") || (attr == "sizes" && row(op).shape_rule == "Sizes");
}

std::string text(const Scalar& scalar) { return std::visit(ScalarText{}, scalar); }
std::string text(const Attr& attr) { return std::visit(AttrText{}, attr); }
std::string text(const Dims& dims) {
  return bracketed(dims, [](const SymDim& dim) { return dim.text(); });
}

std::string name_of(const Names& names, ValueId value) {
  return value.index < names.size() ? names[value.index] : std::string("%?");
}

std::string attributes(const Node& node, bool is_short) {
  constexpr std::size_t kLongestText = 60;
  std::string result;
  for (const AttrRow& attr : row(node.op).attrs) {
    const Attr* value = node.attrs.find(attr.name);
    if (!value || repeats_result_shape(node.op, attr.name)) continue;
    if (is_short && assumed(node, attr.name) == *value) continue;
    result += (result.empty() ? "" : ", ") + attr.name + " = ";
    const auto* words = std::get_if<std::string>(value);
    result += words && is_short ? quoted(*words, kLongestText) : text(*value);
  }
  return result.empty() ? result : "{" + result + "}";
}

std::string result_types(const Graph& graph, const Node& node) {
  std::string result;
  for (std::size_t i = 0; i < node.results.size(); ++i) result += (i ? ", " : "") + text(graph.type(node.results[i]));
  return result;
}

std::string place(const Location& location) {
  if (location.line <= 0) return "";
  const std::size_t slash = location.file.find_last_of("/\\");
  return (slash == std::string::npos ? location.file : location.file.substr(slash + 1)) + ":" +
         std::to_string(location.line) + (location.module.empty() ? "" : " " + location.module);
}

std::string Places::comment(const Location& location) {
  std::string found = place(location);
  if (found == last_) return "";
  last_ = std::move(found);
  return "  ;" + (last_.empty() ? "" : " " + last_);
}

Names number_values(const Graph& graph, const std::vector<bool>& inside) {
  Names names(graph.value_count(), "%?");
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
  for (const bool now : {false, true})
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (inside[i] != now) continue;
      for (ValueId result : graph.nodes[i].results) {
        const std::string counted = "%" + std::to_string(number++);
        const auto given = graph.names.find(result);
        const bool free = given != graph.names.end() && taken.insert("%" + given->second).second;
        if (result.index < names.size()) names[result.index] = free ? "%" + given->second : counted;
      }
    }
  return names;
}

std::string header(const Graph& graph, const Names& names, bool all_strides, const char* body) {
  std::vector<std::string> inputs, symbols;
  for (const Input& input : graph.inputs)
    inputs.push_back(name_of(names, input.value) + ": " + text(graph.type(input.value)) +
                     strides_text(graph, input.value, input.strides, all_strides));
  for (std::size_t i = 0; !body && i < graph.symbols.size(); ++i) symbols.push_back(symbol_text(graph, i));
  const std::string opening = (body ? std::string(body) : "graph @" + word(graph.name, ".<>")) + "(";
  const auto joined = [](const std::vector<std::string>& items) {
    std::string result;
    for (std::size_t i = 0; i < items.size(); ++i) result += (i ? ", " : "") + items[i];
    return result;
  };
  const std::string one_line =
      opening + joined(inputs) + ")" + (symbols.empty() ? "" : " where " + joined(symbols)) + " {";
  if (one_line.size() <= kWidestLine) return one_line;
  // As many in a line as there is place for.
  const auto filled = [](const std::vector<std::string>& items) {
    std::string result, line = "    ";
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (line.size() > 4 && line.size() + items[i].size() + 2 > kWidestLine) {
        line.pop_back();
        result += line + "\n";
        line = "    ";
      }
      line += items[i] + (i + 1 < items.size() ? ", " : "");
    }
    return result + line;
  };
  const std::string start = opening + (inputs.empty() ? "" : "\n" + filled(inputs) + "\n") + ")";
  if (symbols.empty()) return start + " {";
  const std::string where = " where " + joined(symbols) + " {";
  return start + (where.size() < kWidestLine ? where : " where\n" + filled(symbols) + "\n{");
}

std::vector<std::string> border(const Graph& graph, const Names& names, bool all_strides) {
  std::vector<std::string> lines;
  for (const Write& write : graph.writes) {
    const bool known = write.input >= 0 && std::size_t(write.input) < graph.inputs.size();
    lines.push_back("write " + (known ? name_of(names, graph.inputs[std::size_t(write.input)].value) : "%?") + " <- " +
                    name_of(names, write.value));
  }
  lines.push_back("return");
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    lines.back() += (i ? ", " : " ") + name_of(names, output.value);
    if (output.value.index < graph.value_count())
      lines.back() += strides_text(graph, output.value, output.strides, all_strides);
  }
  return lines;
}

Names value_names(const Graph& graph) { return number_values(graph, std::vector<bool>(graph.nodes.size())); }

std::string print(const Graph& graph, const Node& node) {
  return operation_text(graph, node, value_names(graph), false);
}

std::string print(const Graph& graph) { return exact_text(graph, nullptr); }

}  // namespace fj
