// Running a program: sizes, memory, the order of steps; launch.cpp runs the kernels and products of the CPU. Start
// reading at CompiledProgram::run. Temporaries share one arena block per call; those whose lives (first to last step
// that touches them) don't overlap share addresses.
#include "runtime/compiled_program.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/allocator.h"
#include "runtime/base/error.h"
#include "runtime/base/layout.h"
#include "runtime/host_lock.h"
#include "runtime/launch.h"
#include "runtime/profile.h"
#include "runtime/scratch.h"
#include "runtime/special_values.h"

namespace fj {

namespace {

/// A part of a run that a profiler of the host's is told of.
class Range {
 public:
  Range(HostLock& lock, const std::string& name) : lock_(lock), range_(lock.host().begin_range(name)) {}
  ~Range() { lock_.host().end_range(range_); }
  Range(const Range&) = delete;

 private:
  HostLock& lock_;
  void* range_;
};

class CompiledProgram : public Program {
 public:
  explicit CompiledProgram(ProgramParts parts) : parts_(std::move(parts)), launcher_(parts_) {
    for (ProgramParts& of_branch : parts_.branches)
      branches_.push_back(std::make_unique<CompiledProgram>(std::move(of_branch)));
    parts_.branches.clear();
    find_late();
    find_lives();
    is_static_ = true;
    for (const ProgramBuffer& buffer : parts_.buffers)
      for (const Dims* dims : {&buffer.shape, &buffer.strides})
        for (const SymDim& dim : *dims) is_static_ &= dim.is_constant();
    if (is_static_) {
      static_places_.resize(parts_.buffers.size());
      static_arena_ = place({}, static_places_.data());
    }
    first_account_.push_back(0);
    for (const ProgramStep& step : parts_.steps) {
      first_account_.push_back(first_account_.back() +
                               (step.kind == StepKind::Blocks ? int(step.blocks.steps.size()) : 1));
      launches_ += step.kind == StepKind::Kernel || step.kind == StepKind::Batch;
      for (const ProgramStep& part : step.blocks.steps) launches_ += part.kind == StepKind::Kernel;
      if (step.kind == StepKind::Cond)
        launches_ += std::max(branch(step.cond.if_true).kernel_count(), branch(step.cond.if_false).kernel_count());
      if (step.kind == StepKind::Loop) launches_ += branch(step.loop.pass).kernel_count();
    }
    for (const ProgramBuffer& buffer : parts_.buffers) {
      shapes_.push_back({});
      for (const SymDim& dim : buffer.shape) shapes_.back().push_back(dim.constant().value_or(0));
      for (const SymDim& dim : buffer.strides) shapes_.back().push_back(dim.constant().value_or(0));
      if (buffer.kind != BufferKind::HostArray && buffer.kind != BufferKind::Output) continue;
      (late_after_[shapes_.size() - 1] < 0 ? host_buffers_ : late_buffers_).push_back(int(shapes_.size()) - 1);
    }
    find_borders();
    find_direct();
    find_zeros();
    if (parts_.device && parts_.joins_launches && launches_ > 1) record_ = parts_.device->new_record();
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const ProgramBuffer& buffer = parts_.buffers[b];
      if (!parts_.device || buffer.kind != BufferKind::Input || std::size_t(buffer.number) >= parts_.host_inputs.size())
        continue;
      if (parts_.host_inputs[std::size_t(buffer.number)] && lives_[b].last >= 0) uploaded_.push_back(int(b));
    }
    for (ProgramKernel& kernel : parts_.kernels) {
      // A program of one kernel mostly numbers its buffers as the kernel does: nothing to gather then.
      bool same = true;
      for (std::size_t b = 0; b < kernel.buffers.size(); ++b) same &= kernel.buffers[b] == int(b);
      if (same) kernel.buffers.clear();
    }
  }

  const DirectKernel* direct() const override {
    return direct_ && !is_profiling() && runs_.load(std::memory_order_relaxed) >= kSettled ? &*direct_ : nullptr;
  }
  int kernel_count() const override { return launches_; }
  std::string text() const override { return parts_.text; }
  std::vector<StepAccount> steps() const override { return parts_.accounts; }
  std::size_t temporary_bytes(std::span<const std::int64_t> given) const override {
    std::vector<std::int64_t> symbols(parts_.symbols.size());
    for (std::size_t s = 0; s < symbols.size(); ++s)
      if (const ProgramSymbol& symbol = parts_.symbols[s];
          !symbol.defined || !define(symbol, std::span<const std::int64_t>(symbols.data(), s), symbols[s]))
        symbols[s] = s < given.size() ? given[s] : 0;
    std::vector<Place> places(parts_.buffers.size());
    std::size_t result = is_static_ ? static_arena_ : place(symbols, places.data());
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b)
      if (parts_.buffers[b].kind == BufferKind::HostArray) result += bytes(int(b), symbols);
    std::size_t of_branches = 0;  // they run one after the other
    for (const ProgramStep& step : parts_.steps) {
      if (step.kind == StepKind::Cond)
        for (const int number : {step.cond.if_true, step.cond.if_false})
          of_branches = std::max(of_branches, branch(number).temporary_bytes(symbols));
      if (step.kind == StepKind::Loop)
        of_branches = std::max(of_branches, branch(step.loop.pass).temporary_bytes(symbols) +
                                                bytes_of_states(step.loop, symbols));
    }
    return result + of_branches;
  }

