// The extension module framejit._core: what the Python package is made from. Start at PYBIND11_MODULE.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "arrays/marked_axes.h"
#include "codegen/compiler_counts.h"
#include "cpython/cpython.h"
#include "cpython/pending_error.h"
#include "frame_hook/backends.h"
#include "frame_hook/compile_segment.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/graphs/graph_builder.h"
#include "frame_hook/graphs/graph_library.h"
#include "frame_hook/interpreted.h"
#include "frame_hook/graphs/python_graph.h"
#include "frame_hook/python_sinks.h"
#include "graph_ir/ops.h"
#include "guards/input_name.h"
#include "tracer/regions/loop_region.h"
#include "runtime/background.h"
#include "runtime/base/options.h"
#include "runtime/code_pages.h"
#include "runtime/disk_cache.h"
#include "runtime/profile.h"

namespace py = pybind11;

namespace fj {
namespace {

py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::object owned(Ref<> object) { return owned(object.release()); }

/// Options from Python: texts as set_option takes them. Unknown names and bad values are the caller's errors.
Options changed(Options options, const py::dict& changes) {
  for (auto [key, value] : changes) {
    const std::string name = py::str(key);
    const std::string text = value.is_none()             ? "none"
                             : PyBool_Check(value.ptr()) ? (value.is(py::bool_(true)) ? "true" : "false")
                                                         : std::string(py::str(value));
    bool known = false;
    for (const OptionRow& row : option_rows()) {
      if (row.name != name) continue;
      known = true;
      const bool text_wanted = row.type == OptionType::Text, flag = row.type == OptionType::Flag,
                 tristate = row.type == OptionType::Tristate;
      const bool unset = tristate && (value.is_none() || text == "auto");
      if (!unset && (text_wanted != py::isinstance<py::str>(value) ||
                     ((flag || tristate) && !PyBool_Check(value.ptr()))))
        throw py::type_error("framejit option " + name + ": " + text + " is not " +
                             (text_wanted ? "a string"
                              : flag      ? "True or False"
                              : tristate  ? "None, True or False"
                                          : "a number"));
    }
    if (!known) throw py::type_error("framejit has no option '" + name + "'");
    if (auto problem = set_option(options, name, text)) throw py::value_error(*problem);
  }
  return options;
}

py::dict texts(const Options& options) {
  py::dict result;
  for (const OptionRow& row : option_rows()) result[py::str(std::string(row.name))] = option_text(options, row.name);
  return result;
}

py::object compile_function(py::object function, const py::dict& options, py::object backend, py::object passes) {
  if (!PyFunction_Check(function.ptr())) throw py::type_error("framejit.compile takes a function here");
  Ref<> callable = backend.is_none() ? Ref<>() : Ref<>::borrow(backend.ptr());
  Ref<> edit = passes.is_none() ? Ref<>() : Ref<>::borrow(passes.ptr());
  return owned(new_compiled_function(function.ptr(), changed(environment_options(), options), std::move(callable),
                                     std::move(edit)));
}

FunctionState& state_of(const py::object& compiled) {
  if (!is_compiled_function(compiled.ptr())) throw py::type_error("not a compiled function");
  return function_state(compiled.ptr());
}

py::dict described(const StepAccount& step) {
  py::dict entry;
  entry["kind"] = step.kind;
  entry["name"] = step.name;
  entry["operations"] = step.operations;
  entry["lines"] = step.lines;
  entry["module"] = step.module;
  entry["dtype"] = step.dtype;
  entry["count"] = step.count;
  entry["in_blocks"] = step.in_blocks;
  entry["read_bytes"] = step.read_bytes;
  entry["written_bytes"] = step.written_bytes;
  entry["float_operations"] = step.float_operations;
  return entry;
}

/// What programs have done while profiles were on, by program.
py::list profile() {
  py::list result;
  for (const ProgramProfile& program : profile_so_far()) {
    py::list steps;
    for (const StepProfile& step : program.steps) {
      py::dict entry = described(step.account);
      entry["runs"] = step.runs;
      entry["nanoseconds"] = step.nanoseconds;
      entry["read_bytes"] = step.read_bytes;
      entry["written_bytes"] = step.written_bytes;
      entry["float_operations"] = step.account.work ? step.float_operations : -1;
      steps.append(entry);
    }
    py::dict entry;
    entry["id"] = program.id;
    entry["name"] = program.name;
    entry["on_device"] = program.on_device;
    entry["runs"] = program.runs;
    entry["nanoseconds"] = program.nanoseconds;
    entry["steps"] = steps;
    result.append(entry);
  }
  return result;
}

/// Bytes, for the sizes seen while tracing.
py::dict memory(const Segment& segment) {
  const Graph& graph = *segment.graph;
  const auto bytes = [&](ValueId value) {
    const Type& type = graph.type(value);
    return hint(product(type.shape), graph.symbols) * std::int64_t(size_in_bytes(type.dtype));
  };
  std::int64_t inputs = 0, results = 0;
  for (const Input& input : graph.inputs) inputs += bytes(input.value);
  for (const Output& output : graph.outputs) results += bytes(output.value);
  py::dict entry;
  entry["inputs"] = inputs;
  entry["results"] = results;
  entry["temporaries"] = segment.program->temporary_bytes(symbol_hints(graph.symbols));
  entry["saved"] = segment.derivative ? segment.derivative->saved_bytes() : 0;
  return entry;
}

/// A graph's guards and the steps of its program, as long as they are kept.
py::dict piece(const GraphEvent& event) {
  py::dict result;
  py::list guards, steps, parameters;
  if (const auto segment = event.segment.lock()) {
    for (std::size_t i = 0; i < segment->inputs.size(); ++i)
      if (is_module_state(segment->inputs[i])) parameters.append(i);
    for (const std::string& guard : segment->guards->text()) guards.append(guard);
    if (segment->program) {
      for (const StepAccount& step : segment->program->steps()) steps.append(described(step));
      result["memory"] = memory(*segment);
    }
  }
  result["function"] = event.function;
  result["operations"] = event.nodes;
  result["kernels"] = event.kernels;
  result["seconds"] = event.seconds;
  result["timings"] = event.timings;
  result["guards"] = guards;
  result["parameters"] = parameters;  // positions among the inputs
  result["steps"] = steps;
  return result;
}

/// Everything recorded of one compiled function, as plain Python objects.
py::dict report(const py::object& compiled) {
  const FunctionState& state = state_of(compiled);
  py::dict result;
  py::list graphs, pieces, breaks, recompiles, fallbacks, guards, loops;
  int kernels = 0;
  for (const GraphEvent& event : state.events->graphs()) {
    graphs.append(python_graph(event.graph));
    pieces.append(piece(event));
    kernels += event.kernels;
  }
  // Pieces without a graph have guards too.
  for (const auto& cache : state.caches)
    for (int i = 0; i < cache->decoded().count; i++)
      if (const Place* place = cache->known_place(i))
        for (const auto& segment : place->segments)
          if (!segment->graph)
            for (const std::string& guard : segment->guards->text()) guards.append(guard);
  for (const BreakEvent& event : state.events->breaks()) {
    const BreakRow& row = break_row(event.reason);
    py::dict entry;
    entry["number"] = row.code();
    entry["name"] = row.name;
    entry["file"] = event.file;
    entry["line"] = event.line;
    entry["function"] = event.function;
    entry["detail"] = event.detail;
    entry["count"] = event.count;
    entry["source"] = event.source();
    entry["cost"] = event.cost();
    entry["remedy"] = row.remedy;
    entry["what"] = row.what;
    entry["text"] = event.text();
    breaks.append(entry);
  }
  for (const RecompileEvent& event : state.events->recompiles()) recompiles.append(event.text());
  for (const FallbackEvent& event : state.events->fallbacks()) fallbacks.append(event.text());
  for (const LoopEvent& event : state.events->loops()) loops.append(event.text());
  result["graphs"] = graphs;
  result["pieces"] = pieces;  // by graph
  result["loops"] = loops;
  result["breaks"] = breaks;
  result["guards"] = guards;  // of pieces without a graph
  result["recompiles"] = recompiles;
  result["fallbacks"] = fallbacks;
  result["kernels"] = kernels;
  result["needs_no_graph"] = std::any_of(state.caches.begin(), state.caches.end(), [](const auto& cache) {
    const auto& segments = cache->place(0).segments;
    return std::any_of(segments.begin(), segments.end(), [](const auto& segment) { return needs_no_graph(*segment); });
  });
  return result;
}

/// The folder of this thread's options, and what this process has done with all folders.
py::dict disk_info() {
  const Options& options = current_options();
  const DiskCache::Counts counts = DiskCache::all_counts();
  py::dict result;
  result["folder"] = options.cache_bytes > 0 ? cache_folder(options) : "";
  result["bound"] = options.cache_bytes;
  result["hits"] = counts.hits;
  result["misses"] = counts.misses;
  result["stored"] = counts.stored;
  result["rejected"] = counts.rejected;
  result["evicted"] = counts.evicted;
  result["failures"] = counts.failures;
  return result;
}

py::dict cache_info() {
  const Totals& all = totals();
  py::dict result;
  result["calls"] = all.calls;
  result["hits"] = all.hits;
  result["segments"] = all.segments;
  result["graphs"] = all.graphs;
  result["kernels_launched"] = all.kernels_launched;
  result["recompiles"] = all.recompiles;
  result["internal_errors"] = all.internal_errors;
  result["eager_replays"] = all.eager_replays;
  result["breaks"] = all.breaks;
  result["retired"] = all.retired;
  result["regions"] = all.regions;
  result["regions_entered"] = all.regions_entered;
  result["regions_on_threads"] = all.regions_on_threads;
  const CompilerCounts& kernels = compiler_counts();
  result["kernels_compiled"] = kernels.quick + kernels.optimised;
  result["kernels_optimised"] = kernels.optimised.load();
  result["kernels_loaded"] = kernels.loaded.load();
  result["kernels_shared"] = kernels.shared.load();
  result["kernels_failed"] = kernels.failed.load();
  result["background_jobs"] = background_jobs();
  result["disk"] = disk_info();
  const CodeCache::Usage usage = CodeCache::usage();
  result["kept_segments"] = usage.segments;
  result["bytes"] = usage.bytes;
  result["dropped_segments"] = usage.dropped;
  return result;
}

/// Waits without the GIL until the background has compiled and stored everything asked for.
void finish_compiling() {
  py::gil_scoped_release others_run;
  finish_background();
}

py::list list_cache(const std::string& folder) {
  py::list files;
  for (const DiskCache::File& file : DiskCache::list(folder)) {
    const char* tier = !file.tier ? "damaged" : *file.tier == 0 ? "quick" : "optimised";
    files.append(py::make_tuple(file.name, file.bytes, file.used, tier));
  }
  return files;
}

/// Calls the first argument with the others while a `Scope` exists. No function of pybind11's, whose calls have to end in
/// the opposite order of that in which they began: what is called may switch to another greenlet.
template <class Scope>
PyObject* call_in(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  if (count < 1) return PyErr_Format(PyExc_TypeError, "there is nothing to call");
  const Scope scope;
  return PyObject_Vectorcall(args[0], args + 1, std::size_t(count - 1), kwnames);
}

template <class Scope>
PyMethodDef caller(const char* name, const char* text) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_in<Scope>)),
          METH_FASTCALL | METH_KEYWORDS, text};
}

}  // namespace
}  // namespace fj

