// Chooses the back end, and adapts a Python callable to the Program interface: arrays in, arrays out, results copied
// into outputs of the layout the graph promises.
#include "frame_hook/backends.h"

#include <array>
#include <map>
#include <utility>

#include "codegen/compile.h"
#include "codegen/cuda/compile_cuda.h"
#include "cpython/signals.h"
#include "frame_hook/graphs/python_graph.h"
#include "guards/source.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/phase.h"

namespace fj {

namespace {

namespace py = pybind11;

// Never destroyed: they own Python objects, and statics are destroyed after Python has ended. There a function that
// takes the last reference to its module's dict with it is a fatal error.
Ref<>& backend_resolver = *new Ref<>;
Ref<>& graph_maker = *new Ref<>;
std::vector<Ref<>>& error_types = *new std::vector<Ref<>>;

constexpr const char* kAdvice =
    "\n  try   print(graph) in the back end shows what each result is; backend=\"eager\" runs the same graph";

/// str(), "" where it raises.
std::string shown(PyObject* object) {
  Ref<> text = Ref<>::steal(PyObject_Str(object));
  const char* bytes = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "";
}

}  // namespace

BackendFailure raised_by(const std::string& what) {
  Ref<> cause = Ref<>::steal(fj_take_exception());
  // A check has found something, which is no fault of the back end.
  if (!PyObject_IsInstance(cause.get(), PyExc_Exception) ||
      PyObject_IsInstance(cause.get(), error_type(ErrorKind::Check)))
    return {std::move(cause)};
  const std::string said = shown(cause.get());
  const std::string raised = what + " raised " + Py_TYPE(cause.get())->tp_name + (said.empty() ? "" : ": " + said);
  PyErr_SetString(error_type(ErrorKind::Backend), (raised + kAdvice).c_str());
  Ref<> error = Ref<>::steal(fj_take_exception());
  PyException_SetContext(error.get(), Ref<>(cause).release());
  PyException_SetCause(error.get(), cause.release());
  return {std::move(error)};
}

namespace {

/// `what` has given `found` in place of `expected`. With no Python error set.
BackendFailure gave(const std::string& what, const std::string& found, const std::string& expected) {
  const std::string text = what + " returned " + found + "; expected " + expected + kAdvice;
  PyErr_SetString(error_type(ErrorKind::Backend), text.c_str());
  return {Ref<>::steal(fj_take_exception())};
}

/// What is no array, in a few words: "None", "a str".
std::string type_in_words(PyObject* object) {
  if (object == Py_None) return "None";
  const std::string type = Py_TYPE(object)->tp_name;
  return (std::string("aeiou").find(type[0]) == std::string::npos ? "a " : "an ") + type;
}

class PythonProgram final : public Program {
 public:
  PythonProgram(std::shared_ptr<const Graph> graph, Ref<> callable, std::string name, bool is_replay)
      : graph_(std::move(graph)), callable_(std::move(callable)), name_(std::move(name)), is_replay_(is_replay),
        loose_(loose_symbols(*graph_)) {}
  ~PythonProgram() override {
    // The last reference may go on any thread.
    PyGILState_STATE state = PyGILState_Ensure();
    callable_ = {};
    PyGILState_Release(state);
  }

  std::uint32_t run(Call& call) const override;
  int kernel_count() const override { return 0; }
  std::string text() const override { return "call of the back end's own function"; }

 private:
  std::uint32_t run_or_throw(Call& call) const;
  Ref<> results_of(Call& call) const;
  Ref<> checked(PyObject* value, PyObject* target, const std::string& which) const;
  void copy(PyObject* value, PyObject* target) const;

