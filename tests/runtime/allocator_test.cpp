// The block cache: alignment, reuse, its bound, and that nobody else is ever given a block in use.
#include "runtime/allocator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "runtime/code_pages.h"

namespace fj {
namespace {

constexpr std::size_t kMiB = std::size_t(1) << 20;

struct Allocator : testing::Test {
  void SetUp() override {
    trim_cache();
    set_cache_bound(1024 * kMiB);
  }
  void TearDown() override {
    trim_cache();
    set_cache_bound(1024 * kMiB);
  }
};

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(FreePages, BehindWhatStaysGoBackToTheSystem) {
  const auto resident = [] {
    std::size_t size = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return pages * std::size_t(sysconf(_SC_PAGESIZE));
  };
  std::vector<void*> freed, kept;
  for (int i = 0; i < 1024; ++i) {
    freed.push_back(std::memset(std::malloc(64 << 10), 1, 64 << 10));
    kept.push_back(std::malloc(64));
  }
  for (void* block : freed) std::free(block);
  const std::size_t before = resident();
  release_free_pages();
  EXPECT_LT(resident() + 32 * kMiB, before);
  for (void* block : kept) std::free(block);
}
#endif

TEST_F(Allocator, GivesAlignedWritableMemoryOfEverySize) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size < 5000; ++size) sizes.push_back(size);
  for (std::size_t octave = 13; octave <= 25; ++octave)
    for (int delta : {-1, 0, 1, 77}) sizes.push_back((std::size_t(1) << octave) + std::size_t(delta));
  for (std::size_t size : sizes) {
    auto* block = static_cast<char*>(allocate_block(size));
    ASSERT_NE(block, nullptr) << size;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % (size >= 2 * kMiB ? 2 * kMiB : 64), 0u) << size;
    if (size != 0) block[0] = block[size - 1] = 1;
    release_block(block, size);
  }
}

TEST_F(Allocator, ABlockOfOneClassServesEverySizeOfIt) {
  // Whatever sizes share a block, the block is as long as the longest of them.
  for (std::size_t size = 1; size < 3000; ++size) {
    void* block = allocate_block(size);
    release_block(block, size);
    for (std::size_t longer = size; longer < size + size / 2 + 64; longer += 16) {
      auto* again = static_cast<char*>(allocate_block(longer));
      std::memset(again, 0xff, longer);
      release_block(again, longer);
    }
    trim_cache();
  }
}

TEST_F(Allocator, ReusesWhatWasReleased) {
  void* block = allocate_block(100000);
  release_block(block, 100000);
  EXPECT_GE(cached_bytes(), 100000u);
  EXPECT_EQ(allocate_block(100000), block);
  EXPECT_EQ(cached_bytes(), 0u);
  release_block(block, 100000);
  trim_cache();
  EXPECT_EQ(cached_bytes(), 0u);
}

TEST_F(Allocator, KeepsNoMoreThanItsBound) {
  set_cache_bound(4 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate_block(kMiB));
  for (void* block : blocks) {
    release_block(block, kMiB);
    EXPECT_LE(cached_bytes(), 4 * kMiB);
  }
  EXPECT_EQ(cached_bytes(), 4 * kMiB);
  void* big = allocate_block(5 * kMiB);
  release_block(big, 5 * kMiB);
  EXPECT_EQ(cached_bytes(), 4 * kMiB);
  set_cache_bound(kMiB);
  EXPECT_LE(cached_bytes(), kMiB);
}

TEST_F(Allocator, SizesThatCameLastPushOutOlderOnes) {
  set_cache_bound(4 * kMiB);
  void* old = allocate_block(3 * kMiB);
  release_block(old, 3 * kMiB);
  void* recent = allocate_block(2 * kMiB);
  release_block(recent, 2 * kMiB);
  EXPECT_EQ(cached_bytes(), 2 * kMiB);
  EXPECT_EQ(allocate_block(2 * kMiB), recent);
  release_block(recent, 2 * kMiB);
}

TEST_F(Allocator, KeepsNoMoreThanWasOnceInUse) {
  // Sizes that take turns, none in use with another: keeping them all would need more memory than the program ever did.
  for (int round = 0; round < 3; ++round)
    for (std::size_t size : {64 * kMiB, 80 * kMiB, 112 * kMiB}) {
      void* block = allocate_block(size);
      EXPECT_LE(cached_bytes() + used_bytes(), 112 * kMiB + kSlack);
      release_block(block, size);
    }
  // Sizes in use together may be kept together.
  void* first = allocate_block(112 * kMiB);
  void* second = allocate_block(64 * kMiB);
  release_block(first, 112 * kMiB);
  release_block(second, 64 * kMiB);
  EXPECT_EQ(cached_bytes(), 176 * kMiB);
  EXPECT_EQ(allocate_block(112 * kMiB), first);
  EXPECT_EQ(allocate_block(64 * kMiB), second);
  release_block(first, 112 * kMiB);
  release_block(second, 64 * kMiB);
}

