// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: frames that contain frames, each padded to 16 bytes: those of sections and of the vectors of a group.

#include "../../core/codec.hpp"
#include "../../wire/frame.hpp"

#include <algorithm>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// @brief Reads the inner frames of all sources in turn.
///
/// If frames vary in length, the outer frame begins with a header of 32 bytes, wire format 0, which contains the length.
class inner_frames {
 public:
  static constexpr std::uint8_t format = 0;

  static std::size_t head_bytes(bool varies) { return varies ? wire::long_header_bytes : 0; }

  /// @param least  bytes that an outer frame has at least, if it begins with a header
  /// @param most   most(terms): bytes that it has at most
  /// @throws frame_error that names the worker, if a header is bad
  template <class Most>
  void begin(segment part, std::span<source const> sources, std::size_t head, std::size_t least,
             Most const& most) {
    sources_.assign(sources.begin(), sources.end());
    at_.assign(sources.size(), head);
    inner_.resize(sources.size());
    if (head == 0) return;
    for (source const& s : sources)
      wire::check_header(s, format, part.count, wire::read_length(s.frame, s.worker, least, most(s.terms)));
  }

  /// The next frames, of @p part by a codec, which checks them.
  std::span<source const> next(codec const& of, segment part) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      source const& s = sources_[i];
      auto const room =
          s.frame.subspan(at_[i], std::min(of.frame_bytes(part, s.terms), s.frame.size() - at_[i]));
      take(i, room.first(of.length_of(room, s.worker)));
    }
    return inner_;
  }

  /// The last frames: all bytes that are left.
  std::span<source const> rest() {
    for (std::size_t i = 0; i < sources_.size(); ++i) take(i, sources_[i].frame.subspan(at_[i]));
    return inner_;
  }

  /// @throws frame_error if bytes are left
  void expect_end() const {
    for (std::size_t i = 0; i < sources_.size(); ++i)
      if (at_[i] != sources_[i].frame.size())
        fail<frame_error>(
            {"globalq: decode: bad frame from worker ", sources_[i].worker, ": ",
             sources_[i].frame.size() - at_[i],
             " bytes follow its last vector; the bytes are corrupt or were made by another operator"});
  }

 private:
  void take(std::size_t i, std::span<std::byte const> frame) {
    source const& s = sources_[i];
    inner_[i] = {frame, s.terms, s.worker, s.first};
    at_[i] = std::min(at_[i] + wire::padded(frame.size()), s.frame.size());
  }

  std::vector<source> sources_, inner_;
  std::vector<std::size_t> at_;  ///< first byte of the next inner frame, for each source
};

/// Writes an inner frame at the start of @p out and pads it.
/// @returns its bytes with the padding
inline std::size_t combine_inner(codec& of, segment part, bool own, std::span<source const> frames, int terms,
                                 int rank, std::span<std::byte> out) {
  auto const frame = out.first(of.frame_bytes(part, terms));
  of.combine(part, own, frames, frame);
  std::size_t const used = of.length_of(frame, rank);
  wire::pad(out, used);
  return wire::padded(used);
}

}  // namespace GLOBALQ_ABI::detail
