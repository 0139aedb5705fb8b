// Contexts, modules, launches. A run pushes the context and pops it at its end, whatever happens between.
#include "runtime/cuda/cuda_device.h"

#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/cuda/launch_graphs.h"

namespace fj::cuda {

namespace {

// CUdevice_attribute
constexpr int kMajor = 75, kMinor = 76, kProcessors = 16;
// Blocks beyond this many a processor only wait: the kernels stride over the items.
constexpr std::int64_t kBlocksPerProcessor = 32;

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

class CudaRun : public DeviceRun {
 public:
  CudaRun(CudaDevice& device, Host& host, char* status_word, LaunchGraphs* graphs)
      : device_(device), driver_(device.driver_), status_word_(status_word), graphs_(graphs) {
    resume();
    try {
      stream_ = host.stream(device.ordinal());
      if (status_word_) refuse_capture();
      if (status_word_) driver_.check(driver_.set_words(address(status_word_), 0, 1, stream_), "clearing the status word");
    } catch (...) {
      pause();
      throw;
    }
  }
  ~CudaRun() override { pause(); }

  void pause() override {
    if (!current_) return;
    current_ = false;
    void* left = nullptr;
    driver_.pop_context(&left);  // nothing can be done about its failure
  }
  void resume() override {
    driver_.check(driver_.push_context(device_.context_), "making device " + std::to_string(device_.ordinal()) + " current");
    current_ = true;
  }

  void flush() override {
    if (waiting_.empty()) return;
    if (!graphs_->launch(waiting_, values_, stream_))
      for (std::size_t i = 0; i < waiting_.size(); ++i) launch_now(waiting_[i], values_.data() + waiting_[i].first, *places_[i]);
    waiting_.clear(), values_.clear(), places_.clear();
  }

  void upload(char* to, const void* from, std::size_t bytes) override {
    flush();
    refuse_capture();
    // Of pageable memory: it has been read when the driver returns, and of so few bytes without waiting for the stream.
    driver_.check(driver_.copy_to_device(address(to), from, bytes, stream_), "copying numbers to device " + std::to_string(device_.ordinal()));
  }

  void launch(const DeviceCode& launched, char* const* buffers, std::span<const std::int64_t> symbols) override {
    const auto& code = static_cast<const CudaCode&>(launched);
    bool wide = code.single.name.empty();
    if (!wide) {
      wide = std::all_of(code.packed_buffers.begin(), code.packed_buffers.end(), [&](int buffer) { return is_aligned(buffers[buffer]); }) &&
             std::all_of(code.multiples.begin(), code.multiples.end(),
                 [&](const SymDim& size) { return size.evaluate(symbols) % code.wide.width == 0; });
    }
    const KernelForm& form = wide ? code.wide : code.single;
    std::int64_t items = 1;
    for (const auto& [size, step] : form.extents) items *= (size.evaluate(symbols) + step - 1) / step;
    if (items <= 0) return;
    const std::int64_t teams = std::max(1, form.threads / form.team);
    const std::int64_t blocks = std::min((items + teams - 1) / teams, kBlocksPerProcessor * device_.processors());

    // On the stack up to kUsual: a launch costs no allocation.
    const std::size_t count = form.arguments.size();
    std::uint64_t values[kUsual];
    std::vector<std::uint64_t> more_values;
    std::uint64_t* value = values;
    KernelLaunch made{nullptr, unsigned(blocks), unsigned(form.threads), 0, count};
    if (graphs_) {
      made.first = values_.size();
      values_.resize(made.first + count);
      value = values_.data() + made.first;
    } else if (count > kUsual) {
      more_values.resize(count);
      value = more_values.data();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Argument& argument = form.arguments[i];
      switch (argument.kind) {
        case Argument::Kind::Buffer: value[i] = address(buffers[argument.number]); break;
        case Argument::Kind::Status: value[i] = address(status_word_); break;
        case Argument::Kind::Symbol: value[i] = std::uint64_t(symbols[std::size_t(argument.number)]); break;
      }
    }
    std::atomic<void*>& known = wide ? code.wide_function : code.single_function;
    made.function = known.load(std::memory_order_acquire);
    if (!made.function) {
      made.function = device_.function(wide ? code.wide_image : code.single_image, form.name, code.place);
      known.store(made.function, std::memory_order_release);
    }
    last_ = &code;
    if (graphs_)
      waiting_.push_back(made), places_.push_back(&code.place);
    else
      launch_now(made, value, code.place);
  }

