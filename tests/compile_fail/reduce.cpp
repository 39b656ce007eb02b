// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Which codes a reduce operator can add.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

/// A quantizer of these policies.
template <class Norm, class Levels, class Reduce>
auto composed(Norm norm, Levels levels, Reduce reduce) {
  return gq::quantizer{norm, levels, gq::rounding::stochastic{}, gq::wire::int8{}, reduce};
}

using gq::norm::linf;
using gq::norm::local;
using gq::reduce::exponential;
using gq::reduce::requantize;
using gq::reduce::sum;
namespace levels = gq::levels;

[[maybe_unused]] auto const uniform_sum = composed(linf{}, levels::uniform{7}, sum{});
[[maybe_unused]] auto const exponents = composed(linf{}, levels::exponential{7}, exponential{});
[[maybe_unused]] auto const again = composed(linf{}, levels::exponential<>{}, requantize{});
[[maybe_unused]] auto const of_table = composed(linf{}, levels::table{0, 0.5, 1}, requantize{});
[[maybe_unused]] auto const of_local = composed(local<2>{}, levels::uniform{7}, requantize{});
[[maybe_unused]] auto const exponents_of_local = composed(local<>{}, levels::exponential<>{}, requantize{});

// Integer sums need evenly spaced levels.
#ifdef CASE_SUM_OF_EXPONENTIAL  // expect-error: globalq: reduce::sum cannot add codes of this level scheme
auto const op = composed(linf{}, levels::exponential<>{}, sum{});
#endif

// Indices of a table are no numbers to be added.
#ifdef CASE_SUM_OF_TABLE  // expect-error: globalq: reduce::sum cannot add codes of this level scheme
auto const op = composed(linf{}, levels::table{0, 0.5, 1}, sum{});
#endif

// Uniform codes are added as integers.
#ifdef CASE_EXPONENTIAL_OF_UNIFORM  // expect-error: globalq: reduce::exponential cannot add codes of this level scheme
auto const op = composed(linf{}, levels::uniform{7}, exponential{});
#endif

// Only powers of two are added as codes.
#ifdef CASE_EXPONENTIAL_OF_ANOTHER_BASE  // expect-error: globalq: reduce::exponential cannot add codes of this level scheme
auto const op = composed(linf{}, levels::exponential{7, 1.5}, exponential{});
#endif

// Each worker's codes have a unit of their own.
#ifdef CASE_SUM_OF_LOCAL_NORMS  // expect-error: globalq: codes scaled by different norms cannot be added
auto const op = composed(local<2>{}, levels::uniform{7}, sum{});
#endif

#ifdef CASE_EXPONENTIAL_OF_LOCAL_NORMS  // expect-error: globalq: codes scaled by different norms cannot be added
auto const op = composed(local<>{}, levels::exponential<>{}, exponential{});
#endif

// One of one's own adds powers of two or integers, as it says.
struct larger {
  static constexpr char const* name = "larger";
  static constexpr bool draws = false, unbiased = false;
  template <class Levels>
  static constexpr bool adds = gq::detail::adds_as_integers<Levels>();
  static int add(int a, int b, std::uint32_t) { return a < b ? b : a; }
  static std::uint64_t largest_code(std::uint32_t of_term, std::uint32_t, std::uint32_t) { return of_term; }
};
[[maybe_unused]] auto const of_ones_own = composed(linf{}, levels::uniform{7}, larger{});

#ifdef CASE_OWN_THAT_CANNOT_ADD  // expect-error: globalq: this reduce operator declares that it cannot add codes of this level scheme
auto const op = composed(linf{}, levels::exponential<>{}, larger{});
#endif
