// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: run of a threads cluster: starts the workers, joins them, and selects the exception to throw.

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "../../core/detail/forced_unwind.hpp"
#include "../collectives.hpp"
#include "../threads.hpp"
#include "threads_world.hpp"

namespace GLOBALQ_ABI::transport {

GLOBALQ_DECL threads::threads(int workers, options settings) {
  if (workers < 1)
    globalq::detail::fail<configuration_error>(
        {"globalq: transport::threads: a cluster cannot have ", workers, " workers; use at least 1"});
  world_ = std::make_unique<detail::world>(workers, detail::deadline_of(settings, "threads"));
}

GLOBALQ_DECL threads::threads(threads&&) noexcept = default;
GLOBALQ_DECL threads& threads::operator=(threads&&) noexcept = default;
GLOBALQ_DECL threads::~threads() = default;

GLOBALQ_DECL int threads::size() const noexcept { return world_->size; }

GLOBALQ_DECL void threads::run_all(void (*work)(void* what, endpoint& self), void* what) {
  detail::world& all = *world_;
  if (all.running.exchange(true))
    throw configuration_error{
        "globalq: transport::threads::run: the cluster is already running; use one cluster for each "
        "concurrent run"};
  struct running_flag {
    std::atomic<bool>& flag;
    ~running_flag() { flag.store(false); }
  } const running{all.running};
  all.reset();

  std::vector<std::exception_ptr> errors(all.crew.size());
  auto const run_one = [&](int rank) {
    struct departure {
      detail::world& from;
      int rank;
      ~departure() { from.leave(rank); }
    } const at_the_end{all, rank};
    auto const failed = [&](char const* message) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      all.fail(rank, message);
    };
    try {
      endpoint self{all, rank};
      work(what, self);
    } catch (transport_error const& problem) {
      failed(problem.what());
    } catch (std::exception const& problem) {
      all.at(rank).blames_another = false;
      failed(problem.what());
    } catch (globalq::detail::forced_unwind const&) {  // the body called pthread_exit(), or was canceled
      transport_error const problem{globalq::detail::worker_message(
          "run", rank, all.size, "its thread was ended by pthread_exit or pthread_cancel",
          "let the body of each worker return")};
      errors[static_cast<std::size_t>(rank)] = std::make_exception_ptr(problem);
      all.at(rank).blames_another = false;
      all.fail(rank, problem.what());
      throw;
    } catch (...) {
      all.at(rank).blames_another = false;
      failed("an exception that is not a std::exception");
    }
  };

  std::vector<std::thread> crew;
  crew.reserve(all.crew.size());
  try {
    for (int rank = 0; rank < all.size; ++rank) crew.emplace_back(run_one, rank);
    for (auto& each : crew) each.join();
  } catch (...) {  // a thread did not start, or this one is canceled while it waits
    bool const started = crew.size() == all.crew.size();
    all.fail(started ? 0 : static_cast<int>(crew.size()),
             started ? "the thread that called run() was canceled" : "its thread did not start");
    for (auto& each : crew)
      if (each.joinable()) each.join();
    throw;
  }

  std::exception_ptr first;  // of those caused by another worker, if no other exception is found
  for (auto const& each : all.crew) {
    auto const& thrown = errors[static_cast<std::size_t>(each.rank)];
    if (!thrown) continue;
    if (!each.blames_another) std::rethrow_exception(thrown);
    if (!first) first = thrown;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace GLOBALQ_ABI::transport
