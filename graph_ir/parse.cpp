// A recursive-descent parser straight on the characters: the language has one kind of line. Comments run from
// `;` to the end of the line; one of the form `; file.py:8` after a node is the location of it and of those behind it.
//
// What stands inside of an operation (inside.h) is read as text first: which nodes it means follows from the other
// operands and from the result, which come after it.
#include "graph_ir/parse.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "graph_ir/inside.h"
#include "graph_ir/ops.h"
#include "graph_ir/print.h"
#include "graph_ir/print_parts.h"
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
    inputs();
    if (accept_keyword("where")) {
      do symbol_declaration();
      while (accept(","));
    }
    nodes();
    skip_space();
    if (position_ != text_.size()) fail("expected the end of the text, found " + found());
    // What is counted, and what is computed from it.
    for (const Node& node : graph_.nodes)
      if (const Attr* count = counts_size(node.op) ? node.attrs.find("count") : nullptr)
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
  /// Of something in the text that is read, or complained of, later.
  struct Place {
    std::size_t position = 0;
    int line = 0;
  };

  // ---- sizes

  SymDim size() {
    std::vector<SymDim::Term> terms;
    bool negative = accept("-");
    while (true) {
      const SymDim product = product_of_sizes(negative);
      terms.insert(terms.end(), product.terms().begin(), product.terms().end());
      if (terms.size() > kMostTerms) fail("a size of more than " + std::to_string(kMostTerms) + " terms");
      if (accept("+"))
        negative = false;
      else if (accept("-"))
        negative = true;
      else
        return within(SymDim::sum_exactly(std::move(terms)));
    }
  }

  SymDim within(std::optional<SymDim> size) {
    if (!size) fail("a size with a number of more than 64 bits");
    return std::move(*size);
  }

  /// What each factor adds to the text multiplies the terms: bounded before it is multiplied out.
  SymDim product_of_sizes(bool negative = false) {
    SymDim result = size_factor(negative);
    while (accept("*")) {
      const SymDim factor = size_factor(false);
      if (result.terms().size() * factor.terms().size() > kMostTerms)
        fail("a size of more than " + std::to_string(kMostTerms) + " terms");
      if (degree(result) + degree(factor) > kMostFactors)
        fail("a size with a product of more than " + std::to_string(kMostFactors) + " sizes");
      result = within(SymDim::multiply_exactly(result, factor));
    }
    return result;
  }

  static std::size_t degree(const SymDim& size) {  // the highest degree comes first
    return size.terms().empty() ? 0 : size.terms()[0].symbols.size();
  }

  SymDim size_factor(bool negative) {
    if (accept("(")) {
      if (++depth_ > kDeepestSize) fail("a size with too many parentheses");
      SymDim inner = size();
      expect(")");
      --depth_;
      return negative ? within(SymDim::multiply_exactly(SymDim(-1), inner)) : inner;
    }
    skip_space();
    if (peek() == 's' && position_ + 1 < text_.size() &&
        std::isdigit(static_cast<unsigned char>(text_[position_ + 1]))) {
      ++position_;
      const std::int64_t index = integer();
      if (index >= UINT32_MAX) fail("there is no size s" + std::to_string(index));
      const SymDim symbol(SymbolId{std::uint32_t(index)});
      return negative ? SymDim(-1) * symbol : symbol;
    }
    std::uint64_t digits;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), digits);
    if (error != std::errc()) fail("expected a size, found " + found());
    // INT64_MIN is printed with the sign apart from its digits, which alone do not fit.
    if (digits > std::uint64_t(INT64_MAX) + negative) fail("expected a size of 64 bits, found " + found());
    position_ = std::size_t(end - text_.data());
    return SymDim(std::int64_t(negative ? 0 - digits : digits));
  }

  /// The compiler multiplies the sizes of a shape.
  Dims shape() {
    const Place place = {position_, line_};
    Dims result = sizes();
    check_shape(result, place);
    return result;
  }

  void check_shape(const Dims& shape, Place place) {
    if (shape.size() > kMostAxes) fail_at(place, "a shape of more than " + std::to_string(kMostAxes) + " axes");
    std::size_t terms = 1, factors = 0;
    for (const SymDim& size : shape) {
      terms *= std::max(size.terms().size(), std::size_t(1));
      factors += degree(size);
      if (terms > kMostTerms || factors > kMostFactors) fail_at(place, "a shape with too many elements to write down");
    }
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
    return {element, shape()};
  }

  std::optional<Strides> strides() {
    if (!accept_keyword("strides")) return std::nullopt;
    return sizes();
  }

  // ---- the header

  void inputs() {
    expect("(");
    if (accept(")")) return;
    do input();
    while (accept(","));
    expect(")");
  }

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

  void nodes() {
    expect("{");
    while (!accept_keyword("return")) {
      if (accept_keyword("write"))
        write();
      else
        node();
    }
    if (accept("}")) return;
    do output();
    while (accept(","));
    expect("}");
  }

  /// `then(%x: f32[4]) { ... }`, a graph inside of a node. The sizes are those around it, the names its own.
  std::shared_ptr<const Graph> body(const char* keyword_of_it) {
    if (++bodies_ > kDeepestBody)
      fail("more than " + std::to_string(kDeepestBody) + " branches and loops inside of each other");
    keyword(keyword_of_it);
    Graph around;
    std::swap(around, graph_);
    graph_.name = keyword_of_it;
    graph_.symbols = around.symbols;
    made_ += graph_.symbols.size();
    std::map<std::string, ValueId> values, inside;
    values.swap(values_), inside.swap(inside_);
    std::vector<int> lines;
    lines.swap(node_lines_);
    const Location place = std::exchange(place_, {});
    inputs();
    nodes();
    place_ = place;
    lines.swap(node_lines_);
    values.swap(values_), inside.swap(inside_);
    auto made = std::make_shared<Graph>(std::move(graph_));
    graph_ = std::move(around);
    --bodies_;
    return made;
  }

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

  /// `"one text"`, also in pieces: `"one " "text"`.
  std::string quoted() {
    std::string result;
    expect("\"");
    --position_;
    while (accept("\"")) piece_of_quoted(result);
    return result;
  }

  void piece_of_quoted(std::string& result) {
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
    std::vector<Operand> operands;
    if (begins_operand()) {
      do operands.push_back(operand(0));
      while (accept(","));
    }

    // The dtype that says how a constant's value is read stands after it.
    Place constant;
    if (bodies_of(node.op) != 0) {
      expect("{");
      for (std::size_t i = 0; i < bodies_of(node.op); ++i) node.bodies.push_back(body(word_of_body(node.op, i)));
      expect("}");
    } else if (accept("{")) {
      do {
        const std::string name = word();
        const AttrRow* declared = nullptr;
        for (const AttrRow& attr_row : row(node.op).attrs)
          if (attr_row.name == name) declared = &attr_row;
        if (!declared) fail(op_name + " has no attribute `" + name + "`");
        expect("=");
        if (declared->kind == "v") {
          constant = skip_number();
        } else {
          node.attrs.set(name, attr(declared->kind));
        }
      } while (accept(","));
      expect("}");
    }
    if (constant.position) {
      const Attr* to = node.attrs.find("to");
      if (!to) fail(op_name + " needs the attribute `to`");
      node.attrs.set("value", number(constant, std::get<DType>(*to)));
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
    node.location = location();
    line_of_nodes_ = line;
    spend({}, node.location);
    resolve(node, operands, types);
    for (std::size_t i = 0; i < results.size(); ++i) {
      node.results.push_back(graph_.new_value(std::move(types[i])));
      define(results[i], node.results.back());
      if (results[i].find_first_not_of("0123456789") != std::string::npos)
        graph_.names[node.results.back()] = results[i];
    }
    for (const AttrRow& attr_row : row(node.op).attrs)
      if (!node.attrs.find(attr_row.name))
        if (auto value = assumed(node, attr_row.name)) node.attrs.set(attr_row.name, std::move(*value));
    graph_.nodes.push_back(std::move(node));
    node_lines_.push_back(line);
  }

  // ---- operands

  struct Operand {
    enum class Kind : std::uint8_t { Value, Number, Reshape, Transpose, Slice } kind = Kind::Value;
    ValueId value;                                                // of Value
    Place place;                                                  // of the text
    std::vector<Operand> inner;                                   // of the others: one
    Dims shape;                                                   // of Reshape
    std::optional<std::vector<std::int64_t>> permutation;         // of Transpose; nullopt: reversed
    std::vector<std::optional<std::pair<SymDim, SymDim>>> ranges; // of Slice: from, to; nullopt: the whole axis
    std::optional<std::vector<bool>> axes = {};                   // `[:, None]`: which are the array's own
  };

  bool is_ahead(std::string_view keyword) {
    skip_space();
    if (text_.substr(position_, keyword.size()) != keyword) return false;
    const std::size_t end = position_ + keyword.size();
    return end >= text_.size() || !is_word_character(text_[end]);
  }

  bool begins_number() {
    skip_space();
    const char c = peek();
    return std::isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '(' || is_ahead("nan") || is_ahead("inf") ||
           is_ahead("true") || is_ahead("false");
  }

  bool begins_operand() {
    skip_space();
    return peek() == '%' || begins_number() || is_ahead("reshape") || is_ahead("transpose");
  }

  Place skip_number() {
    skip_space();
    const Place place = {position_, line_};
    if (accept("("))
      while (!accept(")")) accept(",") ? void() : void(number_text());
    else
      number_text();
    return place;
  }

  Scalar number(Place place, DType dtype) {
    const Place end = {position_, line_};
    position_ = place.position, line_ = place.line;
    Scalar result = scalar(dtype);
    if (is_word_character(peek()) || peek() == '.') fail("expected a number of dtype " + std::string(name(dtype)));
    position_ = end.position, line_ = end.line;
    return result;
  }

  Operand operand(int depth) {
    if (depth > kDeepestInside) fail("more than two operations inside of another");
    skip_space();
    Operand result;
    result.place = {position_, line_};
    if (peek() == '%') {
      result.value = value();
    } else if (begins_number()) {
      result.kind = Operand::Kind::Number;
      if (depth > 0) fail("expected an array, found " + found());
      skip_number();
      return result;
    } else if (accept_keyword("reshape")) {
      result.kind = Operand::Kind::Reshape;
      expect("(");
      result.inner.push_back(operand(depth + 1));
      expect(",");
      result.shape = shape();
      expect(")");
    } else if (accept_keyword("transpose")) {
      result.kind = Operand::Kind::Transpose;
      expect("(");
      result.inner.push_back(operand(depth + 1));
      if (accept(",")) result.permutation = list([&] { return integer(); });
      expect(")");
    } else {
      fail("expected an operand, found " + found());
    }
    const bool sliced = in_brackets(result);
    if (sliced) in_brackets(result);
    if (depth > 0 && result.axes) fail("inside of another operation `[...]` only slices");
    return result;
  }

  /// Takes `[1:3, :]` or `[:, None]`, if it is there, into the operand. Returns whether it was a slice.
  bool in_brackets(Operand& operand) {
    skip_space();
    if (peek() != '[') return false;
    const Place place = {position_, line_};
    std::vector<bool> own;
    std::vector<std::optional<std::pair<SymDim, SymDim>>> ranges;
    bool slices = false, widens = false;
    list([&] {
      own.push_back(!accept_keyword("None"));
      widens = widens || !own.back();
      ranges.emplace_back();
      if (own.back() && !accept(":")) {
        SymDim from = size();
        expect(":");
        ranges.back() = {std::move(from), size()};
        slices = true;
      }
      return true;
    });
    if (slices && (widens || operand.kind == Operand::Kind::Slice))
      fail_at(place, "an operand is sliced by one `[...]` and widened by one behind it");
    if (!slices) {
      operand.axes = std::move(own);
      return false;
    }
    Operand slice;
    slice.kind = Operand::Kind::Slice;
    slice.place = place;
    slice.ranges = std::move(ranges);
    slice.inner.push_back(std::move(operand));
    operand = std::move(slice);
    return true;
  }

  DType dtype_of(const Operand& operand) const {
    return operand.inner.empty() ? graph_.type(operand.value).dtype : dtype_of(operand.inner[0]);
  }

  [[noreturn]] void fail_at(Place place, const std::string& message) { throw ParseError(place.line, message); }

  /// Makes the operands of a node of these result types, with the nodes that stand inside of it.
  void resolve(Node& node, const std::vector<Operand>& operands, const std::vector<Type>& types) {
    std::vector<std::optional<DType>> dtypes;
    for (const Operand& operand : operands)
      dtypes.push_back(operand.kind == Operand::Kind::Number ? std::nullopt : std::optional(dtype_of(operand)));
    const bool by_element = is_pointwise(node.op) && types.size() == 1;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (operand.kind == Operand::Kind::Number) {
        const auto dtype = types.size() == 1 ? number_dtype(node.op, i, types[0].dtype, dtypes) : std::nullopt;
        if (!dtype)
          fail_at(operand.place, std::string(name(node.op)) + " takes no number as operand " + std::to_string(i));
        const ValueId constant = constant_of(number(operand.place, *dtype), *dtype, node.location);
        const Dims shape = number_shape(node.op, types[0].shape);
        node.operands.push_back(shape.empty() ? constant : broadcast_of(constant, {}, shape, node.location));
        continue;
      }
      const ValueId value = array(operand, node.location);
      const Dims& own = graph_.type(value).shape;
      std::vector<std::int64_t> dims;
      if (operand.axes) {
        if (!by_element) fail_at(operand.place, std::string(name(node.op)) + " takes no operand with `[...]`");
        const std::size_t rank = types[0].shape.size(), given = operand.axes->size();
        for (std::size_t k = 0; k < given; ++k)
          if ((*operand.axes)[k]) dims.push_back(std::int64_t(rank - given + k));
        if (given > rank || dims.size() != own.size())
          fail_at(operand.place, "an array of " + std::to_string(own.size()) + " axes, widened to " +
                                     std::to_string(rank) + ", can't have the axes that its `[...]` names");
      } else if (by_element && widens(own, types[0].shape)) {
        const std::size_t added = types[0].shape.size() - own.size();
        for (std::size_t k = 0; k < own.size(); ++k) dims.push_back(std::int64_t(added + k));
      } else {
        node.operands.push_back(value);
        continue;
      }
      node.operands.push_back(broadcast_of(value, std::move(dims), types[0].shape, node.location));
    }
  }

  ValueId array(const Operand& operand, const Location& location) {
    if (operand.kind == Operand::Kind::Value) return operand.value;
    const ValueId inner = array(operand.inner[0], location);
    const Type& type = graph_.type(inner);
    Attrs attrs;
    if (operand.kind == Operand::Kind::Reshape) {
      attrs.set("shape", operand.shape);
      return inserted(Op::reshape, {inner}, std::move(attrs), {type.dtype, operand.shape}, location);
    }
    Dims shape = type.shape;
    if (operand.kind == Operand::Kind::Slice) {
      if (operand.ranges.size() > shape.size())
        fail_at(operand.place, "there is no axis " + std::to_string(shape.size()));
      Dims starts(shape.size());
      for (std::size_t axis = 0; axis < operand.ranges.size(); ++axis)
        if (const auto& range = operand.ranges[axis]) {
          starts[axis] = range->first;
          shape[axis] = range->second - range->first;
        }
      attrs.set("starts", std::move(starts));
      attrs.set("sizes", shape);
      attrs.set("steps", std::vector<std::int64_t>(shape.size(), 1));
      return inserted(Op::slice, {inner}, std::move(attrs), {type.dtype, std::move(shape)}, location);
    }
    std::vector<std::int64_t> permutation;
    for (std::size_t i = shape.size(); i-- > 0;) permutation.push_back(std::int64_t(i));
    permutation = operand.permutation.value_or(std::move(permutation));
    shape.clear();
    for (std::int64_t axis : permutation) {
      if (axis < 0 || axis >= type.rank()) fail_at(operand.place, "there is no axis " + std::to_string(axis));
      shape.push_back(type.shape[std::size_t(axis)]);
    }
    attrs.set("permutation", std::move(permutation));
    return inserted(Op::transpose, {inner}, std::move(attrs), {type.dtype, std::move(shape)}, location);
  }

  /// Equal numbers and broadcasts are one node.
  ValueId constant_of(Scalar value, DType dtype, const Location& location) {
    ValueId& known = inside_[std::string(name(dtype)) + " " + fj::text(value)];
    if (known.valid()) return known;
    Attrs attrs;
    attrs.set("value", std::move(value));
    attrs.set("to", dtype);
    return known = inserted(Op::constant, {}, std::move(attrs), {dtype, {}}, location);
  }

  ValueId broadcast_of(ValueId value, std::vector<std::int64_t> dims, const Dims& shape, const Location& location) {
    ValueId& known = inside_["%" + std::to_string(value.index) + fj::text(Attr(dims)) + fj::text(shape)];
    if (known.valid()) return known;
    Attrs attrs;
    attrs.set("dims", std::move(dims));
    attrs.set("shape", shape);
    return known = inserted(Op::broadcast, {value}, std::move(attrs), {graph_.type(value).dtype, shape}, location);
  }

  ValueId inserted(Op op, std::vector<ValueId> operands, Attrs attrs, Type type, const Location& location) {
    check_shape(type.shape, {position_, line_of_nodes_});
    spend(type.shape, location);
    Node node;
    node.op = op;
    node.operands = std::move(operands);
    node.attrs = std::move(attrs);
    node.location = location;
    node.results.push_back(graph_.new_value(std::move(type)));
    const ValueId result = node.results[0];
    graph_.nodes.push_back(std::move(node));
    node_lines_.push_back(line_of_nodes_);
    return result;
  }

  /// `; file.py:8` or `; file.py:8 layers.0` on the rest of the node's line is its place, `;` alone says that it has
  /// none; without either, and behind another comment, it is that of the node before. Other comments are skipped later.
  const Location& location() {
    const std::size_t newline = std::min(text_.find('\n', position_), text_.size());
    std::string_view rest = text_.substr(position_, newline - position_);
    const std::size_t start = rest.find_first_not_of(' ');
    if (start == std::string_view::npos || rest[start] != ';') return place_;
    rest.remove_prefix(start + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    rest = rest.substr(0, rest.find_last_not_of(' ') + 1);
    if (rest.empty()) return place_ = {};
    const std::size_t colon = rest.find_last_of(':');
    if (colon == std::string_view::npos || colon == 0) return place_;
    int line;
    const auto [end, error] = std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), line);
    if (error != std::errc() || line <= 0) return place_;
    std::string_view module = rest.substr(std::size_t(end - rest.data()));
    if (!module.empty() && (module[0] != ' ' || module.find(' ', 1) != std::string_view::npos)) return place_;
    if (!module.empty()) module.remove_prefix(1);
    return place_ = {std::string(rest.substr(0, colon)), line, std::string(module)};
  }

  /// A node has the place of the one before and what it puts inside of itself has its shape, which the text says once.
  void spend(const Dims& shape, const Location& location) {
    made_ += location.file.size() + location.module.size();
    for (const SymDim& size : shape)
      for (const SymDim::Term& term : size.terms()) made_ += 1 + term.symbols.size();
    if (made_ > kMostMade * (text_.size() + kSmallText)) fail("the text repeats more than its length allows");
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
  static constexpr std::size_t kMostTerms = 1024, kMostFactors = 64;  // of a size, and of the sizes of a shape
  static constexpr std::size_t kMostAxes = 64;                         // as of NumPy
  static constexpr std::size_t kMostMade = 32, kSmallText = 1 << 14;
  std::size_t made_ = 0;  // characters of places and factors of shapes that nodes repeat
  static constexpr int kDeepestBody = 16;
  int depth_ = 0, bodies_ = 0;
  std::vector<int>& node_lines_;
  Graph graph_;
  std::map<std::string, ValueId> values_, inside_;
  Location place_;         // of the last node
  int line_of_nodes_ = 0;  // on which the node stands that is being made
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
