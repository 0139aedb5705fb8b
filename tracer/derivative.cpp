// Splitting, linking, and running backward. `of` and `compiled` are the graph half, `link` and `backward` the Python half.
#include "tracer/derivative.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "graph_ir/pipeline.h"
#include "guards/check_program.h"
#include "runtime/base/error.h"
#include "tracer/frontends/arrays/arrays.h"
#include "tracer/host.h"

namespace fj {
namespace {

/// The layout of an input for its gradient, so that `.grad` takes it as it is; nullopt where it has gaps or repetitions.
std::optional<Strides> dense_layout(const Dims& shape, const std::optional<Strides>& strides) {
  if (!strides) return std::nullopt;
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].is_constant() || !(*strides)[i].is_constant()) return std::nullopt;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return (*strides)[a].value() < (*strides)[b].value(); });
  std::int64_t expected = 1;
  for (std::size_t axis : order) {
    if (shape[axis].value() == 1) continue;
    if ((*strides)[axis].value() != expected) return std::nullopt;
    expected *= shape[axis].value();
  }
  return strides;
}

/// What the closure of a backward node holds on to.
struct Run {
  std::shared_ptr<Derivative> derivative;
  int node;
  std::vector<std::int64_t> symbols;
};
constexpr const char* kRun = "framejit.backward";

PyObject* call_backward(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
  auto* run = static_cast<Run*>(PyCapsule_GetPointer(capsule, kRun));
  if (run == nullptr) return nullptr;
  if (count != 2 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "backward(saved, cotangents)");
    return nullptr;
  }
  try {
    return run->derivative->backward(run->node, arguments[0], arguments[1], run->symbols).release();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyMethodDef backward_method = {"backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_backward)), METH_FASTCALL,
                               "backward(saved, cotangents) -> one gradient or None per input"};

Ref<> backward_closure(std::shared_ptr<Derivative> derivative, int node, std::span<const std::int64_t> symbols) {
  auto run = std::make_unique<Run>(Run{std::move(derivative), node, {symbols.begin(), symbols.end()}});
  Ref<> capsule = Ref<>::steal(PyCapsule_New(run.get(), kRun, [](PyObject* self) { delete static_cast<Run*>(PyCapsule_GetPointer(self, kRun)); }));
  if (!capsule) return {};
  run.release();
  return Ref<>::steal(PyCFunction_New(&backward_method, capsule.get()));
}

/// framejit._autograd.join, imported when the first gradient is needed: it imports torch.
PyObject* join_function() {
  static PyObject* function = nullptr;
  if (function == nullptr) {
    Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._autograd"));
    if (module) function = PyObject_GetAttrString(module.get(), "join");
  }
  return function;
}

enum class Layout : char { Absent = 'n', Contiguous = 'c', Repeated = 's', Other = 'o' };

/// How a cotangent lies in memory. `Repeated`: one element, expanded, as the derivative of sum() gives.
Layout layout_of(PyObject* tensor) {
  ArrayView view;
  if (!guard_program::read_any_array(tensor, view)) return Layout::Other;
  bool contiguous = true, repeated = view.rank > 0;
  std::int64_t expected = 1;
  for (int i = view.rank; i-- > 0;) {
    contiguous = contiguous && (view.shape[i] == 1 || view.strides[i] == expected);
    repeated = repeated && view.strides[i] == 0;
    expected *= view.shape[i];
  }
  return contiguous || expected == 0 ? Layout::Contiguous : repeated ? Layout::Repeated : Layout::Other;
}

bool has_layout(PyObject* tensor, const Type& type, const std::optional<Strides>& strides, std::span<const std::int64_t> symbols) {
  ArrayView view;
  if (!guard_program::read_any_array(tensor, view) || view.dtype != type.dtype || view.rank != type.rank()) return false;
  const Dims expected = strides ? *strides : contiguous_strides(type.shape);
  for (int i = 0; i < view.rank; ++i) {
    const std::int64_t size = type.shape[std::size_t(i)].evaluate(symbols);
    if (view.shape[i] != size || (size > 1 && view.strides[i] != expected[std::size_t(i)].evaluate(symbols))) return false;
  }
  return true;
}

Ref<> copy_with_layout(PyObject* tensor, const Type& type, const std::optional<Strides>& strides, std::span<const std::int64_t> symbols) {
  std::vector<std::int64_t> shape, layout;
  for (const SymDim& size : type.shape) shape.push_back(size.evaluate(symbols));
  for (const SymDim& stride : strides ? *strides : contiguous_strides(type.shape)) layout.push_back(stride.evaluate(symbols));
  Ref<> copy = allocate(Library::Torch, type.dtype, shape, layout);
  Ref<> data = copy ? Ref<>::steal(PyObject_CallMethod(tensor, "detach", nullptr)) : Ref<>();
  return data && Ref<>::steal(PyObject_CallMethod(copy.get(), "copy_", "O", data.get())) ? copy : Ref<>();
}

}  // namespace

