// Making graphs. Types are inferred by the rules of each operation's row.
#include "graph_ir/graph.h"

#include <algorithm>

#include "graph_ir/ops.h"
#include "graph_ir/rules/rules.h"
#include "runtime/base/error.h"

namespace fj {

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return &value;
  return nullptr;
}

void Attrs::set(std::string name, Attr value) {
  const auto place = std::lower_bound(items_.begin(), items_.end(), name,
                                      [](const auto& item, const std::string& n) { return item.first < n; });
  if (place != items_.end() && place->first == name)
    place->second = std::move(value);
  else
    items_.emplace(place, std::move(name), std::move(value));
}

template <class T>
const T& Attrs::get(std::string_view name) const {
  const Attr* attr = find(name);
  FJ_CHECK(attr != nullptr, "attribute " + std::string(name) + " is missing");
  const T* value = std::get_if<T>(attr);
  FJ_CHECK(value != nullptr, "attribute " + std::string(name) + " is of another kind");
  return *value;
}

template const bool& Attrs::get<bool>(std::string_view) const;
template const std::int64_t& Attrs::get<std::int64_t>(std::string_view) const;
template const double& Attrs::get<double>(std::string_view) const;
template const std::string& Attrs::get<std::string>(std::string_view) const;
template const DType& Attrs::get<DType>(std::string_view) const;
template const Scalar& Attrs::get<Scalar>(std::string_view) const;
template const std::vector<std::int64_t>& Attrs::get<std::vector<std::int64_t>>(std::string_view) const;
template const SymDim& Attrs::get<SymDim>(std::string_view) const;
template const Dims& Attrs::get<Dims>(std::string_view) const;
template const std::vector<std::optional<Dims>>& Attrs::get<std::vector<std::optional<Dims>>>(std::string_view) const;

std::vector<std::int64_t> symbol_hints(std::span<const Symbol> symbols) {
  std::vector<std::int64_t> hints;
  hints.reserve(symbols.size());
  for (const Symbol& symbol : symbols) hints.push_back(symbol.hint);
  return hints;
}

std::int64_t hint(const SymDim& size, std::span<const Symbol> symbols) { return size.evaluate(symbol_hints(symbols)); }

std::string text(const Type& type) {
  std::string result = std::string(name(type.dtype)) + "[";
  for (std::size_t i = 0; i < type.shape.size(); ++i) result += (i ? ", " : "") + type.shape[i].text();
  return result + "]";
}

ValueId Graph::new_value(Type type) {
  types_.push_back(std::move(type));
  return {std::uint32_t(types_.size() - 1)};
}

const Type& Graph::type(ValueId value) const {
  FJ_CHECK(value.index < types_.size(),
           "value " + std::to_string(value.index) + " of " + std::to_string(types_.size()));
  return types_[value.index];
}

bool Graph::is_late(const SymDim& size) const {
  for (const SymDim::Term& term : size.terms())
    for (SymbolId symbol : term.symbols)
      if (symbol.index < symbols.size() && symbols[symbol.index].late) return true;
  return false;
}

SymbolId Graph::new_symbol(Symbol symbol) {
  const SymbolId id{std::uint32_t(symbols.size())};
  if (symbol.name.empty()) symbol.name = "s" + std::to_string(id.index);
  if (symbol.definition)
    symbol.late = symbol.late || is_late(symbol.definition->dividend) || is_late(symbol.definition->divisor);
  symbols.push_back(std::move(symbol));
  return id;
}

ValueId Graph::add_input(std::string name, Type type, std::optional<Strides> strides) {
  const ValueId value = new_value(std::move(type));
  inputs.push_back({value, std::move(name), std::move(strides)});
  return value;
}

ValueId Graph::add(Op op, std::vector<ValueId> operands, Attrs attrs, Location location) {
  const ValueId result = new_value({});
  define(result, op, std::move(operands), std::move(attrs), std::move(location));
  return result;
}

void Graph::define(ValueId result, Op op, std::vector<ValueId> operands, Attrs attrs, Location location) {
  std::vector<Type> types;
  for (ValueId operand : operands) types.push_back(type(operand));
  try {
    types_[result.index] = rules::infer({op, types, attrs});
  } catch (const rules::Violation& violation) {
    throw InternalError(std::string(fj::name(op)) + ": " + violation.message);
  }
  nodes.push_back({op, std::move(operands), std::move(attrs), {result}, std::move(location)});
}

std::vector<ValueId> Graph::add_extern(std::vector<ValueId> operands, Attrs attrs, std::vector<Type> result_types,
                                       Location location) {
  std::vector<ValueId> results;
  for (Type& type : result_types) results.push_back(new_value(std::move(type)));
  nodes.push_back({Op::extern_call, std::move(operands), std::move(attrs), results, std::move(location)});
  return results;
}

