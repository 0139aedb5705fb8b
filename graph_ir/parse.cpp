// A recursive-descent parser straight on the characters: the language has one kind of line. Comments run from
// `;` to the end of the line; one of the form `; file.py:8` after a node is its location.
#include "graph_ir/parse.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>

#include "graph_ir/ops.h"
#include "graph_ir/print.h"
#include "graph_ir/scanner.h"

namespace fj {
namespace {

class Parser : Scanner {
 public:
  Parser(std::string_view text, std::vector<int>& node_lines) : Scanner(text), node_lines_(node_lines) {}

  Graph parse() {
    keyword("graph");
    expect("@");
    graph_.name = word(".<>");
    expect("(");
    if (!accept(")")) {
      do input();
      while (accept(","));
      expect(")");
    }
    if (accept_keyword("where")) {
      do symbol_declaration();
      while (accept(","));
    }
    expect("{");
    while (!accept_keyword("return")) {
      if (accept_keyword("write"))
        write();
      else
        node();
    }
    if (!accept("}")) {
      do output();
      while (accept(","));
      expect("}");
    }
    skip_space();
    if (position_ != text_.size()) fail("expected the end of the text, found " + found());
    // What is counted, and what is computed from it.
    for (const Node& node : graph_.nodes)
      if (const Attr* count = node.op == Op::nonzero ? node.attrs.find("count") : nullptr)
        for (SymbolId symbol : std::get<SymDim>(*count).symbols())
          if (symbol.index < graph_.symbols.size()) graph_.symbols[symbol.index].late = true;
    for (Symbol& symbol : graph_.symbols)
      if (symbol.definition)
        symbol.late =
            symbol.late || graph_.is_late(symbol.definition->dividend) || graph_.is_late(symbol.definition->divisor);
    return std::move(graph_);
  }

  SymDim one_size() {
    SymDim result = size();
    skip_space();
    if (position_ != text_.size()) fail("expected the end of the size, found " + found());
    return result;
  }

 private:
  SymDim size() {
    SymDim sum = accept("-") ? SymDim(0) - product_of_sizes() : product_of_sizes();
    while (true) {
      if (accept("+"))
        sum = sum + product_of_sizes();
      else if (accept("-"))
        sum = sum - product_of_sizes();
      else
        return sum;
    }
  }

  SymDim product_of_sizes() {
    SymDim result = size_factor();
    while (accept("*")) result = result * size_factor();
    return result;
  }

  SymDim size_factor() {
    if (accept("(")) {
      if (++depth_ > kDeepestSize) fail("a size with too many parentheses");
      SymDim inner = size();
      expect(")");
      --depth_;
      return inner;
    }
    skip_space();
    if (peek() == 's' && position_ + 1 < text_.size() &&
        std::isdigit(static_cast<unsigned char>(text_[position_ + 1]))) {
      ++position_;
      return SymDim(SymbolId{std::uint32_t(integer())});
    }
    // INT64_MIN is printed with the sign apart from its digits, which alone do not fit.
    std::uint64_t digits;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), digits);
    if (error != std::errc()) fail("expected a size, found " + found());
    position_ = std::size_t(end - text_.data());
    return SymDim(std::int64_t(digits));
  }

  template <class Item>
  auto list(Item&& item) {
    std::vector<decltype(item())> result;
    expect("[");
    if (accept("]")) return result;
    do result.push_back(item());
    while (accept(","));
    expect("]");
    return result;
  }

  Dims sizes() {
    return list([&] { return size(); });
  }

  Type type() {
    const DType element = dtype();
    return {element, sizes()};
  }

  std::optional<Strides> strides() {
    if (!accept_keyword("strides")) return std::nullopt;
    return sizes();
  }

  // ---- the header

  void symbol_declaration() {
    const std::string expected = "s" + std::to_string(graph_.symbols.size());
    if (const std::string name = word(); name != expected)
      fail("expected the declaration of " + expected + ", found `" + name + "`");
    Symbol symbol;
    symbol.name = expected;
    symbol.min = INT64_MIN;
    if (accept("=")) {
      Symbol::Quotient quotient;
      quotient.dividend = product_of_sizes();
      if (accept("//"))
        quotient.remainder = false;
      else if (accept("%"))
        quotient.remainder = true;
      else
        fail("expected `//` or `%`, found " + found());
      quotient.divisor = product_of_sizes();
      symbol.definition = std::move(quotient);
    }
    if (accept(">=")) {
      symbol.min = integer();
    } else if (accept("<=")) {
      symbol.max = integer();
    } else if (accept_keyword("in")) {
      symbol.min = integer();
      expect("..");
      symbol.max = integer();
    }
    graph_.symbols.push_back(std::move(symbol));
  }

  void input() {
    expect("%");
    const std::string name = word(".");
    expect(":");
    Type input_type = type();
    std::optional<Strides> input_strides = strides();
    define(name, graph_.add_input(name, std::move(input_type), std::move(input_strides)));
  }

  // ---- the body

  void define(const std::string& name, ValueId value) {
    if (!values_.emplace(name, value).second) fail("%" + name + " is defined twice");
  }

  ValueId value() {
    expect("%");
    const std::string name = word(".");
    const auto found = values_.find(name);
    if (found == values_.end()) fail("no value is called %" + name);
    return found->second;
  }

