/// The compiled segments of one function under one set of options.
///
/// Places are instructions; each holds the segments that start there. Everything here
/// happens with the GIL held: guards run no Python code, so a search is never interrupted, and whoever found a segment
/// keeps it alive while it runs, by a reference or by Running. Publishing after a compilation (which releases the GIL)
/// adds to what others have added meanwhile.
#pragma once

#include <Python.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cpython/cpython.h"
#include "cpython/ref.h"
#include "frame_hook/cache/place.h"
#include "frame_hook/loops/loop_regions.h"
#include "runtime/base/options.h"
#include "tracer/interpreter/loops.h"
#include "tracer/tracer.h"

namespace fj {

/// While one exists, caches that are dropped stay: whoever runs a compiled piece holds no reference to it of its own,
/// which would cost an atomic operation or two per call. Made and destroyed with the GIL held.
class Running {
 public:
  Running() { ++count(); }
  ~Running() {
    if (--count() == 0 && !dropped().empty()) release();
  }
  Running(const Running&) = delete;
  /// Frees caches and segments, now or when nothing runs.
  template <class T>
  static void drop(std::vector<std::shared_ptr<T>> parts) {
    if (count() == 0) return;
    for (auto& part : parts) dropped().push_back(std::move(part));
  }

 private:
  static void release();
  static int& count() {
    static int running = 0;
    return running;
  }
  static std::vector<std::shared_ptr<const void>>& dropped();
};

struct FreeCode {
  void operator()(FjCode* code) const { fj_free_code(code); }
};

class CodeCache {
 public:
  /// Null with an error set if the code can't be decoded.
  static std::shared_ptr<CodeCache> create(PyCodeObject* code, Options options);

  bool own = false;  // for the options that the function was compiled with, which hold outside of blocks of others

  struct JudgedLoop : Loop {
    JudgedLoop(const Loop& loop) : Loop(loop) {}
    LoopRegions regions;
    bool cpythons = false;  // its passes run in CPython: what they would save compiled costs more (loop_account.h)
    bool unrolled = false;  // however long it is: no piece of several passes serves all positions
  };
  std::vector<JudgedLoop>& loops() { return loops_; }
  /// The loop with this header; null: there is none.
  JudgedLoop* loop_at(int header) {
    for (JudgedLoop& loop : loops_)
      if (loop.header == header) return &loop;
    return nullptr;
  }

  /// What a run of the function has found out about its loops.
  struct Judgement {
    bool made = false;
    /// All of the function runs in CPython: what its other pieces save is less than what they cost.
    bool cpythons = false;
    bool losers = false;         // a region has lost
    std::int64_t magnitude = 0;  // of what the function was given then
    std::uint64_t kinds = 0;     // likewise, the types of it
    std::vector<char> loops;     // while calls of other kinds are judged: cpythons, by loop
  };
  Judgement judgement;
  /// Loops are judged for each kind of arguments, and anew where the function is given much more than when they were.
  void judge_again(std::int64_t magnitude, std::uint64_t kinds);

  /// Where pieces begin: at an instruction, or at a loop's header as several of its passes.
  int entry_of_passes(int header) const { return decoded_->count + header; }
  int instruction_of(int entry) const { return entry < decoded_->count ? entry : entry - decoded_->count; }
  /// The loop is to be unrolled from the next call on: pieces that end in front of it are dropped.
  void unroll(JudgedLoop& loop);

  /// A segment of this place whose guards hold; `bindings` are its.
  /// `decisions`: the first ones of a followed segment, which is none of `failed`.
  std::shared_ptr<const Segment> find(int entry, const FrameValues& values, GuardBindings& bindings,
                                      const std::vector<bool>& decisions,
                                      const std::vector<std::shared_ptr<const Segment>>& failed);
  Place& place(int entry) {
    auto& place = places_[std::size_t(entry)];
    if (!place) [[unlikely]] place = std::make_unique<Place>();
    return *place;
  }
  /// Null: nothing was looked for there.
  const Place* known_place(int entry) const { return places_[std::size_t(entry)].get(); }
  /// Drops the least recently used segments of the process where `kept_bytes` are exceeded, never the new one.
  void publish(int entry, std::shared_ptr<const Segment> segment);
  /// Drops a segment that was made from a wrong prediction, so that it is traced again.
  void forget(int entry, const Segment* segment);
  static void note_use(const Segment& segment) {
    segment.last_used = ++clock_;
    ++segment.uses;
  }

  struct Usage {
    std::uint64_t bytes = 0, segments = 0, dropped = 0;
  };
  /// What all caches hold, and what was dropped for want of room.
  static Usage usage();
  static void reset_usage();

  const FjCode& decoded() const { return *decoded_; }
  PyCodeObject* code() const { return code_.get(); }
  const Options& options() const { return options_; }
  /// Whether Python computes each call too (frame_hook/beside_python.h).
  bool beside_python() const { return beside_python_; }

  /// For Python's garbage collector: the objects that the segments hold, each as often as it is held. A class that a
  /// guard names may have the compiled function among its attributes. What parts of a segment share with each other is
  /// left out.
  int traverse(visitproc visit, void* arg) const;

  /// Operations of a piece that can be compiled within the budget, as far as that has been found out; the next piece is
  /// not tried with more.
  int bearable_nodes = std::numeric_limits<int>::max();
  std::uint64_t data_breaks = 0;  // at branches on data, since ways were last tried: see join_ways
  bool compiling = false;     // one thread at a time traces; others run eagerly meanwhile

  CodeCache();
  ~CodeCache();
  CodeCache(const CodeCache&) = delete;

 private:
  static void make_room(std::uint64_t limit, const Segment* keep);
  inline static std::uint64_t clock_ = 0;

  Ref<PyCodeObject> code_;
  std::unique_ptr<FjCode, FreeCode> decoded_;
  Options options_;
  bool beside_python_ = false;
  std::vector<std::unique_ptr<Place>> places_;  // by entry; few are ever looked at
  std::vector<JudgedLoop> loops_;
  std::vector<Judgement> other_judgements_;  // of other kinds of arguments, the latest last
  std::vector<std::shared_ptr<const Segment>> retired_;  // forgotten, perhaps while another thread runs them
};

}  // namespace fj