  std::shared_ptr<const Graph> graph_;
  Ref<> callable_;
  std::string name_;  // "the function that the back end mine made of f"
  bool is_replay_;    // of the graph, through the library: where it raises, the function as written runs
  std::vector<SymbolId> loose_;
};

/// As an array, if it has the dtype and the shape of `target`. Its strides and its memory may be any: it is copied.
Ref<> PythonProgram::checked(PyObject* value, PyObject* target, const std::string& which) const {
  const auto to = array_library(target);
  Ref<> array = Ref<>::borrow(value);
  if (numpy_scalar_dtype(value))
    array = Ref<>::steal(PyObject_CallMethod(numpy_module(), "asarray", "O", value));
  Ref<> shape = array ? Ref<>::steal(PyObject_GetAttrString(array.get(), "shape")) : Ref<>();
  Ref<> dtype = shape ? Ref<>::steal(PyObject_GetAttrString(array.get(), "dtype")) : Ref<>();
  if (!dtype) {
    PyErr_Clear();
    throw gave(name_, type_in_words(value) + " as " + which, "an array");
  }
  Ref<> wanted_shape = Ref<>::steal(PyObject_GetAttrString(target, "shape"));
  Ref<> wanted_dtype = Ref<>::steal(PyObject_GetAttrString(target, "dtype"));
  if (!wanted_shape || !wanted_dtype) throw raised_by(name_);
  shape = Ref<>::steal(PySequence_Tuple(shape.get()));
  wanted_shape = Ref<>::steal(PySequence_Tuple(wanted_shape.get()));
  if (!shape || !wanted_shape) throw raised_by(name_);
  const int same = PyObject_RichCompareBool(shape.get(), wanted_shape.get(), Py_EQ);
  if (same < 0) throw raised_by(name_);
  if (!same)
    throw gave(name_, "an array of shape " + shown(shape.get()) + " as " + which,
               "the shape " + shown(wanted_shape.get()));
  const auto found = dtype_from_object(dtype.get()), wanted = dtype_from_object(wanted_dtype.get());
  PyErr_Clear();
  if (found != wanted)
    throw gave(name_, "an array of dtype " + shown(dtype.get()) + " as " + which,
               "the dtype " + shown(wanted_dtype.get()));
  const auto from = array_library(array.get());
  Ref<> seen = from && to && *from != *to ? cross_view(array.get(), *to) : std::move(array);
  if (!seen) throw raised_by("the copy of " + which + " of " + name_);
  return seen;
}

/// Moves no version counter: that of an input is moved by the segment, a new array's stays 0.
void PythonProgram::copy(PyObject* value, PyObject* target) const {
  bool done;
  if (array_library(target) == Library::Torch) {
    Ref<> data = Ref<>::steal(PyObject_GetAttrString(target, "data"));
    done = data && Ref<>::steal(PyObject_CallMethod(data.get(), "copy_", "O", value));
  } else {
    done = PyObject_SetItem(target, Py_Ellipsis, value) == 0;
  }
  if (!done) throw raised_by("the copy of a result of " + name_);
}

/// What the function returns for a call, as a list or a tuple of the right length.
Ref<> PythonProgram::results_of(Call& call) const {
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(call.inputs.size() + loose_.size())));
  if (!arguments) throw raised_by(name_);
  Py_ssize_t position = 0;
  for (const ArrayRef& input : call.inputs)
    PyTuple_SET_ITEM(arguments.get(), position++, Py_NewRef(static_cast<PyObject*>(input.object)));
  for (SymbolId symbol : loose_)
    PyTuple_SET_ITEM(arguments.get(), position++, PyLong_FromLongLong(call.symbols[symbol.index]));
  Ref<> returned = Ref<>::steal(PyObject_Call(callable_.get(), arguments.get(), nullptr));
  if (!returned) throw raised_by(name_);
  const std::size_t outputs = graph_->outputs.size(), writes = graph_->writes.size();
  auto arrays = [](std::size_t count) { return std::to_string(count) + (count == 1 ? " array" : " arrays"); };
  std::string expected = "a list of " + arrays(outputs + writes);
  if (writes)
    expected += ": " + std::to_string(outputs) + " that the graph returns, then " + std::to_string(writes) +
                " that it writes into inputs";
  // An array is a sequence of its rows, which nobody means.
  Ref<> results = array_library(returned.get()) ? Ref<>() : Ref<>::steal(PySequence_Fast(returned.get(), ""));
  if (!results) {
    PyErr_Clear();
    throw gave(name_, type_in_words(returned.get()), expected);
  }
  const auto count = std::size_t(PySequence_Fast_GET_SIZE(results.get()));
  if (count != outputs + writes) throw gave(name_, arrays(count), expected);
  return results;
}