  std::string quoted() {
    expect("\"");
    std::string result;
    while (peek() != '"') {
      if (peek() == '\0' || peek() == '\n') fail("the text in quotes does not end");
      if (peek() == '\\') {
        ++position_;
        result += peek() == 'n' ? '\n' : peek();
      } else {
        result += peek();
      }
      ++position_;
    }
    ++position_;
    return result;
  }

  Attr attr(const std::string& kind) {
    if (kind == "i") return integer();
    if (kind == "is") return list([&] { return integer(); });
    if (kind == "d") return size();
    if (kind == "ds") return sizes();
    if (kind == "t") return dtype();
    if (kind == "s") return quoted();
    if (kind == "b") return boolean();
    return list([&]() -> std::optional<Dims> {  // "lay"
      if (accept_keyword("contiguous")) return std::nullopt;
      return sizes();
    });
  }

  void node() {
    skip_space();
    Node node;
    const int line = line_;
    std::vector<std::string> results;
    if (peek() == '%') {
      do {
        expect("%");
        results.push_back(word("."));
      } while (accept(","));
      expect("=");
    }
    const std::string op_name = word();
    const auto op = op_from_name(op_name);
    if (!op) fail("no operation is called `" + op_name + "`");
    node.op = *op;
    if (accept("%")) {
      --position_;
      do node.operands.push_back(value());
      while (accept(","));
    }

    // The dtype that says how a constant's value is read stands after it.
    std::size_t constant_position = 0;
    int constant_line = 0;
    if (accept("{")) {
      do {
        const std::string name = word();
        const AttrRow* declared = nullptr;
        for (const AttrRow& attr_row : row(node.op).attrs)
          if (attr_row.name == name) declared = &attr_row;
        if (!declared) fail(op_name + " has no attribute `" + name + "`");
        expect("=");
        if (declared->kind == "v") {
          skip_space();
          constant_position = position_, constant_line = line_;
          if (accept("("))
            while (!accept(")")) accept(",") ? void() : void(number_text());
          else
            number_text();
        } else {
          node.attrs.set(name, attr(declared->kind));
        }
      } while (accept(","));
      expect("}");
    }
    if (constant_position) {
      const Attr* to = node.attrs.find("to");
      if (!to) fail(op_name + " needs the attribute `to`");
      const std::size_t end = position_;
      const int end_line = line_;
      position_ = constant_position, line_ = constant_line;
      node.attrs.set("value", scalar(std::get<DType>(*to)));
      position_ = end, line_ = end_line;
    }

    std::vector<Type> types;
    if (!results.empty()) {
      expect(":");
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (i) expect(",");
        types.push_back(type());
      }
    }
    for (const AttrRow& attr_row : row(node.op).attrs)
      if (repeats_result_shape(node.op, attr_row.name) && !types.empty()) node.attrs.set(attr_row.name, types[0].shape);
    for (std::size_t i = 0; i < results.size(); ++i) {
      node.results.push_back(graph_.new_value(std::move(types[i])));
      define(results[i], node.results.back());
      if (results[i].find_first_not_of("0123456789") != std::string::npos) graph_.names[node.results.back()] = results[i];
    }
    node.location = location();
    graph_.nodes.push_back(std::move(node));
    node_lines_.push_back(line);
  }

  // `; file.py:8` or `; file.py:8 layers.0` on the rest of the node's line; any other comment is skipped later.
  Location location() {
    const std::size_t newline = std::min(text_.find('\n', position_), text_.size());
    std::string_view rest = text_.substr(position_, newline - position_);
    const std::size_t start = rest.find_first_not_of(' ');
    if (start == std::string_view::npos || rest[start] != ';') return {};
    rest.remove_prefix(start + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    rest = rest.substr(0, rest.find_last_not_of(' ') + 1);
    const std::size_t colon = rest.find_last_of(':');
    if (colon == std::string_view::npos || colon == 0) return {};
    int line;
    const auto [end, error] = std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), line);
    if (error != std::errc() || line <= 0) return {};
    std::string_view module = rest.substr(std::size_t(end - rest.data()));
    if (!module.empty() && (module[0] != ' ' || module.find(' ', 1) != std::string_view::npos)) return {};
    if (!module.empty()) module.remove_prefix(1);
    return {std::string(rest.substr(0, colon)), line, std::string(module)};
  }

  void write() {
    const ValueId target = value();
    expect("<-");
    const ValueId contents = value();
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i)
      if (graph_.inputs[i].value == target) {
        graph_.writes.push_back({int(i), contents});
        return;
      }
    fail("only inputs can be written");
  }

  void output() {
    const ValueId result = value();
    graph_.outputs.push_back({result, strides()});
  }

  static constexpr int kDeepestSize = 50;
  int depth_ = 0;
  std::vector<int>& node_lines_;
  Graph graph_;
  std::map<std::string, ValueId> values_;
};

}  // namespace

Graph parse(std::string_view text, std::vector<int>& node_lines) {
  node_lines.clear();
  return Parser(text, node_lines).parse();
}

SymDim parse_size(std::string_view text) {
  std::vector<int> none;
  return Parser(text, none).one_size();
}

Graph parse(std::string_view text) {
  std::vector<int> node_lines;
  return parse(text, node_lines);
}

}  // namespace fj
