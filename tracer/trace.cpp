/// `trace`: run, and on a break run again with the order to stop before the breaking step, where the exit is built.
///
/// Tracing is deterministic, so step n of one run is step n of the next. A break inside a loop that was entered in this
/// trace moves the stop to the loop's header, so that the loop body becomes a segment of its own.
#include <algorithm>
#include <optional>
#include <new>
#include <utility>

#include "cpython/pending_error.h"
#include "graph_ir/pipeline.h"
#include "runtime/base/error.h"
#include "runtime/base/phase.h"
#include "segment/finalizers.h"
#include "tracer/branches.h"
#include "tracer/exits/exit_builder.h"
#include "tracer/frontends/acceptance.h"
#include "tracer/interpreter/loops.h"
#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"
#include "tracer/values/standard_callables.h"

namespace fj {

namespace {

/// The step to stop before when step `step` breaks: itself, or the first passage of the header of the outermost loop
/// around it that the trace entered.
struct Stop {
  int step;
  bool loop;
};
Stop stop_for(const FjCode& code, const std::vector<int>& step_pc, int step) {
  Stop stop{step, false};
  const int pc = step_pc[step];
  for (const Loop& loop : loops_of(code)) {
    if (!loop.contains(pc)) continue;
    // Going back from the break while the trace was inside this loop.
    int first = -1;
    for (int i = step - 1; i >= 0 && loop.contains(step_pc[i]); --i)
      if (step_pc[i] == loop.header && i > 0) first = i;
    if (first >= 0 && first < stop.step) stop = {first, true};
  }
  return stop;
}

/// How many passes of a loop the piece is that begins and ends at its header, whatever its iterator's position is.
int whole_passes(const TraceRequest& request, const Segment& segment, const std::vector<int>& step_pc) {
  if (!request.passes || segment.exit.instruction != request.start_instruction) return 0;
  const auto& guards = segment.guards->all();
  const auto position = std::find_if(guards.begin(), guards.end(), [](const Guard& guard) {
    const Source* const of = guard.source;
    return guard.kind == GuardKind::IntSymbol && of->kind == SourceKind::RangePart && of->index == 0;
  });
  if (position == guards.end()) return 0;
  const auto has_position = [&](const SymDim& size) {
    const std::vector<SymbolId> symbols = size.symbols();
    return std::find(symbols.begin(), symbols.end(), position->symbol) != symbols.end();
  };
  // A position that has to be a certain one is another piece for each.
  const bool fixed = std::any_of(guards.begin(), guards.end(), [&](const Guard& guard) {
    return guard.kind == GuardKind::Relation && guard.number == Py_EQ &&
           (has_position(*guard.left) || has_position(*guard.right));
  });
  if (fixed) return 0;
  return int(std::count(step_pc.begin(), step_pc.end(), request.start_instruction)) - 1;
}

Exit exit_at(const TraceRequest& request, int instruction, Exit::Kind kind) {
  Exit exit;
  exit.kind = kind;
  exit.instruction = instruction;
  auto* code = reinterpret_cast<PyCodeObject*>(request.code->code);
  exit.file = text_of(code->co_filename);
  exit.function = text_of(code->co_qualname);
  exit.line = request.code->instrs[instruction].line;
  return exit;
}

/// Leaves the frame as it is and does nothing.
std::unique_ptr<Segment> empty_segment(const TraceRequest& request, Exit exit) {
  auto segment = std::make_unique<Segment>();
  segment->guards = std::make_unique<GuardSet>(std::make_shared<SourceTable>());
  segment->recipe.slots.assign(request.values.slots.size(), -1);
  segment->recipe.keep.assign(request.values.slots.size(), true);
  segment->exit = std::move(exit);
  return segment;
}

/// An output of its own without a node is a copy.
bool has_array_work(const Segment& segment) {
  return segment.graph &&
         (!segment.graph->nodes.empty() || !segment.graph->writes.empty() || !segment.graph->outputs.empty());
}

constexpr std::size_t kIdleGuards = 32;

/// For a piece that does nothing, which is right whatever the values are: for other types of values it is traced again,
/// for other values not. The first types tell what there is to tell: a list of a thousand numbers is not looked through
/// at each call.
std::unique_ptr<GuardSet> loosened(const GuardSet& guards, std::shared_ptr<SourceTable> sources) {
  auto loose = std::make_unique<GuardSet>(std::move(sources));
  for (const Guard& guard : guards.all()) {
    if (loose->all().size() == kIdleGuards) break;
    const bool is_value = guard.kind == GuardKind::Equals && guard.object;
    if (guard.kind != GuardKind::TypeIs && !is_value) continue;
    Guard type;
    type.kind = GuardKind::TypeIs;
    type.source = guard.source;
    type.location = guard.location;
    type.object = is_value ? Ref<>::borrow(reinterpret_cast<PyObject*>(Py_TYPE(guard.object.get())))
                  : guard.object ? guard.object : Ref<>::steal(fj_weakly_held(guard.weak.get()));
    loose->add(std::move(type));
  }
  return loose;
}

/// What the code does if torch's questions whether it is compiled are answered `told`.
struct Way {
  bool told;
  bool decided;                     // no other way will be taken
  bool asked = false;               // one of these questions was asked
  bool beside_modules = false;      // and, in the last run, outside of the modules that are called
  std::optional<Exit> first_break;  // of the first run, which goes furthest
  bool unedited = false;            // the user's edit has not been given the piece
  bool breaks_once = false;         // at a cached function: by the next call its cache holds the result
};

std::unique_ptr<Segment> trace_way(const TraceRequest& request, Way& way) {
  DecodeCache decodes;
  Learnt learnt;
  learnt.torch_is_compiling = way.told;
  int stop_step = -1;
  Exit exit;
  while (true) {
    way.breaks_once = !learnt.empty_caches.empty();
    if (stop_step == 0 && !way.breaks_once) return empty_segment(request, std::move(exit));
    if (request.record) request.record->clear();
    TraceRun tracer(request, decodes, learnt, stop_step);
    int broke_at = -1;
    std::optional<Exit> fresh;
    try {
      V result = tracer.run();
      if (request.way && request.way->own_results) result = with_own_results(tracer, result);
      way.asked = way.asked || tracer.asked_torch;
      way.beside_modules = tracer.asked_beside_modules;
      tracer.unedited = way.unedited = way.told && !way.decided;
      auto segment = build_return(tracer, result);
      segment->exit = exit_at(request, request.start_instruction, Exit::Kind::Return);
      if (!has_array_work(*segment) || !(tracer.uses_torch || tracer.uses_numpy)) {
        // Nothing to compile for such values, or numbers alone; for others there may be.
        auto idle = empty_segment(request, exit_at(request, request.start_instruction, Exit::Kind::Handover));
        idle->guards = request.many || segment->guards->all().size() > kIdleGuards
                           ? loosened(*segment->guards, tracer.sources_)
                           : std::move(segment->guards);
        return idle;
      }
      segment->covers_function = request.start_instruction == 0;
      return segment;
    } catch (const StopReached&) {
      try {
        ask_empty_caches(tracer);
        way.beside_modules = tracer.asked_beside_modules;
        tracer.unedited = way.unedited = way.asked && !way.decided;
        auto segment = build_stop(tracer, exit);
        segment->passes = whole_passes(request, *segment, tracer.step_pc);
        return segment;
      } catch (const CannotRebuildValue& failure) {
        broke_at = std::min(failure.born, stop_step - 1);
        fresh.emplace();
        fresh->reason = failure.reason;
        fresh->detail = failure.what;
      } catch (const BreakGraph& failure) {
        broke_at = stop_step - 1;
        fresh.emplace();
        fresh->reason = failure.reason;
        fresh->detail = failure.detail;
      }
    } catch (const TraceAgain&) {
      PyErr_Clear();
      continue;
    } catch (const CannotRebuildValue& failure) {
      broke_at = std::clamp(failure.born, 0, std::max(0, tracer.step));
      fresh.emplace();
      fresh->reason = failure.reason;
      fresh->detail = failure.what;
    } catch (const BreakGraph& failure) {
      broke_at = std::max(0, tracer.step);
      fresh.emplace();
      fresh->reason = failure.reason;
      fresh->detail = failure.detail;
    }
    PyErr_Clear();
    way.asked = way.asked || tracer.asked_torch;
    if (request.follow) {
      // No piece of it is of use: where and why it broke is all that is wanted.
      exit = *fresh;
      exit.kind = Exit::Kind::Break;
      const Exit start = exit_at(request, request.start_instruction, Exit::Kind::Break);
      exit.file = tracer.break_location ? tracer.break_location->file : start.file;
      exit.line = tracer.break_location ? tracer.break_location->line : start.line;
      exit.function = tracer.break_location ? tracer.break_function : start.function;
      exit.calls = tracer.break_calls;
      way.first_break = exit;
      return empty_segment(request, std::move(exit));
    }
    FJ_CHECK(stop_step < 0 || broke_at < stop_step, "a retrace went further than the trace before");
    if (tracer.step_pc.empty()) {
      // The values themselves can't be looked at (a torch mode is on, say): CPython's, as long as the guards so far
      // hold.
      auto segment = empty_segment(request, exit_at(request, request.start_instruction, Exit::Kind::Handover));
      segment->exit.reason = fresh->reason;
      segment->exit.detail = fresh->detail;
      segment->guards = std::move(tracer.guards_);
      return segment;
    }
    FJ_CHECK(broke_at < int(tracer.step_pc.size()), "a break after the last instruction");
    const bool ends_piece = request.passes && fresh->reason == BreakReason::LoopTooLong && broke_at > 0 &&
                            tracer.step_pc[std::size_t(broke_at)] == request.start_instruction;
    const Stop stop = ends_piece ? Stop{broke_at, true} : stop_for(*request.code, tracer.step_pc, broke_at);
    stop_step = stop.step;
    const Exit place = exit_at(request, tracer.step_pc[stop_step], stop.loop ? Exit::Kind::Loop : Exit::Kind::Break);
    const FjInstr& at = request.code->instrs[place.instruction];
    exit = *fresh;
    exit.kind = place.kind;
    exit.region = tracer.meets_region;
    exit.instruction = place.instruction;
    if (tracer.break_location) {
      exit.file = tracer.break_location->file;
      exit.line = tracer.break_location->line;
      exit.function = tracer.break_function;
      exit.calls = tracer.break_calls;
    } else {
      exit.file = place.file;
      exit.line = place.line;
      exit.function = place.function;
    }
    // A loop over an iterator that runs already, or too long a one, is no break: its body has a segment of its own.
    if (at.opcode == FJ_FOR_ITER && exit.reason == BreakReason::LoopTooLong) exit.kind = Exit::Kind::Loop;
    // Nor is the bookkeeping of an exception that was raised: the raise was the break.
    constexpr int kHandling[] = {FJ_PUSH_EXC_INFO, FJ_CHECK_EXC_MATCH, FJ_CHECK_EG_MATCH, FJ_POP_EXCEPT,
                                 FJ_WITH_EXCEPT_START};
    if (std::find(std::begin(kHandling), std::end(kHandling), at.opcode) != std::end(kHandling))
      exit.kind = Exit::Kind::Loop;
    if (!way.first_break) way.first_break = exit;
  }
}

/// A long loop is none: its body is captured too.
bool is_break(const Exit& exit) {
  return (exit.kind == Exit::Kind::Break && !exit.region) ||
         (exit.kind == Exit::Kind::Loop && exit.reason != BreakReason::LoopTooLong);
}

/// Whether the way breaks where the program raises an error.
bool raises(const Way& way) {
  return way.first_break && (way.first_break->reason == BreakReason::Raise ||
                             way.first_break->reason == BreakReason::ErrorWhileTracing);
}

/// The same, or does so for all that is known: what stands in for the arguments is refused.
bool may_raise(const Way& way) {
  return raises(way) || (way.first_break && way.first_break->detail.find(kRefused) != std::string::npos);
}

/// Whether what is told of a compiler keeps to itself what it makes of that. A module does, whose call is whole in the
/// piece, and so does what the user compiles if it is one piece. Another one hands its values (a mask where eager code
/// has none) to code that is told nothing.
bool keeps_to_itself(const TraceRequest& request, const Way& told, bool whole) {
  if (!told.beside_modules) return true;
  if (!whole || request.start_instruction != 0) return false;
  return !request.reached || text_of(request.function->func_name) == "forward";
}

/// Whether the code is to be compiled as it runs when it is told of a compiler: this goes further than CPython's way,
/// not past an error of that one, and has no error of its own. What it changes besides (masks left out, other sizes) is
/// nothing that eager code does. As far is further where it breaks in this call alone: the next call traces it again.
bool goes_further(const TraceRequest& request, const Way& told, const Segment& there, const Way& eager,
                  const Segment& here) {
  if (there.exit.kind == Exit::Kind::Handover) return !has_array_work(here);  // CPython runs it, and is told nothing
  if (there.eager_gradient) return false;                                     // nor is it where torch has to derive
  if (may_raise(told) && told.first_break->instruction != eager.first_break->instruction) return false;
  const bool whole = there.exit.kind == Exit::Kind::Return;
  if (!keeps_to_itself(request, told, whole)) return false;
  if (raises(eager) && (whole || there.exit.instruction > eager.first_break->instruction)) return false;
  if (whole || there.exit.instruction > here.exit.instruction) return true;
  return told.breaks_once && there.exit.instruction == here.exit.instruction;
}

/// Torch's questions whether code is compiled are answered as in CPython. Where that way breaks, the code is told of a
/// compiler in one more trace: public model code keeps away from values then.
std::unique_ptr<Segment> trace_segment(const TraceRequest& request) {
  Way way{request.torch_is_compiling.value_or(false), request.torch_is_compiling.has_value()};
  auto segment = trace_way(request, way);
  if (!way.decided && way.asked && is_break(segment->exit)) {
    Way told{true, false};
    if (auto there = trace_way(request, told); goes_further(request, told, *there, way, *segment)) {
      segment = std::move(there);
      way = std::move(told);
    }
  }
  if (!request.edit || !way.unedited) return segment;
  Way chosen{way.told, true};
  return trace_way(request, chosen);
}

}  // namespace

namespace {

/// Before the tracer holds references of its own.
std::vector<bool> fragile_slots(const FrameValues& values) {
  std::vector<bool> fragile;
  for (PyObject* object : values.slots) {
    const Drop drop{object, std::count(values.slots.begin(), values.slots.end(), object)};
    fragile.push_back(object && (has_finalizer(object) || !drops_quietly({&drop, 1})));
  }
  return fragile;
}

}  // namespace

TraceResult trace(const TraceRequest& given) {
  TraceResult result;
  TraceRequest request = given;
  request.fragile = fragile_slots(request.values);
  const PendingError pending;
  try {
    {
      const PhaseTimer timer(Phase::trace);
      result.segment = trace_segment(request);
      Exit& exit = result.segment->exit;
      // A branch in a loop ends the piece at the loop.
      const bool ends = exit.kind == Exit::Kind::Break || exit.kind == Exit::Kind::Loop;
      if (request.branches && ends && exit.reason == BreakReason::BranchOnData) {
        std::string why;
        auto joined = trace_ways(request, why, trace_segment);
        if (joined && joined->derivative && !request.copies_results) {
          // It saves for all ways: a write into what the way taken has not saved would be an error of backward.
          why = "a derivative goes through it";
          joined = nullptr;
        }
        if (joined)
          result.segment = std::move(joined);
        else
          exit.detail += "; both ways are not in one graph: " + why;
      }
    }
    if (has_array_work(*result.segment)) {
      const PhaseTimer timer(Phase::passes);
      optimise(*result.segment->graph, result.segment->collects != 0);
    }
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the trace: a later call may have more memory
  } catch (const std::exception& failure) {
    result.internal_error = failure.what();
    Exit exit = exit_at(request, request.start_instruction, Exit::Kind::Handover);
    exit.reason = BreakReason::InternalFailure;
    exit.detail = failure.what();
    result.segment = empty_segment(request, std::move(exit));
  }
  Segment& segment = *result.segment;
  segment.start_instruction = request.start_instruction;
  if (!has_array_work(segment)) segment.graph = nullptr;
  segment.guards->seal();
  segment.settle();
  return result;
}

}  // namespace fj
