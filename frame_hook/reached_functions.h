/// Functions that run while an instruction runs at which a graph broke: called by it, or reached through C (a module's
/// __call__, a property, map, a sort key, a decorator). They get segments of their own, to any depth, on this thread
/// only.
///
/// While that instruction runs, every frame the thread enters comes here. What is worth it is decided per code object
/// and remembered: a function without array work of its own is CPython's, one without any in what it calls either runs
/// with the hook taken out, at full speed. Both are looked at again now and then, less often each time.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "cpython/cpython.h"

namespace fj {

struct FunctionState;
struct Reached;

/// What the breaks of one compiled function have reached. Options, back end and events are that function's.
class ReachedFunctions {
 public:
  explicit ReachedFunctions(FunctionState& root) : root_(root) {}
  /// Null: there are too many.
  Reached* find(PyCodeObject* code, FjFrame* frame);
  std::shared_ptr<Reached> keep(PyCodeObject* code) const;
  /// Whether nothing has been said yet of what this line calls.
  bool first_at(const void* code, int line);
  /// All that is known, which the caller lets die: that may call compiled functions. What runs now goes on.
  std::shared_ptr<const void> take();
  /// For Python's garbage collector: see CodeCache::traverse.
  int traverse(visitproc visit, void* arg) const;

 private:
  using Functions = std::unordered_map<PyCodeObject*, std::shared_ptr<Reached>>;
  FunctionState& root_;
  Functions functions_;
  std::set<std::pair<const void*, int>> said_;
};

/// The instruction at which a graph broke, or from which on CPython runs the frame.
struct BreakPlace {
  const FunctionState& state;
  const FjCode& code;
  int instruction;
};

/// While one exists, functions entered on this stack of frames get segments in `functions`; null: they run as without framejit.
class ReachScope {
 public:
  ReachScope(PyThreadState* thread, ReachedFunctions* functions);
  /// Those that an instruction of `where` calls.
  ReachScope(PyThreadState* thread, const BreakPlace& where);
  ~ReachScope();
  ReachScope(const ReachScope&) = delete;

 private:
  PyThreadState* thread_;
  void* outer_functions_;
  const void* outer_place_;
  FjReach outer_;
};

/// A piece with array work has run on this thread: whatever led to it is worth looking at.
void note_array_work(FunctionState& state);
/// How often that was so in other functions than this one, or on other threads: to be compared with what it was.
std::uint64_t array_work_besides(const FunctionState& state);

}  // namespace fj
