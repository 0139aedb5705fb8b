// All kernels of a program are one text and one image, `wide`, equal ones once. Two more images are compiled at the
// first launch that needs them: `single`, the forms that take one element at a time, by a misaligned view or a size
// that is no multiple, and `others`, the forms that mode="max-autotune" measures beside the model's, by the
// measurement.
#include "codegen/cuda/compile_cuda.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include <llvm/Support/BLAKE3.h>

#include "codegen/cuda/emit.h"
#include "codegen/program/batch_launches.h"
#include "codegen/program/in_place_writes.h"
#include "codegen/program/isolate_kernel.h"
#include "codegen/program/program_parts.h"
#include "codegen/schedule/schedule.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/compiled_program.h"
#include "runtime/disk_cache.h"

namespace fj {

namespace {

using cuda::Binding;
using cuda::CudaCode;
using cuda::FormChoice;
using cuda::KernelForm;
using cuda::KernelText;

/// In the disk cache beside the tiers of the host's code.
constexpr std::uint32_t kCubin = 16, kPreference = 17;

// A millisecond of one core is some microseconds of a device, what a launch costs. Arrays made early only take memory.
constexpr BatchLimits kOfADevice{1e6, std::int64_t(256) << 10};

CacheKey key_of(const std::string& identity) {
  return llvm::BLAKE3::hash<32>(
      llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(identity.data()), identity.size()));
}

class TextImage : public cuda::Image {
 public:
  // Not the device: it keeps its images.
  TextImage(std::string source, CacheKey key, const CudaOptions& options)
      : source_(std::move(source)),
        key_(key),
        compile_(options.compile),
        architecture_(options.device->architecture()),
        cache_folder_(options.cache_bytes > 0 ? options.cache_folder : ""),
        cache_bytes_(std::uint64_t(options.cache_bytes)) {}

  const std::string& code() override {
    std::lock_guard lock(mutex_);
    if (!code_.empty()) return code_;
    DiskCache* cache = cache_folder_.empty() ? nullptr : &DiskCache::in(cache_folder_);
    if (cache)
      if (auto entry = cache->find(key_); entry && entry->tier == kCubin) return code_ = std::move(entry->object);
    cuda::Compiled compiled = compile_(source_, architecture_);
    if (!compiled.error.empty())
      throw DeviceError("a CUDA kernel does not compile: " + compiled.error + "\n" + compiled.log);
    code_ = std::move(compiled.cubin);
    if (cache) cache->store(key_, {kCubin, code_}, cache_bytes_);
    return code_;
  }

 private:
  const std::string source_;
  const CacheKey key_;
  const std::function<cuda::Compiled(std::string_view, int)> compile_;
  const int architecture_;
  const std::string cache_folder_;
  const std::uint64_t cache_bytes_;
  std::mutex mutex_;
  std::string code_;
};

/// Equal texts for the same device are one image for as long as a program or the device has it.
std::shared_ptr<cuda::Image> image_of(const std::vector<std::string>& kernels, const CudaOptions& options) {
  static std::mutex mutex;
  static std::map<std::pair<const cuda::CudaDevice*, CacheKey>, std::weak_ptr<cuda::Image>> images;
  std::string source = cuda::translation_unit(kernels);
  const std::string identity = "framejit " FRAMEJIT_VERSION " CUDA sm_" +
                               std::to_string(options.device->architecture()) + " by " + options.compiler + "\n" +
                               source;
  const CacheKey key = key_of(identity);
  std::lock_guard lock(mutex);
  std::weak_ptr<cuda::Image>& known = images[{options.device.get(), key}];
  if (auto image = known.lock()) return image;
  auto image = std::make_shared<TextImage>(std::move(source), key, options);
  known = image;
  return image;
}

/// The kernels of one image: equal ones have one text.
class Texts {
 public:
  explicit Texts(std::string prefix) : prefix_(std::move(prefix)) {}

