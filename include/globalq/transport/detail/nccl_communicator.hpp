// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: an NCCL communicator whose calls end by a deadline.

#include "../../core/detail/abi.hpp"
#include "nccl_runtime.hpp"
#include "watchdog.hpp"

#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

namespace GLOBALQ_ABI::transport::detail {

/// Configuration of the communicator that connects. It is non-blocking, so it can be aborted while it connects;
/// communicators split off it share its abort flag, so that aborting it ends their calls.
inline ncclConfig_t connecting_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
#if NCCL_VERSION_CODE >= 21800
  config.splitShare = 1;
#endif
  return config;
}

/// Whether split communicators share the abort flag; an environment variable can disable that for all communicators.
/// NCCL has read its configuration files into the environment once it has connected.
inline bool splits_share_abort() {
  char const* const set = std::getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
  bool const allowed = set == nullptr || *set == '\0' || std::strtol(set, nullptr, 0) == 1;
  return allowed && NCCL_VERSION_CODE >= 21800;
}

/// Starts to split off a blocking communicator of the same ranks. ncclCommSplit returns ncclSuccess though it goes on (seen with
/// NCCL 2.28.3 and 2.30.7); the state of the parent tells when the child is there.
inline ncclResult_t split_blocking(ncclComm_t parent, int rank, ncclComm_t* child) {
#if NCCL_VERSION_CODE >= 21800
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  auto const started = ncclCommSplit(parent, 0, rank, child, &config);
  return started == ncclSuccess ? ncclInProgress : started;
#else
  static_cast<void>(parent), static_cast<void>(rank), static_cast<void>(child);
  return ncclInvalidUsage;
#endif
}

/// Returns a function that ends a blocking call on a communicator from another thread. Empty if NCCL cannot do that:
/// ncclCommAbort would free memory that the call uses.
inline std::function<void()> revoke(ncclComm_t communicator) {
#if NCCL_VERSION_CODE >= 22807
  return [communicator] { ncclCommRevoke(communicator, NCCL_REVOKE_DEFAULT); };
#else
  static_cast<void>(communicator);
  return {};
#endif
}

/// A communicator, or two: a non-blocking one connects, and a blocking one makes the calls. For a call on the first
/// NCCL starts a thread; a call on the second may block, and is ended at the deadline through the first.
///
/// Each function returns ncclInProgress if the deadline has passed; abort() must follow then.
class nccl_communicator {
 public:
  explicit nccl_communicator(std::chrono::nanoseconds deadline) : deadline_{deadline} {}
  nccl_communicator(nccl_communicator const&) = delete;
  nccl_communicator& operator=(nccl_communicator const&) = delete;

  [[nodiscard]] ncclComm_t get() const noexcept { return calls_; }

  /// Whether a communicator exists, at least in part.
  [[nodiscard]] bool exists() const noexcept { return calls_ != nullptr || connects_ != nullptr; }

  /// Uses a communicator that the caller destroys.
  void borrow(ncclComm_t communicator) {
    if (auto end_call = revoke(communicator)) watch(std::move(end_call));
    calls_ = communicator;
  }

  [[nodiscard]] ncclResult_t connect(ncclUniqueId const& id, int rank, int size) {
    ncclConfig_t config = connecting_config();
    auto const result = ncclCommInitRankConfig(&calls_, size, id, rank, &config);  // writes calls_
    return settle(result, calls_);
  }

  /// Makes calls blocking from now on.
  [[nodiscard]] ncclResult_t split(int rank) {
    connects_ = std::exchange(calls_, nullptr);
    auto const result = settle(split_blocking(connects_, rank, &calls_), connects_);
    if (result == ncclSuccess) watch([parent = connects_] { ncclCommAbort(parent); });
    return result;
  }

  /// Makes an NCCL call on the communicator get().
  template <class Function>
  [[nodiscard]] ncclResult_t call(Function const& function) {
    if (watchdog_ == nullptr) return settle(function(), calls_);
    watchdog_->arm();
    auto const result = function();
    if (watchdog_->disarm()) return settle(result, calls_);
    connects_ = nullptr;  // the watchdog has aborted it
    return ncclInProgress;
  }

  /// Asynchronous error of NCCL.
  [[nodiscard]] ncclResult_t state() const {
    auto state = ncclSuccess;
    auto const code = ncclCommGetAsyncError(calls_, &state);
    return code != ncclSuccess ? code : state;
  }

  /// Destroys the communicators of connect() and split(). All workers call it.
  [[nodiscard]] ncclResult_t destroy() {
    auto result = call([this] { return ncclCommFinalize(calls_); });
    if (result != ncclSuccess) return result;
    ncclCommDestroy(std::exchange(calls_, nullptr));
    if (connects_ == nullptr) return ncclSuccess;
    result = settle(ncclCommFinalize(connects_), connects_);
    if (result == ncclSuccess) ncclCommDestroy(std::exchange(connects_, nullptr));
    return result;
  }

  /// Ignores statuses, since an error led here. The parent goes first: it may still be splitting.
  void abort() noexcept {
    if (connects_ != nullptr) ncclCommAbort(std::exchange(connects_, nullptr));
    if (calls_ != nullptr) ncclCommAbort(std::exchange(calls_, nullptr));
  }

 private:
  void watch(std::function<void()> end_call) {
    watchdog_ = std::make_unique<watchdog>(deadline_, std::move(end_call));
  }

  /// Waits until a non-blocking communicator has completed its operation.
  [[nodiscard]] ncclResult_t settle(ncclResult_t result, ncclComm_t of) const {
    if (result != ncclInProgress) return result;
    auto const until = std::chrono::steady_clock::now() + deadline_;
    for (unsigned turn = 0; result == ncclInProgress; ++turn) {
      auto const code = ncclCommGetAsyncError(of, &result);
      if (code != ncclSuccess) return code;
      if (turn % 16 == 15 && std::chrono::steady_clock::now() >= until) break;
      pause(turn);
    }
    return result;
  }

  std::chrono::nanoseconds const deadline_;
  ncclComm_t calls_ = nullptr;
  ncclComm_t connects_ = nullptr;  // the parent, after split()
  std::unique_ptr<watchdog> watchdog_;
};

}  // namespace GLOBALQ_ABI::transport::detail
