#include "frame_hook/loops/pass_threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "frame_hook/loops/extents.h"
#include "graph_ir/region/assumptions.h"
#include "runtime/allocator.h"
#include "runtime/scratch.h"
#include "runtime/strided_copy.h"
#include "runtime/thread_pool.h"

namespace fj {

namespace {

using Cell = CompiledRegion::Cell;
using region::Gathered;

/// What has been counted so far: a stretch is not left because it takes long. Within the numbers for which loops run in
/// chunks.
constexpr std::int64_t kFew = -(std::int64_t(1) << (region::kLeafBits - 1));

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

/// The elements of an array as they were before passes worked on them.
class Kept {
 public:
  Kept(const ArrayView& of, const region::OwnElements& own, std::int64_t step) : of_(of), own_(own), step_(step) {
    std::int64_t dense = 1;
    axes_.resize(std::size_t(of.rank));
    for (int axis = of.rank; axis-- > 0; dense *= of.shape[axis])
      axes_[std::size_t(axis)] = {of.shape[axis], of.strides[axis] / of.stride_unit, dense};
    bytes_ = std::size_t(dense) * size_in_bytes(of.dtype);
    elements_ = static_cast<char*>(allocate_block(bytes_));
    if (elements_ == nullptr) throw std::bad_alloc();
  }
  Kept(const Kept&) = delete;
  ~Kept() { release_block(elements_, bytes_); }

  /// Those that so many passes work on, from the one of this number on.
  void keep(std::int64_t first, std::int64_t passes) { copy(true, first, passes); }
  void put_back(std::int64_t first, std::int64_t passes) { copy(false, first, passes); }

 private:
  void copy(bool keeps, std::int64_t first, std::int64_t passes) {
    const std::size_t size = size_in_bytes(of_.dtype);
    Scratch<CopiedAxis, 8> axes(axes_.size());
    std::copy(axes_.begin(), axes_.end(), axes.data());
    CopiedAxis& along = axes[std::size_t(own_.axis)];
    const std::int64_t begin = first + own_.more;
    if (begin >= along.size) return;  // the pass leaves the region
    along.size = std::min(passes, (along.size - begin + step_ - 1) / step_);
    char* array = static_cast<char*>(of_.data) + begin * along.from_stride * std::int64_t(size);
    char* kept = elements_ + begin * along.to_stride * std::int64_t(size);
    along.from_stride *= step_, along.to_stride *= step_;
    const std::span<CopiedAxis> all(axes.data(), axes_.size());
    if (!keeps) {
      std::swap(array, kept);
      for (CopiedAxis& axis : all) std::swap(axis.from_stride, axis.to_stride);
    }
    copy_elements(array, kept, all, size);
  }

  const ArrayView& of_;
  const region::OwnElements own_;
  const std::int64_t step_;
  std::vector<CopiedAxis> axes_;  // from the array
  std::size_t bytes_;
  char* elements_;
};

class Run {
 public:
  explicit Run(const PassesToRun& of)
      : of_(of), threads_(*of.loop.threads), position_(input_of(of.loop, RegionInput::Kind::Position, threads_.place)),
        end_(input_of(of.loop, RegionInput::Kind::End, threads_.place)),
        passes_(input_of(of.loop, RegionInput::Kind::Passes, -1)),
        count_(count_passes(threads_, of.loop, of.inputs)), stretches_(count_stretches(threads_, count_)),
        made_(std::size_t(stretches_)),
        left_(std::make_unique_for_overwrite<Cell[]>(std::size_t(stretches_) * of.most_left)) {}

  std::optional<PassesRun> run() {
    for (const PassThreads::GatheredSlot& one : threads_.gathered)
      if (one.how != Gathered::Unchanged && !can_be_gathered(input_type(one))) return std::nullopt;
    for (std::size_t memory = 0, array = 0; memory < of_.loop.memories.size(); ++memory) {
      if (of_.loop.memories[memory] < 0) continue;
      if (const auto& own = threads_.rewritten[memory]) kept_.emplace_back(of_.arrays[array], *own, threads_.step);
      ++array;
    }
    parallel_for(std::min<std::int64_t>(of_.threads, stretches_),
                 [](void* self, std::int64_t) { static_cast<Run*>(self)->take_stretches(); }, this, of_.threads);
    // Others may have seen sooner that the region is to be left: one more, whose arrays are there.
    const std::size_t done = count_done();
    if (!failed_ && done > 0 && done < made_.size() && leaves_arrays(made_[done - 1]))
      take_stretch(std::int64_t(done), true);
    std::optional<PassesRun> found = failed_ ? std::nullopt : together();
    for (std::size_t i = 0; !found && i < made_.size(); ++i)
      if (made_[i].has_begun)
        for (Kept& one : kept_) one.put_back(begin_of(std::int64_t(i)), count_in(std::int64_t(i)));
    return found;
  }

 private:
  struct Stretch {
    bool has_begun = false, is_done = false;
    int exit = -1;
  };

