// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_bench: compares the time of every kernel with its floor. `scripts/bench` makes tables of its output.
///
///   globalq_bench --benchmark_filter=encode/uniform/int8/n:65536
///   globalq_bench --benchmark_list_tests
///
/// Exits with 1 if a result is wrong or nothing ran.

#include "operators.hpp"

#include <globalq/version.hpp>

#include <cstdlib>
#include <iostream>

namespace {

/// The instruction sets that the compiler may use, widest first.
std::string instructions() {
  std::string list;
#if defined(__AVX512VBMI__)
  list += "AVX-512 VBMI, ";
#endif
#if defined(__AVX512BW__)
  list += "AVX-512 BW, ";
#elif defined(__AVX512F__)
  list += "AVX-512 F, ";
#endif
#if defined(__AVX2__)
  list += "AVX2, ";
#elif defined(__AVX__)
  list += "AVX, ";
#elif defined(__SSE2__)
  list += "SSE2, ";
#endif
#if defined(__ARM_FEATURE_SVE)
  list += "SVE, ";
#endif
#if defined(__ARM_NEON)
  list += "NEON, ";
#endif
  return list.empty() ? "none known" : list.substr(0, list.size() - 2);
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

void describe() {
  auto const variable = [](char const* name) {
    char const* const value = std::getenv(name);
    return std::string(value == nullptr ? "unset" : value);
  };
  benchmark::AddCustomContext("globalq", GLOBALQ_VERSION);
  benchmark::AddCustomContext("compiler", compiler());
  benchmark::AddCustomContext("flags", GLOBALQ_BENCH_FLAGS);
  benchmark::AddCustomContext("instructions", instructions());
  benchmark::AddCustomContext("kokkos", std::to_string(KOKKOS_VERSION / 10000) + "." +
                                            std::to_string(KOKKOS_VERSION / 100 % 100) + "." +
                                            std::to_string(KOKKOS_VERSION % 100));
  benchmark::AddCustomContext("space of all threads", Kokkos::DefaultHostExecutionSpace::name());
  benchmark::AddCustomContext("threads", std::to_string(Kokkos::DefaultHostExecutionSpace().concurrency()));
  benchmark::AddCustomContext("OMP_PROC_BIND", variable("OMP_PROC_BIND"));
}

}  // namespace

int main(int argc, char** argv) {
#if !defined(NDEBUG)
  std::cerr << "globalq_bench: built with assertions, so times are not meaningful; use the release preset\n";
#endif
  Kokkos::ScopeGuard const kokkos(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  describe();
  globalq::bench::add_norms();
  globalq::bench::add_encoders();
  globalq::bench::add_decoders();
  globalq::bench::add_reduces();
  globalq::bench::add_codes();
  globalq::bench::add_learning();
  globalq::bench::add_tables();
  globalq::bench::add_selections();
  std::size_t const run = benchmark::RunSpecifiedBenchmarks();
  return run == 0 || globalq::bench::failed ? 1 : 0;
}
