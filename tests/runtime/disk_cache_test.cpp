// Kernels on disk: what is found is what was stored, whatever else lies in the folder.
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/disk_cache.h"

namespace fj {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kRoom = 1 << 20;

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    static int number = 0;
    folder =
        fs::temp_directory_path() / ("framejit-disk-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  }
  void TearDown() override { fs::remove_all(folder); }

  static CacheKey key(std::uint8_t number) {
    CacheKey key{};
    key[0] = number;
    key[31] = 0xa0;
    return key;
  }
  DiskCache& cache() { return DiskCache::in(folder / "deep" / "down"); }
  fs::path file(std::uint8_t number) {
    for (const auto& item : fs::directory_iterator(folder / "deep" / "down"))
      if (item.path().filename().string().substr(0, 2) ==
          std::string{"0123456789abcdef"[number >> 4], "0123456789abcdef"[number & 15]})
        return item.path();
    return {};
  }
  static std::string contents(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void overwrite(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
  }

  fs::path folder;
};

TEST_F(DiskCacheTest, FindsWhatWasStored) {
  EXPECT_FALSE(cache().find(key(1)));
  cache().store(key(1), {1, "object one"}, kRoom);
  cache().store(key(2), {0, ""}, kRoom);
  EXPECT_EQ(cache().find(key(1))->object, "object one");
  EXPECT_EQ(cache().find(key(1))->tier, 1u);
  EXPECT_EQ(cache().find(key(2))->object, "");
  cache().store(key(1), {1, "better"}, kRoom);
  EXPECT_EQ(cache().find(key(1))->object, "better");
  EXPECT_EQ(DiskCache::list(folder / "deep" / "down").size(), 2u);
  EXPECT_EQ(fs::status(folder / "deep").permissions() & fs::perms::others_all, fs::perms::none);
}

TEST_F(DiskCacheTest, AFileCutShortAnywhereIsDeleted) {
  cache().store(key(3), {1, std::string(100, 'x')}, kRoom);
  const std::string whole = contents(file(3));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    cache().store(key(3), {1, std::string(100, 'x')}, kRoom);
    overwrite(file(3), whole.substr(0, length));
    EXPECT_FALSE(cache().find(key(3))) << length;
    EXPECT_EQ(file(3), fs::path()) << length;
  }
  EXPECT_EQ(cache().counts().rejected, whole.size());
}

TEST_F(DiskCacheTest, AnyChangedOrAddedByteIsNoticed) {
  cache().store(key(4), {1, "some object code"}, kRoom);
  const std::string whole = contents(file(4));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    cache().store(key(4), {1, "some object code"}, kRoom);
    std::string changed = whole;
    changed[at] = char(changed[at] ^ 0x10);
    overwrite(file(4), changed);
    EXPECT_FALSE(cache().find(key(4))) << at;
  }
  cache().store(key(4), {1, "some object code"}, kRoom);
  overwrite(file(4), whole + "y");
  EXPECT_FALSE(cache().find(key(4)));
  cache().store(key(4), {1, "some object code"}, kRoom);
  overwrite(file(4), "#!/bin/sh\nnot a kernel at all\n");
  EXPECT_FALSE(cache().find(key(4)));
}

TEST_F(DiskCacheTest, AKernelUnderAnotherNameIsNotFound) {
  cache().store(key(5), {1, "five"}, kRoom);
  cache().store(key(6), {1, "six"}, kRoom);
  fs::copy_file(file(5), file(6), fs::copy_options::overwrite_existing);
  EXPECT_FALSE(cache().find(key(6)));
  EXPECT_EQ(cache().find(key(5))->object, "five");
}

TEST_F(DiskCacheTest, OnlyOrdinaryFilesNobodyElseCouldWriteAreRead) {
  cache().store(key(7), {1, "seven"}, kRoom);
  const fs::path place = file(7), elsewhere = folder / "elsewhere";
  testing::internal::CaptureStderr();
  for (const mode_t mode : {0606, 0660}) {
    ASSERT_EQ(::chmod(place.c_str(), mode), 0);
    EXPECT_FALSE(cache().find(key(7)));
    EXPECT_TRUE(fs::exists(place)) << "another's file is left alone";
  }
  ASSERT_EQ(::chmod(place.c_str(), 0600), 0);
  EXPECT_TRUE(cache().find(key(7)));
  fs::rename(place, elsewhere);
  fs::create_symlink(elsewhere, place);
  EXPECT_FALSE(cache().find(key(7)));
  fs::remove(place);
  fs::create_directory(place);
  EXPECT_FALSE(cache().find(key(7)));
  fs::remove(place);
  ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
  EXPECT_FALSE(cache().find(key(7))) << "and does not wait for a writer";
  EXPECT_EQ(cache().counts().rejected, 5u);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is not read: it can be written by other users\n  file  " + place.string()), std::string::npos)
      << said;
  EXPECT_EQ(said.find("framejit: "), said.rfind("framejit: ")) << said;
  cache().store(key(7), {1, "seven"}, kRoom);
  EXPECT_EQ(cache().find(key(7))->object, "seven") << "written anew in its place";
}