TEST_F(Allocator, PagesOfAKeptBlockServeAnotherSize) {
  // No room for both sizes: what is kept becomes what is asked for, larger or smaller.
  std::size_t before = 64 * kMiB;
  release_block(allocate_block(before), before);
  for (std::size_t size : {112 * kMiB, 48 * kMiB, 2 * kMiB + 1, 96 * kMiB}) {
    auto* block = static_cast<unsigned char*>(allocate_block(size));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * kMiB), 0u);
    for (std::size_t at = 0; at < size; at += 4096) block[at] = static_cast<unsigned char>(at >> 12);
    block[size - 1] = 7;
    // Another one has pages of its own.
    auto* other = static_cast<unsigned char*>(allocate_block(8 * kMiB));
    std::memset(other, 0xff, 8 * kMiB);
    for (std::size_t at = 0; at + 4096 < size; at += 4096)
      ASSERT_EQ(block[at], static_cast<unsigned char>(at >> 12)) << size;
    EXPECT_EQ(block[size - 1], 7);
    release_block(other, 8 * kMiB);
    release_block(block, size);
    EXPECT_LE(cached_bytes(), 120 * kMiB + kSlack);
  }
}

TEST_F(Allocator, OwnedBlocksAreFreedByTheirAddress) {
  const std::size_t before = used_bytes();
  void* block = allocate_owned(300 * 1024);
  EXPECT_GE(used_bytes(), before + 300 * 1024);
  release_owned(block);
  EXPECT_EQ(used_bytes(), before);
  EXPECT_EQ(allocate_owned(300 * 1024), block);
  release_owned(block);
  release_owned(nullptr);
  int foreign = 0;
  release_owned(&foreign);  // not ours: left alone
  EXPECT_EQ(used_bytes(), before);
}

TEST_F(Allocator, ResizingKeepsTheContents) {
  for (std::size_t size : {std::size_t(100), 300 * 1024 + std::size_t(1), 5 * kMiB})
    for (std::size_t other : {std::size_t(1), size - 1, size, size + 1, 2 * size, 9 * kMiB}) {
      auto* block = static_cast<unsigned char*>(allocate_owned(size));
      for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<unsigned char>(i * 7);
      block = static_cast<unsigned char*>(resize_owned(block, other));
      ASSERT_NE(block, nullptr);
      for (std::size_t i = 0; i < std::min(size, other); ++i) ASSERT_EQ(block[i], static_cast<unsigned char>(i * 7));
      block[other - 1] = 1;
      EXPECT_EQ(resize_owned(block, SIZE_MAX), nullptr);
      EXPECT_EQ(block[other - 1], 1);
      release_owned(block);
    }
  void* made = resize_owned(nullptr, 64);
  EXPECT_NE(made, nullptr);
  release_owned(made);
}

TEST_F(Allocator, SaysSoWhenMemoryCannotBeHad) {
  EXPECT_EQ(allocate_block(SIZE_MAX), nullptr);
  EXPECT_EQ(allocate_block(SIZE_MAX - 4096), nullptr);
  EXPECT_EQ(allocate_block(std::size_t(PTRDIFF_MAX)), nullptr);
  release_block(nullptr, 64);
  EXPECT_EQ(cached_bytes(), 0u);
}

TEST_F(Allocator, NoBlockHasTwoOwners) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      struct Held {
        std::uint32_t* block;
        std::size_t words;
        std::uint32_t mark;
      };
      std::vector<Held> held;
      for (std::uint32_t step = 0; step < 4000; ++step) {
        if (held.size() < 16 && random() % 2 == 0) {
          const std::size_t words = 1 + random() % 2000;
          const std::uint32_t mark = std::uint32_t(thread) << 24 | step;
          auto* block = static_cast<std::uint32_t*>(allocate_block(words * 4));
          std::fill(block, block + words, mark);
          held.push_back({block, words, mark});
        } else if (!held.empty()) {
          const Held last = held.back();
          held.pop_back();
          for (std::size_t i = 0; i < last.words; ++i) wrong += last.block[i] != last.mark;
          release_block(last.block, last.words * 4);
        }
      }
      for (const Held& last : held) release_block(last.block, last.words * 4);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Allocator, AForkWhileAnotherThreadAllocatesIsSafe) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) release_block(allocate_block(4096), 4096);
  });
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      for (int i = 0; i < 100; ++i) release_block(allocate_block(4096), 4096);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace fj
