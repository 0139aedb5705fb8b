// The passes and the analyses that they ask for are named one by one: LLVM's PassBuilder knows all there are, and a
// third of LLVM would be in the extension for those that are never run.
#include "codegen/llvm/optimise.h"

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/BlockFrequencyInfo.h>
#include <llvm/Analysis/BranchProbabilityInfo.h>
#include <llvm/Analysis/DemandedBits.h>
#include <llvm/Analysis/LoopAccessAnalysis.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/MemorySSA.h>
#include <llvm/Analysis/OptimizationRemarkEmitter.h>
#include <llvm/Analysis/PostDominators.h>
#include <llvm/Analysis/ProfileSummaryInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScopedNoAliasAA.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/Analysis/TypeBasedAliasAnalysis.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/PassManager.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopLoadElimination.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/SimpleLoopUnswitch.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/LCSSA.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>
#include <llvm/Transforms/Vectorize/LoopVectorize.h>
#if LLVM_VERSION_MAJOR >= 20
#include <llvm/Analysis/LastRunTrackingAnalysis.h>
#endif

namespace fj {

namespace {

template <class... Analyses, class Manager>
void add_analyses(Manager& manager) {
  (manager.registerPass([] { return Analyses(); }), ...);
}

llvm::AAManager aliases() {
  llvm::AAManager manager;
  manager.registerFunctionAnalysis<llvm::BasicAA>();
  manager.registerFunctionAnalysis<llvm::ScopedNoAliasAA>();
  manager.registerFunctionAnalysis<llvm::TypeBasedAA>();
  return manager;
}

/// A pass that asks for an analysis which isn't here ends the process: `nm` of LLVM's archives shows, as the undefined
/// `...Analysis::Key` of its object file, what each pass and each analysis asks for.
struct Analyses {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::ModuleAnalysisManager modules;

  explicit Analyses(llvm::TargetMachine& target) {
    add_analyses<llvm::PassInstrumentationAnalysis, llvm::ProfileSummaryAnalysis>(modules);
    add_analyses<llvm::AssumptionAnalysis, llvm::BasicAA, llvm::BlockFrequencyAnalysis, llvm::BranchProbabilityAnalysis,
                 llvm::DemandedBitsAnalysis, llvm::DominatorTreeAnalysis, llvm::LoopAccessAnalysis, llvm::LoopAnalysis,
                 llvm::MemorySSAAnalysis, llvm::OptimizationRemarkEmitterAnalysis, llvm::PassInstrumentationAnalysis,
                 llvm::PostDominatorTreeAnalysis, llvm::ScalarEvolutionAnalysis, llvm::ScopedNoAliasAA,
                 llvm::ShouldRunExtraVectorPasses, llvm::TargetLibraryAnalysis, llvm::TypeBasedAA>(functions);
#if LLVM_VERSION_MAJOR >= 20
    add_analyses<llvm::LastRunTrackingAnalysis>(functions);
#endif
    functions.registerPass(aliases);
    functions.registerPass([&] { return target.getTargetIRAnalysis(); });
    add_analyses<llvm::PassInstrumentationAnalysis, llvm::ShouldRunExtraSimpleLoopUnswitch>(loops);
    modules.registerPass([&] { return llvm::FunctionAnalysisManagerModuleProxy(functions); });
    functions.registerPass([&] { return llvm::ModuleAnalysisManagerFunctionProxy(modules); });
    functions.registerPass([&] { return llvm::LoopAnalysisManagerFunctionProxy(loops); });
    loops.registerPass([&] { return llvm::FunctionAnalysisManagerLoopProxy(functions); });
  }
};

llvm::FunctionPassManager few(Tier tier) {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  if (tier == Tier::Optimised) {
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::InstCombinePass());
  }
  return passes;
}

/// What LLVM's own -O3 gains on regions, in half of its time.
llvm::FunctionPassManager for_loops() {
  llvm::LoopPassManager hoisting;
  hoisting.addPass(llvm::LoopRotatePass());
  hoisting.addPass(llvm::LICMPass(llvm::LICMOptions()));
  hoisting.addPass(llvm::SimpleLoopUnswitchPass());

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::LoopSimplifyPass());
  passes.addPass(llvm::LCSSAPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(hoisting), /*UseMemorySSA=*/true));
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::IndVarSimplifyPass()));
  passes.addPass(llvm::LoopVectorizePass());
  passes.addPass(llvm::LoopLoadEliminationPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(/*OptLevel=*/2)));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::InstCombinePass());
  return passes;
}

}  // namespace

void optimise(llvm::Module& module, llvm::TargetMachine& target, Tier tier, Passes wanted) {
  Analyses analyses(target);
  auto passes = wanted == Passes::Loops && tier == Tier::Optimised ? for_loops() : few(tier);
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, analyses.functions);
}

}  // namespace fj
