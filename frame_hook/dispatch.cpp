// The loop that runs a compiled function. Start at call_compiled: a call whose segment covers the whole function never
// makes a frame (call_without_frame); every other call gets its frame from CPython and is run by `drive`, piece by
// piece.
#include "frame_hook/dispatch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "cpython/objects.h"
#include "frame_hook/backends.h"
#include "frame_hook/beside_python.h"
#include "frame_hook/bind.h"
#include "frame_hook/c_stack.h"
#include "frame_hook/compared_call.h"
#include "frame_hook/compile_segment.h"
#include "frame_hook/executor.h"
#include "frame_hook/frame_objects.h"
#include "frame_hook/loops/loop_account.h"
#include "frame_hook/replay_collectives.h"
#include "runtime/background.h"
#include "runtime/base/error.h"
#include "segment/eager_race.h"

namespace fj {

namespace {

/// The stack of frames whose function is traced; null: none on this thread.
thread_local const void* tracing = nullptr;
/// Why a function that follows branches runs in CPython now, for the errors it then raises.
thread_local std::string fallback_reason;

/// The call whose frame CPython makes. `entered`: when it began, where it may be one of a comparison; else 0.
struct Entering {
  FunctionState& state;
  std::shared_ptr<CodeCache> cache;
  std::uint64_t entered;
};

bool is_eager(const FjStack& stack) { return stack.eager_depth > 0 || (tracing != nullptr && tracing != stack.root); }

/// Room for one run, reused: a call then allocates nothing for its bookkeeping. Several, because runs nest.
class Scratch {
 public:
  Scratch() {
    if (pool().empty()) pool().push_back(std::make_unique<Contents>());
    contents_ = std::move(pool().back());
    pool().pop_back();
  }
  ~Scratch() {
    contents_->bindings.owned.clear();
    contents_->update.clear();
    pool().push_back(std::move(contents_));
  }
  GuardBindings& bindings() { return contents_->bindings; }
  FrameUpdate& update() { return contents_->update; }

 private:
  struct Contents {
    GuardBindings bindings;
    FrameUpdate update;
  };
  static std::vector<std::unique_ptr<Contents>>& pool() {
    thread_local std::vector<std::unique_ptr<Contents>> pool;
    return pool;
  }
  std::unique_ptr<Contents> contents_;
};

/// Null: the function can't be compiled (no error set). The reference is good until the function's caches change.
const std::shared_ptr<CodeCache>& cache_for(FunctionState& state, PyCodeObject* code) {
  if (!state.caches.empty() && !options_overridden() && state.caches.front()->own &&
      state.caches.front()->code() == code) [[likely]]
    return state.caches.front();
  Options options = effective_options(state);
  // A function whose __code__ was replaced starts afresh.
  std::vector<std::shared_ptr<CodeCache>> other;
  std::erase_if(state.caches, [&](auto& cache) {
    if (cache->code() == code) return false;
    other.push_back(cache);
    return true;
  });
  Running::drop(std::move(other));
  for (const auto& cache : state.caches)
    if (cache->options().same_code(options)) return cache;
  auto cache = CodeCache::create(code, options);
  if (!cache) {
    PyErr_Clear();
    static const std::shared_ptr<CodeCache> none;
    return none;
  }
  cache->own = options.same_code(state.options);
  return *state.caches.insert(cache->own ? state.caches.begin() : state.caches.end(), cache);
}

/// CPython raises `exception` soon: before the line where the array work of `segment` begins, so that handlers and
/// `finally` around that run, and nothing of it is done once more; without a segment where it stands when it goes on.
/// False: it is set, and ends the call, since a function that follows branches has no other way to run.
bool raises_soon(const Options& options, const FrameValues& values, Ref<> exception, const Segment* segment = nullptr) {
  const Location* const begin =
      segment && segment->graph && !segment->graph->nodes.empty() ? &segment->graph->nodes.front().location : nullptr;
  if (!options.follow && fj_raise_soon(reinterpret_cast<PyCodeObject*>(values.function->func_code), exception.get(),
                                       begin ? begin->file.c_str() : nullptr, begin ? begin->line : 0))
    return true;
  fj_restore_exception(exception.release());
  return false;
}

/// The segment was made from a wrong prediction: it is traced again.
void drop(FunctionState& state, CodeCache& cache, int entry, const Segment& segment) {
  state.events->withdraw(segment.graph.get());
  cache.forget(entry, &segment);
}

/// Between two tries to run a piece. Eager: CPython goes on there; Raised: an error is set; Done: nothing has come.
SegmentStatus look_for_signals(const Options& options, const FrameValues& values) {
  if (PyErr_CheckSignals() == 0) return SegmentStatus::Done;
  return raises_soon(options, values, Ref<>::steal(fj_take_exception())) ? SegmentStatus::Eager : SegmentStatus::Raised;
}

/// Runs a segment whose guards hold. Never throws; an error is set with Raised only.
SegmentStatus run_segment(FunctionState& state, const Options& options, const Segment& segment,
                          const FrameValues& values, const GuardBindings& bindings, FrameUpdate& update) {
  if (segment.eager_gradient) {
    state.events->fallback(state.name, "the result needs a gradient: the call runs operation by operation");
    return SegmentStatus::Eager;
  }
  try {
    ComparedCall::meet(segment, bindings.symbols);
    const SegmentStatus status = segment.run(values, bindings, update);
    if (status == SegmentStatus::Done) {
      if (segment.program) {
        totals().kernels_launched += std::uint64_t(segment.program->kernel_count());
        note_array_work(state);
      }
      return status;
    }
    if (status == SegmentStatus::Raised || status == SegmentStatus::Retrace || status == SegmentStatus::OtherPath)
      return status;
    if (update.interrupt)
      return raises_soon(options, values, update.interrupt, &segment) ? SegmentStatus::Eager : SegmentStatus::Raised;
    PyErr_Clear();
    if (segment.edited) {
      PyErr_Format(error_type(ErrorKind::Error), "framejit: the edited graph of `%s` could not be run: %s",
                   state.name.c_str(), update.reason.empty() ? "its program failed" : update.reason.c_str());
      return SegmentStatus::Raised;
    }
    if (options.follow) fallback_reason = update.reason;
    state.events->fallback(state.name, update.reason.empty() ? "a compiled piece could not finish" : update.reason);
  } catch (const BackendFailure& failure) {
    fj_restore_exception(Ref<>(failure.error).release());
    return SegmentStatus::Raised;
  } catch (const std::bad_alloc&) {
    PyErr_Clear();
    state.events->fallback(state.name, "memory ran out while a compiled piece was to run");
  } catch (const std::exception& error) {
    if (report_internal(state, options, error.what())) return SegmentStatus::Raised;
  }
  return SegmentStatus::Eager;
}

/// The branches on data that one call has met. Two graphs may compute one condition with other last bits and send the
/// call to each other: where it comes back to decisions it has had, they are settled, and the graph for them is what
/// runs.
struct Decisions {
  std::vector<bool> known;
  std::size_t settled = 0;
  std::set<std::vector<bool>> met;
  /// Segments of this call whose program failed before it said how their branches go, which may be another way.
  std::vector<std::shared_ptr<const Segment>> failed;

