// A read-only Python face of Graph, by pybind11: this is not a hot path.
#include "frame_hook/graphs/python_graph.h"

#include <pybind11/stl.h>

#include <cctype>
#include <charconv>
#include <set>
#include <string_view>

#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "graph_ir/verify.h"
#include "segment/library_host.h"

namespace fj {

namespace py = pybind11;

py::object size_object(const SymDim& size) {
  if (auto constant = size.constant()) return py::int_(*constant);
  return py::str(size.text());
}

py::tuple sizes_object(const Dims& dims) {
  py::tuple result(dims.size());
  for (std::size_t i = 0; i < dims.size(); i++) result[i] = size_object(dims[i]);
  return result;
}

py::tuple argument_object(const ExternArgument& argument) {
  using Kind = ExternArgument::Kind;
  if (argument.kind == Kind::Constant)
    return py::make_tuple("constant", py::reinterpret_borrow<py::object>(argument.object.get()));
  if (argument.kind == Kind::Operand) return py::make_tuple("operand", argument.index);
  if (argument.kind == Kind::Size) return py::make_tuple("size", size_object(argument.expression));
  if (argument.kind == Kind::Held) return py::make_tuple("held", argument.index);
  py::list items;
  for (const ExternArgument& item : argument.items) items.append(argument_object(item));
  return py::make_tuple(argument.kind == Kind::Tuple ? "tuple" : argument.kind == Kind::List ? "list" : "slice", items);
}

py::object structure_object(const ExternStructure& structure) {
  using Kind = ExternStructure::Kind;
  if (structure.kind == Kind::Array) return py::make_tuple("array", structure.index);
  if (structure.kind == Kind::Number) return py::make_tuple("number", structure.index);
  if (structure.kind != Kind::Tuple && structure.kind != Kind::List) return py::none();
  py::list items;
  for (const ExternStructure& item : structure.items) items.append(structure_object(item));
  return py::make_tuple("tuple", items);
}

namespace {

struct PythonNode {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const ExternTable> externs;
  std::size_t index;
  const Node& node() const { return graph->nodes[index]; }
};

py::object scalar_object(const Scalar& scalar) {
  return std::visit(
      [](const auto& value) -> py::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::pair<double, double>>)
          return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(value.first, value.second));
        else
          return py::cast(value);
      },
      scalar);
}

struct AttrObject {
  py::object operator()(DType dtype) const { return py::str(std::string(name(dtype))); }
  py::object operator()(const Scalar& scalar) const { return scalar_object(scalar); }
  py::object operator()(const SymDim& size) const { return size_object(size); }
  py::object operator()(const Dims& dims) const { return sizes_object(dims); }
  py::object operator()(const std::vector<std::optional<Dims>>& layouts) const {
    py::list result;
    for (const auto& layout : layouts) result.append(layout ? py::object(sizes_object(*layout)) : py::none());
    return result;
  }
  template <class T>
  py::object operator()(const T& value) const {
    return py::cast(value);
  }
};

py::dict attributes(const Attrs& attrs) {
  py::dict result;
  for (const auto& [key, value] : attrs.items()) result[py::str(key)] = std::visit(AttrObject{}, value);
  return result;
}

py::tuple type_object(const Type& type) {
  return py::make_tuple(std::string(name(type.dtype)), sizes_object(type.shape));
}

template <class Id>
std::vector<std::uint32_t> indices(const std::vector<Id>& ids) {
  std::vector<std::uint32_t> result;
  for (Id id : ids) result.push_back(id.index);
  return result;
}

py::list inputs(const PythonGraph& self) {
  py::list result;
  for (const Input& input : self.graph->inputs) {
    const Type& type = self.graph->type(input.value);
    result.append(
        py::make_tuple(input.value.index, input.name, std::string(name(type.dtype)), sizes_object(type.shape)));
  }
  return result;
}

py::list nodes(const PythonGraph& self) {
  py::list result;
  for (std::size_t i = 0; i < self.graph->nodes.size(); i++) result.append(PythonNode{self.graph, self.externs, i});
  return result;
}

py::list symbols(const PythonGraph& self) {
  py::list result;
  for (const Symbol& symbol : self.graph->symbols)
    result.append(py::make_tuple(symbol.name, symbol.min, symbol.max, symbol.hint, symbol.late));
  return result;
}

py::object layout_object(const std::optional<Strides>& strides) {
  return strides ? py::object(sizes_object(*strides)) : py::none();
}

py::tuple layouts(const PythonGraph& self) {
  py::list inputs, outputs;
  for (const Input& input : self.graph->inputs) inputs.append(layout_object(input.strides));
  for (const Output& output : self.graph->outputs) outputs.append(layout_object(output.strides));
  return py::make_tuple(inputs, outputs);
}

py::list composites(const PythonGraph& self) {
  py::list result;
  for (const Composite& composite : self.graph->composites)
    result.append(py::make_tuple(indices(composite.operands), composite.result.index, indices(composite.kept)));
  return result;
}

