// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: what becomes of the own values of a call: they are encoded and decoded by themselves.

#include "grouped_codec.hpp"

#include <vector>

namespace globalq::detail {

/// @brief Own vectors, encoded and decoded by themselves; with the memory that calls reuse.
class own_rounding {
 public:
  /// @param memory  where the vectors are
  explicit own_rounding(byte_memory memory = byte_memory::host()) : rounded_(memory), frame_(memory) {}

  /// @param frames   the codec of a call
  /// @param cut      as the schedule cuts the vector, so that frames are those of the call
  /// @param brought  the part of the vector that there are values of
  /// @param members  the own vectors; their results are not looked at
  /// @param begin    begin(members): begins a call of one worker whose results go where these members say
  /// @param compare  compare(x, rounded, count) for each vector
  template <class Begin, class Compare>
  void measure(codec& frames, layout const& cut, int parts, segment brought, int rank,
               std::span<vector_group::member const> members, Begin const& begin, Compare const& compare) {
    place(members);
    begin(std::span<vector_group::member const>(alone_));
    for (int p = 0; p < parts; ++p)
      for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
        segment const piece = cut.piece(p, round);
        bool const inside =
            piece.first >= brought.first && piece.first + piece.count <= brought.first + brought.count;
        if (!piece.empty() && inside) there_and_back(frames, piece, rank);
      }
    for (vector_group::member const& m : alone_) compare(m.x, m.y, m.length);
  }

 private:
  /// The same vectors, with results in memory of this object.
  void place(std::span<vector_group::member const> members) {
    std::size_t bytes = 0;
    for (auto const& m : members) bytes += wire::padded(m.length * size_of(m.x.type));
    std::byte* to = rounded_.get(bytes).data();
    alone_.assign(members.begin(), members.end());
    for (auto& m : alone_) {
      m.y = {to, m.x.type};
      to += wire::padded(m.length * size_of(m.x.type));
    }
  }

  void there_and_back(codec& frames, segment piece, int rank) {
    std::span<std::byte> const room = frame_.get(frames.frame_bytes(piece, 1));
    frames.combine(piece, true, {}, room);
    std::size_t const used = frames.head_bytes() == 0 ? room.size() : frames.length_of(room, rank);
    source const mine{room.first(used), 1, rank, rank};
    frames.finish(piece, {&mine, 1});
  }

  std::vector<vector_group::member> alone_;
  byte_buffer rounded_, frame_;
};

}  // namespace globalq::detail
