/// The instruction loop: one symbolic frame at a time. Start at `run_frame`; the instructions are in instructions.cpp.
#include "arrays/torch_modes.h"

#include <algorithm>
#include "tracer/branches.h"
#include "tracer/data_loops.h"
#include "tracer/interpreter/trace_run.h"

#include "graph_ir/rules/conditions.h"
#include "runtime/base/budget.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/phase.h"
#include "tracer/frontends/numpy/calls.h"
#include "tracer/interpreter/exceptions.h"
#include "tracer/regions/forecast.h"
#include "tracer/state/argument_ledger.h"
#include "tracer/state/cached_calls.h"
#include "tracer/state/class_ledger.h"
#include "tracer/state/effect_log.h"
#include "tracer/state/exception_ledger.h"
#include "tracer/state/gradient_ledger.h"
#include "tracer/state/graph_inputs.h"
#include "tracer/state/identity.h"
#include "tracer/state/modes.h"
#include "tracer/state/placement.h"
#include "tracer/state/row_calls.h"
#include "tracer/state/size_ledger.h"
#include "tracer/state/transform_ledger.h"
#include "tracer/state/warning_ledger.h"
#include "tracer/values/containers/iterators.h"
#include "tracer/values/outside_objects.h"

namespace fj {

bool is_of_packages(PyObject* globals, std::initializer_list<std::string_view> packages) {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  PyObject* found = globals && PyDict_Check(globals) ? PyDict_GetItemWithError(globals, key) : nullptr;
  PyErr_Clear();
  if (!found || !PyUnicode_Check(found)) return false;
  const std::string name = text_of(found);
  return std::any_of(packages.begin(), packages.end(), [&](std::string_view package) {
    return name.size() > package.size() && name.starts_with(package) && name[package.size()] == '.';
  });
}

const FjCode* DecodeCache::get(PyCodeObject* code) {
  auto& entry = codes_[code];
  if (!entry) {
    entry.reset(fj_decode(code));
    if (!entry) {
      PyErr_Clear();
      break_graph(BreakReason::UnsupportedBytecode, "a function that can't be decoded");
    }
  }
  return entry.get();
}

const std::vector<Loop>& DecodeCache::loops(const FjCode& code) {
  const auto known = loops_.find(&code);
  return known != loops_.end() ? known->second : loops_.emplace(&code, loops_of(code)).first->second;
}

DecodeCache::DecodeCache() = default;
DecodeCache::~DecodeCache() = default;

const std::vector<PassOf>& DecodeCache::passes(const FjCode& code) {
  const auto known = passes_.find(&code);
  return known != passes_.end() ? known->second : passes_.emplace(&code, passes_of(code)).first->second;
}

TraceRun::TraceRun(const TraceRequest& request, DecodeCache& decodes, Learnt& learnt, int stop_before)
    : request(request),
      decodes(decodes),
      learnt(learnt),
      identity(new Identity),
      effects(new EffectLog),
      inputs(new GraphInputs),
      gradients(new GradientLedger(*graph_)),
      modes(new ModeLedger),
      warnings(new WarningLedger),
      classes(new ClassLedger),
      sizes(new SizeLedger),
      transforms(new TransformLedger),
      exceptions(new ExceptionLedger),
      cached(new CachedCalls),
      placement(new Placement),
      rows(new RowCalls),
      assumed(request.edit ? new ArgumentLedger : nullptr),
      stop_before_(stop_before) {
  if (request.way) {
    sources_ = request.way->sources;
    request.way->clear();
  }
  guards_ = std::make_unique<GuardSet>(sources_);
  current_step = 0;
  none_ = std::make_shared<ObjectValue>(Ref<>::borrow(Py_None));
  true_ = std::make_shared<ObjectValue>(Ref<>::borrow(Py_True));
  false_ = std::make_shared<ObjectValue>(Ref<>::borrow(Py_False));
  graph().name = text_of(reinterpret_cast<PyCodeObject*>(request.code->code)->co_name);
  logs_instructions_ =
      log_enabled(Artifact::bytecode, text_of(reinterpret_cast<PyCodeObject*>(request.code->code)->co_qualname));
  modes->now.grad = torch_module() && torch_grad_enabled();
  modes->now.inference = torch_module() && (torch_modes() & torch_mode_bits::kInference);
  modes->outside = modes->now;
}

TraceRun::~TraceRun() = default;

bool TraceRun::torch_is_compiling() {
  asked_torch = true;
  asked_beside_modules = asked_beside_modules || modules.empty();
  told_compiled = told_compiled || learnt.torch_is_compiling;
  return learnt.torch_is_compiling;
}

V TraceRun::run() {
  outer.code = request.code;
  outer.co = reinterpret_cast<PyCodeObject*>(request.code->code);
  outer.globals = Ref<>::borrow(request.function->func_globals);
  outer.builtins = Ref<>::borrow(request.function->func_builtins);
  outer.outermost = true;
  outer.pc = outer.executing = request.start_instruction;
  const std::size_t local_count = outer.co->co_nlocalsplus;
  outer.slots.resize(local_count);
  outer.initial.assign(local_count, true);
  for (PyObject* object : request.values.slots) held_.push_back(object != nullptr);
  if (PyObject* closure = request.function->func_closure)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure); ++i)
      outer.closure.push_back(
          wrap(PyTuple_GET_ITEM(closure, i), sources().make(SourceKind::ClosureCell, sources().function(), i)));
  for (std::size_t i = local_count; i < request.values.slots.size(); ++i) {
    PyObject* object = request.values.slots[i];
    SourceRef source = sources().slot(int(i), "stack[" + std::to_string(i - local_count) + "]");
    if (!object) add_guard(*this, GuardKind::Unbound, source);
    const bool iterates = request.passes && i + std::size_t(fj_iterator_entries()) == request.values.slots.size();
    outer.stack.push_back(!object    ? std::make_shared<NullValue>()
                          : iterates ? iterate_running_range(*this, object, source)
                                     : wrap(object, source));
  }
  initial_stack_ = outer.stack;
  for (std::size_t i = 0; request.way && i < request.way->inputs.size(); ++i) {
    const SourceRef source = request.way->inputs[i];
    const Ref<> object = sources().fetch(source, request.values);
    const V value = object ? wrap(object.get(), source) : nullptr;
    if (auto* array = as<ArrayValue>(value)) read(*array);
  }
  try {
    return run_frame(outer);
  } catch (const WayEnds& end) {
    return end.result;
  } catch (const RaisedInTrace& raised) {
    break_location = raised.where;
    break_function = raised.function;
    step = raised.step;
    throw BreakGraph{raised.reason, raised.detail};
  }
}