  std::uint32_t status() override {
    flush();
    std::uint32_t word = 0;
    const std::string doing = last_ ? "running the program up to " + last_->place : "reading the status word";
    driver_.check(driver_.copy_to_host(&word, address(status_word_), sizeof word, stream_), doing);
    driver_.check(driver_.wait(stream_), doing);
    return word;
  }

 private:
  static constexpr std::size_t kUsual = 24;

  void launch_now(const KernelLaunch& launch, const std::uint64_t* values, const std::string& place) const {
    void* usual[kUsual];
    std::vector<void*> more;
    void** parameters = usual;
    if (launch.arguments > kUsual) {
      more.resize(launch.arguments);
      parameters = more.data();
    }
    for (std::size_t i = 0; i < launch.arguments; ++i) parameters[i] = const_cast<std::uint64_t*>(&values[i]);
    if (const int code = driver_.launch(launch.function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream_, parameters, nullptr))
      driver_.check(code, "launching " + place);
  }
  /// What is recorded as a CUDA graph runs again without us: it would read the numbers of now, and nobody its status.
  void refuse_capture() {
    int status = 0;
    driver_.check(driver_.capturing(stream_, &status), "looking at the stream");
    if (status != 0) throw DeviceError("a program that reads numbers of the host, or reports to it, is recorded as a CUDA graph");
  }
  static std::uint64_t address(const void* pointer) { return std::uint64_t(reinterpret_cast<std::uintptr_t>(pointer)); }
  CudaDevice& device_;
  const Driver& driver_;
  char* status_word_;
  void* stream_ = nullptr;
  bool current_ = false;
  const CudaCode* last_ = nullptr;
  LaunchGraphs* const graphs_;  // null: launches are made at once
  std::vector<KernelLaunch> waiting_;
  std::vector<std::uint64_t> values_;       // their arguments
  std::vector<const std::string*> places_;  // by launch
};

CudaDevice::CudaDevice(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  const std::string doing = "opening device " + std::to_string(ordinal);
  driver.check(driver.device(&device_, ordinal), doing);
  int major = 0, minor = 0;
  driver.check(driver.attribute(&major, kMajor, device_), doing);
  driver.check(driver.attribute(&minor, kMinor, device_), doing);
  driver.check(driver.attribute(&processors_, kProcessors, device_), doing);
  architecture_ = major * 10 + minor;
  // Never released: the library's arrays live in it.
  driver.check(driver.retain_context(&context_, device_), doing);
}

std::unique_ptr<LaunchRecord> CudaDevice::new_record() {
  if (const char* missing = driver_.missing_for_graphs()) {
    std::call_once(told_of_graphs_, [&] {
      if (log_enabled(Artifact::fallbacks))
        log(Artifact::fallbacks, "mode reduce-overhead launches kernels one by one: libcuda has no " + std::string(missing) + "; NVIDIA's driver is too old for graphs");
    });
    return nullptr;
  }
  return std::make_unique<LaunchGraphs>(driver_, context_);
}

std::unique_ptr<DeviceRun> CudaDevice::enter(Host& host, char* status_word, LaunchRecord* record) {
  return std::make_unique<CudaRun>(*this, host, status_word, static_cast<LaunchGraphs*>(record));
}

void* CudaDevice::function(const std::shared_ptr<Image>& image, const std::string& name, const std::string& place) {
  std::lock_guard lock(mutex_);
  void*& function = functions_[{image, name}];
  if (function) return function;
  void*& module = modules_[image];
  if (!module) driver_.check(driver_.load_module(&module, image->code().data()), "loading " + place);
  driver_.check(driver_.function(&function, module, name.c_str()), "finding " + place);
  return function;
}

}  // namespace fj::cuda
