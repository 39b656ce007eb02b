// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: definitions of the type-erased built-in schedules, for the compiled library.

#include "built_in.hpp"

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::schedule {
#define GLOBALQ_DEFINE_SCHEDULE(type)                              \
  template <>                                                      \
  std::unique_ptr<erased const> erase(type schedule) {             \
    return std::make_unique<erased_as<type>>(std::move(schedule)); \
  }
GLOBALQ_BUILT_IN_SCHEDULES(GLOBALQ_DEFINE_SCHEDULE)
#undef GLOBALQ_DEFINE_SCHEDULE
}  // namespace GLOBALQ_ABI::schedule
#endif