std::uint32_t PythonProgram::run(Call& call) const {
  try {
    return run_or_throw(call);
  } catch (const BackendFailure& failure) {
    if (!is_replay_ || !PyObject_IsInstance(failure.error.get(), PyExc_Exception)) throw;
    return kHostFailed;
  }
}

std::uint32_t PythonProgram::run_or_throw(Call& call) const {
  // Sizes computed from others are part of what a program fills in.
  for (std::size_t i = 0; i < graph_->symbols.size(); i++) {
    const auto& definition = graph_->symbols[i].definition;
    if (!definition) continue;
    const auto value = floor_quotient(definition->dividend.evaluate(call.symbols),
                                      definition->divisor.evaluate(call.symbols), definition->remainder);
    if (!value) return kIntegerDivisionByZero;
    call.symbols[i] = *value;
  }
  const Ref<> results = results_of(call);
  struct Made {
    Host* host;
    std::vector<ArrayRef> arrays;
    ~Made() {
      for (const ArrayRef& array : arrays) host->release(array.object);
    }
  } made{call.host, {}};
  const std::size_t outputs = graph_->outputs.size();
  auto result = [&](std::size_t i, PyObject* target) {
    return checked(PySequence_Fast_GET_ITEM(results.get(), Py_ssize_t(i)), target, "result " + std::to_string(i));
  };
  for (std::size_t i = 0; i < outputs; i++) {
    const Type& type = graph_->type(graph_->outputs[i].value);
    std::vector<std::int64_t> shape, strides(type.shape.size());
    for (const SymDim& size : type.shape) shape.push_back(size.evaluate(call.symbols));
    evaluate_strides(type.shape, graph_->outputs[i].strides.value_or(contiguous_strides(type.shape)), shape,
                     call.symbols, strides.data());
    ArrayRef output = call.host->allocate(int(i), type.dtype, shape, strides);
    if (output.object == nullptr) return kHostFailed;
    made.arrays.push_back(output);
    auto* target = static_cast<PyObject*>(output.object);
    copy(result(i, target).get(), target);
  }
  std::vector<std::pair<Ref<>, PyObject*>> written;
  for (std::size_t i = 0; i < graph_->writes.size(); i++) {
    auto* target = static_cast<PyObject*>(call.inputs[std::size_t(graph_->writes[i].input)].object);
    const Ref<> value = result(outputs + i, target);
    // It may be a view of what is about to be written.
    const char* const method = array_library(target) == Library::Numpy ? "copy" : "clone";
    Ref<> own = Ref<>::steal(PyObject_CallMethod(value.get(), method, nullptr));
    if (!own) throw raised_by("the copy of a result of " + name_);
    written.emplace_back(std::move(own), target);
  }
  // Nothing visible has happened until here.
  for (const auto& [value, target] : written) copy(value.get(), target);
  for (std::size_t i = 0; i < outputs; i++) call.outputs[i] = made.arrays[i];
  made.arrays.clear();
  return kOk;
}

