// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: frames that are not what was expected.

#include "frame.hpp"

namespace GLOBALQ_ABI::wire {

GLOBALQ_DECL std::string scales_named(frame_traits traits) {
  static constexpr char const* names[4] = {"0 bytes", "1 byte", "4 bytes", "8 bytes"};
  return names[traits & 3U];
}

GLOBALQ_DECL std::size_t read_length(std::span<std::byte const> frame, int worker, std::size_t least,
                                     std::size_t most) {
  std::uint64_t words[2] = {};
  if (frame.size() >= long_header_bytes) std::memcpy(words, frame.data() + header_bytes, sizeof words);
  if (words[0] < least || words[0] > most || words[1] != 0)
    throw frame_error("globalq: decode: bad frame from worker " + std::to_string(worker) + ": a length of " +
                      std::to_string(words[0]) + " bytes, which must lie between " + std::to_string(least) +
                      " and " + std::to_string(most) +
                      "; the bytes were damaged or made by another version or operator");
  return static_cast<std::size_t>(words[0]);
}

GLOBALQ_DECL void check_header(source const& from, std::uint8_t wire, std::uint64_t count, std::size_t bytes,
                               frame_traits traits) {
  auto const fail = [&](std::string const& what) {
    throw frame_error("globalq: decode: bad frame from worker " + std::to_string(from.worker) + ": " + what +
                      "; the bytes were damaged or made by another version or operator");
  };
  if (from.frame.size() != bytes)
    fail(std::to_string(from.frame.size()) + " bytes instead of " + std::to_string(bytes));
  frame_header h;
  std::memcpy(&h, from.frame.data(), sizeof h);
  if (h.magic[0] != 'g' || h.magic[1] != 'q') fail("it does not start with \"gq\"");
  if (h.version != format_version)
    fail("format version " + std::to_string(h.version) + " instead of " + std::to_string(format_version));
  if (h.wire != wire) fail("wire format " + std::to_string(h.wire) + " instead of " + std::to_string(wire));
  if (h.terms != static_cast<std::uint32_t>(from.terms))
    fail("sum of " + std::to_string(h.terms) + " workers instead of " + std::to_string(from.terms));
  std::uint64_t const values = h.values & ((std::uint64_t{1} << 48) - 1);
  frame_traits const has = h.values >> 48;
  if (values != count) fail(std::to_string(values) + " values instead of " + std::to_string(count));
  if (((has ^ traits) & 3U) != 0)
    fail("scales of " + scales_named(has) + " instead of " + scales_named(traits));
  if (h.values != word_of_values(count, traits)) fail("it has other levels, buckets, units or shifts");
}

}  // namespace GLOBALQ_ABI::wire
