/// A device of the CUDA driver: the array library's own (primary) context, modules loaded once, launches on the
/// library's current stream.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/sym_dim.h"
#include "runtime/cuda/driver.h"
#include "runtime/device.h"
#include "runtime/disk_cache.h"

namespace fj::cuda {

/// What a parameter of a kernel is filled with.
struct Argument {
  enum class Kind : std::uint8_t {
    Buffer,
    Status,
    Symbol,
    Own,
    Kernels
  } kind;  // Own: CudaCode::own; Kernels: how many a launch is over
  int number = -1;
};

/// One form of a kernel: its name in its image, and how it is launched.
struct KernelForm {
  std::string name;
  int threads = 0, team = 1, width = 1;
  std::vector<Argument> arguments;
  std::vector<Argument>
      columns;  // of the table, which comes before the arguments, with a row for each kernel of a batch,
  std::size_t table = 0;          // and so many numbers. 0: there is none
  std::vector<std::pair<SymDim, std::int64_t>>
      extents;  // items: the product of sizes, each divided by the number and rounded up
  std::size_t values() const { return table + arguments.size(); }
};

/// An image with kernels: machine code of the device. It is made when it is first needed, which may be never. Throws
/// DeviceError.
class Image {
 public:
  virtual ~Image() = default;
  virtual const std::string& code() = 0;
};

/// A form, where it is, and when it is right.
struct PlacedForm {
  KernelForm form;
  std::shared_ptr<Image> image;
  std::vector<int> packed_buffers;  // must begin at multiples of 16 bytes,
  std::vector<SymDim> multiples;    // and these be multiples of form.width
  std::string name;                 // of what was preferred; "": nothing, the model's
  // The driver's handle, once the image is loaded. A program is of one device.
  mutable std::atomic<void*> function{nullptr};
};

/// Which of several forms equal kernels of a device are launched in.
struct FormChoice {
  static constexpr int kOpen = -1, kBeingMeasured = -2;
  std::atomic<int> form{kOpen};
};

/// A kernel as wide as it can be, and one element at a time for the launches in which that is not right.
struct CudaCode : DeviceCode {
  std::vector<std::unique_ptr<PlacedForm>> wide;  // the first by the model, unless it was chosen already
  std::size_t buffers = 0;                        // of the kernel's own numbers
  std::vector<std::int64_t>
      own;  // by kernel of a batch: the value of the symbol after the program's. Empty: there is none
  PlacedForm single;                              // without a name if the wide ones are always right
  std::string place;  // the kernel and the user's line, for messages: "kernel3 (model.py:41)"
  std::function<void(const std::string&)> keep;   // told the name of the form that was fastest
  std::shared_ptr<FormChoice> choice;             // of `wide`; null: the first

  const PlacedForm& chosen() const {
    return *wide[std::size_t(choice ? std::max(0, choice->form.load(std::memory_order_relaxed)) : 0)];
  }
};

class CudaDevice : public Device {
 public:
  /// Throws DeviceError. `driver` outlives it.
  CudaDevice(const Driver& driver, int ordinal);

  int ordinal() const { return ordinal_; }
  int architecture() const { return architecture_; }  // 90
  int processors() const { return processors_; }
  /// The driver's name for it; "" if it can't be measured on.
  const std::string& name() const { return name_; }
  /// The one of all kernels with this identity, which has to tell how many forms there are.
  std::shared_ptr<FormChoice> choice(const CacheKey& identity);
  std::unique_ptr<LaunchRecord> new_record() override;
  std::unique_ptr<DeviceRun> enter(Host& host, char* status_word, LaunchRecord* record) override;

 private:
  friend class CudaRun;
  /// Loads the image the first time. The context is current.
  void* function(const std::shared_ptr<Image>& image, const std::string& name, const std::string& place);

  const Driver& driver_;
  const int ordinal_;
  int device_ = 0, architecture_ = 0, processors_ = 1;
  void* context_ = nullptr;
  std::string name_;
  std::once_flag told_of_graphs_;
  std::mutex mutex_;  // guards what follows
  // Images stay: a launch may be under way at any time. Equal ones are one (compile_cuda).
  std::map<std::shared_ptr<Image>, void*> modules_;
  std::map<std::pair<std::shared_ptr<Image>, std::string>, void*> functions_;
  std::map<CacheKey, std::shared_ptr<FormChoice>> choices_;
};

}  // namespace fj::cuda
