// Kernels are an object file each, once for each processor. Everything else is in one more: images, state and the
// functions, whose code does no more than put what they are given into arrays.
#include "codegen/ahead/build_library.h"

#include <algorithm>
#include <map>
#include <set>

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include "codegen/ahead/library_interface.h"
#include "codegen/ahead/processor.h"
#include "codegen/llvm/jit.h"
#include "codegen/llvm/library.h"
#include "codegen/llvm/prepared_program.h"
#include "graph_ir/pipeline.h"
#include "runtime/background.h"

namespace fj {

namespace {

/// Kernels call framejit's functions through pointers that the runtime fills in: they are no symbols of a library.
class FunctionSlots {
 public:
  explicit FunctionSlots(std::string prefix) : prefix_(std::move(prefix)) {}

  void replace_calls(llvm::Module& module) {
    for (llvm::Function& function : llvm::make_early_inc_range(module.functions())) {
      if (!function.isDeclaration() || !function.getName().starts_with("fj_")) continue;
      const std::string name = function.getName().str();
      names_.insert(name);
      auto* slot = new llvm::GlobalVariable(module, function.getType(), false, llvm::GlobalValue::ExternalLinkage,
                                            nullptr, symbol(name));
      slot->setVisibility(llvm::GlobalValue::HiddenVisibility);
      for (llvm::User* user : llvm::make_early_inc_range(function.users())) {
        auto* call = llvm::cast<llvm::CallBase>(user);
        call->setCalledOperand(new llvm::LoadInst(slot->getValueType(), slot, "", call->getIterator()));
      }
      function.eraseFromParent();
    }
  }

  const std::set<std::string>& names() const { return names_; }
  std::string symbol(const std::string& name) const { return prefix_ + "_slot_" + name; }

 private:
  std::string prefix_;
  std::set<std::string> names_;
};

/// Writes the module around the kernels.
class Surroundings {
 public:
  Surroundings(const LibraryRequest& request, const Target& target)
      : request_(request), module_(make_module(context_, target)), b_(context_) {
    pointer_ = b_.getPtrTy();
    word_ = b_.getInt64Ty();
  }

