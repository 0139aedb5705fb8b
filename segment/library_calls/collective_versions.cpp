#include "segment/library_calls/collective_versions.h"

#include <unordered_map>

namespace fj {
namespace {

constexpr int kMaximumCorrections = 4;

struct Correction {
  int version_moves = 0, count = 0;
};

/// By code object, which the table of collectives keeps alive.
std::unordered_map<PyObject*, Correction>& corrections() {
  static auto* const made = new std::unordered_map<PyObject*, Correction>;
  return *made;
}

}  // namespace

std::optional<int> corrected_versions(PyObject* code) {
  const auto found = corrections().find(code);
  return found == corrections().end() ? std::nullopt : std::optional(found->second.version_moves);
}

bool correct_versions(const OnceCall& call, int moves) {
  Correction& correction = corrections()[call.code.get()];
  if (correction.count >= kMaximumCorrections) return false;
  correction = {moves, correction.count + 1};
  return true;
}

}  // namespace fj
