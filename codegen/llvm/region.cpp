#include "codegen/llvm/region.h"

#include <algorithm>
#include <map>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>

#include "codegen/llvm/jit.h"
#include "codegen/llvm/kernel_compiler.h"
#include "codegen/llvm/operations.h"
#include "graph_ir/ops.h"
#include "graph_ir/region/chunks.h"
#include "runtime/base/error.h"
#include "runtime/region_library.h"

namespace fj {
namespace {

using region::Instruction;
using region::Leave;
using region::Region;
using region::Terminator;
using llvm::BasicBlock;
using llvm::Value;

class RegionEmitter {
 public:
  RegionEmitter(Region region, const Machine& machine, llvm::Module& module)
      : region_(std::move(region)), module_(module), b(module.getContext()), ops_(b, machine),
        values_(region_.types.size()) {}

  void run() {
    auto* pointer = b.getPtrTy();
    auto* type = llvm::FunctionType::get(b.getInt32Ty(), {pointer, pointer, pointer, pointer, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kKernelSymbol, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    auto* entry = block("entry");
    for (std::size_t i = 0; i < region_.blocks.size(); ++i) blocks_.push_back(block("block"));
    b.SetInsertPoint(entry);
    ops_.status = b.CreateAlloca(b.getInt32Ty());  // what could fail stands behind a leave_if: nobody reads it
    b.CreateStore(b.getInt32(0), ops_.status);
    for (std::size_t i = 0; i < region_.inputs.size(); ++i) {
      const ValueId input = region_.inputs[i];
      Value* const given = load_cell(function_->getArg(0), i, region_.type(input));
      if (region_.is_natural(input)) {
        const unsigned bits = given->getType()->getIntegerBitWidth();
        llvm::MDBuilder ranges(module_.getContext());
        llvm::cast<llvm::LoadInst>(given)->setMetadata(
            llvm::LLVMContext::MD_range,
            ranges.createRange(llvm::APInt(bits, 0), llvm::APInt::getSignedMaxValue(bits)));
      }
      values_[input.index] = given;
    }
    std::size_t given = 0;
    for (const region::Memory& memory : region_.memories)
      memories_.push_back(
          memory.scratch
              ? static_cast<Value*>(b.CreateAlloca(
                    llvm::ArrayType::get(ops_.memory_element(memory.dtype), std::uint64_t(memory.scratch))))
              : b.CreateLoad(pointer, b.CreateConstGEP1_64(pointer, function_->getArg(1), given++)));
    for (std::size_t i = 0; i < asked_.size(); ++i)
      asked_[i] = b.CreateLoad(pointer, b.CreateConstGEP1_64(pointer, function_->getArg(3), i));
    b.CreateBr(blocks_[0]);
    for (std::size_t i = 0; i < region_.blocks.size(); ++i) {
      b.SetInsertPoint(blocks_[i]);
      for (ValueId parameter : region_.blocks[i].parameters)
        values_[parameter.index] = b.CreatePHI(ops_.element(region_.type(parameter)), 2);
    }
    // In any order: a definition dominates its uses, but a block may stand before the one that dominates it.
    for (std::size_t i : order()) emit(i);
    for (BasicBlock* made : blocks_)
      if (!made->getTerminator()) new llvm::UnreachableInst(module_.getContext(), made);
  }

 private:
  BasicBlock* block(const char* name) { return BasicBlock::Create(module_.getContext(), name, function_); }

  /// Of the blocks that are reached, each behind those that dominate it.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> result;
    std::vector<char> seen(region_.blocks.size());
    auto visit = [&](auto&& self, std::size_t at) -> void {
      if (std::exchange(seen[at], 1)) return;
      const Terminator& end = region_.blocks[at].end;
      for (const region::Target* target : {&end.no, &end.yes})
        if (target->block >= 0) self(self, std::size_t(target->block));
      result.push_back(at);
    };
    visit(visit, 0);
    std::reverse(result.begin(), result.end());
    return result;
  }

  Value* load_cell(Value* cells, std::size_t index, DType dtype) {
    Value* place = b.CreateConstGEP1_64(b.getInt64Ty(), cells, index);
    return ops_.from_memory(dtype, b.CreateLoad(ops_.memory_element(dtype), place));
  }

  Value* value(ValueId id) const {
    FJ_CHECK(values_[id.index] != nullptr, "a value before its definition");
    return values_[id.index];
  }

  Value* element(const Instruction& instruction) {
    const DType dtype = region_.memories[std::size_t(instruction.memory)].dtype;
    return b.CreateGEP(ops_.memory_element(dtype), memories_[std::size_t(instruction.memory)],
                       value(instruction.operands[0]));
  }

  void leave(const Leave& leave) {
    for (std::size_t i = 0; i < leave.values.size(); ++i) {
      const DType dtype = region_.type(leave.values[i]);
      b.CreateStore(ops_.to_memory(dtype, value(leave.values[i])),
                    b.CreateConstGEP1_64(b.getInt64Ty(), function_->getArg(2), i));
    }
    b.CreateRet(b.getInt32(std::uint32_t(leave.exit)));
  }

  /// Where the region is left so: one block for all of a block that leave alike.
  BasicBlock* way_out(const Leave& where) {
    BasicBlock*& out = ways_out_[{where.exit, where.values}];
    if (out == nullptr) {
      const llvm::IRBuilder<>::InsertPointGuard back(b);
      out = block("leave");
      b.SetInsertPoint(out);
      leave(where);
    }
    return out;
  }

  void leave_if(Value* condition, const Leave& where) {
    BasicBlock *out = way_out(where), *on = block("on");
    llvm::MDBuilder weights(module_.getContext());
    b.CreateCondBr(condition, out, on, weights.createBranchWeights(1, 1 << 20));
    b.SetInsertPoint(on);
  }

  /// First whether the result is finite; the rest is rarely asked.
  void leave_if_reported(const Instruction& instruction) {
    const auto ordered = [&](Value* x) { return b.CreateFCmpORD(x, x); };
    const auto finite = [&](Value* x) {
      Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      return b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(x->getType()));
    };
    Value* result = value(instruction.operands[0]);
    BasicBlock *look = block("look"), *on = block("on");
    llvm::MDBuilder weights(module_.getContext());
    b.CreateCondBr(finite(result), on, look, weights.createBranchWeights(1 << 20, 1));
    b.SetInsertPoint(look);
    Value* any = b.getFalse();
    region::for_each_report(instruction, [&](ValueId of, std::span<const ValueId> operands) {
      Value *made = value(of), *numbers = b.getTrue(), *all_finite = b.getTrue();
      for (ValueId operand : operands) {
        numbers = b.CreateAnd(numbers, ordered(value(operand)));
        all_finite = b.CreateAnd(all_finite, finite(value(operand)));
      }
      any = b.CreateOr(
          any, b.CreateAnd(b.CreateNot(finite(made)), b.CreateSelect(ordered(made), all_finite, numbers)));
    });
    b.CreateCondBr(any, way_out(instruction.leave), on);
    b.SetInsertPoint(on);
  }

