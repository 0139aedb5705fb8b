/// A shared object opened at run time, and its functions by name. Nothing here is linked.
#pragma once

#include <string>
#include <vector>

namespace fj::cuda {

class SharedObject {
 public:
  /// The first of `names` (paths, or names for the loader) that can be opened; `opened()` is empty if none can.
  /// `loaded`: only if the process has it already.
  explicit SharedObject(const std::vector<std::string>& names, bool loaded = false);
  /// Stays open for the life of the process: its threads and handles outlast every owner.
  const std::string& opened() const { return opened_; }
  void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string opened_;
};

}  // namespace fj::cuda
