// forward() and backward() are what torch calls, with the node as first argument. The run they are about is a capsule,
// an attribute of the node; forward finds it beside its arguments, which torch looks at one by one. What is rare is
// left to framejit/_support/autograd.py.
#include "segment/autograd/autograd_node.h"

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "arrays/arrays.h"
#include "cpython/cpython.h"
#include "guards/check_program.h"

namespace fj {
namespace {

struct Run {
  Ref<> results, to_save;  // tuples, until forward has handed them over; torch frees no node that has saved nothing, so
                           // it saves something
  bool reads;              // what was saved
  bool frees;
  RunBackward backward;
};
constexpr const char* kRun = "framejit.run";

struct Names {
  PyObject* materialize_grads = PyUnicode_InternFromString("materialize_grads");
  PyObject* to_save = PyUnicode_InternFromString("to_save");
  PyObject* saved_tensors = PyUnicode_InternFromString("saved_tensors");
  PyObject* maybe_clear_saved_tensors = PyUnicode_InternFromString("maybe_clear_saved_tensors");
  PyObject* run = PyUnicode_InternFromString("run");
  PyObject* current_level = PyUnicode_InternFromString("_current_level");
  PyObject* is_view = PyUnicode_InternFromString("_is_view");
};
const Names& names() {
  static const Names interned;
  return interned;
}

/// The capsule for the node that is being made. Python code may run while torch prepares it, and make nodes of its own.
PyObject*& pending() { return fj_stack(PyThreadState_Get())->node; }
struct Pending {
  explicit Pending(PyObject* capsule) : before(std::exchange(pending(), capsule)) {}
  ~Pending() { pending() = before; }
  PyObject* before;
};

PyObject* forward(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  PyObject* capsule = std::exchange(pending(), nullptr);
  if (capsule == nullptr || count < 1) {
    PyErr_SetString(PyExc_TypeError, "only framejit makes such nodes");
    return nullptr;
  }
  // Cotangents that are absent stay None: a program is compiled for those there are.
  auto* run = static_cast<Run*>(PyCapsule_GetPointer(capsule, kRun));
  PyObject* node = arguments[0];
  if (PyObject_SetAttr(node, names().materialize_grads, Py_False) < 0 ||
      PyObject_SetAttr(node, names().run, capsule) < 0)
    return nullptr;
  if (run->frees && PyObject_SetAttr(node, names().to_save, run->to_save.get()) < 0) return nullptr;
  run->to_save = {};
  return run->results.release();
}

enum class Unusual : std::uint8_t { Kind, Dual };
PyObject* unusual_backward(Unusual what, PyObject* const* arguments, Py_ssize_t count);

bool are_plain(PyObject* const* arguments, Py_ssize_t count) {
  for (Py_ssize_t i = 1; i < count; ++i)
    if (ArrayView view; arguments[i] != Py_None && !guard_program::read_any_array(arguments[i], view)) return false;
  return true;
}

/// Of plain cotangents. `last`: nobody asks this node for another one in this backward.
PyObject* run_backward(PyObject* const* arguments, Py_ssize_t count, bool last) {
  const Ref<> capsule = Ref<>::steal(PyObject_GetAttr(arguments[0], names().run));
  const Run* run = capsule ? static_cast<Run*>(PyCapsule_GetPointer(capsule.get(), kRun)) : nullptr;
  if (run == nullptr) return nullptr;
  Ref<> saved;
  if (run->frees) {
    saved = Ref<>::steal(PyObject_GetAttr(arguments[0], names().saved_tensors));  // raises eager's errors
    if (!saved) return nullptr;
  }
  try {
    std::vector<Ref<>> tensors;
    for (Py_ssize_t i = 0; run->reads && i < PyTuple_GET_SIZE(saved.get()); ++i)
      tensors.push_back(Ref<>::borrow(PyTuple_GET_ITEM(saved.get(), i)));
    saved = {};
    // Asks whether the graph is retained. Of a torch without it all is kept until the node has run.
    if (last && run->reads && !Ref<>::steal(PyObject_CallMethodNoArgs(arguments[0], names().maybe_clear_saved_tensors)))
      PyErr_Clear();
    return run->backward(std::move(tensors), {arguments + 1, std::size_t(count - 1)}).release();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

/// Of one example of a batch, of values or of their tangents.
PyObject* backward_of_values(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "backward(node, *cotangents)");
    return nullptr;
  }
  return are_plain(arguments, count) ? run_backward(arguments, count, false)
                                     : unusual_backward(Unusual::Kind, arguments, count);
}

int forward_level();

PyObject* backward(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const int level = forward_level();
  if (level < -1) return nullptr;
  if (count < 1 || !are_plain(arguments, count)) return backward_of_values(self, arguments, count);
  return level >= 0 ? unusual_backward(Unusual::Dual, arguments, count) : run_backward(arguments, count, true);
}

/// Of framejit._support.autograd, which imports torch.
struct Torch {
  Ref<> apply;    // makes a node
  Ref<> nothing;  // a tuple of one tensor: what is freed of a node that saves nothing
  Ref<> owners, views;
  Ref<> others;   // backward of cotangents that are no plain tensors
  Ref<> duals;    // and inside of forward mode
  Ref<> forward_mode;
};

/// Null: a Python error is set.
const Torch* torch_part() {
  static Torch* made = nullptr;
  if (made != nullptr) return made;
  const Ref<> module = Ref<>::steal(PyImport_ImportModule("framejit._support.autograd"));
  if (!module) return nullptr;
  const Ref<> forward_function = Ref<>::borrow(c_function<forward>("forward")),
              backward_function = Ref<>::borrow(c_function<backward>("backward"));
  if (!forward_function || !backward_function) return nullptr;
  auto part = std::make_unique<Torch>();
  part->apply = Ref<>::steal(
      PyObject_CallMethod(module.get(), "node_maker", "OO", forward_function.get(), backward_function.get()));
  part->nothing = part->apply ? Ref<>::steal(PyObject_GetAttrString(module.get(), "nothing")) : Ref<>();
  part->owners = part->nothing ? Ref<>::steal(PyObject_GetAttrString(module.get(), "owners")) : Ref<>();
  part->views = part->owners ? Ref<>::steal(PyObject_GetAttrString(module.get(), "views")) : Ref<>();
  part->others = part->views ? Ref<>::steal(PyObject_GetAttrString(module.get(), "backward_of_others")) : Ref<>();
  part->duals = part->others ? Ref<>::steal(PyObject_GetAttrString(module.get(), "backward_of_duals")) : Ref<>();
  part->forward_mode = part->duals ? Ref<>::steal(PyObject_GetAttrString(module.get(), "forward_ad")) : Ref<>();
  if (part->forward_mode && made == nullptr) made = part.release();  // importing lets other threads in
  return made;
}

/// Of torch's forward mode: -1 outside of it, less with a Python error set.
int forward_level() {
  const Torch* torch = torch_part();
  const Ref<> level =
      torch ? Ref<>::steal(PyObject_GetAttr(torch->forward_mode.get(), names().current_level)) : Ref<>();
  return level ? int(PyLong_AsLong(level.get())) : -2;
}

PyObject* unusual_backward(Unusual what, PyObject* const* arguments, Py_ssize_t count) {
  const Torch* torch = torch_part();
  const Ref<> own = torch ? Ref<>::borrow(c_function<backward_of_values>("backward")) : Ref<>();
  if (!own) return nullptr;
  std::vector<PyObject*> all{own.get()};
  all.insert(all.end(), arguments, arguments + count);
  return PyObject_Vectorcall((what == Unusual::Dual ? torch->duals : torch->others).get(), all.data(), all.size(),
                             nullptr);
}

/// Whether one is; -1: a Python error is set.
int any_view(PyObject* tensors) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); ++i) {
    const Ref<> answer = Ref<>::steal(PyObject_CallMethodNoArgs(PyTuple_GET_ITEM(tensors, i), names().is_view));
    if (!answer) return -1;
    if (answer.get() == Py_True) return 1;
  }
  return 0;
}

}  // namespace

