// Looks at each commit copy: who computes its source, who else touches source and target. Start at write_in_place.
#include "codegen/program/in_place_writes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "codegen/program/step_effects.h"
#include "codegen/schedule/cost.h"

namespace fj {

using namespace loop;

namespace {

/// Stores next to each other: the values of all are computed before the first is stored.
using Run = std::vector<Statement*>;

void collect_stores(std::vector<Statement>& body, std::vector<Run>& runs, std::vector<Statement*>& others) {
  bool open = false;
  for (Statement& statement : body) {
    if (statement.kind != StatementKind::Store) {
      others.push_back(&statement);
      collect_stores(statement.body, runs, others);
      open = false;
      continue;
    }
    if (!std::exchange(open, true)) runs.emplace_back();
    runs.back().push_back(&statement);
  }
}

/// By expression: whether it needs what lies in `buffer`.
std::vector<bool> reached_by(const Kernel& kernel, int buffer) {
  enum State : char { unknown, no, yes };
  std::vector<State> states(kernel.expressions.size(), unknown);
  const auto reached = [&](auto&& self, ExprId id) -> bool {
    if (states[id.index] != unknown) return states[id.index] == yes;
    const Expr& expr = kernel[id];
    bool found = expr.kind == ExprKind::Load && expr.buffer == buffer;
    found = found || any_operand(expr, [&](ExprId operand) { return self(self, operand); });
    states[id.index] = found ? yes : no;
    return found;
  };
  std::vector<bool> result(states.size());
  for (std::uint32_t i = 0; i < states.size(); ++i) result[i] = reached(reached, ExprId{i});
  return result;
}

bool contains(const std::vector<int>& list, int item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// A byte that goes to memory or comes from it, on one core: nearer to what the last cache takes than to memory.
constexpr double kNanosecondsPerByte = 0.03;
/// Copies beside the inputs that stay in a core's cache cost less than computing twice.
constexpr double kCachedBytes = 1 << 19;

/// Of all that is stored only what it reports is left: what is computed, and the indices it would be stored at.
void check_stores(std::vector<Statement>& body) {
  std::vector<Statement> checked;
  for (Statement& statement : body) {
    check_stores(statement.body);
    if (!is_store(statement.kind)) {
      checked.push_back(std::move(statement));
      continue;
    }
    std::vector<ExprId> values{statement.value};
    for (const auto& [index, coefficient] : statement.address.dynamic) values.push_back(index);
    if (statement.predicate.valid()) values.push_back(statement.predicate);
    for (ExprId value : values) {
      checked.push_back(Statement{StatementKind::Check});
      checked.back().value = value;
    }
  }
  body = std::move(checked);
}

void rename_stores(std::vector<Statement>& body, int from, int to) {
  for (Statement& statement : body) {
    rename_stores(statement.body, from, to);
    if (is_store(statement.kind) && statement.buffer == from) statement.buffer = to;
  }
}

class Commits {
 public:
  Commits(LoweredProgram& program, bool may_trap) : program_(program), may_trap_(may_trap) {}

  void run() {
    if (std::none_of(program_.steps.begin(), program_.steps.end(), [](const ProgramStep& step) { return step.commit; }))
      return;
    hoist_small_failures();
    find_touches();
    if (scatter_into_inputs()) find_touches();
    if (delay_updates()) find_touches();
    gone_.assign(program_.steps.size(), false);
    for (std::size_t c = 0; c < program_.steps.size(); ++c)
      gone_[c] = program_.steps[c].commit && becomes_in_place(int(c));
    remove();
  }

 private:
  Kernel& kernel_of(const ProgramStep& step) { return program_.kernels[std::size_t(step.kernel)]; }

  /// What fails before anything is written needs no copies of what is written. Moved are kernels of one item only:
  /// others would change how long large arrays live.
  void hoist_small_failures() {
    const std::size_t count = program_.steps.size();
    std::vector<std::vector<int>> before(count);  // steps that have to stay before this one
    std::vector<bool> movable(count), first(count);
    std::vector<std::vector<int>> writers(program_.buffers.size()), readers(program_.buffers.size());
    bool any = false, counted = false;  // what is counted may be a size of anything later
    for (std::size_t s = 0; s < count; ++s) {
      const ProgramStep& step = program_.steps[s];
      counted = counted || step.kind == StepKind::Count;
      const StepTouches touched = touches(program_, step);
      for (int buffer : touched.reads)
        before[s].insert(before[s].end(), writers[buffer].begin(), writers[buffer].end());
      for (int buffer : touched.writes)
        for (const auto* list : {&writers[buffer], &readers[buffer]})
          before[s].insert(before[s].end(), list->begin(), list->end());
      for (int buffer : touched.reads) readers[buffer].push_back(int(s));
      for (int buffer : touched.writes) writers[buffer].push_back(int(s));
      movable[s] =
          !counted && step.kind == StepKind::Kernel && !step.commit && kernel_of(step).parallel.empty() &&
          kernel_of(step).variables.empty() &&
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
    last_failing_ = -1;
    by_buffer_.assign(program_.buffers.size(), {});
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      by_step_.push_back(touches(program_, program_.steps[s]));
      for (const auto* list : {&by_step_[s].reads, &by_step_[s].writes})
        for (int buffer : *list) add_once(by_buffer_[std::size_t(buffer)], int(s));
      if (may_fail(program_, program_.steps[s], may_trap_)) last_failing_ = int(s);
    }
  }

  /// The kernel may store to `target` what it now stores to `source`: an element of target is read only where it is
  /// written, and nothing but what is stored next to it is computed from it. (Another pass over a row would read what
  /// has been written.)
  bool reads_only_what_it_writes(Kernel& kernel, int source, int target, const Affine& shift) const {
    if (program_.target != LoopTarget::Lanes && !kernel.accumulators.empty()) return false;
    std::vector<Run> runs;
    std::vector<Statement*> others;
    collect_stores(kernel.body, runs, others);
    const auto to_source = [&](const Statement* store) { return store->buffer == source; };
    const auto home = std::find_if(runs.begin(), runs.end(),
                                   [&](const Run& run) { return std::any_of(run.begin(), run.end(), to_source); });
    if (home == runs.end() || std::any_of(others.begin(), others.end(), [&](const Statement* other) {
          return is_store(other->kind) && to_source(other);
        }))
      return false;
    const std::vector<bool> needs = reached_by(kernel, target);
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Load && expr.buffer == target &&
          std::none_of(home->begin(), home->end(), [&](const Statement* store) {
            return to_source(store) && store->address + shift == expr.address;
          }))
        return false;
    const auto reads = [&](const Statement* statement) {
      const auto needed = [&](ExprId expr) { return expr.valid() && needs[expr.index]; };
      return needed(statement->value) || needed(statement->predicate) ||
             std::any_of(statement->address.dynamic.begin(), statement->address.dynamic.end(),
                         [&](const auto& term) { return needed(term.first); });
    };
    for (auto run = runs.begin(); run != runs.end(); ++run)
      if (run != home && std::any_of(run->begin(), run->end(),
                                     [&](const Statement* store) { return to_source(store) || reads(store); }))
        return false;
    return std::none_of(others.begin(), others.end(), reads);
  }

  /// Elements at data-dependent places of an input (`x[i] += y`) are written there, not into a copy of all of it that
  /// is copied back:
  ///     t = copy x;  t[i] += y;  x <- copy t        =>    check i;  x[i] += y
  bool scatter_into_inputs() {
    if (program_.target != LoopTarget::Lanes) return false;
    const std::size_t count = program_.steps.size();
    std::vector<bool> dropped(count);
    std::vector<std::vector<int>> moved(count);  // by commit copy: the scatters that come in its place
    bool any = false;
    for (std::size_t c = 0; c < count; ++c) {
      if (!program_.steps[c].commit) continue;
      const std::vector<int> scatters = scatters_behind(int(c));
      if (scatters.empty()) continue;
      const auto [source, target] = std::pair(by_step_[c].reads[0], by_step_[c].writes[0]);
      dropped[c] = dropped[std::size_t(by_buffer_[std::size_t(source)][0])] = any = true;
      for (int s : scatters) rename_stores(kernel_of(program_.steps[std::size_t(s)]).body, source, target);
      moved[c] = scatters;
    }
    if (!any) return false;
    std::vector<bool> waits(count);
    for (const auto& scatters : moved)
      for (int s : scatters) waits[std::size_t(s)] = true;
    std::vector<ProgramStep> sorted;
    for (std::size_t s = 0; s < count; ++s) {
      if (waits[s] && may_fail(program_, program_.steps[s], may_trap_)) sorted.push_back(check_of(program_.steps[s]));
      if (!waits[s] && !dropped[s]) sorted.push_back(program_.steps[s]);
      for (int scatter : moved[s]) {
        sorted.push_back(program_.steps[std::size_t(scatter)]);
        sorted.back().commit = true;
      }
    }
    program_.steps = std::move(sorted);
    remove_unused_kernels();
    return true;
  }

  /// The scatters into a copy of an input that commit copy `c` copies back. None: anything else reads or writes the
  /// copy, or what they read is written in between.
  std::vector<int> scatters_behind(int c) {
    const StepTouches& copied = by_step_[std::size_t(c)];
    if (!is_plain_copy(c)) return {};
    const int source = copied.reads[0], target = copied.writes[0];
    std::vector<int> steps = by_buffer_[std::size_t(source)];
    std::sort(steps.begin(), steps.end());
    if (program_.buffers[std::size_t(source)].kind != BufferKind::Temporary || steps.size() < 3 || steps.back() != c)
      return {};
    const StepTouches& made = by_step_[std::size_t(steps[0])];
    if (!is_plain_copy(steps[0]) || made.reads[0] != target || made.writes[0] != source) return {};
    steps.erase(steps.begin());
    steps.pop_back();
    for (int s : steps) {
      const StepTouches& scatter = by_step_[std::size_t(s)];
      if (program_.steps[std::size_t(s)].kind != StepKind::Kernel || scatter.writes != std::vector<int>{source})
        return {};
      if (contains(scatter.reads, source) || contains(scatter.reads, target)) return {};
      std::vector<Run> runs;
      std::vector<Statement*> others;
      collect_stores(kernel_of(program_.steps[std::size_t(s)]).body, runs, others);
      if (!runs.empty()) return {};
      // What an addition into memory reports shows only where it is made, and a commit is not asked.
      const DType dtype = program_.buffers[std::size_t(source)].dtype;
      const auto adds = [](const Statement* other) { return other->kind == StatementKind::Add; };
      if (may_trap_ && (is_float(dtype) || is_complex(dtype)) && std::any_of(others.begin(), others.end(), adds))
        return {};
      for (int read : scatter.reads)
        for (int other : by_buffer_[std::size_t(read)])
          if (other > s && other < c && contains(by_step_[std::size_t(other)].writes, read)) return {};
    }
    return steps;
  }

  /// One buffer into another, element by element where it lies.
  bool is_plain_copy(int s) {
    const StepTouches& touched = by_step_[std::size_t(s)];
    if (program_.steps[std::size_t(s)].kind != StepKind::Kernel || touched.reads.size() != 1 ||
        touched.writes.size() != 1)
      return false;
    const ProgramBuffer &from = program_.buffers[std::size_t(touched.reads[0])],
                        &to = program_.buffers[std::size_t(touched.writes[0])];
    const std::optional<Affine> shift = shift_of(kernel_of(program_.steps[std::size_t(s)]));
    return from.shape == to.shape && shift && *shift == Affine();
  }

  struct Update {
    int source = -1, target = -1;  // buffers
    int producer = -1;             // the step that computes source
    Affine shift = {};             // from where an element lies in source to where it is written in target
  };

  /// The distance of the copy's store from its load, the same for all elements.
  static std::optional<Affine> shift_of(Kernel& copy) {
    std::vector<Run> runs;
    std::vector<Statement*> others;
    collect_stores(copy.body, runs, others);
    std::optional<Affine> shift;
    for (const Run& run : runs)
      for (const Statement* store : run) {
        const Expr& load = copy[store->value];
        if (load.kind != ExprKind::Load) return std::nullopt;
        const Affine distance = store->address + load.address * SymDim(-1);
        if (!distance.is_constant() || (shift && !(*shift == distance))) return std::nullopt;
        shift = distance;
      }
    return shift;
  }

  /// What commit copy `c` writes to an input could be computed there, as far as who else touches both does not matter.
  /// No producer: no.
  Update update_of(int c) {
    const ProgramStep& copy = program_.steps[std::size_t(c)];
    if (copy.kind != StepKind::Kernel || by_step_[c].reads.size() != 1 || by_step_[c].writes.size() != 1) return {};
    Update update{by_step_[c].reads[0], by_step_[c].writes[0]};
    const int source = update.source, target = update.target;
    if (program_.buffers[source].kind != BufferKind::Temporary || program_.buffers[target].kind != BufferKind::Input)
      return {};
    const std::optional<Affine> shift = shift_of(kernel_of(copy));
    if (!shift) return {};
    update.shift = *shift;
    for (int s : by_buffer_[source]) {
      if (s == c) continue;
      if (s > c || program_.steps[std::size_t(s)].kind != StepKind::Kernel) return {};
      if (!contains(by_step_[s].writes, source)) continue;
      if (update.producer >= 0) return {};
      update.producer = s;
    }
    if (update.producer < 0 || !reads_only_what_it_writes(kernel_of(program_.steps[std::size_t(update.producer)]),
                                                          source, target, update.shift))
      return {};
    return update;
  }

  /// Steps that only compute new contents of inputs go behind the last one that can fail, where they can write in
  /// place, unless what they read takes more memory until then than what they compute. One that can fail itself leaves
  /// a check where it was, if that pays.
  bool delay_updates() {
    const std::size_t count = std::size_t(last_failing_ + 1);
    std::vector<std::vector<int>> copies(count);  // by step: of what it computes
    for (std::size_t c = 0; c < program_.steps.size(); ++c) {
      if (!program_.steps[c].commit) continue;
      const Update update = update_of(int(c));
      if (update.producer >= 0 && update.producer <= last_failing_)
        copies[std::size_t(update.producer)].push_back(int(c));
    }
    std::vector<bool> late(count), checked(count);
    double made = 0;
    for (std::size_t s = 0; s < count; ++s) {
      double saved = 0;
      for (int c : copies[s]) saved += bytes(by_step_[std::size_t(c)].reads[0]);
      if (saved == 0 || !can_wait(int(s), saved)) continue;
      late[s] = true;
      checked[s] = may_fail(program_, program_.steps[s], may_trap_);
      if (!checked[s]) continue;
      late[s] = checked[s] = copies[s].size() == by_step_[s].writes.size() && computing_again_pays(int(s), saved);
      if (checked[s]) made += saved;
    }
    for (bool again = true; std::exchange(again, false);)
      for (std::size_t s = 0; s < count; ++s) {
        if (!checked[s] || (made > kCachedBytes && std::all_of(copies[s].begin(), copies[s].end(),
                                                               [&](int c) { return is_alone(int(s), c, late); })))
          continue;
        late[s] = checked[s] = false;
        again = true;
      }
    if (std::find(late.begin(), late.end(), true) == late.end()) return false;
    std::vector<ProgramStep> sorted, waiting;
    for (std::size_t s = 0; s < program_.steps.size(); ++s) {
      const bool waits = s < count && late[s];
      if (waits && checked[s]) sorted.push_back(check_of(program_.steps[s]));
      (waits ? waiting : sorted).push_back(std::move(program_.steps[s]));
      if (waits && checked[s]) waiting.back().commit = true;
      if (int(s) == last_failing_) std::move(waiting.begin(), waiting.end(), std::back_inserter(sorted));
    }
    program_.steps = std::move(sorted);
    return true;
  }

  /// Nobody else needs the target of `copy` once step `s` waits, as those in `late` do.
  bool is_alone(int s, int copy, const std::vector<bool>& late) const {
    const std::vector<int>& others = by_buffer_[std::size_t(by_step_[std::size_t(copy)].writes[0])];
    return std::none_of(others.begin(), others.end(), [&](int other) {
      return other != s && other < copy && (other > last_failing_ || (other > s && late[std::size_t(other)]));
    });
  }

  /// A copy beside an input is written, which reads the line of cache first, is read again, and the input is written
  /// the same way.
  bool computing_again_pays(int s, double saved) {
    if (program_.target != LoopTarget::Lanes) return false;
    const Kernel& kernel = kernel_of(program_.steps[std::size_t(s)]);
    if (!(kernel.scratch_bytes == SymDim(0))) return false;
    double read = 0, computed = 0;
    for (int buffer : by_step_[std::size_t(s)].reads) read += bytes(buffer);
    for (const Expr& expr : kernel.expressions)
      if (expr.kind == ExprKind::Pointwise) computed += kNanosecondsOfCost * expression_cost(expr);
    return kNanosecondsPerByte * (5 * saved - (read + saved)) > computed * elements(kernel);
  }

  ProgramStep check_of(const ProgramStep& step) {
    Kernel check = kernel_of(step);
    check.name += "_check";
    check_stores(check.body);
    ProgramStep result = step;
    result.kernel = int(program_.kernels.size());
    program_.kernels.push_back(std::move(check));
    return result;
  }

  bool can_wait(int s, double saved) {
    const auto before_last_failing = [&](int buffer, const auto& matters) {
      return std::any_of(by_buffer_[buffer].begin(), by_buffer_[buffer].end(),
                         [&](int other) { return other != s && other <= last_failing_ && matters(other); });
    };
    for (int buffer : by_step_[s].writes)
      if (before_last_failing(buffer, [](int) { return true; })) return false;
    double kept = 0;
    for (int buffer : by_step_[s].reads) {
      if (before_last_failing(buffer, [&](int other) { return other > s && contains(by_step_[other].writes, buffer); }))
        return false;
      const BufferKind kind = program_.buffers[std::size_t(buffer)].kind;
      if (kind != BufferKind::Input && kind != BufferKind::Output && by_buffer_[buffer].back() <= last_failing_)
        kept += bytes(buffer);
    }
    return kept < saved;
  }

  double bytes(int buffer) const {
    const ProgramBuffer& described = program_.buffers[std::size_t(buffer)];
    return double(hint(product(described.shape), program_.symbols)) * double(size_in_bytes(described.dtype));
  }

  /// Elements that a launch computes.
  double elements(const Kernel& kernel) const {
    double result = double(hint(kernel.elements_per_item, program_.symbols));
    for (VarId variable : kernel.parallel)
      result *= double(hint(kernel.variables[variable.index].extent, program_.symbols));
    return result;
  }

  bool becomes_in_place(int c) {
    const auto [source, target, producer, shift] = update_of(c);
    if (producer <= last_failing_) return false;
    if (contains(by_step_[producer].writes, target))
      return false;  // a part in the same loop: one may lie over the other
    for (int s : by_buffer_[target])
      if (s > producer && s < c && !gone_[std::size_t(s)])
        return false;  // needs the old contents, or writes over these
    for (int s : by_buffer_[source]) {
      if (s == c) continue;
      Kernel& kernel = kernel_of(program_.steps[std::size_t(s)]);
      std::vector<Run> runs;
      std::vector<Statement*> others;
      collect_stores(kernel.body, runs, others);
      for (const Run& run : runs)
        for (Statement* store : run)
          if (store->buffer == source) {
            store->buffer = target;
            store->address = store->address + shift;
          }
      for (Expr& expr : kernel.expressions)
        if (expr.kind == ExprKind::Load && expr.buffer == source) {
          expr.buffer = target;
          expr.address = expr.address + shift;
        }
      by_step_[s] = touches(program_, program_.steps[std::size_t(s)]);
      add_once(by_buffer_[target], s);
    }
    program_.steps[std::size_t(producer)].commit = true;
    return true;
  }

  void remove() {
    std::vector<ProgramStep> steps;
    for (std::size_t s = 0; s < program_.steps.size(); ++s)
      if (!gone_[s]) steps.push_back(std::move(program_.steps[s]));
    program_.steps = std::move(steps);
    remove_unused_kernels();
  }

  void remove_unused_kernels() {
    std::vector<Kernel> kernels;
    std::vector<int> number(program_.kernels.size(), -1);
    for (ProgramStep& step : program_.steps) {
      if (step.kind != StepKind::Kernel) continue;
      int& kept = number[std::size_t(step.kernel)];
      if (kept < 0) {
        kept = int(kernels.size());
        kernels.push_back(std::move(program_.kernels[std::size_t(step.kernel)]));
      }
      step.kernel = kept;
    }
    program_.kernels = std::move(kernels);
  }

  LoweredProgram& program_;
  const bool may_trap_;
  std::vector<StepTouches> by_step_;
  std::vector<std::vector<int>> by_buffer_;  // steps
  std::vector<bool> gone_;  // by step: copies that are not needed
  int last_failing_ = -1;
};

}  // namespace

void write_in_place(LoweredProgram& program, bool may_trap) { Commits(program, may_trap).run(); }

}  // namespace fj
