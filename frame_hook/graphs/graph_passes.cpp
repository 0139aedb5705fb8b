// From a piece as it was traced to Python objects, and back to an edited graph. Start at run_passes.
#include "frame_hook/graphs/graph_passes.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cpython/signals.h"
#include "frame_hook/backends.h"
#include "frame_hook/graphs/python_graph.h"
#include "tracer/value.h"

namespace fj {

namespace {

namespace py = pybind11;

py::object object_or_none(PyObject* object) {
  return object != nullptr ? py::reinterpret_borrow<py::object>(object) : py::none();
}

const char* kind_name(SourceKind kind) {
  constexpr const char* kNames[] = {
#define FJ_SOURCE(name, text) #name,
#include "guards/source.def"
  };
  return kNames[int(kind)];
}

const char* kind_name(GuardKind kind) {
  constexpr const char* kNames[] = {
#define FJ_GUARD(name, ...) #name,
#include "guards/guard.def"
  };
  return kNames[int(kind)];
}

/// (text, steps): each step (kind, index, key), from the root on. Of a value that is made of several: None for the steps.
py::tuple source_object(SourceRef source) {
  std::vector<SourceRef> chain;
  bool plain = true;
  for (SourceRef at = source; at != nullptr; at = at->base) {
    chain.insert(chain.begin(), at);
    plain = plain && at->operands.empty();
  }
  py::list steps;
  for (SourceRef at : chain)
    steps.append(py::make_tuple(kind_name(at->kind), at->index, object_or_none(at->key.get())));
  return py::make_tuple(source->text(), plain ? py::object(py::tuple(steps)) : py::none());
}

/// What a step of a recipe does, as far as Python is told; "" for the rest.
const char* step_name(RecipeOp op) {
  switch (op) {
    case RecipeOp::FromSource: return "source";
    case RecipeOp::Constant: return "constant";
    case RecipeOp::Output: return "output";
    case RecipeOp::OutputScalar: return "scalar";
    case RecipeOp::OutputNumber: return "number";
    case RecipeOp::View: return "view";
    case RecipeOp::Int: return "int";
    case RecipeOp::Tuple: return "tuple";
    case RecipeOp::List: return "list";
    case RecipeOp::Dict: return "dict";
    case RecipeOp::NamedTuple: return "namedtuple";
    case RecipeOp::BumpVersion: return "version";
    default: return "";
  }
}

/// (name, register, arguments, source, object, index, expression, shape, strides, dtype) of each step; the register of the
/// result.
py::tuple recipe_object(const Recipe& recipe) {
  py::list steps;
  for (const RecipeStep& step : recipe.steps)
    steps.append(py::make_tuple(step_name(step.op), step.target, py::cast(step.args),
                                step.source ? py::object(source_object(step.source)) : py::none(),
                                object_or_none(step.object.get()), step.index, size_object(step.expression),
                                sizes_object(step.shape), sizes_object(step.strides), std::string(name(step.dtype))));
  return py::make_tuple(steps, recipe.result);
}

/// (function, positional, keywords, structure, operands written, operands, results, first value made, one behind the last,
/// location), the first five as `CapturedGraph.calls` has them.
py::tuple call_object(const RecordedCall& call) {
  py::list positional;
  py::dict keywords;
  for (const ExternArgument& argument : call.positional) positional.append(argument_object(argument));
  for (const auto& [name, argument] : call.keywords) keywords[py::str(name)] = argument_object(argument);
  std::vector<std::uint32_t> operands, results;
  for (ValueId value : call.operands) operands.push_back(value.index);
  for (ValueId value : call.results) results.push_back(value.index);
  return py::make_tuple(py::reinterpret_borrow<py::object>(call.function.get()), positional, keywords,
                        structure_object(call.structure), call.written, operands, results, call.first, call.last,
                        py::make_tuple(call.location.file, call.location.line, call.location.module));
}

const char* name_of(Library library) { return library == Library::Numpy ? "numpy" : "torch"; }

/// (library, dtype, shape, strides in elements, whether it requires a gradient).
py::object array_object(const ArrayExpectation& array) {
  const bool of_numpy = std::string_view(array.type->tp_name).starts_with("numpy");
  return py::make_tuple(name_of(of_numpy ? Library::Numpy : Library::Torch), std::string(name(array.dtype)),
                        sizes_object(array.shape), sizes_object(array.strides), array.requires_grad);
}

py::dict described(const Segment& segment, const Traced& traced) {
  const auto& [guards, sources, values, calls] = traced;
  py::list inputs, examples, decided, library_calls;
  for (const RecordedCall& call : calls) library_calls.append(call_object(call));
  for (SourceRef source : segment.inputs) {
    inputs.append(source_object(source));
    examples.append(object_or_none(sources.fetch(source, values).get()));
  }
  for (const Guard& guard : guards.all())
    decided.append(py::make_tuple(kind_name(guard.kind), guard.text(), guard.location,
                                  guard.source ? py::object(source_object(guard.source)) : py::none(),
                                  object_or_none(guard.object.get()), guard.number,
                                  guard.symbol.index == UINT32_MAX ? -1 : std::int64_t(guard.symbol.index),
                                  guard.array ? array_object(*guard.array) : py::none()));
  py::dict result;
  result["inputs"] = inputs;
  result["examples"] = examples;
  result["calls"] = library_calls;
  result["guards"] = decided;
  result["recipe"] = recipe_object(segment.recipe);
  py::list lie_as_traced;
  for (SourceRef source : segment.lie_as_traced) lie_as_traced.append(source->text());
  result["lie_as_traced"] = lie_as_traced;
  py::list autograd;
  for (const auto& [asked, source, answer] : segment.autograd_as_traced)
    autograd.append(py::make_tuple(asked, source ? py::object(source_object(source)) : py::none(), answer));
  result["autograd_as_traced"] = autograd;
  py::list libraries;
  for (Library library : segment.output_library) libraries.append(name_of(library));
  result["libraries"] = libraries;
  result["laid_outputs"] = segment.laid_outputs;
  result["whole"] = segment.recipe.result >= 0;
  return result;
}

/// Why a graph can't take the place of another one; "": it can.
std::string misfit(const Graph& edited, const Graph& graph) {
  if (edited.inputs.size() != graph.inputs.size()) return "has another number of inputs";
  if (edited.outputs.size() != graph.outputs.size())
    return "returns " + std::to_string(edited.outputs.size()) + " arrays in place of " +
           std::to_string(graph.outputs.size());
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Type &found = edited.type(edited.outputs[i].value), &wanted = graph.type(graph.outputs[i].value);
    if (found != wanted)
      return "returns " + text(found) + " as output " + std::to_string(i) + " in place of " + text(wanted);
    if (edited.outputs[i].strides != graph.outputs[i].strides)
      return "returns output " + std::to_string(i) + " in another layout";
  }
  if (edited.writes.size() != graph.writes.size()) return "writes another number of inputs";
  for (std::size_t i = 0; i < graph.writes.size(); ++i)
    if (edited.writes[i].input != graph.writes[i].input) return "writes other inputs";
  return "";
}

}  // namespace