  KernelForm add(loop::Kernel kernel, const LoweredProgram& program, const Binding& binding) {
    kernel.name = "same";
    const std::string anonymous = cuda::emit_kernel(kernel, program, binding).source;
    auto [known, fresh] = names_.try_emplace(anonymous, prefix_ + std::to_string(names_.size()));
    kernel.name = known->second;
    const KernelText text = cuda::emit_kernel(kernel, program, binding);
    if (fresh) sources_.push_back(text.source);
    KernelForm form{kernel.name, binding.threads, binding.team, binding.width, {}, {}, 0, {}};
    const auto argument_of = [&](const cuda::Parameter& parameter) -> cuda::Argument {
      using Kind = cuda::Argument::Kind;
      switch (parameter.kind) {
        case cuda::ParameterKind::Buffer: return {Kind::Buffer, parameter.number};
        case cuda::ParameterKind::Status: return {Kind::Status};
        case cuda::ParameterKind::Symbol:
          return {parameter.number == binding.own_symbol ? Kind::Own : Kind::Symbol, parameter.number};
        case cuda::ParameterKind::Kernels: return {Kind::Kernels};
        case cuda::ParameterKind::Table: break;
      }
      FJ_CHECK(false, "the table is no argument");
      return {Kind::Kernels};
    };
    for (const cuda::Parameter& parameter : text.parameters) {
      reports_ = reports_ || parameter.kind == cuda::ParameterKind::Status;
      if (parameter.kind == cuda::ParameterKind::Table) form.table = cuda::kTableNumbers;
      else form.arguments.push_back(argument_of(parameter));
    }
    for (const cuda::Parameter& column : text.columns) form.columns.push_back(argument_of(column));
    for (const cuda::Extent& extent : cuda::item_extents(kernel, binding))
      form.extents.push_back({extent.size, extent.step});
    if (binding.tile) form.team = binding.threads;  // a block an item
    return form;
  }

  const std::vector<std::string>& sources() const { return sources_; }
  bool reports() const { return reports_; }

 private:
  std::string prefix_;
  std::map<std::string, std::string> names_;
  std::vector<std::string> sources_;
  bool reports_ = false;
};

std::string name_of(const cuda::Preference& preference) {
  return "at most " + std::to_string(preference.widest) + " at once, " + std::to_string(preference.threads) +
         " threads, a team of " + std::to_string(preference.team);
}

/// What another process has measured of equal kernels on a device of the same name with the same usual sizes.
struct Measured {
  CacheKey key;
  std::string folder;
  std::uint64_t bound = 0;

