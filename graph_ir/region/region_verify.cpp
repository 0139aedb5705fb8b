// The invariants of a region.
#include <algorithm>
#include <map>
#include <optional>

#include "graph_ir/ops.h"
#include "graph_ir/region/flow.h"
#include "graph_ir/region/region.h"
#include "runtime/region_library.h"

namespace fj::region {
namespace {

constexpr std::int64_t kMostScratch = 1 << 16;  // it is on the stack

class Verifier {
 public:
  explicit Verifier(const Region& region)
      : region_(region), defined_in_(region.types.size(), -1), place_(region.types.size(), 0) {}

  std::vector<std::string> run() {
    const int count = int(region_.blocks.size());
    if (count == 0) return {"a region without a block"};
    if (!region_.blocks[0].parameters.empty()) fault("^0 has parameters");
    for (ValueId input : region_.inputs) define(input, 0, -1);
    for (ValueId input : region_.natural)
      if (std::find(region_.inputs.begin(), region_.inputs.end(), input) == region_.inputs.end() ||
          !is_signed_integer(region_.type(input)))
        fault("what is natural is no signed input");
    for (const Memory& memory : region_.memories)
      if (memory.scratch < 0 || memory.scratch > kMostScratch || (memory.scratch && memory.heap))
        fault("a memory of its own that is the heap, or too large");
    for (block_ = 0; block_ < count; ++block_) {
      const Block& block = region_.blocks[std::size_t(block_)];
      for (ValueId parameter : block.parameters) define(parameter, block_, -1);
      for (std::size_t i = 0; i < block.body.size(); ++i)
        if (block.body[i].result.valid()) define(block.body[i].result, block_, int(i));
    }
    for (block_ = 0; block_ < count; ++block_) {
      const Terminator& end = region_.blocks[std::size_t(block_)].end;
      for (const Target* target : {&end.yes, &end.no})
        if (target->block >= count || (target->block < 0) != (target == &end.no ? end.kind != Terminator::Kind::Branch
                                                                               : end.kind == Terminator::Kind::Exit))
          fault("a target that is no block");
    }
    if (!faults_.empty()) return std::move(faults_);
    flow_.emplace(region_);
    for (block_ = 0; block_ < count; ++block_) {
      const Block& block = region_.blocks[std::size_t(block_)];
      for (std::size_t i = 0; i < block.body.size(); ++i) {
        at_ = int(i);
        for_each_use(block.body[i], [&](ValueId value) { use(value); });
        if (faults_.empty()) check(block.body[i]);
      }
      at_ = int(block.body.size());
      for_each_use(block.end, [&](ValueId value) { use(value); });
      if (faults_.empty()) check(block.end);
    }
    for (int exit = 0; exit < region_.exits; ++exit)
      if (!exits_.contains(exit)) fault("exit " + std::to_string(exit) + " is never taken");
    return std::move(faults_);
  }

 private:
  void fault(const std::string& what) { faults_.push_back("^" + std::to_string(block_) + ": " + what); }
  static std::string quoted(DType dtype) { return std::string(name(dtype)); }

  void define(ValueId value, int block, int at) {
    if (value.index >= defined_in_.size()) return fault("a value without a dtype");
    if (defined_in_[value.index] >= 0) return fault("a value that is defined twice");
    defined_in_[value.index] = block;
    place_[value.index] = at;
  }

  void use(ValueId value) {
    if (value.index >= defined_in_.size() || defined_in_[value.index] < 0)
      return fault("the use of a value that is not defined");
    const int block = defined_in_[value.index];
    if (block == block_ ? place_[value.index] >= at_ : !flow_->dominates(block, block_))
      fault("the use of a value where its definition may not have been passed");
  }

  void check(const Leave& leave) {
    if (leave.exit < 0 || leave.exit >= region_.exits) return fault("an exit that is out of range");
    std::vector<DType> types;
    for (ValueId value : leave.values) types.push_back(region_.type(value));
    const auto [known, fresh] = exits_.emplace(leave.exit, types);
    if (!fresh && known->second != types)
      fault("exit " + std::to_string(leave.exit) + " with values of other dtypes than elsewhere");
  }

  void expect(bool holds, const std::string& what) {
    if (!holds) fault(what);
  }

