// ORC without a platform (no module of its own to compile), one dylib for each program so that its code can be freed,
// passes run by hand: mem2reg, early CSE, instcombine. Vectors are explicit already; no loop passes.
#include "codegen/llvm/jit.h"

#include <map>
#include <mutex>

#include <llvm/CodeGen/Passes.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ThreadSafeModule.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>

#include "codegen/llvm/library.h"
#include "runtime/base/error.h"

namespace fj {

namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    // Addresses are one base and one index already; the pass would take a sixth of the compile time for nothing.
    // This LLVM is ours alone (hidden symbols), so its options are too.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto found = options.find("disable-lsr"); found != options.end()) found->second->addOccurrence(0, "disable-lsr", "true");
  });
}

template <class T>
T& checked(llvm::Expected<T&> value, const char* what) {
  if (!value) FJ_CHECK(false, std::string(what) + ": " + llvm::toString(value.takeError()));
  return *value;
}

template <class T>
T checked(llvm::Expected<T> value, const char* what) {
  if (!value) FJ_CHECK(false, std::string(what) + ": " + llvm::toString(value.takeError()));
  return std::move(*value);
}

void checked(llvm::Error error, const char* what) {
  if (error) FJ_CHECK(false, std::string(what) + ": " + llvm::toString(std::move(error)));
}

/// One session for the process; never destroyed, as programs may outlive static destructors.
struct Session {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::mutex mutex;
  std::uint64_t next = 0;
};

Session& session() {
  static Session* the_session = [] {
    initialise_llvm();
    auto* created = new Session;
    auto target = checked(llvm::orc::JITTargetMachineBuilder::detectHost(), "host");
    created->jit = checked(llvm::orc::LLJITBuilder()
                               .setJITTargetMachineBuilder(std::move(target))
                               .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                               .create(),
                           "LLJIT");
    return created;
  }();
  return *the_session;
}

class JitCode : public Code {
 public:
  JitCode(llvm::orc::JITDylib& library, llvm::orc::LLJIT& jit) : library_(&library), jit_(jit) {}
  ~JitCode() override {
    if (auto error = jit_.getExecutionSession().removeJITDylib(*library_)) llvm::consumeError(std::move(error));
  }
  void* address(const std::string& symbol) const override {
    return checked(jit_.lookup(*library_, symbol), "lookup").toPtr<void*>();
  }

 private:
  llvm::orc::JITDylibSP library_;
  llvm::orc::LLJIT& jit_;
};

void optimise(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&target);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager pipeline;
  pipeline.addPass(llvm::PromotePass());
  pipeline.addPass(llvm::EarlyCSEPass());
  pipeline.addPass(llvm::InstCombinePass());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) pipeline.run(function, functions);
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> make_target_machine(const std::string& cpu, bool fast) {
  initialise_llvm();
  auto builder = checked(llvm::orc::JITTargetMachineBuilder::detectHost(), "host");
  if (!cpu.empty()) {
    builder.setCPU(cpu);
    builder.getFeatures() = llvm::SubtargetFeatures();
  }
  builder.setCodeGenOptLevel(fast ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default);
  builder.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return checked(builder.createTargetMachine(), "target machine");
}

Machine describe(const llvm::TargetMachine& target) {
  const auto& info = target.getMCSubtargetInfo();
  auto has = [&](const char* feature) { return info->checkFeatures(std::string("+") + feature); };
  Machine machine;
  machine.avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  machine.avx2 = has("avx2");
  machine.fma = has("fma");
  machine.f16c = has("f16c");
  machine.sse41 = has("sse4.1");
  machine.vector_bytes = machine.avx512 ? 64 : machine.avx2 ? 32 : 16;
  return machine;
}

std::unique_ptr<Code> compile_module(std::unique_ptr<llvm::LLVMContext> context, std::unique_ptr<llvm::Module> module,
                                     llvm::TargetMachine& target, bool keep_text) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  FJ_CHECK(!llvm::verifyModule(*module, &stream), "LLVM's verifier: " + problem);
  optimise(*module, target);
  std::string ir, assembly;
  if (keep_text) {
    llvm::raw_string_ostream ir_stream(ir);
    module->print(ir_stream, nullptr);
    auto copy = llvm::CloneModule(*module);
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream text_stream(text);
    llvm::legacy::PassManager printer;
    target.addPassesToEmitFile(printer, text_stream, nullptr, llvm::CodeGenFileType::AssemblyFile);
    printer.run(*copy);
    assembly.assign(text.begin(), text.end());
  }
  auto object = checked(llvm::orc::SimpleCompiler(target)(*module), "code generation");
  Session& shared = session();
  std::uint64_t number;
  {
    std::lock_guard lock(shared.mutex);
    number = shared.next++;
  }
  auto& library = checked(shared.jit->createJITDylib("program" + std::to_string(number)), "dylib");
  auto code = std::make_unique<JitCode>(library, *shared.jit);
  code->bytes = object->getBufferSize();
  llvm::orc::SymbolMap symbols;
  for (const auto& [name, address] : library_symbols())
    symbols[shared.jit->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                                  llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  checked(library.define(llvm::orc::absoluteSymbols(std::move(symbols))), "symbols");
  checked(shared.jit->addObjectFile(library, std::move(object)), "object");
  code->ir = std::move(ir);
  code->assembly = std::move(assembly);
  module.reset();  // before its context
  context.reset();
  return code;
}

}  // namespace fj
