// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A call before Kokkos is initialized is an error that names the remedy. A program of its own: all other tests
///        run inside a Kokkos session.

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/train/adapt/quantizer_errors.hpp>

#include <cstdio>
#include <cstring>

namespace gq = globalq;

/// Whether f() throws a configuration_error that names the remedy.
template <class F>
bool says_so(char const* what, F const& f) {
  try {
    f();
  } catch (gq::configuration_error const& e) {
    if (std::strstr(e.what(), "Kokkos::ScopeGuard") != nullptr) return true;
    std::fprintf(stderr, "%s: the error does not name Kokkos::ScopeGuard: %s\n", what, e.what());
    return false;
  }
  std::fprintf(stderr, "%s: nothing was thrown\n", what);
  return false;
}

int main() {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{7}, gq::rounding::stochastic{},
                         gq::wire::int8{}};
  bool good = says_so("allreduce_mean", [&] {
    gq::transport::threads{1}.run([&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}};
    });
  });
  good = says_so("vector_codec", [&] { gq::vector_codec codec{op}; }) && good;
  good = says_so("vector_codec on Serial", [&] { gq::vector_codec codec{op, Kokkos::Serial()}; }) && good;
  good = says_so("stream_vector_codec", [&] { gq::stream_vector_codec codec{op}; }) && good;
  good = says_so("quantizer_error", [&] { gq::adapt::quantizer_error error{op}; }) && good;
  return good ? 0 : 1;
}
