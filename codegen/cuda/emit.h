/// From the loop IR to CUDA C++: one kernel, printed as its binding says. Sizes and strides are arguments, so one text
/// serves every size.
///
///     extern "C" __global__ void __launch_bounds__(256, 6) kernel(const float* __restrict__ b0, float* __restrict__
///     b1, i64 s0) {
///       for (i64 item = i64(blockIdx.x) * 256 + threadIdx.x; item < (s0) / 4; item += i64(gridDim.x) * 256) {
///         const i64 at = item % ((s0) / 4) * 4;
///         const Pack<float, 4> p0 = load_pack<4>(b0 + (at));
///         ...
///
/// The text goes behind the prelude, inside `namespace fj`.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/bind.h"

namespace fj::cuda {

enum class ParameterKind : std::uint8_t { Buffer, Status, Symbol, Table, Kernels };

/// Numbers of 8 bytes in a table, of the 4 KiB that a kernel's parameters may take.
inline constexpr int kTableNumbers = 448;

struct Parameter {
  ParameterKind kind;
  int number = -1;   // Buffer: of the kernel's; Symbol
  std::string type;  // as printed
};

struct KernelText {
  std::string name, source;
  std::vector<Parameter> parameters;
  std::vector<Parameter> columns;  // of the table, which is the first parameter then
  bool fallible = false;  // takes the status word
};

KernelText emit_kernel(const loop::Kernel& kernel, const LoweredProgram& program, const Binding& binding);

/// `prelude` and kernels: a whole translation unit.
std::string translation_unit(const std::vector<std::string>& kernels);

}  // namespace fj::cuda
