// Graphs from Python objects, each node checked by the rules of its row. A builder that starts from a captured graph
// keeps its inputs, its symbols and the numbers of its values, by which derivatives know of them.
#include "frame_hook/graphs/graph_builder.h"

#include <pybind11/stl.h>

#include <optional>
#include <set>

#include "frame_hook/graphs/python_graph.h"
#include "graph_ir/ops.h"
#include "graph_ir/parse.h"
#include "graph_ir/rules/rules.h"
#include "graph_ir/verify.h"

namespace fj {

namespace {

namespace py = pybind11;

SymDim size_from(py::handle object) {
  if (py::isinstance<py::str>(object)) {
    try {
      return parse_size(object.cast<std::string>());
    } catch (const ParseError& error) {
      throw py::value_error("`" + object.cast<std::string>() + "` is no size: " + error.what());
    }
  }
  if (!PyLong_Check(object.ptr()) || PyBool_Check(object.ptr()))
    throw py::type_error("a size is an int or a text like \"s0*2\", not " + std::string(py::repr(object)));
  return SymDim(object.cast<std::int64_t>());
}

Dims sizes_from(py::handle object) {
  Dims result;
  for (py::handle size : py::reinterpret_borrow<py::iterable>(object)) result.push_back(size_from(size));
  return result;
}

std::optional<Strides> layout_from(py::handle object) {
  if (object.is_none()) return std::nullopt;
  return sizes_from(object);
}

DType dtype_from(py::handle object) {
  const std::string text = object.cast<std::string>();
  if (const auto found = dtype_from_name(text)) return *found;
  throw py::value_error("no dtype is called `" + text + "`");
}

Scalar scalar_from(py::handle object, DType dtype) {
  switch (category(dtype)) {
    case DTypeCategory::Bool: return object.cast<bool>();
    case DTypeCategory::Signed: return object.cast<std::int64_t>();
    case DTypeCategory::Unsigned: return object.cast<std::uint64_t>();
    case DTypeCategory::Float: return object.cast<double>();
    case DTypeCategory::Complex: {
      const Py_complex value = PyComplex_AsCComplex(object.ptr());
      if (PyErr_Occurred()) throw py::error_already_set();
      return std::pair(value.real, value.imag);
    }
  }
  __builtin_unreachable();
}

Attr attr_from(const std::string& kind, py::handle value, const py::dict& all) {
  if (kind == "i") return value.cast<std::int64_t>();
  if (kind == "is") return value.cast<std::vector<std::int64_t>>();
  if (kind == "d") return size_from(value);
  if (kind == "ds") return sizes_from(value);
  if (kind == "t") return dtype_from(value);
  if (kind == "s") return value.cast<std::string>();
  if (kind == "b") return value.cast<bool>();
  if (kind == "v") {
    if (!all.contains("to")) throw py::value_error("the attribute `to` is missing");
    return scalar_from(value, dtype_from(all["to"]));
  }
  std::vector<std::optional<Dims>> layouts;  // "lay"
  for (py::handle layout : py::reinterpret_borrow<py::iterable>(value)) layouts.push_back(layout_from(layout));
  return layouts;
}

Op op_from(const std::string& text) {
  if (const auto found = op_from_name(text)) return *found;
  throw py::value_error("no operation is called `" + text + "`");
}

Attrs attrs_from(Op op, const py::dict& given) {
  Attrs result;
  for (const auto& [key, value] : given) {
    const std::string attr = key.cast<std::string>();
    const AttrRow* declared = nullptr;
    for (const AttrRow& candidate : row(op).attrs)
      if (candidate.name == attr) declared = &candidate;
    if (declared == nullptr) throw py::value_error("has no attribute `" + attr + "`");
    try {
      result.set(attr, attr_from(declared->kind, value, given));
    } catch (const py::cast_error&) {
      throw py::type_error("attribute " + attr + " can't be " + std::string(py::repr(value)));
    }
  }
  return result;
}

Type type_from(const py::tuple& type) { return {dtype_from(type[0]), sizes_from(type[1])}; }
py::tuple type_object(const Type& type) { return py::make_tuple(std::string(name(type.dtype)), sizes_object(type.shape)); }

/// The type of a node's result. ValueError says what is wrong, in the words of verify.h.
Type checked_type(Op op, const std::vector<Type>& operands, const Attrs& attrs) {
  Type result;
  try {
    result = rules::infer({op, operands, attrs});
  } catch (const rules::Violation& violation) {
    throw py::value_error(violation.message);
  }
  const std::size_t main = op == Op::where ? 1 : 0;
  if (main < operands.size() && !accepts(op, operands[main].dtype))
    throw py::value_error("has no meaning for " + std::string(name(operands[main].dtype)));
  return result;
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name) : graph_(std::make_shared<Graph>()) { graph_->name = name; }
  explicit GraphBuilder(const PythonGraph& from) : graph_(std::make_shared<Graph>(*from.graph)), externs_(from.externs) {
    graph_->nodes.clear();
    graph_->outputs.clear();
    graph_->writes.clear();
    graph_->names.clear();
    for (const Input& input : graph_->inputs) defined_.insert(input.value);
  }

