#include "segment/autograd/extern_derivative.h"

#include <algorithm>
#include <functional>
#include <set>

#include "cpython/objects.h"
#include "runtime/base/error.h"
#include "segment/break_reason.h"

namespace fj {
namespace {

using Integers = std::vector<std::int64_t>;

PyObject* vjp_class() {
  PyObject* const found = once([] { return imported("framejit._support.autograd", "Vjp").release(); });
  return found;
}

/// Asks nothing of torch, which it would import, where only NumPy is used.
bool is_derivative(const ExternCall& call) {
  return call.library == Library::Torch && vjp_class() &&
         Py_TYPE(call.callable.get()) == reinterpret_cast<PyTypeObject*>(vjp_class());
}

ExternArgument operand_argument(int index) {
  ExternArgument argument;
  argument.kind = ExternArgument::Kind::Operand;
  argument.index = index;
  return argument;
}

/// The argument where so many operands more come first.
ExternArgument shifted(ExternArgument argument, int more) {
  if (argument.kind == ExternArgument::Kind::Operand) argument.index += more;
  for (ExternArgument& item : argument.items) item = shifted(std::move(item), more);
  return argument;
}

ExternArgument tuple_argument(std::vector<ExternArgument> items) {
  ExternArgument tuple;
  tuple.kind = ExternArgument::Kind::Tuple;
  tuple.items = std::move(items);
  return tuple;
}

/// The function of a call as one that records what it does, of tensors that are part of a graph.
Ref<> recording(const ExternCall& call) {
  return is_derivative(call) ? Ref<>::steal(PyObject_GetAttrString(call.callable.get(), "again")) : call.callable;
}

/// Which of the tensors among a call's arguments, in order, the call writes into. A derivative, which calls it again,
/// gives it copies of its own.
Ref<> written_among_arguments(const ExternCall& call) {
  Ref<> places = Ref<>::steal(PyList_New(0));
  long place = 0;
  const std::function<void(const ExternArgument&)> visit = [&](const ExternArgument& argument) {
    if (argument.kind == ExternArgument::Kind::Operand) {
      if (std::find(call.mutated.begin(), call.mutated.end(), argument.index) != call.mutated.end())
        if (Ref<> number = Ref<>::steal(PyLong_FromLong(place));
            !number || !places || PyList_Append(places.get(), number.get()) < 0)
          places = {};
      ++place;
    }
    for (const ExternArgument& item : argument.items) visit(item);
  };
  for (const ExternArgument& argument : call.positional) visit(argument);
  for (auto& [name, argument] : call.keywords) visit(argument);
  return places;
}

/// framejit._support.autograd.Vjp(function, results, written): function(cotangents, derived, record, *args, **kwargs)
/// of one result of a call, by its number, or of several.
ExternCall derivative_of(const ExternCall& call, const ExternResultDerivative& of, std::span<const Type> derived_types,
                         std::span<const std::size_t> results) {
  const Integers& derived = of.derived;
  ExternCall made;
  made.name = call.name + "_backward";
  made.derivative = true;
  Ref<> function = recording(call), written = written_among_arguments(call);
  Ref<> numbers = Ref<>::steal(PyTuple_New(Py_ssize_t(results.size())));
  for (std::size_t i = 0; numbers && i < results.size(); ++i)
    PyTuple_SET_ITEM(numbers.get(), Py_ssize_t(i), PyLong_FromSize_t(results[i]));
  if (vjp_class() && function && numbers && written)
    made.callable = Ref<>::steal(
        PyObject_CallFunctionObjArgs(vjp_class(), function.get(), numbers.get(), written.get(), nullptr));
  if (!made.callable) break_graph(BreakReason::UnsupportedOperation, "torch's derivative: " + take_error());
  made.place = call.place;
  made.device = call.device;
  const int more = int(results.size());
  ExternArgument cotangents = tuple_argument({}), wanted = tuple_argument({});
  for (int i = 0; i < more; ++i) cotangents.items.push_back(operand_argument(i));
  made.structure.kind = ExternStructure::Kind::Tuple;
  for (std::size_t i = 0; i < derived.size(); ++i) {
    wanted.items.push_back(operand_argument(int(derived[i]) + more));
    made.results.push_back(
        {derived_types[i].dtype, derived_types[i].shape, contiguous_strides(derived_types[i].shape), -1, 0});
    ExternStructure item;
    item.kind = ExternStructure::Kind::Array;
    item.index = int(i);
    made.structure.items.push_back(std::move(item));
  }
  ExternArgument record;
  record.object = Ref<>::borrow(Py_None);
  if (of.record.valid()) record = operand_argument(int(of.operands.size()) + more);
  made.positional = {more == 1 ? operand_argument(0) : std::move(cotangents), std::move(wanted), std::move(record)};
  for (const ExternArgument& argument : call.positional) made.positional.push_back(shifted(argument, more));
  for (auto& [name, argument] : call.keywords) made.keywords.emplace_back(name, shifted(argument, more));
  return made;
}

}  // namespace

void add_extern_derivative(Graph& graph, ExternTable& table, const ExternCall& call, const ExternResultDerivative& of) {
  Composite composite{CompositeRule::Extern, {}, of.value, of.read, {}};
  std::vector<std::optional<Dims>> strides = of.strides;
  if (of.record.valid()) {
    composite.kept.push_back(of.record);
    strides.push_back(Dims{1});
  }
  Integers gradients;
  std::vector<Type> types;
  for (std::size_t i = 0; i < of.derived.size(); ++i) {
    const ValueId operand = of.operands[std::size_t(of.derived[i])];
    types.push_back(graph.type(operand));
    const ExternPath path = of.paths.empty() ? ExternPath::Gradient : of.paths[i];
    if (path == ExternPath::None) continue;
    composite.operands.push_back(operand);
    gradients.push_back(path == ExternPath::Gradient ? std::int64_t(i) : -1);
  }
  ExternCall derivative = derivative_of(call, of, types, std::span(&of.result, 1));
  table.put(composite.attrs, graph, std::move(derivative));
  composite.attrs.set("operand_strides", std::move(strides));
  composite.attrs.set("derived", of.derived);
  composite.attrs.set("gradients", std::move(gradients));
  graph.composites.push_back(std::move(composite));
}

void add_joint_derivative(Graph& graph, ExternTable& table, const ExternCall& call, const ExternResultDerivative& of,
                          std::span<const std::size_t> results) {
  const std::span<Composite> parts(graph.composites.end() - std::ptrdiff_t(results.size()), graph.composites.end());
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Composite& part) {
    return part.operands == parts[0].operands && part.attrs.get<Integers>("gradients") ==
                                                     parts[0].attrs.get<Integers>("gradients");
  });
  if (results.size() < 2 || !alike) return;
  std::vector<Type> types;
  for (std::int64_t operand : of.derived) types.push_back(graph.type(of.operands[std::size_t(operand)]));
  const std::int64_t handle = table.add(derivative_of(call, of, types, results));
  for (Composite& part : parts) {
    part.attrs.set("joint", handle);
    part.attrs.set("results", Integers(results.begin(), results.end()));
  }
}

