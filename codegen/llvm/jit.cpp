// ORC without a platform (no module of its own to compile), one dylib for each kernel so that its code can be freed.
// The optimised tier has the default code generator, the quick one the fast code generator.
#include "codegen/llvm/jit.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#if defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include "codegen/llvm/library.h"
#include "codegen/llvm/optimise.h"
#include "codegen/perf_map.h"
#include "runtime/background.h"
#include "runtime/base/budget.h"
#include "runtime/base/error.h"
#include "runtime/base/room.h"
#include "runtime/base/phase.h"

namespace fj {

namespace {

/// LLVM is built without exceptions: one that passes through it leaves locked what it was making on first use, for
/// ever. So it is asked for work only where there is room for it. The first kernel of a process takes 9 MiB, one of
/// 4000 operations 15.
void require_room_of_llvm(const llvm::Module* module = nullptr) {
  require_room((16 << 20) + (module != nullptr ? std::size_t(module->getInstructionCount()) << 12 : 0));
}

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    // LLVM's own handlers end the process. What is unwound through LLVM is not released; the piece is given up. Its
    // allocations by `new` and ours throw the same.
    llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); });
    llvm::install_fatal_error_handler(
        [](void*, const char* reason, bool) { throw InternalError(std::string("LLVM: ") + reason); });
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    // Addresses are one base and one index already; the pass would take a sixth of the compile time for nothing.
    // This LLVM is ours alone (hidden symbols), so its options are too.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto found = options.find("disable-lsr"); found != options.end())
      found->second->addOccurrence(0, "disable-lsr", "true");
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

/// Asking the processor what it can do takes a quarter of a millisecond in a virtual machine: once.
const llvm::orc::JITTargetMachineBuilder& host() {
  static const auto builder = [] {
    initialise_llvm();
    auto detected = checked(llvm::orc::JITTargetMachineBuilder::detectHost(), "host");
#if defined(__aarch64__)
    // LLVM reads a text of the kernel's that need not be there; the loader has told the process.
    if (getauxval(AT_HWCAP) & HWCAP_SVE) detected.addFeatures({"+sve"});
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDHP) detected.addFeatures({"+fullfp16"});
#endif
    return detected;
  }();
  return builder;
}

llvm::orc::JITTargetMachineBuilder builder_for(const std::string& cpu) {
  auto builder = host();
  if (!cpu.empty()) {
    builder.setCPU(cpu);
    builder.getFeatures() = llvm::SubtargetFeatures();
  }
  builder.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // A kernel lies in one piece with its constants, and calls out through stubs: the JIT's own choice, 64-bit addresses
  // for everything, would spend a register and an instruction on each constant.
  builder.setCodeModel(llvm::CodeModel::Small);
  builder.setRelocationModel(llvm::Reloc::PIC_);
  return builder;
}

Machine describe(const llvm::TargetMachine& target) {
  const auto& info = target.getMCSubtargetInfo();
  auto has = [&](const char* feature) { return info->checkFeatures(std::string("+") + feature); };
  Machine machine;
#if defined(__aarch64__)
  machine.vector_registers = 32;
  machine.saturates = machine.converts_i64 = machine.loud_compares = machine.fma = machine.f16c = true;
  const int length = has("sve") ? prctl(PR_SVE_GET_VL) : -1, bytes = length < 0 ? 0 : length & PR_SVE_VL_LEN_MASK;
  if (bytes > 16 && std::has_single_bit(unsigned(bytes))) {
    machine.scalable_bytes = bytes;
    machine.vector_bytes = std::min(bytes, 64);
  }
#else
  machine.avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  machine.fma = has("fma");
  machine.f16c = has("f16c");
  machine.vector_registers = machine.avx512 ? 32 : 16;
  machine.converts_i64 = machine.avx512;
  machine.vector_bytes = machine.avx512 ? 64 : has("avx2") ? 32 : 16;
#endif
  return machine;
}

/// Machines that nobody uses: making one costs some tenths of a millisecond, and it serves one thread at a time. Each
/// has a megabyte of tables of the processor, so they go when the compiler has nothing to do.
class MachinePool {
 public:
  class Lease {
   public:
    Lease(MachinePool& pool, const std::string& cpu, Tier tier)
        : pool_(pool), key_(cpu, tier), machine_(pool.take(key_)) {}
    ~Lease() {
      std::lock_guard lock(pool_.mutex_);
      pool_.free_[key_].push_back(std::move(machine_));
    }
    llvm::TargetMachine& operator*() const { return *machine_; }

   private:
    MachinePool& pool_;
    std::pair<std::string, Tier> key_;
    std::unique_ptr<llvm::TargetMachine> machine_;
  };

  static MachinePool& instance() {
    static auto* pool = [] {
      auto* made = new MachinePool;  // never destroyed, as the session
      when_idle([] { instance().drop(); });
      return made;
    }();
    return *pool;
  }