bool run_passes(const std::string& function, PyObject* passes, Segment& segment, const Traced& traced) {
  const Graph& whole = *segment.graph;
  if (whole.nodes.empty() && whole.outputs.empty() && whole.writes.empty()) return false;
  const std::string who = "framejit: a pass, given the graph of " + function + ",";
  // A pass may capture graphs of its own.
  struct Position {
    const int step = current_step;
    ~Position() { current_step = step; }
  } position;
  try {
    py::object edited;
    {
      const py::object given = python_graph(std::make_shared<Graph>(*segment.graph), segment.externs);
      const py::dict description = described(segment, traced);
      const LetSignals interruptible;
      PyObject* arguments[] = {given.ptr(), description.ptr()};
      edited = py::reinterpret_steal<py::object>(PyObject_Vectorcall(passes, arguments, 2, nullptr));
      if (!edited) throw py::error_already_set();
    }
    if (edited.is_none()) return false;
    const Graph& graph = *edited.cast<const PythonGraph&>().graph;
    if (const std::string wrong = misfit(graph, *segment.graph); !wrong.empty()) {
      PyErr_Format(error_type(ErrorKind::Graph), "the edited graph of %s %s", function.c_str(), wrong.c_str());
      throw py::error_already_set();
    }
    *segment.graph = graph;
    return true;
  } catch (py::error_already_set& error) {
    // framejit's own errors say all there is to say.
    if (error.matches(error_type(ErrorKind::Error)))
      throw BackendFailure{Ref<>::steal(error.value().inc_ref().ptr())};
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  }
  throw raised_by(who);
}

}  // namespace fj
