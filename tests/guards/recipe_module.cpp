// Running segments from Python with a program made for the test: its outputs are inputs plus one, its write doubles an
// input.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "segment/segment.h"

namespace py = pybind11;
using namespace fj;

namespace {

RecipeOp recipe_op(const std::string& text) {
  static constexpr std::string_view names[] = {"FromSource",   "Constant",
                                               "Output",       "OutputScalar",
                                               "OutputNumber", "View",
                                               "CrossView",    "Int",
                                               "Null",         "Tuple",
                                               "List",         "Set",
                                               "FrozenSet",    "Dict",
                                               "NamedTuple",   "Slice",
                                               "Range",        "Iter",
                                               "Cell",         "Function",
                                               "BoundMethod",  "Instance",
                                               "Exception",    "GetAttr",
                                               "Call",         "CallWithKeywords",
                                               "Expect",       "SetItems",
                                               "SetItem",      "Mutate",
                                               "SetAttr",      "DelAttr",
                                               "SetCell",      "BumpVersion"};
  static_assert(std::size(names) == std::size_t(RecipeOp::BumpVersion) + 1);
  auto found = std::find(std::begin(names), std::end(names), text);
  if (found == std::end(names)) throw py::value_error("no recipe step " + text);
  return RecipeOp(found - std::begin(names));
}

/// f64 vectors: output i is input i + 1; then, if asked to, input 0 doubles.
class PlusOne final : public Program {
 public:
  PlusOne(std::size_t outputs, bool writes, std::uint32_t fails) : outputs_(outputs), writes_(writes), fails_(fails) {}
  std::uint32_t run(Call& call) const override {
    if (fails_) return fails_;
    std::vector<ArrayRef> made;
    std::int64_t n = call.symbols.empty() ? 3 : call.symbols[0];
    for (std::size_t i = 0; i < outputs_; ++i) {
      std::int64_t shape[] = {n}, strides[] = {1};
      ArrayRef array = call.host->allocate(int(i), DType::F64, shape, strides);
      if (!array.object) return kHostFailed;
      for (std::int64_t k = 0; k < n; ++k)
        static_cast<double*>(array.data)[k] = static_cast<const double*>(call.inputs[i].data)[k] + 1;
      call.outputs[i] = array;
    }
    if (writes_)
      for (std::int64_t k = 0; k < n; ++k) static_cast<double*>(call.inputs[0].data)[k] *= 2;
    return kOk;
  }
  int kernel_count() const override { return 1; }
  std::string text() const override { return "plus one"; }

 private:
  std::size_t outputs_;
  bool writes_;
  std::uint32_t fails_;
};

/// slots: inputs, each an f64 vector of `s0` elements for the first `arrays` of them. steps: dicts of op, target, args,
/// slot, object, index. result: a register, or a list of registers for the frame's slots (None: NULL, ...: kept).
py::object run(const py::tuple& slots, int arrays, int outputs, const py::list& steps, const py::object& result,
               bool writes, std::uint32_t fails) {
  auto sources = std::make_shared<SourceTable>();
  Segment segment;
  segment.guards = std::make_unique<GuardSet>(sources);
  segment.graph = std::make_shared<Graph>();
  Symbol symbol;
  symbol.name = "s0";
  SymDim n = segment.graph->new_symbol(symbol);
  for (int i = 0; i < int(slots.size()); ++i) {
    SourceRef source = sources->slot(i, "x" + std::to_string(i));
    if (i >= arrays) continue;
    Guard guard{GuardKind::Array};
    guard.source = source;
    guard.array = ArrayExpectation{};
    guard.array->type = Py_TYPE(slots[std::size_t(i)].ptr());
    guard.array->dtype = DType::F64;
    guard.array->shape = {n};
    guard.array->strides = {1};
    segment.guards->add(std::move(guard));
    segment.inputs.push_back(source);
    segment.graph->add_input("x" + std::to_string(i), Type{DType::F64, {n}});
  }
  segment.guards->seal();
  for (int i = 0; i < outputs; ++i) {
    segment.graph->outputs.push_back({segment.graph->inputs[std::size_t(i)].value, std::nullopt});
    segment.output_library.push_back(Library::Numpy);
  }
  if (writes) segment.graph->writes.push_back({0, segment.graph->inputs[0].value});
  if (arrays > 0) segment.program = std::make_shared<PlusOne>(std::size_t(outputs), writes, fails);
  for (py::handle item : steps) {
    auto words = item.cast<py::dict>();
    RecipeStep step{recipe_op(words["op"].cast<std::string>())};
    if (words.contains("target")) step.target = words["target"].cast<int>();
    if (words.contains("args")) step.args = words["args"].cast<std::vector<int>>();
    if (words.contains("slot")) step.source = sources->slot(words["slot"].cast<int>(), "x");
    if (words.contains("object")) step.object = Ref<>::borrow(py::object(words["object"]).ptr());
    if (words.contains("index")) step.index = words["index"].cast<std::int64_t>();
    if (step.op == RecipeOp::View) {
      step.dtype = DType::F64;
      step.shape = {n + SymDim(-1)};
      step.strides = {1};
      step.expression = 1;
    }
    if (step.op == RecipeOp::Int) step.expression = n * SymDim(step.index);
    segment.recipe.register_count = std::max(segment.recipe.register_count, step.target + 1);
    segment.recipe.steps.push_back(std::move(step));
  }
  if (py::isinstance<py::int_>(result)) {
    segment.recipe.result = result.cast<int>();
  } else {
    segment.exit.kind = Exit::Kind::Break;
    for (py::handle slot : result) {
      bool number = py::isinstance<py::int_>(slot);
      segment.recipe.keep.push_back(slot.ptr() == Py_Ellipsis);
      segment.recipe.slots.push_back(number ? slot.cast<int>() : -1);
    }
  }
  std::vector<PyObject*> values;
  for (py::handle slot : slots) values.push_back(slot.ptr());
  FrameValues frame{nullptr, values};
  GuardBindings bindings;
  if (!segment.guards->holds(frame, bindings)) throw py::value_error("the guards do not hold");
  FrameUpdate update;
  switch (segment.run(frame, bindings, update)) {
    case SegmentStatus::Eager: return py::make_tuple("eager", update.reason);
    case SegmentStatus::Raised: throw py::error_already_set();
    case SegmentStatus::Done: break;
    case SegmentStatus::Retrace: case SegmentStatus::OtherPath: throw py::value_error("asks for another trace");
  }
  if (segment.exit.kind == Exit::Kind::Return) return py::reinterpret_steal<py::object>(update.result.release());
  py::list filled;
  for (Ref<>& slot : update.slots)
    filled.append(slot ? py::reinterpret_steal<py::object>(slot.release()) : py::ellipsis());
  return filled;
}

}  // namespace

PYBIND11_MODULE(framejit_recipe_tests, module) {
  module.def("run", &run, py::arg("slots"), py::arg("arrays") = 0, py::arg("outputs") = 0,
             py::arg("steps") = py::list(), py::arg("result") = 0, py::arg("writes") = false, py::arg("fails") = 0);
}
