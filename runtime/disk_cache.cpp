// Files, one per kernel: Header, then the object. Everything is checked before any of it is believed.
#include "runtime/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>

#include <llvm/Support/xxhash.h>

#include "runtime/base/log.h"

namespace fj {
namespace {

constexpr char kMagic[8] = {'f', 'r', 'a', 'm', 'e', 'j', 'i', 't'};
constexpr std::uint32_t kFormat = 2;
constexpr std::uint64_t kLargest = std::uint64_t(1) << 30;
constexpr const char* kSuffix = ".kernel";
constexpr const char* kUnfinished = ".unfinished";
// Left behind by a process that was killed while it wrote.
constexpr std::int64_t kAbandonedSeconds = 3600;

struct Header {
  char magic[8];
  std::uint32_t format, tier;
  std::uint64_t bytes;  // of the object
  CacheKey key;
  std::array<std::uint64_t, 2> checksum;  // of the whole file, where this one counts as zero
};

/// A file's contents with its checksum: 128 bits of XXH3 (Y. Collet, https://xxhash.com).
std::array<std::uint64_t, 2> checksum(std::string& contents) {
  std::memset(contents.data() + offsetof(Header, checksum), 0, sizeof Header::checksum);
  const llvm::XXH128_hash_t hash =
      llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(contents.data()), contents.size()));
  return {hash.low64, hash.high64};
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }

 private:
  int number_;
};

