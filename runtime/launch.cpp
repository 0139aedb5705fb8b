// Dealing work out to threads. Start reading at Launcher::kernel; batch() and blocks() are launches over several
// kernels.
#include "runtime/launch.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/float_flags.h"
#include "runtime/kept_block.h"
#include "runtime/scratch.h"
#include "runtime/special_values.h"
#include "runtime/strided_copy.h"
#include "runtime/thread_pool.h"

namespace fj {

namespace {

// A launch is worth waking threads above this, and a chunk should amortise being claimed (measured: an idle worker
// costs some microseconds to wake).
constexpr double kParallelNanoseconds = 25000;
constexpr double kChunkNanoseconds = 8000;
// Signals are looked for between chunks. What is expected here may be several times as much where memory is slow.
constexpr double kMostChunkNanoseconds = 1e6;
// Of one product between two looks for a signal, in rows that pay for copying the right matrix again.
constexpr double kLongProductNanoseconds = 4e8;
constexpr std::int64_t kProductRows = 256;
constexpr double kProductNanoseconds = 0.02;  // of one product and sum
constexpr double kCopiedByteNanoseconds = 0.15;

/// Memory of this thread for the kernel it runs.
char* thread_scratch(std::size_t bytes) {
  thread_local KeptBlock block;
  return block.get(bytes);
}

/// And for the rows that several kernels work on.
KeptBlock& thread_rows() {
  thread_local KeptBlock block;
  return block;
}

std::uint32_t run_kernel(KernelFunction function, char* const* buffers, const std::int64_t* symbols, std::int64_t begin,
                         std::int64_t end, std::size_t scratch_bytes) {
  char* scratch = nullptr;
  if (scratch_bytes && !(scratch = thread_scratch(scratch_bytes))) return kHostFailed;
  return function(buffers, symbols, begin, end, scratch);
}

/// What the chunks of a launch have in common.
struct Launch {
  KernelFunction function;
  char* const* buffers;
  const std::int64_t* symbols;
  std::int64_t items, items_per_chunk;
  std::size_t scratch_bytes;
  bool conditions;
  HostLock& lock;
  std::atomic<std::uint32_t> status{0};

  static void run_chunk(void* context, std::int64_t chunk) {
    Launch& launch = *static_cast<Launch*>(context);
    if (launch.lock.interrupted()) return;
    const std::int64_t begin = chunk * launch.items_per_chunk;
    const std::int64_t end = std::min(begin + launch.items_per_chunk, launch.items);
    const Conditions collected(launch.conditions);
    std::uint32_t status =
        run_kernel(launch.function, launch.buffers, launch.symbols, begin, end, launch.scratch_bytes);
    status |= collected.raised();
    if (status) launch.status.fetch_or(status, std::memory_order_relaxed);
  }
};

/// What the product raises besides what the processor collects, of which not every thread of the library's is asked: of
/// infinities the host tells (docs/numerics.md).
template <class T>
std::uint32_t multiply_as(std::int64_t m, std::int64_t n, std::int64_t k, const char* a, MatrixLayout a_layout,
                          const char* b, MatrixLayout b_layout, char* c, std::int64_t c_stride, bool conditions,
                          int threads) {
  auto* result = reinterpret_cast<T*>(c);
  gemm(m, n, k, reinterpret_cast<const T*>(a), a_layout, reinterpret_cast<const T*>(b), b_layout, result, c_stride,
       threads);
  if (!conditions) return 0;
  std::uint32_t status = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    const SpecialValues found = find_special_values(result + i * c_stride, n);
    if (found.infinity) return kFloatInvalid;
    if (found.nan) status = kNotFinite;
  }
  return status;
}

}  // namespace

Launcher::Launcher(const ProgramParts& parts) : parts_(parts) {
  for (const ProgramKernel& kernel : parts.kernels) {
    const bool constant =
        kernel.items.is_constant() && kernel.elements_per_item.is_constant() && kernel.scratch_bytes.is_constant();
    plans_.push_back(constant ? std::optional(plan_launch(kernel, {})) : std::nullopt);
  }
  for (const ProgramStep& step : parts.steps)
    batches_.push_back(step.kind == StepKind::Batch && !parts.device ? plan_batch(step.batch) : BatchPlan());
}