std::uint32_t TraceRun::collected_conditions() {
  // A library call reports what it is told to.
  for (; collected_nodes_ < graph().nodes.size(); ++collected_nodes_) {
    const Node& node = graph().nodes[collected_nodes_];
    collected_ |=
        modes->now.float_conditions & (node.op == Op::extern_call ? kFloatConditions : conditions_of(graph(), node));
  }
  return collected_;
}

void TraceRun::let_go(int slot) {
  if (slot >= int(held_.size()) || !held_[std::size_t(slot)]) return;
  held_[std::size_t(slot)] = false;
  if (request.fragile[std::size_t(slot)])
    break_graph(BreakReason::UnsupportedObject, "lets go of an object whose end runs Python code");
}

/// Instructions between two looks at the clock of who watches: a call of Python, in much more time than one takes.
constexpr int kSaid = 1024, kAsked = 64;

void TraceRun::check_limits() {
  if (instruction_count_ % kSaid == 0) say_phase(Phase::trace);
  if (instruction_count_ % kAsked == 0) Budget::ask();
  if (++instruction_count_ > request.instruction_limit) break_graph(BreakReason::GraphTooLong, "too many instructions");
  if (int(graph().nodes.size()) > request.node_limit)
    break_graph(request.cut ? BreakReason::TooMuchWork : BreakReason::GraphTooLong,
                "more than " + std::to_string(request.node_limit) + " operations");
}

