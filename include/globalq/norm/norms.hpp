// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief norm: the norms by which values are scaled, of whole vectors or buckets.

#include "../core/concepts.hpp"
#include "order.hpp"

#include <limits>
#include <type_traits>

namespace GLOBALQ_ABI::norm {

/// @brief max |x| over all coordinates of all workers: the default of Global-QSGD.
struct linf {
  std::uint64_t bucket = 0;  ///< values that share a scale; 0: the whole vector
  static constexpr bool is_local = false;

  constexpr std::uint32_t inner() const { return infinity; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief The norm (sum_i ||x_i||_q^p)^(1/p) over all workers: order q within a worker, p over the workers.
///
/// @tparam Q,P  orders: 1 to 64, or globalq::infinity; or @c dynamic: given at run time
/// @source Xin et al. (Global-QSGD), Definition 3.1, with the order of q and p that its theory uses
template <std::uint32_t Q = dynamic, std::uint32_t P = dynamic>
struct l {
  std::uint64_t bucket = 0;
  static constexpr bool is_local = false;

  constexpr std::uint32_t inner() const { return Q; }
  constexpr std::uint32_t outer() const { return P; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief A global norm whose orders are given at run time.
template <>
struct l<dynamic, dynamic> {
  std::uint32_t q = 2;
  std::uint32_t p = 2;
  std::uint64_t bucket = 0;
  static constexpr bool is_local = false;

  constexpr std::uint32_t inner() const { return q; }
  constexpr std::uint32_t outer() const { return p; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief The norms of all values of all workers together: the sum of magnitudes, and the Euclidean norm.
using l1 = l<1, 1>;
using l2 = l<2, 2>;

/// @brief Each worker scales by its own norm ||x_i||_q (QSGD, CGX). Scales travel in front of the codes.
/// @tparam Q  order: 1 to 64, or globalq::infinity; or @c dynamic
template <std::uint32_t Q = dynamic>
struct local {
  std::uint64_t bucket = 0;
  static constexpr bool is_local = true;

  constexpr std::uint32_t inner() const { return Q; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief A local norm whose order is given at run time.
template <>
struct local<dynamic> {
  std::uint32_t q = 2;
  std::uint64_t bucket = 0;
  static constexpr bool is_local = true;

  constexpr std::uint32_t inner() const { return q; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief An absolute scale; nothing is measured or exchanged. If any worker has a larger value, all workers throw.
///
/// With a largest error, a call uses the fewest levels of levels::uniform<>{} with which no value of its result differs
/// from the mean by more, after all roundings on the schedule, in float32 and of the result.
/// @source the step of IntSGD and of QSDP's theory
struct fixed {
  double scale = 1;
  std::uint64_t bucket = 0;
  error_bound error = {};
  static constexpr bool is_local = false;

  constexpr std::uint32_t inner() const { return infinity; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const {
    return scale > 0 ? scale
                     : std::numeric_limits<double>::quiet_NaN();  // rejected with the other parameters
  }
};

/// @brief The largest magnitude of a short bucket, rounded up to c 2^k: the shared exponent of block-scaled formats.
///
/// k travels as k + 127 in one byte (E8M0): 8 bits per bucket instead of 32. The scale is at least the largest
/// magnitude and less than twice that: nothing is clipped, so rounding to the format's levels has no bias. (The OCP
/// specification uses the exponent below instead, and clips.) float64 vectors send doubles.
/// @tparam Levels  the format of the values, levels::minifloat; c is its largest value
/// @source Open Compute Project: Microscaling Formats (MX) Specification 1.0, sections 5 and 6
template <class Levels>
struct shared_exponent {
  std::uint64_t bucket = 32;
  static constexpr bool is_local = true;
  static constexpr float quantum = Levels::largest;

  constexpr std::uint32_t inner() const { return infinity; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const { return 0; }
};

/// @brief The largest magnitude of a short bucket, rounded up to E4M3 numbers under one scale of the vector: the scales
///        of NVFP4.
///
/// The scale is c w e, where w is a float of 24 bits for the whole vector and e the smallest E4M3 number for which no
/// value is clipped: 8 bits per bucket, and 32 for w. The scale is less than 9/8 of the largest magnitude, unless that is
/// below 2^-14 of the vector's: the smallest e is 2^-9. float64 vectors send doubles.
/// @tparam Levels  the format of the values, levels::minifloat; c is its largest value
/// @source NVIDIA 2025, Pretraining Large Language Models with NVFP4, appendix B, but scales are rounded up
template <class Levels>
struct two_level {
  std::uint64_t bucket = 16;
  static constexpr bool is_local = true;
  static constexpr float quantum = Levels::largest;
  static constexpr bool two_levels = true;

  constexpr std::uint32_t inner() const { return infinity; }
  constexpr std::uint32_t outer() const { return infinity; }
  constexpr double fixed_scale() const { return 0; }
};

namespace detail {
/// The order over the workers; infinity for norms with a statistic.
template <class Norm>
constexpr std::uint32_t outer_of() {
  if constexpr (HasStatistic<Norm>)
    return infinity;
  else
    return Norm{}.outer();
}
}  // namespace detail

/// @brief A norm whose scale is rounded up to a power of two, so that levels 2^-k are powers of two themselves.
///
/// The scale is less than twice the norm. The largest value may be rounded to the scale, which overflows if the type
/// ends below the next power of two (float16: values above 2^15). Rounding up commutes with the maximum over the
/// workers, not with a sum of powers, so the norm must be local or a maximum over the workers.
/// @code
/// norm::power_of_two<norm::local<infinity>> const scale{{.bucket = 128}};
/// @endcode
/// @tparam Norm  norm::linf, norm::l<Q, infinity> or norm::local
/// @source Horvath et al. 2019, section 2: natural compression, whose levels are the exponents of floating point
template <class Norm>
struct power_of_two : Norm {
  static constexpr bool rounds_up = true;
  static_assert(
      !std::is_same_v<Norm, fixed>,
      "globalq: norm::power_of_two rounds measured norms; pass a power of two to norm::fixed instead");
  static_assert(Norm::is_local || detail::outer_of<Norm>() == infinity,
                "globalq: norm::power_of_two needs a local norm or a maximum over the workers: norm::linf, "
                "norm::l<Q, infinity> or norm::local; see docs/composing.md");
};

/// Has a bound on the error of the mean.
template <class Norm>
concept SaysError = requires(Norm const norm) {
  { norm.error } -> std::convertible_to<error_bound>;
};

/// The order within a worker, and the rounding of scales.
template <NormScheme Norm>
constexpr order order_of(Norm const& norm) {
  order q = norm.inner();
  if constexpr (SaysRoundsUp<Norm>) q.quantum = norm.rounds_up ? 1.0F : 0.0F;
  if constexpr (HasQuantum<Norm>)
    q = {q.value, Norm::quantum, HasTwoLevels<Norm> ? scale_byte::e4m3 : scale_byte::exponent};
  return q;
}

/// @brief One of these norms, chosen at run time, for example by a program's user.
///
/// Whether it fits the other policies is checked when a call is set up or planned.
struct any {
  std::uint64_t bucket = 0;
  bool is_local = false;
  error_bound error = {};

  constexpr any() : any(linf{}) {}
  template <NormScheme Norm>
  requires(!std::is_same_v<Norm, any>) constexpr any(Norm const& norm)
      : bucket(norm.bucket),
        is_local(Norm::is_local),
        order_(order_of(norm)),
        outer_(norm.outer()),
        fixed_scale_(norm.fixed_scale()) {
    if constexpr (SaysError<Norm>) error = norm.error;
  }

  constexpr std::uint32_t inner() const { return order_.value; }
  constexpr std::uint32_t outer() const { return outer_; }
  constexpr double fixed_scale() const { return fixed_scale_; }
  constexpr order scales() const { return order_; }

 private:
  order order_;
  std::uint32_t outer_;
  double fixed_scale_;
};

constexpr order order_of(any const& norm) { return norm.scales(); }

}  // namespace GLOBALQ_ABI::norm
