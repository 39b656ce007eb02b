// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: rounding errors of a worker's own values: encodes and decodes them alone.

#include "grouped_codec.hpp"

#include <vector>

namespace GLOBALQ_ABI::detail {

/// @brief Encodes and decodes a worker's own vectors, in memory that calls reuse.
class own_rounding {
 public:
  /// @param memory  where the vectors are
  explicit own_rounding(std::shared_ptr<byte_memory> const& memory = byte_memory::host())
      : rounded_(memory), frame_(memory) {}

  /// @param cut            the schedule's partition, so that frames are those of the call
  /// @param brought        the part of the vector that this worker contributes
  /// @param members        the vectors that the worker encodes; their results are not used
  /// @param given          the vectors before stages, to compare with
  /// @param single_vector  one vector, of which the worker may contribute a part
  /// @param begin          begin(members) -> codec&: begins a call of one worker that writes to the results of these
  ///                       members
  /// @param compare        compare(x, rounded, count) for each vector
  template <class Begin, class Compare>
  void measure(partition const& cut, int parts, segment brought, int rank,
               std::span<vector_group::member const> members, std::span<const_vector const> given,
               bool single_vector, Begin const& begin, Compare const& compare) {
    auto const part_of = [&](vector_group::member const& m) {
      return single_vector ? brought : segment{0, m.length};
    };
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < members.size(); ++k)
      bytes += wire::padded(part_of(members[k]).count * size_of(given[k].type));
    std::byte* to = rounded_.get(bytes).data();
    alone_.assign(members.begin(), members.end());
    for (std::size_t k = 0; k < members.size(); ++k) {
      segment const part = part_of(members[k]);
      alone_[k].y = at(mutable_vector{to, given[k].type}, -part.first);
      to += wire::padded(part.count * size_of(given[k].type));
    }
    codec& frames = begin(std::span<vector_group::member const>(alone_));
    for (int p = 0; p < parts; ++p)
      for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
        segment const piece = cut.piece(p, round);
        bool const inside =
            piece.first >= brought.first && piece.first + piece.count <= brought.first + brought.count;
        if (!piece.empty() && inside) there_and_back(frames, piece, rank);
      }
    for (std::size_t k = 0; k < members.size(); ++k) {
      segment const part = part_of(members[k]);
      compare(at(given[k], part.first), at(alone_[k].y, part.first), part.count);
    }
  }

 private:
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

}  // namespace GLOBALQ_ABI::detail
