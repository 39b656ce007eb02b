// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: parses the steps at which levels are learned.

#include "../train/learn/schedule.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief Parses "100,2000,every 10000": single steps, and at most one period.
/// @throws globalq::configuration_error that states what is wrong, and what would be right
inline globalq::learn::update_schedule read_learn_at(std::string_view text) {
  globalq::learn::update_schedule found{.once = {}, .every = 0};
  for (std::string_view part : split(text, ',')) {
    auto const skip_spaces = [&] { part.remove_prefix(std::min(part.find_first_not_of(' '), part.size())); };
    skip_spaces();
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    bool const every = part.starts_with("every ");
    if (every) part.remove_prefix(6), skip_spaces();
    std::uint64_t step = 0;
    if (!is_number(part, step) || (every && step == 0))
      refuse("learn_at", text, "contains \"" + std::string{part} + "\", which is not a step",
             "use steps, such as \"100,2000,every 10000\"");
    if (every && found.every != 0)
      refuse("learn_at", text, "contains \"every\" twice", "use one period; single steps may be added");
    if (every)
      found.every = step;
    else
      found.once.push_back(step);
  }
  return found;
}

}  // namespace GLOBALQ_ABI::named
