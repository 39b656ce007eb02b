// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_bench: compares the time of every kernel with its floor. `scripts/bench` makes tables of its output.
///
///   globalq_bench --benchmark_filter=encode/uniform/int8/n:65536
///   globalq_bench --benchmark_list_tests
///   globalq_bench --operator cgx:4 --operator global-uniform:8
///
/// With operators by text (globalq/named/operators.hpp) it runs only those: encoding, decoding and the mean of four threads.
/// Exits with 1 if a result is wrong or nothing ran, with 2 for wrong arguments.

#include "operators.hpp"

#include <globalq/bench/operator.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/version.hpp>

#include <cstdlib>
#include <iostream>
#include <string_view>

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

/// Takes `--operator TEXT` and `--operator=TEXT` out of the arguments.
std::vector<std::string> operators_in(int& argc, char** argv) {
  constexpr std::string_view option = "--operator";
  std::vector<std::string> found;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    std::string_view const argument = argv[i];
    if (argument == option && i + 1 == argc)
      throw globalq::configuration_error("globalq_bench: --operator needs a value, such as cgx:4");
    if (argument == option)
      found.emplace_back(argv[++i]);
    else if (argument.starts_with(option) && argument[option.size()] == '=')
      found.emplace_back(argument.substr(option.size() + 1));
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  return found;
}

void add_kernels() {
  globalq::bench::add_norms();
  globalq::bench::add_encoders();
  globalq::bench::add_decoders();
  globalq::bench::add_floats();
  globalq::bench::add_reduces();
  globalq::bench::add_codes();
  globalq::bench::add_learning();
  globalq::bench::add_tables();
  globalq::bench::add_selections();
}

void add_named(std::string const& text) {
  auto const asked = globalq::named::read_operator(text);
  if (!asked.only_quantizes())
    std::cerr << "globalq_bench: " << text << ": clipping and learning are not timed, only the operator\n";
  globalq::bench::axes range;
  range.schedule = globalq::schedule::any(asked.schedule);
  globalq::bench::add_operator(text, globalq::named::operator_of(asked), range);
}

}  // namespace

int main(int argc, char** argv) {
#if !defined(NDEBUG)
  std::cerr << "globalq_bench: built with assertions, so times are not meaningful; use the release preset\n";
#endif
  Kokkos::ScopeGuard const kokkos(argc, argv);
  try {
    auto const operators = operators_in(argc, argv);
    for (std::string const& text : operators) add_named(text);
    if (operators.empty()) add_kernels();
  } catch (globalq::configuration_error const& problem) {
    std::cerr << problem.what() << '\n';
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  describe();
  std::size_t const run = benchmark::RunSpecifiedBenchmarks();
  return run == 0 || globalq::bench::failed ? 1 : 0;
}