/// A loop over elements that has gone on for some passes is none to unroll. One of a function that is called ends the
/// piece at the call: what is called has pieces and regions of its own. That costs more, and needs more passes. So does
/// a loop over numbers; where there are arrays, what it computes is a constant for those behind it.
void TraceRun::look_at_loop(Frame& frame) {
  constexpr int kUnrolled = 8, kUnrolledInCall = 32, kNumbers = 256;
  for (MetLoop& met : frame.loops) {
    if (met.loop.header != frame.pc) continue;
    if (met.passes++ == 0) met.nodes_before = graph().nodes.size();
    const int whole = met.passes - 1;
    const bool elements = whole == (frame.outermost ? kUnrolled : kUnrolledInCall);
    const bool numbers = frame.outermost && whole == kNumbers && meets_no_array() && !is_without_region(frame.pc);
    if ((elements || numbers) && will_be_region(*this, frame, met.loop, elements)) {
      meets_region = true;
      break_graph(BreakReason::LoopTooLong,
                  elements ? "its passes work on elements of arrays: they run as machine code of their own"
                           : "its passes work on numbers: they run as machine code of their own");
    }
    if (whole >= (frame.outermost ? kUnrolled : kUnrolledInCall) && whole % kUnrolled == 0)
      cut_long_loop(frame, (graph().nodes.size() - met.nodes_before) / std::size_t(whole));
  }
}

bool TraceRun::is_without_region(int header) const {
  const std::vector<int>& without = request.without_region;
  return std::find(without.begin(), without.end(), header) != without.end();
}

/// Neither what the function is given nor what it has computed is one.
bool TraceRun::meets_no_array() const {
  return graph().nodes.empty() && graph().inputs.empty() &&
         std::none_of(request.values.slots.begin(), request.values.slots.end(),
                      [](PyObject* object) { return object != nullptr && array_library(object).has_value(); });
}

/// A long loop over a range is no part of what is around it: some passes are a piece that runs again and again, so that
/// it costs the same to compile however many there are. A derivative is worth more code: autograd goes through the
/// pieces one after the other. A function that is called has such pieces of its own.
void TraceRun::cut_long_loop(const Frame& frame, std::size_t nodes_of_a_pass) {
  constexpr double kFewPasses = 64, kFewNodes = 500, kFewOfADerivative = 2500;
  const int entries = fj_iterator_entries();
  const auto* iterator = int(frame.stack.size()) < entries ? nullptr : as<IteratorValue>(*(frame.stack.end() - entries));
  if (iterator == nullptr || !iterator->remaining) return;
  const std::vector<int>& unrolled = request.unrolled;
  if (request.generalise.never_dynamic ||
      (frame.outermost && std::find(unrolled.begin(), unrolled.end(), frame.pc) != unrolled.end()))
    return;
  const V rest = iterator->remaining();
  const auto* range = rest ? as<RangeValue>(rest) : nullptr;
  if (range == nullptr || !range->start.is_constant() || !range->stop.is_constant()) return;
  // (No loop has so many passes that the rounding counts.)
  const double left = (double(range->stop.value()) - double(range->start.value())) / double(range->step);
  const bool derived = std::any_of(graph().inputs.begin(), graph().inputs.end(),
                                   [&](const Input& input) { return requires_gradient(input.value); });
  if (left < kFewPasses || left * double(nodes_of_a_pass) < (derived ? kFewOfADerivative : kFewNodes)) return;
  meets_region = !frame.outermost;
  break_graph(BreakReason::LoopTooLong, "some of its passes are a piece of their own");
}

namespace {

constexpr std::size_t kInlineDepth = 80;

/// The innermost frame of code of the user's: messages and nodes name its line.
std::size_t users_frame(const std::vector<Frame*>& frames) {
  std::size_t last = frames.size() - 1;
  while (last > 0 && is_of_packages(frames[last]->globals.get(), {"framejit"})) --last;
  return last;
}

/// Keeps `frames` right when a break unwinds.
class Entered {
 public:
  Entered(std::vector<Frame*>& frames, Frame& frame) : frames_(frames) { frames.push_back(&frame); }
  ~Entered() { frames_.pop_back(); }

 private:
  std::vector<Frame*>& frames_;
};

/// Whether the innermost frame has pieces of its own where the outermost one breaks at the call that leads to it: all
/// are functions of the user's.
bool may_run_alone(const std::vector<Frame*>& frames) {
  return std::none_of(frames.begin() + 1, frames.end(), [](const Frame* frame) {
    return frame->generator || frame->names || is_of_packages(frame->globals.get(), {"framejit", "torch", "numpy"});
  });
}

}  // namespace

