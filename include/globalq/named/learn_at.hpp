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

/// @brief The steps as read_learn_at() parses them; the same text for equal schedules.
inline std::string text_of(globalq::learn::update_schedule when) {
  std::sort(when.once.begin(), when.once.end());
  when.once.erase(std::unique(when.once.begin(), when.once.end()), when.once.end());
  std::string text;
  for (std::uint64_t const step : when.once)
    text.append(text.empty() ? "" : ",").append(std::to_string(step));
  if (when.every != 0) text.append(text.empty() ? "every " : ",every ").append(std::to_string(when.every));
  return text;
}

}  // namespace GLOBALQ_ABI::named
