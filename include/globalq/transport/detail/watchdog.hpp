// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: ends a blocking library call when its deadline has passed.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "../../core/detail/abi.hpp"

namespace GLOBALQ_ABI::transport::detail {

/// A thread that acts if a call lasts longer than `patience`. One thread at a time makes calls.
///
/// All calls have the same patience, so arm() need not wake the thread: a call that begins after the thread's last
/// check cannot be late before the next one. An idle thread checks once per `patience`.
class watchdog {
 public:
  /// @param patience  maximum duration after arm()
  /// @param end_call  called at most once, by the watchdog's thread; it makes the blocked call return
  watchdog(std::chrono::nanoseconds patience, std::function<void()> end_call)
      : patience_{patience}, end_call_{std::move(end_call)}, thread_{[this] { run(); }} {}

  watchdog(watchdog const&) = delete;
  watchdog& operator=(watchdog const&) = delete;

  ~watchdog() {
    {
      std::lock_guard const lock{mutex_};
      stopped_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  /// Call this when a call begins.
  void arm() noexcept { until_.store(now() + patience_.count(), std::memory_order_release); }

  /// Call this when the call has ended.
  /// @returns false if it was late: end_call() has run then and will not run again
  [[nodiscard]] bool disarm() noexcept {
    if (until_.exchange(idle, std::memory_order_acq_rel) != fired) return true;
    thread_.join();
    return false;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::int64_t idle = 0;
  static constexpr std::int64_t fired = -1;

  static std::int64_t now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now().time_since_epoch()).count();
  }

  void run() {
    std::unique_lock lock{mutex_};
    while (!stopped_) {
      std::int64_t until = until_.load(std::memory_order_acquire);
      std::int64_t const at = now();
      if (until == idle)
        sleep(lock, at + patience_.count());
      else if (until > at)
        sleep(lock, until);
      else if (until_.compare_exchange_strong(until, fired, std::memory_order_acq_rel))
        return end_call_();
    }
  }

  void sleep(std::unique_lock<std::mutex>& lock, std::int64_t until) {
    wake_.wait_until(lock, clock::time_point{std::chrono::nanoseconds{until}});
  }

  std::chrono::nanoseconds const patience_;
  std::function<void()> const end_call_;
  std::atomic<std::int64_t> until_{idle};  // deadline of the current call, in ns of the clock
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace GLOBALQ_ABI::transport::detail
