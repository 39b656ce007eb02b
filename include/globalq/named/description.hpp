// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: an operator described by words, for programs whose user chooses the policies.
///
/// Norm and reduce are data (norm::any, reduce::any); for levels, rounding and wire, make() selects one of several
/// types.

#include "../operator/any_quantizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief The words that describe an operator, as on a command line.
struct description {
  std::string norm = "linf";  ///< linf, l:Q,P, local:Q, power-of-two:linf, power-of-two:local:Q,
      ///< shared-exponent, two-level or fixed:SCALE[:ERROR[:TYPE]]; orders are 1 to 64 or
      ///< inf; TYPE is that of vectors: float32, float16 or bfloat16
  std::string levels;  ///< none, bfloat16, float16, uniform[:S], exponential[:S[:BASE]], table:0,..,1,
                       ///< symmetric:L1,..,1, or a format: e2m1, e2m3, e3m2, e4m3, e5m2;
                       ///< empty: uniform
  std::string rounding =
      "stochastic";  ///< stochastic, correlated, nearest, random-shift or correlated-shift; the last two also with -unshifted
  std::string wire = "int8";    ///< int8, int16, int32, packed:B (B is 1 to 8), elias, huffman[:16], sparse
  std::string reduce = "auto";  ///< auto, sum, exponential or requantize
  std::uint64_t bucket = 0;     ///< values that share a scale; 0: the whole vector
  std::string tail = "own";     ///< for a short last bucket: own (a scale like the others) or float32
  std::uint64_t rotate = 0;     ///< values of the blocks that globalq::rotated rotates first; 0: none
  bool eden = false;            ///< each worker rotates its own buckets: globalq::eden
  bool centered = false;        ///< around the midpoints of the buckets: globalq::centered
  std::string second =
      {};               ///< wire of the means that sra sends: globalq::second_half; empty: that of own values
  double feedback = 0;  ///< decay of residuals: globalq::error_feedback; 0: none
};

/// @brief The largest bucket; no vector is longer.
inline constexpr std::uint64_t largest_bucket = std::uint64_t{1} << 48;

/// @brief Whether levels are those of floating-point numbers: none, bfloat16 or float16. Only a rounding goes with them.
bool are_floats(std::string_view levels);

/// @brief Makes the operator that the words describe.
///
/// `uniform` and `exponential` without a size use as many levels as fit. With levels `none` nothing is
/// quantized, and all other words must keep their defaults. Levels `bfloat16` and `float16` are floats, which take a
/// rounding, `stochastic` or `nearest`, only.
/// @throws globalq::configuration_error naming the option, its value and the allowed values, also if the
///         policies do not fit together; allreduce_mean checks what depends on workers and schedule
globalq::any_quantizer make(description const& words);

}  // namespace GLOBALQ_ABI::named
