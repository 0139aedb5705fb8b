// Looks at each commit copy: who computes its source, who else touches source and target. Start at write_in_place.
#include "codegen/commit.h"

#include <algorithm>

#include "codegen/steps.h"

namespace fj {

using namespace loop;

namespace {

void collect_stores(std::vector<Statement>& body, std::vector<Statement*>& found) {
  for (Statement& statement : body) {
    if (is_store(statement.kind)) found.push_back(&statement);
    collect_stores(statement.body, found);
  }
}

/// Every statement but loops is a store, and all are in one body: an iteration computes all values before it stores the first.
bool stores_together(const std::vector<Statement>& body) {
  if (body.size() == 1 && body[0].kind == StatementKind::Loop) return stores_together(body[0].body);
  return std::all_of(body.begin(), body.end(), [](const Statement& statement) { return statement.kind == StatementKind::Store; });
}

bool contains(const std::vector<int>& list, int item) { return std::find(list.begin(), list.end(), item) != list.end(); }

void add_once(std::vector<int>& list, int item) {
  if (!contains(list, item)) list.push_back(item);
}

class Commits {
 public:
  Commits(LoweredProgram& program, bool may_trap) : program_(program), may_trap_(may_trap) {}

  void run() {
    if (std::none_of(program_.steps.begin(), program_.steps.end(), [](const ProgramStep& step) { return step.commit; })) return;
    hoist_small_failures();
    find_touches();
    std::vector<bool> gone(program_.steps.size());
    for (std::size_t c = 0; c < program_.steps.size(); ++c) gone[c] = program_.steps[c].commit && becomes_in_place(int(c));
    remove(gone);
  }

 private:
  Kernel& kernel_of(const ProgramStep& step) { return program_.kernels[std::size_t(step.kernel)]; }

  /// What fails before anything is written needs no copies of what is written. Moved are kernels of one item only: others would
  /// change how long large arrays live.
  void hoist_small_failures() {
    const std::size_t count = program_.steps.size();
    std::vector<std::vector<int>> before(count);  // steps that have to stay before this one
    std::vector<bool> movable(count), first(count);
    std::vector<std::vector<int>> writers(program_.buffers.size()), readers(program_.buffers.size());
    bool any = false, counted = false;  // what is counted may be a size of anything later
    for (std::size_t s = 0; s < count; ++s) {
      const ProgramStep& step = program_.steps[s];
      counted = counted || step.kind == StepKind::Nonzero;
      const StepTouches touched = touches(program_, step);
      for (int buffer : touched.reads) before[s].insert(before[s].end(), writers[buffer].begin(), writers[buffer].end());
      for (int buffer : touched.writes)
        for (const auto* list : {&writers[buffer], &readers[buffer]}) before[s].insert(before[s].end(), list->begin(), list->end());
      for (int buffer : touched.reads) readers[buffer].push_back(int(s));
      for (int buffer : touched.writes) writers[buffer].push_back(int(s));
      movable[s] = !counted && step.kind == StepKind::Kernel && !step.commit && kernel_of(step).parallel.empty() && kernel_of(step).variables.empty() &&
                   std::all_of(before[s].begin(), before[s].end(), [&](int earlier) { return movable[std::size_t(earlier)]; });
      if (movable[s] && may_fail(program_, step, may_trap_)) first[s] = any = true;
    }
    if (!any) return;
    for (std::size_t s = count; s-- > 0;)
      if (first[s])
        for (int earlier : before[s]) first[std::size_t(earlier)] = true;
    std::vector<ProgramStep> sorted;
    for (const bool wanted : {true, false})
      for (std::size_t s = 0; s < count; ++s)
        if (first[s] == wanted) sorted.push_back(std::move(program_.steps[s]));
    program_.steps = std::move(sorted);
  }