  Measured(const loop::Kernel& kernel, const LoweredProgram& program, const Binding& model,
           const std::vector<cuda::Alternative>& others, const CudaOptions& options)
      : folder(options.cache_bytes > 0 ? options.cache_folder : ""), bound(std::uint64_t(options.cache_bytes)) {
    loop::Kernel anonymous = kernel;
    anonymous.name = "same";
    std::string identity = "framejit " FRAMEJIT_VERSION " fastest on " + options.device->name() + " by " +
                           options.compiler + "\n" + cuda::emit_kernel(anonymous, program, model).source;
    for (const cuda::Alternative& other : others) identity += name_of(other.preference) + "\n";
    for (const Symbol& symbol : program.symbols) identity += " " + std::to_string(symbol.hint);
    key = key_of(identity);
  }
  std::optional<std::string> find() const {
    if (folder.empty()) return std::nullopt;
    auto entry = DiskCache::in(folder).find(key);
    return entry && entry->tier == kPreference ? std::optional(std::move(entry->object)) : std::nullopt;
  }
  void keep(const std::string& name) const {
    // Empty objects are none.
    if (!folder.empty()) DiskCache::in(folder).store(key, {kPreference, name.empty() ? "the model's" : name}, bound);
  }
};

/// Batches whose tables are full go on in another step; a kernel alone is launched alone.
void split_batches(LoweredProgram& program, const std::vector<IsolatedKernel>& kernels) {
  std::vector<ProgramStep> steps;
  for (ProgramStep& step : program.steps) {
    if (step.kind != StepKind::Batch) {
      steps.push_back(std::move(step));
      continue;
    }
    const std::size_t columns = kernels[std::size_t(step.batch[0])].buffers.size() + 1,
                      rows = std::max<std::size_t>(1, cuda::kTableNumbers / columns);
    for (std::size_t first = 0; first < step.batch.size(); first += rows) {
      ProgramStep part = step;
      part.batch.assign(step.batch.begin() + std::ptrdiff_t(first),
                        step.batch.begin() + std::ptrdiff_t(std::min(first + rows, step.batch.size())));
      if (part.batch.size() == 1) part.kind = StepKind::Kernel, part.kernel = part.batch[0], part.batch.clear();
      steps.push_back(std::move(part));
    }
  }
  program.steps = std::move(steps);
}

/// One kernel that is all of a batch, whose work is the same: a loop that is not of one length has each kernel's own
/// (loop::same_work).
IsolatedKernel of_all(const std::vector<int>& batch, const std::vector<IsolatedKernel>& kernels,
                      std::vector<std::int64_t>& own) {
  IsolatedKernel result = kernels[std::size_t(batch[0])];
  if (!result.kernel.vector_is_parallel()) return result;
  const auto length = [&](int k) {
    return kernels[std::size_t(k)].kernel.variables[result.kernel.vector_var.index].extent.value();
  };
  for (const int k : batch) own.push_back(length(k));
  const std::int64_t longest = *std::max_element(own.begin(), own.end());
  if (*std::min_element(own.begin(), own.end()) == longest) {
    own.clear();
    return result;
  }
  Symbol symbol;
  symbol.hint = longest;
  result.program.symbols.push_back(symbol);
  result.kernel.variables[result.kernel.vector_var.index].extent =
      SymDim(SymbolId{std::uint32_t(result.program.symbols.size() - 1)});
  return result;
}

std::string no_form(const LoweredProgram& program) {
  for (const ProgramStep& step : program.steps) {
    if (step.kind == StepKind::Matmul) return "matrix products of a CUDA device are not taken into compiled programs";
    if (step.kind != StepKind::Kernel && step.kind != StepKind::Extern)
      return "a step of the program is not made for CUDA devices";
  }
  for (const loop::Kernel& kernel : program.kernels)
    if (std::string reason = cuda::unsupported(kernel, program); !reason.empty()) return reason;
  return {};
}

}  // namespace