 private:
  void drop() {
    decltype(free_) dropped;  // dies outside the lock
    {
      std::lock_guard lock(mutex_);
      dropped.swap(free_);
    }
  }
  std::unique_ptr<llvm::TargetMachine> take(const std::pair<std::string, Tier>& key) {
    {
      std::lock_guard lock(mutex_);
      if (auto& machines = free_[key]; !machines.empty()) {
        auto machine = std::move(machines.back());
        machines.pop_back();
        return machine;
      }
    }
    auto builder = builder_for(key.first);
    builder.setCodeGenOptLevel(key.second == Tier::Quick ? llvm::CodeGenOptLevel::None
                                                         : llvm::CodeGenOptLevel::Default);
    return checked(builder.createTargetMachine(), "target machine");
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, Tier>, std::vector<std::unique_ptr<llvm::TargetMachine>>> free_;
};

void verify(const llvm::Module& module) {
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  FJ_CHECK(!llvm::verifyModule(module, &stream), "LLVM's verifier: " + problem);
}

/// One session for the process; never destroyed, as programs may outlive static destructors.
struct Session {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib* library = nullptr;  // what kernels call
  std::mutex mutex;
  std::uint64_t next = 0;
};

Session& session() {
  static Session* the_session = [] {
    auto* created = new Session;
    created->jit = checked(llvm::orc::LLJITBuilder()
                               .setJITTargetMachineBuilder(host())
                               .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                               .create(),
                           "LLJIT");
    created->library = &checked(created->jit->createJITDylib("library"), "dylib");
    llvm::orc::SymbolMap symbols;
    for (const auto& [name, address] : library_symbols())
      symbols[created->jit->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                                      llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    checked(created->library->define(llvm::orc::absoluteSymbols(std::move(symbols))), "symbols");
    // A failed link is reported by `link`'s exception.
    created->jit->getExecutionSession().setErrorReporter(
        [](llvm::Error error) { llvm::consumeError(std::move(error)); });
    return created;
  }();
  return *the_session;
}

class JitCode : public Code {
 public:
  JitCode(llvm::orc::JITDylib& library, llvm::orc::LLJIT& jit) : library_(&library), jit_(jit) {}
  ~JitCode() override {
    const NoFork whole;
    if (auto error = jit_.getExecutionSession().removeJITDylib(*library_)) llvm::consumeError(std::move(error));
  }
  void* address() const override { return address_; }
  void* address_ = nullptr;

 private:
  llvm::orc::JITDylibSP library_;
  llvm::orc::LLJIT& jit_;
};

}  // namespace

const Target& target_for(const std::string& cpu) {
  static std::mutex mutex;
  static auto* targets = new std::map<std::string, Target>;
  std::lock_guard lock(mutex);
  if (auto found = targets->find(cpu); found != targets->end()) return found->second;
  require_room_of_llvm();
  const auto builder = builder_for(cpu);
  const MachinePool::Lease machine(MachinePool::instance(), cpu, Tier::Quick);
  Target target;
  target.cpu = cpu;
  target.triple = (*machine).getTargetTriple().str();
  target.layout = (*machine).createDataLayout().getStringRepresentation();
  target.identity = target.triple + " " + builder.getCPU() + " " + (*machine).getTargetFeatureString().str();
  target.machine = describe(*machine);
  if (target.machine.scalable_bytes) target.identity += " vl" + std::to_string(target.machine.scalable_bytes);
  return targets->emplace(cpu, std::move(target)).first->second;
}

std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const Target& target) {
  require_room_of_llvm();
  auto module = std::make_unique<llvm::Module>("kernel", context);
  module->setDataLayout(target.layout);
#if LLVM_VERSION_MAJOR >= 21
  module->setTargetTriple(llvm::Triple(target.triple));
#else
  module->setTargetTriple(target.triple);
#endif
  return module;
}

std::string generate(llvm::Module& module, const Target& target, Tier tier, Passes wanted) {
  Budget::ask();
  require_room_of_llvm(&module);
  const MachinePool::Lease machine(MachinePool::instance(), target.cpu, tier);
  {
    const PhaseTimer timer(Phase::optimise);
    verify(module);
    optimise(module, *machine, tier, wanted);
  }
  Budget::ask();
  const PhaseTimer timer(Phase::generate);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  llvm::MCContext* context = nullptr;
  FJ_CHECK(!(*machine).addPassesToEmitMC(passes, context, stream), "the target can't emit object files");
  passes.run(module);
  return {bytes.data(), bytes.size()};
}

std::string listing(llvm::Module& module, const Target& target, Passes wanted) {
  require_room_of_llvm(&module);
  const MachinePool::Lease machine(MachinePool::instance(), target.cpu, Tier::Optimised);
  verify(module);
  optimise(module, *machine, Tier::Optimised, wanted);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  llvm::SmallVector<char, 0> assembly;
  llvm::raw_svector_ostream assembly_stream(assembly);
  llvm::legacy::PassManager printer;
  (*machine).addPassesToEmitFile(printer, assembly_stream, nullptr, llvm::CodeGenFileType::AssemblyFile);
  printer.run(module);
  return text + std::string(assembly.data(), assembly.size());
}

std::shared_ptr<const Code> link(const std::string& object, const std::string& symbol, const std::string& name) {
  const PhaseTimer timer(Phase::link);
  require_room_of_llvm();
  Session& shared = session();
  std::uint64_t number;
  {
    std::lock_guard lock(shared.mutex);
    number = shared.next++;
  }
  auto& library = checked(shared.jit->createJITDylib("kernel" + std::to_string(number)), "dylib");
  auto code = std::make_shared<JitCode>(library, *shared.jit);
  library.addToLinkOrder(*shared.library);
  checked(shared.jit->addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(object, library.getName())),
          "object");
  code->address_ = checked(shared.jit->lookup(library, symbol), "lookup").toPtr<void*>();
  if (writes_perf_map()) note_in_perf_map(object, symbol, code->address_, name);
  return code;
}

}  // namespace fj
