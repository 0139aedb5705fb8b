// What passes save is an estimate: frame_hook/cache/savings.cpp.
#include "frame_hook/loops/loop_account.h"

#include <algorithm>

#include "arrays/arrays.h"
#include "frame_hook/cache/savings.h"
#include "guards/check_program.h"

namespace fj {

namespace {
constexpr double kExecuted = 25;  // nanoseconds of an instruction of the executor, beyond CPython's own
}

bool loops_may_leave(const FunctionState& state, const Options& options) {
  return options.retire && !options.follow && !options.fullgraph && state.backend.get() == nullptr && state.passes.get() == nullptr &&
         (options.backend == "auto" || options.backend == "llvm");
}

std::int64_t magnitude(std::span<PyObject* const> values) {
  double total = 0;
  for (PyObject* value : values) {
    if (value == nullptr) continue;
    ArrayView view;
    if (PyLong_CheckExact(value)) {
      total += std::abs(PyLong_AsDouble(value));
      PyErr_Clear();
    } else if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
      total += double(Py_SIZE(value));
    } else if (guard_program::read_any_array(value, view)) {
      double count = 1;
      for (int d = 0; d < view.rank; ++d) count *= double(view.shape[d]);
      total += count;
    }
  }
  return std::int64_t(std::min(total, 1e18));
}

std::uint64_t kinds_of(std::span<PyObject* const> values) {
  std::uint64_t kinds = 1;
  const auto add = [&](std::uint64_t kind) { kinds = (kinds ^ kind) * 0x100000001b3u; };
  for (PyObject* value : values) {
    for (int depth = 0; value != nullptr && PyList_CheckExact(value) && depth < 3; ++depth) {
      add(std::uint64_t(depth));
      value = PyList_GET_SIZE(value) != 0 ? PyList_GET_ITEM(value, 0) : nullptr;
    }
    add(value == nullptr ? 0 : std::uint64_t(std::uintptr_t(Py_TYPE(value))));
    ArrayView view;
    if (value != nullptr && guard_program::read_any_array(value, view))
      add(std::uint64_t(view.dtype) << 8 | std::uint64_t(view.rank));
  }
  return kinds;
}

std::vector<std::unique_ptr<LoopAccount::Notes>>& LoopAccount::spare() {
  static auto* notes = new std::vector<std::unique_ptr<Notes>>;  // never destroyed: threads run on at the end
  return *notes;
}

LoopAccount::LoopAccount(CodeCache& cache)
    : cache_(cache), notes_(spare().empty() ? std::make_unique<Notes>() : std::move(spare().back())),
      visits_(notes_->visits), known_(notes_->known) {
  if (!spare().empty()) spare().pop_back();
}

LoopAccount::~LoopAccount() {
  constexpr std::size_t kSpare = 16;
  if (spare().size() >= kSpare) return;
  visits_.clear();
  known_.clear();
  spare().push_back(std::move(notes_));
}

void LoopAccount::ran(const Segment& segment, std::span<const std::int64_t> symbols) {
  constexpr int kEstimated = 16;  // times; a piece that runs more often is taken to go on as it does
  auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.segment == &segment; });
  if (known == known_.end()) known = known_.insert(known_.end(), {&segment, 0, 0});
  const bool constant = !segment.graph || segment.graph->symbols.empty();
  if (known->runs == 0 || (!constant && known->runs < kEstimated)) {
    std::vector<std::int64_t> sizes(symbols.begin(), symbols.end());
    for (std::size_t s = sizes.size(); segment.graph && s < segment.graph->symbols.size(); ++s)
      sizes.push_back(segment.graph->symbols[s].hint);
    known->saved = saved_nanoseconds(segment, sizes);
  }
  ++known->runs;
  saved_ += known->saved;
}

Loop LoopAccount::loop_at(int header) const {
  return *std::find_if(cache_.loops().begin(), cache_.loops().end(),
                       [&](const Loop& loop) { return loop.header == header; });
}

void LoopAccount::executed(int instructions) { saved_ -= kExecuted * instructions; }

bool LoopAccount::is_cpythons(int instruction, std::uint64_t reached) {
  auto& loops = cache_.loops();
  while (!visits_.empty()) {
    const Loop& inside = loops[std::size_t(visits_.back().loop)];
    if (inside.contains(instruction)) break;
    visits_.pop_back();
  }
  const auto found =
      std::find_if(loops.begin(), loops.end(), [&](const auto& loop) { return loop.header == instruction; });
  if (found == loops.end()) return false;
  const int number = int(found - loops.begin());
  inside_another_ =
      std::any_of(visits_.begin(), visits_.end(), [&](const Visit& visit) { return visit.loop != number; });
  if (found->cpythons) return true;
  if (visits_.empty() || visits_.back().loop != number) {
    visits_.push_back({number, 0, saved_, saved_, reached});
    return false;
  }
  Visit& visit = visits_.back();
  if (++visit.passes % kPasses != 0) return false;
  const bool loses = saved_ < visit.began && reached == visit.reached;
  visit.began = saved_;
  visit.reached = reached;
  found->cpythons = loses;
  return loses;
}

}  // namespace fj
