// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: a bucket of 1-bit SGD: its signs, and the means of its values above and below zero.

#include "../../core/arithmetic.hpp"
#include "signs.hpp"

#include <cstdint>
#include <cstring>

namespace GLOBALQ_ABI::baseline::detail {

/// The values that the bits of a bucket represent.
struct two_means {
  float positive, negative;
};
static_assert(sizeof(two_means) == sizeof(std::uint64_t));

/// The means of the values at or above zero and of those below, in 16 partial sums.
GLOBALQ_LOOP two_means means_of_signs(float const* x, std::uint64_t count) {
  constexpr std::uint64_t lanes = 16;
  double sums[lanes] = {}, below[lanes] = {};
  std::uint32_t negatives[lanes] = {};
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::uint64_t j = 0; j < lanes; ++j) {
      float const v = x[i + j], low = v < 0 ? v : 0.0F;
      sums[j] += static_cast<double>(v);
      below[j] += static_cast<double>(low);
      negatives[j] += v < 0 ? 1U : 0U;
    }
  for (std::uint64_t j = 0; i < count; ++i, ++j) {
    sums[j] += static_cast<double>(x[i]);
    below[j] += x[i] < 0 ? static_cast<double>(x[i]) : 0.0;
    negatives[j] += x[i] < 0 ? 1U : 0U;
  }
  double all = 0, low = 0;
  std::uint64_t negative = 0;
  for (std::uint64_t j = 0; j < lanes; ++j) {
    all += sums[j];
    low += below[j];
    negative += negatives[j];
  }
  double const above = all - low;
  return {negative == count || above < 0 ? 0.0F
                                         : static_cast<float>(above / static_cast<double>(count - negative)),
          negative == 0 ? 0.0F : static_cast<float>(low / static_cast<double>(negative))};
}

/// rest[i] = x[i] minus its mean; both may be the same memory.
GLOBALQ_LOOP void leave_over(float const* x, std::uint64_t count, two_means m, float* rest) {
  GLOBALQ_INDEPENDENT
  for (std::uint64_t i = 0; i < count; ++i) rest[i] = x[i] - (x[i] < 0 ? m.negative : m.positive);
}

/// sums[i] *= factor, in double.
GLOBALQ_LOOP void scale_sums(float* sums, std::uint64_t count, double factor) {
  for (std::uint64_t i = 0; i < count; ++i)
    sums[i] = static_cast<float>(static_cast<double>(sums[i]) * factor);
}

inline two_means means_in(std::uint64_t const* bucket) {
  two_means m;
  std::memcpy(&m, bucket, sizeof m);
  return m;
}

/// Writes a bucket: means times @p share, and bits.
inline two_means write_bucket(float const* x, std::uint64_t count, float share, std::uint64_t* to) {
  two_means m = means_of_signs(x, count);
  m = {m.positive * share, m.negative * share};
  std::memcpy(to, &m, sizeof m);
  pack_signs(x, count, to + 1);
  return m;
}

/// sums[i] += the value that bit i of a bucket represents.
inline void add_bucket(std::uint64_t const* bucket, std::uint64_t count, float* sums) {
  two_means const m = means_in(bucket);
  add_signed(bucket + 1, count, m.positive, m.negative, sums);
}

}  // namespace GLOBALQ_ABI::baseline::detail