TEST_F(DiskCacheTest, AFileThatCantBeWrittenCostsThisFileOnly) {
  cache().store(key(1), {1, "one"}, kRoom);
  const fs::path place = file(1);
  fs::remove(place);
  fs::create_directories(place / "inner");
  testing::internal::CaptureStderr();
  cache().store(key(1), {1, "one"}, kRoom);
  cache().store(key(2), {1, "two"}, kRoom);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("can't be written: Is a directory\n  file  " + place.string()), std::string::npos) << said;
  EXPECT_EQ(cache().find(key(2))->object, "two");
  EXPECT_EQ(cache().counts().failures, 1u);
  for (const auto& item : fs::directory_iterator(place.parent_path())) EXPECT_EQ(item.path().extension(), ".kernel");
}

TEST_F(DiskCacheTest, TheBoundHoldsAndTheLongestUnusedGoFirst) {
  const std::string object(1000, 'k');
  std::ofstream(folder.parent_path() / "unrelated");
  cache().store(key(0), {1, object}, 20000);
  const std::uint64_t one = fs::file_size(file(0));
  std::ofstream(folder / "deep" / "down" / "notes.txt") << "mine";
  for (std::uint8_t number = 1; number < 60; ++number) {
    cache().store(key(number), {1, object}, 20000);
    // Times of the file system are coarse: a second apart.
    const auto at = fs::file_time_type::clock::now() - std::chrono::seconds(1000 - number);
    fs::last_write_time(file(number), at);
    std::uint64_t total = 0;
    for (const auto& found : DiskCache::list(folder / "deep" / "down")) total += found.bytes;
    ASSERT_LE(total, 20000u);
    ASSERT_TRUE(cache().find(key(0))) << "used each time, so never the oldest";
  }
  EXPECT_FALSE(cache().find(key(1)));
  EXPECT_TRUE(cache().find(key(59)));
  EXPECT_GT(cache().counts().evicted, 30u);
  EXPECT_TRUE(fs::exists(folder / "deep" / "down" / "notes.txt"));
  cache().store(key(60), {1, std::string(30000, 'k')}, 20000);
  EXPECT_FALSE(cache().find(key(60))) << "larger than the bound";
  EXPECT_LT(one, 1100u);
  EXPECT_GT(DiskCache::clear(folder / "deep" / "down"), 10u);
  EXPECT_TRUE(DiskCache::list(folder / "deep" / "down").empty());
  EXPECT_TRUE(fs::exists(folder / "deep" / "down" / "notes.txt"));
}

TEST_F(DiskCacheTest, WhatAKilledWriterLeftIsClearedAway) {
  cache().store(key(8), {1, "eight"}, kRoom);
  const fs::path left = folder / "deep" / "down" / (std::string(64, 'a') + ".1.0.unfinished");
  std::ofstream(left) << "half";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(3));
  cache().store(key(9), {1, std::string(kRoom / 8, 'n')}, kRoom);  // enough to look through the folder
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(cache().find(key(8)));
}

TEST_F(DiskCacheTest, AFolderThatCantBeWrittenIsSaidOnceAndRead) {
  std::ofstream(folder) << "a file where the folder should be";
  testing::internal::CaptureStderr();
  cache().store(key(1), {1, "one"}, kRoom);
  cache().store(key(2), {1, "two"}, kRoom);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("can't be written: Not a directory"), std::string::npos) << said;
  EXPECT_EQ(said.find("framejit: the kernel cache"), said.rfind("framejit: the kernel cache"));
  EXPECT_FALSE(cache().find(key(1)));
  EXPECT_EQ(cache().counts().failures, 2u);
}

TEST_F(DiskCacheTest, SeveralProcessesReadAndWriteAtOnce) {
  const std::string object(5000, 'p');
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    for (int round = 0; round < 300; ++round) {
      const std::uint8_t number = std::uint8_t((round * 7 + process) % 11);
      const std::string mine = std::string(1, char('a' + number)) + object;
      if (const auto found = cache().find(key(number)); found && found->object != mine) ::_exit(1);
      cache().store(key(number), {1, mine}, 30000);
      if (cache().counts().rejected != 0) ::_exit(2);  // never a half-written file
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace fj
