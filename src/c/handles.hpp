// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief c: the objects behind the handles of globalq.h, and the conversion of exceptions to statuses.

#include <globalq/c/globalq.h>
#include <globalq/call/detail/opening.hpp>
#include <globalq/core/detail/forced_unwind.hpp>
#include <globalq/core/detail/forks.hpp>
#include <globalq/core/dtype.hpp>
#include <globalq/core/error.hpp>
#include <globalq/transport/endpoint.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace globalq_c {

/// The connection to other workers: an endpoint, and its transport if the handle owns it. Calls share ownership.
struct link {
  std::shared_ptr<void> transport;
  std::unique_ptr<globalq::transport::endpoint> endpoint;
  bool one_of_many = false;  ///< one of several in this process: kernels run on a separate instance
  /// Whether the run of the worker's thread has ended; shared with duplicates.
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  /// Connects the same workers once more; all workers call it. Empty: only the caller of the library can do so.
  std::function<std::shared_ptr<link>()> duplicate = {};
  std::uint64_t forks = globalq::detail::forks;  ///< before its creation
  std::mutex busy;                               ///< held by the call that uses the endpoint
  std::atomic<std::thread::id> user = {};        ///< thread of that call
};

}  // namespace globalq_c

struct globalq_workers {
  std::shared_ptr<globalq_c::link> behind = std::make_shared<globalq_c::link>();
};

namespace globalq_c {

namespace gq = globalq;

/// An error with a status that none of globalq's own exceptions has.
struct failure : gq::error {
  failure(globalq_status what, std::string const& text) : error(text), status(what) {}
  globalq_status status;
};

/// Stores the text for globalq_error() and returns the status.
globalq_status failed(globalq_status status, char const* text) noexcept;
/// The status of the exception that is being handled.
globalq_status status_of_exception() noexcept;

/// Calls f() and returns GLOBALQ_OK, or the status of its exception. Functions of the caller may end the thread: that
/// passes through.
template <class F>
globalq_status guarded(F const& f) {
  try {
    f();
    return GLOBALQ_OK;
  } catch (gq::detail::forced_unwind const&) {
    throw;
  } catch (...) {
    return status_of_exception();
  }
}

[[noreturn]] inline void refuse(std::string const& operation, std::string const& what,
                                std::string const& remedy) {
  throw gq::configuration_error("globalq: " + operation + ": " + what + "; " + remedy);
}

/// Returns *given; throws an error that names the argument if it is NULL.
template <class T>
T& expect(char const* operation, char const* name, T* given) {
  if (given == nullptr) refuse(operation, std::string(name) + " is NULL", "pass a valid pointer");
  return *given;
}

/// Reads a struct of the caller, whose first member is its size as the caller knows it; later members get defaults.
template <class T>
T read(char const* operation, char const* name, T const* given) {
  std::size_t const size = expect(operation, name, given).size;
  if (size < sizeof(std::size_t) || size > 4096)
    refuse(operation, std::string(name) + "->size is " + std::to_string(size), "set it to sizeof the struct");
  T known{};
  std::memcpy(&known, given, std::min(size, sizeof known));
  known.size = sizeof known;
  return known;
}

/// Writes the part of a struct that fits the caller's size.
template <class T>
void write(char const* operation, char const* name, T found, T* to) {
  std::size_t const size = read(operation, name, to).size, knows = std::min(to->size, size);
  found.size = to->size;
  std::memcpy(to, &found, knows);
}

/// The right to use a link, until the object is destroyed. Calls of several threads over one link run one after the other.
class turn {
 public:
  /// @throws configuration_error within a call over the link, for example in a function of globalq_messages; transport_error in
  ///         a process that was forked from that of the link, where the lock may be held forever
  turn(char const* operation, link& of) : of_(of) {
    if (of.forks != gq::detail::forks)
      throw gq::transport_error(
          "globalq: " + std::string(operation) +
          ": the workers belong to the process that this one was forked from; make new ones after fork");
    auto const self = std::this_thread::get_id();
    if (of.user.load() == self)
      refuse(operation, "this thread is already in a call over these workers",
             "do not use them in a function that transfers their messages");
    lock_ = std::unique_lock(of.busy);
    of.user.store(self);
  }
  turn(turn const&) = delete;
  turn& operator=(turn const&) = delete;
  ~turn() { of_.user.store({}); }

 private:
  link& of_;
  std::unique_lock<std::mutex> lock_;
};

/// @brief Runs f(endpoint), which sends messages over a link.
/// @throws configuration_error as turn does, and after the end of the threads' run; the error of f
template <class F>
void communicate(char const* operation, link& of, F const& f) {
  turn const mine(operation, of);
  if (*of.ended)
    refuse(operation, "the threads of these workers have ended", "create workers and calls in each run");
  f(*of.endpoint);
}
/// As above, for f that begins with the handshake of a call: other workers receive an error that f throws before, instead of waiting.
template <class F>
void communicate_alike(char const* operation, link& of, F const& f) {
  communicate(operation, of,
              [&](gq::transport::endpoint& workers) { gq::detail::informing(workers, [&] { f(workers); }); });
}

/// Converts a deadline in seconds to options; throws unless it is positive and below 10^9.
gq::transport::options deadline_of(char const* operation, double seconds);

gq::dtype type_of(char const* operation, globalq_type type);

/// Calls f with a value of the type, which is known at run time.
template <class F>
void with_type(char const* operation, globalq_type type, F const& f) {
  switch (type_of(operation, type)) {
    case gq::dtype::float32:
      return f(float{});
    case gq::dtype::float64:
      return f(double{});
    case gq::dtype::float16:
      return f(gq::float16{});
    case gq::dtype::bfloat16:
      return f(gq::bfloat16{});
  }
}

/// Initializes Kokkos, if necessary. It then runs until the process ends.
void start_kokkos();

}  // namespace globalq_c