  std::uint32_t run(Call& call) const override {
    if (runs_.load(std::memory_order_relaxed) < kSettled) [[unlikely]] count_run();
    std::unique_ptr<ProfiledRun> profile;
    if (is_profiling() || call.ranges) [[unlikely]]
      profile = std::make_unique<ProfiledRun>(id_, parts_.name, parts_.accounts, parts_.device != nullptr);
    Scratch<std::int64_t, 32> symbols(parts_.symbols.size());
    for (std::size_t s = 0; s < parts_.symbols.size(); ++s) {
      const ProgramSymbol& symbol = parts_.symbols[s];
      if (!symbol.defined) {
        symbols[s] = call.symbols[s];
        continue;
      }
      const std::span<const std::int64_t> known(symbols.data(), s);
      symbols[s] = 0;
      if (symbol_after_[s] >= 0) continue;
      if (!define(symbol, known, symbols[s])) return kIntegerDivisionByZero;
      if (s < parts_.graph_symbols) call.symbols[s] = symbols[s];
    }
    const std::span<std::int64_t> values(symbols.data(), parts_.symbols.size());

    Scratch<ArrayRef, 32> arrays(parts_.buffers.size());
    Scratch<char*, 32> pointers(parts_.buffers.size());
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      arrays[b] = {};
      pointers[b] = nullptr;
      if (parts_.buffers[b].kind != BufferKind::Input) continue;
      arrays[b] = call.inputs[parts_.buffers[b].number];
      pointers[b] = static_cast<char*>(arrays[b].data);
    }

