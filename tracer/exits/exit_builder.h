/// From the symbolic state at an exit to a Segment: the graph's outputs and writes, and the recipe that rebuilds every
/// live value and replays the side effects in order.
///
/// Each Value gets one register, so objects that are the same come back as the same. Making steps come first, effects
/// after them. For a Value that can't be rebuilt CannotRebuildValue is thrown, with the step the Value was born at, and
/// the trace is ended before that step instead.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tracer/interpreter/trace_run.h"
#include "tracer/restart.h"

namespace fj {

/// The segment of a trace that ran to the return of the outermost frame.
std::unique_ptr<Segment> build_return(TraceRun& t, const V& result);
/// The segment of a trace that ends where it stands: `exit` says why.
std::unique_ptr<Segment> build_stop(TraceRun& t, Exit exit);
/// Values of real objects that have an identity.
std::vector<V> tracked_values(TraceRun& t);

class ExitBuilder {
 public:
  explicit ExitBuilder(TraceRun& tracer) : t_(tracer), segment_(std::make_unique<Segment>()) {}

  /// `result`: of a return; else the frame is left where it stands, and `kind` says what happens there.
  std::unique_ptr<Segment> finish(const Frame& frame, const V* result, Exit::Kind kind);

 private:
  int build(const V& value);
  int make(const V& value);
  int build_array(const V& value);
  bool is_marked(const ArrayValue& array) const;
  int detached_tensor(const DetachedTensor& detached, DType dtype, int owner);
  int build_instance(const V& value, InstanceValue& instance);
  V unbound_method(const V& below, const V& above);
  std::vector<int> dict_items(const DictValue& dict);
  bool contains_itself(const V& value);
  int storage_owner(FakeStorage& storage, const std::shared_ptr<FakeStorage>& shared);
  int output_of(ValueId value, Library library, const Strides& strides, bool scalar, bool inference = false);
  void build_effects();
  void keep_written_apart();
  const std::vector<V>& tracked() {
    if (tracked_.empty()) tracked_ = tracked_values(t_);
    return tracked_;
  }
  void guard_apart(SourceRef written, const std::vector<SourceRef>& others);
  void keep_apart(const V& written);
  void keep_apart_from_dicts(SourceRef space);
  static bool held_in_the_end(const Value& owner, const V& argument);
  void fill_dict(int target, const DictValue& dict);
  void order_views();
  std::vector<GradientView> views_to_link() const;
  void derive();
  void keep_assumptions();
  std::vector<int> inputs_behind(const std::set<ValueId>& values) const;  // those they are computed from
  [[noreturn]] void cannot(const V& value) { throw CannotRebuildValue{value->born, describe(value)}; }

  RecipeStep& step(RecipeOp op, std::vector<int> args = {}) {
    RecipeStep step;
    step.op = op;
    step.args = std::move(args);
    step.target = segment_->recipe.register_count++;
    steps_.push_back(std::move(step));
    return steps_.back();
  }
  RecipeStep& effect_step(RecipeOp op, std::vector<int> args) {
    RecipeStep step;
    step.op = op;
    step.args = std::move(args);
    effects_.push_back(std::move(step));
    return effects_.back();
  }
  int from_source(SourceRef source) {
    RecipeStep& made = step(RecipeOp::FromSource);
    made.source = source;
    return made.target;
  }
  /// A key of a dict or set: a constant, or the object a proxy stands for.
  int key(Ref<> object);
  int constant(Ref<> object) {
    RecipeStep& made = step(RecipeOp::Constant);
    made.object = std::move(object);
    return made.target;
  }

  TraceRun& t_;
  std::unique_ptr<Segment> segment_;
  std::vector<RecipeStep> steps_, effects_;
  std::map<Value*, int> registers_;
  std::map<FakeStorage*, int> owners_, owner_outputs_;  // registers, and indices of outputs
  std::map<const DetachedTensor*, int> detached_;
  struct BuiltView {
    const ArrayValue* array;
    int target;
  };
  std::vector<BuiltView> gradient_views_;  // views that torch has a gradient of; those of views behind these
  std::set<FakeStorage*> freed_;           // whose owner has no gradient any more
  std::set<int*> moved_versions_;
  int depth_ = 0;              // of containers in containers, while one is built
  std::vector<V> tracked_;
  std::vector<V> alive_;  // a key of registers_ must not be freed and reused
};

}  // namespace fj