  void meet(std::vector<bool> found) {
    known = std::move(found);
    if (!met.insert(known).second) settled = std::max(settled, known.size());
  }
};

/// The frame's new locals and stack. Old values, which take their places in `update`, go last, when the frame is whole
/// again: destructors may look at it.
void update_frame(FjFrame* frame, FrameUpdate& update) {
  exchange_slots(frame, update.slots);
  update.slots.clear();
}

/// Each retrace corrects one prediction: a model has as many as it has calls of one kind whose layout differs.
constexpr int kMaximumRetraces = 64;

Step execute_break(FunctionState& state, PyThreadState* thread, FjFrame* frame, const FjCode& code, int instruction,
                   std::span<Resumed> called = {}) {
  if (fj_opcode_rows[code.instrs[instruction].opcode].python == FJ_PYTHON_Quiet)
    return execute(thread, frame, code, instruction);
  const BreakPlace place{state, code, instruction};
  const ReachScope reach(thread, place);
  const Step step = execute(thread, frame, code, instruction, called);
  // From CPython 3.13 on a bool is made first: it and the branch on it are one.
  const int run = code.instrs[instruction].opcode;
  if ((run != FJ_COMPARE_OP && run != FJ_TO_BOOL) || step.kind != Step::Kind::Next) return step;
  const int next = code.instrs[step.next].opcode;
  if (next != FJ_POP_JUMP_IF_FALSE && next != FJ_POP_JUMP_IF_TRUE) return step;
  PyObject* const made = fj_frame_get(frame, fj_frame_slot_count(frame) + fj_frame_stack_depth(frame) - 1);
  return PyBool_Check(made) ? execute(thread, frame, code, step.next) : step;
}

/// The rest of the frame, its calls looked at as those of a break.
PyObject* hand_over_reaching(FunctionState& state, PyThreadState* thread, FjFrame* frame, const FjCode& code,
                             int instruction) {
  const BreakPlace place{state, code, instruction};
  const ReachScope reach(thread, place);
  return hand_over(thread, frame, code, instruction);
}

/// A region for what the frame holds at the header. Null: `why` says why there is none.
std::shared_ptr<CompiledLoop> make_region(const FjCode& code, const Loop& loop, const FrameValues& values,
                                          const Options& options, std::string& why) {
  std::optional<LoopRegion> built = build_region(code, loop, values, why);
  if (!built) return nullptr;
  if (built->elements > kMostElements) {
    why = "its arrays are large: their operations are kernels for several threads";
    return nullptr;
  }
  const std::vector<std::string> faults = region::verify(built->region);
  FJ_CHECK(faults.empty(), faults.front() + "\n" + region::print(built->region));
  if (log_enabled(Artifact::code, built->region.name))
    log(Artifact::code, region_listing(built->region, target_for("")));
  PyThreadState* const self = fj_release_gil();
  std::unique_ptr<CompiledRegion> compiled;
  std::exception_ptr failure;
  try {
    const NoFork section;
    const LoopForm form = options.tier == "optimised" ? LoopForm::Chunks : LoopForm::Plain;
    compiled = compile_region(built->region, target_for(""), form);
  } catch (...) {
    failure = std::current_exception();
  }
  fj_take_gil(self);
  if (failure) std::rethrow_exception(failure);
  StepAccount account;
  account.kind = "loop";
  account.name = "line " + std::to_string(code.instrs[loop.header].line);
  account.lines = {text_of(reinterpret_cast<PyCodeObject*>(code.code)->co_filename) + ":" +
                   std::to_string(code.instrs[loop.header].line)};
  return std::make_shared<CompiledLoop>(std::move(*built), std::move(compiled), options.tier, int(options.threads),
                                        std::move(account));
}

void note_region(FunctionState& state, int line, const LoopRegion& loop) {
  ++totals().regions;
  LoopEvent event{state.name, line, "one region, " + std::to_string(loop.region.blocks.size()) + " blocks, " +
                                        std::to_string(loop.region.exits) + " exits"};
  if (loop.threads)
    event.made += loop.threads->why.empty() ? ", on several threads" : ", on one thread: " + loop.threads->why;
  for (const auto& [at, what] : loop.unknown)
    if (const std::string left = what + " in line " + std::to_string(at); event.reason.find(left) == std::string::npos)
      event.reason += (event.reason.empty() ? "left to CPython: " : ", ") + left;
  const bool listed = log_enabled(Artifact::graphs, state.name);
  state.events->loop(std::move(event), listed ? region::print(loop.region) : "");
}

/// The frame stands before the loop's header: a region runs its passes, and the executor what the region leaves to
/// CPython within a pass. False: there is no region for it.
bool run_region(FunctionState& state, CodeCache& cache, PyThreadState* thread, FjFrame* frame, const FjCode& code,
                CodeCache::JudgedLoop& loop, Step& step) {
  LoopRegions& regions = loop.regions;
  const std::uint64_t kinds = cache.judgement.kinds;
  if ((regions.made.empty() && regions.refuses(kinds)) || !CompiledLoop::possible()) return false;
  int instruction = loop.header;
  std::vector<Resumed> called;
  {
    Scratch scratch;
    const FrameObjects objects(frame);
    if (!objects) return false;
    const FrameValues values{fj_frame_function(frame), objects.all()};
    auto outcome = CompiledLoop::Outcome::Other;
    std::shared_ptr<CompiledLoop> running;
    const auto refuse = [&](std::string why) {
      regions.refused.push_back(kinds);
      state.events->loop({state.name, code.instrs[loop.header].line, "", std::move(why)});
    };
    for (std::size_t i = 0; i < regions.made.size() && outcome == CompiledLoop::Outcome::Other; ++i) {
      running = regions.made[i];
      outcome = running->run(thread, values, scratch.update(), instruction, called);
    }
    if (outcome == CompiledLoop::Outcome::Loses) return false;
    if (outcome == CompiledLoop::Outcome::Other) {
      if (regions.refuses(kinds) || regions.memory.waits()) return false;
      if (++regions.tries > LoopRegions::kTries) {
        regions.given_up = true;
        refuse("it is given other types each time");
        return false;
      }
      std::string why = "it is not what it was made for";
      try {
        deepen_c_stack();
        running = make_region(code, loop, values, cache.options(), why);
      } catch (const std::bad_alloc&) {
        PyErr_Clear();
        --regions.tries;
        regions.memory.lacked();
        state.events->fallback(state.name, kMemoryRanOut);
        return false;
      } catch (const std::exception& error) {
        refuse(error.what());
        if (!report_internal(state, cache.options(), error.what())) return false;
        step = {Step::Kind::Finished, 0, fj_frame_finish(thread, frame, nullptr)};
        return true;
      }
      if (running) outcome = running->run(thread, values, scratch.update(), instruction, called);
      if (outcome == CompiledLoop::Outcome::Other) {
        refuse(why);
        return false;
      }
      note_region(state, code.instrs[loop.header].line, running->loop());
      regions.made.insert(regions.made.begin(), running);
      if (regions.made.size() > LoopRegions::kKinds) regions.made.pop_back();
    }
    if (outcome == CompiledLoop::Outcome::Failed) {
      step = {Step::Kind::Finished, 0, fj_frame_finish(thread, frame, nullptr)};
      return true;
    }
    ++totals().regions_entered;
    if (running->ran_on_threads()) ++totals().regions_on_threads;
    ComparedCall::ran_passes(running->plain_passes());
    note_array_work(state);
    update_frame(frame, scratch.update());
    if (running->loses()) {
      cache.judgement.losers = true;
      state.events->loop({state.name, code.instrs[loop.header].line, "", "its passes are left to CPython too often"});
    }
  }
  step = {Step::Kind::Next, instruction};
  if (!called.empty()) step = execute_break(state, thread, frame, code, instruction, called);
  while (step.kind == Step::Kind::Next && loop.contains(step.next)) {
    step = execute_break(state, thread, frame, code, step.next);
    if (step.kind == Step::Kind::Next && cache.loop_at(step.next) != nullptr) break;
  }
  return true;
}

/// Where the frame stands before a `for` over a range whose iterator is its alone: how many passes are left.
std::optional<std::int64_t> passes_left(FjFrame* frame) {
  const int depth = fj_frame_stack_depth(frame);
  if (depth < fj_iterator_entries()) return std::nullopt;
  PyObject* const iterator = fj_frame_get(frame, fj_frame_slot_count(frame) + depth - fj_iterator_entries());
  if (iterator == nullptr || Py_REFCNT(iterator) != 1) return std::nullopt;
  const auto range = range_position(iterator);
  if (!range || std::abs(range->next) > kLargestInt || std::abs(range->end) > kLargestInt) return std::nullopt;
  return range->left();
}

/// For a loop whose passes are worth no compiled piece, inside of one that is not CPython's or around one that is a
/// region: the executor runs them, from its header until the frame stands elsewhere.
Step run_concretely(FunctionState& state, CodeCache& cache, PyThreadState* thread, FjFrame* frame, const FjCode& code,
                    const Loop& loop, LoopAccount& account) {
  Step step{Step::Kind::Next, loop.header};
  int count = 0;
  while (step.kind == Step::Kind::Next && loop.contains(step.next)) {
    CodeCache::JudgedLoop* const inner = step.next == loop.header ? nullptr : cache.loop_at(step.next);
    if (inner != nullptr && run_region(state, cache, thread, frame, code, *inner, step)) continue;
    step = execute_break(state, thread, frame, code, step.next);
    ++count;
  }
  account.executed(count);
  return step;
}

/// Whether a loop inside of this one runs as a region.
bool has_regions(CodeCache& cache, const Loop& loop) {
  return std::any_of(cache.loops().begin(), cache.loops().end(), [&](const CodeCache::JudgedLoop& inner) {
    return inner.header != loop.header && loop.contains(inner.header) && !inner.regions.made.empty() &&
           !inner.regions.are_none(cache.judgement.kinds);
  });
}

/// Keeps for later calls whether the function's loops are CPython's, as this run has found.
void keep_judgement(FunctionState& state, CodeCache& cache, const LoopAccount& account, int header) {
  if (cache.judgement.made) return;
  cache.judgement.made = true;
  cache.judgement.cpythons = account.saved_outside() <= 0;
  state.events->retire(state.name, std::string(cache.judgement.cpythons ? "it" : "what follows") +
                                       " runs in CPython from the loop at line " +
                                       std::to_string(cache.decoded().instrs[header].line) +
                                       " on: its passes have less array work than a compiled piece costs");
}

/// How a call runs that begins with this segment. Eagerly: retired, or its turn is CPython's, in a comparison.
bool goes_to_cpython(FunctionState& state, Place& place, const std::shared_ptr<const Segment>& segment,
                     const FrameValues& values, const GuardBindings& bindings, std::uint64_t entered,
                     std::optional<ComparedCall>& compared) {
  const int size = size_class(*segment, values, bindings);
  const EagerRace::Verdict verdict = segment->races->verdict(size);
  place.compares = verdict == EagerRace::Verdict::Open;
  if (place.compares) compared.emplace(state, segment, size, bindings.symbols, entered);
  if (compared && compared->eagerly()) note_array_work(state);  // which a compiled call would do
  return verdict == EagerRace::Verdict::Retire || (compared && compared->eagerly());
}

/// Whether the function, from here on, returns what its variables hold: nothing of that could be compiled.
bool only_returns(const FjCode& code, int instruction) {
  for (;; ++instruction) {
    const int opcode = code.instrs[instruction].opcode;
    if (opcode == FJ_RETURN_VALUE || opcode == FJ_RETURN_CONST) return true;
    const FjOpcodeRow& row = fj_opcode_rows[opcode];
    if (row.flow != FJ_FLOW_Next || (row.python != FJ_PYTHON_Quiet && opcode != FJ_STORE_FAST)) return false;
  }
}

/// Runs `frame` from its start to its end. `compared`: made where the call is one of a comparison; `entered`: when it
/// began, 0 if nobody has looked.
PyObject* drive(FunctionState& state, CodeCache& cache, PyThreadState* thread, FjFrame* frame, std::uint64_t entered,
                std::optional<ComparedCall>& compared) {
  const FjCode& code = cache.decoded();
  const ReachScope own_account(thread, nullptr);  // frames entered meanwhile get no segments, but at breaks
  bool begun = false;
  int retraces = 0;
  Decisions decisions;  // where branches on data are followed
  std::optional<LoopAccount> account;
  auto leave = [&](int instruction) {
    fj_leave_recursion(thread);
    if (begun) return hand_over(thread, frame, code, instruction);
    // A frame that has not begun goes to whatever evaluator would have run it.
    fj_frame_set_next(frame, 0);
    return fj_pass_frame(thread, frame, 0);
  };
  // Of a step that is not the frame's next instruction.
  auto end = [&](const Step& step) {
    fj_leave_recursion(thread);
    return step.kind == Step::Kind::Finished ? step.result : hand_over_reaching(state, thread, frame, code, step.next);
  };
  auto finish = [&](PyObject* result) {
    fj_leave_recursion(thread);
    return fj_frame_finish(thread, frame, result);
  };
  int instruction = 0;
  // Signals that have come meanwhile may end the run: with this result.
  auto ended_by_signals = [&](const FrameValues& values) -> std::optional<PyObject*> {
    switch (look_for_signals(cache.options(), values)) {
      case SegmentStatus::Eager: return leave(instruction);
      case SegmentStatus::Raised: return finish(nullptr);
      default: return std::nullopt;
    }
  };
  auto try_region = [&](int header, Step& step) {
    CodeCache::JudgedLoop* const loop = cache.loop_at(header);
    return loop != nullptr && run_region(state, cache, thread, frame, code, *loop, step);
  };
  const bool regions = !cache.loops().empty() && loops_may_leave(state, cache.options());
  // What several passes of the loop that begins at this header are.
  enum class Passes : std::uint8_t { Single, Piece, TooFew };
  auto passes_at = [&](int header) {
    CodeCache::JudgedLoop* const loop = regions && begun ? cache.loop_at(header) : nullptr;
    if (loop == nullptr || loop->unrolled || code.instrs[header].opcode != FJ_FOR_ITER) return Passes::Single;
    if (!cache.options().dynamic.value_or(true)) return Passes::Single;
    const auto left = passes_left(frame);
    if (left && *left >= kPassesOfAPiece) return Passes::Piece;
    return left && !cache.place(cache.entry_of_passes(header)).segments.empty() ? Passes::TooFew : Passes::Single;
  };
  if (regions) {
    const FrameObjects slots(frame, 0, fj_frame_slot_count(frame));
    if (!slots) return leave(0);
    cache.judge_again(magnitude(slots.all()), kinds_of(slots.all().first(std::size_t(cache.code()->co_argcount))));
    if (cache.judgement.cpythons) return leave(0);
    account.emplace(cache);
  }
  bool meets_passes = false;  // at `instruction`, of which all else has been asked
  bool interruptible = true;  // is making a piece
  for (;;) {
    if (begun && only_returns(code, instruction)) return leave(instruction);
    const bool at_passes = std::exchange(meets_passes, false);
    if (begun && *fj_pending_word(thread) != 0) [[unlikely]] {
      // As CPython does at each jump back, which a loop of pieces never comes to.
      fj_take_gil(fj_release_gil());
      const FrameObjects objects(frame);
      if (!objects) return leave(instruction);
      const FrameValues values{fj_frame_function(frame), objects.all()};
      if (const auto ended = ended_by_signals(values)) return *ended;
    }
    if (Step step; regions && begun && !at_passes && try_region(instruction, step)) {
      if (step.kind != Step::Kind::Next) return end(step);
      instruction = step.next;
      continue;
    }
    if (account && begun && !at_passes && account->is_cpythons(instruction, array_work_besides(state))) {
      const Loop loop = account->loop_at(instruction);
      Step step{Step::Kind::Handover, instruction};
      if (account->inside_another() || has_regions(cache, loop))
        step = run_concretely(state, cache, thread, frame, code, loop, *account);
      else
        keep_judgement(state, cache, *account, loop.header);
      if (step.kind != Step::Kind::Next) return end(step);
      instruction = step.next;
      continue;
    }
    int next;
    const bool several = at_passes || passes_at(instruction) == Passes::Piece;
    const int entry = several ? cache.entry_of_passes(instruction) : instruction;
    {
      Scratch scratch;
      FrameObjects objects(frame);
      if (!objects) return leave(instruction);
      const FrameValues values{fj_frame_function(frame), objects.all()};
      auto segment = cache.find(entry, values, scratch.bindings(), decisions.known, decisions.failed);
      const bool traced_before = segment != nullptr;
      if (!segment && cache.compiling && cache.options().follow && !is_eager(*fj_stack(thread))) {
        // The call can't run in CPython meanwhile: this thread waits for the one that traces, then looks again.
        PyThreadState* const self = fj_release_gil();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        fj_take_gil(self);
        if (look_for_signals(cache.options(), values) != SegmentStatus::Done) return finish(nullptr);
        continue;
      }
      if (segment) {
        totals().hits++;
      } else {
        Compiled compiled = compile_segment(state, cache, thread, values, entry, decisions.known, interruptible);
        if (compiled.raised) return finish(nullptr);
        if (const auto ended = ended_by_signals(values)) return *ended;
        objects.look_again(frame);
        if (compiled.interrupted) {
          // By a handler that goes on: one that comes every few milliseconds must not keep the piece from being made.
          interruptible = false;
          meets_passes = at_passes;
          continue;
        }
        segment = std::move(compiled.segment);
        if (segment && segment->exit.region) {
          // The types are others than those of which none could be made.
          CodeCache::JudgedLoop* const loop = cache.loop_at(segment->exit.instruction);
          if (loop != nullptr && loop->regions.made.empty()) loop->regions.refused.clear();
        }
        if (compiled.no_passes) {
          cache.unroll(*cache.loop_at(instruction));
          continue;
        }
        if (segment && entry != instruction)
          state.events->loop({state.name, code.instrs[instruction].line,
                              std::to_string(segment->passes) + " passes are a piece", ""});
        if (segment && !segment->guards->holds(values, scratch.bindings())) {
          // Tracing calls functions, and may so have filled a cache that it had found empty (of np.finfo, say).
          if (++retraces <= kMaximumRetraces) {
            drop(state, cache, entry, *segment);
            continue;
          }
          auto failure = segment->guards->first_failure(values);
          cache.place(entry).exhausted = true;
          if (report_internal(
                  state, cache.options(),
                  "a guard does not hold on the values it was made from: " +
                      (failure && failure->guard ? failure->guard->text() + ", found " + failure->found : "?")))
            return finish(nullptr);
          segment = nullptr;
        }
      }
      if (segment && instruction == 0 && !begun && may_join_ways(state, cache, *segment)) [[unlikely]] {
        if (!join_ways(state, cache, thread, values, *segment)) return finish(nullptr);
        if (const auto ended = ended_by_signals(values)) return *ended;
        continue;
      }
      if (!segment || segment->only_hands_over()) return leave(instruction);
      if (segment->races && !begun && !compared &&
          goes_to_cpython(state, cache.place(0), segment, values, scratch.bindings(), entered, compared)) {
        scratch.bindings().owned.clear();
        if (!compared) cache.place(0).frameless = true;  // it has become so: it is retired
        return leave(instruction);
      }

      fj_frame_set_executing(frame, code.instrs[instruction].executing);
      fj_frame_link(thread, frame);
      scratch.update().settled = decisions.settled;
      const SegmentStatus status =
          run_segment(state, cache.options(), *segment, values, scratch.bindings(), scratch.update());
      if (compared && status == SegmentStatus::Eager && !begun && !scratch.update().interrupt &&
          !scratch.update().disturbed)
        compared->fell_back();
      if (account && status == SegmentStatus::Done) account->ran(*segment, scratch.bindings().symbols);
      if (status == SegmentStatus::Done && segment->exit.kind != Exit::Kind::Return)
        update_frame(frame, scratch.update());
      fj_frame_unlink(thread, frame);
      if (status == SegmentStatus::Raised) return finish(nullptr);
      if (status == SegmentStatus::Retrace) {
        drop(state, cache, entry, *segment);
        if (++retraces > kMaximumRetraces) return leave(instruction);
        continue;
      }
      if (status == SegmentStatus::OtherPath) {
        decisions.meet(std::move(scratch.update().decisions));
        if (const auto ended = ended_by_signals(values)) return *ended;
        continue;
      }
      if (status == SegmentStatus::Eager && !segment->conditions.empty() && !scratch.update().interrupt) {
        if (traced_before) {
          // A trace of this call knows how its branches go.
          decisions.failed.push_back(std::move(segment));
          continue;
        }
        if (!decisions.failed.empty()) cache.forget(entry, segment.get());  // one of those, traced again
      }
      if (status == SegmentStatus::Eager) {
        if (scratch.update().outdated) drop(state, cache, entry, *segment);
        const Replay replay(thread, std::move(scratch.update().past));
        PyObject* result = leave(instruction);
        fallback_reason.clear();
        return result;
      }
      if (segment->exit.kind == Exit::Kind::Return) return finish(scratch.update().result.release());
      begun = true;
      cache.data_breaks += segment->exit.reason == BreakReason::BranchOnData;
      next = segment->exit.instruction;
      if (segment->exit.kind == Exit::Kind::Handover) {
        fj_leave_recursion(thread);
        return hand_over(thread, frame, code, next);
      }
    }
    Step step;
    const bool in_region = regions && try_region(next, step);
    if (!in_region && account && account->is_cpythons(next, array_work_besides(state))) {
      instruction = next;
      continue;
    }
    const Passes passes = in_region ? Passes::Single : passes_at(next);
    if (passes == Passes::Piece) {
      instruction = next;
      meets_passes = true;
      continue;
    }
    if (passes == Passes::TooFew)
      step = run_concretely(state, cache, thread, frame, code, *cache.loop_at(next), *account);
    else if (!in_region)
      step = execute_break(state, thread, frame, code, next);
    if (step.kind != Step::Kind::Next) return end(step);
    instruction = step.next;
  }
}

/// The caller has counted the recursion; it is counted down when the frame ends or goes to CPython.
PyObject* drive(FunctionState& state, CodeCache& cache, PyThreadState* thread, FjFrame* frame, std::uint64_t entered) {
  std::optional<ComparedCall> compared;
  PyObject* const result = drive(state, cache, thread, frame, entered, compared);
  if (compared && result != nullptr) compared->finished();
  return result;
}

PyObject* run_frame(void* call, PyThreadState* thread, FjFrame* frame, int throwflag) {
  const Entering& entering = *static_cast<const Entering*>(call);
  if (!entering.cache || fj_frame_must_pass(thread, frame, throwflag) || !fj_enter_recursion(thread))
    return fj_pass_frame(thread, frame, throwflag);
  return drive(entering.state, *entering.cache, thread, frame, entering.entered);
}

/// Does as run_segment, in the fewest instructions, for a program that is one small kernel. Null: nothing has happened.
PyObject* run_directly(FunctionState& state, const Segment& segment, const FrameValues& values,
                       const GuardBindings& bindings) {
  PyObject* result;
  try {
    result = segment.run_directly(values, bindings);
  } catch (const std::exception&) {
    return nullptr;  // run_segment reports it
  }
  if (!result) return nullptr;
  totals().kernels_launched++;
  note_array_work(state);
  return result;
}

/// Where something is to be said of a call that is refused, compile_segment says it, after a search of all segments.
bool says_nothing(const FunctionState& state) {
  return state.options.on_recompile == "compile" && !options_overridden();
}

std::span<PyObject* const> given_to_call(PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
  return {args, std::size_t(count) + (kwnames ? std::size_t(PyTuple_GET_SIZE(kwnames)) : 0)};
}

/// Whether the call goes to CPython by its look alone. All that is asked of a call before its guards, but for the room
/// on the C stack, would send it to CPython too.
bool is_left(const FunctionState& state, PyThreadState* thread, PyCodeObject* code, std::span<PyObject* const> args,
             PyObject* kwnames) {
  if (state.caches.empty()) return false;
  CodeCache& cache = *state.caches.front();
  Place& place = cache.place(0);
  return place.may_leave() && cache.own && cache.code() == code && says_nothing(state) &&
         fj_installed_hook(thread) == nullptr && place.leaves(args, kwnames);
}

enum class Frameless : std::uint8_t { Done, Eager, NoSegment };

/// The whole call, if a segment whose guards hold covers the function, or leaves it to CPython; else nothing has
/// happened. `entered`, `compared`: as `drive` has them.
Frameless call_without_frame(FunctionState& state, CodeCache& cache, PyFunctionObject* function, PyObject* const* args,
                             Py_ssize_t count, PyObject* kwnames, PyObject*& result, std::uint64_t entered,
                             std::optional<ComparedCall>& compared, std::vector<PastCall>& past) {
  BoundArguments bound;
  if (!bound.bind(function, args, count, kwnames)) return Frameless::NoSegment;
  const FrameValues values{function, bound.slots()};
  const Running running;
  Place& place = cache.place(0);
  const std::span<PyObject* const> given = given_to_call(args, count, kwnames);
  Search search(place, values);
  Decisions decisions;
  const bool may_refuse = place.refuses() && says_nothing(state);
  bool all = true;  // have been asked, or are known to be none for such a call
  while (const auto* next = search.next()) {
    if (may_refuse && search.none_served_alike()) break;
    const Segment& segment = **next;
    all = all && segment.may_be_frameless();
    if (!segment.may_be_frameless() || !segment.follows(decisions.known)) continue;
    BindingsLease lease(*segment.guards);
    if (!segment.guards->holds(values, lease.bindings())) continue;
    search.found();
    CodeCache::note_use(segment);
    if (!segment.covers_function) {
      totals().hits += segment.only_hands_over();
      const bool cpythons = segment.only_hands_over() ||
                            segment.races->verdict(size_class(segment, values, lease.bindings())) ==
                                EagerRace::Verdict::Retire;
      if (cpythons && segment.races)
        place.note_left(given, kwnames);
      else
        place.note_served();
      return cpythons ? Frameless::Eager : Frameless::NoSegment;
    }
    if (segment.races && goes_to_cpython(state, place, *next, values, lease.bindings(), entered, compared)) {
      if (!compared) place.note_left(given, kwnames);
      return Frameless::Eager;
    }
    place.note_served();
    totals().hits++;
    if (segment.runs_directly && (result = run_directly(state, segment, values, lease.bindings())) != nullptr)
      return Frameless::Done;
    FrameUpdate update;
    update.settled = decisions.settled;
    const SegmentStatus status = run_segment(state, cache.options(), segment, values, lease.bindings(), update);
    if (compared && status == SegmentStatus::Eager && !update.interrupt && !update.disturbed) compared->fell_back();
    if (status == SegmentStatus::OtherPath) {
      decisions.meet(std::move(update.decisions));
      const SegmentStatus signals = look_for_signals(cache.options(), values);
      if (signals != SegmentStatus::Done) return signals == SegmentStatus::Eager ? Frameless::Eager : Frameless::Done;
      search.restart();  // the call has other decisions now
      continue;
    }
    if (status == SegmentStatus::Retrace) {
      drop(state, cache, 0, segment);
      return Frameless::NoSegment;
    }
    if (status == SegmentStatus::Eager && !segment.conditions.empty() && !update.interrupt)
      return Frameless::NoSegment;  // perhaps another path: see drive()
    if (update.outdated) drop(state, cache, 0, segment);
    past = std::move(update.past);
    result = status == SegmentStatus::Done ? update.result.release() : nullptr;
    return status == SegmentStatus::Eager ? Frameless::Eager : Frameless::Done;
  }
  place.note_served();
  if (!all || !may_refuse) return Frameless::NoSegment;
  search.found_none();
  place.refused++;
  return Frameless::Eager;
}

}  // namespace

PyObject* run_entered_frame(FunctionState& state, PyThreadState* thread, FjFrame* frame) {
  const std::shared_ptr<CodeCache> cache =
      cache_for(state, fj_frame_code(frame));  // held: the state may drop it meanwhile
  if (cache && !cache->options().disable) return drive(state, *cache, thread, frame, 0);
  fj_leave_recursion(thread);
  return fj_pass_frame(thread, frame, 0);
}

bool report_internal(FunctionState& state, const Options& options, const std::string& what) {
  PyErr_Clear();
  state.events->fallback(state.name, what, true);
  if (!options.strict) return false;
  PyErr_SetString(error_type(ErrorKind::Error), (state.name + ": " + what).c_str());
  return true;
}

bool runs_eagerly() { return is_eager(*fj_stack(PyThreadState_Get())); }

std::string why_eager() {
  return runs_eagerly() ? "it is called while framejit traces or in what framejit.disable marks" : fallback_reason;
}

EagerScope::EagerScope() {
  PyThreadState* const thread = PyThreadState_Get();
  fj_begin_stack(thread);
  fj_stack(thread)->eager_depth++;
}
EagerScope::~EagerScope() { fj_stack(PyThreadState_Get())->eager_depth--; }
TracedScope::TracedScope() : outer_(std::exchange(fj_stack(PyThreadState_Get())->eager_depth, 0)) {}
TracedScope::~TracedScope() { fj_stack(PyThreadState_Get())->eager_depth = outer_; }
TracingScope::TracingScope() : outer_(std::exchange(tracing, fj_stack(PyThreadState_Get())->root)) {}
TracingScope::~TracingScope() { tracing = outer_; }

PyObject* call_compiled(FunctionState& state, PyFunctionObject* function, PyObject* const* args, std::size_t nargsf,
                        PyObject* kwnames) {
  auto* callable = reinterpret_cast<PyObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  PyThreadState* thread = PyThreadState_Get();
  totals().calls++;
  const CStack stack = c_stack();
  if (stack == CStack::Full) {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded while calling a Python object");
    return nullptr;
  }
  const std::span<PyObject* const> given = given_to_call(args, PyVectorcall_NARGS(nargsf), kwnames);
  if (is_left(state, thread, code, given, kwnames)) return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (stack == CStack::Short || is_eager(*fj_stack(thread)) || fj_self_check() != nullptr ||
      (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || fj_code_observed(thread, code))
    return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  const std::shared_ptr<CodeCache>& found = cache_for(state, code);
  if (!found || found->options().disable) return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  if (found->beside_python() && !is_beside_python()) [[unlikely]]
    return call_beside_python(state, function, args, nargsf, kwnames);

  if (found->judgement.cpythons) [[unlikely]] {
    const bool alike = kwnames == nullptr && given.size() == std::size_t(code->co_argcount);
    found->judge_again(magnitude(given), alike ? kinds_of(given) : found->judgement.kinds);
    if (found->judgement.cpythons) return PyObject_Vectorcall(callable, args, nargsf, kwnames);
  }

  PyObject* result = nullptr;
  const std::uint64_t entered = found->place(0).compares ? comparison_clock(ClockAsked::Entered) : 0;
  if (found->place(0).frameless) {
    std::optional<ComparedCall> compared;
    std::vector<PastCall> past;
    switch (call_without_frame(state, *found, function, args, PyVectorcall_NARGS(nargsf), kwnames, result, entered,
                               compared, past)) {
      case Frameless::Done:
        if (compared && result != nullptr) [[unlikely]] compared->finished();
        return result;
      // With a frame `drive` would find the same segment.
      case Frameless::Eager: {
        std::optional<ReachScope> own_account;  // as in `drive`
        if (fj_installed_hook(thread) != nullptr) own_account.emplace(thread, nullptr);
        const Replay replay(thread, std::move(past));
        result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
        if (compared && result != nullptr) compared->finished();
        fallback_reason.clear();
        return result;
      }
      case Frameless::NoSegment: break;
    }
  }
  Entering entering{state, cache_for(state, code), entered};
  return fj_call_with_evaluator(thread, callable, args, nargsf, kwnames, run_frame, &entering);
}

}  // namespace fj
