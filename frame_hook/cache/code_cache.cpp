// Segments by the instruction they start at. See code_cache.h for why no lock is needed.
#include "frame_hook/cache/code_cache.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

namespace fj {

namespace {

std::set<CodeCache*>& live() {
  static auto* live = new std::set<CodeCache*>;  // never destroyed: caches may outlive everything else
  return *live;
}
std::uint64_t dropped_segments = 0;

std::span<const std::shared_ptr<const Segment>> segments_of(const std::unique_ptr<Place>& place) {
  if (!place) return {};
  return place->segments;
}

}  // namespace

std::vector<std::shared_ptr<const void>>& Running::dropped() {
  static auto* dropped =
      new std::vector<std::shared_ptr<const void>>;  // never destroyed: the process may end in a call
  return *dropped;
}

void Running::release() {
  auto freed = std::exchange(dropped(), {});  // what dies may call compiled functions
}

CodeCache::CodeCache() { live().insert(this); }
CodeCache::~CodeCache() { live().erase(this); }

std::shared_ptr<CodeCache> CodeCache::create(PyCodeObject* code, Options options) {
  std::unique_ptr<FjCode, FreeCode> decoded(fj_decode(code));
  if (!decoded) return nullptr;
  auto cache = std::make_shared<CodeCache>();
  cache->code_ = Ref<PyCodeObject>::borrow(code);
  cache->options_ = std::move(options);
  cache->beside_python_ = cache->options_.backend == "verify";
  cache->places_.resize(2 * std::size_t(decoded->count));
  for (const Loop& loop : loops_of(*decoded)) cache->loops_.emplace_back(loop);
  cache->decoded_ = std::move(decoded);
  return cache;
}

void CodeCache::judge_again(std::int64_t magnitude, std::uint64_t kinds) {
  constexpr double kMuchMore = 4;
  constexpr std::size_t kKinds = 8;
  if (kinds != judgement.kinds) {
    for (JudgedLoop& loop : loops_) judgement.loops.push_back(std::exchange(loop.cpythons, false));
    if (judgement.made || judgement.losers) other_judgements_.push_back(std::move(judgement));
    judgement = {};
    judgement.kinds = kinds;
    const auto known = std::find_if(other_judgements_.begin(), other_judgements_.end(),
                                    [&](const Judgement& one) { return one.kinds == kinds; });
    if (known != other_judgements_.end()) {
      judgement = std::move(*known);
      other_judgements_.erase(known);
      for (std::size_t i = 0; i < loops_.size(); ++i) loops_[i].cpythons = judgement.loops[i];
      judgement.loops.clear();
    } else if (other_judgements_.size() > kKinds) {
      other_judgements_.erase(other_judgements_.begin());
    }
  }
  const bool judged = judgement.made || judgement.losers;
  if (judged && double(magnitude) <= kMuchMore * double(judgement.magnitude)) return;
  if (judged)
    for (JudgedLoop& loop : loops_) {
      loop.cpythons = false;
      for (const auto& region : loop.regions.made) region->judge_again();
    }
  judgement = {};
  judgement.magnitude = magnitude;
  judgement.kinds = kinds;
}

std::shared_ptr<const Segment> CodeCache::find(int entry, const FrameValues& values, GuardBindings& bindings,
                                               const std::vector<bool>& decisions,
                                               const std::vector<std::shared_ptr<const Segment>>& failed) {
  Search search(place(entry), values);
  while (const auto* segment = search.next()) {
    bindings.owned.clear();
    if (!(*segment)->follows(decisions)) continue;
    if (std::find(failed.begin(), failed.end(), *segment) != failed.end()) continue;
    if (!(*segment)->guards->holds(values, bindings)) continue;
    search.found();
    note_use(**segment);
    return *segment;
  }
  search.found_none();
  return nullptr;
}

void CodeCache::publish(int entry, std::shared_ptr<const Segment> segment) {
  Place& target = place(entry);
  const Segment* fresh = segment.get();
  fresh->last_used = ++clock_;
  target.add(std::move(segment));
  if (options_.kept_bytes >= 0) make_room(std::uint64_t(options_.kept_bytes), fresh);
}

CodeCache::Usage CodeCache::usage() {
  Usage usage;
  for (CodeCache* cache : live())
    for (const auto& place : cache->places_)
      for (const auto& segment : segments_of(place)) {
        usage.bytes += segment->bytes;
        usage.segments++;
      }
  usage.dropped = dropped_segments;
  return usage;
}

void CodeCache::reset_usage() { dropped_segments = 0; }

void CodeCache::make_room(std::uint64_t limit, const Segment* keep) {
  std::uint64_t bytes = usage().bytes;
  if (bytes <= limit) return;
  struct Candidate {
    std::uint64_t last_used;
    Place* place;
    std::shared_ptr<const Segment> segment;
  };
  std::vector<Candidate> candidates;
  for (CodeCache* cache : live())
    for (const auto& place : cache->places_)
      for (const auto& segment : segments_of(place))
        if (segment.get() != keep) candidates.push_back({segment->last_used, place.get(), segment});
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.last_used < b.last_used; });
  // A tenth more than needed, so that not every further segment walks all caches.
  const std::uint64_t wanted = limit - limit / 10;
  std::vector<std::shared_ptr<const Segment>> gone;
  for (Candidate& candidate : candidates) {
    if (bytes <= wanted) break;
    bytes -= candidate.segment->bytes;
    std::erase(candidate.place->segments, candidate.segment);
    candidate.place->exhausted = false;
    candidate.place->frameless =
        std::any_of(candidate.place->segments.begin(), candidate.place->segments.end(),
                    [](const auto& segment) { return segment->may_be_frameless(); });
    gone.push_back(std::move(candidate.segment));
  }
  dropped_segments += gone.size();
  candidates.clear();
  Running::drop(std::move(gone));
}

