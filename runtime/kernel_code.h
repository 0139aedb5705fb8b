/// The machine code of one kernel, in the tiers that have been made of it so far.
///
/// Programs share it and launch whatever `function` gives at that moment: the quick tier first, from some launch on the
/// optimised one. Both compute the same bits. Code once published stays for as long as the KernelCode does, as any
/// thread may still be inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace fj {

/// Runs work items [begin, end); returns KernelStatus bits. `scratch` is the calling thread's alone.
using KernelFunction = std::uint32_t (*)(char* const* buffers, const std::int64_t* symbols, std::int64_t begin,
                                         std::int64_t end, char* scratch);

enum class Tier : std::uint8_t { Quick, Optimised };

class KernelCode {
 public:
  virtual ~KernelCode() = default;

  KernelFunction function() const { return function_.load(std::memory_order_acquire); }

  /// A program that has run before runs again: better code is worth making now. Returns at once.
  virtual void used_again() = 0;
  /// It would ask for better code now.
  virtual bool improves() const { return false; }

  /// `code` keeps the function's memory alive. A lower tier than the one there is changes nothing.
  /// `bytes`: of its object file.
  void publish(Tier tier, KernelFunction function, std::shared_ptr<const void> code, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    kept_.push_back(std::move(code));
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (function_.load(std::memory_order_relaxed) != nullptr && tier <= tier_) return;
    tier_ = tier;
    function_.store(function, std::memory_order_release);
  }

  /// Of all the code it keeps so far.
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  Tier tier() const { return tier_.load(std::memory_order_relaxed); }

 private:
  std::atomic<KernelFunction> function_{nullptr};
  std::mutex mutex_;  // of those who publish
  std::atomic<Tier> tier_{Tier::Quick};
  std::atomic<std::size_t> bytes_{0};
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace fj