  llvm::Constant* bytes(std::string_view contents, llvm::Align align) {
    return placed(llvm::ConstantDataArray::getRaw(llvm::StringRef(contents.data(), contents.size()), contents.size(),
                                                  b_.getInt8Ty()),
                  true, align);
  }
  llvm::Constant* text(const std::string& contents) {
    return bytes({contents.c_str(), contents.size() + 1}, llvm::Align(1));
  }
  llvm::Constant* array(const std::vector<llvm::Constant*>& items) {
    if (items.empty()) return null();
    llvm::Type* type = items[0]->getType();
    return placed(llvm::ConstantArray::get(llvm::ArrayType::get(type, items.size()), items), false, llvm::Align(8));
  }
  llvm::Constant* texts(const std::vector<std::string>& contents) {
    std::vector<llvm::Constant*> items;
    for (const std::string& item : contents) items.push_back(text(item));
    return array(items);
  }
  llvm::Constant* null() { return llvm::ConstantPointerNull::get(pointer_); }
  llvm::Constant* kernel(const std::string& symbol) {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), false);
    auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol, *module_);
    function->setVisibility(llvm::GlobalValue::HiddenVisibility);
    return function;
  }

  struct Version {
    llvm::Constant *cpu, *image;
    std::size_t image_bytes;
    llvm::Constant* kernels;
  };

  std::string finish(const std::vector<Version>& versions, const FunctionSlots& slots, const Target& target) {
    // As FramejitVersion and FramejitLibrary have it.
    std::vector<llvm::Constant*> rows;
    auto* version_type = llvm::StructType::get(pointer_, pointer_, word_, pointer_);
    for (const Version& v : versions)
      rows.push_back(llvm::ConstantStruct::get(version_type, v.cpu, v.image, b_.getInt64(v.image_bytes), v.kernels));
    std::vector<llvm::Constant*> state;
    for (const std::string_view contents : request_.state) state.push_back(bytes(contents, llvm::Align(64)));

    auto* versions_array = array(rows);
    auto* state_array = array(state);
    const std::vector<std::string> names(slots.names().begin(), slots.names().end());
    std::vector<llvm::Constant*> functions;
    // The slots lie behind each other, so that the runtime finds them by the first one's address.
    auto* slots_type = llvm::ArrayType::get(pointer_, std::max<std::size_t>(names.size(), 1));
    auto* all = new llvm::GlobalVariable(*module_, slots_type, false, llvm::GlobalValue::InternalLinkage, nullptr,
                                         "slots");
    all->setInitializer(llvm::Constant::getNullValue(all->getValueType()));
    for (std::size_t i = 0; i < names.size(); ++i) {
      auto* place = llvm::ConstantExpr::getInBoundsGetElementPtr(
          all->getValueType(), all, llvm::ArrayRef<llvm::Constant*>{b_.getInt64(0), b_.getInt64(i)});
      llvm::GlobalAlias::create(pointer_, 0, llvm::GlobalValue::ExternalLinkage, slots.symbol(names[i]), place,
                                module_.get())
          ->setVisibility(llvm::GlobalValue::HiddenVisibility);
    }
    auto* type = llvm::StructType::get(b_.getInt32Ty(), b_.getInt32Ty(), pointer_, pointer_, pointer_, word_, pointer_,
                                       pointer_, pointer_);
    auto* library = new llvm::GlobalVariable(
        *module_, type, false, llvm::GlobalValue::InternalLinkage,
        llvm::ConstantStruct::get(type, b_.getInt32(kFramejitInterface), b_.getInt32(unsigned(versions.size())),
                                  versions_array, text(request_.name), state_array, b_.getInt64(names.size()),
                                  texts(names), all, null()),
        "library");
    define_functions(library);
    return generate(*module_, target, Tier::Quick);
  }

 private:
  llvm::Constant* placed(llvm::Constant* contents, bool constant, llvm::Align align) {
    auto* variable = new llvm::GlobalVariable(*module_, contents->getType(), constant,
                                              llvm::GlobalValue::PrivateLinkage, contents);
    variable->setAlignment(align);
    return variable;
  }

  llvm::Function* exported(const std::string& symbol, llvm::FunctionType* type) {
    auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, symbol, *module_);
    function->setVisibility(llvm::GlobalValue::DefaultVisibility);
    b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "", function));
    return function;
  }

  /// The parameters [first, last) of a function as an array on its stack.
  llvm::Value* gathered(llvm::Function* function, std::size_t first, std::size_t last, llvm::Type* type) {
    auto* place = b_.CreateAlloca(type, b_.getInt64(std::max<std::size_t>(last - first, 1)));
    for (std::size_t i = first; i < last; ++i)
      b_.CreateStore(function->getArg(unsigned(i)), b_.CreateConstInBoundsGEP1_64(type, place, i - first));
    return place;
  }

  void define_functions(llvm::GlobalVariable* library) {
    const std::size_t sizes = request_.sizes.size(), arguments = sizes + request_.argument_names.size();
    std::vector<llvm::Type*> types(sizes, word_);
    types.resize(arguments + request_.result_names.size(), pointer_);
    auto* run = exported(request_.name, llvm::FunctionType::get(b_.getInt32Ty(), types, false));
    auto runtime = module_->getOrInsertFunction(
        "framejit_run",
        llvm::FunctionType::get(b_.getInt32Ty(), {pointer_, pointer_, pointer_, pointer_, b_.getInt32Ty()}, false));
    auto* given_sizes = gathered(run, 0, sizes, word_);
    auto* given = gathered(run, sizes, arguments, pointer_);
    auto* results = gathered(run, arguments, types.size(), pointer_);
    b_.CreateRet(b_.CreateCall(runtime, {library, given_sizes, given, results, b_.getInt32(0)}));

    auto* takes_arrays =
        llvm::FunctionType::get(b_.getInt32Ty(), {pointer_, pointer_, pointer_, b_.getInt32Ty()}, false);
    auto* general = exported(request_.name + "_run", takes_arrays);
    b_.CreateRet(b_.CreateCall(
        runtime, {library, general->getArg(0), general->getArg(1), general->getArg(2), general->getArg(3)}));

    auto error = module_->getOrInsertFunction("framejit_error", llvm::FunctionType::get(pointer_, false));
    exported(request_.name + "_error", llvm::FunctionType::get(pointer_, false));
    b_.CreateRet(b_.CreateCall(error));

    auto* takes_threads = llvm::FunctionType::get(b_.getVoidTy(), {b_.getInt32Ty()}, false);
    auto threads = module_->getOrInsertFunction("framejit_set_threads", takes_threads);
    auto* set = exported(request_.name + "_set_threads", takes_threads);
    b_.CreateCall(threads, {set->getArg(0)});
    b_.CreateRetVoid();
  }

  const LibraryRequest& request_;
  llvm::LLVMContext context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> b_;
  llvm::PointerType* pointer_;
  llvm::IntegerType* word_;
};

}  // namespace

