// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: concatenates parts of a text, for errors and names.

#include "compiled.hpp"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace GLOBALQ_ABI::detail {

/// A part of a text: characters that outlive the call, or an integer.
struct text_part {
  /// Marks a signed integer: `at` is its address. A null `at` marks an unsigned one.
  static constexpr char with_sign = 0;
  static constexpr std::uint64_t up_to_zero = ~std::uint64_t{0};  ///< in place of a length: ends with a zero

  text_part(char const* s) : at(s), value(up_to_zero) {}
  text_part(std::string_view s) : at(s.empty() ? "" : s.data()), value(s.size()) {}
  text_part(std::string const& s) : at(s.data()), value(s.size()) {}
  template <std::integral N>
  text_part(N n) : at(std::is_signed_v<N> ? &with_sign : nullptr), value(static_cast<std::uint64_t>(n)) {}

  char const* at;
  std::uint64_t value;
};

/// Concatenates the parts. One call compiles to less code than a sum of strings, which allocates and frees temporaries.
GLOBALQ_DECL std::string joined(std::initializer_list<text_part> parts);

/// A number with six digits.
GLOBALQ_DECL std::string digits_of(double number);

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "joined-inl.hpp"
#endif
