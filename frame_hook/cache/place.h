/// The segments that start at one instruction: how a call's is found, and whether another one may be made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frame_hook/memory_wait.h"
#include "segment/segment.h"
#include "tracer/tracer.h"

namespace fj {

/// What made calls miss, by the leaf that differed: said when no further segment is made.
struct Miss {
  std::string leaf, location;
  std::vector<std::string> found;  // the first few
  int count = 0;
};

struct Place {
  std::vector<std::shared_ptr<const Segment>> segments;  // the newest last
  Generalisations generalise;
  std::vector<Miss> misses;
  bool traced = false;
  bool exhausted = false;  // no further segment, ever: what matches nothing runs in CPython from here
  bool frameless = false;  // some segment here may be: see Segment::may_be_frameless
  MemoryWait memory;        // of the pieces that were to be made here
  bool compares = false;    // the last call was one of a comparison with CPython
  std::uint32_t refused = 0;  // calls that matched nothing and got no segment: those here had not paid for themselves

  /// Segments that have not paid for themselves yet are at most `limit`, and one more each time that the calls refused
  /// have doubled: compiling costs at most what it has saved, but for these.
  bool may_grow(std::int64_t limit) const;
  /// A call that matched nothing is refused without another look at what the segments have saved.
  bool refuses() const { return refused % kLookAgain != 0; }

  void add(std::shared_ptr<const Segment> segment) {
    traced = true;
    frameless = frameless || segment->may_be_frameless();
    segments.push_back(std::move(segment));
    by_look_.reset();
  }

  /// A call that looks like the last ones, which were all left to CPython by an entry that is retired, is left to it
  /// too, and the entry's guards, which cost what CPython has won, are asked now and then.
  bool may_leave() const { return left_ >= kLeft; }
  bool leaves(std::span<PyObject* const> args, PyObject* kwnames);  // if it may
  void note_left(std::span<PyObject* const> args, PyObject* kwnames);
  void note_served() { left_ = 0; }

  /// The order in which segments are looked at: from the one that served last downwards, then from the newest on.
  std::size_t in_order(std::size_t position) const { return (last() + segments.size() - position) % segments.size(); }
  const Segment& latest() const { return *segments[last()]; }

 private:
  friend class Search;
  static constexpr std::uint32_t kLookAgain = 16;
  static constexpr std::uint32_t kLeft = 16;  // calls in a row, of one look, and then each so many-th, ask the guards
  std::size_t last() const { return served_ < segments.size() ? served_ : segments.size() - 1; }

  /// What the last call of one look came to. What is wrong here costs time alone.
  struct Known {
    static constexpr std::uint16_t kNone = UINT16_MAX;
    std::uint16_t index = 0;    // of the segment that served it; kNone: there was none
    std::uint16_t numbers = 0;  // of the look and the call's numbers: a call that differs in one may be served
  };

  std::size_t served_ = 0;  // which one served the last call
  std::uint32_t left_ = 0;  // calls in a row that were left to CPython
  std::uint64_t left_look_ = 0;
  std::unique_ptr<std::array<Known, 256>> by_look_;  // null: few segments
};

/// A call's search for its segment: first the one that served the last call, then the one that served the last call
/// that looked alike (types, dtypes, strings, objects), then all. A cycle of a hundred kinds of calls finds each at
/// once.
class Search {
 public:
  Search(Place& place, const FrameValues& values) : place_(place), values_(values) {}
  /// The next one to be asked; null: all have been. Meanwhile no other thread runs.
  const std::shared_ptr<const Segment>* next();
  /// The one that `next` gave last serves the call.
  void found();
  /// None of the place's segments does.
  void found_none();
  /// None served the last call that looked alike, its numbers too. Known once `next` has given the second one.
  bool none_served_alike() const;
  /// From the first again: other threads may have changed the place.
  void restart() { position_ = 0, alike_.reset(), look_.reset(); }

  struct Look {
    std::uint8_t look;
    std::uint16_t numbers;
  };

 private:
  void note(std::uint16_t index);

  Place& place_;
  const FrameValues& values_;
  std::size_t position_ = 0;          // in the order
  std::size_t given_ = 0;             // index of what `next` gave last
  std::optional<std::size_t> alike_;  // index that was asked out of order
  std::optional<Look> look_;          // of the call
};

}  // namespace fj