void CodeCache::unroll(JudgedLoop& loop) {
  loop.unrolled = true;
  for (auto& place : places_) {
    if (!place) continue;
    const std::size_t gone = std::erase_if(place->segments, [&](std::shared_ptr<const Segment>& segment) {
      const bool ends_there =
          segment->exit.reason == BreakReason::LoopTooLong && segment->exit.instruction == loop.header;
      if (ends_there) retired_.push_back(std::move(segment));
      return ends_there;
    });
    if (gone > 0) place->exhausted = false;
  }
}

int CodeCache::traverse(visitproc visit, void* arg) const {
  for (const auto& place : places_)
    for (const auto& segment : segments_of(place)) {
      for (const Guard& guard : segment->guards->all()) {
        Py_VISIT(guard.object.get());
        for (const Ref<>& name : guard.names) Py_VISIT(name.get());
      }
      for (const auto& source : segment->guards->sources().all()) Py_VISIT(source->key.get());
      for (const RecipeStep& step : segment->recipe.steps) Py_VISIT(step.object.get());
      // Its derivative has the same table, and a result's grad_fn the derivative: what others hold too is not this
      // function's alone.
      const long owners = 1 + (segment->derivative && segment->derivative.use_count() == 1);
      for (std::size_t i = 0; segment->externs.use_count() == owners && i < segment->externs->size(); ++i) {
        const ExternCall& call = (*segment->externs)[std::int64_t(i)];
        Py_VISIT(call.callable.get());
        Py_VISIT(call.caller.get());
      }
    }
  for (const JudgedLoop& loop : loops_)
    for (const auto& made : loop.regions.made)
      if (const int stop = made.use_count() == 1 ? made->traverse(visit, arg) : 0) return stop;
  return 0;
}

void CodeCache::forget(int entry, const Segment* segment) {
  auto& segments = place(entry).segments;
  const auto found =
      std::find_if(segments.begin(), segments.end(), [&](const auto& known) { return known.get() == segment; });
  if (found == segments.end()) return;
  retired_.push_back(std::move(*found));
  segments.erase(found);
}

}  // namespace fj