PYBIND11_MODULE(_core, module) {
  using namespace fj;
  module.attr("CompiledFunction") =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(compiled_function_type()));
  bind_graph(module);
  bind_graph_builder(module);
  bind_graph_library(module);
  remember_known_functions();
  if (Py_AtExit(end_background) != 0)
    throw std::runtime_error("framejit: this process has no room for another exit function");
  module.def("self_check", [] { return fj_self_check(); }, "None, or why nothing is compiled on this Python.");
  module.def("compile_function", compile_function, py::arg("function"), py::arg("options"), py::arg("backend"),
             py::arg("passes") = py::none());
  module.def("options_of", [](const py::object& compiled) { return texts(state_of(compiled).options); });
  module.def("environment_options", [] { return texts(environment_options()); },
             "Those of a function that is given none.");
  module.def("backend_of", [](const py::object& compiled) -> py::object {
    PyObject* backend = state_of(compiled).backend.get();
    return backend != nullptr ? py::reinterpret_borrow<py::object>(backend) : py::none();
  });
  module.def("passes_of", [](const py::object& compiled) -> py::object {
    PyObject* passes = state_of(compiled).passes.get();
    return passes != nullptr ? py::reinterpret_borrow<py::object>(passes) : py::none();
  });
  module.def("operation_names", [] {
    py::list names;
    for (int op = 0; op < kOpCount; op++) names.append(std::string(name(Op(op))));
    return names;
  });
  module.def("option_names", [] {
    py::list names;
    for (const OptionRow& row : option_rows()) names.append(std::string(row.name));
    return names;
  });
  module.def("push_options", [](const py::dict& changes) {
    std::uint64_t given = 0;
    for (std::size_t i = 0; i < option_rows().size(); ++i)
      given |= std::uint64_t(changes.contains(std::string(option_rows()[i].name))) << i;
    push_options(changed(current_options(), changes), given);
  });
  module.def("pop_options", [] { pop_options(); });
  module.def("set_logs", [](const std::string& choice) {
    if (auto problem = set_logs(choice)) throw py::value_error(*problem);
  });
  module.def("set_log_sink", [](py::object sink) { set_python_log_sink(Ref<>::borrow(sink.ptr())); });
  module.def("end_logs", end_python_logs);
  module.def("set_compilation_watcher",
             [](py::object watcher) { set_compilation_watcher(Ref<>::borrow(watcher.ptr())); });
  module.def("set_comparison_clock", [](py::object clock) {
    if (clock.is_none()) return set_comparison_clock({});
    set_comparison_clock([clock](ClockAsked where) {
      static constexpr const char* kNames[] = {"entered", "begun", "ended"};
      const PendingError pending;
      return clock(kNames[int(where)]).cast<std::uint64_t>();
    });
  }, "What times the calls that decide whether an entry is retired, asked where a call is entered, has begun and has "
     "ended; None: the system's clock.");
  module.def("report", report);
  module.def("begin_profile", begin_profile);
  module.def("end_profile", end_profile);
  module.def("is_profiling", is_profiling);
  module.def("profile", profile);
  module.def("cache_info", cache_info);
  module.def("why_eager", &why_eager);
  module.def("reset", [] {
    reset_all();
    reset_compiler_counts();
    DiskCache::reset_counts();
  });
  module.def("finish_compiling", finish_compiling);
  module.def("begin_warm_up", begin_warm_up);
  module.def("end_warm_up", end_warm_up);
  module.def("list_cache", list_cache);
  module.def("clear_cache", [](const std::string& folder) { return DiskCache::clear(folder); });
  module.def("mark_dynamic",
             [](py::object array, const std::vector<std::tuple<int, std::string, std::int64_t, std::int64_t>>& axes) {
               std::vector<DynamicAxis> marks;
               for (const auto& [axis, name, min, max] : axes) marks.push_back({axis, name, min, max});
               if (!mark_dynamic(array.ptr(), marks)) throw py::error_already_set();
             });
  module.def("only_operations", [](const py::object& compiled) { state_of(compiled).only_operations = true; },
             "From now on its graphs call the array library only where no operations say the same.");
  module.def("join_branches", [](const py::object& compiled) { state_of(compiled).branches = true; },
             "From now on both ways of a branch on data are in its graphs, where they can be.");
  module.def("record_calls", [](const py::object& compiled) { state_of(compiled).records = true; },
             "Its passes are told of the calls of the array libraries.");
  module.def("mark_arguments",
             [](const py::object& compiled,
                const std::vector<std::tuple<std::string, int, std::string, std::int64_t, std::int64_t>>& axes) {
               for (const auto& [source, axis, name, min, max] : axes)
                 state_of(compiled).marks.push_back({source, {axis, name, min, max}});
             },
             "Says which axes of a compiled function's arguments change: (\"L.x\", axis, name, min, max).");
  static PyMethodDef callers[] = {
      caller<EagerScope>("call_eagerly", "Calls a function; what it calls is not compiled."),
      caller<TracedScope>("call_traced", "Calls a compiled function, also while another one is traced."),
      {},
  };
  if (PyModule_AddFunctions(module.ptr(), callers) != 0) throw py::error_already_set();
  module.def("set_error_types", [](const py::args& types) {
    std::vector<Ref<>> kept;
    for (const py::handle type : types) kept.push_back(Ref<>::borrow(type.ptr()));
    set_error_types(std::move(kept));
  });
  module.def("set_backend_resolver", [](py::object resolver) { set_backend_resolver(Ref<>::borrow(resolver.ptr())); });
  module.def("set_graph_maker", [](py::object made) { set_graph_maker(Ref<>::borrow(made.ptr())); });
  module.def("is_builtin_backend", [](const std::string& name) { return is_builtin_backend(name); });
  module.def("run_interpreted", [](py::object function, py::tuple args, py::dict kwargs, long count) {
    return owned(run_interpreted(function.ptr(), args.ptr(), kwargs.ptr(), count));
  });
  module.def("evaluator", [] { return reinterpret_cast<std::uintptr_t>(fj_installed_hook(PyThreadState_Get())); },
             "What evaluates frames in this process: 0 is CPython.");
  module.def("decoded_instructions", [](py::object code) { return owned(decoded_instructions(code.ptr())); });
  release_code_pages();  // the compiler's own initialisation touches a third of its code, and most of it once
}