bool read_all(int file, std::string& contents) {
  std::size_t at = 0;
  while (at < contents.size()) {
    const ssize_t got = ::read(file, contents.data() + at, contents.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += std::size_t(got);
  }
  return true;
}

bool write_all(int file, const std::string& contents) {
  std::size_t at = 0;
  while (at < contents.size()) {
    const ssize_t put = ::write(file, contents.data() + at, contents.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    at += std::size_t(put);
  }
  return true;
}

/// The folder and those above it, readable by nobody else.
bool make_folders(const std::string& folder) {
  for (std::size_t slash = folder.find('/', 1); slash != std::string::npos; slash = folder.find('/', slash + 1))
    ::mkdir(folder.substr(0, slash).c_str(), 0700);
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

/// Why a file is not read: only what we or the system's administrator wrote is, and nobody else could have since.
const char* distrust(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return "is no ordinary file";
  if (info.st_uid != ::geteuid() && info.st_uid != 0) return "belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "can be written by other users";
  return nullptr;
}

bool ends_with(const std::string& text, const char* end) {
  const std::size_t length = std::strlen(end);
  return text.size() >= length && text.compare(text.size() - length, length, end) == 0;
}

/// 64 hexadecimal digits, then one of our suffixes: a folder may hold other things.
bool is_ours(const std::string& name) {
  if (name.size() < 64 || !(ends_with(name, kSuffix) || ends_with(name, kUnfinished))) return false;
  return std::all_of(name.begin(), name.begin() + 64,
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

template <class Visit>
void for_each_file(const std::string& folder, Visit visit) {
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) return;
  while (const dirent* item = ::readdir(directory)) {
    const std::string name = item->d_name;
    struct stat info;
    if (is_ours(name) && ::fstatat(::dirfd(directory), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode))
      visit(name, info);
  }
  ::closedir(directory);
}

/// The whole file if it is one; the key as its name has it is the caller's to compare.
std::optional<std::pair<Header, std::string>> parse(std::string contents) {
  Header header;
  if (contents.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, contents.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.format != kFormat) return std::nullopt;
  if (header.bytes != contents.size() - sizeof header) return std::nullopt;
  if (header.checksum != checksum(contents)) return std::nullopt;
  return std::pair{header, contents.substr(sizeof header)};
}

struct Caches {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<DiskCache>> by_folder;
};
Caches& caches() {
  static auto* all = new Caches;  // never destroyed: threads may store while the process ends
  return *all;
}

}  // namespace

DiskCache& DiskCache::in(const std::string& folder) {
  std::lock_guard lock(caches().mutex);
  auto& cache = caches().by_folder[folder];
  if (!cache) cache.reset(new DiskCache(folder));
  return *cache;
}

std::string DiskCache::path(const CacheKey& key) const {
  std::string name = folder_ + "/";
  for (std::uint8_t byte : key) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name + kSuffix;
}

std::optional<DiskCache::Entry> DiskCache::find(const CacheKey& key) {
  const std::string name = path(key);
  auto count = [&](std::uint64_t Counts::*which) {
    std::lock_guard lock(mutex_);
    ++(counts_.*which);
  };
  const Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!file.valid() && errno == ELOOP) {  // a link
    refuse(name, "is no ordinary file");
    return std::nullopt;
  }
  if (!file.valid() || ::fstat(file.get(), &info) != 0) {
    count(&Counts::misses);
    return std::nullopt;
  }
  if (const char* why = distrust(info)) {
    refuse(name, why);
    return std::nullopt;
  }
  std::string contents(std::min<std::uint64_t>(std::uint64_t(info.st_size), kLargest), '\0');
  std::optional<std::pair<Header, std::string>> parsed;
  if (read_all(file.get(), contents)) parsed = parse(std::move(contents));
  if (!parsed || parsed->first.key != key) {
    reject(key);
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);  // used now; where that is not allowed, the file is only thought older
  count(&Counts::hits);
  return Entry{parsed->first.tier, std::move(parsed->second)};
}

void DiskCache::reject(const CacheKey& key) {
  ::unlink(path(key).c_str());
  std::lock_guard lock(mutex_);
  ++counts_.rejected;
}

void DiskCache::store(const CacheKey& key, const Entry& entry, std::uint64_t bound) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kFormat;
  header.tier = entry.tier;
  header.bytes = entry.object.size();
  header.key = key;
  std::string contents(reinterpret_cast<const char*>(&header), sizeof header);
  contents += entry.object;
  header.checksum = checksum(contents);
  std::memcpy(contents.data(), &header, sizeof header);
  if (contents.size() > std::min(bound, kLargest) || !write(path(key), contents)) return;
  bool full;
  {
    std::lock_guard lock(mutex_);
    ++counts_.stored;
    written_ += contents.size();
    // Other processes write too, so the folder is looked through again before our own share could matter.
    full = !in_folder_ || *in_folder_ + written_ > bound || written_ > bound / 16;
  }
  if (full) evict(bound);
}

bool DiskCache::write(const std::string& target, const std::string& contents) {
  std::string beside;
  auto create = [&] {  // under a name that nobody has: processes in containers have the same number
    beside = target.substr(0, target.size() - std::strlen(kSuffix)) + ".XXXXXX" + kUnfinished;
    return ::mkostemps(beside.data(), int(std::strlen(kUnfinished)), O_CLOEXEC);
  };
  int made = create();
  if (made < 0 && errno == ENOENT && make_folders(folder_)) made = create();
  const Descriptor file(made);
  if (!file.valid()) return fail(target, errno), false;
  if (write_all(file.get(), contents) && ::rename(beside.c_str(), target.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(beside.c_str());
  return fail(target, error), false;
}

/// Down to nine tenths of the bound: the next store must not start all over.
void DiskCache::evict(std::uint64_t bound) {
  struct Found {
    std::string name;
    std::uint64_t bytes;
    timespec used;
  };
  std::vector<Found> files;
  std::uint64_t total = 0, evicted = 0;
  const std::int64_t now = std::time(nullptr);
  for_each_file(folder_, [&](const std::string& name, const struct stat& info) {
    if (ends_with(name, kUnfinished)) {
      if (now - info.st_mtim.tv_sec > kAbandonedSeconds) ::unlink((folder_ + "/" + name).c_str());
      return;
    }
    files.push_back({name, std::uint64_t(info.st_size), info.st_mtim});
    total += files.back().bytes;
  });
  if (total > bound) {
    std::sort(files.begin(), files.end(), [](const Found& a, const Found& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const Found& file : files) {
      if (total <= bound / 10 * 9) break;
      if (::unlink((folder_ + "/" + file.name).c_str()) != 0 && errno != ENOENT) continue;
      total -= file.bytes;
      ++evicted;
    }
  }
  std::lock_guard lock(mutex_);
  counts_.evicted += evicted;
  in_folder_ = total;
  written_ = 0;
}

void DiskCache::fail(const std::string& file, int error) {
  {
    std::lock_guard lock(mutex_);
    ++counts_.failures;
    if (std::exchange(said_failure_, true)) return;
  }
  log(Artifact::fallbacks,
      "framejit: a file of the kernel cache " + folder_ + " can't be written: " + std::strerror(error) + "\n  file  " +
          file +
          "\n  cost  other processes compile its kernel again; this is said once, for the first such file"
          "\n  try   FRAMEJIT_CACHE_FOLDER=<a folder that can be written>, or FRAMEJIT_CACHE_BYTES=0 to keep no "
          "kernels",
      LogLevel::warning);
}

void DiskCache::refuse(const std::string& file, const char* why) {
  {
    std::lock_guard lock(mutex_);
    ++counts_.rejected;
    if (std::exchange(said_refusal_, true)) return;
  }
  log(Artifact::fallbacks,
      "framejit: a file of the kernel cache " + folder_ + " is not read: it " + why + "\n  file  " + file +
          "\n  cost  its kernel is compiled again; this is said once, for the first such file"
          "\n  try   delete it, or FRAMEJIT_CACHE_FOLDER=<a folder that only you can write>",
      LogLevel::warning);
}

DiskCache::Counts DiskCache::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

DiskCache::Counts DiskCache::all_counts() {
  Counts sum;
  std::lock_guard lock(caches().mutex);
  for (const auto& [folder, cache] : caches().by_folder) {
    const Counts counts = cache->counts();
    sum.hits += counts.hits, sum.misses += counts.misses, sum.stored += counts.stored;
    sum.rejected += counts.rejected, sum.evicted += counts.evicted, sum.failures += counts.failures;
  }
  return sum;
}

void DiskCache::reset_counts() {
  std::lock_guard lock(caches().mutex);
  for (const auto& [folder, cache] : caches().by_folder) {
    std::lock_guard inner(cache->mutex_);
    cache->counts_ = {};
  }
}

std::vector<DiskCache::File> DiskCache::list(const std::string& folder) {
  std::vector<File> files;
  for_each_file(folder, [&](const std::string& name, const struct stat& info) {
    if (!ends_with(name, kSuffix)) return;
    File file{name, std::uint64_t(info.st_size), info.st_mtim.tv_sec, std::nullopt};
    const Descriptor opened(::open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    std::string contents(std::min<std::uint64_t>(std::uint64_t(info.st_size), kLargest), '\0');
    if (opened.valid() && read_all(opened.get(), contents))
      if (auto parsed = parse(std::move(contents))) file.tier = parsed->first.tier;
    files.push_back(std::move(file));
  });
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return std::pair(-a.used, a.name) < std::pair(-b.used, b.name); });
  return files;
}

std::size_t DiskCache::clear(const std::string& folder) {
  std::size_t deleted = 0;
  for_each_file(folder, [&](const std::string& name, const struct stat&) {
    deleted += ::unlink((folder + "/" + name).c_str()) == 0 && ends_with(name, kSuffix);
  });
  return deleted;
}

}  // namespace fj