  void symbol(std::int64_t min, std::int64_t max, std::int64_t hint, const py::object& definition, bool late) {
    Symbol made;
    made.min = min, made.max = max, made.hint = hint, made.late = late;
    if (!definition.is_none()) {
      const auto parts = definition.cast<py::tuple>();
      made.definition = Symbol::Quotient{size_from(parts[0]), size_from(parts[1]), parts[2].cast<bool>()};
    }
    graph_->new_symbol(std::move(made));
  }

  std::uint32_t input(const std::string& name, const py::tuple& type, const py::object& layout) {
    const ValueId value = graph_->add_input(name, type_from(type), layout_from(layout));
    defined_.insert(value);
    return value.index;
  }

  void rename_input(std::size_t input, const std::string& text) { graph_->inputs.at(input).name = text; }

  /// `number`: of a value of the graph that the builder has started from.
  py::tuple add(const std::string& op_name, const std::vector<std::uint32_t>& operands, const py::dict& given,
                const std::tuple<std::string, int, std::string>& location, const py::object& number) {
    const Op op = op_from(op_name);
    Attrs attrs = attrs_from(op, given);
    const std::vector<ValueId> values = values_from(operands);
    checked_type(op, types_of(values), attrs);
    const ValueId result = number.is_none() ? graph_->new_value({}) : new_definition(number.cast<std::uint32_t>());
    graph_->define(result, op, values, std::move(attrs), location_from(location));
    defined_.insert(result);
    return py::make_tuple(result.index, type_object(graph_->type(result)));
  }

  /// The array library's own function. The numbers of its results.
  std::vector<std::uint32_t> call(const std::vector<std::uint32_t>& operands, const py::dict& given,
                                  const std::vector<py::tuple>& types,
                                  const std::tuple<std::string, int, std::string>& location,
                                  const std::optional<std::vector<std::uint32_t>>& numbers, bool spare) {
    Node node{Op::extern_call, values_from(operands), attrs_from(Op::extern_call, given), {}, location_from(location)};
    for (std::size_t i = 0; i < types.size(); ++i)
      node.results.push_back(numbers ? new_definition(numbers->at(i)) : graph_->new_value(type_from(types[i])));
    defined_.insert(node.results.begin(), node.results.end());
    if (spare && !node.results.empty()) graph_->spare_calls.insert(node.results[0]);
    std::vector<std::uint32_t> results;
    for (ValueId result : node.results) results.push_back(result.index);
    graph_->nodes.push_back(std::move(node));
    return results;
  }

  /// A branch or a loop. The numbers of its results.
  std::vector<std::uint32_t> control(const std::string& operation, const std::vector<std::uint32_t>& operands,
                                     const std::vector<PythonGraph>& bodies,
                                     const std::tuple<std::string, int, std::string>& location,
                                     const std::optional<std::vector<std::uint32_t>>& numbers) {
    const Op op = operation == "loop" ? Op::loop : Op::cond;
    if (bodies.size() != bodies_of(op))
      throw py::value_error(operation + " has " + std::to_string(bodies_of(op)) + " bodies");
    Node node{op, values_from(operands), {}, {}, location_from(location)};
    for (const PythonGraph& body : bodies) node.bodies.push_back(body.graph);
    const Graph& first = *node.bodies[0];
    for (std::size_t i = first_state(op); i < first.outputs.size(); ++i)
      node.results.push_back(numbers ? new_definition(numbers->at(i - first_state(op)))
                                     : graph_->new_value(first.type(first.outputs[i].value)));
    defined_.insert(node.results.begin(), node.results.end());
    std::vector<std::uint32_t> results;
    for (ValueId result : node.results) results.push_back(result.index);
    graph_->nodes.push_back(std::move(node));
    return results;
  }