std::unique_ptr<Program> compile_cuda(const Graph& graph, const CudaOptions& options, std::string& reason) {
  const Schedule groups = schedule(graph, false, false);
  LoweredProgram lowered = lower(graph, groups, LoopTarget::Threads);
  reason = no_form(lowered);
  if (!reason.empty()) return nullptr;
  write_in_place(lowered, false);

  if (options.measured && options.device->name().empty()) {
    static std::once_flag said;
    std::call_once(said, [] {
      if (log_enabled(Artifact::fallbacks))
        log(Artifact::fallbacks, "mode max-autotune measures nothing: NVIDIA's driver is too old for it");
    });
  }
  std::vector<IsolatedKernel> isolated;
  for (const loop::Kernel& kernel : lowered.kernels) {
    isolated.push_back(isolate(kernel, lowered, kernel.name));
    isolated.back().program.symbols = lowered.symbols;
  }
  {
    std::vector<IsolatedKernel> shared = isolated;
    batch_launches(lowered, share_work(shared), false, kOfADevice);
    split_batches(lowered, isolated);
  }
  std::vector<const std::vector<int>*> batch_of(isolated.size());
  for (const ProgramStep& step : lowered.steps)
    for (const int k : step.batch) batch_of[std::size_t(k)] = &step.batch;
  ProgramParts parts = describe_program(graph, lowered);
  Texts wide("kernel"), single("single"), others("other");
  std::vector<std::shared_ptr<CudaCode>> codes;
  for (std::size_t k = 0; k < isolated.size(); ++k) {
    const loop::Kernel& kernel = lowered.kernels[k];
    const std::vector<int>* batch = batch_of[k];
    ProgramKernel described = describe_kernel(kernel);
    described.buffers = isolated[k].buffers;
    if (batch && batch->front() != int(k)) {
      parts.kernels.push_back(std::move(described));
      continue;
    }
    auto code = std::make_shared<CudaCode>();
    const IsolatedKernel alone = batch ? of_all(*batch, isolated, code->own) : isolated[k];
    const auto bound = [&](const cuda::Preference& preference) {
      Binding binding = cuda::bind(alone.kernel, alone.program, preference);
      binding.over_table = batch != nullptr;
      if (!code->own.empty()) binding.own_symbol = int(lowered.symbols.size());
      return binding;
    };
    code->place = kernel.name + (kernel.location.empty() ? "" : " (" + kernel.location + ")");
    code->buffers = alone.program.buffers.size();
    const auto add = [&](Texts& texts, const Binding& binding, std::string name) {
      auto placed = std::make_unique<cuda::PlacedForm>();
      placed->form = texts.add(alone.kernel, alone.program, binding);
      placed->packed_buffers = binding.packed_buffers;
      placed->multiples = binding.multiples;
      placed->name = std::move(name);
      code->wide.push_back(std::move(placed));
    };
    const Binding model = bound({});
    Binding first = model;
    std::vector<cuda::Alternative> open;
    if (!batch && options.measured && !options.device->name().empty())
      open = cuda::alternatives(alone.kernel, alone.program, model);
    if (!open.empty()) {
      const Measured measured(alone.kernel, alone.program, model, open, options);
      code->choice = options.device->choice(measured.key);
      if (const auto name = code->choice->form == FormChoice::kOpen ? measured.find() : std::nullopt) {
        int known = 0, still = FormChoice::kOpen;
        for (std::size_t i = 0; i < open.size(); ++i)
          if (name_of(open[i].preference) == *name) known = int(i) + 1;
        code->choice->form.compare_exchange_strong(still, known);
      }
      if (const int known = code->choice->form; known >= 0) {
        if (known > 0) first = open[std::size_t(known) - 1].binding;
        open.clear();
        code->choice = nullptr;
      } else {
        code->keep = [measured](const std::string& name) { measured.keep(name); };
      }
    }
    add(wide, first, "");
    for (const cuda::Alternative& other : open) add(others, other.binding, name_of(other.preference));
    if (model.width > 1) code->single.form = single.add(alone.kernel, alone.program, bound({1}));
    if (options.dump) parts.text += text(kernel) + cuda::text(kernel, first);
    described.device_code = code;
    parts.kernels.push_back(std::move(described));
    codes.push_back(std::move(code));
  }
  if (!codes.empty()) {
    const auto wide_image = image_of(wide.sources(), options);
    const auto single_image = single.sources().empty() ? nullptr : image_of(single.sources(), options);
    const auto other_image = others.sources().empty() ? nullptr : image_of(others.sources(), options);
    for (const auto& code : codes) {
      for (const auto& placed : code->wide) placed->image = placed == code->wide.front() ? wide_image : other_image;
      code->single.image = single_image;
    }
    wide_image->code();  // compiled here, not at the first launch
  }
  if (options.dump)
    for (const std::string& source : wide.sources()) parts.text += source;
  parts.reports = wide.reports();
  parts.device = options.device;
  parts.joins_launches = options.graphs;
  parts.host_inputs = options.host_inputs;
  return make_compiled_program(std::move(parts));
}

}  // namespace fj