V TraceRun::run_frame(Frame& frame) {
  if (frames.size() >= kInlineDepth) break_graph(BreakReason::RecursionLimit, text_of(frame.co->co_qualname));
  if (frame.code->is_generator && !frame.generator) break_graph(BreakReason::Generator, text_of(frame.co->co_qualname));
  Entered entered(frames, frame);
  if (request.regions && frame.loops.empty() && (frame.outermost || may_run_alone(frames)))
    for (const Loop& loop : decodes.loops(*frame.code)) frame.loops.push_back({loop});
  std::optional<V> result;
  try {
    if (frame.thrown) {
      V exception = std::exchange(frame.thrown, nullptr);
      as<InstanceValue>(exception)->raised = true;
      const RaisedInTrace raised{
          exception, BreakReason::Raise, source_text(), location(), text_of(frame.co->co_qualname), step};
      if (!handle(*this, frame, frame.code->instrs[frame.executing], raised)) {
        frame.finished = true;
        throw raised;
      }
    }
    while (!result) {
      FJ_CHECK(frame.pc < frame.code->count, "ran off the end of the code");
      const FjInstr& instr = frame.code->instrs[frame.pc];
      frame.executing = frame.pc;
      if (frame.outermost && instr.resumable) {
        if (++step == stop_before_) {
          step_pc.push_back(frame.pc);
          throw StopReached{};
        }
        step_pc.push_back(frame.pc);
        current_step = step;
      }
      check_limits();
      if (!frame.loops.empty()) look_at_loop(frame);
      if (request.way) pass_loops(*this, frame);
      if (frame.pc != frame.executing) continue;  // behind a loop now
      if (logs_instructions_) log_instruction(frame, instr);
      ++frame.pc;
      try {
        nodes_before_instruction = graph().nodes.size();
        execute(frame, instr, result);
      } catch (const RaisedInTrace& raised) {
        frame.finished = true;
        if (!handle(*this, frame, instr, raised)) throw;
        frame.finished = false;
      }
      if (frame.outermost && !result)
        while (!initial_stack_.empty() && (initial_stack_.size() > frame.stack.size() ||
                                           frame.stack[initial_stack_.size() - 1] != initial_stack_.back())) {
          initial_stack_.pop_back();
          let_go(int(frame.slots.size() + initial_stack_.size()));
        }
    }
    if (request.way) leave_frame(*this, frame);
  } catch (const BreakGraph&) {
    if (!break_location) {
      break_location = location();
      break_function = text_of(frames[users_frame(frames)]->co->co_qualname);
      for (std::size_t i = 0; i <= users_frame(frames); ++i)
        if (i == 0 || !is_of_packages(frames[i]->globals.get(), {"framejit"}))
          break_calls.push_back(text_of(frames[i]->co->co_qualname));
    }
    throw;
  }
  return *result;
}

/// `FRAMEJIT_LOGS=bytecode`: the instruction about to run and the symbolic stack.
void TraceRun::log_instruction(const Frame& frame, const FjInstr& instr) const {
  const Location where = location();
  std::string text = std::string((frames.size() - 1) * 2, ' ') + text_of(frame.co->co_name) + ":" +
                     std::to_string(where.line) + "  " + fj_opcode_name(instr.opcode) + " " +
                     std::to_string(instr.arg) + "  [";
  for (std::size_t i = 0; i < frame.stack.size(); ++i) text += (i ? ", " : "") + describe(frame.stack[i]);
  log(Artifact::bytecode, text + "]");
}

Location TraceRun::location() const {
  if (frames.empty()) return {};
  const Frame& frame = *frames[users_frame(frames)];
  Location result;
  result.file = text_of(frame.co->co_filename);
  result.line = frame.code->instrs[frame.executing].line;
  if (!modules.empty()) result.module = modules.back();
  return result;
}

std::string TraceRun::source_text() const {
  Location where = location();
  Ref<> linecache = Ref<>::steal(PyImport_ImportModule("linecache"));
  Ref<> line = linecache
                   ? Ref<>::steal(PyObject_CallMethod(linecache.get(), "getline", "si", where.file.c_str(), where.line))
                   : Ref<>();
  if (!line) {
    PyErr_Clear();
    return "";
  }
  std::string text = text_of(line.get());
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::string TraceRun::function() const { return frames.empty() ? "" : text_of(frames.back()->co->co_qualname); }

}  // namespace fj
