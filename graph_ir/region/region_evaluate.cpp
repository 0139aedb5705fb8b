// Regions run by the reference evaluator of operations.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "graph_ir/region/region.h"
#include "runtime/base/error.h"
#include "runtime/region_library.h"

namespace fj::region {
namespace {

class Evaluator {
 public:
  Evaluator(const Region& region, std::vector<DenseArray>& memories)
      : region_(region), values_(region.types.size()) {
    std::size_t given = 0;
    for (const Memory& memory : region.memories)
      if (memory.scratch) own_.emplace_back(memory.dtype, std::vector<std::int64_t>{memory.scratch});
    auto own = own_.begin();
    for (const Memory& memory : region.memories) {
      FJ_CHECK(memory.scratch || given < memories.size(), "what the region takes");
      memories_.push_back(memory.scratch ? &*own++ : &memories[given++]);
    }
    FJ_CHECK(given == memories.size(), "what the region takes");
  }

  Left run(const std::vector<Scalar>& inputs, std::int64_t most) {
    FJ_CHECK(inputs.size() == region_.inputs.size(), "what the region takes");
    for (std::size_t i = 0; i < inputs.size(); ++i) set(region_.inputs[i], inputs[i]);
    for (ValueId input : region_.natural) FJ_CHECK(integer(input) >= 0, "a natural input that is negative");
    for (int at = 0;;) {
      const Block& block = region_.blocks[std::size_t(at)];
      for (const Instruction& instruction : block.body) {
        FJ_CHECK(--most >= 0, "a region that does not end");
        if (execute(instruction)) return left(instruction.leave);
      }
      FJ_CHECK(--most >= 0, "a region that does not end");
      if (block.end.kind == Terminator::Kind::Exit) return left(block.end.leave);
      const bool yes = block.end.kind == Terminator::Kind::Jump || std::get<bool>(scalar(block.end.condition));
      const Target& target = yes ? block.end.yes : block.end.no;
      std::vector<DenseArray> arguments;
      for (ValueId argument : target.arguments) arguments.push_back(values_[argument.index]);
      at = target.block;
      for (std::size_t i = 0; i < arguments.size(); ++i)
        values_[region_.blocks[std::size_t(at)].parameters[i].index] = std::move(arguments[i]);
    }
  }

 private:
  Scalar scalar(ValueId value) const { return values_[value.index].scalar(0); }
  std::int64_t integer(ValueId value) const { return std::get<std::int64_t>(scalar(value)); }
  void set(ValueId value, const Scalar& to) { values_[value.index] = scalar_array(region_.type(value), to); }

  Left left(const Leave& leave) const {
    Left result{leave.exit, {}};
    for (ValueId value : leave.values) result.values.push_back(scalar(value));
    return result;
  }

  std::byte* element(const Instruction& instruction) {
    DenseArray& memory = *memories_[std::size_t(instruction.memory)];
    const std::int64_t index = integer(instruction.operands[0]);
    if (region_.memories[std::size_t(instruction.memory)].heap)
      return reinterpret_cast<std::byte*>(std::uintptr_t(index) * size_in_bytes(memory.dtype));
    FJ_CHECK(index >= 0 && index < memory.element_count(), "an index outside of its memory");
    return memory.element(index);
  }

