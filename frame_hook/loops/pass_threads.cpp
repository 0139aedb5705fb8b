#include "frame_hook/loops/pass_threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "frame_hook/loops/extents.h"
#include "runtime/strided_copy.h"
#include "runtime/thread_pool.h"

namespace fj {

namespace {

using Cell = CompiledRegion::Cell;
using region::Gathered;

/// Stretches, of which each thread takes the next one when it has done one: more of a long loop, because a signal waits
/// for the end of some. Their number does not depend on that of the threads: sums are the same on all machines.
std::int64_t stretches_of(std::int64_t passes) {
  constexpr std::int64_t kFewest = 64, kMost = 1024;
  return std::min(passes, std::clamp(passes / kFewest, kFewest, kMost));
}
/// What has been counted so far: a stretch is not left because it takes long.
constexpr std::int64_t kFew = -(std::int64_t(1) << 62);

template <class T>
T of_cell(Cell cell) {
  T value;
  std::memcpy(&value, &cell, sizeof value);
  return value;
}
template <class T>
Cell to_cell(T value) {
  Cell cell = 0;
  std::memcpy(&cell, &value, sizeof value);
  return cell;
}

bool can_be_gathered(DType dtype) { return dtype == DType::I64 || dtype == DType::F64 || dtype == DType::F32; }

/// What changes nothing where it is gathered with another number; nothing: there is none.
std::optional<Cell> neutral(Gathered how, DType dtype) {
  if (how != Gathered::Sum && how != Gathered::Product) return std::nullopt;
  const bool sum = how == Gathered::Sum;
  switch (dtype) {
    case DType::I64: return to_cell(std::int64_t(sum ? 0 : 1));
    case DType::F64: return to_cell(sum ? -0.0 : 1.0);
    default: return to_cell(sum ? -0.0f : 1.0f);
  }
}

template <class T>
std::optional<Cell> gathered(Gathered how, T a, T b) {
  if (how == Gathered::Largest) return to_cell(b > a ? b : a);
  if (how == Gathered::Least) return to_cell(b < a ? b : a);
  if constexpr (std::is_integral_v<T>) {
    T made;
    const bool overflows =
        how == Gathered::Sum ? __builtin_add_overflow(a, b, &made) : __builtin_mul_overflow(a, b, &made);
    return overflows ? std::nullopt : std::optional(to_cell(made));
  } else {
    const T made = how == Gathered::Sum ? a + b : a * b;
    // What has left the range of numbers in one order may not in another.
    const bool sound = how == Gathered::Sum ? std::isfinite(made) : std::isnormal(made);
    return sound ? std::optional(to_cell(made)) : std::nullopt;
  }
}
std::optional<Cell> gathered(Gathered how, DType dtype, Cell a, Cell b) {
  switch (dtype) {
    case DType::I64: return gathered(how, of_cell<std::int64_t>(a), of_cell<std::int64_t>(b));
    case DType::F64: return gathered(how, of_cell<double>(a), of_cell<double>(b));
    default: return gathered(how, of_cell<float>(a), of_cell<float>(b));
  }
}

int input_of(const LoopRegion& loop, RegionInput::Kind kind, int place) {
  for (std::size_t i = 0; i < loop.inputs.size(); ++i)
    if (loop.inputs[i].kind == kind && loop.inputs[i].place == place) return int(i);
  return -1;
}

/// The elements of an array, to be put back.
class Kept {
 public:
  explicit Kept(const ArrayView& of) : of_(of), elements_(count() * size_in_bytes(of.dtype)) { copy(true); }
  void put_back() { copy(false); }

 private:
  std::size_t count() const {
    std::size_t made = 1;
    for (int axis = 0; axis < of_.rank; ++axis) made *= std::size_t(of_.shape[axis]);
    return made;
  }
  void copy(bool keep) {
    std::vector<CopiedAxis> axes(std::size_t(of_.rank));
    std::int64_t dense = 1;
    for (int axis = of_.rank; axis-- > 0; dense *= of_.shape[axis]) {
      const std::int64_t own = of_.strides[axis] / of_.stride_unit;
      axes[std::size_t(axis)] = {of_.shape[axis], keep ? own : dense, keep ? dense : own};
    }
    char* const own = static_cast<char*>(of_.data);
    copy_elements(keep ? own : elements_.data(), keep ? elements_.data() : own, axes, size_in_bytes(of_.dtype));
  }

