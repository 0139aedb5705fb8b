// Running a segment: inputs, program, recipe.
//
// The order is that of a transaction. Before the program: everything that can fail for the user's reasons. The program
// itself writes inputs last. After it only memory can run out; if it does when inputs have been written, the piece
// can't be run again and the error is raised as it is.
#include "segment/segment.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>

#include "arrays/arrays.h"
#include "arrays/numpy_arrays.h"
#include "arrays/torch_arrays.h"
#include "runtime/base/error.h"
#include "segment/finalizers.h"
#include "segment/library_host.h"
#include "segment/recipe_run.h"

namespace fj {
namespace {

/// `size` elements that are not initialised, on the stack up to `inline_size`: a call on few arrays must not touch the
/// heap, and clearing room for many costs more than the rest of its bookkeeping.
template <class T, std::size_t inline_size>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit Buffer(std::size_t size) : size_(size) {
    if (size > inline_size) heap_ = std::make_unique_for_overwrite<std::byte[]>(size * sizeof(T));
  }
  std::span<T> span() { return {reinterpret_cast<T*>(heap_ ? heap_.get() : inline_), size_}; }

 private:
  std::size_t size_;
  alignas(T) std::byte inline_[inline_size * sizeof(T)];
  std::unique_ptr<std::byte[]> heap_;
};

/// Inputs are held while the program runs: it may let other threads in, which may drop the arrays.
struct HeldInputs {
  std::span<ArrayRef> inputs;
  std::size_t held = 0;
  void hold(void* data, PyObject* object) {
    Py_INCREF(object);
    inputs[held++] = {data, object};
  }
  ~HeldInputs() {
    for (std::size_t i = 0; i < held; ++i) Py_DECREF(static_cast<PyObject*>(inputs[i].object));
  }
};

struct OwnedOutputs {
  std::span<ArrayRef> outputs;
  ~OwnedOutputs() {
    for (const ArrayRef& output : outputs) Py_XDECREF(static_cast<PyObject*>(output.object));
  }
};

/// What the program's status means to the user.
std::string reason_text(std::uint32_t status, const std::string& host_failure) {
  if (status & kHostFailed && !host_failure.empty()) return host_failure;
  static constexpr std::pair<KernelStatus, const char*> meanings[] = {
      {kIndexOutOfRange, "an index is out of range"},
      {kIntegerDivisionByZero, "an integer is divided by zero"},
      {kUnexpectedCount, "a size that depends on data is 0, 1 or negative, for which the graph is wrong"},
      {kFloatDivide, "a float is divided by zero, which NumPy reports"},
      {kFloatOverflow, "a float overflows, which NumPy reports"},
      {kFloatUnderflow, "a float underflows, which NumPy reports"},
      {kFloatInvalid, "an invalid float operation, which NumPy reports"},
      {kHostFailed, "no memory for a result"},
      {kInterrupted, "the call was interrupted"},
      {kDeviceFailed, "the device failed"},
  };
  for (auto [bit, meaning] : meanings)
    if (status & bit) return meaning;
  return "the program failed";
}

/// Symbols that are quotients of others; false if one is divided by zero.
bool derive_symbols(const Graph& graph, std::span<std::int64_t> symbols) {
  for (std::size_t i = 0; i < graph.symbols.size(); ++i) {
    if (!graph.symbols[i].definition || graph.symbols[i].late) continue;
    const Symbol::Quotient& quotient = *graph.symbols[i].definition;
    const auto value =
        floor_quotient(quotient.dividend.evaluate(symbols), quotient.divisor.evaluate(symbols), quotient.remainder);
    if (!value) return false;
    symbols[i] = *value;
  }
  return true;
}

/// What a call of one library gave for an array of the other's becomes one of its own. False: a Python error is set.
bool to_library(ArrayRef& output, Library library) {
  auto* object = static_cast<PyObject*>(output.object);
  if (!object || array_library(object) == library) return true;
  const Ref<> view = cross_view(object, library);
  if (!view) return false;
  Ref<> copy = Ref<>::steal(library == Library::Numpy ? PyObject_CallMethod(view.get(), "copy", "s", "K")
                                                      : PyObject_CallMethod(view.get(), "clone", nullptr));
  if (!copy) return false;
  Py_DECREF(object);
  output.object = copy.release();
  output.data = data_pointer(static_cast<PyObject*>(output.object));
  return true;
}

SegmentStatus eager(FrameUpdate& update, std::string reason) {
  PyErr_Clear();
  update.reason = std::move(reason);
  return SegmentStatus::Eager;
}

/// Python objects that others may have; the versions of tensors are no part of them.
bool changes_objects(const Recipe& recipe) {
  std::vector<bool> fresh(std::size_t(recipe.register_count));  // made by this call: nobody else has them yet
  for (const RecipeStep& step : recipe.steps) {
    const int first = step.args.empty() ? -1 : step.args[0];
    if (is_effect(step.op) && step.op != RecipeOp::BumpVersion && (first < 0 || !fresh[std::size_t(first)]))
      return true;
    if (!is_effect(step.op) && step.target >= 0)
      fresh[std::size_t(step.target)] =
          step.op != RecipeOp::FromSource && step.op != RecipeOp::Constant && step.op != RecipeOp::GetAttr;
  }
  return false;
}

/// Holds the inputs of a program as the guards found them; the first that is missing, or null.
SourceRef hold_inputs(const Segment& segment, const FrameValues& values, const GuardBindings& bindings,
                      HeldInputs& held) {
  for (SourceRef source : segment.inputs) {
    auto id = std::size_t(source->id);
    PyObject* object = id < bindings.values.size() ? bindings.values[id] : nullptr;
    void* data = object ? bindings.data[id] : nullptr;
    Ref<> found;
    if (!object) {
      found = segment.guards->sources().fetch(source, values);
      object = found.get();
      if (!object) return source;
    }
    // A number that changes between calls is an array of one element where it lies.
    if (!data) data = number_pointer(object);
    if (!data) data = data_pointer(object);
    held.hold(data, object);
  }
  return nullptr;
}

/// What a run finds when others have run meanwhile.
struct AnotherLook {
  GuardBindings bindings;
  std::vector<std::int64_t> symbols;
  std::optional<RecipeRun> run;
};

/// Whether the arrays and numbers are those of `inputs`.
bool same_inputs(const Segment& segment, const FrameValues& values, const GuardBindings& bindings,
                 std::span<const ArrayRef> inputs) {
  Buffer<ArrayRef, 16> buffer(inputs.size());
  HeldInputs found{buffer.span()};
  if (hold_inputs(segment, values, bindings, found)) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto* before = static_cast<PyObject*>(inputs[i].object);
    const auto* now = static_cast<PyObject*>(found.inputs[i].object);
    const bool same_float = PyFloat_CheckExact(before) && PyFloat_CheckExact(now) &&
                            std::memcmp(inputs[i].data, found.inputs[i].data, sizeof(double)) == 0;
    if (inputs[i].data != found.inputs[i].data && !same_float) return false;
  }
  return true;
}

}  // namespace

