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
using gq::reduce::requantise;
using gq::reduce::sum;
namespace levels = gq::levels;

[[maybe_unused]] auto const uniform_sum = composed(linf{}, levels::uniform{7}, sum{});
[[maybe_unused]] auto const exponents = composed(linf{}, levels::exponential{7}, exponential{});
[[maybe_unused]] auto const again = composed(linf{}, levels::exponential<>{}, requantise{});
[[maybe_unused]] auto const of_table = composed(linf{}, levels::table{0, 0.5, 1}, requantise{});
[[maybe_unused]] auto const of_local = composed(local<2>{}, levels::uniform{7}, requantise{});
[[maybe_unused]] auto const exponents_of_local = composed(local<>{}, levels::exponential<>{}, requantise{});

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

// A reduce operator of one's own would be ignored.
#ifdef CASE_OF_ONES_OWN  // expect-error: globalq: the library does not run reduce operators of your own
struct largest {
  static constexpr char const* name() { return "largest"; }
};
auto const op = composed(linf{}, levels::uniform<7>{}, largest{});
#endif
