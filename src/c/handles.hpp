// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief c: what is behind the handles of globalq.h, and how exceptions become statuses.

#include <globalq/c/globalq.h>
#include <globalq/core/dtype.hpp>
#include <globalq/core/error.hpp>
#include <globalq/transport/endpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace globalq_c {

/// What moves bytes: an endpoint of a transport, and the transport where it belongs to the handle. Calls keep it too.
struct link {
  std::shared_ptr<void> transport;
  std::unique_ptr<globalq::transport::endpoint> endpoint;
  bool one_of_many = false;  ///< of this process: kernels run on an instance of their own
  bool ended = false;        ///< the threads of a run have
};

}  // namespace globalq_c

struct globalq_workers {
  std::shared_ptr<globalq_c::link> behind = std::make_shared<globalq_c::link>();
};

namespace globalq_c {

namespace gq = globalq;

/// A status that is not one of globalq's own exceptions.
struct failure : gq::error {
  failure(globalq_status what, std::string const& text) : error(text), status(what) {}
  globalq_status status;
};

/// Keeps the text for globalq_error().
globalq_status failed(globalq_status status, char const* text) noexcept;
/// The status of the exception that is being handled.
globalq_status status_of_exception() noexcept;

/// GLOBALQ_OK, or what the exception of f() says.
template <class F>
globalq_status guarded(F const& f) noexcept {
  try {
    f();
    return GLOBALQ_OK;
  } catch (...) {
    return status_of_exception();
  }
}

[[noreturn]] inline void refuse(std::string const& operation, std::string const& what,
                                std::string const& remedy) {
  throw gq::configuration_error("globalq: " + operation + ": " + what + "; " + remedy);
}

/// @p given, or a refusal that names what is NULL.
template <class T>
T& expect(char const* operation, char const* name, T* given) {
  if (given == nullptr) refuse(operation, std::string(name) + " is NULL", "give one");
  return *given;
}

/// A struct of the caller, whose first member says how much of it he knows; the rest are defaults.
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

/// Writes as much of a struct as the caller knows.
template <class T>
void write(char const* operation, char const* name, T found, T* to) {
  std::size_t const size = read(operation, name, to).size, knows = std::min(to->size, size);
  found.size = to->size;
  std::memcpy(to, &found, knows);
}

/// A deadline in seconds.
gq::transport::options deadline_of(char const* operation, double seconds);

gq::dtype type_of(char const* operation, globalq_type type);

/// f(value of the type that is known at run time).
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

/// Kokkos runs from here to the end of the process.
void start_kokkos();

}  // namespace globalq_c