  Value* run(const Instruction& instruction) {
    const LibraryFunction& function = region_library()[std::size_t(instruction.function)];
    std::vector<Value*> arguments{function_->getArg(4)};
    for (ValueId operand : instruction.operands) arguments.push_back(value(operand));
    std::vector<llvm::Type*> types;
    for (Value* argument : arguments) types.push_back(argument->getType());
    auto* result = function.result ? ops_.element(*function.result) : b.getVoidTy();
    auto callee = module_.getOrInsertFunction("fj_region_" + std::string(function.name),
                                              llvm::FunctionType::get(result, types, false));
    llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
    return b.CreateCall(callee, arguments);
  }

  /// Of the loads and stores of one number, as LLVM's alias analysis has it; or of one memory.
  llvm::MDNode* scope(std::map<int, llvm::MDNode*>& scopes, int number) {
    llvm::MDNode*& scope = scopes[number];
    llvm::MDBuilder made(module_.getContext());
    if (scope == nullptr) {
      llvm::MDNode*& domain = &scopes == &scopes_ ? domain_ : memory_domain_;
      if (domain == nullptr) domain = made.createAnonymousAliasScopeDomain();
      scope = llvm::MDNode::get(module_.getContext(), {made.createAnonymousAliasScope(domain)});
    }
    return scope;
  }
  /// What the region allocates is one memory, whatever it holds.
  int place_of(std::size_t memory) const { return region_.memories[memory].heap ? -1 : int(memory); }
  void say_what_it_is_apart_from(llvm::Instruction* made, const Instruction& instruction) {
    llvm::MDNode *own = nullptr, *others = nullptr;
    if (instruction.apart >= 0)
      (instruction.code == region::Code::Load ? others : own) = scope(scopes_, instruction.apart);
    const auto memory = std::size_t(instruction.memory);
    if (region_.disjoint && !region_.memories[memory].scratch) {
      own = llvm::MDNode::concatenate(own, scope(memory_scopes_, place_of(memory)));
      for (std::size_t i = 0; i < region_.memories.size(); ++i)
        if (!region_.memories[i].scratch && place_of(i) != place_of(memory))
          others = llvm::MDNode::concatenate(others, scope(memory_scopes_, place_of(i)));
    }
    if (own != nullptr) made->setMetadata(llvm::LLVMContext::MD_alias_scope, own);
    if (others != nullptr) made->setMetadata(llvm::LLVMContext::MD_noalias, others);
  }