std::shared_ptr<Derivative> Derivative::of(const Graph& graph, const std::vector<int>& wanted, const Copies& copies) {
  std::vector<ValueId> wanted_values, of;
  for (int input : wanted) wanted_values.push_back(graph.inputs[std::size_t(input)].value);
  const std::vector<bool> needs = gradient_flow(graph, wanted_values);
  for (const Output& output : graph.outputs)
    if (needs[output.value.index]) of.push_back(output.value);
  if (of.empty()) return nullptr;
  const Joint joint = differentiate(graph, wanted_values, of);
  std::vector<ValueId> visible;
  std::map<std::uint32_t, Saved> place;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) place[graph.outputs[i].value.index] = {false, int(i)};
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) place[graph.inputs[i].value.index] = {true, int(i)};
  // Which of several arrays is read does not show: what is saved is in memory that nobody else sees.
  for (ValueId value : copies.twice) place.erase(value.index);
  for (auto& [value, where] : place) visible.push_back({value});
  auto result = std::make_shared<Derivative>();
  result->graph_ = graph;
  result->forward_ = graph;
  result->wanted_ = wanted;
  // Each group saves for itself: an array that another one reads is not a source for what this one reads.
  const Independence found = independent_results(joint, wanted_values, of);
  std::vector<std::vector<ValueId>> saved;
  for (int g = 0; g <= *std::max_element(found.group.begin(), found.group.end()); ++g) {
    std::vector<ValueId> results;
    for (std::size_t i = 0; i < of.size(); ++i)
      if (found.group[i] == g) results.push_back(of[i]);
    const bool all = results.size() == of.size();
    saved.push_back(choose_saved(graph, values_read_backward(all ? joint : differentiate(graph, wanted_values, results)), visible, copies.maps));
  }
  std::set<ValueId> together;
  for (const auto& list : saved) together.insert(list.begin(), list.end());
  result->saved_values_.assign(together.begin(), together.end());
  for (ValueId value : result->saved_values_) {
    auto known = place.find(value.index);
    if (known != place.end()) {
      result->saved_.push_back(known->second);
    } else {
      result->saved_.push_back({false, int(result->forward_.outputs.size())});
      result->forward_.outputs.push_back({value, std::nullopt});
    }
    for (const Write& write : graph.writes)
      if (result->saved_.back().input && write.input == result->saved_.back().index) result->reads_written_ = true;
  }
  result->make_nodes(found, saved, needs);
  return result;
}

void Derivative::make_nodes(const Independence& found, const std::vector<std::vector<ValueId>>& saved, const std::vector<bool>& needs) {
  // What is saved and needs a gradient itself is a result of the node that reads it, so of one.
  std::vector<int> node_of(saved.size());  // by group
  std::iota(node_of.begin(), node_of.end(), 0);
  auto join = [&](int a, int b) {
    const int from = node_of[std::size_t(a)], to = node_of[std::size_t(b)];
    std::replace(node_of.begin(), node_of.end(), std::max(from, to), std::min(from, to));
  };
  std::vector<int> linked;  // outputs of the graph
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i)
    if (needs[graph_.outputs[i].value.index]) linked.push_back(int(i));
  std::vector<int> reader(saved_.size(), -1);
  std::vector<std::vector<int>> numbers(saved.size());
  for (std::size_t g = 0; g < saved.size(); ++g)
    for (ValueId value : saved[g]) {
      const auto s = std::size_t(std::lower_bound(saved_values_.begin(), saved_values_.end(), value) - saved_values_.begin());
      numbers[g].push_back(int(s));
      if (saved_[s].input || !needs[value.index]) continue;
      if (reader[s] >= 0) join(reader[s], int(g));
      reader[s] = int(g);
      for (std::size_t i = 0; i < linked.size(); ++i)
        if (linked[i] == saved_[s].index) join(found.group[i], int(g));
    }
  std::vector<Node> nodes(saved.size());
  auto node = [&](int group) -> Node& { return nodes[std::size_t(node_of[std::size_t(group)])]; };
  for (std::size_t g = 0; g < saved.size(); ++g) node(int(g)).saved.insert(node(int(g)).saved.end(), numbers[g].begin(), numbers[g].end());
  for (std::size_t i = 0; i < linked.size(); ++i) node(found.group[i]).linked.push_back(linked[i]);
  for (std::size_t s = 0; s < saved_.size(); ++s)
    if (reader[s] >= 0 && std::size_t(saved_[s].index) >= graph_.outputs.size()) node(reader[s]).linked.push_back(saved_[s].index);
  for (std::size_t w = 0; w < found.reached.size(); ++w)
    for (int group : found.reached[w]) node(group).wanted.push_back(int(w));
  for (Node& made : nodes) {
    if (made.linked.empty()) continue;
    for (std::vector<int>* list : {&made.saved, &made.wanted}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    nodes_.push_back(std::move(made));
  }
}