/// By handle: (function, positional, keywords, structure, operands it writes into), or None for a call that is more than a
/// function of arrays: under another mode, once only, or on stacks.
py::list calls(const PythonGraph& self) {
  py::list result;
  for (std::size_t handle = 0; self.externs && handle < self.externs->size(); ++handle) {
    const ExternCall& call = (*self.externs)[std::int64_t(handle)];
    if (call.inference || call.autocast || call.once || call.stacked || call.derivative) {
      result.append(py::none());
      continue;
    }
    py::list positional;
    py::dict keywords;
    for (const ExternArgument& argument : call.positional) positional.append(argument_object(argument));
    for (const auto& [name, argument] : call.keywords)
      keywords[py::reinterpret_borrow<py::object>(name.get())] = argument_object(argument);
    result.append(py::make_tuple(py::reinterpret_borrow<py::object>(call.callable.get()), positional, keywords,
                                 structure_object(call.structure), call.mutated));
  }
  return result;
}

std::vector<std::uint32_t> spare(const PythonGraph& self) {
  std::vector<std::uint32_t> result;
  for (ValueId value : self.graph->spare_calls) result.push_back(value.index);
  return result;
}

py::list problems(const PythonGraph& self) {
  py::list result;
  for (const VerifyError& error : verify(*self.graph)) result.append(py::make_tuple(error.node, error.message));
  return result;
}

PythonGraph parsed(const std::string& text) {
  try {
    return {std::make_shared<Graph>(parse(text)), nullptr};
  } catch (const ParseError& error) {
    throw py::value_error(error.what());
  }
}

/// What the array library's own function makes of `arrays`, which have the layouts the node asks for.
py::list call_library(const PythonNode& self, const py::list& arrays, const std::vector<std::int64_t>& symbols) {
  const Node& node = self.node();
  if (node.op != Op::extern_call || !self.externs)
    throw py::type_error("only extern_call nodes of a graph being compiled can be called");
  std::vector<ArrayRef> operands, results(node.results.size());
  for (py::handle array : arrays) {
    if (!array_library(array.ptr())) throw py::type_error("an operand is not an array");
    operands.push_back({data_pointer(array.ptr()), array.ptr()});
  }
  SegmentHost host({}, self.externs.get());
  if (!host.call_extern(node.attrs.get<std::int64_t>("handle"), operands, symbols, results))
    throw std::runtime_error(host.failure());
  py::list made;
  for (const ArrayRef& result : results)
    made.append(py::reinterpret_steal<py::object>(static_cast<PyObject*>(result.object)));
  return made;
}

}  // namespace

namespace {

/// Of a call as text, "numpy.kron(x0, (s0, 3))": the sizes among its arguments.
std::vector<std::uint32_t> symbols_in_text(std::string_view text) {
  std::vector<std::uint32_t> found;
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'' || text[i] == '"') {  // a text, in which a quote is escaped
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i) i += text[i] == '\\';
      continue;
    }
    if (!in_word(text[i])) continue;
    const std::size_t begin = i;
    while (i + 1 < text.size() && in_word(text[i + 1])) ++i;
    std::uint32_t number = 0;
    const char *first = text.data() + begin + 1, *last = text.data() + i + 1;
    if (const auto read = std::from_chars(first, last, number); text[begin] == 's' && first != last && read.ptr == last)
      found.push_back(number);
  }
  return found;
}

}  // namespace

std::vector<SymbolId> loose_symbols(const Graph& graph) {
  std::set<SymbolId> used;
  const auto use = [&](const Dims& sizes) {
    for (const SymDim& size : sizes)
      for (SymbolId symbol : size.symbols()) used.insert(symbol);
  };
  for (const Node& node : graph.nodes) {
    for (SymbolId symbol : symbols_used(graph, node)) used.insert(symbol);
    if (const Attr* callee = node.attrs.find("callee"))
      for (std::uint32_t symbol : symbols_in_text(std::get<std::string>(*callee)))
        if (symbol < graph.symbols.size()) used.insert(SymbolId{symbol});
  }
  for (const Input& input : graph.inputs) use(graph.type(input.value).shape), use(input.strides.value_or(Strides()));
  for (const Output& output : graph.outputs) use(output.strides.value_or(Strides()));
  for (std::uint32_t i = std::uint32_t(graph.symbols.size()); i-- > 0;)  // of those before it
    if (const auto& definition = graph.symbols[i].definition; definition && used.count(SymbolId{i}))
      use({definition->dividend, definition->divisor});
  std::vector<SymbolId> result;
  for (std::uint32_t i = 0; i < graph.symbols.size(); i++) {
    if (graph.symbols[i].definition || !used.count(SymbolId{i})) continue;
    bool is_size = false;
    for (const Input& input : graph.inputs)
      for (const SymDim& size : graph.type(input.value).shape) is_size = is_size || size == SymDim(SymbolId{i});
    if (!is_size) result.push_back(SymbolId{i});
  }
  return result;
}