LaunchPlan Launcher::plan_launch(const ProgramKernel& kernel, std::span<const std::int64_t> symbols) const {
  LaunchPlan plan{};
  plan.items = kernel.items.evaluate(symbols);
  plan.items_per_chunk = plan.items;
  plan.chunks = 1;
  plan.scratch_bytes = std::size_t(kernel.scratch_bytes.evaluate(symbols));
  const double item =
      kernel.nanoseconds_per_element * double(std::max<std::int64_t>(kernel.elements_per_item.evaluate(symbols), 1));
  const double total = item * double(plan.items);
  plan.nanoseconds = total;
  if (plan.items <= 1) return plan;
  const int threads = parts_.threads > 0 ? std::min(parts_.threads, thread_count()) : thread_count();
  plan.threads = double(threads) <= kernel.unshared_speedup ? 1 : parts_.threads;
  const bool alone = plan.threads == 1 || threads == 1;
  if (total < (alone ? kMostChunkNanoseconds : kParallelNanoseconds)) return plan;
  // Enough chunks that a late thread costs little.
  const double chunk = alone ? kMostChunkNanoseconds
                             : std::clamp(total / (8.0 * thread_count()), kChunkNanoseconds, kMostChunkNanoseconds);
  std::int64_t items = std::max<std::int64_t>(1, std::int64_t(chunk / item));
  items = (items + kernel.items_per_step - 1) / kernel.items_per_step * kernel.items_per_step;
  plan.items_per_chunk = std::min(items, plan.items);
  plan.chunks = (plan.items + plan.items_per_chunk - 1) / plan.items_per_chunk;
  return plan;
}

BatchPlan Launcher::plan_batch(const std::vector<int>& kernels) const {
  BatchPlan plan;
  double total = 0;
  const auto nanoseconds = [&](const ProgramKernel& kernel) {
    return kernel.nanoseconds_per_element * double(std::max<std::int64_t>(kernel.elements_per_item.evaluate({}), 1));
  };
  for (int k : kernels) total += nanoseconds(parts_.kernels[k]) * double(parts_.kernels[k].items.evaluate({}));
  const bool parallel = total >= kParallelNanoseconds;
  const double chunk = std::clamp(total / (8.0 * thread_count()), kChunkNanoseconds, kMostChunkNanoseconds);
  plan.nanoseconds = total;
  double filled = chunk;  // of the chunk being made
  for (int k : kernels) {
    const ProgramKernel& kernel = parts_.kernels[k];
    const double item = nanoseconds(kernel);
    const std::int64_t items = kernel.items.evaluate({});
    for (std::int64_t begin = 0; begin < items;) {
      if (plan.chunks.empty() || (parallel && filled >= chunk)) {
        plan.chunks.push_back(int(plan.parts.size()));
        filled = 0;
      }
      std::int64_t count = items - begin;
      if (parallel) {
        count = std::max<std::int64_t>(1, std::int64_t((chunk - filled) / item));
        count = std::min((count + kernel.items_per_step - 1) / kernel.items_per_step * kernel.items_per_step,
                         items - begin);
      }
      plan.parts.push_back({k, begin, begin + count});
      filled += item * double(count);
      begin += count;
    }
  }
  plan.chunks.push_back(int(plan.parts.size()));
  return plan;
}