  DType input_type(const PassThreads::GatheredSlot& one) const {
    const region::Region& region = of_.loop.region;
    return region.type(region.inputs[std::size_t(one.input)]);
  }
  std::int64_t passes_before(std::int64_t stretch) const {
    return std::int64_t(__int128(count_) * stretch / stretches_);
  }
  std::int64_t count_in(std::int64_t stretch) const { return passes_before(stretch + 1) - passes_before(stretch); }
  std::int64_t begin_of(std::int64_t stretch) const {
    const __int128 position = std::int64_t(of_.inputs[std::size_t(position_)]);
    return std::int64_t(position + __int128(passes_before(stretch)) * threads_.step);
  }
  bool is_interrupted() const { return *of_.signal != 0; }

  /// Those that have been taken are done: they are the first ones.
  void take_stretches() {
    for (std::int64_t stretch; (stretch = next_.fetch_add(1)) < stretches_;) {
      take_stretch(stretch, stretch + 1 == stretches_);
      if (failed_ || is_interrupted()) next_.store(stretches_);
    }
  }

  /// The stretches that run are left soon: they are run again.
  void fail() {
    failed_ = true;
    cancelled_ = 1;
  }

  /// `keeps`: arrays that its last pass has made, until the frame is written.
  void take_stretch(std::int64_t number, bool keeps) {
    try {
      if (keeps) {
        heap_ = std::make_unique<RegionHeap>();
        run_stretch(number, *heap_);
      } else {
        RegionHeap heap;
        run_stretch(number, heap);
      }
    } catch (const std::bad_alloc&) {
      fail();
    }
  }

  void run_stretch(std::int64_t number, RegionHeap& heap) {
    Stretch& stretch = made_[std::size_t(number)];
    Scratch<Cell, 64> inputs(of_.inputs.size());
    std::copy(of_.inputs.begin(), of_.inputs.end(), inputs.data());
    inputs[std::size_t(position_)] = Cell(begin_of(number));
    if (number + 1 < stretches_) inputs[std::size_t(end_)] = Cell(begin_of(number + 1));
    inputs[std::size_t(passes_)] = Cell(kFew);
    if (number > 0)
      for (const PassThreads::GatheredSlot& one : threads_.gathered)
        if (const auto cell = neutral(one.how, input_type(one))) inputs[std::size_t(one.input)] = *cell;
    Cell* const left = left_of(std::size_t(number));
    for (Kept& one : kept_) one.keep(begin_of(number), count_in(number));
    stretch.has_begun = true;
    stretch.exit = of_.code.run(inputs.data(), of_.memories.data(), left, {&cancelled_, &cancelled_}, heap);
    const auto& ends = of_.loop.ends;
    if (std::find(ends.begin(), ends.end(), stretch.exit) == ends.end()) fail();
    left[0] -= Cell(kFew);
    undone_ += heap.undone();
    stretch.is_done = true;
  }

  Cell* left_of(std::size_t stretch) const { return left_.get() + stretch * of_.most_left; }

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
    return std::any_of(places.begin(), places.end(), is_made);
  }

  std::optional<PassesRun> together() {
    const std::size_t done = count_done();
    if (done == 0) return std::nullopt;
    Stretch& last = made_[done - 1];
    std::vector<Cell> left(left_of(done - 1), left_of(done));
    Cell passes = 0;
    for (std::size_t i = 0; i < done; ++i) passes += left_of(i)[0];
    for (const PassThreads::GatheredSlot& one : threads_.gathered) {
      if (one.how == Gathered::Unchanged) continue;
      const Holding* const at_last = holding(last, one.slot);
      if (at_last == nullptr) return std::nullopt;
      std::optional<Cell> sum;
      for (std::size_t i = 0; i < done; ++i) {
        const Holding* const here = holding(made_[i], one.slot);
        if (here == nullptr || here->dtype != at_last->dtype || here->boxing != at_last->boxing) return std::nullopt;
        const Cell part = left_of(i)[here->value];
        sum = gathered(one.how, here->dtype, sum ? *sum : neutral(one.how, here->dtype).value_or(part), part);
        if (!sum) return std::nullopt;
      }
      left[std::size_t(at_last->value)] = *sum;
    }
    left[0] = passes;
    PassesRun found{last.exit, std::move(left), std::move(heap_), undone_, std::nullopt};
    if (done < made_.size()) found.next = begin_of(std::int64_t(done));
    return found;
  }

  const PassesToRun& of_;
  const PassThreads& threads_;
  const int position_, end_, passes_;
  const std::int64_t count_, stretches_;
  std::deque<Kept> kept_;
  std::vector<Stretch> made_;
  const std::unique_ptr<Cell[]> left_;   // by stretch: values of its exit
  std::unique_ptr<RegionHeap> heap_;     // of the last one
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

std::int64_t count_stretches(const PassThreads& threads, std::int64_t passes) {
  constexpr std::int64_t kFewest = 64, kMost = 1024, kLight = 1024;
  return threads.is_light ? std::clamp<std::int64_t>(passes / kLight, 1, kMost)
                          : std::min(passes, std::clamp(passes / kFewest, kFewest, kMost));
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
