/// What of the trace rests on how arrays lie in memory and on what autograd knows of them, for graphs that are called
/// without the trace's guards.
#pragma once

#include <memory>
#include <vector>

#include "tracer/tracer.h"
#include "tracer/value.h"

namespace fj {

struct ArgumentLedger {
  struct Layout {
    std::weak_ptr<FakeStorage> asked, result;  // expired: nobody can see it any more
    SourceRef source;                          // of the array from outside that asked is the memory of; null: made in
    ValueId contents;                          // the trace, of these contents when it was asked
    bool seen = false;                         // the user's code has got the layout itself
    bool written = false;                      // one of the two, afterwards

    /// Whether another layout of the arguments would have led to other results. kept: whether a storage leaves the
    /// trace.
    template <class Kept>
    bool matters(Kept&& kept) const {
      return seen || written || (source && (kept(asked.lock().get()) || kept(result.lock().get())));
    }
  };

  void note_write(const FakeStorage* storage) {
    for (Layout& layout : layouts)
      layout.written |= layout.asked.lock().get() == storage || layout.result.lock().get() == storage;
  }

  /// What the code has got of an array, or of torch's modes.
  struct Autograd {
    AutogradFact what;
    bool answer = false;
    SourceRef source = nullptr;  // of the array from outside; null, of RequiresGrad: of all of them
  };

  std::vector<Layout> layouts;
  std::vector<Autograd> autograd;
};

}  // namespace fj
