#include "frame_hook/compared_call.h"

#include <chrono>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "frame_hook/backends.h"
#include "frame_hook/loops/loop_account.h"
#include "runtime/profile.h"

namespace fj {
namespace {

/// An eager run needs room for the values of the graph that are there at once; a compiled one may have none of them.
constexpr std::int64_t kComparedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kComparedBytesInAll = 16 * kComparedBytes;  // they may all have names
constexpr std::size_t kComparedNodes = 1024;

/// By node: it makes new contents of an input of which a part is written, for which eager has no array. Views alone are
/// no write.
std::vector<bool> updates_of_inputs(const Segment& segment) {
  const Graph& graph = *segment.graph;
  std::vector<int> node_of(graph.value_count(), -1);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId result : graph.nodes[n].results) node_of[result.index] = int(n);
  std::vector<bool> found(graph.nodes.size());
  for (const Write& write : graph.writes) {
    std::vector<int> path;
    bool updates = false;
    for (int n = node_of[write.value.index]; n >= 0;) {
      const Node& node = graph.nodes[std::size_t(n)];
      int base = 0;
      bool known = true;
      switch (node.op) {
        case Op::reshape: case Op::transpose: break;
        case Op::slice_update: case Op::scatter: case Op::scatter_add: updates = true; break;
        case Op::extern_call: {
          const std::vector<int>& mutated = (*segment.externs)[node.attrs.get<std::int64_t>("handle")].mutated;
          known = mutated.size() == 1;
          base = known ? mutated[0] : 0;
          updates = updates || known;
          break;
        }
        default: known = false;
      }
      if (!known) break;
      path.push_back(n);
      n = node_of[node.operands[std::size_t(base)].index];
    }
    for (int n : path) found[std::size_t(n)] = found[std::size_t(n)] || updates;
  }
  return found;
}

/// Whether CPython may run the piece in place of compiled. What runs on a device takes no time of the caller's that
/// could be compared, and what waits for others takes theirs.
bool is_comparable(const Segment& segment) {
  return segment.device == kHost && !segment.derivative && !segment.eager_gradient && !segment.ran_backward &&
         !segment.told_compiled && !segment.edited && segment.conditions.empty() &&
         !(segment.externs && segment.externs->once()) &&
         !(segment.graph && segment.graph->nodes.size() > kComparedNodes);
}

bool has_room(const Segment& segment, std::span<const std::int64_t> found) {
  if (!segment.graph) return true;
  const Graph& graph = *segment.graph;
  std::vector<std::int64_t> symbols = symbol_hints(graph.symbols);
  std::copy_n(found.begin(), std::min(found.size(), symbols.size()), symbols.begin());
  const auto bytes_of = [&](ValueId value) {
    const Type& type = graph.type(value);
    std::int64_t bytes = std::int64_t(size_in_bytes(type.dtype));
    for (const SymDim& size : type.shape)
      if (__builtin_mul_overflow(bytes, size.evaluate(symbols), &bytes)) return kComparedBytes + 1;
    return std::min(bytes, kComparedBytes + 1);
  };
  std::vector<std::size_t> last(graph.value_count(), 0);  // behind the node that reads it last
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId result : graph.nodes[n].results) last[result.index] = n + 1;
    for (ValueId operand : graph.nodes[n].operands) last[operand.index] = n + 1;
  }
  for (const Output& output : graph.outputs) last[output.value.index] = graph.nodes.size();
  for (const Write& write : graph.writes) last[write.value.index] = graph.nodes.size();
  std::vector<std::int64_t> freed(graph.nodes.size() + 1);
  const std::vector<bool> updates = updates_of_inputs(segment);
  std::int64_t bytes = 0, all = 0;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    bytes -= freed[n];
    if (updates[n]) continue;
    for (ValueId result : graph.nodes[n].results) {
      const std::int64_t more = bytes_of(result);
      bytes += more;
      freed[last[result.index]] += more;
      all += more;
      if (bytes > kComparedBytes || all > kComparedBytesInAll) return false;
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<EagerRaces> races_of(const Segment& segment, const Options& options, bool own_backend) {
  if (!options.retire || options.follow || own_backend || options.backend == "reference" ||
      !is_builtin_backend(options.backend))
    return nullptr;
  // CPython can take over where the frame has not begun.
  if (segment.start_instruction != 0 || segment.passes != 0 || !is_comparable(segment)) return nullptr;
  return std::make_unique<EagerRaces>(!segment.covers_function || (segment.graph && !segment.graph->symbols.empty()));
}

int size_class(const Segment& segment, const FrameValues& values, const GuardBindings& bindings) {
  if (!segment.races->sized()) return 0;
  double symbols = 0;  // sizes of arrays that are no arguments
  for (std::int64_t symbol : bindings.symbols) symbols += std::abs(double(symbol));
  return EagerRaces::size_class(magnitude(values.slots) + std::int64_t(std::min(symbols, 1e18)));
}

ComparedCall::ComparedCall(const FunctionState& state, std::shared_ptr<const Segment> segment, int size,
                           std::span<const std::int64_t> symbols, std::uint64_t entered)
    : segment_(std::move(segment)),
      events_(state.events),
      name_(state.name),
      size_(size),
      thread_(PyThreadState_Get()) {
  fj_begin_stack(thread_);
  outer_ = std::exchange(fj_stack(thread_)->compared, this);
  // A profiler's own clocks weigh in what it measures.
  if (is_profiling() || torch_recorded()) return;
  if (has_room(*segment_, symbols))
    turn_ = segment_->races->race(size_).next();
  else
    decide(EagerRace::Verdict::Keep);
  if (is_timed()) began_ = entered != 0 && !eagerly() ? entered : comparison_clock(ClockAsked::Begun);
}

ComparedCall::~ComparedCall() { fj_stack(thread_)->compared = outer_; }

bool ComparedCall::is_open() const {
  return segment_->races && segment_->races->verdict(size_) == EagerRace::Verdict::Open;
}

void ComparedCall::decide(EagerRace::Verdict verdict) {
  if (verdict == EagerRace::Verdict::Open) return;
  EagerRaces& races = *segment_->races;
  const std::string text = verdict == EagerRace::Verdict::Retire ? races.race(size_).text() : "";
  const bool fresh = races.decide(size_, verdict);
  if (verdict == EagerRace::Verdict::Keep && !races.sized()) segment_->races.reset();
  if (fresh && verdict == EagerRace::Verdict::Retire) events_->retire(name_, text);
}

void ComparedCall::meet(const Segment& piece, std::span<const std::int64_t> symbols) {
  for (auto* call = static_cast<ComparedCall*>(fj_stack(PyThreadState_Get())->compared); call != nullptr;
       call = static_cast<ComparedCall*>(call->outer_))
    call->meets(piece, symbols);
}

void ComparedCall::meets(const Segment& piece, std::span<const std::int64_t> symbols) {
  if (&piece == segment_.get() || !is_open()) return;
  if (!is_comparable(piece)) return segment_->races.reset();
  // The calls before the first timed one have met the sizes that there are, mostly; in a timed one it takes time.
  if (turn_ == EagerRace::Turn::Untimed && !has_room(piece, symbols)) decide(EagerRace::Verdict::Keep);
}

void ComparedCall::ran_passes(std::int64_t passes) {
  for (auto* call = static_cast<ComparedCall*>(fj_stack(PyThreadState_Get())->compared); call != nullptr;
       call = static_cast<ComparedCall*>(call->outer_))
    call->passes_ += passes;
}

void ComparedCall::fell_back() {
  turn_ = EagerRace::Turn::Untimed;
  if (is_open()) decide(segment_->races->race(size_).fell_back());
}

void ComparedCall::finished() {
  if (!is_open()) return;
  const auto whole = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - constructed_);
  if (passes_ > 0 && EagerRace::wins_by_passes(passes_, whole.count())) return decide(EagerRace::Verdict::Keep);
  if (is_timed()) decide(segment_->races->race(size_).took(turn_, comparison_clock(ClockAsked::Ended) - began_));
}

}  // namespace fj
