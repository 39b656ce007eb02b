// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: the concept of variable-length codes, which encode blocks of codes.
///
/// A block code converts at most block_values codes to bytes and back; coded.hpp builds the body of a frame from
/// blocks. Codes are integers as everywhere: signed integers, sign and magnitude of a level, 0 for the level zero.

#include "../core/concepts.hpp"

#include <bit>
#include <cstdint>
#include <span>

namespace GLOBALQ_ABI::wire {

static_assert(std::endian::native == std::endian::little,
              "globalq: frames are little-endian and big-endian machines are not supported");

/// The most codes of one block.
inline constexpr int block_values = 4096;

/// encode() returns this for a block that does not fit into its output.
inline constexpr std::size_t too_long = ~std::size_t{0};

/// @brief Converts the codes of a block to bytes of variable length and back. A small value type, for the host only.
///
/// - `name()`, `identifier()`: its name, and its number in the header of a frame, from 128 on for yours.
/// - `largest_code()`: the largest magnitude of a code that it can encode.
/// - `make_table(counts, max_code)`: the table that all blocks of a frame share, from the frequencies of codes
///   (`counts[code + max_code]`); an empty type if there is no table.
/// - `table_bytes`, `write_table`, `read_table`: convert the table to bytes and back; read_table: true for bad bytes.
/// - `encode(table, codes, count, out, room)`: returns the bytes written, at most @c room, or too_long; writes nothing
///   outside [out, out + room).
/// - `decode(table, in, count, max_code, codes)`: returns true for bytes that encode() could not have written for codes
///   up to max_code. Reads nothing outside @c in and writes nothing outside codes[0, count), whatever the bytes are.
template <class C>
concept BlockCode = std::is_trivially_copyable_v<C> && std::signed_integral<typename C::code_type> &&
    std::is_trivially_copyable_v<typename C::table> &&
    requires(C const code, typename C::table const& table, typename C::table& read,
             std::span<std::uint64_t const> counts, std::span<std::byte const> in,
             typename C::code_type* codes, std::byte* out, std::uint32_t max_code, int count,
             std::size_t room) {
  { C::name() } -> std::convertible_to<char const*>;
  { C::identifier() } -> std::same_as<std::uint8_t>;
  { C::largest_code() } -> std::same_as<std::uint32_t>;
  { code.make_table(counts, max_code) } -> std::same_as<typename C::table>;
  { code.table_bytes(max_code) } -> std::same_as<std::size_t>;
  code.write_table(table, max_code, out);
  { code.read_table(in.data(), max_code, read) } -> std::same_as<bool>;
  { code.encode(table, codes, count, out, room) } -> std::same_as<std::size_t>;
  { code.decode(table, in, count, max_code, codes) } -> std::same_as<bool>;
};

}  // namespace GLOBALQ_ABI::wire
