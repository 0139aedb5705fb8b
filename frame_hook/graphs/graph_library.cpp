#include "frame_hook/graphs/graph_library.h"

#include <pybind11/stl.h>

#include <fstream>

#include "codegen/ahead/build_library.h"
#include "codegen/ahead/processor.h"
#include "frame_hook/graphs/python_graph.h"
#include "graph_ir/autodiff/autodiff.h"
#include "graph_ir/autodiff/training_graphs.h"

namespace fj {

namespace {

namespace py = pybind11;

using Size = std::tuple<std::string, int, std::int64_t, std::int64_t>;

std::vector<std::string> build(const PythonGraph& graph, const std::string& folder, const std::string& name,
                               const std::vector<Size>& sizes, const std::vector<int>& arguments,
                               const std::vector<std::string>& argument_names,
                               const std::vector<std::string>& result_names, const std::vector<py::buffer>& state,
                               const std::vector<std::string>& cpus, bool any_layout, bool float_conditions) {
  LibraryRequest request{name, {}, arguments, argument_names, result_names, {}, cpus, any_layout, float_conditions};
  for (const auto& [size, symbol, low, high] : sizes) request.sizes.push_back({size, symbol, low, high});
  std::vector<py::buffer_info> held;
  for (const py::buffer& array : state) {
    held.push_back(array.request());
    request.state.emplace_back(static_cast<const char*>(held.back().ptr),
                               std::size_t(held.back().size * held.back().itemsize));
  }
  std::vector<std::string> files;
  const py::gil_scoped_release released;
  build_objects(*graph.graph, request, [&](const std::string& file, const std::string& contents) {
    files.push_back(folder + "/" + file);
    std::ofstream stream(files.back(), std::ios::binary);
    stream << contents;
    stream.close();
    if (!stream) throw std::runtime_error(files.back() + " can't be written");
  });
  return files;
}

py::tuple split_for_training(const PythonGraph& graph, const std::vector<int>& wanted) {
  try {
    TrainingGraphs made = training_graphs(*graph.graph, wanted);
    py::list saved;
    for (const TrainingGraphs::Saved& value : made.saved) saved.append(py::make_tuple(value.input, value.output));
    return py::make_tuple(python_graph(std::make_shared<Graph>(std::move(made.forward))),
                          python_graph(std::make_shared<Graph>(std::move(made.backward))), saved,
                          py::cast(made.derived), py::cast(made.gradients));
  } catch (const NoDerivative& error) {
    throw py::value_error("there is no derivative of " + error.subject + " (" +
                          error.location.file.substr(error.location.file.find_last_of('/') + 1) + ":" +
                          std::to_string(error.location.line) + ")");
  }
}

}  // namespace

void bind_graph_library(py::module_& module) {
  module.def("build_objects", build, py::arg("graph"), py::arg("folder"), py::arg("name"), py::arg("sizes"),
             py::arg("arguments"), py::arg("argument_names"), py::arg("result_names"), py::arg("state"),
             py::arg("cpus"), py::arg("any_layout") = false, py::arg("float_conditions") = false,
             "Writes a graph's object files to a folder; their paths. State: contiguous arrays of bytes.");
  module.def("training_graphs", split_for_training, py::arg("graph"), py::arg("wanted"),
             "(forward, backward, (input, output) or -1 of each saved value, outputs with a derivative, inputs with a "
             "gradient). ValueError: there is no derivative.");
  module.def(
      "processor_levels",
      [] {
        std::vector<std::string> levels;
        for (const std::string_view level : kProcessorLevels) levels.emplace_back(level);
        return levels;
      },
      "What `cpus` of build_objects may be, from the least demanding one on.");
  module.def("processor_has", [](const std::string& cpu) { return processor_has(cpu); },
             "Whether this processor runs code for a level.");
}

}  // namespace fj