  void check(const Instruction& instruction) {
    const auto type = [&](std::size_t i) { return region_.type(instruction.operands[i]); };
    const std::size_t count = instruction.operands.size();
    const bool of_memory = instruction.code == Code::Load || instruction.code == Code::Store ||
                           instruction.code == Code::Address;
    if (of_memory && (instruction.memory < 0 || instruction.memory >= int(region_.memories.size())))
      return fault("a memory that is out of range");
    const bool leaves = instruction.leave.exit >= 0;
    switch (instruction.code) {
      case Code::Constant: {
        const Scalar& value = instruction.constant;
        bool fits = false;
        switch (category(region_.type(instruction.result))) {
          case DTypeCategory::Bool: fits = std::holds_alternative<bool>(value); break;
          case DTypeCategory::Signed: fits = std::holds_alternative<std::int64_t>(value); break;
          case DTypeCategory::Unsigned: fits = std::holds_alternative<std::uint64_t>(value); break;
          case DTypeCategory::Float: fits = std::holds_alternative<double>(value); break;
          case DTypeCategory::Complex: break;
        }
        expect(count == 0 && fits, "a constant of another category than its dtype");
        break;
      }
      case Code::Pointwise: {
        const OpRow& known = row(instruction.op);
        expect(known.lowering == Lowering::Pointwise && !known.variadic,
               quoted_op(instruction.op) + " is not pointwise");
        expect(count == known.operands.size(), quoted_op(instruction.op) + " has other operands");
        if (!faults_.empty()) return;
        const std::size_t first = instruction.op == Op::where ? 1 : 0;
        if (first) expect(type(0) == DType::Bool, "a choice by what is no bool");
        for (std::size_t i = first; i < count; ++i)
          expect(type(i) == type(first),
                 quoted_op(instruction.op) + " of " + quoted(type(first)) + " and " + quoted(type(i)));
        expect(accepts(instruction.op, type(first)), quoted_op(instruction.op) + " of " + quoted(type(first)));
        const DType result = region_.type(instruction.result);
        if (known.type_rule == "Bool") expect(result == DType::Bool, "a comparison that is no bool");
        else if (instruction.op != Op::cast)
          expect(result == type(first), quoted_op(instruction.op) + " of another dtype");
        expect(!is_complex(type(first)) && !is_complex(result), "a complex number");
        break;
      }
      case Code::CheckedAdd: case Code::CheckedSub: case Code::CheckedMul:
        expect(count == 2 && is_integer(type(0)) && type(1) == type(0) && region_.type(instruction.result) == type(0),
               "checked arithmetic of what are no integers of one type");
        expect(leaves, "checked arithmetic without an exit");
        break;
      case Code::AddNoWrap:
        expect(count == 2 && is_integer(type(0)) && type(1) == type(0) && region_.type(instruction.result) == type(0),
               "add_no_wrap of what are no integers of one type");
        break;
      case Code::Call: {
        const bool known = instruction.function >= 0 && std::size_t(instruction.function) < functions().size();
        expect(known && count == std::size_t(functions()[std::size_t(instruction.function)].operands),
               "a call of no function");
        for (std::size_t i = 0; i < count; ++i) expect(type(i) == DType::F64, "a call with what is no f64");
        expect(region_.type(instruction.result) == DType::F64, "a call whose result is no f64");
        break;
      }
      case Code::Load:
        expect(count == 1 && type(0) == DType::I64, "an index that is no i64");
        expect(region_.type(instruction.result) == region_.memories[std::size_t(instruction.memory)].dtype,
               "a load of another dtype than the memory's");
        break;
      case Code::Store:
        expect(count == 2 && type(0) == DType::I64, "an index that is no i64");
        if (count == 2)
          expect(type(1) == region_.memories[std::size_t(instruction.memory)].dtype,
                 "a store of another dtype than the memory's");
        break;
      case Code::Opaque:
        expect(count == 1 && is_float(type(0)) && region_.type(instruction.result) == type(0),
               "an opaque value that is no float");
        break;
      case Code::Address:
        expect(count == 1 && type(0) == DType::I64 && region_.type(instruction.result) == DType::I64,
               "an address of another dtype than i64");
        break;
      case Code::Run: {
        if (instruction.function < 0 || std::size_t(instruction.function) >= region_library().size())
          return fault("the run of no function");
        const LibraryFunction& function = region_library()[std::size_t(instruction.function)];
        bool fits = function.operands.size() == count && function.result.has_value() == instruction.result.valid();
        for (std::size_t i = 0; fits && i < count; ++i) fits = type(i) == function.operands[i];
        expect(fits && (!function.result || region_.type(instruction.result) == *function.result),
               "`" + std::string(function.name) + "` with other operands or another result");
        break;
      }
      case Code::LeaveIf:
        expect(count == 1 && type(0) == DType::Bool, "a condition that is no bool");
        expect(leaves, "leave_if without an exit");
        break;
      case Code::LeaveIfReported: {
        std::size_t parts = 0;
        for (int part : instruction.parts) {
          expect(part >= 2, "leave_if_reported of a result without operands");
          parts += std::size_t(std::max(part, 0));
        }
        expect(leaves && count > 0 && parts == count, "leave_if_reported without operands or without an exit");
        for (std::size_t i = 0; i < count; ++i)
          expect(is_float(type(i)) && type(i) == type(0), "leave_if_reported of what are no floats of one type");
        break;
      }
      case Code::LeaveIfAsked: expect(count == 0 && leaves, "leave_if_asked without an exit"); break;
    }
    if (leaves) check(instruction.leave);
  }

  static std::string quoted_op(Op op) { return "`" + std::string(name(op)) + "`"; }

  void check(const Terminator& end) {
    if (end.kind == Terminator::Kind::Branch)
      expect(region_.type(end.condition) == DType::Bool, "a condition that is no bool");
    for (const Target* target : {&end.yes, &end.no}) {
      if (target->block < 0) continue;
      const auto& parameters = region_.blocks[std::size_t(target->block)].parameters;
      bool fits = parameters.size() == target->arguments.size();
      for (std::size_t i = 0; fits && i < parameters.size(); ++i)
        fits = region_.type(parameters[i]) == region_.type(target->arguments[i]);
      expect(fits, "arguments that are not what ^" + std::to_string(target->block) + " takes");
    }
    if (end.kind == Terminator::Kind::Exit) check(end.leave);
  }

  const Region& region_;
  std::vector<int> defined_in_, place_;  // by value: block and number in it; -1: before all of it
  std::optional<Flow> flow_;
  std::map<int, std::vector<DType>> exits_;
  std::vector<std::string> faults_;
  int block_ = 0, at_ = 0;
};

}  // namespace

std::vector<std::string> verify(const Region& region) { return Verifier(region).run(); }

}  // namespace fj::region
