/// What of the trace rests on how arrays lie in memory, for graphs that are called without the trace's guards.
#pragma once

#include <memory>
#include <vector>

#include "tracer/value.h"

namespace fj {

struct LayoutLedger {
  struct Answer {
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
    for (Answer& answer : answers)
      answer.written |= answer.asked.lock().get() == storage || answer.result.lock().get() == storage;
  }

  std::vector<Answer> answers;
};

}  // namespace fj