bool Derivative::saves_input(ValueId input) const {
  return std::find(saved_values_.begin(), saved_values_.end(), input) != saved_values_.end();
}

const Derivative::Backward& Derivative::compiled(int number, const std::string& layouts, const std::vector<bool>& requiring) {
  const auto key = std::make_tuple(number, layouts, requiring);
  if (auto known = backwards_.find(key); known != backwards_.end()) return known->second;
  const Node& node = nodes_[std::size_t(number)];
  std::vector<ValueId> wanted, of, saved;
  for (int w : node.wanted) wanted.push_back(graph_.inputs[std::size_t(wanted_[std::size_t(w)])].value);
  for (int s : node.saved) saved.push_back(saved_values_[std::size_t(s)]);
  for (std::size_t i = 0; i < node.linked.size(); ++i)
    if (Layout(layouts[i]) != Layout::Absent) of.push_back(forward_.outputs[std::size_t(node.linked[i])].value);
  const Joint joint = differentiate(graph_, wanted, of);
  Backward made;
  made.graph = backward_graph(joint, saved);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Saved& from = saved_[std::size_t(node.saved[i])];
    made.graph.inputs[i].strides = from.input ? forward_.inputs[std::size_t(from.index)].strides : forward_.outputs[std::size_t(from.index)].strides;
  }
  std::size_t next = saved.size();
  for (char layout : layouts) {
    if (Layout(layout) == Layout::Absent) continue;
    Input& input = made.graph.inputs[next++];
    if (Layout(layout) == Layout::Repeated) input.strides = Strides(made.graph.type(input.value).shape.size(), 0);
  }
  for (std::size_t i = 0, output = 0; i < wanted.size(); ++i) {
    const bool reached = joint.gradients[i].valid();
    made.gradients.push_back(reached ? int(output) : -1);
    const Input& input = graph_.inputs[std::size_t(wanted_[std::size_t(node.wanted[i])])];
    if (reached) made.graph.outputs[output++].strides = dense_layout(graph_.type(input.value).shape, input.strides);
  }
  std::vector<int> differentiated;
  for (std::size_t i = 0; i < requiring.size(); ++i)
    if (requiring[i]) differentiated.push_back(int(i));
  if (!differentiated.empty()) {
    made.next = Derivative::of(made.graph, differentiated);
    if (made.next) {
      made.next->compile_ = compile_;
      made.next->externs_ = externs_;
      made.graph = made.next->forward_;
    }
  }
  optimise(made.graph);
  made.program = compile_(made.graph);
  // Compiling lets other threads in: one of them may have been here.
  return backwards_.try_emplace(key, std::move(made)).first->second;
}

