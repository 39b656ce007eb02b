// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Fuzzing: what is done with the bytes that a fuzzer gives, and what must hold. A fault is thrown.
///
/// | bytes | content |
/// | --- | --- |
/// | 0 | bit 0: codes of 16 bits; bit 1: the rest is codes to be encoded, not a block; bit 2: the rest begins with a table as it travels, not with counts |
/// | 1..2 | number of codes, up to 4,096 (bodies: up to 12,288) |
/// | 3..4 | largest code, up to what the code takes |
/// | then | counts or a table, where the code has one; then a block or codes |

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "globalq/wire/coded.hpp"
#include "globalq/wire/elias.hpp"
#include "globalq/wire/huffman.hpp"
#include "globalq/wire/sparse.hpp"
#include "tests/wire/decoding.hpp"

namespace fuzz {

namespace wire = globalq::wire;

enum flags : std::uint8_t { wide_codes = 1, is_codes = 2, has_table = 4 };

/// The bytes of a fuzzer, from the front.
class input {
 public:
  explicit input(std::span<std::byte const> bytes) : left_(bytes) {}

  /// 0 where there is nothing left.
  std::uint32_t number(std::size_t bytes) {
    std::uint32_t n = 0;
    for (std::size_t k = 0; k < bytes && !left_.empty(); ++k, left_ = left_.subspan(1))
      n |= std::to_integer<std::uint32_t>(left_[0]) << (8 * k);
    return n;
  }
  std::span<std::byte const> take(std::size_t bytes) {
    auto const taken = left_.first(std::min(bytes, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::size_t size() const { return left_.size(); }

 private:
  std::span<std::byte const> left_;
};

[[noreturn]] inline void fault(std::string const& what) {
  throw std::logic_error("globalq: fuzzing: " + what);
}

template <class Int>
std::vector<Int> codes_from(input& in, std::size_t count, std::uint32_t max_code) {
  std::vector<Int> codes(count);
  for (Int& c : codes) {
    std::uint32_t const n = in.number(sizeof(Int));
    auto const level = static_cast<std::int32_t>((n >> 1) % (max_code + 1));
    c = static_cast<Int>((n & 1U) != 0 ? -level : level);
  }
  return codes;
}

/// @returns false when the bytes are no table
template <class Code>
bool table_from(input& in, std::uint32_t max_code, bool travels, typename Code::table& table) {
  Code const code;
  if (travels) {
    std::vector<std::byte> bytes(code.table_bytes(max_code));
    auto const given = in.take(bytes.size());
    std::copy(given.begin(), given.end(), bytes.begin());
    return !code.read_table(bytes.data(), max_code, table);
  }
  if constexpr (!std::is_empty_v<typename Code::table>) {
    std::vector<std::uint64_t> counts(2 * std::size_t{max_code} + 1);
    for (std::uint64_t& c : counts) {
      std::uint32_t const n = in.number(1);
      c = std::uint64_t{n & 15U} << (n >> 4);
    }
    table = code.make_table(counts, max_code);
  }
  return true;
}

template <class Code>
void block(input& in, std::uint32_t first) {
  using code_type = typename Code::code_type;
  Code const code;
  auto const count = static_cast<int>(in.number(2) % (wire::block_values + 1));
  std::uint32_t const max_code = 1 + in.number(2) % Code::largest_code();
  typename Code::table table{};
  if (!table_from<Code>(in, max_code, (first & has_table) != 0, table)) return;

  if ((first & is_codes) == 0) {
    // a copy of exactly this size: the sanitizer sees what is read behind it
    auto const rest = in.take(in.size());
    std::vector<std::byte> const bytes(rest.begin(), rest.end());
    std::string const what = globalq_test::decoding_fault(code, table, bytes, count, max_code);
    if (!what.empty()) fault(what);
    return;
  }
  auto const codes = codes_from<code_type>(in, static_cast<std::size_t>(count), max_code);
  for (std::size_t room : {4 * codes.size() + 64, codes.size() / 2}) {
    std::vector<std::byte> bytes(room);
    std::size_t const size = code.encode(table, codes.data(), count, bytes.data(), room);
    if (size == wire::too_long) continue;  // or codes without a word
    bytes.resize(size);
    std::vector<code_type> back(codes.size());
    if (code.decode(table, bytes, count, max_code, back.data())) fault("what was encoded was refused");
    if (back != codes) fault("other codes came back");
  }
}

template <class Code>
void body(input& in, std::uint32_t first) {
  using code_type = typename Code::code_type;
  std::size_t const count = in.number(2) % (3 * wire::block_values + 1);
  std::uint32_t const max_code = 1 + in.number(2) % Code::largest_code();
  wire::coded<Code> coded(Code{}, max_code);
  globalq_test::in_turn const on;
  std::vector<code_type> codes(count);
  if ((first & is_codes) != 0) {
    codes = codes_from<code_type>(in, count, max_code);
  } else {
    auto const rest = in.take(in.size());
    std::vector<std::byte> const bytes(rest.begin(), rest.end());
    if (coded.decode(on, bytes, count, codes.data())) return;
    auto const most = static_cast<std::int32_t>(max_code);
    for (code_type const c : codes)
      if (c > most || c < -most) fault("a code beyond the largest");
  }
  std::vector<std::byte> again(coded.capacity(count));
  again.resize(coded.encode(on, codes.data(), count, again));
  std::vector<code_type> back(count);
  if (coded.decode(on, again, count, back.data())) fault("what was encoded was refused");
  if (back != codes) fault("other codes came back");
}

template <template <class> class Code>
void block_of(std::span<std::byte const> bytes) {
  input in(bytes);
  std::uint32_t const first = in.number(1);
  if ((first & wide_codes) != 0)
    block<Code<std::int16_t>>(in, first);
  else
    block<Code<std::int8_t>>(in, first);
}

inline void elias(std::span<std::byte const> bytes) { block_of<wire::elias>(bytes); }
inline void huffman(std::span<std::byte const> bytes) { block_of<wire::huffman>(bytes); }
inline void sparse(std::span<std::byte const> bytes) { block_of<wire::sparse>(bytes); }

/// Bits 4 and 5 of the first byte choose the code.
inline void coded(std::span<std::byte const> bytes) {
  input in(bytes);
  std::uint32_t const first = in.number(1);
  switch ((first >> 3 & 6U) | (first & wide_codes)) {
    case 0:
      return body<wire::elias<>>(in, first);
    case 1:
      return body<wire::elias<std::int16_t>>(in, first);
    case 2:
      return body<wire::huffman<>>(in, first);
    case 3:
      return body<wire::huffman<std::int16_t>>(in, first);
    case 4:
      return body<wire::sparse<>>(in, first);
    default:
      return body<wire::sparse<std::int16_t>>(in, first);
  }
}

struct target {
  char const* name;
  void (*run)(std::span<std::byte const>);
};
inline constexpr target targets[] = {
    {"elias", elias}, {"huffman", huffman}, {"sparse", sparse}, {"coded", coded}};

}  // namespace fuzz