std::uint32_t Launcher::kernel(int number, std::span<const std::int64_t> symbols, char** pointers,
                               HostLock& lock) const {
  const ProgramKernel& kernel = parts_.kernels[std::size_t(number)];
  const LaunchPlan* known = planned(number);
  const LaunchPlan plan = known ? *known : plan_launch(kernel, symbols);
  if (plan.items <= 0) return 0;
  lock.work(plan.nanoseconds);
  // A launch is run by one tier from end to end.
  const KernelFunction function = kernel.code->function();
  Scratch<char*, 16> gathered(kernel.buffers.size());
  if (!kernel.buffers.empty()) {
    for (std::size_t b = 0; b < kernel.buffers.size(); ++b) gathered[b] = pointers[kernel.buffers[b]];
    pointers = gathered.data();
  }
  if (plan.chunks <= 1) {
    const Conditions collected(parts_.float_conditions);
    const std::uint32_t status = run_kernel(function, pointers, symbols.data(), 0, plan.items, plan.scratch_bytes);
    return status | collected.raised();
  }
  Launch shared{function, pointers, symbols.data(), plan.items, plan.items_per_chunk, plan.scratch_bytes,
                parts_.float_conditions, lock};
  parallel_for(plan.chunks, Launch::run_chunk, &shared, plan.threads);
  return lock.interrupted() ? kInterrupted : shared.status.load(std::memory_order_relaxed);
}

/// What the chunks of a batch have in common.
struct Launcher::BatchLaunch {
  const ProgramParts& program;
  const BatchPlan& plan;
  std::span<const std::int64_t> symbols;
  char** pointers;
  HostLock& lock;
  std::atomic<std::uint32_t> status{0};

  static void run_chunk(void* context, std::int64_t chunk) {
    auto& launch = *static_cast<BatchLaunch*>(context);
    if (launch.lock.interrupted()) return;
    const ProgramParts& program = launch.program;
    const Conditions collected(program.float_conditions);
    std::uint32_t status = 0;
    for (int p = launch.plan.chunks[std::size_t(chunk)]; p < launch.plan.chunks[std::size_t(chunk) + 1]; ++p) {
      const BatchPlan::Part& part = launch.plan.parts[std::size_t(p)];
      const ProgramKernel& kernel = program.kernels[part.kernel];
      Scratch<char*, 16> gathered(kernel.buffers.size());
      for (std::size_t b = 0; b < kernel.buffers.size(); ++b) gathered[b] = launch.pointers[kernel.buffers[b]];
      status |= run_kernel(kernel.code->function(), kernel.buffers.empty() ? launch.pointers : gathered.data(),
                           launch.symbols.data(), part.begin, part.end, std::size_t(kernel.scratch_bytes.evaluate({})));
    }
    status |= collected.raised();
    if (status) launch.status.fetch_or(status, std::memory_order_relaxed);
  }
};

std::uint32_t Launcher::batch(int step, std::span<const std::int64_t> symbols, char** pointers, HostLock& lock) const {
  const BatchPlan& plan = batches_[std::size_t(step)];
  BatchLaunch shared{parts_, plan, symbols, pointers, lock};
  const auto chunks = std::int64_t(plan.chunks.size()) - 1;
  if (chunks <= 0) return 0;
  lock.work(plan.nanoseconds);
  if (chunks == 1)
    BatchLaunch::run_chunk(&shared, 0);
  else
    parallel_for(chunks, BatchLaunch::run_chunk, &shared, parts_.threads);
  return lock.interrupted() ? kInterrupted : shared.status.load(std::memory_order_relaxed);
}

namespace {

// Bytes between the steps below which a core's cache holds all of it anyway, and what a block may have.
constexpr std::int64_t kWorthBlocks = std::int64_t(3) << 19;
constexpr std::int64_t kBlockBytes = std::int64_t(1) << 20;
// A product copies its right matrix into an order of its own for each block, which fewer rows do not pay for.
constexpr std::int64_t kFewestRows = 128;
// Blocks for threads to share, if they have a few rows then. The same on every machine: the library's last bits may
// depend on it.
constexpr std::int64_t kManyBlocks = 32;
constexpr std::int64_t kFewRows = 16;

}  // namespace