bool Derivative::link(std::span<const ArrayRef> inputs, std::span<ArrayRef> outputs, std::span<const std::int64_t> symbols) const {
  PyObject* join = join_function();
  if (join == nullptr) return false;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    Ref<> linked = Ref<>::steal(PyTuple_New(Py_ssize_t(node.linked.size()))), saved = Ref<>::steal(PyTuple_New(Py_ssize_t(node.saved.size())));
    Ref<> closure = backward_closure(std::const_pointer_cast<Derivative>(shared_from_this()), int(n), symbols);
    if (!linked || !saved || !closure) return false;
    for (std::size_t i = 0; i < node.linked.size(); ++i)
      PyTuple_SET_ITEM(linked.get(), Py_ssize_t(i), Py_NewRef(static_cast<PyObject*>(outputs[std::size_t(node.linked[i])].object)));
    for (std::size_t i = 0; i < node.saved.size(); ++i) {
      const Saved& from = saved_[std::size_t(node.saved[i])];
      const ArrayRef& array = from.input ? inputs[std::size_t(from.index)] : outputs[std::size_t(from.index)];
      PyTuple_SET_ITEM(saved.get(), Py_ssize_t(i), Py_NewRef(static_cast<PyObject*>(array.object)));
    }
    std::vector<PyObject*> arguments{nullptr, linked.get(), saved.get(), closure.get()};
    for (int w : node.wanted) arguments.push_back(static_cast<PyObject*>(inputs[std::size_t(wanted_[std::size_t(w)])].object));
    Ref<> joined = Ref<>::steal(PyObject_Vectorcall(join, arguments.data() + 1, (arguments.size() - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
    if (!joined) return false;
    FJ_CHECK(PyTuple_Check(joined.get()) && std::size_t(PyTuple_GET_SIZE(joined.get())) == node.linked.size(), "a result for each output");
    for (std::size_t i = 0; i < node.linked.size(); ++i) {
      ArrayRef& output = outputs[std::size_t(node.linked[i])];
      PyObject* old = static_cast<PyObject*>(output.object);
      output.object = Py_NewRef(PyTuple_GET_ITEM(joined.get(), Py_ssize_t(i)));
      Py_DECREF(old);
    }
  }
  return true;
}

Ref<> Derivative::backward(int number, PyObject* saved, PyObject* cotangents, const std::vector<std::int64_t>& given_symbols) {
  const Node& node = nodes_[std::size_t(number)];
  FJ_CHECK(std::size_t(PyTuple_GET_SIZE(saved)) == node.saved.size() && std::size_t(PyTuple_GET_SIZE(cotangents)) == node.linked.size(),
           "backward of another program");
  std::string layouts;
  std::vector<Ref<>> objects;
  for (std::size_t i = 0; i < node.saved.size(); ++i) objects.push_back(Ref<>::borrow(PyTuple_GET_ITEM(saved, Py_ssize_t(i))));
  for (std::size_t i = 0; i < node.linked.size(); ++i) {
    PyObject* cotangent = PyTuple_GET_ITEM(cotangents, Py_ssize_t(i));
    Layout layout = cotangent == Py_None ? Layout::Absent : layout_of(cotangent);
    Ref<> object = Ref<>::borrow(cotangent);
    if (layout == Layout::Other) {
      object = Ref<>::steal(PyObject_CallMethod(cotangent, "contiguous", nullptr));
      if (!object) return {};
      layout = Layout::Contiguous;
    }
    layouts.push_back(char(layout));
    if (layout != Layout::Absent) objects.push_back(std::move(object));
  }
  std::vector<bool> requiring;
  if (torch_grad_enabled()) {
    for (const Ref<>& object : objects) {
      ArrayView view;
      requiring.push_back(guard_program::read_any_array(object.get(), view) && view.requires_grad);
    }
    if (std::none_of(requiring.begin(), requiring.end(), [](bool required) { return required; })) requiring.clear();
  }
  const bool nothing = std::all_of(layouts.begin(), layouts.end(), [](char layout) { return Layout(layout) == Layout::Absent; });
  Ref<> result = Ref<>::steal(PyTuple_New(Py_ssize_t(node.wanted.size())));
  if (!result) return {};
  for (std::size_t i = 0; i < node.wanted.size(); ++i) PyTuple_SET_ITEM(result.get(), Py_ssize_t(i), Py_NewRef(Py_None));
  if (nothing) return result;

  const Backward& backward = compiled(number, layouts, requiring);
  const Graph& graph = backward.graph;
  std::vector<std::int64_t> symbols(given_symbols);
  symbols.resize(std::max(symbols.size(), graph.symbols.size()));
  std::vector<Ref<>> plain(objects.size());  // what the program reads, where it is not the object itself
  std::vector<ArrayRef> inputs;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Input& input = graph.inputs[i];
    // Hooks on saved tensors may bring them back in another layout.
    if (!has_layout(objects[i].get(), graph.type(input.value), input.strides, symbols)) {
      plain[i] = copy_with_layout(objects[i].get(), graph.type(input.value), input.strides, symbols);
      if (!plain[i]) return {};
    }
    PyObject* object = plain[i] ? plain[i].get() : objects[i].get();
    inputs.push_back({data_pointer(object), object});
  }
  std::vector<ArrayRef> outputs(graph.outputs.size());
  struct Owned {
    std::vector<ArrayRef>& arrays;
    ~Owned() {
      for (const ArrayRef& array : arrays) Py_XDECREF(static_cast<PyObject*>(array.object));
    }
  } owned{outputs};
  const std::vector<Library> libraries(graph.outputs.size(), Library::Torch);
  SegmentHost host(libraries, externs_.get());
  Call call;
  call.host = &host;
  call.inputs = inputs;
  call.symbols = symbols;
  call.outputs = outputs;
  if (const std::uint32_t status = backward.program->run(call); status != kOk) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "framejit: backward failed (%s)", host.failure().c_str());
    return {};
  }
  if (backward.next) {
    // Autograd's own objects, so that the graph of the derivative goes on from them.
    std::vector<ArrayRef> given;
    for (std::size_t i = 0; i < objects.size(); ++i) given.push_back({inputs[i].data, objects[i].get()});
    if (!backward.next->link(given, outputs, symbols)) return {};
  }
  for (std::size_t i = 0; i < node.wanted.size(); ++i)
    if (backward.gradients[i] >= 0) {
      PyObject* gradient = static_cast<PyObject*>(outputs[std::size_t(backward.gradients[i])].object);
      PyTuple_SetItem(result.get(), Py_ssize_t(i), Py_NewRef(gradient));
    }
  return result;
}

}  // namespace fj
