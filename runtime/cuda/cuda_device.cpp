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
// Of a form that is measured: the least of so many turns, each of as many launches as fit in about a millisecond, at
// most kLaunches.
constexpr int kTurns = 3, kLaunches = 10;
// A launch of so many milliseconds is asked a second time only, and when a kernel has taken this many, no further form
// is.
constexpr float kLongLaunch = 2, kMostMeasured = 100;
// Another form than the model's has to be faster by this: less is noise.
constexpr float kFaster = 0.97f;

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
      if (status_word_)
        driver_.check(driver_.set_words(address(status_word_), 0, 1, stream_), "clearing the status word");
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
    driver_.check(driver_.push_context(device_.context_),
                  "making device " + std::to_string(device_.ordinal()) + " current");
    current_ = true;
  }

  bool is_open(const DeviceCode& code) const override {
    const auto& choice = static_cast<const CudaCode&>(code).choice;
    return choice && choice->form.load(std::memory_order_relaxed) == FormChoice::kOpen;
  }

  void settle(const DeviceCode& open, char* const* buffers, std::span<const Written> written,
              std::span<const std::int64_t> symbols) override {
    const auto& code = static_cast<const CudaCode&>(open);
    flush();
    int capturing = 0, best = 0, still = FormChoice::kOpen;
    // Of nothing there is nothing to measure, and what runs one element at a time has no choice: the next run may have.
    if (blocks_of(code.wide[0]->form, symbols) <= 0 || !is_right(code, *code.wide[0], buffers, symbols)) return;
    // While the user records the stream nothing is measured: a later run is.
    if (driver_.capturing(stream_, &capturing) != 0 || capturing != 0) return;
    // One thread measures; meanwhile the others launch the model's form.
    if (!code.choice->form.compare_exchange_strong(still, FormChoice::kBeingMeasured)) return;
    try {
      best = fastest(code, buffers, written, symbols);
      if (code.keep) code.keep(code.wide[std::size_t(best)]->name);
      if (log_enabled(Artifact::kernels))
        log(Artifact::kernels, code.place + ": " + (best ? code.wide[std::size_t(best)]->name : "the model's choice") +
                                   " is the fastest of " + std::to_string(code.wide.size()));
    } catch (const DeviceError& error) {
      // No memory for the copies, perhaps; what is worse the launch itself will say.
      if (log_enabled(Artifact::fallbacks))
        log(Artifact::fallbacks, code.place + " is launched as the model has it: " + error.what());
    }
    code.choice->form.store(best, std::memory_order_relaxed);
  }

  void flush() override {
    if (waiting_.empty()) return;
    if (!graphs_->launch(waiting_, values_, stream_))
      for (std::size_t i = 0; i < waiting_.size(); ++i)
        launch_now(waiting_[i], values_.data() + waiting_[i].first, *places_[i]);
    waiting_.clear(), values_.clear(), places_.clear();
  }

  void upload(char* to, const void* from, std::size_t bytes) override {
    flush();
    refuse_capture();
    // Of pageable memory: it has been read when the driver returns, and of so few bytes without waiting for the stream.
    driver_.check(driver_.copy_to_device(address(to), from, bytes, stream_),
                  "copying numbers to device " + std::to_string(device_.ordinal()));
  }

  void launch(const DeviceCode& launched, char* const* buffers, std::span<const std::int64_t> symbols) override {
    const auto& code = static_cast<const CudaCode&>(launched);
    const PlacedForm& chosen = code.chosen();
    const PlacedForm& placed = is_right(code, chosen, buffers, symbols) ? chosen : code.single;
    if (const std::int64_t blocks = blocks_of(placed.form, symbols); blocks > 0)
      issue(code, placed, blocks, {&buffers, 1}, symbols);
  }

  void launch_batch(const DeviceCode& launched, std::span<char* const* const> kernels,
                    std::span<const std::int64_t> symbols) override {
    const auto& code = static_cast<const CudaCode&>(launched);
    // The program's symbols, and one that each kernel has its own value of.
    std::vector<std::int64_t> all(symbols.begin(), symbols.end());
    all.push_back(0);
    const auto symbols_of = [&](std::size_t kernel) -> std::span<const std::int64_t> {
      if (code.own.empty()) return symbols;
      all.back() = code.own[kernel];
      return all;
    };
    bool right = true;
    for (std::size_t k = 0; k < kernels.size(); ++k)
      right = right && is_right(code, code.chosen(), kernels[k], symbols_of(k));
    const PlacedForm& placed = right ? code.chosen() : code.single;
    std::int64_t most = 0;
    for (std::size_t k = 0; k < kernels.size(); ++k) most = std::max(most, blocks_of(placed.form, symbols_of(k)));
    const auto count = std::int64_t(kernels.size());
    most = std::min(most, std::max<std::int64_t>(1, kBlocksPerProcessor * device_.processors() / count));
    if (most > 0) issue(code, placed, most * count, kernels, symbols);
  }

  std::uint32_t status() override {
    flush();
    std::uint32_t word = 0;
    const std::string doing = last_ ? "running the program up to " + last_->place : "reading the status word";
    driver_.check(driver_.copy_to_host(&word, address(status_word_), sizeof word, stream_), doing);
    driver_.check(driver_.wait(stream_), doing);
    return word;
  }

  void wait() override {
    int capturing = 0;
    if (driver_.capturing(stream_, &capturing) != 0 || capturing != 0) return;  // nothing runs
    driver_.check(driver_.wait(stream_), last_ ? "running the program up to " + last_->place : "waiting for the device");
  }

 private:
  static constexpr std::size_t kUsual = 24;

  static bool is_right(const CudaCode& code, const PlacedForm& placed, char* const* buffers,
                       std::span<const std::int64_t> symbols) {
    return code.single.form.name.empty() ||
           (std::all_of(placed.packed_buffers.begin(), placed.packed_buffers.end(),
                        [&](int buffer) { return is_aligned(buffers[buffer]); }) &&
            std::all_of(placed.multiples.begin(), placed.multiples.end(),
                        [&](const SymDim& size) { return size.evaluate(symbols) % placed.form.width == 0; }));
  }
  std::int64_t blocks_of(const KernelForm& form, std::span<const std::int64_t> symbols) const {
    std::int64_t items = 1;
    for (const auto& [size, step] : form.extents) items *= (size.evaluate(symbols) + step - 1) / step;
    const std::int64_t teams = std::max(1, form.threads / form.team);
    return std::min((items + teams - 1) / teams, kBlocksPerProcessor * device_.processors());
  }
  static void fill(const CudaCode& code, const KernelForm& form, std::span<char* const* const> kernels,
                   const char* status_word, std::span<const std::int64_t> symbols, std::uint64_t* value) {
    const auto value_of = [&](const Argument& argument, std::size_t kernel) -> std::uint64_t {
      switch (argument.kind) {
        case Argument::Kind::Buffer: return address(kernels[kernel][argument.number]);
        case Argument::Kind::Status: return address(status_word);
        case Argument::Kind::Symbol: return std::uint64_t(symbols[std::size_t(argument.number)]);
        case Argument::Kind::Own: return std::uint64_t(code.own[kernel]);
        case Argument::Kind::Kernels: return kernels.size();
      }
      return 0;
    };
    if (form.table) {
      std::uint64_t* const end = value + form.table;
      for (std::size_t k = 0; k < kernels.size(); ++k)
        for (const Argument& column : form.columns) *value++ = value_of(column, k);
      std::fill(value, end, 0);
      value = end;
    }
    for (const Argument& argument : form.arguments) *value++ = value_of(argument, 0);
  }
  void issue(const CudaCode& code, const PlacedForm& placed, std::int64_t blocks, std::span<char* const* const> kernels,
             std::span<const std::int64_t> symbols) {
    const KernelForm& form = placed.form;
    // On the stack up to kUsual: a launch costs no allocation.
    const std::size_t count = form.values();
    std::uint64_t values[kUsual];
    std::vector<std::uint64_t> more_values;
    std::uint64_t* value = values;
    KernelLaunch made{nullptr, unsigned(blocks), unsigned(form.threads), 0, count, form.table};
    if (graphs_) {
      made.first = values_.size();
      values_.resize(made.first + count);
      value = values_.data() + made.first;
    } else if (count > kUsual) {
      more_values.resize(count);
      value = more_values.data();
    }
    fill(code, form, kernels, status_word_, symbols, value);
    made.function = function_of(placed, code.place);
    last_ = &code;
    if (graphs_)
      waiting_.push_back(made), places_.push_back(&code.place);
    else
      launch_now(made, value, code.place);
  }
  void* function_of(const PlacedForm& placed, const std::string& place) const {
    void* function = placed.function.load(std::memory_order_acquire);
    if (!function) {
      function = device_.function(placed.image, placed.form.name, place);
      placed.function.store(function, std::memory_order_release);
    }
    return function;
  }

  /// Memory and events of one measurement, of the driver's own pool, so that the library's allocator sees nothing of
  /// it.
  struct Measurement {
    explicit Measurement(const CudaRun& run) : driver(run.driver_), untouched(run.driver_), stream(run.stream_) {}
    ~Measurement() {
      for (std::uint64_t block : blocks) driver.release(block, stream);
      for (void* event : events)
        if (event) driver.event_destroy(event);
    }
    Measurement(const Measurement&) = delete;
    char* memory(std::size_t bytes) {
      std::uint64_t block = 0;
      driver.check(driver.allocate(&block, std::max<std::size_t>(bytes, 16), stream), "measuring");
      blocks.push_back(block);
      return reinterpret_cast<char*>(block);
    }
    template <class Launch>
    float milliseconds(int launches, const Launch& launch) {
      driver.check(driver.event_record(events[0], stream), "measuring");
      for (int i = 0; i < launches; ++i) launch();
      driver.check(driver.event_record(events[1], stream), "measuring");
      driver.check(driver.event_wait(events[1]), "measuring");
      float time = 0;
      driver.check(driver.event_elapsed(&time, events[0], events[1]), "measuring");
      total += time;
      return time / float(launches);
    }

    const Driver& driver;
    const OtherCapturesUntouched untouched;
    void* stream;
    void* events[2] = {};
    float total = 0;  // milliseconds
    std::vector<std::uint64_t> blocks;
  };

  int fastest(const CudaCode& code, char* const* buffers, std::span<const Written> written,
              std::span<const std::int64_t> symbols) const {
    Measurement measurement(*this);
    for (void*& event : measurement.events) driver_.check(driver_.event_create(&event, 0), "measuring");
    std::vector<char*> copies(buffers, buffers + code.buffers);
    for (const Written& part : written) {
      char* copy = measurement.memory(part.bytes + 16);
      // As far from a multiple of 16 bytes as the original: the forms that are right for the one are for the other.
      copy += (reinterpret_cast<std::uintptr_t>(part.begin) - reinterpret_cast<std::uintptr_t>(copy)) % 16;
      driver_.check(driver_.copy_on_device(address(copy), address(part.begin), part.bytes, stream_), "measuring");
      copies[std::size_t(part.buffer)] = copy + (buffers[part.buffer] - part.begin);
    }
    char* status_word = measurement.memory(16);
    driver_.check(driver_.set_words(address(status_word), 0, 4, stream_), "measuring");
    int best = 0;
    float least = 0;
    for (std::size_t c = 0; c < code.wide.size() && measurement.total < kMostMeasured; ++c) {
      const PlacedForm& placed = *code.wide[c];
      if (!is_right(code, placed, buffers, symbols)) continue;
      std::vector<std::uint64_t> values(placed.form.values());
      char* const* const copied = copies.data();
      fill(code, placed.form, {&copied, 1}, status_word, symbols, values.data());
      const KernelLaunch made{function_of(placed, code.place),
                              unsigned(blocks_of(placed.form, symbols)),
                              unsigned(placed.form.threads),
                              0,
                              values.size(),
                              0};
      const auto launch = [&] { launch_now(made, values.data(), code.place); };
      float time = measurement.milliseconds(1, launch);  // of a cold one
      const int launches = std::clamp(int(1 / std::max(time, 1e-3f)), 1, kLaunches),
                turns = time < kLongLaunch ? kTurns : 1;
      for (int turn = 0; turn < turns && measurement.total < kMostMeasured; ++turn)
        time = std::min(time, measurement.milliseconds(launches, launch));
      if (c == 0 || time < least * (best == 0 ? kFaster : 1)) best = int(c), least = time;
    }
    return best;
  }

  void launch_now(const KernelLaunch& launch, const std::uint64_t* values, const std::string& place) const {
    void* usual[kUsual];
    std::vector<void*> more;
    void** parameters = usual;
    if (launch.parameters() > kUsual) {
      more.resize(launch.parameters());
      parameters = more.data();
    }
    launch.point(values, parameters);
    if (const int code =
            driver_.launch(launch.function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream_, parameters, nullptr))
      driver_.check(code, "launching " + place);
  }
  /// What is recorded as a CUDA graph runs again without us: it would read the numbers of now, and nobody its status.
  void refuse_capture() {
    int status = 0;
    driver_.check(driver_.capturing(stream_, &status), "looking at the stream");
    if (status != 0)
      throw DeviceError("a program that reads numbers of the host, or reports to it, is recorded as a CUDA graph");
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
  char text[256] = {};
  if (!driver.missing_for(Driver::Use::measuring) && driver.name(text, sizeof text - 1, device_) == 0) name_ = text;
  // Never released: the library's arrays live in it.
  driver.check(driver.retain_context(&context_, device_), doing);
}