void build_objects(const Graph& graph, const LibraryRequest& request,
                   const std::function<void(const std::string& file, const std::string& contents)>& write) {
  Graph optimised = graph;
  for (Input& input : optimised.inputs) input.strides.reset();
  if (!request.any_layout)
    for (Output& output : optimised.outputs) output.strides.reset();
  optimise(optimised, request.float_conditions);

  const NoFork whole;
  const Target& lowest = target_for(std::string(kProcessorLevels[0]));
  FunctionSlots slots("framejit_" + request.name);
  Surroundings around(request, lowest);
  std::vector<Surroundings::Version> versions;
  std::vector<std::string> cpus = request.cpus;  // the most demanding first
  const auto level = [](const std::string& cpu) {
    return std::find(std::begin(kProcessorLevels), std::end(kProcessorLevels), cpu) - std::begin(kProcessorLevels);
  };
  std::sort(cpus.begin(), cpus.end(), [&](const auto& a, const auto& b) { return level(a) > level(b); });
  for (const std::string& cpu : cpus) {
    CompileOptions options;
    options.cpu = cpu;
    options.tier = TierChoice::Optimised;
    options.float_conditions = request.float_conditions;
    PreparedProgram prepared = prepare_program(optimised, options);
    ProgramImage image;
    for (const std::size_t source : prepared.source_of) image.functions.push_back(int(source));
    image.parts = std::move(prepared.parts);
    image.parts.name = request.name;
    image.sizes = request.sizes;
    image.arguments = request.arguments;
    image.argument_names = request.argument_names;
    image.result_names = request.result_names;
    std::vector<llvm::Constant*> kernels;
    for (std::size_t k = 0; k < prepared.sources.size(); ++k) {
      const std::string symbol =
          "framejit_" + request.name + "_" + std::to_string(versions.size()) + "_" + std::to_string(k);
      const auto name_kernel = [&](llvm::Module& module) {
        llvm::Function* kernel = module.getFunction(kKernelSymbol);
        kernel->setName(symbol);
        kernel->setVisibility(llvm::GlobalValue::HiddenVisibility);
        slots.replace_calls(module);
      };
      write(symbol + ".o", kernel_object(prepared.sources[k], *prepared.target, options, name_kernel));
      kernels.push_back(around.kernel(symbol));
    }
    const std::string bytes = write_image(image);
    versions.push_back({around.text(cpu), around.bytes(bytes, llvm::Align(8)), bytes.size(),
                        around.array(kernels)});
  }
  write("framejit_" + request.name + ".o", around.finish(versions, slots, lowest));
}

}  // namespace fj
