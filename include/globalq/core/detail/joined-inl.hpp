// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: definitions of joined.hpp.

#include "joined.hpp"

#include <charconv>

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::string joined(std::initializer_list<text_part> parts) {
  std::string all;
  for (auto const& [at, value] : parts) {
    if (at == nullptr)
      all.append(std::to_string(value));
    else if (at == &text_part::with_sign)
      all.append(std::to_string(static_cast<std::int64_t>(value)));
    else if (value == text_part::up_to_zero)
      all.append(at);
    else
      all.append(at, value);
  }
  return all;
}

GLOBALQ_DECL std::string digits_of(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number, std::chars_format::general, 6).ptr};
}

}  // namespace GLOBALQ_ABI::detail