  Value* emit(const Instruction& instruction) {
    switch (instruction.code) {
      case region::Code::Constant: return ops_.constant(region_.type(instruction.result), instruction.constant).real;
      case region::Code::Pointwise: {
        std::vector<Val> arguments;
        for (ValueId operand : instruction.operands) arguments.push_back({value(operand)});
        const DType operand = region_.type(instruction.operands.back()), result = region_.type(instruction.result);
        if (instruction.op == Op::cast) return ops_.cast(operand, result, arguments[0]).real;
        return ops_.apply(instruction.op, result, operand, arguments).real;
      }
      case region::Code::CheckedAdd: case region::Code::CheckedSub: case region::Code::CheckedMul: {
        static constexpr llvm::Intrinsic::ID kChecked[][2] = {
            {llvm::Intrinsic::uadd_with_overflow, llvm::Intrinsic::sadd_with_overflow},
            {llvm::Intrinsic::usub_with_overflow, llvm::Intrinsic::ssub_with_overflow},
            {llvm::Intrinsic::umul_with_overflow, llvm::Intrinsic::smul_with_overflow}};
        const auto id = kChecked[int(instruction.code) - int(region::Code::CheckedAdd)]
                                [is_signed_integer(region_.type(instruction.result))];
        Value* both = b.CreateBinaryIntrinsic(id, value(instruction.operands[0]), value(instruction.operands[1]));
        leave_if(b.CreateExtractValue(both, 1), instruction.leave);
        return b.CreateExtractValue(both, 0);
      }
      case region::Code::AddNoWrap:
        return b.CreateNSWAdd(value(instruction.operands[0]), value(instruction.operands[1]));
      case region::Code::Call: {
        std::vector<Value*> arguments;
        for (ValueId operand : instruction.operands) arguments.push_back(value(operand));
        const std::vector<llvm::Type*> types(arguments.size(), b.getDoubleTy());
        const std::string name(region::functions()[std::size_t(instruction.function)].name);
        auto callee =
            module_.getOrInsertFunction("fj_libm_" + name, llvm::FunctionType::get(b.getDoubleTy(), types, false));
        auto* function = llvm::cast<llvm::Function>(callee.getCallee());
        function->setDoesNotAccessMemory();
        function->setDoesNotThrow();
        function->addFnAttr(llvm::Attribute::WillReturn);
        return b.CreateCall(callee, arguments);
      }
      case region::Code::Opaque: {
        Value* operand = value(instruction.operands[0]);
        auto* type = llvm::FunctionType::get(operand->getType(), {operand->getType()}, false);
#if defined(__x86_64__)
        return b.CreateCall(llvm::InlineAsm::get(type, "", "=x,0", /*hasSideEffects=*/false), {operand});
#else
        return b.CreateCall(llvm::InlineAsm::get(type, "", "=w,0", /*hasSideEffects=*/false), {operand});
#endif
      }
      case region::Code::Run: return run(instruction);
      case region::Code::Address: return b.CreatePtrToInt(element(instruction), b.getInt64Ty());
      case region::Code::Load: {
        const DType dtype = region_.type(instruction.result);
        auto* loaded = b.CreateLoad(ops_.memory_element(dtype), element(instruction));
        say_what_it_is_apart_from(loaded, instruction);
        return ops_.from_memory(dtype, loaded);
      }
      case region::Code::Store: {
        const ValueId stored = instruction.operands[1];
        auto* made = b.CreateStore(ops_.to_memory(region_.type(stored), value(stored)), element(instruction));
        say_what_it_is_apart_from(made, instruction);
        return nullptr;
      }
      case region::Code::LeaveIf: leave_if(value(instruction.operands[0]), instruction.leave); return nullptr;
      case region::Code::LeaveIfReported: leave_if_reported(instruction); return nullptr;
      case region::Code::LeaveIfAsked: {
        Value* asked = b.getInt8(0);
        for (Value* byte : asked_) asked = b.CreateOr(asked, b.CreateLoad(b.getInt8Ty(), byte, /*isVolatile=*/true));
        leave_if(b.CreateICmpNE(asked, b.getInt8(0)), instruction.leave);
        return nullptr;
      }
    }
    return nullptr;
  }