std::int64_t ProgramBlocks::rows_in_block(std::int64_t all_rows, std::int64_t bytes) const {
  if (bytes <= 0 || all_rows < kWorthBlocks / bytes) return 0;
  std::int64_t block =
      std::max(std::min(kBlockBytes / bytes, all_rows / kManyBlocks), has_product ? kFewestRows : kFewRows);
  block = std::max(block / together * together, together);
  // So few rows without a product are as large as a cache: a block gains nothing there, and each thread keeps one.
  if (!has_product && block * bytes > 4 * kBlockBytes) return 0;
  return block < all_rows ? block : 0;
}

/// What the blocks of rows of a step have in common.
struct Launcher::BlocksLaunch {
  const Launcher& launcher;
  const ProgramBlocks& blocks;
  std::int64_t rows, rows_per_block;
  std::span<const std::int64_t> symbols;
  char** pointers;
  HostLock& lock;
  ProfiledRun* profile;
  int account;
  std::atomic<std::uint32_t> status{0};

  static void run_chunk(void* context, std::int64_t chunk) {
    auto& launch = *static_cast<BlocksLaunch*>(context);
    if (launch.lock.interrupted()) return;
    const Conditions collected(launch.launcher.parts_.float_conditions);
    const std::uint32_t status = launch.run_rows(chunk * launch.rows_per_block) | collected.raised();
    if (status) launch.status.fetch_or(status, std::memory_order_relaxed);
  }

  /// Of one block's rows of a buffer.
  std::size_t bytes_of(const ProgramBlocks::Local& local) const {
    const auto size = std::size_t(local.row_bytes.evaluate(symbols) * rows_per_block);
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Where the buffers lie for one block, beginning at row `first`, in memory that `kept` has. False: there is none.
  bool place(std::int64_t first, KeptBlock& kept, char** here) const {
    std::size_t bytes = kAlignment;
    for (const auto& local : blocks.locals) bytes += bytes_of(local);
    char* memory = kept.get(bytes);
    if (!memory) return false;
    std::copy_n(pointers, launcher.parts_.buffers.size(), here);
    for (const auto& local : blocks.locals) {
      // Steps address whole arrays: the first of these rows lies where the memory begins.
      here[local.buffer] = memory - first * local.row_bytes.evaluate(symbols);
      memory += bytes_of(local);
    }
    return true;
  }

  std::uint32_t run_rows(std::int64_t first) const {
    const std::int64_t last = std::min(first + rows_per_block, rows);
    const std::size_t count = launcher.parts_.buffers.size();
    Scratch<char*, 32> here(count), gathered(count);
    KeptBlock own;  // of more than a thread should keep
    const bool large = blocks.row_bytes.evaluate(symbols) * rows_per_block > 4 * kBlockBytes;
    if (!place(first, large ? own : thread_rows(), here.data())) return kHostFailed;
    std::uint32_t status = 0;
    for (std::size_t s = 0; s < blocks.steps.size(); ++s) {
      const ProgramStep& step = blocks.steps[s];
      const std::int64_t started = profile ? nanoseconds_now() : 0;
      if (step.kind == StepKind::Matmul) {
        const OneThreadProducts alone;
        status |= launcher.multiply_rows(step.matmul, symbols, here.data(), first, last);
      } else {
        const ProgramKernel& kernel = launcher.parts_.kernels[step.kernel];
        for (std::size_t b = 0; b < kernel.buffers.size(); ++b) gathered[b] = here[kernel.buffers[b]];
        const std::int64_t each = blocks.rows_per_item[s];
        status |=
            run_kernel(kernel.code->function(), kernel.buffers.empty() ? here.data() : gathered.data(), symbols.data(),
                       first / each, last / each, std::size_t(kernel.scratch_bytes.evaluate(symbols)));
      }
      if (profile) profile->add_part(account + int(s), nanoseconds_now() - started);
    }
    return status;
  }
};

std::uint32_t Launcher::blocks(const ProgramBlocks& blocks, std::span<const std::int64_t> symbols, char** pointers,
                               HostLock& lock, ProfiledRun* profile, int account) const {
  const std::int64_t rows = blocks.rows.evaluate(symbols);
  if (rows == 0) return 0;
  BlocksLaunch shared{*this, blocks, rows, blocks.rows_in_block(rows, blocks.row_bytes.evaluate(symbols)), symbols,
                      pointers, lock, profile, account};
  if (shared.rows_per_block) {
    lock.wait();  // the work is long
    parallel_for((rows + shared.rows_per_block - 1) / shared.rows_per_block, BlocksLaunch::run_chunk, &shared,
                 parts_.threads);
    return lock.interrupted() ? kInterrupted : shared.status.load(std::memory_order_relaxed);
  }
  // One step after the other, which share their work among threads themselves. The memory is this run's own: between
  // steps a signal handler may run, and in it another program on this thread.
  shared.rows_per_block = rows;
  KeptBlock own;
  Scratch<char*, 32> here(parts_.buffers.size());
  if (!shared.place(0, own, here.data())) return kHostFailed;
  std::uint32_t status = 0;
  for (const ProgramStep& step : blocks.steps) {
    const std::int64_t started = profile ? nanoseconds_now() : 0;
    status |= step.kind == StepKind::Matmul ? multiply(step.matmul, symbols, here.data(), lock)
                                            : kernel(step.kernel, symbols, here.data(), lock);
    if (profile) profile->add_part(account++, nanoseconds_now() - started);
    if (status & kInterrupted) break;
  }
  return status;
}

/// What the copies of a step have in common.
struct Launcher::CopiesLaunch {
  const ProgramCopies& copies;
  std::span<const std::int64_t> symbols;
  char* const* pointers;
  std::int64_t bytes;
  std::size_t parts_per_chunk;
  HostLock& lock;