void bind_graph(py::module_& module) {
  py::class_<PythonNode>(module, "Node", "One operation of a graph. Values are numbers.")
      .def_property_readonly("op", [](const PythonNode& n) { return std::string(name(n.node().op)); })
      .def_property_readonly("operands", [](const PythonNode& n) { return indices(n.node().operands); })
      .def_property_readonly("results", [](const PythonNode& n) { return indices(n.node().results); })
      .def_property_readonly("attrs", [](const PythonNode& n) { return attributes(n.node().attrs); })
      .def_property_readonly(
          "types",
          [](const PythonNode& n) {
            py::list types;
            for (ValueId value : n.node().results) types.append(type_object(n.graph->type(value)));
            return types;
          },
          "(dtype, shape) of each result.")
      .def_property_readonly(
          "location",
          [](const PythonNode& n) { return py::make_tuple(n.node().location.file, n.node().location.line, n.node().location.module);
          },
          "(file, line, module path)")
      .def_property_readonly(
          "bodies",
          [](const PythonNode& n) {
            py::list bodies;
            for (const auto& body : n.node().bodies) bodies.append(PythonGraph{body, n.externs});
            return bodies;
          },
          "Of cond: the graphs of which one runs.")
      .def_property_readonly("can_be_called", [](const PythonNode& self) { return self.externs != nullptr; })
      .def("call", call_library, py::arg("arrays"), py::arg("symbols"),
           "extern_call only: the arrays the library's function returns. symbols: a number for each of the graph's.")
      .def("__repr__", [](const PythonNode& n) { return "<framejit node " + std::string(name(n.node().op)) + ">"; });
  py::class_<PythonGraph>(module, "CapturedGraph",
                          "What framejit.Graph is made of: as captured, read only. Values are numbers.")
      .def_property_readonly("text", [](const PythonGraph& g) { return print(*g.graph); }, "In the exact form.")
      .def_property_readonly("short_text", [](const PythonGraph& g) { return print_short(*g.graph); })
      .def_property_readonly(
          "shown",
          [](const PythonGraph& g) {
            std::vector<std::pair<std::string, std::string>> result;
            for (ShownValue& value : shown_values(*g.graph))
              result.emplace_back(std::move(value.name), std::move(value.text));
            return result;
          },
          "(name, what the short text says for it) of each value.")
      .def_property_readonly("name", [](const PythonGraph& g) { return g.graph->name; })
      .def_property_readonly("inputs", inputs, "(value, name, dtype, shape) of each input.")
      .def_property_readonly("nodes", nodes)
      .def_property_readonly("outputs",
                             [](const PythonGraph& g) {
                               std::vector<std::uint32_t> result;
                               for (const Output& output : g.graph->outputs) result.push_back(output.value.index);
                               return result;
                             })
      .def_property_readonly(
          "writes",
          [](const PythonGraph& g) {
            std::vector<std::pair<int, std::uint32_t>> result;
            for (const Write& write : g.graph->writes) result.emplace_back(write.input, write.value.index);
            return result;
          },
          "(input, value): the input's memory holds the value afterwards.")
      .def_property_readonly("symbols", symbols, "(name, min, max, value while tracing, late) of each.")
      .def_property_readonly("layouts", layouts, "Strides of each input, and of each output; None: contiguous.")
      .def_property_readonly("composites", composites, "(operands, result, values kept) of functions with a derivative of their own.")
      .def_property_readonly("names",
                             [](const PythonGraph& g) {
                               py::dict result;
                               for (const auto& [value, name] : g.graph->names) result[py::int_(value.index)] = name;
                               return result;
                             },
                             "The names that people have given to values.")
      .def_property_readonly("calls", calls, "What the calls of the array library are, by their handles.")
      .def_property_readonly("spare", spare, "First results of library calls that happen only if something reads them.")
      .def_property_readonly("problems", problems, "(node or None, text) of what breaks the rules of graphs.")
      .def_static("parse", parsed, "The graph of a text as `text` gives it. ValueError says the line.")
      .def_property_readonly(
          "integers", [](const PythonGraph& g) { return indices(loose_symbols(*g.graph)); },
          "The symbols that are no size of an input: their numbers follow the arrays in a call.")
      .def_property_readonly(
          "definitions",
          [](const PythonGraph& g) {
            py::list result;
            for (std::size_t i = 0; i < g.graph->symbols.size(); i++)
              if (const auto& quotient = g.graph->symbols[i].definition)
                result.append(py::make_tuple(i, size_object(quotient->dividend), size_object(quotient->divisor),
                                             quotient->remainder));
            return result;
          },
          "(symbol, dividend, divisor, remainder) of each symbol that is a floor quotient or a remainder of others.")
      .def("__str__", [](const PythonGraph& g) { return print_short(*g.graph); })
      .def("__repr__", [](const PythonGraph& g) {
        return "<framejit graph " + g.graph->name + " of " + std::to_string(g.graph->nodes.size()) + " operations>";
      });
}

py::object python_graph(std::shared_ptr<const Graph> graph, std::shared_ptr<const ExternTable> externs) {
  return py::cast(PythonGraph{std::move(graph), std::move(externs)});
}

}  // namespace fj