std::vector<ValueId> Graph::add_control(Op op, std::vector<ValueId> operands,
                                        std::vector<std::shared_ptr<const Graph>> bodies, Location location) {
  std::vector<ValueId> results;
  const std::vector<Output>& outputs = bodies[0]->outputs;
  for (std::size_t i = first_state(op); i < outputs.size(); ++i)
    results.push_back(new_value(bodies[0]->type(outputs[i].value)));
  nodes.push_back({op, std::move(operands), {}, results, std::move(location), std::move(bodies)});
  return results;
}

void Graph::rewrite_sizes(const std::function<SymDim(const SymDim&)>& rewritten) {
  auto rewrite = [&](SymDim& size) { size = rewritten(size); };
  auto rewrite_all = [&](std::vector<SymDim>& sizes) { std::for_each(sizes.begin(), sizes.end(), rewrite); };
  auto rewrite_any = [&](std::optional<std::vector<SymDim>>& sizes) {
    if (sizes) rewrite_all(*sizes);
  };
  auto rewrite_attrs = [&](Attrs& attrs) {
    const Attrs before = attrs;
    for (auto [name, value] : before.items()) {
      if (auto* size = std::get_if<SymDim>(&value)) rewrite(*size);
      if (auto* sizes = std::get_if<Dims>(&value)) rewrite_all(*sizes);
      if (auto* layouts = std::get_if<std::vector<std::optional<Dims>>>(&value))
        std::for_each(layouts->begin(), layouts->end(), rewrite_any);
      attrs.set(name, std::move(value));
    }
  };
  for (Type& type : types_) rewrite_all(type.shape);
  for (Symbol& symbol : symbols)
    if (symbol.definition) rewrite(symbol.definition->dividend), rewrite(symbol.definition->divisor);
  for (Input& input : inputs) rewrite_any(input.strides);
  for (Node& node : nodes) {
    rewrite_attrs(node.attrs);
    for (std::shared_ptr<const Graph>& body : node.bodies) {
      auto changed = std::make_shared<Graph>(*body);
      changed->rewrite_sizes(rewritten);
      body = std::move(changed);
    }
  }
  for (Output& output : outputs) rewrite_any(output.strides);
  for (Composite& composite : composites) rewrite_attrs(composite.attrs);
}

void each_size(const Graph& graph, const Node& node, const std::function<void(const SymDim&)>& visit) {
  auto visit_all = [&](const Dims& dims) {
    for (const SymDim& size : dims) visit(size);
  };
  for (ValueId result : node.results) visit_all(graph.type(result).shape);
  for (const auto& [name, attr] : node.attrs.items()) {
    if (const auto* size = std::get_if<SymDim>(&attr)) visit(*size);
    if (const auto* dims = std::get_if<Dims>(&attr)) visit_all(*dims);
    if (const auto* layouts = std::get_if<std::vector<std::optional<Dims>>>(&attr))
      for (const auto& layout : *layouts)
        if (layout) visit_all(*layout);
  }
  for (const std::shared_ptr<const Graph>& body : node.bodies)
    for (const Node& inner : body->nodes) each_size(*body, inner, visit);
}

std::vector<SymbolId> symbols_used(const Graph& graph, const Node& node) {
  std::vector<SymbolId> found;
  std::set<SymbolId> known;
  const auto add = [&](const SymDim& size) {
    for (SymbolId symbol : size.symbols())
      if (known.insert(symbol).second) found.push_back(symbol);
  };
  each_size(graph, node, add);
  for (std::size_t i = 0; i < found.size(); ++i)  // it grows
    if (const auto& definition = graph.symbols[found[i].index].definition)
      add(definition->dividend), add(definition->divisor);
  return found;
}

std::vector<bool> symbols_used(const Graph& graph) {
  std::vector<bool> used(graph.symbols.size());
  const auto add = [&](const SymDim& size) {
    for (SymbolId symbol : size.symbols()) used[symbol.index] = true;
  };
  const auto add_all = [&](const Dims& sizes) { std::for_each(sizes.begin(), sizes.end(), add); };
  for (const Input& input : graph.inputs) {
    add_all(graph.type(input.value).shape);
    if (input.strides) add_all(*input.strides);
  }
  for (const Node& node : graph.nodes) each_size(graph, node, add);
  for (const Output& output : graph.outputs)
    if (output.strides) add_all(*output.strides);
  for (std::size_t s = used.size(); s-- > 0;)  // a quotient is of symbols before it
    if (const auto& definition = graph.symbols[s].definition; definition && used[s])
      add(definition->dividend), add(definition->divisor);
  return used;
}

}  // namespace fj
