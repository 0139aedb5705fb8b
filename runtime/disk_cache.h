/// Kernels on disk: files named by the hash of everything their contents follow from, shared by all processes of a
/// user.
///
/// A file is written beside its place and renamed, so a reader sees all of it or none. It carries its own key and a
/// checksum: one that is cut short, or is not what its name says, is deleted and counts as absent. What is no ordinary
/// file, or what other users own or can write, is said once and not read. The folder holds at most about `bytes`; the
/// files used longest ago go first. A file that can't be written costs this file only; the first one is said.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fj {

using CacheKey = std::array<std::uint8_t, 32>;

class DiskCache {
 public:
  struct Entry {
    std::uint32_t tier = 0;
    std::string object;
  };
  struct Counts {
    std::uint64_t hits = 0, misses = 0, stored = 0, rejected = 0, evicted = 0, failures = 0;
  };
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::int64_t used = 0;  // seconds since 1970
    std::optional<std::uint32_t> tier;  // none: not a whole file of this version
  };

  /// One per folder and process, never destroyed.
  static DiskCache& in(const std::string& folder);

  std::optional<Entry> find(const CacheKey& key);
  /// Replaces what is there. Deletes old files once there are more than `bound` bytes.
  void store(const CacheKey& key, const Entry& entry, std::uint64_t bound);
  /// What is stored under the key turned out not to be usable.
  void reject(const CacheKey& key);

  Counts counts() const;
  static Counts all_counts();
  static void reset_counts();

  /// The framejit files of a folder, most recently used first; nothing if it can't be read.
  static std::vector<File> list(const std::string& folder);
  /// Deletes them; the number deleted.
  static std::size_t clear(const std::string& folder);

 private:
  explicit DiskCache(std::string folder) : folder_(std::move(folder)) {}
  std::string path(const CacheKey& key) const;
  bool write(const std::string& target, const std::string& contents);
  void evict(std::uint64_t bound);
  void fail(const std::string& file, int error);
  void refuse(const std::string& file, const char* why);

  const std::string folder_;
  mutable std::mutex mutex_;  // guards what follows
  Counts counts_;
  bool said_failure_ = false, said_refusal_ = false;
  std::uint64_t written_ = 0;               // since the folder was last looked through
  std::optional<std::uint64_t> in_folder_;  // bytes found then
};

}  // namespace fj