  void pass(const region::Target& target) {
    for (std::size_t i = 0; i < target.arguments.size(); ++i) {
      const ValueId parameter = region_.blocks[std::size_t(target.block)].parameters[i];
      llvm::cast<llvm::PHINode>(values_[parameter.index])->addIncoming(value(target.arguments[i]), b.GetInsertBlock());
    }
  }

  void emit(std::size_t index) {
    const region::Block& source = region_.blocks[index];
    b.SetInsertPoint(blocks_[index]);
    ways_out_.clear();
    for (const Instruction& instruction : source.body) {
      Value* made = emit(instruction);
      if (instruction.result.valid()) values_[instruction.result.index] = made;
    }
    const Terminator& end = source.end;
    if (end.kind == Terminator::Kind::Exit) return leave(end.leave);
    if (end.kind == Terminator::Kind::Jump) {
      pass(end.yes);
      b.CreateBr(blocks_[std::size_t(end.yes.block)]);
      return;
    }
    // A block of its own for each way: both may lead to one block with other arguments.
    BasicBlock *yes = block("yes"), *no = block("no");
    b.CreateCondBr(value(end.condition), yes, no);
    b.SetInsertPoint(yes);
    pass(end.yes);
    b.CreateBr(blocks_[std::size_t(end.yes.block)]);
    b.SetInsertPoint(no);
    pass(end.no);
    b.CreateBr(blocks_[std::size_t(end.no.block)]);
  }

  const Region region_;
  llvm::Module& module_;
  llvm::IRBuilder<> b;
  Operations ops_;
  llvm::Function* function_ = nullptr;
  std::vector<BasicBlock*> blocks_;
  std::vector<Value*> values_, memories_;
  std::map<std::pair<int, std::vector<ValueId>>, BasicBlock*> ways_out_;  // of the block that is being made
  std::array<Value*, 2> asked_{};  // where the bytes are that say so
  llvm::MDNode *domain_ = nullptr, *memory_domain_ = nullptr;
  std::map<int, llvm::MDNode*> scopes_, memory_scopes_;
};

struct EmittedRegion {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
};

void emit_region(const Region& region, const Target& target, LoopForm form, EmittedRegion& emitted) {
  emitted.module = make_module(emitted.context, target);
  RegionEmitter(form == LoopForm::Plain ? region : region::in_chunks(region, form == LoopForm::GrantingChunks),
                target.machine, *emitted.module)
      .run();
}

}  // namespace

std::unique_ptr<CompiledRegion> compile_region(const Region& region, const Target& target, LoopForm form) {
  EmittedRegion emitted;
  emit_region(region, target, form, emitted);
  auto compiled = std::make_unique<CompiledRegion>();
  compiled->code_ = link(generate(*emitted.module, target, Tier::Optimised, Passes::Loops), kKernelSymbol,
                         region.name + ": loop");
  compiled->function_ = reinterpret_cast<CompiledRegion::Function>(compiled->code_->address());
  return compiled;
}

std::string region_listing(const Region& region, const Target& target) {
  EmittedRegion emitted;
  Region disjoint = region;
  disjoint.disjoint = true;
  emit_region(disjoint, target, LoopForm::GrantingChunks, emitted);
  return listing(*emitted.module, target, Passes::Loops);
}

}  // namespace fj
