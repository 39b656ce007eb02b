// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: scales by norms of one's own. Calls of operators that have none compile nothing of it.

#include "../../core/detail/compiled.hpp"
#include "../../operator/detail/facts_of.hpp"
#include "../../transport/endpoint.hpp"

#include <memory>
#include <span>

namespace GLOBALQ_ABI::detail {

/// The buckets of a call whose scales norms of one's own make, with the memory that calls reuse.
class own_scales {
 public:
  virtual ~own_scales() = default;
  virtual void clear() = 0;
  /// Whether there are none.
  virtual bool empty() const = 0;
  /// Fills in the scales of a vector's buckets, or, where workers share them, leaves that to exchange().
  /// @param part   of the vector that is measured; begins at a bucket
  /// @param units  one a bucket, in units of 2^wide; they outlive exchange()
  /// @param type   of the scales
  virtual void add(kernel::host_executor const& on, operator_facts const& op, const_vector x, segment part,
                   std::span<double> units, dtype type, int wide) = 0;
  /// All scales that workers share, in one exchange, and whether all are numbers, in another where some are a worker's own.
  /// @throws configuration_error on all workers alike, where a norm made no scale
  virtual void exchange(transport::endpoint& workers, char const* operation, frame_pool& frames) = 0;
};

GLOBALQ_DECL std::unique_ptr<own_scales> make_own_scales();

/// Whether an operator may have a norm of one's own; of one without its type nobody knows.
template <class Operator>
inline constexpr bool may_have_own_norm = !is_composed<Operator>;
template <class N, class L, class R, class W, class Op>
inline constexpr bool may_have_own_norm<quantizer<N, L, R, W, Op>> = HasStatistic<N>;

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "own_norms-inl.hpp"
#endif
