/// Loops whose end data decide, as a way through a function meets them (branches.h).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpython/cpython.h"
#include "tracer/branches.h"
#include "tracer/state/modes.h"
#include "tracer/tracer.h"

namespace fj {

/// What a variable or stack entry is, as far as a value of no certain pass has to be the same.
struct StateForm {
  bool number = false;  // Python's: of F64, I64 or Bool
  Library library = Library::Numpy;
  DType dtype = DType::F64;
  Dims shape;
  Strides strides;
  bool numpy_scalar = false, wrapped_number = false;
  bool gradient = false;  // a derivative flows through it; which alone may differ between passes
  bool operator==(const StateForm&) const = default;
  bool same_as(const StateForm& other) const {
    StateForm copy = other;
    copy.gradient = gradient;
    return *this == copy;
  }
};

/// A variable, then stack entries, by number; behind it the items of tuples in it.
using StatePlace = std::vector<int>;

struct LoopPlan {
  std::map<StatePlace, StateForm> changed;  // of which a pass makes another array or number of the same form
  std::map<StatePlace, StateForm> made;     // and that have no such thing before the first pass
  std::set<int> lost;                // and of which it makes something else: nothing may read them behind it
  bool moves = false;                // an array of one place becomes that of another
  bool writes = false;               // arrays are written in place
  std::set<StatePlace> stays;        // of which the loop may leave what came from outside
  std::set<StatePlace> shows;        // and what is known elsewhere in the trace
  bool operator==(const LoopPlan&) const = default;
};

/// A loop as the way sees it: the instructions from which it comes to the header again.
struct PassOf {
  int header;
  std::vector<bool> inside;
};
std::vector<PassOf> passes_of(const FjCode& code);

/// A loop that the way is in.
struct OpenLoop {
  std::size_t number;                 // among TracedWay::loops
  const Frame* frame;
  const PassOf* pass;
  std::pair<const void*, int> key;
  std::vector<bool> before;           // the outcomes of the branches before it
  Tracer::Mark mark;
  std::vector<V> held;                // by variable and stack entry
  std::map<StatePlace, ValueId> contents;  // of what is an array there, or an item
  std::vector<std::pair<StatePlace, StateForm>> states;
  std::vector<V> first;               // by state: what it is before the first pass; null: nothing yet
  std::vector<V> inside;              // and what stands for it in a pass
  int iterator = -1;                  // the place of that of a `for`
  bool asks_behind = false;           // a pass of a range that is not empty asks behind itself whether another follows
  std::vector<bool> alone;            // by state: nothing else shows that
  Modes modes;                        // when it was entered
};

/// A plan has grown: the ways are to be traced again.
struct PlanGrown {};

/// The way ends here, as if the function returned this.
struct WayEnds {
  V result;
};

/// A constant of Python's numbers as one that the program computes; anything else is itself.
V computed_number(TraceRun& t, const V& value);

/// range() of ints of which the program computes one, and its iterator, which a loop on data alone can use.
V computed_range(TraceRun& t, const std::vector<V>& arguments);
std::shared_ptr<IteratorValue> iterate_computed(TraceRun& t, const CountedRange& range);

/// Before an instruction of a frame: enters, repeats or leaves loops.
void pass_loops(TraceRun& t, Frame& frame);
/// A frame returns: from inside of a loop on data none can.
void leave_frame(TraceRun& t, const Frame& frame);

}  // namespace fj
