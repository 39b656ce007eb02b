// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests and fuzzers: what must hold when a block code is given any bytes whatever.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "globalq/wire/block_code.hpp"

namespace globalq_test {

/// What coded needs of an executor: one item after the other.
struct in_turn {
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    for (std::uint64_t i = 0; i < count; ++i) f(i);
  }
};

/// Decodes bytes, which may be anything, and says what went wrong, or nothing.
///
/// Bad bytes must be refused, or stand for codes in range. Those, encoded, must give codes that are no longer and that
/// decode to the same; the same bytes again unless the encoder found a shorter form.
template <class Code>
std::string decoding_fault(Code code, typename Code::table const& table, std::span<std::byte const> bytes,
                           int count, std::uint32_t max_code) {
  using code_type = typename Code::code_type;
  constexpr std::size_t guard = 64;
  auto const n = static_cast<std::size_t>(count);
  std::vector<code_type> codes(n + guard, code_type{55});
  bool const bad = code.decode(table, bytes, count, max_code, codes.data());
  for (std::size_t i = 0; i < guard; ++i)
    if (codes[n + i] != 55) return "written behind the codes";
  if (bad) return "";
  auto const most = static_cast<std::int32_t>(max_code);
  for (std::size_t i = 0; i < n; ++i)
    if (codes[i] > most || codes[i] < -most) return "a code beyond the largest";

  std::vector<std::byte> again(bytes.size());
  std::size_t const size = code.encode(table, codes.data(), count, again.data(), again.size());
  if (size == globalq::wire::too_long) return "a block that is shorter than what the encoder makes of it";
  again.resize(size);
  if (size == bytes.size() && !again.empty() && again[0] == bytes[0])
    for (std::size_t i = 0; i < size; ++i)
      if (again[i] != bytes[i]) return "two blocks of the same form for the same codes";
  std::vector<code_type> twice(n, code_type{55});
  if (code.decode(table, again, count, max_code, twice.data())) return "what was encoded was refused";
  for (std::size_t i = 0; i < n; ++i)
    if (twice[i] != codes[i]) return "another code after encoding again";
  return "";
}

}  // namespace globalq_test
