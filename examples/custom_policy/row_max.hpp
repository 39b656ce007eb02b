// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A norm of one's own: the largest magnitude of each row of a matrix, over all workers.

//! [row-max]
#include <globalq/core/concepts.hpp>

/// Scales rows of a matrix by themselves, as their values differ by orders of magnitude.
struct row_max {
  std::uint64_t bucket = 0;                // values that share a scale: the columns; 0: the whole vector
  static constexpr bool is_local = false;  // one scale for all workers, so that codes can be added

  std::uint32_t inner() const { return globalq::infinity; }  // the maximum within a worker
  std::uint32_t outer() const { return globalq::infinity; }  // and over the workers; others: 1 to 64
  double fixed_unit() const { return 0; }                    // above 0: given, and nothing is measured
};

static_assert(globalq::NormScheme<row_max>);
//! [row-max]