  /// True: the region is left here.
  bool execute(const Instruction& instruction) {
    switch (instruction.code) {
      case Code::Constant: set(instruction.result, instruction.constant); return false;
      case Code::Pointwise: {
        std::vector<const DenseArray*> operands;
        for (ValueId operand : instruction.operands) operands.push_back(&values_[operand.index]);
        Node node{instruction.op, instruction.operands, {}, {instruction.result}, {}};
        if (instruction.op == Op::cast) node.attrs.set("to", region_.type(instruction.result));
        DenseArray result(region_.type(instruction.result), {});
        detail::evaluate_pointwise(node, operands, result);
        values_[instruction.result.index] = std::move(result);
        return false;
      }
      case Code::CheckedAdd: case Code::CheckedSub: case Code::CheckedMul: {
        const DType dtype = region_.type(instruction.result);
        const int bits = 8 * int(size_in_bytes(dtype));
        const bool is_signed = is_signed_integer(dtype);
        const auto wide = [&](ValueId value) -> __int128 {
          return is_signed ? __int128(integer(value)) : __int128(std::get<std::uint64_t>(scalar(value)));
        };
        const __int128 a = wide(instruction.operands[0]), b = wide(instruction.operands[1]), one = 1;
        __int128 result = 0;
        const bool overflows = instruction.code == Code::CheckedAdd   ? __builtin_add_overflow(a, b, &result)
                               : instruction.code == Code::CheckedSub ? __builtin_sub_overflow(a, b, &result)
                                                                      : __builtin_mul_overflow(a, b, &result);
        const __int128 least = is_signed ? -(one << (bits - 1)) : 0;
        if (overflows || result < least || result >= one << (is_signed ? bits - 1 : bits)) return true;
        set(instruction.result, is_signed ? Scalar(std::int64_t(result)) : Scalar(std::uint64_t(result)));
        return false;
      }
      case Code::AddNoWrap: {
        std::int64_t sum = 0;
        FJ_CHECK(!__builtin_add_overflow(integer(instruction.operands[0]), integer(instruction.operands[1]), &sum),
                 "a sum that wraps");
        set(instruction.result, sum);
        return false;
      }
      case Code::Call: {
        const Function& function = functions()[std::size_t(instruction.function)];
        const auto number = [&](std::size_t i) { return std::get<double>(scalar(instruction.operands[i])); };
        set(instruction.result, function.operands == 1 ? function.one(number(0)) : function.two(number(0), number(1)));
        return false;
      }
      case Code::Opaque:
        values_[instruction.result.index] = values_[instruction.operands[0].index];
        return false;
      case Code::Run: {
        const LibraryFunction& function = region_library()[std::size_t(instruction.function)];
        std::vector<std::uint64_t> cells(instruction.operands.size());
        for (std::size_t i = 0; i < cells.size(); ++i) {
          const DenseArray& operand = values_[instruction.operands[i].index];
          std::memcpy(&cells[i], operand.data.data(), operand.data.size());
        }
        const std::uint64_t made = function.invoke(heap_, cells.data());
        if (!instruction.result.valid()) return false;
        DenseArray result(region_.type(instruction.result), {});
        std::memcpy(result.data.data(), &made, result.data.size());
        values_[instruction.result.index] = std::move(result);
        return false;
      }
      case Code::Address:
        set(instruction.result, std::int64_t(reinterpret_cast<std::uintptr_t>(element(instruction))));
        return false;
      case Code::Load: {
        DenseArray loaded(region_.type(instruction.result), {});
        const std::byte* from = element(instruction);
        std::copy(from, from + size_in_bytes(loaded.dtype), loaded.data.begin());
        values_[instruction.result.index] = std::move(loaded);
        return false;
      }
      case Code::Store: {
        const DenseArray& stored = values_[instruction.operands[1].index];
        std::copy(stored.data.begin(), stored.data.end(), element(instruction));
        return false;
      }
      case Code::LeaveIfReported: {
        bool leaves = false, first = true, finite_first = false;
        for_each_report(instruction, [&](ValueId of, std::span<const ValueId> operands) {
          const double result = std::get<double>(scalar(of));
          if (std::exchange(first, false)) finite_first = std::isfinite(result);
          FJ_CHECK(!finite_first || std::isfinite(result), "a finite result made of one that is not");
          bool finite = true, number = true;
          for (ValueId operand : operands) {
            finite = finite && std::isfinite(std::get<double>(scalar(operand)));
            number = number && !std::isnan(std::get<double>(scalar(operand)));
          }
          leaves = leaves || (std::isnan(result) && number) || (std::isinf(result) && finite);
        });
        return leaves;
      }
      case Code::LeaveIfAsked: return false;
      case Code::LeaveIf: return std::get<bool>(scalar(instruction.operands[0]));
    }
    return false;
  }

  const Region& region_;
  std::vector<DenseArray*> memories_;
  std::vector<DenseArray> own_;
  std::vector<DenseArray> values_;
  RegionHeap heap_;
};

}  // namespace

Left evaluate(const Region& region, const std::vector<Scalar>& inputs, std::vector<DenseArray>& memories,
              std::int64_t most_instructions) {
  return Evaluator(region, memories).run(inputs, most_instructions);
}

}  // namespace fj::region