  const ArrayView& of_;
  std::vector<char> elements_;
};

class Run {
 public:
  explicit Run(const PassesToRun& of)
      : of_(of), threads_(*of.loop.threads), position_(input_of(of.loop, RegionInput::Kind::Position, threads_.place)),
        end_(input_of(of.loop, RegionInput::Kind::End, threads_.place)),
        passes_(input_of(of.loop, RegionInput::Kind::Passes, -1)),
        count_(count_passes(threads_, of.loop, of.inputs)), stretches_(stretches_of(count_)),
        made_(std::size_t(stretches_)) {}

  std::optional<PassesRun> run() {
    for (const PassThreads::GatheredSlot& one : threads_.gathered)
      if (one.how != Gathered::Unchanged && !can_be_gathered(input_type(one))) return std::nullopt;
    std::vector<Kept> kept;
    kept.reserve(of_.arrays.size());
    for (std::size_t memory = 0, array = 0; memory < of_.loop.memories.size(); ++memory) {
      if (of_.loop.memories[memory] < 0) continue;
      if (threads_.rewritten[memory]) kept.emplace_back(of_.arrays[array]);
      ++array;
    }
    parallel_for(std::min<std::int64_t>(of_.threads, stretches_),
                 [](void* self, std::int64_t) { static_cast<Run*>(self)->take_stretches(); }, this);
    // Others may have seen sooner that the region is to be left: one more, whose arrays are there.
    const std::size_t done = count_done();
    if (!failed_ && done > 0 && done < made_.size() && leaves_arrays(made_[done - 1]))
      run_or_fail(std::int64_t(done), true);
    std::optional<PassesRun> found = failed_ ? std::nullopt : together();
    if (!found)
      for (Kept& one : kept) one.put_back();
    return found;
  }

 private:
  struct Stretch {
    bool is_done = false;
    int exit = -1;
    std::vector<Cell> left;
    std::unique_ptr<RegionHeap> heap;  // of the last one
  };

  DType input_type(const PassThreads::GatheredSlot& one) const {
    const region::Region& region = of_.loop.region;
    return region.type(region.inputs[std::size_t(one.input)]);
  }
  std::int64_t begin_of(std::int64_t stretch) const {
    const auto passes = __int128(count_) * stretch / stretches_;
    return std::int64_t(__int128(std::int64_t(of_.inputs[std::size_t(position_)])) + passes * threads_.step);
  }
  bool is_interrupted() const { return *of_.signal != 0; }

  /// Those that have been taken are done: they are the first ones.
  void take_stretches() {
    for (std::int64_t stretch; (stretch = next_.fetch_add(1)) < stretches_;) {
      run_or_fail(stretch, stretch + 1 == stretches_);
      if (failed_ || is_interrupted()) next_.store(stretches_);
    }
  }

  /// The stretches that run are left soon: they are run again.
  void fail() {
    failed_ = true;
    cancelled_ = 1;
  }

  void run_or_fail(std::int64_t number, bool keeps) {
    try {
      run_stretch(number, keeps);
    } catch (const std::bad_alloc&) {
      fail();
    }
  }

  /// `keeps`: arrays that its last pass has made, until the frame is written.
  void run_stretch(std::int64_t number, bool keeps) {
    Stretch& stretch = made_[std::size_t(number)];
    std::vector<Cell> inputs(of_.inputs.begin(), of_.inputs.end());
    inputs[std::size_t(position_)] = Cell(begin_of(number));
    if (number + 1 < stretches_) inputs[std::size_t(end_)] = Cell(begin_of(number + 1));
    inputs[std::size_t(passes_)] = Cell(kFew);
    if (number > 0)
      for (const PassThreads::GatheredSlot& one : threads_.gathered)
        if (const auto cell = neutral(one.how, input_type(one))) inputs[std::size_t(one.input)] = *cell;
    stretch.left.resize(of_.most_left);
    stretch.heap = std::make_unique<RegionHeap>();
    stretch.exit = of_.code.run(inputs.data(), of_.memories.data(), stretch.left.data(), {&cancelled_, &cancelled_},
                                *stretch.heap);
    const auto& ends = of_.loop.ends;
    if (std::find(ends.begin(), ends.end(), stretch.exit) == ends.end()) fail();
    stretch.left[0] -= Cell(kFew);
    undone_ += stretch.heap->undone();
    if (!keeps) stretch.heap.reset();
    stretch.is_done = true;
  }

