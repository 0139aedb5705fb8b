#include "tests/cuda/harness.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "codegen/program/in_place_writes.h"
#include "codegen/program/isolate_kernel.h"
#include "codegen/program/program_parts.h"
#include "codegen/schedule/schedule.h"
#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "runtime/base/error.h"

namespace fj::test {

namespace {

LoweredProgram lowered(const Graph& graph) {
  LoweredProgram program = lower(graph, schedule(graph), LoopTarget::Threads);
  write_in_place(program, false);
  return program;
}

CudaKernel cuda_kernel(const loop::Kernel& kernel, const LoweredProgram& program, const std::string& name,
                       std::vector<int>* buffers = nullptr, int alternative = -1) {
  IsolatedKernel alone = isolate(kernel, program, name);
  CudaKernel result;
  if (buffers) *buffers = alone.buffers;
  result.kernel = std::move(alone.kernel);
  result.program = std::move(alone.program);
  result.program.symbols = program.symbols;
  for (int widest : {16, 1}) {
    cuda::Binding binding = cuda::bind(result.kernel, result.program, {widest});
    const auto others = cuda::alternatives(result.kernel, result.program, binding);
    if (widest > 1 && alternative >= 0 && !others.empty())
      binding = others[std::size_t(alternative) % others.size()].binding;
    if (widest == 1 && result.forms[0].binding.width == 1) break;
    if (widest == 1) result.kernel.name += "_single";
    result.forms.push_back({binding, cuda::emit_kernel(result.kernel, result.program, binding)});
  }
  result.kernel.name = name;
  return result;
}

/// Runs the emulated kernel as a launch of one item.
class EmulatedCode : public KernelCode {
 public:
  void used_again() override {}
};

std::string folder() {
  std::string path = std::filesystem::temp_directory_path() / "framejit-emulation-XXXXXX";
  FJ_CHECK(mkdtemp(path.data()), "no folder for temporary files");
  return path;
}

}  // namespace

std::string CudaKernel::dump() const {
  std::string out = text(kernel);
  for (const Form& form : forms) out += cuda::text(kernel, form.binding) + form.text.source;
  return out;
}

std::vector<CudaKernel> cuda_kernels(const Graph& graph, const std::string& prefix, int alternative) {
  const LoweredProgram program = lowered(graph);
  std::vector<CudaKernel> result;
  for (const loop::Kernel& kernel : program.kernels)
    result.push_back(cuda_kernel(kernel, program, prefix + std::to_string(result.size()), nullptr, alternative));
  return result;
}

Emulated::Emulated(const std::string& source) {
  const std::string place = folder(), text = place + "/kernels.cpp", object = place + "/kernels.so",
                    log = place + "/log";
  std::ofstream(text) << "#include \"" FJ_TEST_SOURCE "/tests/cuda/emulation.h\"\n" << source;
  const std::string command = std::string(FJ_TEST_COMPILER) + " -std=c++17 -O0 -w -fPIC -shared -ffp-contract=off -o " +
                              object + " " + text + " 2> " + log;
  const int status = std::system(command.c_str());
  if (status == 0) handle_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) {
    std::ifstream errors(log);
    std::string all((std::istreambuf_iterator<char>(errors)), {});
    ADD_FAILURE() << "the emulated kernels do not compile (" << text << "):\n" << all.substr(0, 4000);
    return;
  }
  for (const std::string& file : {text, object, log}) unlink(file.c_str());
  rmdir(place.c_str());
}

Emulated::~Emulated() {
  if (handle_) dlclose(handle_);
}

void* Emulated::operator[](const std::string& symbol) const {
  return handle_ ? dlsym(handle_, symbol.c_str()) : nullptr;
}

namespace {

std::string arguments(const cuda::KernelText& text) {
  std::string call;
  for (const cuda::Parameter& parameter : text.parameters) {
    call += call.empty() ? "" : ", ";
    switch (parameter.kind) {
      case cuda::ParameterKind::Buffer: {
        std::string type = parameter.type.substr(0, parameter.type.find('*') + 1);
        if (const std::size_t at = type.find("const "); at != std::string::npos) type.erase(at, 6);
        call += "(" + type + ")all.buffers[" + std::to_string(parameter.number) + "]";
        break;
      }
      case cuda::ParameterKind::Status: call += "&all.status"; break;
      case cuda::ParameterKind::Symbol: call += "all.symbols[" + std::to_string(parameter.number) + "]"; break;
      case cuda::ParameterKind::Table: case cuda::ParameterKind::Kernels: FJ_CHECK(false, "of a batch");
    }
  }
  return call;
}

std::string size_text(const SymDim& dim) {
  std::string sum = "0";
  for (const SymDim::Term& term : dim.terms()) {
    sum += " + " + std::to_string(term.coefficient);
    for (SymbolId symbol : term.symbols) sum += " * symbols[" + std::to_string(symbol.index) + "]";
  }
  return "(" + sum + ")";
}

std::string launch_of(const CudaKernel::Form& form) {
  return "emulation::launch(" + std::to_string(form.binding.threads) +
      ", [](void* context) { All& all = *static_cast<All*>(context); " + form.text.name + "(" +
         arguments(form.text) + "); }, &all);\n";
}

}  // namespace