  void output(std::uint32_t value, const py::object& layout) {
    graph_->outputs.push_back({value_from(value), layout_from(layout)});
  }
  void write(int input, std::uint32_t value) { graph_->writes.push_back({input, value_from(value)}); }

  void name(std::uint32_t value, const std::string& text) { graph_->names[value_from(value)] = text; }

  /// Those of the graph it has started from that are still there, with the operands and the values kept they have now.
  void keep_composites(
      const std::vector<std::tuple<std::size_t, std::vector<std::uint32_t>, std::vector<std::uint32_t>>>& whole) {
    std::vector<Composite> composites;
    for (const auto& [index, operands, kept] : whole) {
      composites.push_back(graph_->composites.at(index));
      composites.back().operands = values_from(operands);
      composites.back().kept = values_from(kept);
    }
    graph_->composites = std::move(composites);
  }

  PythonGraph finish() const {
    const std::vector<VerifyError> errors = verify(*graph_);
    if (!errors.empty()) throw py::value_error(errors[0].message);
    return {graph_, externs_};
  }

 private:
  ValueId value_from(std::uint32_t index) const {
    if (!defined_.count({index})) throw py::value_error("value " + std::to_string(index) + " is not defined before its use");
    return {index};
  }
  std::vector<ValueId> values_from(const std::vector<std::uint32_t>& indices) const {
    std::vector<ValueId> values;
    for (std::uint32_t index : indices) values.push_back(value_from(index));
    return values;
  }
  std::vector<Type> types_of(const std::vector<ValueId>& values) const {
    std::vector<Type> types;
    for (ValueId value : values) types.push_back(graph_->type(value));
    return types;
  }
  ValueId new_definition(std::uint32_t number) const {
    if (number >= graph_->value_count() || defined_.count({number}))
      throw py::value_error("value " + std::to_string(number) + " can't be defined");
    return {number};
  }
  static Location location_from(const std::tuple<std::string, int, std::string>& location) {
    return {std::get<0>(location), std::get<1>(location), std::get<2>(location)};
  }

  std::shared_ptr<Graph> graph_;
  std::shared_ptr<const ExternTable> externs_;
  std::set<ValueId> defined_;
};

py::tuple infer_type(const std::string& op_name, const std::vector<py::tuple>& operands, const py::dict& given) {
  const Op op = op_from(op_name);
  std::vector<Type> types;
  for (const py::tuple& operand : operands) types.push_back(type_from(operand));
  return type_object(checked_type(op, types, attrs_from(op, given)));
}

}  // namespace

void bind_graph_builder(py::module_& module) {
  const py::tuple nowhere = py::make_tuple("", 0, "");
  py::class_<GraphBuilder>(module, "GraphBuilder", "Makes a CapturedGraph, node by node.")
      .def(py::init<const std::string&>(), py::arg("name"))
      .def(py::init<const PythonGraph&>(), py::arg("start"))
      .def("symbol", &GraphBuilder::symbol)
      .def("input", &GraphBuilder::input)
      .def("rename_input", &GraphBuilder::rename_input)
      .def("add", &GraphBuilder::add, py::arg("op"), py::arg("operands"), py::arg("attrs"),
           py::arg("location") = nowhere, py::arg("number") = py::none())
      .def("call", &GraphBuilder::call)
      .def("control", &GraphBuilder::control)
      .def("output", &GraphBuilder::output)
      .def("write", &GraphBuilder::write)
      .def("name", &GraphBuilder::name)
      .def("keep_composites", &GraphBuilder::keep_composites)
      .def("finish", &GraphBuilder::finish);
  module.def("normal_size", [](const py::object& size) { return size_object(size_from(size)); },
             "A size as the graph writes it: \"(s0)*2\" is \"s0*2\".");
  module.def("row_major", [](const py::object& shape) { return sizes_object(contiguous_strides(sizes_from(shape))); },
             "The strides of an array without gaps, in elements.");
  module.def("is_fallible",
             [](const std::string& operation) {
               const auto op = op_from_name(operation);
               return op && row(*op).effect == OpEffect::Fallible;
             },
             "Whether an operation may fail a program, of integers at least: it happens though its result is unread.");
  module.def("infer_type", infer_type, "(dtype, shape) of a node's result. ValueError says which rule its operands break.");
}

}  // namespace fj