std::unique_ptr<Program> compile_with_callable(const Segment& segment, const FrameValues& values, PyObject* callable,
                                               const std::string& name) {
  Ref<> examples = Ref<>::steal(PyList_New(0));
  const char* library = nullptr;  // torch's, if one is a tensor
  for (SourceRef source : segment.inputs) {
    Ref<> example = segment.guards->sources().fetch(source, values);
    if (example && (library == nullptr || array_library(example.get()) == Library::Torch))
      library = array_library(example.get()) == Library::Torch ? "torch" : "numpy";
    if (!examples || !example || PyList_Append(examples.get(), example.get()) < 0) {
      PyErr_Clear();
      throw InternalError("an input of the graph can't be fetched for the back end");
    }
  }
  std::shared_ptr<const Graph> graph = segment.graph;
  const py::object captured = python_graph(graph, segment.externs);
  const Ref<> given = Ref<>::steal(PyObject_CallOneArg(graph_maker.get(), captured.ptr()));
  if (!given) throw raised_by("framejit");
  if (const Ref<> of = Ref<>::steal(library ? PyUnicode_FromString(library) : nullptr))
    if (PyObject_SetAttrString(given.get(), "_arrays_of", of.get()) < 0) throw raised_by("framejit");
  PyObject* arguments[] = {given.get(), examples.get()};
  const LetSignals interruptible;
  Ref<> compiled = Ref<>::steal(PyObject_Vectorcall(callable, arguments, 2, nullptr));
  const std::string who = "framejit: the back end " + name + ", given the graph of " + graph->name + ",";
  if (!compiled) throw raised_by(who);
  if (!PyCallable_Check(compiled.get()))
    throw gave(who, type_in_words(compiled.get()), "a function of the graph's inputs");
  const std::string made = "framejit: the function that the back end " + name + " made of " + graph->name;
  const bool is_replay = PyObject_HasAttrString(callable, "__framejit_replay__");
  return std::make_unique<PythonProgram>(std::move(graph), std::move(compiled), made, is_replay);
}

/// Compiling needs no Python object: other threads run meanwhile, and who watches may do so from one of them. One that
/// forks waits, with the GIL, until it is over: what is made on first use, and its locks, are whole in the child.
template <class Compile>
std::unique_ptr<Program> without_gil(Compile compile) {
  struct Others {
    PhaseWatcher* const watcher = std::exchange(phase_watcher, nullptr);
    PyThreadState* const thread = fj_release_gil();
    ~Others() {
      fj_take_gil(thread);
      phase_watcher = watcher;
    }
  } others;
  const NoFork whole;  // ends before the GIL is asked for
  return compile();
}

/// Where packages put NVRTC, of which torch's own brings one along.
std::vector<std::string> nvrtc_folders() {
  std::vector<std::string> folders;
  PyObject* path = PySys_GetObject("path");
  for (Py_ssize_t i = 0; path && PyList_Check(path) && i < PyList_GET_SIZE(path); ++i) {
    const char* entry =
        PyUnicode_Check(PyList_GET_ITEM(path, i)) ? PyUnicode_AsUTF8(PyList_GET_ITEM(path, i)) : nullptr;
    if (!entry) PyErr_Clear();
    else if (*entry)  // "" is the folder one is in
      for (const char* below : {"/nvidia/cuda_nvrtc/lib", "/nvidia/cu13/lib", "/torch/lib"})
        folders.push_back(entry + std::string(below));
  }
  folders.push_back("/usr/local/cuda/lib64");  // NVIDIA's toolkit
  return folders;
}

/// NVIDIA's compiler and driver, opened when the first tensor of a device is seen; kept. With the GIL held.
struct Cuda {
  struct Opened {
    std::shared_ptr<cuda::CudaDevice> device;
    std::string missing;  // why there is none
  };
  const cuda::Driver* driver;
  std::string missing;
  std::unique_ptr<const cuda::Nvrtc> compiler;
  std::map<int, Opened> devices;

  static Cuda& get() {
    return once([] { return Cuda(); });
  }
  const Opened& device(int ordinal) {
    auto [known, fresh] = devices.try_emplace(ordinal);
    Opened& opened = known->second;
    if (!fresh) return opened;
    opened.missing = missing;
    if (!missing.empty()) return opened;
    try {
      opened.device = std::make_shared<cuda::CudaDevice>(*driver, ordinal);
    } catch (const DeviceError& error) {
      opened.missing = error.what();
    }
    return opened;
  }

 private:
  Cuda() {
    driver = cuda::driver(missing);
    if (!driver) return;
    compiler = std::make_unique<cuda::Nvrtc>(nvrtc_folders());
    missing = compiler->missing();
  }
};

