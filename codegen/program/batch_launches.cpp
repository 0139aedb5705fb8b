// List scheduling: steps in order, each to the end of a new list or into a launch that is in it already, behind all it
// depends on.
#include "codegen/program/batch_launches.h"

#include <algorithm>
#include <map>

#include "codegen/program/program_parts.h"
#include "codegen/program/step_effects.h"

namespace fj {

namespace {

class Batches {
 public:
  Batches(LoweredProgram& program, const std::vector<int>& work, bool may_trap, const BatchLimits& limits)
      : program_(program), work_(work), may_trap_(may_trap), limits_(limits) {}

  void run() {
    written_.assign(program_.buffers.size(), -1);
    read_.assign(program_.buffers.size(), -1);
    for (ProgramStep& step : program_.steps) {
      const StepTouches touched = touches(program_, step);
      // The place behind everything this step has to follow.
      int after = std::max(step.commit ? last_failing_ : -1, last_count_);
      for (int buffer : touched.reads) after = std::max(after, written_[std::size_t(buffer)]);
      for (int buffer : touched.writes)
        after = std::max({after, written_[std::size_t(buffer)], read_[std::size_t(buffer)]});
      const bool fails = may_fail(program_, step, may_trap_), counts = step.kind == StepKind::Count;
      const int at = place(step, touched, after);
      for (int buffer : touched.reads) read_[std::size_t(buffer)] = std::max(read_[std::size_t(buffer)], at);
      for (int buffer : touched.writes) written_[std::size_t(buffer)] = std::max(written_[std::size_t(buffer)], at);
      if (counts) last_count_ = at;
      if (fails) last_failing_ = std::max(last_failing_, at);
    }
    program_.steps = std::move(placed_);
  }

 private:
  int place(ProgramStep& step, const StepTouches& touched, int after) {
    const bool small = step.kind == StepKind::Kernel && is_small(step, touched);
    if (small) {
      const auto open = open_.find({work_[std::size_t(step.kernel)], step.commit});
      if (open != open_.end() && open->second > after) {
        ProgramStep& launch = placed_[std::size_t(open->second)];
        if (launch.kind == StepKind::Kernel) {
          launch.kind = StepKind::Batch;
          launch.batch = {launch.kernel};
        }
        launch.batch.push_back(step.kernel);
        return open->second;
      }
      open_[{work_[std::size_t(step.kernel)], step.commit}] = int(placed_.size());
    }
    placed_.push_back(std::move(step));
    return int(placed_.size() - 1);
  }

  bool is_small(const ProgramStep& step, const StepTouches& touched) const {
    const auto nanoseconds = launch_nanoseconds(describe_kernel(program_.kernels[std::size_t(step.kernel)]));
    const loop::Kernel& kernel = program_.kernels[std::size_t(step.kernel)];
    if (!nanoseconds || *nanoseconds > limits_.nanoseconds || !kernel.scratch_bytes.is_constant()) return false;
    return std::all_of(touched.writes.begin(), touched.writes.end(), [&](int number) {
      const ProgramBuffer& buffer = program_.buffers[std::size_t(number)];
      if (buffer.kind == BufferKind::Input || buffer.kind == BufferKind::Output) return true;
      const auto elements = product(buffer.shape).constant();
      return elements && *elements * std::int64_t(size_in_bytes(buffer.dtype)) <= limits_.array_bytes;
    });
  }

  LoweredProgram& program_;
  const std::vector<int>& work_;
  const bool may_trap_;
  const BatchLimits limits_;
  std::vector<ProgramStep> placed_;
  std::vector<int> written_, read_;               // by buffer: the last of the placed steps that does
  std::map<std::pair<int, bool>, int> open_;      // by work and commit: the last launch of it
  int last_failing_ = -1;
  int last_count_ = -1;  // what is counted may be a size of anything later
};

}  // namespace

void batch_launches(LoweredProgram& program, const std::vector<int>& work, bool may_trap, const BatchLimits& limits) {
  Batches(program, work, may_trap, limits).run();
}

}  // namespace fj