  void find_touches() {
    by_step_.clear();
    by_buffer_.assign(program_.buffers.size(), {});
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      by_step_.push_back(touches(program_, program_.steps[s]));
      for (const auto* list : {&by_step_[s].reads, &by_step_[s].writes})
        for (int buffer : *list) add_once(by_buffer_[std::size_t(buffer)], int(s));
      if (may_fail(program_, program_.steps[s], may_trap_)) last_failing_ = int(s);
    }
  }

  /// The kernel may store to `target` what it now stores to `source`.
  bool reads_only_what_it_writes(Kernel& kernel, int source, int target) {
    // Several passes over a row would read what an earlier one has overwritten.
    if (!kernel.accumulators.empty()) return false;
    std::vector<Statement*> stores;
    collect_stores(kernel.body, stores);
    std::erase_if(stores, [&](const Statement* store) { return store->buffer != source; });
    if (stores.size() != 1) return false;
    const bool together = stores_together(kernel.body);
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Load && expr.buffer == target && !(together && expr.address == stores[0]->address)) return false;
    return stores[0]->kind == StatementKind::Store;
  }

  bool becomes_in_place(int c) {
    const ProgramStep& copy = program_.steps[std::size_t(c)];
    if (copy.kind != StepKind::Kernel || by_step_[c].reads.size() != 1 || by_step_[c].writes.size() != 1) return false;
    const int source = by_step_[c].reads[0], target = by_step_[c].writes[0];
    if (program_.buffers[source].kind != BufferKind::Temporary || program_.buffers[target].kind != BufferKind::Input) return false;
    if (!(program_.buffers[source].strides == program_.buffers[target].strides)) return false;
    int producer = -1;
    for (int s : by_buffer_[source]) {
      if (s == c) continue;
      const ProgramStep& step = program_.steps[std::size_t(s)];
      if (s > c || step.kind != StepKind::Kernel) return false;
      if (!contains(by_step_[s].writes, source)) continue;
      if (producer >= 0) return false;
      producer = s;
    }
    if (producer <= last_failing_) return false;
    for (int s : by_buffer_[target])
      if (s != c && s > producer && s < c) return false;  // needs the old contents
    if (!reads_only_what_it_writes(kernel_of(program_.steps[std::size_t(producer)]), source, target)) return false;
    for (int s : by_buffer_[source]) {
      if (s == c) continue;
      Kernel& kernel = kernel_of(program_.steps[std::size_t(s)]);
      std::vector<Statement*> stores;
      collect_stores(kernel.body, stores);
      for (Statement* store : stores)
        if (store->buffer == source) store->buffer = target;
      for (Expr& expr : kernel.expressions)
        if (expr.kind == ExprKind::Load && expr.buffer == source) expr.buffer = target;
      by_step_[s] = touches(program_, program_.steps[std::size_t(s)]);
      add_once(by_buffer_[target], s);
    }
    program_.steps[std::size_t(producer)].commit = true;
    return true;
  }

  void remove(const std::vector<bool>& gone) {
    std::vector<Kernel> kernels;
    std::vector<ProgramStep> steps;
    std::vector<int> number(program_.kernels.size(), -1);
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      if (gone[s]) continue;
      ProgramStep& step = steps.emplace_back(std::move(program_.steps[s]));
      if (step.kind != StepKind::Kernel) continue;
      int& kept = number[std::size_t(step.kernel)];
      if (kept < 0) {
        kept = int(kernels.size());
        kernels.push_back(std::move(program_.kernels[std::size_t(step.kernel)]));
      }
      step.kernel = kept;
    }
    program_.kernels = std::move(kernels);
    program_.steps = std::move(steps);
  }

  LoweredProgram& program_;
  const bool may_trap_;
  std::vector<StepTouches> by_step_;
  std::vector<std::vector<int>> by_buffer_;  // steps
  int last_failing_ = -1;
};

}  // namespace

void write_in_place(LoweredProgram& program, bool may_trap) { Commits(program, may_trap).run(); }

}  // namespace fj