  static void run_chunk(void* context, std::int64_t chunk) {
    auto& launch = *static_cast<CopiesLaunch*>(context);
    if (launch.lock.interrupted()) return;
    const std::size_t first = std::size_t(chunk) * launch.parts_per_chunk;
    const std::size_t last = std::min(first + launch.parts_per_chunk, launch.copies.parts.size());
    for (std::size_t p = first; p < last; ++p) launch.run(launch.copies.parts[p]);
  }

  std::int64_t number(const SymDim& size) const {
    return size.is_constant() ? size.value() : size.evaluate(symbols);
  }

  void run(const ProgramCopies::Part& part) const {
    const std::size_t rank = part.sizes.size();
    Scratch<CopiedAxis, 8> axes(rank);
    for (std::size_t d = 0; d < rank; ++d)
      axes[d] = {number(part.sizes[d]), number(part.from_strides[d]), number(part.to_strides[d])};
    copy_elements(pointers[part.source] + number(part.from) * bytes, pointers[copies.target] + number(part.to) * bytes,
                  {axes.data(), rank}, std::size_t(bytes));
  }
};

std::uint32_t Launcher::copies(const ProgramCopies& copies, std::span<const std::int64_t> symbols, char** pointers,
                               HostLock& lock) const {
  const ProgramBuffer& target = parts_.buffers[std::size_t(copies.target)];
  const auto bytes = std::int64_t(size_in_bytes(target.dtype));
  double elements = 1;
  for (const SymDim& size : target.shape) elements *= double(size.evaluate(symbols));
  const double nanoseconds = kCopiedByteNanoseconds * double(bytes) * elements;
  lock.work(nanoseconds);
  const std::size_t count = copies.parts.size();
  CopiesLaunch shared{copies, symbols, pointers, bytes, count, lock};
  const double chunk = nanoseconds < kParallelNanoseconds ? nanoseconds : kChunkNanoseconds;
  if (nanoseconds > 0)
    shared.parts_per_chunk = std::clamp<std::size_t>(std::size_t(double(count) * chunk / nanoseconds), 1, count);
  const auto chunks = std::int64_t((count + shared.parts_per_chunk - 1) / shared.parts_per_chunk);
  // Those that lie over each other are copied in their order.
  parallel_for(chunks, CopiesLaunch::run_chunk, &shared, copies.apart ? parts_.threads : 1);
  return lock.interrupted() ? std::uint32_t(kInterrupted) : 0;
}

std::uint32_t Launcher::multiply(const ProgramMatmul& plan, std::span<const std::int64_t> symbols, char** pointers,
                                 HostLock& lock) const {
  std::int64_t rows = plan.m.evaluate(symbols);
  for (const SymDim& size : plan.batch) rows *= size.evaluate(symbols);
  const double row = kProductNanoseconds * double(plan.n.evaluate(symbols)) * double(plan.k.evaluate(symbols));
  lock.work(row * double(rows));
  // Whole matrices: the library decides what is summed in which order by their sizes. But of one that takes long so
  // many rows that a signal need not wait for its end.
  const std::int64_t m = std::max<std::int64_t>(plan.m.evaluate(symbols), 1);
  std::int64_t together = rows;
  if (row * double(m) > kLongProductNanoseconds)
    together = std::max(std::int64_t(kLongProductNanoseconds / row) / kProductRows * kProductRows, kProductRows);
  else if (row > 0)
    together = m * std::max(std::int64_t(std::min(kMostChunkNanoseconds / (row * double(m)), 1e9)), std::int64_t(1));
  std::uint32_t status = 0;
  for (std::int64_t first = 0; first < rows; first += together) {
    if (lock.interrupted()) return kInterrupted;
    const Conditions collected(parts_.float_conditions);
    status |= multiply_rows(plan, symbols, pointers, first, std::min(first + together, rows));
    status |= collected.raised();
  }
  return status;
}

std::uint32_t Launcher::multiply_rows(const ProgramMatmul& plan, std::span<const std::int64_t> symbols, char** pointers,
                                      std::int64_t first, std::int64_t last) const {
  const std::size_t batch_rank = plan.batch.size();
  Scratch<std::int64_t, 64> numbers(4 * batch_rank);
  for (std::size_t d = 0; d < batch_rank; ++d) {
    numbers[4 * d] = plan.batch[d].evaluate(symbols);
    numbers[4 * d + 1] = plan.a_strides[d].evaluate(symbols);
    numbers[4 * d + 2] = plan.b_strides[d].evaluate(symbols);
    numbers[4 * d + 3] = plan.c_strides[d].evaluate(symbols);
  }
  const std::int64_t m = plan.m.evaluate(symbols), n = plan.n.evaluate(symbols), k = plan.k.evaluate(symbols);
  if (first == last || n == 0) return 0;
  const MatrixLayout a_layout{plan.a_strides[batch_rank].evaluate(symbols),
                              plan.a_strides[batch_rank + 1].evaluate(symbols)};
  const MatrixLayout b_layout{plan.b_strides[batch_rank].evaluate(symbols),
                              plan.b_strides[batch_rank + 1].evaluate(symbols)};
  const std::int64_t c_stride = plan.c_strides[batch_rank].evaluate(symbols);
  const auto size = std::int64_t(size_in_bytes(plan.dtype));
  std::uint32_t status = 0;
  for (std::int64_t item = first / m; item * m < last; ++item) {
    const std::int64_t from = std::max(first - item * m, std::int64_t(0)), to = std::min(last - item * m, m);
    std::int64_t rest = item, a = from * a_layout.row_stride, b = 0, c = from * c_stride;
    for (std::size_t d = batch_rank; d-- > 0;) {
      const std::int64_t at = rest % numbers[4 * d];
      rest /= numbers[4 * d];
      a += at * numbers[4 * d + 1];
      b += at * numbers[4 * d + 2];
      c += at * numbers[4 * d + 3];
    }
    auto* run = plan.dtype == DType::F32 ? multiply_as<float> : multiply_as<double>;
    status |= run(to - from, n, k, pointers[plan.a] + a * size, a_layout, pointers[plan.b] + b * size, b_layout,
                  pointers[plan.c] + c * size, c_stride, parts_.float_conditions, parts_.threads);
  }
  return status;
}

std::uint32_t DirectKernel::run(char* const* arrays) const {
  const Conditions collected(float_conditions);
  return run_kernel(code->function(), arrays, nullptr, 0, items, scratch_bytes) | collected.raised();
}

}  // namespace fj
