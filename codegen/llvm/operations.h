/// Operations on values in registers: scalars or vectors of `lanes` elements of a graph dtype.
///
/// Register forms: Bool is i1; integers are themselves; F16 and BF16 live as float holding an exactly representable
/// value (each operation computes in float and rounds, as the graph says); complex numbers are two values.
#pragma once

#include <functional>
#include <span>

#include <llvm/IR/IRBuilder.h>

#include "codegen/llvm/machine.h"
#include "graph_ir/graph.h"

namespace fj {

struct Val {
  llvm::Value* real = nullptr;
  llvm::Value* imaginary = nullptr;  // complex only
};

class Operations {
 public:
  Operations(llvm::IRBuilder<>& builder, const Machine& machine) : b(builder), machine_(machine) {}

  llvm::IRBuilder<>& b;
  int lanes = 1;
  /// Where the status word is collected; null: nothing fallible here.
  llvm::Value* status = nullptr;
  /// IEEE conditions are collected: special results must raise them.
  bool conditions = false;
  /// Lanes that count (null: all): the others raise no status.
  llvm::Value* active = nullptr;

  const Machine& machine() const { return machine_; }
  llvm::LLVMContext& context() const { return b.getContext(); }

  /// Element type in registers and in memory.
  llvm::Type* element(DType dtype) const;
  llvm::Type* memory_element(DType dtype) const;
  llvm::Type* wide(llvm::Type* element) const;
  llvm::Type* wide(DType dtype) const { return wide(element(dtype)); }

  llvm::Value* number(DType dtype, double value) const;        // float or integer
  llvm::Value* integer(DType dtype, std::uint64_t bits) const;
  llvm::Value* splat(llvm::Value* scalar) const;
  Val constant(DType dtype, const Scalar& scalar) const;

  /// Memory form <-> register form (not complex).
  llvm::Value* from_memory(DType dtype, llvm::Value* value);
  llvm::Value* to_memory(DType dtype, llvm::Value* value);
  /// Float to the nearest value of a half type, still as float.
  llvm::Value* round_to(DType half, llvm::Value* value);

  Val cast(DType from, DType to, Val value);
  /// A row of pointwise.def.
  Val apply(Op op, DType result, DType operand, std::span<const Val> args);

  llvm::Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* select(llvm::Value* condition, llvm::Value* a, llvm::Value* b_value) {
    return b.CreateSelect(condition, a, b_value);
  }
  /// Of floats. Quiet if conditions are collected: comparing NaN is no invalid operation (the processor's
  /// ordered comparisons, and its minimum and maximum, say it is). What is compared is computed.
  llvm::Value* compare(llvm::CmpInst::Predicate predicate, llvm::Value* a, llvm::Value* b_value);
  /// Of floats, for what is no comparison of the user's: quiet; what is compared need not be computed.
  llvm::Value* compare_quietly(llvm::CmpInst::Predicate predicate, llvm::Value* a, llvm::Value* b_value);
  llvm::Value* holds_nan(llvm::Value* x) { return compare_quietly(llvm::CmpInst::FCMP_UNO, x, x); }
  /// The value, and nothing can be concluded from how it was made if conditions are collected: what raises them is
  /// executed, for all lanes, and not at compile time. Costs vectors no instruction.
  Val executed(const Val& value);
  void report(llvm::Value* condition, std::uint32_t bits);
  /// Notes a NaN, or also an infinity, in the status if conditions are collected (kNotFinite).
  void note_if_nan(const Val& value, bool or_infinite);

  /// `usual`, but where `condition` holds in a lane that counts what `otherwise` computes (for all lanes), behind a
  /// branch that is rarely taken.
  llvm::Value* where_any(llvm::Value* condition, llvm::Value* usual, const std::function<llvm::Value*()>& otherwise);
  /// Called when a block was split in two: what stood at the end of the first is now at the end of the second.
  std::function<void(llvm::BasicBlock* first, llvm::BasicBlock* second)> on_split;

  /// The library's function per lane, through memory.
  Val library(const std::string& name, DType dtype, std::span<const Val> args);

 private:
  llvm::Value* fence(llvm::Value* value);
  /// Where vectors with a NaN are compared loudly: of 0 in the lanes that have one.
  llvm::Value* compare_without_nan(llvm::CmpInst::Predicate predicate, llvm::Value* x, llvm::Value* y);
  /// A float without its sign, and infinity, as integers: NaN is above.
  std::pair<llvm::Value*, llvm::Value*> magnitude_bits(llvm::Value* x);
  /// The value, of which an optimiser knows nothing where a constant is near that has no place among such integers.
  llvm::Value* hidden(llvm::Value* value, bool is_signed = true);
  /// A constant, as if a caller had given it.
  Val opaque(const Val& constant);
  llvm::Value* half_to_float(llvm::Value* bits16);
  llvm::Value* float_to_half(llvm::Value* value);
  /// Arithmetic gives torch's one NaN; what is only copied keeps its bits.
  llvm::Value* float_to_brain(llvm::Value* value, bool copied);
  llvm::Value* truncate_to_odd(llvm::Value* value);

  const Machine& machine_;
};

using PointwiseRule = Val (*)(Operations&, DType result, DType operand, std::span<const Val> args);

}  // namespace fj
