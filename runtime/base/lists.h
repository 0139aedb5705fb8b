/// Small lists that are used as sets.
#pragma once

#include <algorithm>
#include <vector>

namespace fj {

/// Adds the item where the list lacks it.
template <class T>
void add_once(std::vector<T>& list, const T& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace fj
