// Walks the graph once in order, remembering which values are defined. Types are checked by the same rules that
// Graph::add infers them with.
#include "graph_ir/verify.h"

#include <algorithm>
#include <set>

#include "graph_ir/ops.h"
#include "graph_ir/print.h"
#include "graph_ir/rules/rules.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

bool is_of_kind(const Attr& attr, const std::string& kind) {
  if (kind == "i") return std::holds_alternative<std::int64_t>(attr);
  if (kind == "is") return std::holds_alternative<std::vector<std::int64_t>>(attr);
  if (kind == "d") return std::holds_alternative<SymDim>(attr);
  if (kind == "ds") return std::holds_alternative<Dims>(attr);
  if (kind == "t") return std::holds_alternative<DType>(attr);
  if (kind == "v") return std::holds_alternative<Scalar>(attr);
  if (kind == "s") return std::holds_alternative<std::string>(attr);
  if (kind == "b") return std::holds_alternative<bool>(attr);
  return kind == "lay" && std::holds_alternative<std::vector<std::optional<Dims>>>(attr);
}

/// The least and the greatest value of a size under the ranges of its symbols, as far as 128 bits tell.
struct Range {
  __int128 low, high;
};

std::optional<Range> range_of(const SymDim& size, const std::vector<Symbol>& symbols) {
  Range sum{0, 0};
  for (const SymDim::Term& term : size.terms()) {
    Range product{term.coefficient, term.coefficient};
    for (SymbolId symbol : term.symbols) {
      if (symbol.index >= symbols.size()) return std::nullopt;  // of an operand that was complained of
      const __int128 low = symbols[symbol.index].min, high = symbols[symbol.index].max;
      __int128 ends[4];
      if (__builtin_mul_overflow(product.low, low, &ends[0]) || __builtin_mul_overflow(product.low, high, &ends[1]) ||
          __builtin_mul_overflow(product.high, low, &ends[2]) || __builtin_mul_overflow(product.high, high, &ends[3]))
        return std::nullopt;
      product = {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
    }
    if (__builtin_add_overflow(sum.low, product.low, &sum.low) ||
        __builtin_add_overflow(sum.high, product.high, &sum.high))
      return std::nullopt;
  }
  return sum;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.value_count(), false) {}

  std::vector<VerifyError> run() {
    symbols();
    for (const Input& input : graph_.inputs) {
      const std::string subject = "input `" + input.name + "`";
      if (!define(input.value)) fail(subject + " defines a value that is defined already");
      else if (uses_known_symbols(graph_.type(input.value).shape, subject)) {
        if (input.strides) layout(*input.strides, input.value, subject);
        for (const SymDim& size : graph_.type(input.value).shape)
          if (is_negative(size)) fail(subject + " has an axis of " + size.text() + " elements");
      }
    }
    find_counts();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      node_ = i;
      node(graph_.nodes[i]);
    }
    node_.reset();
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string subject = "output " + std::to_string(i);
      const Output& output = graph_.outputs[i];
      if (!is_defined(output.value)) fail(subject + " is not defined");
      else if (output.strides) layout(*output.strides, output.value, subject);
    }
    writes();
    return std::move(errors_);
  }

 private:
  void fail(std::string message) { errors_.push_back({node_, std::move(message)}); }

  bool is_defined(ValueId value) const { return value.index < defined_.size() && defined_[value.index]; }

  bool define(ValueId value) {
    if (value.index >= defined_.size() || defined_[value.index]) return false;
    return defined_[value.index] = true;
  }

  bool uses_known_symbols(std::span<const SymDim> dims, const std::string& subject, std::size_t known = SIZE_MAX) {
    for (const SymDim& dim : dims)
      for (SymbolId symbol : dim.symbols())
        if (symbol.index >= std::min(known, graph_.symbols.size())) {
          fail(subject + " uses s" + std::to_string(symbol.index) + ", which is not declared" +
               (known == SIZE_MAX ? "" : " before it"));
          return false;
        }
    return true;
  }

  void layout(const Strides& strides, ValueId value, const std::string& subject) {
    const int rank = graph_.type(value).rank();
    if (int(strides.size()) != rank)
      fail(subject + " has " + std::to_string(strides.size()) + " strides, expected " + std::to_string(rank));
    else
      uses_known_symbols(strides, subject);
  }

  void symbols() {
    for (std::size_t i = 0; i < graph_.symbols.size(); ++i) {
      const Symbol& symbol = graph_.symbols[i];
      const std::string name = "s" + std::to_string(i);
      if (symbol.min > symbol.max) fail(name + " has an empty range");
      if (symbol.definition) {
        const SymDim both[] = {symbol.definition->dividend, symbol.definition->divisor};
        uses_known_symbols(both, name, i);
        if (both[1] == SymDim(0)) fail(name + " divides by 0");
      }
    }
  }

  /// Which nodes count sizes, and by symbol the last of them that it waits for: its own, or one that what it
  /// is computed from waits for.
  void find_counts() {
    counted_.resize(graph_.symbols.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      if (counts_size(graph_.nodes[i].op))
        if (const Attr* count = graph_.nodes[i].attrs.find("count"); count && std::holds_alternative<SymDim>(*count))
          for (SymbolId symbol : std::get<SymDim>(*count).symbols()) {
            uncounted_.insert(symbol);
            if (symbol.index < counted_.size() && !counted_[symbol.index]) counted_[symbol.index] = {i, symbol};
          }
    if (uncounted_.empty()) return;
    for (std::size_t i = 0; i < graph_.symbols.size(); ++i)
      if (const auto& definition = graph_.symbols[i].definition)
        for (const SymDim& part : {definition->dividend, definition->divisor})
          for (SymbolId symbol : part.symbols())
            if (symbol.index < i && counted_[symbol.index] &&
                (!counted_[i] || counted_[symbol.index]->node > counted_[i]->node))
              counted_[i] = counted_[symbol.index];
  }

  void node(const Node& node) {
    const std::string subject(name(node.op));
    bool sound = true;
    auto broken = [&](const std::string& message) {
      fail(subject + ": " + message);
      sound = false;
    };
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      if (!is_defined(node.operands[i])) broken("operand " + std::to_string(i) + " is not defined before its use");
    for (ValueId result : node.results)
      if (!define(result)) broken("result is a value that is defined already");
    attributes(node, broken);
    for (ValueId result : node.results)
      if (result.index < graph_.value_count() && !uses_known_symbols(graph_.type(result).shape, subject)) sound = false;
    if (!sound) return;
    if (counts_size(node.op)) {
      const std::vector<SymbolId> counted = node.attrs.get<SymDim>("count").symbols();
      if (counted.empty() || counted[0].index >= graph_.symbols.size() || !uncounted_.erase(counted[0]))
        return broken("counts no symbol, or one that is counted already");
      if (!graph_.symbols[counted[0].index].late || graph_.symbols[counted[0].index].definition)
        return broken("counts a symbol that is bound otherwise");
    }
    if (!uncounted_.empty()) {
      bool waits = false;
      each_size(graph_, node, [&](const SymDim& size) {
        for (SymbolId symbol : size.symbols())
          if (!waits && symbol.index < counted_.size() && counted_[symbol.index] &&
              uncounted_.count(counted_[symbol.index]->symbol)) {
            waits = true;
            broken("uses s" + std::to_string(counted_[symbol.index]->symbol.index) + " before it is counted");
          }
      });
      if (waits) return;
    }
    if (bodies_of(node.op) == 0 && !node.bodies.empty()) return broken("has bodies");
    if (node.op == Op::extern_call)
      extern_layouts(node, broken);
    else if (bodies_of(node.op) != 0)
      bodies(node, broken);
    else
      types(node, broken);
  }

  template <class Broken>
  void attributes(const Node& node, Broken& broken) {
    const OpRow& op = row(node.op);
    for (const AttrRow& declared : op.attrs) {
      const Attr* attr = node.attrs.find(declared.name);
      if (!attr && declared.optional) continue;
      if (!attr)
        broken("attribute " + declared.name + " is missing");
      else if (!is_of_kind(*attr, declared.kind))
        broken("attribute " + declared.name + " is not of its kind");
      else if (const Dims* dims = std::get_if<Dims>(attr))
        uses_known_symbols(*dims, std::string(op.name));
      else if (const SymDim* dim = std::get_if<SymDim>(attr))
        uses_known_symbols({dim, 1}, std::string(op.name));
    }
    if (node.attrs.items().size() > op.attrs.size())
      for (const auto& [name, attr] : node.attrs.items()) {
        bool known = false;
        for (const AttrRow& declared : op.attrs) known = known || declared.name == name;
        if (!known) broken("has no attribute " + name);
      }
  }

  /// All bodies take the operands behind the condition and give the results, a loop's behind its next condition.
  template <class Broken>
  void bodies(const Node& node, Broken& broken) {
    if (node.operands.empty() || graph_.type(node.operands[0]) != Type{DType::Bool, {}})
      return broken("takes a condition of type bool[] first");
    if (node.results.empty()) return broken("has no results");
    if (node.bodies.size() != bodies_of(node.op))
      return broken("has " + std::to_string(node.bodies.size()) + " bodies, expected " +
                    std::to_string(bodies_of(node.op)));
    const std::size_t first = first_state(node.op);
    if (first != 0 && node.results.size() >= node.operands.size())
      return broken("has " + std::to_string(node.results.size()) + " results, and " +
                    std::to_string(node.operands.size() - 1) + " states to begin with");
    for (std::size_t i = 0; first != 0 && i < node.results.size(); ++i)
      if (graph_.type(node.results[i]) != graph_.type(node.operands[i + 1]))
        return broken("result " + std::to_string(i) + " has type " + text(graph_.type(node.results[i])) +
                      ", expected " + text(graph_.type(node.operands[i + 1])));
    for (std::size_t b = 0; b < node.bodies.size(); ++b) {
      const Graph& body = *node.bodies[b];
      const std::string subject = std::string(word_of_body(node.op, b)) + ": ";
      if (body.symbols.size() > graph_.symbols.size()) return broken(subject + "has sizes that are not declared");
      for (std::size_t s = 0; s < body.symbols.size(); ++s)
        if (body.symbols[s].late) return broken(subject + "has a size that is counted");
      if (!body.writes.empty()) return broken(subject + "writes an input");
      if (body.inputs.size() + 1 != node.operands.size())
        return broken(subject + "has " + std::to_string(body.inputs.size()) + " inputs, expected " +
                      std::to_string(node.operands.size() - 1));
      if (body.outputs.size() != first + node.results.size())
        return broken(subject + "has " + std::to_string(body.outputs.size()) + " results, expected " +
                      std::to_string(first + node.results.size()));
      for (const Node& inner : body.nodes)
        if (inner.op == Op::extern_call) return broken(subject + "calls a library");
      const std::vector<VerifyError> errors = verify(body);
      if (!errors.empty()) return broken(subject + errors[0].message);
      for (std::size_t i = 0; i < body.inputs.size(); ++i) {
        const Input& input = body.inputs[i];
        if (body.type(input.value) != graph_.type(node.operands[i + 1]))
          return broken(subject + "input `" + input.name + "` has type " + text(body.type(input.value)) +
                        ", expected " + text(graph_.type(node.operands[i + 1])));
        if (input.strides && *input.strides != contiguous_strides(body.type(input.value).shape))
          return broken(subject + "input `" + input.name + "` is not row-major");
      }
      for (std::size_t i = 0; i < body.outputs.size(); ++i) {
        const Output& output = body.outputs[i];
        const Type expected = i < first ? Type{DType::Bool, {}} : graph_.type(node.results[i - first]);
        if (body.type(output.value) != expected)
          return broken(subject + "result " + std::to_string(i) + " has type " + text(body.type(output.value)) +
                        ", expected " + text(expected));
        if (output.strides && *output.strides != contiguous_strides(body.type(output.value).shape))
          return broken(subject + "result " + std::to_string(i) + " is not row-major");
      }
    }
  }

  template <class Broken>
  void types(const Node& node, Broken& broken) {
    if (node.results.size() != 1) return broken("has " + std::to_string(node.results.size()) + " results, expected 1");
    std::vector<Type> operands;
    for (ValueId operand : node.operands) operands.push_back(graph_.type(operand));
    Type inferred;
    try {
      inferred = rules::infer({node.op, operands, node.attrs});
    } catch (const rules::Violation& violation) {
      return broken(violation.message);
    }
    const Type& type = graph_.type(node.results[0]);
    if (type != inferred) return broken("result has type " + text(type) + ", expected " + text(inferred));
    const std::size_t main = node.op == Op::where ? 1 : 0;
    if (main < operands.size() && !accepts(node.op, operands[main].dtype))
      return broken("has no meaning for " + std::string(name(operands[main].dtype)));
    if (node.op == Op::constant && !holds_category(node.attrs.get<Scalar>("value"), category(type.dtype)))
      return broken("value " + text(node.attrs.get<Scalar>("value")) + " is not of dtype " +
                    std::string(name(type.dtype)));
    if (const Attr* steps = node.attrs.find("steps"))
      for (std::int64_t step : std::get<std::vector<std::int64_t>>(*steps))
        if (step == 0) return broken("steps by 0");
    for (const SymDim& size : type.shape)
      if (is_negative(size)) return broken("result has an axis of " + size.text() + " elements");
    bounds(node, operands, type, broken);
  }

  bool is_negative(const SymDim& size) const {
    const auto range = range_of(size, graph_.symbols);
    return range && range->high < 0;
  }

  /// What is outside whatever the sizes are. Where that depends on them, the graph's code tests them in each call.
  template <class Broken>
  void bounds(const Node& node, const std::vector<Type>& operands, const Type& type, Broken& broken) {
    const auto part = [&](std::size_t axis, const char* does, const SymDim& first, const SymDim& count,
                          std::int64_t step, const SymDim& extent) {
      if (first.is_constant() && count.is_constant() && extent.is_constant()) return true;  // the rules have looked
      const SymDim last = first + (count - SymDim(1)) * SymDim(step);
      const auto many = range_of(count, graph_.symbols);
      if (!many || many->low <= 0) return true;
      for (const SymDim& place : {first, last})
        if (is_negative(place) || is_negative(extent - place - SymDim(1))) {
          broken("dimension " + std::to_string(axis) + " " + does + " " + first.text() + " to " + last.text() +
                 " of size " + extent.text());
          return false;
        }
      return true;
    };
    if (node.op == Op::slice || node.op == Op::slice_update) {
      const auto& starts = node.attrs.get<Dims>("starts");
      const auto& steps = node.attrs.get<std::vector<std::int64_t>>("steps");
      const Dims& counts = node.op == Op::slice ? type.shape : operands[1].shape;
      for (std::size_t i = 0; i < starts.size(); ++i)
        if (!part(i, node.op == Op::slice ? "reads" : "writes", starts[i], counts[i], steps[i], operands[0].shape[i]))
          return;
    }
    if (node.op == Op::windows) {
      const auto axis = std::size_t(node.attrs.get<std::int64_t>("axis"));
      const SymDim &count = type.shape[axis], &extent = operands[0].shape[axis];
      const auto step = node.attrs.get<std::int64_t>("step"), size = node.attrs.get<std::int64_t>("size");
      const auto many = range_of(count, graph_.symbols);
      if (many && many->low > 0 && is_negative(extent - (count - SymDim(1)) * SymDim(step) - SymDim(size)))
        return broken(count.text() + " windows of " + std::to_string(size) + " elements, " + std::to_string(step) +
                      " apart, are not in size " + extent.text());
    }
    if (node.op == Op::reshape) {
      const SymDim from = product(operands[0].shape), to = product(type.shape);
      if (is_negative(from - to) || is_negative(to - from))
        return broken("cannot reshape " + from.text() + " elements to " + to.text());
    }
  }

  static bool holds_category(const Scalar& value, DTypeCategory category) {
    switch (category) {
      case DTypeCategory::Bool: return std::holds_alternative<bool>(value);
      case DTypeCategory::Signed: return std::holds_alternative<std::int64_t>(value);
      case DTypeCategory::Unsigned: return std::holds_alternative<std::uint64_t>(value);
      case DTypeCategory::Float: return std::holds_alternative<double>(value);
      case DTypeCategory::Complex: return std::holds_alternative<std::pair<double, double>>(value);
    }
    return false;
  }

  template <class Broken>
  void extern_layouts(const Node& node, Broken& broken) {
    auto check = [&](const char* attr, const std::vector<ValueId>& values, bool more = false) {
      const auto& layouts = node.attrs.get<std::vector<std::optional<Dims>>>(attr);
      if (layouts.size() > values.size() || (layouts.size() < values.size() && !more))
        return broken(std::string(attr) + " has " + std::to_string(layouts.size()) + " entries, expected " +
                      std::to_string(values.size()));
      for (std::size_t i = 0; i < layouts.size(); ++i)
        if (layouts[i])
          layout(*layouts[i], values[i], std::string(name(node.op)) + ": " + attr + " " + std::to_string(i));
    };
    check("operand_strides", node.operands, true);  // others are waited for
    check("result_strides", node.results);
  }

  void writes() {
    std::vector<bool> written(graph_.inputs.size(), false);
    for (const Write& write : graph_.writes) {
      if (write.input < 0 || std::size_t(write.input) >= graph_.inputs.size()) {
        fail("write to input " + std::to_string(write.input) + " of " + std::to_string(graph_.inputs.size()));
        continue;
      }
      const Input& input = graph_.inputs[std::size_t(write.input)];
      const std::string subject = "write to `" + input.name + "`";
      if (!is_defined(write.value))
        fail(subject + " of a value that is not defined");
      else if (graph_.type(write.value) != graph_.type(input.value))
        fail(subject + " has type " + text(graph_.type(write.value)) + ", expected " + text(graph_.type(input.value)));
      if (written[std::size_t(write.input)]) fail(subject + " comes twice");
      written[std::size_t(write.input)] = true;
    }
  }

  const Graph& graph_;
  struct Counted {
    std::size_t node;
    SymbolId symbol;
  };
  std::set<SymbolId> uncounted_;                  // symbols whose node is still to come
  std::vector<std::optional<Counted>> counted_;  // by symbol
  std::vector<bool> defined_;
  std::vector<VerifyError> errors_;
  std::optional<std::size_t> node_;
};

}  // namespace

std::vector<VerifyError> verify(const Graph& graph) { return Verifier(graph).run(); }

void check(const Graph& graph, std::string_view stage) {
  const std::vector<VerifyError> errors = verify(graph);
  if (errors.empty()) return;
  std::string message = "graph is broken " + std::string(stage);
  for (const VerifyError& error : errors)
    message += "\n  " + error.message + (error.node ? " in node " + std::to_string(*error.node) : "");
  FJ_CHECK(errors.empty(), message + "\n" + print(graph));
}

}  // namespace fj
