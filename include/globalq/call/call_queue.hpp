// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: a thread that runs started calls in order, and handles to wait for them.

#include "../core/detail/forced_unwind.hpp"
#include "../core/detail/forks.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI {

namespace detail {

/// Progress of the calls of a queue; handles share it with the queue.
struct queue_progress {
  struct trouble {
    std::uint64_t ticket;
    std::exception_ptr what;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t started = 0, ended = 0;
  std::vector<trouble> errors;
  bool stopped = false;  ///< a call has ended the thread
  std::uint64_t const forked = forks;

  /// Whether this is a forked process, which does not have the thread. The mutex may be locked forever.
  bool lost() const { return forked != forks; }
  void expect_own_process() const {
    if (lost())
      throw configuration_error(
          "globalq: call_queue: its thread is in the process that this one was forked from; "
          "make new calls after fork");
  }

  /// Writes the errors that no wait() has returned; the queue and all handles are gone.
  ~queue_progress() {
    for (trouble const& t : errors) {
      try {
        std::rethrow_exception(t.what);
      } catch (std::exception const& e) {
        std::cerr << "globalq: call_queue: call " << t.ticket
                  << " failed and was not waited for: " << e.what() << std::endl;
      } catch (...) {
        std::cerr << "globalq: call_queue: call " << t.ticket << " failed and was not waited for"
                  << std::endl;
      }
    }
  }

  [[noreturn]] void rethrow(std::unique_lock<std::mutex>& lock, std::size_t k) {
    std::exception_ptr const error = errors[k].what;
    errors.erase(errors.begin() + static_cast<std::ptrdiff_t>(k));
    lock.unlock();
    std::rethrow_exception(error);
  }
};

}  // namespace detail

/// @brief Handle of a started call. It may be copied and may outlive its queue (the queue's destructor waits for all
/// calls). An error that no wait has thrown is written to std::cerr when the queue and all handles of its calls are
/// destroyed.
class started_call {
 public:
  started_call() = default;

  /// Whether the call has ended, with or without an error. Does not block.
  bool test() const {
    if (!progress_ || progress_->lost()) return true;
    std::lock_guard const lock(progress_->mutex);
    return progress_->ended >= ticket_;
  }

  /// Blocks until the call has ended.
  /// @throws the exception of the call, once; configuration_error in a process that was forked after start()
  void wait() const {
    if (!progress_) return;
    progress_->expect_own_process();
    std::unique_lock lock(progress_->mutex);
    progress_->changed.wait(lock, [this] { return progress_->ended >= ticket_; });
    for (std::size_t k = 0; k < progress_->errors.size(); ++k)
      if (progress_->errors[k].ticket == ticket_) progress_->rethrow(lock, k);
  }

 private:
  friend class call_queue;
  started_call(std::shared_ptr<detail::queue_progress> progress, std::uint64_t ticket)
      : progress_(std::move(progress)), ticket_(ticket) {}
  std::shared_ptr<detail::queue_progress> progress_;
  std::uint64_t ticket_ = 0;
};

/// @brief Runs calls on its own thread, one after the other, in the order in which they were started.
///
/// A transport takes part in one call at a time. Calls over the same transport must therefore share a queue, and every
/// worker must start the same calls in the same order. Concurrent work of the program does not change results. A call
/// allocates memory only if more calls are pending than ever before.
class call_queue {
 public:
  /// A call as plain data: run(job) executes it.
  struct job {
    void (*run)(job const&) = nullptr;
    void* object = nullptr;
    const_vector x;
    mutable_vector y;
    std::uint64_t length = 0;
    std::uint64_t step = 0;
    void const* members =
        nullptr;  ///< for several vectors: length of them, in the representation that run expects
  };

  call_queue() : thread_([this] { work(); }) {}
  call_queue(call_queue const&) = delete;
  call_queue& operator=(call_queue const&) = delete;

  /// Waits for all calls. In a forked process it leaks memory instead: a thread that does not exist uses it.
  ~call_queue() {
    if (progress_->lost()) {
      static_cast<void>(new std::thread(std::move(thread_)));
      static_cast<void>(new std::shared_ptr(progress_));
      return;
    }
    {
      std::lock_guard const lock(progress_->mutex);
      ends_ = true;
    }
    progress_->changed.notify_all();
    thread_.join();
  }

  /// Appends a call. For the start() functions of collectives.
  /// @throws configuration_error in a forked process; transport_error if a call ended the thread of the queue
  started_call start(job const& what) {
    progress_->expect_own_process();
    std::unique_lock lock(progress_->mutex);
    if (progress_->stopped) throw stopped_error();
    if (jobs_.size() == waiting_) {  // the ring is full: use a longer one, oldest job first
      std::vector<job> longer(std::max<std::size_t>(8, 2 * jobs_.size()));
      for (std::size_t k = 0; k < waiting_; ++k) longer[k] = jobs_[(first_ + k) % jobs_.size()];
      jobs_ = std::move(longer);
      first_ = 0;
    }
    // reserve room for the errors of all pending calls: the running thread could not report a failed allocation
    std::size_t const most = progress_->errors.size() + progress_->started - progress_->ended + 1;
    if (progress_->errors.capacity() < most) progress_->errors.reserve(2 * most);
    jobs_[(first_ + waiting_++) % jobs_.size()] = what;
    std::uint64_t const ticket = ++progress_->started;
    lock.unlock();
    progress_->changed.notify_all();
    return {progress_, ticket};
  }

  /// Blocks until all started calls have ended, with or without errors. Does nothing in a forked process.
  void settle() {
    if (progress_->lost()) return;
    std::unique_lock lock(progress_->mutex);
    settle(lock);
  }

  /// As settle(), then reports errors.
  /// @throws the exception of the earliest failed call, if no wait has thrown it
  void wait() {
    progress_->expect_own_process();
    std::unique_lock lock(progress_->mutex);
    settle(lock);
    if (!progress_->errors.empty()) progress_->rethrow(lock, 0);
  }

 private:
  static transport_error stopped_error() {
    return transport_error(
        "globalq: call_queue: a call ended the thread of the queue (pthread_exit); "
        "make a new queue and new workers");
  }

  void settle(std::unique_lock<std::mutex>& lock) {
    progress_->changed.wait(lock, [this] { return progress_->ended == progress_->started; });
  }

  void work() {
    std::unique_lock lock(progress_->mutex);
    for (;;) {
      progress_->changed.wait(lock, [this] { return waiting_ != 0 || ends_; });
      if (waiting_ == 0) return;
      job const next = jobs_[first_];
      first_ = (first_ + 1) % jobs_.size();
      --waiting_;
      lock.unlock();
      std::exception_ptr error;
      try {
        next.run(next);
      } catch (detail::forced_unwind const&) {  // all waits throw, and later calls are refused
        auto const why = std::make_exception_ptr(stopped_error());
        lock.lock();
        progress_->stopped = true;
        while (progress_->ended != progress_->started) progress_->errors.push_back({++progress_->ended, why});
        progress_->changed.notify_all();
        throw;
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      ++progress_->ended;
      if (error) progress_->errors.push_back({progress_->ended, error});
      progress_->changed.notify_all();
    }
  }

  std::shared_ptr<detail::queue_progress> progress_ = std::make_shared<detail::queue_progress>();
  std::vector<job> jobs_;  ///< ring buffer
  std::size_t first_ = 0, waiting_ = 0;
  bool ends_ = false;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace GLOBALQ_ABI