Ref<> make_autograd_node(Ref<> results, Ref<> saved, bool frees, std::span<PyObject* const> sources,
                         RunBackward backward) {
  const Torch* torch = torch_part();
  const int views = torch ? any_view(results.get()) : -1;
  if (views < 0) return {};
  Ref<> shown;
  if (views == 1) {
    shown = results;
    const Ref<> owners =
        Ref<>::steal(PyObject_CallFunctionObjArgs(torch->owners.get(), results.get(), saved.get(), nullptr));
    if (!owners) return {};
    results = Ref<>::borrow(PyTuple_GetItem(owners.get(), 0));
    saved = Ref<>::borrow(PyTuple_GetItem(owners.get(), 1));
  }
  const bool reads = PyTuple_GET_SIZE(saved.get()) != 0;
  auto run = std::make_unique<Run>(
      Run{std::move(results), reads ? std::move(saved) : torch->nothing, reads, reads || frees, std::move(backward)});
  const PyCapsule_Destructor end = [](PyObject* self) { delete static_cast<Run*>(PyCapsule_GetPointer(self, kRun)); };
  const Ref<> capsule = Ref<>::steal(PyCapsule_New(run.get(), kRun, end));
  if (!capsule) return {};
  run.release();
  const Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(sources.size())));
  if (!arguments) return {};
  for (std::size_t i = 0; i < sources.size(); ++i)
    PyTuple_SET_ITEM(arguments.get(), Py_ssize_t(i), Py_NewRef(sources[i]));
  const Pending now(capsule.get());
  Ref<> made = Ref<>::steal(PyObject_Call(torch->apply.get(), arguments.get(), nullptr));
  if (!made || views == 0) return made;
  return Ref<>::steal(PyObject_CallFunctionObjArgs(torch->views.get(), made.get(), shown.get(), nullptr));
}

}  // namespace fj
