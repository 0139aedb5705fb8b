// A sequence is looked up by its kernels and its stream: a program's are few, and mostly it is the one after the last.
// By the stream too, for launches of one graph wait for each other.
#include "runtime/cuda/launch_graphs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/log.h"

namespace fj::cuda {

namespace {

// Of one program: a program with more library calls, or on more streams, loses the oldest.
constexpr std::size_t kKept = 64;
constexpr int kNotNow = -1;  // no CUresult

/// A node as the driver takes it: it reads the values before it returns.
class Node {
 public:
  Node(const KernelLaunch& launch, std::span<const std::uint64_t> values) : pointers_(launch.parameters()) {
    launch.point(values.data() + launch.first, pointers_.data());
    parameters_ = {launch.function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, pointers_.data(), nullptr};
  }
  const KernelNode* parameters() const { return &parameters_; }

 private:
  std::vector<void*> pointers_;
  KernelNode parameters_;
};

}  // namespace

struct LaunchGraphs::Sequence {
  void* stream = nullptr;
  std::vector<KernelLaunch> launches;  // of the last run,
  std::vector<std::uint64_t> values;   // and their arguments
  void* graph = nullptr;
  void* executable = nullptr;
  std::vector<void*> nodes;
  bool refused = false;

  bool is(std::span<const KernelLaunch> others, void* on) const {
    return stream == on &&
           std::equal(launches.begin(), launches.end(), others.begin(), others.end(),
                      [](const KernelLaunch& a, const KernelLaunch& b) { return a.function == b.function; });
  }
};

LaunchGraphs::LaunchGraphs(const Driver& driver, void* context) : driver_(driver), context_(context) {}

LaunchGraphs::~LaunchGraphs() {
  if (driver_.push_context(context_) != 0) return;  // the process ends
  for (const auto& sequence : sequences_) destroy(*sequence);
  void* left = nullptr;
  driver_.pop_context(&left);
}

bool LaunchGraphs::launch(std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values, void* stream) {
  if (launches.size() < 2) return false;
  const int code = try_launch(launches, values, stream);
  // Without the lock: the sink of logs may be Python's.
  if (code > 0 && log_enabled(Artifact::fallbacks)) {
    try {
      driver_.check(code,
                    "making a graph of " + std::to_string(launches.size()) + " launches: they are made one by one");
    } catch (const DeviceError& error) {
      log(Artifact::fallbacks, error.what());
    }
  }
  return code == 0;
}

int LaunchGraphs::try_launch(std::span<const KernelLaunch> launches, std::span<const std::uint64_t> values,
                             void* stream) {
  std::lock_guard lock(mutex_);
  int status = 0;
  // Of a stream that cannot be asked the launches themselves say what is wrong. What the user records is recorded as it
  // would be without us.
  if (driver_.capturing(stream, &status) != 0 || status != 0) return kNotNow;
  bool fresh = false;
  Sequence& sequence = find(launches, stream, fresh);
  if (fresh || sequence.refused) return kNotNow;
  int code = sequence.executable ? update(sequence, launches, values) : build(sequence, launches, values);
  if (code == 0) code = driver_.graph_launch(sequence.executable, stream);
  if (code != 0) {
    sequence.refused = true;
    destroy(sequence);
  }
  return code;
}

LaunchGraphs::Sequence& LaunchGraphs::find(std::span<const KernelLaunch> launches, void* stream, bool& fresh) {
  for (std::size_t i = 1; i <= sequences_.size(); ++i) {
    const std::size_t at = (last_ + i) % sequences_.size();
    if (!sequences_[at]->is(launches, stream)) continue;
    last_ = at;
    return *sequences_[at];
  }
  fresh = true;
  if (sequences_.size() == kKept) {
    destroy(*sequences_.front());
    sequences_.erase(sequences_.begin());
  }
  sequences_.push_back(std::make_unique<Sequence>());
  last_ = sequences_.size() - 1;
  sequences_.back()->stream = stream;
  sequences_.back()->launches.assign(launches.begin(), launches.end());
  return *sequences_.back();
}

int LaunchGraphs::build(Sequence& sequence, std::span<const KernelLaunch> launches,
                        std::span<const std::uint64_t> values) const {
  const OtherCapturesUntouched untouched(driver_);
  if (const int code = driver_.graph_create(&sequence.graph, 0)) return code;
  for (const KernelLaunch& launch : launches) {
    void* node = nullptr;
    // One after the other, as on the stream.
    const Node made(launch, values);
    if (const int code =
            driver_.graph_add_kernel(&node, sequence.graph, sequence.nodes.empty() ? nullptr : &sequence.nodes.back(),
                                     sequence.nodes.empty() ? 0 : 1, made.parameters()))
      return code;
    sequence.nodes.push_back(node);
  }
  sequence.launches.assign(launches.begin(), launches.end());
  sequence.values.assign(values.begin(), values.end());
  return driver_.graph_instantiate(&sequence.executable, sequence.graph, 0);
}

int LaunchGraphs::update(Sequence& sequence, std::span<const KernelLaunch> launches,
                         std::span<const std::uint64_t> values) const {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const KernelLaunch& launch = launches[i];
    const auto now = values.subspan(launch.first, launch.arguments);
    if (launch == sequence.launches[i] &&
        std::equal(now.begin(), now.end(), sequence.values.begin() + std::ptrdiff_t(launch.first)))
      continue;
    const Node changed(launch, values);
    if (const int code = driver_.graph_set_kernel(sequence.executable, sequence.nodes[i], changed.parameters()))
      return code;
  }
  sequence.launches.assign(launches.begin(), launches.end());
  sequence.values.assign(values.begin(), values.end());
  return 0;
}

void LaunchGraphs::destroy(Sequence& sequence) const {
  const OtherCapturesUntouched untouched(driver_);
  // One that runs is freed by the driver when it has ended.
  if (void* executable = std::exchange(sequence.executable, nullptr)) driver_.graph_destroy_executable(executable);
  if (void* graph = std::exchange(sequence.graph, nullptr)) driver_.graph_destroy(graph);
}

}  // namespace fj::cuda
