// Chooses the back end, and adapts a Python callable to the Program interface: arrays in, arrays out, results copied into
// outputs of the layout the graph promises.
#include "frame_hook/backends.h"

#include <array>
#include <map>

#include "codegen/compile.h"
#include "codegen/cuda/compile_cuda.h"
#include "frame_hook/cpython/signals.h"
#include "frame_hook/python_graph.h"
#include "guards/source.h"
#include "runtime/base/error.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"

namespace fj {

namespace {

namespace py = pybind11;

Ref<> backend_resolver;
std::array<Ref<>, 3> error_types;

class PythonProgram final : public Program {
 public:
  PythonProgram(std::shared_ptr<const Graph> graph, Ref<> callable)
      : graph_(std::move(graph)), callable_(std::move(callable)), loose_(loose_symbols(*graph_)) {}
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
  bool copy(PyObject* value, PyObject* target) const;
  bool detach(Ref<>& value) const;

  std::shared_ptr<const Graph> graph_;
  Ref<> callable_;
  std::vector<SymbolId> loose_;
};

/// Moves no version counter: that of an input is moved by the segment, a new array's stays 0.
bool PythonProgram::copy(PyObject* value, PyObject* target) const {
  Ref<> have = Ref<>::steal(PyObject_GetAttrString(value, "shape")), want = Ref<>::steal(PyObject_GetAttrString(target, "shape"));
  if (!have || !want) return false;
  const int same = PyObject_RichCompareBool(have.get(), want.get(), Py_EQ);
  if (same < 0) return false;
  if (!same) {
    PyErr_Format(error_type(ErrorKind::Backend), "the back end returned an array of shape %R where the graph has %R", have.get(),
                 want.get());
    return false;
  }
  const auto from = array_library(value), to = array_library(target);
  Ref<> seen = from && to && *from != *to ? cross_view(value, *to) : Ref<>::borrow(value);
  if (!seen) return false;
  if (to != Library::Torch) return PyObject_SetItem(target, Py_Ellipsis, seen.get()) == 0;
  Ref<> data = Ref<>::steal(PyObject_GetAttrString(target, "data"));
  Ref<> done = data ? Ref<>::steal(PyObject_CallMethod(data.get(), "copy_", "O", seen.get())) : Ref<>();
  return bool(done);
}

/// Written values may be views of what is about to be written.
bool PythonProgram::detach(Ref<>& value) const {
  const auto library = array_library(value.get());
  if (library) value = Ref<>::steal(PyObject_CallMethod(value.get(), *library == Library::Torch ? "clone" : "copy", nullptr));
  return bool(value);
}

std::uint32_t PythonProgram::run(Call& call) const {
  // Sizes computed from others are part of what a program fills in.
  for (std::size_t i = 0; i < graph_->symbols.size(); i++) {
    const auto& definition = graph_->symbols[i].definition;
    if (!definition) continue;
    const auto value = floor_quotient(definition->dividend.evaluate(call.symbols), definition->divisor.evaluate(call.symbols), definition->remainder);
    if (!value) return kIntegerDivisionByZero;
    call.symbols[i] = *value;
  }
  Ref<> arguments = Ref<>::steal(PyTuple_New(Py_ssize_t(call.inputs.size() + loose_.size())));
  if (!arguments) return kHostFailed;
  Py_ssize_t position = 0;
  for (const ArrayRef& input : call.inputs)
    PyTuple_SET_ITEM(arguments.get(), position++, Py_NewRef(static_cast<PyObject*>(input.object)));
  for (SymbolId symbol : loose_) PyTuple_SET_ITEM(arguments.get(), position++, PyLong_FromLongLong(call.symbols[symbol.index]));
  Ref<> returned = Ref<>::steal(PyObject_Call(callable_.get(), arguments.get(), nullptr));
  if (!returned) return kHostFailed;
  Ref<> results = Ref<>::steal(PySequence_Fast(returned.get(), "a back end's function returns a list of arrays"));
  if (!results) return kHostFailed;
  const std::size_t expected = graph_->outputs.size() + graph_->writes.size();
  if (std::size_t(PySequence_Fast_GET_SIZE(results.get())) != expected) {
    PyErr_Format(error_type(ErrorKind::Backend), "the back end's function returned %zd arrays, the graph has %zu outputs",
                 PySequence_Fast_GET_SIZE(results.get()), expected);
    return kHostFailed;
  }
  std::vector<ArrayRef> made;
  auto fail = [&] {
    for (const ArrayRef& array : made) call.host->release(array.object);
    return kHostFailed;
  };
  for (std::size_t i = 0; i < graph_->outputs.size(); i++) {
    const Type& type = graph_->type(graph_->outputs[i].value);
    std::vector<std::int64_t> shape, strides(type.shape.size());
    for (const SymDim& size : type.shape) shape.push_back(size.evaluate(call.symbols));
    evaluate_strides(type.shape, graph_->outputs[i].strides.value_or(contiguous_strides(type.shape)), shape, call.symbols, strides.data());
    ArrayRef output = call.host->allocate(int(i), type.dtype, shape, strides);
    if (output.object == nullptr) return fail();
    made.push_back(output);
    if (!copy(PySequence_Fast_GET_ITEM(results.get(), Py_ssize_t(i)), static_cast<PyObject*>(output.object))) return fail();
  }
  std::vector<Ref<>> written;
  for (std::size_t i = 0; i < graph_->writes.size(); i++) {
    written.push_back(Ref<>::borrow(PySequence_Fast_GET_ITEM(results.get(), Py_ssize_t(graph_->outputs.size() + i))));
    if (!detach(written.back())) return fail();
  }
  // Nothing visible has happened until here.
  for (std::size_t i = 0; i < graph_->writes.size(); i++) {
    if (!copy(written[i].get(), static_cast<PyObject*>(call.inputs[std::size_t(graph_->writes[i].input)].object))) return fail();
  }
  for (std::size_t i = 0; i < made.size(); i++) call.outputs[i] = made[i];
  return kOk;
}

std::unique_ptr<Program> compile_with_callable(const Segment& segment, const FrameValues& values, PyObject* callable) {
  Ref<> examples = Ref<>::steal(PyList_New(0));
  for (SourceRef source : segment.inputs) {
    Ref<> example = segment.guards->sources().fetch(source, values);
    if (!examples || !example || PyList_Append(examples.get(), example.get()) < 0) {
      PyErr_Clear();
      throw InternalError("an input of the graph can't be fetched for the back end");
    }
  }
  std::shared_ptr<const Graph> graph = segment.graph;
  py::object shown = python_graph(graph, segment.externs);
  PyObject* arguments[] = {shown.ptr(), examples.get()};
  const LetSignals interruptible;
  Ref<> compiled = Ref<>::steal(PyObject_Vectorcall(callable, arguments, 2, nullptr));
  if (compiled && !PyCallable_Check(compiled.get())) {
    PyErr_Format(error_type(ErrorKind::Backend), "the back end %R returned %R, which is not callable", callable, compiled.get());
    throw BackendFailure{};
  }
  if (!compiled) {
    // A back end's own failure keeps its exception as the cause.
    Ref<> cause = Ref<>::steal(fj_take_exception());
    PyErr_Format(error_type(ErrorKind::Backend), "the back end %R failed: %S", callable, cause.get());
    Ref<> error = Ref<>::steal(fj_take_exception());
    PyException_SetCause(error.get(), cause.release());
    fj_restore_exception(error.release());
    throw BackendFailure{};
  }
  return std::make_unique<PythonProgram>(std::move(graph), std::move(compiled));
}

/// Compiling needs no Python object: other threads run meanwhile.
template <class Compile>
std::unique_ptr<Program> without_gil(Compile compile) {
  struct Others {
    PyThreadState* const thread = fj_release_gil();
    ~Others() { fj_take_gil(thread); }
  } others;
  return compile();
}

/// Where packages put NVRTC, of which torch's own brings one along.
std::vector<std::string> nvrtc_folders() {
  std::vector<std::string> folders;
  PyObject* path = PySys_GetObject("path");
  for (Py_ssize_t i = 0; path && PyList_Check(path) && i < PyList_GET_SIZE(path); ++i) {
    const char* entry = PyUnicode_Check(PyList_GET_ITEM(path, i)) ? PyUnicode_AsUTF8(PyList_GET_ITEM(path, i)) : nullptr;
    if (!entry) PyErr_Clear();
    else if (*entry)  // "" is the folder one is in
      for (const char* below : {"/nvidia/cuda_nvrtc/lib", "/nvidia/cu13/lib", "/torch/lib"}) folders.push_back(entry + std::string(below));
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

std::unique_ptr<Program> compile_for_device(const Graph& graph, int device, std::vector<bool> host_inputs, const Options& options) {
  CudaOptions cuda;
  cuda.device = Cuda::get().device(device).device;
  FJ_CHECK(cuda.device, "an array of a device without a driver is not traced");
  const cuda::Nvrtc& compiler = *Cuda::get().compiler;
  cuda.compile = [&compiler](std::string_view source, int architecture) { return compiler.compile(source, architecture); };
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

bool is_builtin_backend(std::string_view name) { return name == "auto" || name == "llvm" || name == "cuda" || name == "reference"; }

std::string device_refusal(int device, const Options& options, bool own_backend) {
  const bool takes_devices = !own_backend && (options.backend == "auto" || options.backend == "cuda");
  if (device == kHost) return !own_backend && options.backend == "cuda" ? "the back end cuda works on CUDA devices" : "";
  if (!takes_devices) return "the back end " + options.backend + " works on the CPU";
  return Cuda::get().device(device).missing;
}

std::unique_ptr<Program> compile_graph(const Segment& segment, const FrameValues& values, const Options& options,
                                       PyObject* callable, std::size_t& code_bytes) {
  Ref<> resolved;
  if (callable == nullptr && !is_builtin_backend(options.backend)) {
    if (backend_resolver) resolved = Ref<>::steal(PyObject_CallFunction(backend_resolver.get(), "s", options.backend.c_str()));
    if (!resolved) throw BackendFailure{};
    callable = resolved.get();
  }
  if (callable != nullptr) return compile_with_callable(segment, values, callable);
  if (segment.device != kHost) return compile_for_device(*segment.graph, segment.device, segment.host_inputs, options);
  CompileOptions compile;
  compile.threads = int(options.threads);
  compile.code_bytes = &code_bytes;
  compile.float_conditions = segment.collects != 0;
  compile.dump_ir = log_enabled(Artifact::code, segment.graph->name);
  compile.tier = options.tier == "quick" ? TierChoice::Quick : options.tier == "optimised" ? TierChoice::Optimised : TierChoice::Auto;
  compile.cache_folder = cache_folder(options);
  compile.cache_bytes = options.cache_bytes;
  return without_gil([&] {
    return options.backend == "reference" ? compile_reference(*segment.graph, compile) : compile_llvm(*segment.graph, compile);
  });
}

std::unique_ptr<Program> compile_backward(const Graph& graph, int device, const Options& options) {
  if (device != kHost) return compile_for_device(graph, device, {}, options);
  CompileOptions compile;
  compile.threads = int(options.threads);
  return without_gil([&] { return options.backend == "reference" ? compile_reference(graph, compile) : compile_llvm(graph, compile); });
}

void set_backend_resolver(Ref<> resolver) { backend_resolver = std::move(resolver); }
PyObject* error_type(ErrorKind kind) {
  PyObject* type = error_types[std::size_t(kind)].get();
  return type != nullptr ? type : PyExc_RuntimeError;
}
void set_error_types(Ref<> error, Ref<> graph_break, Ref<> backend) {
  error_types = {std::move(error), std::move(graph_break), std::move(backend)};
}

}  // namespace fj
