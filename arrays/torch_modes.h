/// The thread's torch modes, read at each call of compiled code: torch_grad_enabled and torch_modes of arrays.h.
#pragma once

#include <cstdint>
#include <optional>

#include "cpython/ref.h"
#include "runtime/base/dtype.h"

namespace fj {

/// The parts of the word that torch_modes() gives.
namespace torch_mode_bits {
constexpr std::uint64_t kInference = 1, kDeterministic = 2, kAutocast = 4, kOtherDispatch = 8, kAutocastCpu = 16,
                        kRecorded = 32;
constexpr int kAutocastDtype = 8, kDefaultDtype = 16, kFunctionModes = 24, kDispatchModes = 32, kFunctorchLevel = 40,
              kForwardLevel = 48;
constexpr std::uint64_t field(int shift) { return std::uint64_t(0xff) << shift; }
}  // namespace torch_mode_bits

/// torch's inference mode on or off while it exists; nothing happens if it is not `wanted`.
class InferenceMode {
 public:
  InferenceMode(bool wanted, bool on);
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;

 private:
  Ref<> mode_;
};

/// Nothing is recorded while it exists, unless that is `wanted`.
class GradMode {
 public:
  explicit GradMode(bool wanted);
  ~GradMode();
  GradMode(const GradMode&) = delete;

 private:
  bool changed_;
};

/// To torch the thread is as a fresh one while it exists: what framejit tries out is seen by no mode, transformation
/// or recorder of the user's.
class PlainThread {
 public:
  PlainThread();
  ~PlainThread();
  PlainThread(const PlainThread&) = delete;

 private:
  InferenceMode left_inference_;
  const void* symbols_;  // null: this torch has no way to it
  std::uint64_t keys_[2];
  std::uint8_t functions_ = 0;
  bool recording_ = true;
};

/// The dtype autocast on the CPU casts to; nothing: it is off.
std::optional<DType> torch_autocast_dtype();

}  // namespace fj