    std::uint32_t status = kOk;
    HostLock lock(*call.host);
    std::optional<Range> range;
    if (call.ranges) range.emplace(lock, parts_.name);
    {
      Arena arena(*this, lock, values, pointers.data());
      Blocks late;
      try {
        status = arena.failed() ? std::uint32_t(kHostFailed)
                                : run_steps(call, values, arrays.data(), pointers.data(), arena, late, lock,
                                            profile.get());
      } catch (const DeviceError& error) {
        call.error = error.what();
        status = kDeviceFailed;
      }
    }
    const bool failed = fails(status, call, values, pointers.data());
    if (profile && !failed) profile->finish(values);
    lock.take();
    if (!failed && call.places.empty())
      for (std::size_t i = 0; i < parts_.output_buffers.size(); ++i) {
        const int buffer = parts_.output_buffers[i];
        call.outputs[i] = arrays[buffer];
        if (parts_.buffers[buffer].kind == BufferKind::ExternResult) call.host->retain(arrays[buffer].object);
      }
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const BufferKind kind = parts_.buffers[b].kind;
      const bool ours =
          kind == BufferKind::HostArray || kind == BufferKind::ExternResult || (kind == BufferKind::Output && failed);
      if (ours && arrays[b].object) call.host->release(arrays[b].object);
    }
    return failed ? status : std::uint32_t(kOk);
  }

 private:
  const Program& branch(int number) const { return *branches_[std::size_t(number)]; }

  /// Outputs whose first writer stores zeros.
  void find_zeros() {
    begins_as_zeros_.assign(parts_.buffers.size(), 0);
    if (parts_.device) return;
    for (std::size_t s = 0; s < parts_.steps.size(); ++s) {
      const ProgramStep& step = parts_.steps[s];
      if (step.kind != StepKind::Kernel || !parts_.kernels[std::size_t(step.kernel)].only_zeros) continue;
      const int buffer = parts_.kernels[std::size_t(step.kernel)].writes[0];
      if (parts_.buffers[std::size_t(buffer)].kind == BufferKind::Output && lives_[std::size_t(buffer)].first == int(s))
        begins_as_zeros_[std::size_t(buffer)] = int(s) + 1;
    }
  }

  void find_direct() {
    if (!is_static_ || parts_.device || !parts_.symbols.empty() || parts_.kernels.size() != 1 ||
        parts_.steps.size() != 1)
      return;
    const ProgramKernel& kernel = parts_.kernels[0];
    const LaunchPlan* plan = launcher_.planned(0);
    if (parts_.steps[0].kind != StepKind::Kernel || parts_.steps[0].commit || !plan || plan->chunks != 1 ||
        plan->items <= 0 || HostLock::is_long(plan->nanoseconds))
      return;
    if (parts_.output_buffers.size() != 1 || kernel.buffers.size() > DirectKernel::kPointers) return;
    DirectKernel direct;
    for (const int b : kernel.buffers) {
      const ProgramBuffer& buffer = parts_.buffers[std::size_t(b)];
      if (buffer.kind != BufferKind::Input && b != parts_.output_buffers[0]) return;
      direct.pointers.push_back(buffer.kind == BufferKind::Input ? buffer.number : DirectKernel::kResult);
    }
    if (std::count(direct.pointers.begin(), direct.pointers.end(), DirectKernel::kResult) != 1) return;
    const auto made = std::size_t(parts_.output_buffers[0]);
    const auto rank = std::ptrdiff_t(parts_.buffers[made].shape.size());
    direct.code = kernel.code.get();
    direct.items = plan->items;
    direct.scratch_bytes = plan->scratch_bytes;
    direct.float_conditions = parts_.float_conditions;
    direct.dtype = parts_.buffers[made].dtype;
    direct.shape.assign(shapes_[made].begin(), shapes_[made].begin() + rank);
    direct.strides.assign(shapes_[made].begin() + rank, shapes_[made].end());
    direct_ = std::move(direct);
  }

  /// Whether the program has failed. Settles first whether NaN that were found are an invalid operation (kNotFinite).
  bool fails(std::uint32_t& status, const Call& call, std::span<const std::int64_t> symbols,
             char* const* pointers) const {
    const std::uint32_t fatal = kAlwaysFails | call.trapped;
    if (status & kNotFinite && fatal & kFloatInvalid && !(status & fatal) &&
        may_have_infinities(status, symbols, pointers))
      status |= kFloatInvalid;
    status &= ~std::uint32_t(kNotFinite);
    return (status & fatal) != 0;
  }

  /// False if the NaN that were found come from NaN in inputs, library results or constants. Arithmetic makes of finite
  /// numbers an infinity only by an overflow or a division, which raise, and a NaN only by an invalid operation.
  bool may_have_infinities(std::uint32_t status, std::span<const std::int64_t> symbols, char* const* pointers) const {
    if (status & (kFloatOverflow | kFloatDivide) || parts_.makes_infinities) return true;
    bool nan = parts_.makes_nan;
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const ProgramBuffer& buffer = parts_.buffers[b];
      if ((buffer.kind != BufferKind::Input && buffer.kind != BufferKind::ExternResult) || !pointers[b]) continue;
      const std::size_t rank = buffer.shape.size();
      Scratch<std::int64_t, 16> sizes(rank), strides(rank);
      for (std::size_t d = 0; d < rank; ++d) {
        sizes[d] = buffer.shape[d].evaluate(symbols);
        strides[d] = buffer.strides[d].evaluate(symbols);
      }
      const SpecialValues found =
          find_special_values(buffer.dtype, pointers[b], {sizes.data(), rank}, {strides.data(), rank});
      if (found.infinity) return true;
      nan = nan || found.nan;
    }
    return !nan;
  }

  static bool define(const ProgramSymbol& symbol, std::span<const std::int64_t> known, std::int64_t& value) {
    const auto found =
        floor_quotient(symbol.dividend.evaluate(known), symbol.divisor.evaluate(known), symbol.remainder);
    if (found) value = *found;
    return found.has_value();
  }

  /// Code that is used a second time is worth optimising. Further runs are not counted.
  void count_run() const {
    if (runs_.fetch_add(1, std::memory_order_relaxed) + 1 != kSettled) return;
    for (const ProgramKernel& kernel : parts_.kernels)
      if (kernel.code) kernel.code->used_again();
  }

  // ---- memory

  struct Life {
    int first = INT32_MAX, last = -1;
  };
  struct Place {
    std::size_t offset = 0, bytes = 0;
  };

  /// Which symbols a step counts, and after which step the size of each buffer is known; -1: from the start.
  void find_late() {
    symbol_after_.assign(parts_.symbols.size(), -1);
    late_after_.assign(parts_.buffers.size(), -1);
    auto after = [&](const SymDim& size) {
      int step = -1;
      for (SymbolId symbol : size.symbols()) step = std::max(step, symbol_after_[symbol.index]);
      return step;
    };
    for (int s = 0; s < int(parts_.steps.size()); ++s)
      if (parts_.steps[std::size_t(s)].kind == StepKind::Count)
        symbol_after_[parts_.steps[std::size_t(s)].count.count.index] = s;
    for (std::size_t s = 0; s < parts_.symbols.size(); ++s) {
      if (parts_.symbols[s].defined)
        symbol_after_[s] = std::max(after(parts_.symbols[s].dividend), after(parts_.symbols[s].divisor));
    }
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b)
      for (const Dims* dims : {&parts_.buffers[b].shape, &parts_.buffers[b].strides})
        for (const SymDim& dim : *dims) late_after_[b] = std::max(late_after_[b], after(dim));
  }

  void find_lives() {
    lives_.resize(parts_.buffers.size());
    auto touch = [&](int buffer, int step) {
      lives_[buffer].first = std::min(lives_[buffer].first, step);
      lives_[buffer].last = std::max(lives_[buffer].last, step);
    };
    auto touch_kernel = [&](int kernel, int step) {
      for (int buffer : parts_.kernels[kernel].reads) touch(buffer, step);
      for (int buffer : parts_.kernels[kernel].writes) touch(buffer, step);
    };
    auto touch_step = [&](auto&& self, const ProgramStep& step, int s) -> void {
      switch (step.kind) {
        case StepKind::Kernel:
          touch_kernel(step.kernel, s);
          break;
        case StepKind::Blocks:
          for (const ProgramStep& part : step.blocks.steps) self(self, part, s);
          break;
        case StepKind::Batch:
          for (int kernel : step.batch) touch_kernel(kernel, s);
          break;
        case StepKind::Matmul:
          for (int buffer : {step.matmul.a, step.matmul.b, step.matmul.c}) touch(buffer, s);
          break;
        case StepKind::Count:
          for (int buffer : {step.count.source, step.count.result}) touch(buffer, s);
          break;
        case StepKind::Copies:
          touch(step.copies.target, s);
          for (const ProgramCopies::Part& part : step.copies.parts) touch(part.source, s);
          break;
        case StepKind::Cond:
          touch(step.cond.condition, s);
          for (int buffer : step.cond.operands) touch(buffer, s);
          for (int buffer : step.cond.results) touch(buffer, s);
          break;
        case StepKind::Loop:
          touch(step.loop.condition, s);
          for (int buffer : step.loop.given) touch(buffer, s);
          for (int buffer : step.loop.results) touch(buffer, s);
          break;
        case StepKind::Extern:
          for (int buffer : step.extern_call.operands) touch(buffer, s);
          for (int buffer : step.extern_call.results) touch(buffer, s);
          break;
      }
    };
    for (int s = 0; s < int(parts_.steps.size()); ++s) touch_step(touch_step, parts_.steps[s], s);
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b)
      if (parts_.buffers[b].kind == BufferKind::Temporary && lives_[b].last >= 0) {
        if (late_after_[b] < 0) temporaries_.push_back(int(b));
        else late_buffers_.push_back(int(b));
      }
    std::stable_sort(temporaries_.begin(), temporaries_.end(),
                     [&](int a, int b) { return lives_[a].first < lives_[b].first; });
  }

  /// Before which step the host allocates an array, and behind which it gets one back: a backward program makes a
  /// gradient where it has read the last of what was saved for it. All are there before inputs are written.
  void find_borders() {
    const int count = int(parts_.steps.size());
    starts_.resize(std::size_t(count) + 1);
    ends_.resize(std::size_t(count));
    int commit = 0;
    while (commit < count && !parts_.steps[std::size_t(commit)].commit) ++commit;
    for (int b : host_buffers_) starts_[std::size_t(std::min(lives_[std::size_t(b)].first, commit))].push_back(b);
    if (parts_.float_conditions) return;  // may_have_infinities may read them at the end
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const BufferKind kind = parts_.buffers[b].kind;
      const bool theirs =
          kind == BufferKind::Input || kind == BufferKind::HostArray || kind == BufferKind::ExternResult;
      const bool returned =
          std::find(parts_.output_buffers.begin(), parts_.output_buffers.end(), int(b)) != parts_.output_buffers.end();
      if (theirs && !returned && lives_[b].last >= 0) ends_[std::size_t(lives_[b].last)].push_back(int(b));
    }
  }

  bool start(const std::vector<int>& buffers, const Call& call, HostLock& lock, std::span<const std::int64_t> symbols,
             ArrayRef* arrays, char** pointers) const {
    return std::all_of(buffers.begin(), buffers.end(), [&](int b) {
      const ProgramBuffer& buffer = parts_.buffers[std::size_t(b)];
      if (buffer.kind != BufferKind::Output || call.places.empty())
        return allocate_array(b, lock, symbols, arrays, pointers);
      arrays[b] = {};
      arrays[b].data = pointers[b] = call.places[std::size_t(buffer.number)];
      return true;
    });
  }

  /// Launches on a buffer are issued before it is given back: its memory may be anybody's then.
  void end(const std::vector<int>& buffers, Call& call, HostLock& lock, ArrayRef* arrays, DeviceRun* device) const {
    for (int b : buffers) {
      const ProgramBuffer& buffer = parts_.buffers[std::size_t(b)];
      if (buffer.kind == BufferKind::Input && std::size_t(buffer.number) >= call.handed_over.size()) continue;
      ArrayRef& array = buffer.kind == BufferKind::Input ? call.handed_over[std::size_t(buffer.number)] : arrays[b];
      if (!array.object) continue;
      if (device) device->flush();  // may throw
      lock.host().release(std::exchange(array.object, nullptr));
    }
  }

  std::size_t exact_bytes(int buffer, std::span<const std::int64_t> symbols) const {
    std::int64_t count = 1;
    for (const SymDim& dim : parts_.buffers[buffer].shape)
      count *= dim.is_constant() ? dim.value() : dim.evaluate(symbols);
    return std::size_t(count) * size_in_bytes(parts_.buffers[buffer].dtype);
  }
  std::size_t bytes(int buffer, std::span<const std::int64_t> symbols) const {
    return (exact_bytes(buffer, symbols) + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// First fit among the temporaries alive at the same time. Returns the arena's size.
  std::size_t place(std::span<const std::int64_t> symbols, Place* places) const {
    std::size_t total = 0;
    for (std::size_t t = 0; t < temporaries_.size(); ++t) {
      const int buffer = temporaries_[t];
      const std::size_t size = bytes(buffer, symbols);
      std::size_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t u = 0; u < t; ++u) {
          const int other = temporaries_[u];
          if (lives_[other].last < lives_[buffer].first) continue;
          const Place& taken = places[other];
          if (offset < taken.offset + taken.bytes && taken.offset < offset + size)
            offset = taken.offset + taken.bytes, moved = true;
        }
      }
      places[buffer] = {offset, size};
      total = std::max(total, offset + size);
    }
    return total;
  }

  /// The arena of one call: on the stack if small, an array of the library's if it is for a device.
  class Arena {
   public:
    Arena(const CompiledProgram& program, HostLock& lock, std::span<const std::int64_t> symbols, char** pointers)
        : lock_(lock) {
      if (program.temporaries_.empty() && program.uploaded_.empty() && !program.parts_.reports) return;
      Scratch<Place, 16> computed(program.is_static_ ? 0 : program.parts_.buffers.size());
      const Place* places = program.static_places_.data();
      bytes_ = program.static_arena_;
      if (!program.is_static_) {
        bytes_ = program.place(symbols, computed.data());
        places = computed.data();
      }
      char* base = local_;
      if (program.parts_.device) {
        // The numbers of the host, then the status word, a cache line of its own, come last.
        const std::size_t uploaded = program.uploaded_.size() * kUploaded;
        const std::int64_t bytes[] = {std::int64_t(bytes_ + (uploaded + kAlignment - 1) / kAlignment * kAlignment +
                                                   kAlignment)},
                           stride[] = {1};
        array_ = lock.host().allocate(-1, DType::U8, bytes, stride);
        if (!array_.object) {
          failed_ = true;
          return;
        }
        base = static_cast<char*>(array_.data);
        numbers_ = base + bytes_;
        if (program.parts_.reports) status_word_ = base + bytes[0] - kAlignment;
      } else if (bytes_ > sizeof local_) {
        block_ = allocate_block(bytes_);
        if (!block_) {
          failed_ = true;
          return;
        }
        base = static_cast<char*>(block_);
      }
      for (int buffer : program.temporaries_) pointers[buffer] = base + places[buffer].offset;
    }
    ~Arena() {
      if (block_) release_block(block_, bytes_);
      if (array_.object) lock_.host().release(array_.object);
    }
    bool failed() const { return failed_; }
    char* status_word() const { return status_word_; }
    /// Room for the numbers that are uploaded, kUploaded bytes each.
    char* numbers() const { return numbers_; }

   private:
    alignas(kAlignment) char local_[2048];
    std::size_t bytes_ = 0;
    HostLock& lock_;
    void* block_ = nullptr;
    ArrayRef array_;
    char* status_word_ = nullptr;
    char* numbers_ = nullptr;
    bool failed_ = false;
  };

  bool allocate_array(int b, HostLock& lock, std::span<const std::int64_t> symbols, ArrayRef* arrays,
                      char** pointers) const {
    const ProgramBuffer& buffer = parts_.buffers[b];
    const std::size_t rank = buffer.shape.size();
    const std::int64_t* sizes = shapes_[b].data();
    Scratch<std::int64_t, 16> computed(is_static_ ? 0 : 2 * rank);
    if (!is_static_) {
      for (std::size_t d = 0; d < rank; ++d) computed[d] = buffer.shape[d].evaluate(symbols);
      evaluate_strides(buffer.shape, buffer.strides, {computed.data(), rank}, symbols, computed.data() + rank);
      sizes = computed.data();
    }
    const int output = buffer.kind == BufferKind::Output ? buffer.number : -1;
    ArrayRef array;
    if (begins_as_zeros_[std::size_t(b)] && bytes(b, symbols) >= kZerosOfTheLibrary) {
      array = lock.host().allocate_zeros(output, buffer.dtype, {sizes, rank}, {sizes + rank, rank});
      array.zeros = array.object != nullptr;
    }
    if (!array.object) array = lock.host().allocate(output, buffer.dtype, {sizes, rank}, {sizes + rank, rank});
    if (!array.object) return false;
    arrays[b] = array;
    pointers[b] = static_cast<char*>(arrays[b].data);
    return true;
  }

  /// Temporaries whose sizes become known while the program runs.
  class Blocks {
   public:
    Blocks() = default;
    ~Blocks() {
      for (auto [memory, bytes] : blocks_) release_block(memory, bytes);
    }
    Blocks(const Blocks&) = delete;
    char* add(std::size_t bytes) {
      void* memory = allocate_block(bytes);
      if (memory) blocks_.emplace_back(memory, bytes);
      return static_cast<char*>(memory);
    }

   private:
    std::vector<std::pair<void*, std::size_t>> blocks_;
  };

  std::uint32_t count(int s, Call& call, HostLock& lock, std::span<std::int64_t> symbols, ArrayRef* arrays,
                      char** pointers, Blocks& late) const {
    const ProgramCount& step = parts_.steps[std::size_t(s)].count;
    std::int64_t elements = 1;
    for (const SymDim& size : parts_.buffers[step.source].shape) elements *= size.evaluate(symbols);
    const auto* mask = reinterpret_cast<const unsigned char*>(pointers[step.source]);
    lock.work(double(elements));
    std::int64_t found = 0;
    if (step.of_number)
      std::memcpy(&found, mask, sizeof found);
    else
      for (std::int64_t i = 0; i < elements; ++i) found += mask[i] != 0;
    if (found < 0 || found > kLargestSize) return kUnexpectedCount;
    if (std::find(step.excluded.begin(), step.excluded.end(), found) != step.excluded.end()) return kUnexpectedCount;
    symbols[step.count.index] = found;
    for (std::size_t d = 0; d < parts_.symbols.size(); ++d)
      if (parts_.symbols[d].defined && symbol_after_[d] == s &&
          !define(parts_.symbols[d], symbols.first(d), symbols[d]))
        return kIntegerDivisionByZero;
    for (std::size_t d = 0; d < parts_.graph_symbols; ++d)
      if (symbol_after_[d] == s) call.symbols[d] = symbols[d];
    for (int b : late_buffers_) {
      if (late_after_[b] != s) continue;
      if (parts_.buffers[b].kind != BufferKind::Temporary) {
        if (!allocate_array(b, lock, symbols, arrays, pointers)) return kHostFailed;
      } else if (!(pointers[b] = late.add(std::max<std::size_t>(bytes(b, symbols), kAlignment)))) {
        return kHostFailed;
      }
    }
    auto* positions = reinterpret_cast<std::int64_t*>(pointers[step.result]);
    if (step.of_number) {
      *positions = found;
      return kOk;
    }
    lock.work(double(elements));
    // Written without a branch: the loop ends before it would write behind the last place.
    for (std::int64_t i = 0, at = 0; at < found; ++i) {
      positions[at] = i;
      at += mask[i] != 0;
    }
    return kOk;
  }

  // ---- steps

  /// The memory of the buffers a kernel writes.
  std::vector<DeviceRun::Written> written(const ProgramKernel& kernel, std::span<const std::int64_t> symbols,
                                          char* const* pointers) const {
    std::vector<DeviceRun::Written> result;
    for (const int b : kernel.writes) {
      const ProgramBuffer& buffer = parts_.buffers[std::size_t(b)];
      std::int64_t low = 0, high = 0;
      bool empty = false;
      for (std::size_t d = 0; d < buffer.shape.size(); ++d) {
        const std::int64_t size = buffer.shape[d].evaluate(symbols),
                           reach = (size - 1) * buffer.strides[d].evaluate(symbols);
        empty = empty || size == 0;
        (reach < 0 ? low : high) += reach;
      }
      const auto bytes = std::int64_t(size_in_bytes(buffer.dtype));
      const auto own = std::find(kernel.buffers.begin(), kernel.buffers.end(), b);
      FJ_CHECK(kernel.buffers.empty() || own != kernel.buffers.end(), "a kernel writes a buffer that it has not");
      const int number = kernel.buffers.empty() ? b : int(own - kernel.buffers.begin());
      if (!empty) result.push_back({number, pointers[b] + low * bytes, std::size_t((high - low + 1) * bytes)});
    }
    return result;
  }

  /// Copies the host's inputs of no dimensions to the device in one piece; kernels read the copies.
  void upload(DeviceRun& device, const Arena& arena, char** pointers) const {
    if (uploaded_.empty()) return;
    Scratch<char, 256> numbers(uploaded_.size() * kUploaded);
    for (std::size_t i = 0; i < uploaded_.size(); ++i) {
      char*& pointer = pointers[uploaded_[i]];
      std::memcpy(numbers.data() + i * kUploaded, pointer,
                  size_in_bytes(parts_.buffers[std::size_t(uploaded_[i])].dtype));
      pointer = arena.numbers() + i * kUploaded;
    }
    device.upload(arena.numbers(), numbers.data(), uploaded_.size() * kUploaded);
  }

  void launch_batch(DeviceRun& device, const std::vector<int>& batch, std::span<const std::int64_t> symbols,
                    char* const* pointers) const {
    std::size_t count = 0;
    for (const int k : batch) count += parts_.kernels[std::size_t(k)].buffers.size();
    Scratch<char*, 64> gathered(count);
    Scratch<char* const*, 16> kernels(batch.size());
    count = 0;
    for (std::size_t k = 0; k < batch.size(); ++k) {
      const std::vector<int>& buffers = parts_.kernels[std::size_t(batch[k])].buffers;
      kernels[k] = buffers.empty() ? pointers : gathered.data() + count;
      for (const int b : buffers) gathered[count++] = pointers[b];
    }
    device.launch_batch(*parts_.kernels[std::size_t(batch[0])].device_code, {kernels.data(), batch.size()}, symbols);
  }

  std::uint32_t run_steps(Call& call, std::span<std::int64_t> symbols, ArrayRef* arrays, char** pointers,
                          const Arena& arena, Blocks& late, HostLock& lock, ProfiledRun* profile) const {
    std::uint32_t status = 0;
    std::unique_ptr<DeviceRun> device;
    if (parts_.device) device = parts_.device->enter(*call.host, arena.status_word(), record_.get());
    if (device) upload(*device, arena, pointers);
    bool unread = arena.status_word() != nullptr, launched = false;
    for (std::size_t s = 0; s < parts_.steps.size(); ++s) {
      const ProgramStep& step = parts_.steps[s];
      if (lock.interrupted()) return status | kInterrupted;
      if (!start(starts_[s], call, lock, symbols, arrays, pointers)) return status | kHostFailed;
      if (step.commit && std::exchange(unread, false)) status |= ask(*device, lock);
      if (step.commit && fails(status, call, symbols, pointers)) return status;
      if (step.commit && !lock.finish()) return status | kHostFailed;
      // Conditions of values that a commit computes again have been reported by its check.
      const auto report = [&](std::uint32_t found) {
        if (!step.commit) status |= found;
      };
      std::optional<Range> range;
      if (profile) {
        const int first = first_account_[s];
        if (call.ranges) range.emplace(lock, profile->label(first, first_account_[s + 1] - first));
        profile->start();
      }
      switch (step.kind) {
        case StepKind::Kernel: {
          const ProgramKernel& kernel = parts_.kernels[step.kernel];
          if (device) {
            Scratch<char*, 16> gathered(kernel.buffers.size());
            for (std::size_t b = 0; b < kernel.buffers.size(); ++b) gathered[b] = pointers[kernel.buffers[b]];
            char* const* buffers = kernel.buffers.empty() ? pointers : gathered.data();
            if (device->is_open(*kernel.device_code))
              device->settle(*kernel.device_code, buffers, written(kernel, symbols, pointers), symbols);
            device->launch(*kernel.device_code, buffers, symbols);
            launched = true;
            break;
          }
          if (kernel.only_zeros && arrays[kernel.writes[0]].zeros && begins_as_zeros_[kernel.writes[0]] == int(s) + 1)
            break;  // they are there
          report(launcher_.kernel(step.kernel, symbols, pointers, lock));
          break;
        }
        case StepKind::Batch:
          if (device)
            launch_batch(*device, step.batch, symbols, pointers), launched = true;
          else
            report(launcher_.batch(int(s), symbols, pointers, lock));
          break;
        case StepKind::Matmul:
          status |= launcher_.multiply(step.matmul, symbols, pointers, lock);
          break;
        case StepKind::Blocks:
          status |= launcher_.blocks(step.blocks, symbols, pointers, lock, profile, first_account_[s]);
          break;
        case StepKind::Copies:
          status |= launcher_.copies(step.copies, symbols, pointers, lock);
          break;
        case StepKind::Count:
          // After a failure the mask may mean nothing.
          if (fails(status, call, symbols, pointers)) return status;
          status |= count(int(s), call, lock, symbols, arrays, pointers, late);
          if (fails(status, call, symbols, pointers)) return status;
          break;
        case StepKind::Cond:
          // After a failure the condition may mean nothing.
          if (fails(status, call, symbols, pointers)) return status;
          status |= run_branch(step.cond, call, lock, symbols, arrays, pointers);
          if (fails(status, call, symbols, pointers)) return status;
          break;
        case StepKind::Loop:
          if (fails(status, call, symbols, pointers)) return status;
          status |= run_loop(step.loop, call, lock, symbols, arrays, pointers);
          if (fails(status, call, symbols, pointers)) return status;
          break;
        case StepKind::Extern:
          // The call's effects may be visible outside; a failure so far must come before them.
          if (unread && launched) status |= ask(*device, lock), launched = false;
          if (fails(status, call, symbols, pointers)) return status;
          if (device) device->flush(), device->pause();
          if (!call_extern(step.extern_call, lock, symbols, arrays, pointers)) return status | kHostFailed;
          if (device) device->resume();
          break;
      }
      if (profile) {
        if (device && is_profiling()) device->flush(), lock.wait(), device->wait(), lock.take();
        profile->end(first_account_[s], first_account_[s + 1] - first_account_[s]);
        range.reset();
      }
      end(ends_[s], call, lock, arrays, device.get());
    }
    if (!start(starts_.back(), call, lock, symbols, arrays, pointers)) return status | kHostFailed;
    if (unread) status |= ask(*device, lock);
    if (device) device->flush();
    return status;
  }

  std::uint32_t run_branch(const ProgramCond& cond, const Call& call, HostLock& lock,
                           std::span<const std::int64_t> symbols, ArrayRef* arrays, char* const* pointers) const {
    const Program& program = branch(*pointers[cond.condition] ? cond.if_true : cond.if_false);
    Scratch<ArrayRef, 16> inputs(cond.operands.size());
    for (std::size_t i = 0; i < cond.operands.size(); ++i) {
      inputs[i] = arrays[cond.operands[i]];
      inputs[i].data = pointers[cond.operands[i]];
    }
    Scratch<char*, 16> places(cond.results.size());
    for (std::size_t i = 0; i < cond.results.size(); ++i) places[i] = pointers[cond.results[i]];
    return run_inside(program, call, lock, symbols, {inputs.data(), cond.operands.size()},
                      {places.data(), cond.results.size()});
  }

  /// A program of `branches`, with the sizes of this one.
  std::uint32_t run_inside(const Program& program, const Call& call, HostLock& lock,
                           std::span<const std::int64_t> symbols, std::span<const ArrayRef> inputs,
                           std::span<char* const> places) const {
    Scratch<std::int64_t, 32> copies(parts_.graph_symbols);
    std::copy_n(symbols.begin(), parts_.graph_symbols, copies.data());
    Call inner;
    inner.host = &lock.host();
    inner.inputs = inputs;
    inner.places = places;
    inner.symbols = {copies.data(), parts_.graph_symbols};
    inner.trapped = call.trapped;
    inner.ranges = call.ranges;
    return program.run(inner);
  }

  std::size_t bytes_of_states(const ProgramLoop& loop, std::span<const std::int64_t> symbols) const {
    std::size_t result = 0;
    for (const int buffer : loop.results) result += bytes(buffer, symbols);
    return result;
  }

  /// States are in the results and in memory beside them, in turns: a pass reads those of one place and writes the
  /// others.
  std::uint32_t run_loop(const ProgramLoop& loop, const Call& call, HostLock& lock,
                         std::span<const std::int64_t> symbols, ArrayRef* arrays, char* const* pointers) const {
    const std::size_t given = loop.given.size(), states = loop.results.size();
    Blocks memory;
    char* free = memory.add(bytes_of_states(loop, symbols));
    if (!free) return kHostFailed;
    Scratch<ArrayRef, 16> inputs(given);
    for (std::size_t i = 0; i < given; ++i) {
      inputs[i] = arrays[loop.given[i]];
      inputs[i].data = pointers[loop.given[i]];
    }
    bool goes = *pointers[loop.condition] != 0;
    // Where the passes write: the bool, then the states of the next one, in the results or beside them.
    Scratch<char*, 16> results(states + 1), others(states + 1);
    results[0] = others[0] = reinterpret_cast<char*>(&goes);
    for (std::size_t i = 0; i < states; ++i) {
      results[i + 1] = pointers[loop.results[i]];
      others[i + 1] = free;
      free += bytes(loop.results[i], symbols);
    }
    char* const* last = nullptr;  // of those two; null: no pass has been made
    std::uint32_t status = kOk;
    while (goes) {
      lock.work(kNanosecondsOfPass);
      if (lock.interrupted()) return status | kInterrupted;
      for (std::size_t i = 0; last && i < states; ++i) {
        inputs[i] = {};
        inputs[i].data = last[i + 1];
      }
      last = last == results.data() ? others.data() : results.data();
      status |= run_inside(branch(loop.pass), call, lock, symbols, {inputs.data(), given}, {last, states + 1});
      if (fails(status, call, symbols, pointers)) return status;
    }
    for (std::size_t i = 0; last != results.data() && i < states; ++i)
      std::memcpy(results[i + 1], last ? last[i + 1] : static_cast<char*>(inputs[i].data),
                  exact_bytes(loop.results[i], symbols));
    return status;
  }

  /// The device's status, when it is done.
  static std::uint32_t ask(DeviceRun& device, HostLock& lock) {
    device.flush();
    lock.wait();
    const std::uint32_t status = device.status();
    lock.take();  // it guards the data that launches share between threads
    return status;
  }

  ArrayRef view_of(const ArrayRef& array, int buffer, const ProgramExtern::View& view, HostLock& lock,
                   std::span<const std::int64_t> symbols) const {
    const std::size_t rank = view.shape.size();
    Scratch<std::int64_t, 16> sizes(rank), strides(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      sizes[d] = view.shape[d].evaluate(symbols);
      strides[d] = view.strides[d].evaluate(symbols);
    }
    return lock.host().view(array, parts_.buffers[std::size_t(buffer)].dtype, {sizes.data(), rank},
                            {strides.data(), rank}, view.offset.evaluate(symbols));
  }

  bool call_extern(const ProgramExtern& plan, HostLock& lock, std::span<const std::int64_t> symbols, ArrayRef* arrays,
                   char** pointers) const {
    Scratch<ArrayRef, 16> operands(plan.operands.size()), results(plan.results.size());
    for (std::size_t i = 0; i < plan.operands.size(); ++i) operands[i] = arrays[plan.operands[i]];
    for (std::size_t i = 0; i < plan.results.size(); ++i) results[i] = {};
    const auto is_view = [&](std::size_t i) { return i < plan.views.size() && plan.views[i]; };
    std::size_t made = 0;  // operands before it are what the call is given
    bool done = true;
    for (; done && made < plan.operands.size(); ++made) {
      if (!is_view(made)) continue;
      operands[made] = view_of(operands[made], plan.operands[made], *plan.views[made], lock, symbols);
      done = operands[made].object != nullptr;
    }
    for (std::size_t i = 0; i < plan.operands.size(); ++i)
      operands[i].given = parts_.buffers[std::size_t(plan.operands[i])].kind == BufferKind::Input;
    done = done && lock.host().call_extern(plan.handle, {operands.data(), plan.operands.size()},
                                           symbols.first(parts_.graph_symbols), {results.data(), plan.results.size()});
    for (std::size_t i = 0; i < made; ++i)
      if (is_view(i) && operands[i].object) lock.host().release(operands[i].object);
    if (!done) return false;
    for (std::size_t i = 0; i < plan.results.size(); ++i) {
      arrays[plan.results[i]] = results[i];
      pointers[plan.results[i]] = static_cast<char*>(results[i].data);
    }
    return true;
  }

  static constexpr int kSettled = 2;
  static constexpr double kNanosecondsOfPass = 1'000;  // at least
  static constexpr std::size_t kZerosOfTheLibrary = std::size_t(1) << 22;  // below, memory that was used before is as fast
  static constexpr std::size_t kUploaded = 16;  // bytes of the largest dtype

  ProgramParts parts_;
  std::vector<std::unique_ptr<const Program>> branches_;
  const Launcher launcher_;
  mutable std::atomic<int> runs_{0};
  const std::uint64_t id_ = new_profile_id();
  std::vector<int> first_account_;  // by step, and the end: of a step of blocks each of its own steps has an account
  std::vector<Life> lives_;
  std::vector<int> begins_as_zeros_;  // by buffer: behind the step that stores them; 0: no step does
  std::vector<int> temporaries_;   // by first use
  std::vector<int> uploaded_;      // inputs in the host's memory, in a program of a device
  std::vector<int> host_buffers_;  // outputs and operands of extern calls whose sizes are known from the start
  std::vector<int> symbol_after_;  // by symbol: the step that counts it or the last of what it is computed from, or -1
  std::vector<int> late_after_;    // by buffer: the step that counts the last of its sizes, or -1
  std::vector<int> late_buffers_;  // buffers that are allocated after a count: no inputs, no results of extern calls
  std::vector<std::vector<int>> starts_, ends_;  // by step: the buffers it starts or ends (find_borders)
  std::vector<std::vector<std::int64_t>> shapes_;  // by buffer: sizes, then strides
  bool is_static_ = false;
  std::vector<Place> static_places_;
  std::size_t static_arena_ = 0;
  int launches_ = 0;
  std::optional<DirectKernel> direct_;
  std::unique_ptr<LaunchRecord> record_;  // of a device that issues launches together
};

}  // namespace

std::unique_ptr<Program> make_compiled_program(ProgramParts parts) {
  return std::make_unique<CompiledProgram>(std::move(parts));
}

}  // namespace fj
