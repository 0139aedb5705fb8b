// Start at compile_segment: what is noted of the misses before, the request for the tracer, the budget.
#include "frame_hook/compile_segment.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "arrays/arrays.h"
#include "cpython/signals.h"
#include "frame_hook/backends.h"
#include "frame_hook/c_stack.h"
#include "frame_hook/cache/savings.h"
#include "frame_hook/cache/segment_bytes.h"
#include "frame_hook/compared_call.h"
#include "frame_hook/graphs/graph_passes.h"
#include "frame_hook/loops/loop_account.h"
#include "frame_hook/python_sinks.h"
#include "runtime/base/budget.h"
#include "runtime/base/error.h"
#include "runtime/base/phase.h"

namespace fj {
namespace {

/// Notes for the next trace the leaves that can be generalised, if everything that failed is one.
void generalise(Generalisations& target, const std::vector<GuardSet::Failure>& failures) {
  // A question that has been answered otherwise leaves what it is about as general as it is.
  auto is_answer = [](const Guard& guard) {
    return guard.source->kind == SourceKind::Result &&
           (guard.kind == GuardKind::Equals || guard.kind == GuardKind::TypeIs);
  };
  auto is_plain_value = [](const Guard& guard) {
    PyObject* object = guard.object.get();
    if (guard.kind == GuardKind::Equals)
      return object && (PyLong_CheckExact(object) || PyFloat_Check(object) || PyUnicode_CheckExact(object));
    return guard.kind == GuardKind::Identity && object &&
           numpy_scalar_dtype(object);  // one object of many that may be equal
  };
  for (const auto& failure : failures) {
    if (failure.guard == nullptr || failure.guard->source == nullptr) return;
    const bool sizes = failure.guard->kind == GuardKind::Array && !failure.axes.empty();
    if (!sizes && !is_plain_value(*failure.guard) && !is_answer(*failure.guard) &&
        failure.guard->kind != GuardKind::Length)
      return;
  }
  for (const auto& failure : failures) {
    const std::string source = failure.guard->source->text();
    if (failure.guard->kind == GuardKind::Length) target.lengths.push_back(source);
    if (is_plain_value(*failure.guard)) target.sources.push_back(source);
    for (int axis : failure.axes) target.dimensions.emplace_back(source, axis);
  }
}

constexpr std::size_t kFoundKept = 4;  // values of one leaf that the table of misses shows

void note_miss(Place& place, const GuardSet::Failure& failure) {
  const std::string leaf = failure.guard && failure.guard->source ? failure.guard->source->text()
                           : failure.guard                        ? failure.guard->text()
                                                                  : failure.expected;
  auto known =
      std::find_if(place.misses.begin(), place.misses.end(), [&](const auto& miss) { return miss.leaf == leaf; });
  if (known == place.misses.end()) {
    place.misses.push_back({leaf, failure.guard ? failure.guard->location : "", {}, 0});
    known = place.misses.end() - 1;
  }
  known->count++;
  if (known->found.size() < kFoundKept) known->found.push_back(failure.found);
}

/// Said once, when a place makes no further piece: what kept changing.
std::string misses_text(const Place& place, std::int64_t limit) {
  std::string text = "recompile_limit (" + std::to_string(limit) +
                     ") reached by pieces that have not saved what compiling them took: other arguments run eagerly";
  for (const auto& miss : place.misses) {
    text += "\n  " + miss.leaf + " missed " + std::to_string(miss.count) + (miss.count == 1 ? " time: " : " times: ");
    for (std::size_t i = 0; i < miss.found.size(); i++) text += (i ? ", " : "") + miss.found[i];
    if (std::size_t(miss.count) > miss.found.size()) text += ", ...";
    if (!miss.location.empty()) text += "  (" + miss.location + ")";
  }
  return text;
}

void record_segment(FunctionState& state, const std::shared_ptr<const Segment>& recorded, double seconds) {
  const Segment& segment = *recorded;
  totals().segments++;
  if (segment.graph) {
    GraphEvent event;
    event.function = state.name;
    event.graph = segment.graph;
    event.nodes = int(segment.graph->nodes.size());
    event.kernels = segment.program ? segment.program->kernel_count() : 0;
    event.segment = recorded;
    event.seconds = seconds;
    event.timings = text(take_phases());
    state.events->graph(std::move(event), segment.program.get());
  }
  if (segment.exit.kind == Exit::Kind::Break && !segment.exit.region) state.events->graph_break(segment);
}

/// fullgraph, follow: a break is an error that explains itself.
bool refuse_break(const Segment& segment, bool followed) {
  const BreakEvent event(segment);
  PyErr_SetString(error_type(ErrorKind::GraphBreak), (followed ? event.refusal() : event.complaint()).c_str());
  return true;
}

thread_local int warming_up = 0;

/// What the option on_recompile says where pieces are there and none fits. Nullopt: a piece is compiled.
std::optional<Compiled> at_recompile(FunctionState& state, const Options& options, const Place& place,
                                     const FrameValues& values, int instruction) {
  if (place.segments.empty() || warming_up || options.on_recompile == "compile" || options.follow) return std::nullopt;
  if (instruction == 0 && torch_observed()) return std::nullopt;  // it runs as eager
  std::optional<GuardSet::Failure> failure;
  for (std::size_t i = 0; i < place.segments.size() && !failure; ++i)
    failure = place.segments[place.in_order(i)]->guards->first_failure(values);
  if (!failure) return std::nullopt;
  const std::string cause = RecompileEvent(state.name, *failure).cause();
  if (options.on_recompile == "eager") {
    state.events->fallback(state.name, "no compiled piece fits, and on_recompile is \"eager\"" + cause);
    return Compiled{};
  }
  const std::string text = "framejit: no compiled piece of " + state.name + " fits this call" + cause +
                           "\n  try   framejit.warm_up with such arguments first; dynamic=True where sizes change";
  if (options.on_recompile == "warn")
    return PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0 ? std::optional(Compiled{nullptr, true})
                                                                    : std::nullopt;
  PyErr_SetString(error_type(ErrorKind::Recompile), text.c_str());
  return Compiled{nullptr, true};
}

constexpr std::int64_t kPiecesOfPasses = 4;  // of one loop, for other types of its variables

/// A piece of so few operations is not cut any further.
constexpr int kFewestNodes = 8;

/// One try to make the piece that `request` asks for. `nodes`: how many operations it has, once that is known. Throws
/// OverBudget.
Compiled compile_request(FunctionState& state, CodeCache& cache, const Options& options, int entry,
                         const TraceRequest& request, PyObject* callable, int& nodes, bool joined) {
  const FrameValues& values = request.values;
  Place& place = cache.place(entry);
  const auto start = std::chrono::steady_clock::now();
  TraceResult traced = trace(request);
  if (!traced.internal_error.empty()) {
    place.exhausted = !joined;
    return {nullptr, report_internal(state, options, traced.internal_error)};
  }
  Segment& segment = *traced.segment;
  if (request.passes && segment.passes < 2) return {nullptr, false, true};
  if (joined && (segment.exit.kind != Exit::Kind::Return || segment.eager_gradient || !segment.graph)) {
    if (segment.exit.kind == Exit::Kind::Break && log_enabled(Artifact::graph_breaks, state.name))
      log(Artifact::graph_breaks, BreakEvent(segment).text());
    return {};
  }
  if (segment.graph) nodes = int(segment.graph->nodes.size());
  if (options.follow &&
      (segment.exit.reason == BreakReason::Raise || segment.exit.reason == BreakReason::ErrorWhileTracing))
    return {};
  const bool whole = segment.exit.kind == Exit::Kind::Return || needs_no_graph(segment);
  if ((options.fullgraph || options.follow) && !whole) return {nullptr, refuse_break(segment, options.follow)};
  if (options.follow && segment.eager_gradient) {
    segment.exit.reason = BreakReason::Gradient;
    segment.exit.detail =
        "a tensor that requires a gradient reaches the result, whose derivative has no rule; detach() it";
    return {nullptr, refuse_break(segment, true)};
  }
  if (segment.edited && segment.eager_gradient) {
    PyErr_Format(error_type(ErrorKind::Error),
                 "framejit: a result of the edited graph of `%s` needs a gradient that the graph can't give: an operation "
                 "without a derivative, or an array that is written; call it under torch.no_grad() or with tensors that "
                 "are detached",
                 state.name.c_str());
    return {nullptr, true};
  }
  std::size_t code_bytes = 0;
  if (segment.graph && !segment.program && !segment.eager_gradient) {
    if (phase_watcher != nullptr) phase_watcher->at("code");
    segment.program = compile_graph(segment, values, options, callable, code_bytes);
  }
  segment.bytes = bytes_of(segment, code_bytes, cache.decoded());
  segment.races = races_of(segment, options, callable != nullptr || state.passes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::shared_ptr<const Segment> published = std::move(traced.segment);
  if (published->derivative)
    published->derivative->compile_with([options, weak = std::weak_ptr(published), device = published->device](
                                            const Graph& graph) {
      std::size_t kernels = 0;
      auto program = compile_backward(graph, device, options, kernels);
      if (const auto kept = weak.lock()) kept->bytes += bytes_of(graph) + kernels;
      return program;
    });
  record_segment(state, published, seconds.count());
  cache.publish(entry, published);
  return {std::move(published), false};
}

}  // namespace

Options effective_options(const FunctionState& state) {
  Options result = state.options;
  if (!options_overridden()) return result;
  for (std::size_t i = 0; i < option_rows().size(); ++i)
    if (const std::string_view name = option_rows()[i].name; options_given() >> i & 1)
      set_option(result, name, option_text(current_options(), name));
  return result;
}

void begin_warm_up() { ++warming_up; }
void end_warm_up() { --warming_up; }

bool needs_no_graph(const Segment& segment) {
  return segment.exit.kind == Exit::Kind::Handover && segment.exit.reason == BreakReason{};
}

namespace {

/// Whether branches on data may be in its graphs. What else runs those than we do may know none.
bool joins_branches(const FunctionState& state, const Options& options) {
  return options.join_branches.value_or(true) && !options.follow && !state.backend && !state.passes &&
         (options.backend == "auto" || options.backend == "llvm");
}

/// Operations traced to join ways in a call of a function that runs without it.
constexpr int kMostInWays = 4000;
constexpr double kNanosecondsOfBreak = 1500;  // at a branch on data: what another piece costs, about

/// `joined`: see join_ways. Any other piece is none then.
Compiled compile_piece(FunctionState& state, CodeCache& cache, PyThreadState* thread, const FrameValues& values,
                       int entry, const std::vector<bool>& decisions, bool interruptible, bool joined) {
  const int instruction = cache.instruction_of(entry);
  Place& place = cache.place(entry);
  if (cache.compiling) return {};
  std::optional<Options> of_block;
  if (options_overridden()) of_block = effective_options(state);
  const Options& asked = of_block ? *of_block : state.options;  // on_recompile and progress, which are no cache's
  if (auto refused = at_recompile(state, asked, place, values, instruction)) return *std::move(refused);
  // Passes that need a piece each are worth none.
  const bool several = entry != instruction;
  const auto made = std::int64_t(place.segments.size());
  if (several && (place.exhausted || made >= kPiecesOfPasses || made >= cache.options().recompile_limit))
    return {nullptr, false, true};
  if (place.exhausted || place.memory.waits()) return {};
  Options options = cache.options();
  if (warming_up && options.tier == "auto") options.tier = "optimised";
  const HeldSignals held;
  // The call runs as eager, and so that nobody sees what tracing tries out. A mode that the function itself enters
  // ends a piece.
  if (instruction == 0 && !options.follow && torch_observed()) {
    const char* why = torch_modes_refusal();
    if (!why) why = "torch's operations are recorded, by a profiler, and nothing was compiled for this call before";
    if (!state.of_library) state.events->left(state.name, why);
    return {};
  }
  // What follows branches has no other way to run: it is bounded by its bytes only.
  if (!options.follow && !joined && (place.refuses() || !place.may_grow(options.recompile_limit))) {
    if (place.refused++ > 0) return {};
    if (auto failure = place.segments.empty() ? std::nullopt : place.latest().guards->first_failure(values))
      note_miss(place, *failure);
    state.events->fallback(state.name, misses_text(place, options.recompile_limit));
    place.misses.clear();
    return {};
  }
  bool explained = false;
  for (std::size_t i = 0; i < place.segments.size() && !joined; ++i) {
    const auto failures = place.segments[place.in_order(i)]->guards->failures(values);
    if (failures.empty()) continue;
    if (!explained) {
      state.events->recompile(state.name, failures.front());
      note_miss(place, failures.front());
    }
    explained = true;
    if (!options.dynamic.has_value() || *options.dynamic) generalise(place.generalise, failures);
  }

  cache.compiling = true;
  const EagerScope eager;
  const TracingScope tracing;
  struct Done {
    CodeCache& cache;
    ~Done() { cache.compiling = false; }
  } done{cache};
  const WatchedCompilation watched(state.name, asked.progress);
  try {
    deepen_c_stack();
    take_phases();
    TraceRequest request;
    request.thread = thread;
    request.function = values.function;
    request.code = &cache.decoded();
    request.start_instruction = instruction;
    request.values = values;
    request.generalise = place.generalise;
    request.generalise.marks = state.marks;
    request.generalise.all_dynamic = options.dynamic.value_or(false);
    request.generalise.never_dynamic = !options.dynamic.value_or(true);
    request.many = place.segments.size() >= 3;
    request.reached = bool(state.code);
    request.follow = options.follow;
    request.torch_is_compiling = options.torch_is_compiling;
    request.regions = loops_may_leave(state, options);
    request.decisions = decisions;
    request.passes = several;
    for (const CodeCache::JudgedLoop& loop : cache.loops()) {
      if (loop.unrolled) request.unrolled.push_back(loop.header);
      if (loop.regions.are_none(cache.judgement.kinds)) request.without_region.push_back(loop.header);
    }
    PyObject* const callable = options.backend == state.options.backend ? state.backend.get() : nullptr;
    request.generalise.builtin_backend = callable == nullptr && is_builtin_backend(options.backend);
    request.refusal = [&](int device) { return device_refusal(device, options, callable != nullptr); };
    std::vector<RecordedCall> calls;
    request.only_operations = state.only_operations;
    request.branches = state.branches || joined || (options.fullgraph && joins_branches(state, options));
    request.copies_results = state.branches;
    if (joined && !warming_up) request.most_in_ways = kMostInWays;
    if (state.records) request.record = &calls;
    if (state.passes)
      request.edit = [&](Segment& segment, const GuardSet& guards, const SourceTable& sources) {
        return run_passes(state.name, state.passes.get(), segment, {guards, sources, values, calls});
      };
    request.instruction_limit = int(options.instruction_limit);
    for (int nodes = int(options.node_limit);;) {
      request.cut = cache.bearable_nodes < options.node_limit;
      request.node_limit = request.cut ? cache.bearable_nodes : int(options.node_limit);
      try {
        const Budget budget(options.work_limit, interruptible ? fj_signal_waits : nullptr);
        return compile_request(state, cache, options, entry, request, callable, nodes, joined);
      } catch (const OverBudget&) {
        cache.bearable_nodes = std::max(std::min(nodes, request.node_limit) / 4, kFewestNodes);
        if (request.node_limit <= kFewestNodes)
          throw NoProgram{"compiling it takes more than " + std::to_string(options.work_limit) +
                          " steps (the option work_limit)"};
      }
    }
  } catch (const Interrupted&) {
    Compiled nothing;
    nothing.interrupted = true;
    return nothing;
  } catch (const BackendFailure& failure) {
    // The next call asks the back end again: it must not run otherwise without a word.
    fj_restore_exception(Ref<>(failure.error).release());
    return {nullptr, true};
  } catch (const NoProgram& refused) {
    if (joined) return {};
    place.exhausted = true;
    state.events->fallback(state.name, refused.what());
    if (!options.fullgraph && !options.follow) return {};
    PyErr_Format(error_type(ErrorKind::GraphBreak), "framejit: `%s` has no program: %s", state.name.c_str(),
                 refused.what());
    return {nullptr, true};
  } catch (const std::bad_alloc&) {
    PyErr_Clear();
    place.memory.lacked();
    state.events->fallback(state.name, kMemoryRanOut);
    return {};
  } catch (const std::exception& error) {
    place.exhausted = !joined;
    return {nullptr, report_internal(state, options, error.what())};
  }
}

}  // namespace

Compiled compile_segment(FunctionState& state, CodeCache& cache, PyThreadState* thread, const FrameValues& values,
                         int entry, const std::vector<bool>& decisions, bool interruptible) {
  return compile_piece(state, cache, thread, values, entry, decisions, interruptible, false);
}

bool may_join_ways(const FunctionState& state, const CodeCache& cache, const Segment& segment) {
  if (segment.exit.reason != BreakReason::BranchOnData || segment.ways_tried || cache.compiling) return false;
  if (segment.nodes > kMostInWays && !warming_up) return false;
  const Options& options = cache.options();
  if (!joins_branches(state, options)) return false;
  const bool pays = double(cache.data_breaks) * kNanosecondsOfBreak >= compile_nanoseconds(segment);
  return warming_up || ((options.join_branches || pays) && effective_options(state).on_recompile == "compile");
}

bool join_ways(FunctionState& state, CodeCache& cache, PyThreadState* thread, const FrameValues& values,
               const Segment& segment) {
  segment.ways_tried = true;
  cache.data_breaks = 0;
  const Compiled joined = compile_piece(state, cache, thread, values, 0, {}, false, true);
  if (joined.raised || !joined.segment) return !joined.raised;
  state.events->withdraw(segment.graph.get());
  cache.forget(0, &segment);
  return true;
}

}  // namespace fj
