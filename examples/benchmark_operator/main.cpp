// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Benchmarks an operator with levels of one's own, beside one of the library and float32.

//! [benchmark-operator]
#include "../custom_policy/minifloat.hpp"

#include <globalq/bench/operator.hpp>
#include <globalq/policies.hpp>

namespace gq = globalq;

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  benchmark::Initialize(&argc, argv);
  gq::norm::local<gq::infinity> const norm{.bucket = 128};
  gq::rounding::stochastic const rounding;
  gq::wire::packed<4> const wire;
  gq::bench::axes const range{.schedule = gq::schedule::sra{}};
  gq::bench::add_operator("minifloat", gq::quantizer{norm, minifloat<3, 1>{}, rounding, wire}, range);
  gq::bench::add_operator("uniform", gq::quantizer{norm, gq::levels::uniform<>{}, rounding, wire}, range);
  gq::bench::add_operator("float32", gq::uncompressed{}, range);
  benchmark::RunSpecifiedBenchmarks();
  return gq::bench::failed ? 1 : 0;
}
//! [benchmark-operator]
