/// Running a recipe: the half before the program and the half after it.
///
/// Objects that need no output of the program are made before it runs: what can fail for a reason of the user's (an
/// attribute that is gone, a constructor) fails while nothing has happened yet. After the program, which may have
/// written into inputs, only allocations can fail.
#pragma once

#include <span>
#include <vector>

#include "guards/guard_set.h"
#include "runtime/host.h"
#include "segment/segment.h"

namespace fj {

class RecipeRun {
 public:
  RecipeRun(const Segment& segment, const FrameValues& values, const GuardBindings& bindings,
            std::span<const std::int64_t> symbols);

  /// False: a Python error is set, nothing has happened.
  bool before_program();
  /// After `before_program`: whether what the frame and the effects let go of ends without running Python code.
  /// `held`: what the caller holds meanwhile.
  bool drops_quietly(std::span<const ArrayRef> held) const;
  /// Objects made of `outputs` (borrowed). False: a Python error is set, no effect has happened.
  bool objects(std::span<const ArrayRef> outputs);
  /// Side effects in order. False: a Python error is set.
  bool effects();
  void fill(FrameUpdate& update) const;

 private:
  /// New object for a step that makes one; null with an error set, or for Null.
  Ref<> make(const RecipeStep& step);
  Ref<> make_instance(const RecipeStep& step, bool with_arguments);
  Ref<> make_named_tuple(const RecipeStep& step);
  Ref<> make_function(const RecipeStep& step);
  Ref<> make_view(const RecipeStep& step);
  bool apply(const RecipeStep& step);
  /// Before the first Expect counts as a call: what has to be in the caches is there.
  bool holds_expected(std::size_t first) const;
  PyObject* argument(const RecipeStep& step, std::size_t index) const;
  Ref<> arguments_tuple(const RecipeStep& step) const;

  const Segment& segment_;
  const FrameValues& values_;
  const GuardBindings& bindings_;
  std::span<const std::int64_t> symbols_;
  ViewsMade views_made_;
  std::span<const ArrayRef> outputs_;
  std::vector<Ref<>> registers_;
  std::vector<bool> waits_;          // registers that are made after the program
  std::vector<Ref<>> dropped_;       // old contents: released after the last effect, since that can run finalizers
};

}  // namespace fj
