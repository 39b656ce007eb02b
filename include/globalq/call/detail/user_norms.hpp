// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: scales by users' norms. Calls of operators without one compile none of it.

#include "../../core/detail/compiled.hpp"
#include "../../operator/detail/facts_of.hpp"
#include "../../transport/endpoint.hpp"

#include <memory>
#include <span>

namespace GLOBALQ_ABI::detail {

/// The buckets of a call whose scales come from users' norms, in memory that calls reuse.
class user_scales {
 public:
  virtual ~user_scales() = default;
  virtual void clear() = 0;
  /// Whether there are no such buckets.
  virtual bool empty() const = 0;
  /// Computes the scales of a vector's buckets; if workers share them, exchange() does so.
  /// @param part   the part of the vector to measure; begins at a bucket
  /// @param bucket_scales  one per bucket, in units of 2^wide; they must outlive exchange()
  /// @param type   of the scales
  virtual void add(kernel::host_executor const& on, operator_facts const& op, const_vector x, segment part,
                   std::span<double> bucket_scales, dtype type, int wide) = 0;
  /// Exchanges all shared scales at once; if some are local, a second exchange checks that all are finite.
  /// @throws configuration_error on all workers alike if a norm returned no valid scale
  virtual void exchange(transport::endpoint& workers, char const* operation, frame_pool& frames) = 0;
};

GLOBALQ_DECL std::unique_ptr<user_scales> make_user_scales();

/// Whether an operator may have a user's norm; for a type-erased operator this is unknown.
template <class Operator>
inline constexpr bool may_have_user_norm = !is_composed<Operator>;
template <class N, class L, class R, class W, class Op>
inline constexpr bool may_have_user_norm<quantizer<N, L, R, W, Op>> = HasStatistic<N>;

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "user_norms-inl.hpp"
#endif
