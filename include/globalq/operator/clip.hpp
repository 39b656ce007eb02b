// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief clip: clips a vector at a number of standard deviations before it is averaged (TernGrad).
///
/// Not part of an operator, because it changes the vectors that are averaged, and is biased. Each worker clips by
/// itself without communication, at the place where trainers clip by norm: between the gradient and the mean.

#include "../core/float_environment.hpp"
#include "../core/vector.hpp"
#include "../kernel/executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace GLOBALQ_ABI {

namespace detail {

/// Adds the sums of blocks in the order of the blocks, so every number of threads gives the same bits.
template <class Term>
double sum_of_blocks(kernel::host_executor const& on, std::uint64_t count, std::vector<double>& parts,
                     Term const& term) {
  constexpr std::uint64_t width = 4096;
  parts.assign(divide_up(count, width), 0.0);
  on.items(parts.size(), [&](std::uint64_t b) {
    double sums[8] = {};
    std::uint64_t const first = b * width, end = std::min(first + width, count);
    std::uint64_t i = first;
    for (; i + 8 <= end; i += 8)
      for (std::uint64_t j = 0; j < 8; ++j) sums[j] += term(i + j);
    for (std::uint64_t j = 0; i + j < end; ++j) sums[j] += term(i + j);
    parts[b] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  });
  double sum = 0;
  for (double part : parts) sum += part;
  return sum;
}

inline double widened(double x) { return x; }
inline double widened(float x) { return static_cast<double>(x); }
template <class Short>
double widened(Short x) {
  return static_cast<double>(static_cast<float>(x));
}

template <class Value>
Value narrowed(double x) {
  if constexpr (sizeof(Value) >= 4)
    return static_cast<Value>(x);
  else
    return static_cast<Value>(static_cast<float>(x));
}

/// clip_deviations() of `length` values, with memory that calls reuse.
template <class Value>
void clip(kernel::host_executor const& on, Value* all, std::uint64_t length, double deviations,
          std::uint64_t bucket, std::vector<double>& parts) {
  if (!(deviations > 0) || bits_of(deviations) >= double_infinity)
    throw configuration_error("globalq: clip_deviations: " + std::to_string(deviations) +
                              " standard deviations; use a finite number above 0, such as 2.5");
  float_environment const exact;
  std::uint64_t const width = bucket == 0 ? length : bucket;
  for (std::uint64_t first = 0; first < length; first += width) {
    Value* const part = all + first;
    std::uint64_t const count = std::min(width, length - first);
    double const n = static_cast<double>(count);
    double const mean =
        sum_of_blocks(on, count, parts, [part](std::uint64_t i) { return widened(part[i]); }) / n;
    double const squares = sum_of_blocks(on, count, parts, [part, mean](std::uint64_t i) {
      double const off = widened(part[i]) - mean;
      return off * off;
    });
    double const limit = deviations * std::sqrt(squares / n);
    if ((bits_of(limit) & double_magnitude) >= double_infinity) continue;
    Value const top = narrowed<Value>(limit), bottom = narrowed<Value>(-limit);
    on.items(divide_up<std::uint64_t>(count, 4096), [=](std::uint64_t b) {
      for (std::uint64_t i = b * 4096, end = std::min<std::uint64_t>(i + 4096, count); i < end; ++i) {
        double const v = widened(part[i]);
        part[i] = v > limit ? top : (v < -limit ? bottom : part[i]);
      }
    });
    if (length - first <= width) break;
  }
}

}  // namespace detail

/// @brief x becomes min(max(x, -c sigma), c sigma), sigma the standard deviation of the values (around their mean).
///
/// Biased by the sum of (|x| - c sigma) over the values beyond c sigma: the result estimates the mean of the clipped
/// vectors without bias, not that of the original ones. For a normal distribution, c = 2.5 clips 1.2 % of the values.
/// The benefit: the maximum norm, and so the scale of ternary levels, is at most c sigma.
///
/// Vectors with NaN or infinity, or whose squares overflow a double, stay unchanged; the mean reports them.
/// @param x           this worker's vector, in host memory; call it for each layer, as TernGrad does, or use buckets
/// @param deviations  c, above 0; TernGrad uses 2.5
/// @param bucket      values that share a sigma; 0: all
/// @param space       a host execution space
/// @throws configuration_error unless c is above 0 and finite
/// @complexity  three passes over a bucket
/// @source Wen et al. 2017 (TernGrad), gradient clipping
template <class V, class Space = Kokkos::DefaultHostExecutionSpace>
void clip_deviations(V&& x, double deviations, std::uint64_t bucket = 0, Space const& space = Space()) {
  auto* const all = detail::data_of(x);
  using value = std::remove_pointer_t<decltype(detail::data_of(x))>;
  static_assert(
      !std::is_const_v<value>,
      "globalq: clip_deviations: the vector is const, but is clipped in place; pass one that can be written");
  std::vector<double> parts;
  detail::clip(kernel::host_executor(space), all, detail::size_of_vector(x), deviations, bucket, parts);
}

}  // namespace GLOBALQ_ABI
