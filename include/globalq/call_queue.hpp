// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: calls that were started and not yet waited for: a thread that runs them in order.

#include "core/dtype.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace globalq {

class call_queue;

/// @brief A call that was started. May be copied; refers to its queue, which must live longer.
class started_call {
 public:
  started_call() = default;

  /// Whether the call has ended, well or not. Does not wait.
  bool test() const;

  /// Returns when the call has ended.
  /// @throws what the call threw, once
  void wait() const;

 private:
  friend class call_queue;
  started_call(call_queue& queue, std::uint64_t ticket) : queue_(&queue), ticket_(ticket) {}
  call_queue* queue_ = nullptr;
  std::uint64_t ticket_ = 0;
};

/// @brief Runs calls on a thread of its own, one after the other, in the order in which they were started.
///
/// A transport takes part in one call at a time, so calls over one transport share one queue, and every worker must start
/// the same calls in the same order. What else a program does meanwhile changes no bit. Nothing is allocated for a call
/// once as many have been under way at a time.
class call_queue {
 public:
  /// What is run: f(object, ...), with plain data.
  struct job {
    void (*run)(job const&) = nullptr;
    void* object = nullptr;
    const_vector x;
    mutable_vector y;
    std::uint64_t length = 0;
    std::uint64_t step = 0;
  };

  call_queue() : thread_([this] { work(); }) {}
  call_queue(call_queue const&) = delete;
  call_queue& operator=(call_queue const&) = delete;

  /// Waits for all calls.
  ~call_queue() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Puts a call behind all others. Used by the calls' own start().
  started_call start(job const& what) {
    std::unique_lock lock(mutex_);
    if (jobs_.size() == waiting_) {  // the ring is full: a longer one, its oldest job first
      std::vector<job> longer(std::max<std::size_t>(8, 2 * jobs_.size()));
      for (std::size_t k = 0; k < waiting_; ++k) longer[k] = jobs_[(first_ + k) % jobs_.size()];
      jobs_ = std::move(longer);
      first_ = 0;
    }
    jobs_[(first_ + waiting_++) % jobs_.size()] = what;
    std::uint64_t const ticket = ++started_;
    lock.unlock();
    changed_.notify_all();
    return {*this, ticket};
  }

  /// Returns when all calls that were started have ended, well or not.
  void settle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ == started_; });
  }

  /// The same.
  /// @throws what the first of them threw that nobody has waited for
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ == started_; });
    if (!errors_.empty()) rethrow(lock, 0);
  }

 private:
  friend class started_call;

  struct trouble {
    std::uint64_t ticket;
    std::exception_ptr what;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return waiting_ != 0 || ends_; });
      if (waiting_ == 0) return;
      job const next = jobs_[first_];
      first_ = (first_ + 1) % jobs_.size();
      --waiting_;
      lock.unlock();
      std::exception_ptr error;
      try {
        next.run(next);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      ++ended_;
      if (error) errors_.push_back({ended_, error});
      changed_.notify_all();
    }
  }

  bool has_ended(std::uint64_t ticket) {
    std::lock_guard const lock(mutex_);
    return ended_ >= ticket;
  }
  void wait_for(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ticket; });
    for (std::size_t k = 0; k < errors_.size(); ++k)
      if (errors_[k].ticket == ticket) rethrow(lock, k);
  }
  [[noreturn]] void rethrow(std::unique_lock<std::mutex>& lock, std::size_t k) {
    std::exception_ptr const error = errors_[k].what;
    errors_.erase(errors_.begin() + static_cast<std::ptrdiff_t>(k));
    lock.unlock();
    std::rethrow_exception(error);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<job> jobs_;  ///< a ring
  std::size_t first_ = 0, waiting_ = 0;
  std::uint64_t started_ = 0, ended_ = 0;
  std::vector<trouble> errors_;
  bool ends_ = false;
  std::thread thread_;  ///< last: it uses the others
};

inline bool started_call::test() const { return queue_ == nullptr || queue_->has_ended(ticket_); }
inline void started_call::wait() const {
  if (queue_ != nullptr) queue_->wait_for(ticket_);
}

}  // namespace globalq