  /// What a slot that is gathered holds at the end of a stretch; null: no number of a type that can be.
  const Holding* holding(const Stretch& stretch, int slot) const {
    const Holding& found = of_.loop.exits[std::size_t(stretch.exit)].places[std::size_t(slot)];
    return found.kind == Holding::Kind::Number && can_be_gathered(found.dtype) ? &found : nullptr;
  }

  std::size_t count_done() const {
    const auto not_done = std::find_if(made_.begin(), made_.end(), [](const Stretch& one) { return !one.is_done; });
    return std::size_t(not_done - made_.begin());
  }

  static bool is_made(const Holding& holding) {
    return holding.kind == Holding::Kind::Fresh || std::any_of(holding.items.begin(), holding.items.end(), is_made);
  }
  bool leaves_arrays(const Stretch& stretch) const {
    const auto& places = of_.loop.exits[std::size_t(stretch.exit)].places;
    return stretch.heap == nullptr && std::any_of(places.begin(), places.end(), is_made);
  }

  std::optional<PassesRun> together() {
    const std::size_t done = count_done();
    if (done == 0) return std::nullopt;
    Stretch& last = made_[done - 1];
    Cell passes = 0;
    for (std::size_t i = 0; i < done; ++i) passes += made_[i].left[0];
    for (const PassThreads::GatheredSlot& one : threads_.gathered) {
      if (one.how == Gathered::Unchanged) continue;
      const Holding* const at_last = holding(last, one.slot);
      if (at_last == nullptr) return std::nullopt;
      std::optional<Cell> sum;
      for (std::size_t i = 0; i < done; ++i) {
        const Holding* const here = holding(made_[i], one.slot);
        if (here == nullptr || here->dtype != at_last->dtype || here->boxing != at_last->boxing) return std::nullopt;
        const Cell part = made_[i].left[std::size_t(here->value)];
        sum = gathered(one.how, here->dtype, sum ? *sum : neutral(one.how, here->dtype).value_or(part), part);
        if (!sum) return std::nullopt;
      }
      last.left[std::size_t(at_last->value)] = *sum;
    }
    last.left[0] = passes;
    PassesRun found{last.exit, std::move(last.left), std::move(last.heap), undone_, std::nullopt};
    if (done < made_.size()) found.next = begin_of(std::int64_t(done));
    return found;
  }

  const PassesToRun& of_;
  const PassThreads& threads_;
  const int position_, end_, passes_;
  const std::int64_t count_, stretches_;
  std::vector<Stretch> made_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<int> undone_ = 0;
  volatile std::uint8_t cancelled_ = 0;
};

}  // namespace

std::int64_t count_passes(const PassThreads& threads, const LoopRegion& loop, std::span<const Cell> inputs) {
  const int position = input_of(loop, RegionInput::Kind::Position, threads.place);
  const int end = input_of(loop, RegionInput::Kind::End, threads.place);
  if (position < 0 || end < 0) return 0;
  const __int128 step = threads.step;
  const __int128 way = __int128(std::int64_t(inputs[std::size_t(end)])) - std::int64_t(inputs[std::size_t(position)]);
  const __int128 passes = step > 0 ? (way + step - 1) / step : (way + step + 1) / step;
  return passes > 0 && passes < (__int128(1) << 62) ? std::int64_t(passes) : 0;
}

bool are_apart(const LoopRegion& loop, std::span<const ArrayView> arrays) {
  std::vector<char> stored;
  for (std::size_t memory = 0; memory < loop.memories.size(); ++memory)
    if (loop.memories[memory] >= 0) stored.push_back(loop.threads->stored[memory]);
  if (!are_disjoint(arrays, stored)) return false;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (stored[i] && !has_own_elements(arrays[i])) return false;
  return true;
}

std::optional<PassesRun> run_on_threads(const PassesToRun& run) {
  try {
    return Run(run).run();
  } catch (const std::bad_alloc&) {  // before a pass has begun: what is kept needs as much memory as it is large
    return std::nullopt;
  }
}

}  // namespace fj
