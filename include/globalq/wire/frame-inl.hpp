// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: checks of frames, and their errors.

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
    globalq::detail::fail<frame_error>({"globalq: decode: bad frame from worker ", worker, ": its length of ",
                                        words[0], " bytes is not between ", least, " and ", most,
                                        "; the bytes were damaged or made by another version or operator"});
  return static_cast<std::size_t>(words[0]);
}

GLOBALQ_DECL void check_header(source const& from, std::uint8_t wire, std::uint64_t count, std::size_t bytes,
                               frame_traits traits) {
  auto const bad = [&](std::initializer_list<globalq::detail::text_part> what) {
    globalq::detail::fail<frame_error>({"globalq: decode: bad frame from worker ", from.worker, ": ",
                                        globalq::detail::joined(what),
                                        "; the bytes were damaged or made by another version or operator"});
  };
  if (from.frame.size() != bytes) bad({from.frame.size(), " bytes instead of ", bytes});
  frame_header h;
  std::memcpy(&h, from.frame.data(), sizeof h);
  if (h.magic[0] != 'g' || h.magic[1] != 'q') bad({"it does not start with \"gq\""});
  if (h.version != format_version) bad({"format version ", h.version, " instead of ", format_version});
  if (h.wire != wire) bad({"wire format ", h.wire, " instead of ", wire});
  if (h.terms != static_cast<std::uint32_t>(from.terms))
    bad({"sum of ", h.terms, " workers instead of ", from.terms});
  std::uint64_t const values = h.values & ((std::uint64_t{1} << 48) - 1);
  frame_traits const has = h.values >> 48;
  if (values != count) bad({values, " values instead of ", count});
  if (((has ^ traits) & 3U) != 0)
    bad({"scales of ", scales_named(has), " instead of ", scales_named(traits)});
  if (h.values != word_of_values(count, traits)) bad({"it has other levels, buckets, scales or shifts"});
}

}  // namespace GLOBALQ_ABI::wire