std::string emulated_launch(const CudaKernel& kernel) {
  const CudaKernel::Form& wide = kernel.forms[0];
  std::string condition = "!emulation::one_at_a_time";
  for (int buffer : wide.binding.packed_buffers)
    condition += " && emulation::aligned(buffers[" + std::to_string(buffer) + "])";
  for (const SymDim& size : wide.binding.multiples) condition += " && " + size_text(size) + " % " +
      std::to_string(wide.binding.width) + " == 0";
  std::string body;
  if (kernel.forms.size() == 1)
    body = "  " + launch_of(wide);
  else
    body = "  if (" + condition + ") { ++emulation::packed_launches; " + launch_of(wide) + "  } else " +
           launch_of(kernel.forms[1]);
  return "extern \"C\" unsigned " + wide.text.name +
         "_run(char* const* buffers, const long* symbols, long, long, char*) {\n"
         "  using namespace fj;\n"
         "  struct All { char* const* buffers; const long* symbols; unsigned status; } all{buffers, symbols, 0};\n" +
         body + "  return all.status;\n}\n";
}

void Suite::add(std::string description, const std::string& graph, std::vector<DenseArray> inputs, Check check) {
  add(std::move(description), parse(graph), std::move(inputs), std::move(check));
}

void Suite::add(std::string description, const Graph& graph, std::vector<DenseArray> inputs, Check check) {
  const LoweredProgram program = lowered(graph);
  Entry entry{std::move(description), graph, std::move(inputs), std::move(check), describe_program(graph, program), {}};
  for (const loop::Kernel& kernel : program.kernels)
    if (const std::string reason = cuda::unsupported(kernel, program); !reason.empty()) {
      left_out.push_back(entry.description + ": " + reason);
      return;
    }
  for (const loop::Kernel& kernel : program.kernels) {
    ProgramKernel described = describe_kernel(kernel);
    described.name = "k" + std::to_string(kernels_++);
    entry.kernels.push_back(cuda_kernel(kernel, program, described.name, &described.buffers, alternative));
    described.items = described.elements_per_item = 1;  // the emulated launch is one piece of work
    described.scratch_bytes = 0;
    entry.parts.kernels.push_back(std::move(described));
  }
  entries_.push_back(std::move(entry));
}

void Suite::run() {
  std::vector<std::string> sources;
  std::string launches;
  for (const Entry& entry : entries_)
    for (const CudaKernel& kernel : entry.kernels) {
      for (const CudaKernel::Form& form : kernel.forms) sources.push_back(form.text.source);
      launches += emulated_launch(kernel);
    }
  const Emulated emulated(cuda::translation_unit(sources) + launches);
  const auto set = reinterpret_cast<void (*)(long, long, bool)>(emulated["emulation_set"]);
  const auto error = reinterpret_cast<const char* (*)()>(emulated["emulation_error"]);
  ASSERT_TRUE(set && error);
  for (Entry& entry : entries_) {
    SCOPED_TRACE(entry.description);
    for (std::size_t k = 0; k < entry.kernels.size(); ++k) {
      const auto function = reinterpret_cast<KernelFunction>(emulated[entry.parts.kernels[k].name + "_run"]);
      ASSERT_TRUE(function);
      auto code = std::make_shared<EmulatedCode>();
      code->publish(Tier::Optimised, function, nullptr, 0);
      entry.parts.kernels[k].code = std::move(code);
    }
    std::vector<std::int64_t> symbols = entry.check.symbols;
    symbols.resize(entry.graph.symbols.size());
    std::vector<DenseArray> expected;
    const std::uint32_t status = evaluate(entry.graph, entry.inputs, symbols, expected) & ~kFloatConditions;
    const auto program = make_compiled_program(entry.parts);
    auto dump = [&] {
      std::string kernels = print(entry.graph);
      for (const CudaKernel& kernel : entry.kernels) kernels += kernel.dump();
      return kernels;
    };
    for (int round = 0; round < 3; ++round) {
      set(round == 0 ? 1 : 3, round + 1, round == 2);
      const Outcome outcome = run_program(*program, entry.graph, entry.inputs, entry.check.symbols);
      ASSERT_EQ(error(), nullptr) << error() << "\n" << dump();
      ASSERT_EQ(outcome.status, status) << dump();
      if (status) continue;
      ASSERT_EQ(outcome.results.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_TRUE(close(outcome.results[i], expected[i], entry.check.ulps,
            entry.check.scale)) << "result " << i << " in round " << round << "\n" << dump();
    }
  }
}

}  // namespace fj::test
