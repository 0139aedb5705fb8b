// Contexts, modules, launches. A run pushes the context and pops it at its end, whatever happens between.
#include "runtime/cuda/cuda_device.h"

#include <algorithm>

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
  CudaRun(CudaDevice& device, Host& host, char* status_word) : device_(device), driver_(device.driver_), status_word_(status_word) {
    driver_.check(driver_.push_context(device.context_), "making device " + std::to_string(device.ordinal()) + " current");
    stream_ = host.stream(device.ordinal());
    if (!status_word_) return;
    try {
      driver_.check(driver_.set_words(address(status_word_), 0, 1, stream_), "clearing the status word");
    } catch (...) {
      leave();
      throw;
    }
  }
  ~CudaRun() override { leave(); }

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

    std::vector<std::uint64_t> values;
    for (const Argument& argument : form.arguments) {
      switch (argument.kind) {
        case Argument::Kind::Buffer: values.push_back(address(buffers[argument.number])); break;
        case Argument::Kind::Status: values.push_back(address(status_word_)); break;
        case Argument::Kind::Symbol: values.push_back(std::uint64_t(symbols[std::size_t(argument.number)])); break;
      }
    }
    std::vector<void*> parameters;
    for (std::uint64_t& value : values) parameters.push_back(&value);
    void* function = device_.function(wide ? code.wide_image : code.single_image, form.name, code.place);
    driver_.check(driver_.launch(function, unsigned(blocks), 1, 1, unsigned(form.threads), 1, 1, 0, stream_, parameters.data(), nullptr),
                  "launching " + code.place);
    last_ = &code;
  }

  std::uint32_t status() override {
    std::uint32_t word = 0;
    const std::string doing = last_ ? "running the program up to " + last_->place : "reading the status word";
    driver_.check(driver_.copy_to_host(&word, address(status_word_), sizeof word, stream_), doing);
    driver_.check(driver_.wait(stream_), doing);
    return word;
  }

 private:
  static std::uint64_t address(const void* pointer) { return std::uint64_t(reinterpret_cast<std::uintptr_t>(pointer)); }
  void leave() {
    void* left = nullptr;
    driver_.pop_context(&left);  // nothing can be done about its failure
  }

  CudaDevice& device_;
  const Driver& driver_;
  char* status_word_;
  void* stream_ = nullptr;
  const CudaCode* last_ = nullptr;
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

std::unique_ptr<DeviceRun> CudaDevice::enter(Host& host, char* status_word) { return std::make_unique<CudaRun>(*this, host, status_word); }

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
