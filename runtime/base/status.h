/// What kernels and the reference evaluator report: bits of one word per launch.
#pragma once

#include <cstdint>

namespace fj {

enum KernelStatus : std::uint32_t {
  kOk = 0,
  kIndexOutOfRange = 1,
  kIntegerDivisionByZero = 2,
  kFloatDivide = 4,      // IEEE conditions: collected only for programs that ask (NumPy)
  kFloatOverflow = 8,
  kFloatUnderflow = 16,
  kFloatInvalid = 32,
  kHostFailed = 64,      // allocation or extern call failed
  kInterrupted = 128,
  kDeviceFailed = 256,   // the device or its driver: Call::error says what
  kUnexpectedCount = 512,  // a size that depends on data is none of those the graph is for
  kNotFinite =
      1024,     // a sum or product is NaN, or infinite where a library computes it: invalid if an infinity took part
};

/// Whatever the caller asks for.
inline constexpr std::uint32_t kAlwaysFails =
    kIndexOutOfRange | kIntegerDivisionByZero | kHostFailed | kInterrupted | kDeviceFailed | kUnexpectedCount;

}  // namespace fj
