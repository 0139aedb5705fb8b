// CompiledKernel knows how to make its own optimised tier; the registry finds a live one by its key. Start at
// compile_kernels.
#include "codegen/llvm/kernel_compiler.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include <llvm/Config/llvm-config.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/Support/BLAKE3.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/compiler_counts.h"
#include "codegen/llvm/emit.h"
#include "codegen/llvm/jit.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/phase.h"
#include "runtime/disk_cache.h"

namespace fj {

namespace {

// Above this many expressions the better code generator takes seconds; its code is 1.1 to 1.3 times as fast.
constexpr std::size_t kLargeKernel = 2000;
// A first launch this long (20 ms) loses more to quick code than optimising costs.
constexpr double kLongLaunch = 20e6;

CompilerCounts& counts() {
  static CompilerCounts all;
  return all;
}

/// An emitted kernel. The module lives in the context.
struct Emitted {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module;
};

Emitted emit(const KernelSource& source, const Target& target, bool float_conditions) {
  const PhaseTimer timer(Phase::emit);
  Emitted emitted;
  emitted.module = make_module(*emitted.context, target);
  emit_kernel(source.kernel, source.program, target.machine, float_conditions, *emitted.module);
  return emitted;
}

CacheKey key_of(const llvm::Module& module, const Target& target) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  stream << "framejit " FRAMEJIT_VERSION " LLVM " LLVM_VERSION_STRING " pipeline " << kPipelineVersion << " for "
         << target.identity << '\n';
  module.print(stream, nullptr);
  return llvm::BLAKE3::hash<32>(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

class CompiledKernel : public KernelCode, public std::enable_shared_from_this<CompiledKernel> {
 public:
  CompiledKernel(const CacheKey& key, KernelSource source, const Target& target, const CompileOptions& options)
      : key_(key),
        source_(std::make_unique<const KernelSource>(std::move(source))),
        target_(target),
        options_(options) {}

  /// The first code: from disk, or the tier the options and the kernel ask for.
  void start(Emitted emitted) {
    if (load()) return;
    const Tier tier = options_.tier == TierChoice::Optimised ||
                              (options_.tier == TierChoice::Auto && source_->first_nanoseconds > kLongLaunch)
                          ? Tier::Optimised
                          : Tier::Quick;
    make(*emitted.module, tier);
  }

  bool improves() const override {
    if (options_.tier != TierChoice::Auto || tier() == Tier::Optimised) return false;
    return source_->kernel.expressions.size() <= kLargeKernel;
  }

  void used_again() override {
    if (!improves() || asked_.exchange(true)) return;
    run_in_background([weak = weak_from_this()] {
      if (const auto kernel = weak.lock()) kernel->improve();
    });
  }

 private:
  bool keeps_on_disk() const { return !options_.cache_folder.empty() && options_.cache_bytes > 0; }

  bool load() {
    if (!keeps_on_disk()) return false;
    DiskCache& disk = DiskCache::in(options_.cache_folder);
    std::optional<DiskCache::Entry> entry;
    {
      const PhaseTimer timer(Phase::look_up);
      entry = disk.find(key_);
    }
    if (!entry) return false;
    const Tier tier = entry->tier == 0 ? Tier::Quick : Tier::Optimised;
    if (options_.tier != TierChoice::Auto && (options_.tier == TierChoice::Optimised) != (tier == Tier::Optimised))
      return false;
    try {
      link_and_publish(tier, entry->object);
    } catch (const InternalError&) {
      disk.reject(key_);
      return false;
    }
    ++counts().loaded;
    return true;
  }

  void make(llvm::Module& module, Tier tier) {
    std::string object = generate(module, target_, tier);
    link_and_publish(tier, object);
    ++(tier == Tier::Quick ? counts().quick : counts().optimised);
    if (!keeps_on_disk()) return;
    // Beside the program: a slow disk must not delay the call.
    run_in_background(
        [options = options_, key = key_, entry = DiskCache::Entry{std::uint32_t(tier), std::move(object)}] {
          DiskCache::in(options.cache_folder).store(key, entry, std::uint64_t(options.cache_bytes));
        });
  }

  void link_and_publish(Tier tier, const std::string& object) {
    const auto code = link(object, kKernelSymbol, source_->name);
    publish(tier, reinterpret_cast<KernelFunction>(code->address()), code, object.size());
  }

  void improve() {
    try {
      Emitted emitted = emit(*source_, target_, options_.float_conditions);
      make(*emitted.module, Tier::Optimised);
    } catch (const std::exception& error) {
      // The quick code is right; this is a bug of ours all the same.
      if (counts().failed++ == 0)
        log(Artifact::fallbacks,
            std::string("framejit: the optimised code of a kernel could not be made: ") + error.what(),
            LogLevel::warning);
    }
  }

  const CacheKey key_;
  const std::unique_ptr<const KernelSource> source_;
  const Target& target_;
  const CompileOptions options_;
  std::atomic<bool> asked_{false};
};

/// Live kernels by key and by choice of tier: tests that ask for a tier get that one.
class Registry {
 public:
  using Key = std::pair<TierChoice, CacheKey>;

  std::shared_ptr<CompiledKernel> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second.lock();
  }

  void add(const Key& key, const std::shared_ptr<CompiledKernel>& kernel) {
    std::lock_guard lock(mutex_);
    if (kernels_.size() >= sweep_at_) {
      std::erase_if(kernels_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = std::max<std::size_t>(64, 2 * kernels_.size());
    }
    kernels_[key] = kernel;
  }

  static Registry& instance() {
    static auto* registry = new Registry;  // never destroyed
    return *registry;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<CompiledKernel>> kernels_;
  std::size_t sweep_at_ = 64;
};

}  // namespace

std::vector<std::shared_ptr<KernelCode>> compile_kernels(std::vector<KernelSource> sources, const Target& target,
                                                         const CompileOptions& options) {
  Registry& registry = Registry::instance();
  std::vector<Emitted> emitted(sources.size());
  std::vector<CacheKey> keys(sources.size());
  std::vector<std::function<void()>> jobs;
  for (std::size_t i = 0; i < sources.size(); ++i)
    jobs.push_back([&, i] {
      const NoFork whole;
      emitted[i] = emit(sources[i], target, options.float_conditions);
      const PhaseTimer timer(Phase::look_up);
      keys[i] = key_of(*emitted[i].module, target);
    });
  run_together(jobs);

  std::vector<std::shared_ptr<KernelCode>> result(sources.size());
  std::map<CacheKey, std::shared_ptr<CompiledKernel>> here;
  jobs.clear();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto& kernel = here[keys[i]];
    if (!kernel) kernel = registry.find({options.tier, keys[i]});
    if (kernel) {
      ++counts().shared;
    } else {
      kernel = std::make_shared<CompiledKernel>(keys[i], std::move(sources[i]), target, options);
      jobs.push_back([&, i, started = kernel.get()] {
        const NoFork whole;
        started->start(std::move(emitted[i]));
      });
    }
    result[i] = kernel;
  }
  run_together(jobs);
  for (const auto& [key, kernel] : here) registry.add({options.tier, key}, kernel);
  return result;
}

std::string kernel_object(const KernelSource& source, const Target& target, const CompileOptions& options,
                          const std::function<void(llvm::Module&)>& finish) {
  const NoFork whole;
  const Emitted emitted = emit(source, target, options.float_conditions);
  finish(*emitted.module);
  return generate(*emitted.module, target, Tier::Optimised);
}

std::string kernel_listing(const KernelSource& source, const Target& target, const CompileOptions& options) {
  const NoFork whole;
  Emitted emitted = emit(source, target, options.float_conditions);
  return listing(*emitted.module, target);
}

CompilerCounts& compiler_counts() { return counts(); }

void reset_compiler_counts() {
  CompilerCounts& all = counts();
  for (auto* count : {&all.quick, &all.optimised, &all.loaded, &all.shared, &all.failed}) *count = 0;
}

}  // namespace fj
