// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: parses numbers and lists strictly: text that is not used completely is an error.

#include "../core/error.hpp"
#include "../core/float_environment.hpp"

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace GLOBALQ_ABI::named {

/// @brief Throws the error of an option: its name, its value, what is wrong, and a remedy.
[[noreturn]] inline void refuse(std::string_view option, std::string_view value, std::string_view what,
                                std::string_view remedy) {
  std::string text{"globalq: option "};
  text.append(option).append(": \"").append(value).append("\" ").append(what).append("; ").append(remedy);
  throw globalq::configuration_error{text};
}

/// @brief Whether all of `text` is a number of this type; stores it in `number`.
template <class Number>
bool is_number(std::string_view text, Number& number) {
  globalq::float_environment const exact;  // some versions of from_chars compute in the caller's
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  if constexpr (std::floating_point<Number>) return std::isfinite(number);
  return true;
}

/// @brief Parses an integer in [least, most], in decimal digits only.
/// @param value  the user's text, for the error; `text` is the part of it that should be the number
inline std::uint64_t whole_number(std::string_view option, std::string_view value, std::string_view text,
                                  std::uint64_t least, std::uint64_t most) {
  std::uint64_t number = 0;
  if (!is_number(text, number) || number < least || number > most)
    refuse(option, value,
           value == text
               ? "is not an integer in the allowed range"
               : "contains \"" + std::string{text} + "\", which is not an integer in the allowed range",
           "use an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

/// @brief Parses a finite number, such as 0.25 or 1e-3.
inline double real_number(std::string_view option, std::string_view value, std::string_view text) {
  double number = 0;
  if (!is_number(text, number))
    refuse(option, value, "contains \"" + std::string{text} + "\", which is not a finite number",
           "use decimal numbers, such as 0.25 or 1e-3");
  return number;
}

/// @brief The shortest text that reads back as the same number.
template <class Number>
std::string shortest(Number number) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

/// @brief Splits a text at separators; one part if there is none.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    std::size_t const at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace GLOBALQ_ABI::named