std::unique_ptr<Program> compile_for_device(const Graph& graph, int device, std::vector<bool> host_inputs,
                                            const Options& options) {
  CudaOptions cuda;
  cuda.device = Cuda::get().device(device).device;
  FJ_CHECK(cuda.device, "an array of a device without a driver is not traced");
  const cuda::Nvrtc& compiler = *Cuda::get().compiler;
  cuda.compile = [&compiler](std::string_view source, int architecture) {
    return compiler.compile(source, architecture);
  };
  cuda.compiler = "NVRTC " + compiler.version();
  cuda.cache_folder = cache_folder(options);
  cuda.cache_bytes = options.cache_bytes;
  cuda.host_inputs = std::move(host_inputs);
  cuda.graphs = options.mode == "reduce-overhead" || options.mode == "max-autotune";
  cuda.measured = options.mode == "max-autotune" || options.mode == "max-autotune-no-cudagraphs";
  cuda.dump = log_enabled(Artifact::code, graph.name);
  std::string reason;
  auto program = without_gil([&] { return compile_cuda(graph, cuda, reason); });
  if (!program) throw NoProgram{device_text(device) + ": " + reason};
  return program;
}

}  // namespace

bool is_builtin_backend(std::string_view name) {
  return name == "auto" || name == "llvm" || name == "cuda" || name == "reference";
}

std::string device_refusal(int device, const Options& options, bool own_backend) {
  const bool takes_devices = !own_backend && (options.backend == "auto" || options.backend == "cuda");
  if (device == kHost)
    return !own_backend && options.backend == "cuda" ? "the back end cuda works on CUDA devices" : "";
  if (!takes_devices) return "the back end " + options.backend + " works on the CPU";
  return Cuda::get().device(device).missing;
}

std::unique_ptr<Program> compile_graph(const Segment& segment, const FrameValues& values, const Options& options,
                                       PyObject* callable, std::size_t& code_bytes) {
  Ref<> resolved;
  if (callable == nullptr && !is_builtin_backend(options.backend)) {
    if (backend_resolver)
      resolved = Ref<>::steal(PyObject_CallFunction(backend_resolver.get(), "s", options.backend.c_str()));
    if (!resolved) throw BackendFailure{Ref<>::steal(fj_take_exception())};
    callable = resolved.get();
  }
  if (callable != nullptr) return compile_with_callable(segment, values, callable, options.backend);
  if (segment.device != kHost) return compile_for_device(*segment.graph, segment.device, segment.host_inputs, options);
  CompileOptions compile;
  compile.threads = int(options.threads);
  compile.code_bytes = &code_bytes;
  compile.float_conditions = segment.collects != 0;
  compile.dump_ir = log_enabled(Artifact::code, segment.graph->name);
  compile.tier = options.tier == "quick"       ? TierChoice::Quick
                 : options.tier == "optimised" ? TierChoice::Optimised
                                               : TierChoice::Auto;
  compile.cache_folder = cache_folder(options);
  compile.cache_bytes = options.cache_bytes;
  return without_gil([&] {
    return options.backend == "reference" ? compile_reference(*segment.graph, compile)
                                          : compile_llvm(*segment.graph, compile);
  });
}

std::unique_ptr<Program> compile_backward(const Graph& graph, int device, const Options& options,
                                          std::size_t& code_bytes) {
  if (device != kHost) return compile_for_device(graph, device, {}, options);
  CompileOptions compile;
  compile.threads = int(options.threads);
  compile.code_bytes = &code_bytes;
  return without_gil([&] {
    return options.backend == "reference" ? compile_reference(graph, compile) : compile_llvm(graph, compile);
  });
}

void set_graph_maker(Ref<> made) { graph_maker = std::move(made); }
void set_backend_resolver(Ref<> resolver) { backend_resolver = std::move(resolver); }
PyObject* error_type(ErrorKind kind) {
  return std::size_t(kind) < error_types.size() ? error_types[std::size_t(kind)].get() : PyExc_RuntimeError;
}
void set_error_types(std::vector<Ref<>> types) { error_types = std::move(types); }

}  // namespace fj
