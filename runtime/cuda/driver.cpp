// Opening libcuda.
#include "runtime/cuda/driver.h"

#include "runtime/cuda/shared_object.h"
#include "runtime/device.h"

namespace fj::cuda {

void Driver::check(int code, const std::string& doing) const {
  if (code == 0) return;
  const char* text = nullptr;
  if (error_text) error_text(code, &text);
  throw DeviceError("CUDA error " + std::to_string(code) + (text ? " (" + std::string(text) + ")" : "") + " " + doing);
}

const char* Driver::missing_for(Use use) const {
#define FJ_CUDA_DRIVER(member, called, parameters)
#define FJ_CUDA_DRIVER_OPTIONAL(needed_for, member, called, parameters) \
  if (use == Use::needed_for && !member) return called;
#include "runtime/cuda/driver.def"
  return nullptr;
}

const Driver* driver(std::string& missing) {
  struct Opened {
    Driver functions;
    std::string missing;
    Opened() {
      const SharedObject library({"libcuda.so.1", "libcuda.so"});
      if (library.opened().empty()) {
        missing = "no CUDA kernels can run: libcuda.so.1 was not found; it comes with NVIDIA's driver";
        return;
      }
#define FJ_CUDA_DRIVER(member, called, parameters)                                \
  functions.member = reinterpret_cast<int(*) parameters>(library.symbol(called)); \
  if (!functions.member)                                                          \
    missing = "no CUDA kernels can run: " + library.opened() + " has no " called "; NVIDIA's driver is too old";
#define FJ_CUDA_DRIVER_OPTIONAL(use, member, called, parameters) \
  functions.member = reinterpret_cast<int(*) parameters>(library.symbol(called));
#include "runtime/cuda/driver.def"
      if (!missing.empty()) return;
      if (const int code = functions.initialise(0)) {
        const char* text = nullptr;
        functions.error_text(code, &text);
        missing = "no CUDA kernels can run: the driver can't be initialised: " +
                  std::string(text ? text : "an error without a text");
      }
    }
  };
  static const Opened opened;
  missing = opened.missing;
  return missing.empty() ? &opened.functions : nullptr;
}

}  // namespace fj::cuda
