// libframejit_program.so: runs programs that were built into libraries. It has neither Python nor LLVM.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/ahead/library_interface.h"
#include "codegen/ahead/processor.h"
#include "codegen/ahead/program_image.h"
#include "codegen/llvm/library.h"
#include "runtime/base/error.h"
#include "runtime/products/blas.h"
#include "runtime/thread_pool.h"

namespace fj {

namespace {

thread_local std::string last_error;

/// Results are the caller's arrays.
class CallerArrays : public Host {
 public:
  explicit CallerArrays(void* const* results) : results_(results) {}

  ArrayRef allocate(int output, DType, std::span<const std::int64_t>, std::span<const std::int64_t>) override {
    void* array = output < 0 ? nullptr : results_[output];
    return {array, array};
  }
  ArrayRef view(const ArrayRef&, DType, std::span<const std::int64_t>, std::span<const std::int64_t>,
                std::int64_t) override {
    return {};
  }
  bool call_extern(std::int64_t, std::span<const ArrayRef>, std::span<const std::int64_t>,
                   std::span<ArrayRef>) override {
    return false;
  }
  void retain(void*) override {}
  void release(void*) override {}

 private:
  void* const* results_;
};

/// Machine code that is where the library lies.
class LibraryKernel : public KernelCode {
 public:
  explicit LibraryKernel(const void* function) {
    publish(Tier::Optimised, reinterpret_cast<KernelFunction>(const_cast<void*>(function)), nullptr, 0);
  }
  void used_again() override {}
};

struct LoadedProgram {
  std::string refusal;  // why the library can't be run here, with `status`
  int status = kFramejitOk;
  std::unique_ptr<Program> program;
  std::vector<ImageSize> sizes;
  std::vector<int> arguments;
  std::vector<std::string> argument_names, result_names;
  std::size_t symbols = 0;
  std::vector<SymDim> counts;  // of elements, of arrays whose sizes the caller gives
};

std::unique_ptr<LoadedProgram> load(FramejitLibrary& library) {
  auto loaded = std::make_unique<LoadedProgram>();
  const auto refuse = [&](int status, std::string text) {
    loaded->status = status;
    loaded->refusal = std::string(library.name) + ": " + std::move(text);
    return std::move(loaded);
  };
  const FramejitVersion* version = nullptr;
  std::string built_for;
  for (std::uint32_t v = 0; v < library.version_count && !version; ++v) {
    if (processor_has(library.versions[v].cpu)) version = &library.versions[v];
    built_for += (v ? " and " : "") + std::string(library.versions[v].cpu);
  }
  if (!version)
    return refuse(kFramejitProcessor, "the library was built for " + built_for + ", and this processor is older");
  for (std::uint64_t f = 0; f < library.function_count; ++f) {
    library.functions[f] = nullptr;
    for (const auto& [name, address] : library_symbols())
      if (name == library.function_names[f]) library.functions[f] = address;
    if (!library.functions[f])
      return refuse(kFramejitInternal, std::string("libframejit_program.so has no ") + library.function_names[f]);
  }
  set_product_by(ProductBy::Own);
  ProgramImage image = read_image({version->image, version->image_bytes});
  std::vector<std::shared_ptr<KernelCode>> codes;
  std::size_t k = 0;
  each_kernel(image.parts, [&](ProgramKernel& kernel) {
    const auto number = std::size_t(image.functions[k++]);
    while (codes.size() <= number) codes.push_back(std::make_shared<LibraryKernel>(version->kernels[codes.size()]));
    kernel.code = codes[number];
  });
  loaded->symbols = image.parts.graph_symbols;
  for (const ProgramBuffer& buffer : image.parts.buffers) {
    const SymDim count = product(buffer.shape);
    const auto symbols = count.symbols();
    const bool given = std::none_of(symbols.begin(), symbols.end(), [&](SymbolId symbol) {
      return image.parts.symbols[symbol.index].defined;
    });
    if (given && !count.is_constant() &&
        std::find(loaded->counts.begin(), loaded->counts.end(), count) == loaded->counts.end())
      loaded->counts.push_back(count);
  }
  loaded->sizes = std::move(image.sizes);
  loaded->arguments = std::move(image.arguments);
  loaded->argument_names = std::move(image.argument_names);
  loaded->result_names = std::move(image.result_names);
  loaded->program = make_compiled_program(std::move(image.parts));
  return loaded;
}

/// The library's program, made in the first call and kept for as long as the process lives.
const LoadedProgram& loaded_program(FramejitLibrary& library) {
  std::atomic_ref<void*> slot(library.loaded);
  if (const void* found = slot.load(std::memory_order_acquire)) return *static_cast<const LoadedProgram*>(found);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const void* found = slot.load(std::memory_order_acquire)) return *static_cast<const LoadedProgram*>(found);
  auto loaded = load(library);
  slot.store(loaded.get(), std::memory_order_release);
  return *loaded.release();
}

int refuse(int status, std::string text) {
  last_error = std::move(text);
  return status;
}

int run(FramejitLibrary& library, const std::int64_t* sizes, void* const* arguments, void* const* results,
        std::uint32_t trapped) {
  if (library.interface != kFramejitInterface)
    return refuse(kFramejitInternal, "libframejit_program.so is of another version of framejit than the library");
  const LoadedProgram& loaded = loaded_program(library);
  if (loaded.status != kFramejitOk) return refuse(loaded.status, loaded.refusal);
  const std::string name = library.name;
  std::vector<std::int64_t> symbols(loaded.symbols);
  for (std::size_t i = 0; i < loaded.sizes.size(); ++i) {
    const ImageSize& size = loaded.sizes[i];
    if (sizes[i] < size.low || sizes[i] > size.high)
      return refuse(kFramejitArgument,
                    name + ": " + size.name + " is " + std::to_string(sizes[i]) + ", and the library is for " +
                        size.name + " from " + std::to_string(size.low) +
                        (size.high == INT64_MAX ? "" : " to " + std::to_string(size.high)));
    symbols[std::size_t(size.symbol)] = sizes[i];
  }
  for (const SymDim& count : loaded.counts)
    if (const auto elements = count.evaluate_exactly(symbols); !elements || *elements > kLargestSize)
      return refuse(kFramejitArgument, name + ": an array would have more elements than memory holds");
  for (std::size_t i = 0; i < loaded.argument_names.size(); ++i)
    if (!arguments[i]) return refuse(kFramejitArgument, name + ": " + loaded.argument_names[i] + " is a null pointer");
  for (std::size_t i = 0; i < loaded.result_names.size(); ++i)
    if (!results[i]) return refuse(kFramejitArgument, name + ": " + loaded.result_names[i] + " is a null pointer");
  std::vector<ArrayRef> inputs, outputs(loaded.result_names.size());
  for (const int argument : loaded.arguments)
    inputs.push_back({argument >= 0 ? arguments[argument] : const_cast<void*>(library.state[~argument])});
  CallerArrays host(results);
  Call call;
  call.host = &host;
  call.inputs = inputs;
  call.symbols = symbols;
  call.outputs = outputs;
  call.trapped = trapped;
  const std::uint32_t status = loaded.program->run(call);
  if (status == kOk) return kFramejitOk;
  if (status & kIndexOutOfRange) return refuse(kFramejitValue, name + ": an index is out of range");
  if (status & kIntegerDivisionByZero) return refuse(kFramejitValue, name + ": an integer is divided by zero");
  if (status & kHostFailed) return refuse(kFramejitMemory, name + ": there is not enough memory");
  if (status & trapped) return refuse(kFramejitCondition, name + ": an IEEE condition");
  return refuse(kFramejitInternal, name + ": status " + std::to_string(status));
}

}  // namespace

}  // namespace fj

extern "C" {

int framejit_run(FramejitLibrary* library, const std::int64_t* sizes, void* const* arguments, void* const* results,
                 std::uint32_t trapped) {
  try {
    fj::last_error.clear();
    return fj::run(*library, sizes, arguments, results, trapped);
  } catch (const std::bad_alloc&) {
    return fj::refuse(kFramejitMemory, std::string(library->name) + ": there is not enough memory");
  } catch (const std::exception& error) {
    return fj::refuse(kFramejitInternal, std::string(library->name) + ": " + error.what());
  }
}

const char* framejit_error() { return fj::last_error.c_str(); }

void framejit_set_threads(int threads) { fj::set_thread_count(threads < 0 ? 0 : threads); }
}