bool Segment::follows(const std::vector<bool>& decisions) const {
  if (decisions.size() > conditions.size()) return false;
  for (std::size_t i = 0; i < decisions.size(); ++i)
    if (conditions[i].expected != decisions[i]) return false;
  return true;
}

SegmentStatus Segment::run(const FrameValues& values, const GuardBindings& bindings, FrameUpdate& update) const {
  if (eager_gradient) return eager(update, "the result needs a gradient");
  // Hooks see what eager saves, in eager's order: a checkpoint finds by it what it computes again, in CPython's frames
  // or in ours.
  if ((derivative || ran_backward) && torch_saved_tensors_hooks())
    return eager(update, "hooks on the tensors that autograd saves are set");

  std::size_t graph_symbols = graph ? graph->symbols.size() : 0;
  Buffer<std::int64_t, 16> symbols(std::max(bindings.symbols.size(), graph_symbols));
  std::fill(std::copy(bindings.symbols.begin(), bindings.symbols.end(), symbols.span().begin()), symbols.span().end(),
            0);
  if (graph_symbols != 0 && !derive_symbols(*graph, symbols.span())) return eager(update, "a size is divided by zero");

  Buffer<ArrayRef, 16> input_buffer(inputs.size());
  HeldInputs held{input_buffer.span()};
  if (program)
    if (SourceRef missing = hold_inputs(*this, values, bindings, held))
      return eager(update, missing->text() + " is missing");

  RecipeRun first(*this, values, bindings, symbols.span());
  RecipeRun* run = &first;
  std::vector<std::unique_ptr<AnotherLook>> looks;
  if (!run->before_program()) return eager(update, "an object could not be made");
  if (!run->drops_quietly(held.inputs.first(held.held)))
    return eager(update, "an object whose end runs Python code would be let go of");

  // Behind the program's outputs, views of them that a gradient flows through.
  Buffer<ArrayRef, 8> output_buffer(graph ? graph->outputs.size() + (derivative ? derivative->view_count() : 0) : 0);
  std::fill(output_buffer.span().begin(), output_buffer.span().end(), ArrayRef{});
  OwnedOutputs owned{output_buffer.span()};
  bool wrote = false;
  std::vector<Ref<>> generators;
  if (program && externs)
    for (SourceRef source : externs->held()) {
      PyObject* fetched =
          std::size_t(source->id) < bindings.values.size() ? bindings.values[std::size_t(source->id)] : nullptr;
      generators.push_back(fetched ? Ref<>::borrow(fetched) : guards->sources().fetch(source, values));
      if (!generators.back()) return eager(update, source->text() + " is missing");
    }
  // Others may look at memory that processes share when the collective is done.
  if (program && externs && externs->once())
    for (const ArrayRef& input : held.inputs.first(held.held))
      if (auto* object = static_cast<PyObject*>(input.object); !number_pointer(object) && !has_private_memory(object))
        return eager(update, "a collective in a piece with memory that other processes may share");
  RandomStates random(program ? externs.get() : nullptr, generators);
  if (program) {
    SegmentHost host(output_library, externs.get(), inference_outputs.empty() ? nullptr : &inference_outputs, device);
    host.hold(std::move(generators));
    const bool asks = asks_again_ && disturbed_ < kDisturbed;
    host.share(!writes_objects_ || asks);
    // What the program has computed is of what it has read; what is written may be of what is there now.
    if (asks_again_) host.ask_before_writing([&] {
      auto look = std::make_unique<AnotherLook>();
      if (!guards->holds(values, look->bindings)) return false;
      look->symbols.assign(symbols.span().begin(), symbols.span().end());
      for (std::size_t i = 0; i < look->bindings.symbols.size(); ++i)
        if (i >= graph_symbols || !graph->symbols[i].late) look->symbols[i] = look->bindings.symbols[i];
      if (!derive_symbols(*graph, look->symbols)) return false;
      for (std::size_t i = 0; i < graph_symbols; ++i)
        if (program_symbols_[i] && look->symbols[i] != symbols.span()[i]) return false;
      const auto inputs_held = held.inputs.first(held.held);
      if (!same_inputs(*this, values, look->bindings, inputs_held)) return false;
      look->run.emplace(*this, values, look->bindings, look->symbols);
      if (!look->run->before_program() || !look->run->drops_quietly(inputs_held)) return PyErr_Clear(), false;
      run = &*look->run;
      looks.push_back(std::move(look));
      return true;
    });
    Call call;
    call.host = &host;
    call.inputs = input_buffer.span();
    call.symbols = symbols.span();
    call.outputs = output_buffer.span().first(graph->outputs.size());
    call.trapped = collects;
    call.ranges = has_tensors_ && torch_recorded();
    std::uint32_t status;
    try {
      status = program->run(call);
    } catch (...) {
      update.past = host.take_past();
      throw;
    }
    update.past = host.take_past();
    if (status & kInterrupted) {
      update.interrupt = host.take_interrupt();
      return eager(update, "a signal ended it");
    }
    if (host.disturbed()) {
      ++disturbed_;
      update.disturbed = true;
    }
    if (status != kOk) {
      const SegmentStatus failed = eager(update, call.error.empty() ? reason_text(status, host.failure()) : call.error);
      update.outdated = host.mispredicted() && !update.past.empty();
      return host.mispredicted() && update.past.empty() ? SegmentStatus::Retrace : failed;
    }
    if (!host.may_write()) {
      ++disturbed_;
      update.disturbed = true;
      return eager(update, host.failure());
    }
    wrote = !graph->writes.empty();
    for (std::size_t i = update.settled; i < conditions.size(); ++i) {
      const ArrayRef& decided = output_buffer.span()[std::size_t(conditions[i].output)];
      if (*static_cast<const bool*>(data_pointer(static_cast<PyObject*>(decided.object))) == conditions[i].expected)
        continue;
      update.decisions.clear();
      for (std::size_t before = 0; before < i; ++before) update.decisions.push_back(conditions[before].expected);
      update.decisions.push_back(!conditions[i].expected);
      return SegmentStatus::OtherPath;
    }
    for (std::size_t i = 0; externs && i < output_library.size(); ++i)
      if (!to_library(output_buffer.span()[i], output_library[i]))
        return wrote ? SegmentStatus::Raised : eager(update, "no memory for a result");
    // Before autograd sees them: what it saves of them is as it will stay.
    std::vector<PyObject*> moved;
    for (auto [input, versions] : input_versions)
      moved.insert(moved.end(), std::size_t(versions),
                   static_cast<PyObject*>(input_buffer.span()[std::size_t(input)].object));
    for (auto [output, versions] : output_versions)
      moved.insert(moved.end(), std::size_t(versions),
                   static_cast<PyObject*>(output_buffer.span()[std::size_t(output)].object));
    if (!moved.empty() && !bump_versions(moved))
        return wrote ? SegmentStatus::Raised : eager(update, "an object could not be made");
    // autograd refuses an input whose base was written where that is not allowed; hooks on saved tensors are not set.
    if (derivative && !derivative->link(input_buffer.span(), output_buffer.span(), symbols.span()))
      return wrote ? SegmentStatus::Raised : eager(update, "autograd refuses a tensor");
  }

  if (!run->objects(owned.outputs)) return wrote ? SegmentStatus::Raised : eager(update, "an object could not be made");
  random.keep();
  if (!run->effects()) return SegmentStatus::Raised;
  run->fill(update);
  return SegmentStatus::Done;
}