void add_derivatives_of_derivatives(Graph& graph, ExternTable& table, const std::vector<bool>& needs) {
  std::set<ValueId> known;
  for (const Composite& composite : graph.composites) known.insert(composite.result);
  const Integers hints = symbol_hints(graph.symbols);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op != Op::extern_call || known.count(node.results[0])) continue;
    ExternCall call = table[node.attrs.get<std::int64_t>("handle")];
    if (!is_derivative(call)) continue;
    ExternResultDerivative of{
        0,  {}, node.operands, node.operands, node.attrs.get<std::vector<std::optional<Dims>>>("operand_strides"),
        {}, {}, {}};
    std::vector<ExternArray> arrays;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const Type& type = graph.type(node.operands[i]);
      if (is_float(type.dtype) && needs[node.operands[i].index]) of.derived.push_back(std::int64_t(i));
      ExternArray array;
      array.dtype = type.dtype;
      for (const SymDim& size : type.shape) array.shape.push_back(size.evaluate(hints));
      for (const SymDim& stride : of.strides[i] ? *of.strides[i] : contiguous_strides(type.shape))
        array.strides.push_back(stride.evaluate(hints));
      arrays.push_back(std::move(array));
    }
    if (of.derived.empty()) continue;
    ExternCall recorded = call;
    recorded.callable = recording(call);
    const std::vector<ExternPath> paths =
        recorded.callable ? paths_of(recorded, arrays, hints, of.derived) : std::vector<ExternPath>{};
    for (; of.result < node.results.size(); ++of.result) {
      of.value = node.results[of.result];
      if (!paths.empty()) of.paths = std::span(paths).subspan(of.result * of.derived.size(), of.derived.size());
      add_extern_derivative(graph, table, call, of);
    }
  }
}

}  // namespace fj
