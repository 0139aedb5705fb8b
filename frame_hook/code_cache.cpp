// Segments by the instruction they start at. See code_cache.h for why no lock is needed.
#include "frame_hook/code_cache.h"

#include <algorithm>
#include <utility>

namespace fj {

std::vector<std::shared_ptr<CodeCache>>& Running::dropped() {
  static auto* dropped = new std::vector<std::shared_ptr<CodeCache>>;  // never destroyed: the process may end in a call
  return *dropped;
}

void Running::release() {
  auto freed = std::exchange(dropped(), {});  // what dies may call compiled functions
}

void Running::drop(std::vector<std::shared_ptr<CodeCache>> caches) {
  if (count() == 0) return;
  for (auto& cache : caches) dropped().push_back(std::move(cache));
}

std::shared_ptr<CodeCache> CodeCache::create(PyCodeObject* code, Options options) {
  std::unique_ptr<FjCode, FreeCode> decoded(fj_decode(code));
  if (!decoded) return nullptr;
  auto cache = std::make_shared<CodeCache>();
  cache->code_ = Ref<PyCodeObject>::borrow(code);
  cache->options_ = std::move(options);
  cache->places_.resize(std::size_t(decoded->count));
  cache->decoded_ = std::move(decoded);
  return cache;
}

std::shared_ptr<const Segment> CodeCache::find(int instruction, const FrameValues& values, GuardBindings& bindings) {
  auto& segments = place(instruction).segments;
  for (std::size_t i = 0; i < segments.size(); i++) {
    bindings.owned.clear();
    if (!segments[i]->guards->holds(values, bindings)) continue;
    if (i != 0) std::rotate(segments.begin(), segments.begin() + std::ptrdiff_t(i), segments.begin() + std::ptrdiff_t(i) + 1);
    return segments.front();
  }
  return nullptr;
}

void CodeCache::publish(int instruction, std::shared_ptr<const Segment> segment) {
  Place& target = place(instruction);
  target.traced = true;
  target.covers = target.covers || segment->covers_function;
  target.segments.insert(target.segments.begin(), std::move(segment));
}

void CodeCache::forget(int instruction, const Segment* segment) {
  auto& segments = place(instruction).segments;
  const auto found = std::find_if(segments.begin(), segments.end(), [&](const auto& known) { return known.get() == segment; });
  if (found == segments.end()) return;
  retired_.push_back(std::move(*found));
  segments.erase(found);
}

}  // namespace fj