void Segment::settle() {
  writes_objects_ = changes_objects(recipe);
  asks_again_ = writes_objects_ && graph && !(externs && (externs->once() || !externs->held().empty())) &&
                std::none_of(recipe.steps.begin(), recipe.steps.end(),
                             [](const RecipeStep& step) { return step.op == RecipeOp::Expect; });
  if (asks_again_) program_symbols_ = symbols_used(*graph);
  has_tensors_ = guards && std::any_of(guards->all().begin(), guards->all().end(),
                                       [](const Guard& guard) { return guard.kind == GuardKind::TorchModes; });
  const bool calls = graph && std::any_of(graph->nodes.begin(), graph->nodes.end(),
                                          [](const Node& node) { return node.op == Op::extern_call; });
  runs_directly = graph && device == kHost && !derivative && !eager_gradient && !ran_backward && !calls &&
                  conditions.empty() && input_versions.empty() && output_versions.empty() &&
                  inference_outputs.empty() && covers_function && recipe.steps.size() == 1 &&
                  recipe.steps[0].op == RecipeOp::Output && recipe.steps[0].index == 0 && graph->outputs.size() == 1;
}

PyObject* Segment::run_directly(const FrameValues& values, const GuardBindings& bindings) const {
  const DirectKernel* kernel = program->direct();
  if (!kernel || direct_failures_ == kDirectFailures) return nullptr;
  if (has_tensors_ && torch_recorded()) return nullptr;  // `run` tells the profiler
  for (int slot : recipe.let_go)
    if (std::size_t(slot) >= values.slots.size() || !ends_alone(values.slots[std::size_t(slot)])) return nullptr;
  Buffer<ArrayRef, DirectKernel::kPointers> input_buffer(inputs.size());
  HeldInputs held{input_buffer.span()};
  std::array<char*, DirectKernel::kPointers> arrays;
  std::size_t result = 0;
  for (std::size_t p = 0; p < kernel->pointers.size(); ++p) {
    if (kernel->pointers[p] == DirectKernel::kResult) {
      result = p;
      continue;
    }
    const auto id = std::size_t(inputs[std::size_t(kernel->pointers[p])]->id);
    if (!bindings.values[id] || !bindings.data[id]) return nullptr;  // a number
    held.hold(bindings.data[id], bindings.values[id]);
    arrays[p] = static_cast<char*>(bindings.data[id]);
  }
  Ref<> array = allocate(output_library[0], kernel->dtype, kernel->shape, kernel->strides);
  if (!array) return PyErr_Clear(), nullptr;
  arrays[result] =
      static_cast<char*>(output_library[0] == Library::Numpy ? numpy_data(array.get()) : torch_data(array.get()));
  const std::uint32_t fatal = kAlwaysFails | collects | (collects & kFloatInvalid ? kNotFinite : kOk);
  if (kernel->run(arrays.data()) & fatal) {
    ++direct_failures_;
    return nullptr;
  }
  return array.release();
}

}  // namespace fj
