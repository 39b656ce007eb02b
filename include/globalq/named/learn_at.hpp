// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the steps at which levels are learned, from text.

#include "../train/learn/schedule.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief Reads "100,2000,every 10000": steps, and at most one distance of further ones.
/// @throws globalq::configuration_error naming what is wrong, and what would be right
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
      refuse("learn_at", text, "holds \"" + std::string{part} + "\", which is no such step",
             "give steps, such as \"100,2000,every 10000\"");
    if (every && found.every != 0)
      refuse("learn_at", text, "says \"every\" twice", "give one distance, and single steps besides");
    if (every)
      found.every = step;
    else
      found.once.push_back(step);
  }
  return found;
}

}  // namespace GLOBALQ_ABI::named