std::shared_ptr<FormChoice> CudaDevice::choice(const CacheKey& identity) {
  std::lock_guard lock(mutex_);
  auto& known = choices_[identity];
  if (!known) known = std::make_shared<FormChoice>();
  return known;
}

std::unique_ptr<LaunchRecord> CudaDevice::new_record() {
  if (const char* missing = driver_.missing_for(Driver::Use::graphs)) {
    std::call_once(told_of_graphs_, [&] {
      if (log_enabled(Artifact::fallbacks))
        log(Artifact::fallbacks, "mode reduce-overhead launches kernels one by one: libcuda has no " +
                                     std::string(missing) + "; NVIDIA's driver is too old for graphs");
    });
    return nullptr;
  }
  return std::make_unique<LaunchGraphs>(driver_, context_);
}

std::unique_ptr<DeviceRun> CudaDevice::enter(Host& host, char* status_word, LaunchRecord* record) {
  return std::make_unique<CudaRun>(*this, host, status_word, static_cast<LaunchGraphs*>(record));
}

void* CudaDevice::function(const std::shared_ptr<Image>& image, const std::string& name, const std::string& place) {
  const OtherCapturesUntouched untouched(driver_);
  std::lock_guard lock(mutex_);
  void*& known = functions_[{image, name}];
  if (known) return known;
  // Kept when it is there: of what a call leaves behind that has failed nothing is known.
  void *module = modules_[image], *function = nullptr;
  if (!module) driver_.check(driver_.load_module(&module, image->code().data()), "loading " + place);
  modules_[image] = module;
  driver_.check(driver_.function(&function, module, name.c_str()), "finding " + place);
  return known = function;
}

}  // namespace fj::cuda
