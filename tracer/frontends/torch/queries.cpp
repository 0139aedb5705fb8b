/// Questions about the state of torch and of the process: modes, tracers, defaults.
///
/// Asked while tracing, and answered as constants: a guard on torch's modes holds as long as the answers do. Public
/// model code asks `torch.compiler.is_compiling()` to keep away from values, and to do other things besides: `trace`
/// chooses the answer (tracer/trace.cpp).
#include "arrays/torch_modes.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// What the function at `path` answers now, on constant arguments.
V answer(Tracer& tracer, const char* path, const Arguments& arguments) {
  tracer.note_torch();  // guards the modes as they are outside
  Ref<> positional = Ref<>::steal(PyTuple_New(Py_ssize_t(arguments.positional.size())));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    PyObject* object = tracer.constant_object(arguments.positional[i]);
    if (!object) unsupported("a question about torch that depends on a value");
    PyTuple_SET_ITEM(positional.get(), Py_ssize_t(i), Py_NewRef(object));
  }
  if (!arguments.keywords.empty()) unsupported("a question about torch with named arguments");
  Ref<> function = torch_object(path);
  Ref<> result = function ? Ref<>::steal(PyObject_Call(function.get(), positional.get(), nullptr)) : Ref<>();
  if (!result) PyErr_Clear(), refuse("a question torch does not answer");
  return tracer.constant(std::move(result));
}

bool any_autocast() { return torch_modes() & torch_mode_bits::kAutocast; }

/// Whether the question is about the CPU: of another device's autocast the guard knows only that none is on.
bool about_cpu(Tracer& tracer, const Arguments& arguments) {
  PyObject* device = arguments.positional.size() == 1 ? tracer.constant_object(arguments.positional[0]) : nullptr;
  return device && PyUnicode_CheckExact(device) && PyUnicode_CompareWithASCIIString(device, "cpu") == 0;
}

}  // namespace

V torch_is_autocast_enabled(Tracer& tracer, const Arguments& arguments) {
  if (any_autocast() && !about_cpu(tracer, arguments)) unsupported("whether autocast is on for another device");
  return answer(tracer, "is_autocast_enabled", arguments);
}

V torch_is_autocast_cpu_enabled(Tracer& tracer, const Arguments& arguments) {
  return answer(tracer, "is_autocast_cpu_enabled", arguments);
}
V torch_get_default_dtype(Tracer& tracer, const Arguments& arguments) {
  return answer(tracer, "get_default_dtype", arguments);
}
V torch_get_deterministic(Tracer& tracer, const Arguments& arguments) {
  return answer(tracer, "_C._get_deterministic_algorithms", arguments);
}

/// torch's own code computes other numbers for a compiler: its optimisers count steps in f32, its encoder leaves other
/// values at padded places. Here it does what it does without one, but for the look at accelerators before a step.
V torch_is_compiling(Tracer& tracer, const Arguments&) {
  PyObject* const folder = once([] {
    Ref<> file = imported("torch", "__file__");
    return file ? PyObject_CallMethod(file.get(), "rpartition", "s", "/") : nullptr;
  });
  const char* const home = folder ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(folder, 0)) : nullptr;
  if (home && tracer.location().file.starts_with(std::string(home) + "/"))
    return tracer.boolean(tracer.function() == "Optimizer._accelerator_graph_capture_health_check");
  return tracer.boolean(tracer.torch_is_compiling());
}

V torch_no(Tracer& tracer, const Arguments&) { return tracer.boolean(false); }
V torch_nothing(Tracer& tracer, const Arguments&) { return tracer.none(); }
/// Of dispatch modes: nothing is traced under one, and what has been traced is guarded by that (arrays/torch_modes.h).
V torch_no_modes(Tracer&, const Arguments&) { return Tracer::integer(std::int64_t(0)); }

}  // namespace fj
