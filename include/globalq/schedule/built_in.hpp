// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: declarations of the type-erased built-in schedules, which globalq::compiled contains.

#include "any.hpp"
#include "detail/cross.hpp"
#include "detail/shards.hpp"
#include "detail/spread.hpp"
#include "erased.hpp"

// Applies schedule(type) to each of them.
#define GLOBALQ_BUILT_IN_SCHEDULES(schedule)                                                              \
  schedule(any) schedule(ring) schedule(tree) schedule(scatter_reduce_allgather) schedule(allgather)      \
      schedule(native) schedule(hierarchical<>) schedule(detail::reduce_scatter) schedule(detail::gather) \
          schedule(detail::spread) schedule(detail::cross)

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::schedule {
#define GLOBALQ_DECLARE_SCHEDULE(type) \
  template <>                          \
  std::unique_ptr<erased const> erase(type);
GLOBALQ_BUILT_IN_SCHEDULES(GLOBALQ_DECLARE_SCHEDULE)
#undef GLOBALQ_DECLARE_SCHEDULE
}  // namespace GLOBALQ_ABI::schedule
#endif
