// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: plan of a call for several vectors, each with its own operator.

#include "../../plan/plan.hpp"
#include "grouped_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// The sizes of a group's frames.
class counting_group {
 public:
  /// @param codecs  one per slot
  counting_group(group_places const& places, group_operators const& ops,
                 std::span<counting_codec const> codecs, bool varying)
      : places_(places), ops_(ops), codecs_(codecs), head_(inner_frames::head_bytes(varying)) {}

  std::size_t bytes(segment part, int terms = 1) const {
    if (part.empty()) return 0;
    std::size_t sum = head_;
    places_.for_each(part, [&](std::size_t k, segment sub) {
      sum += wire::padded(codecs_[ops_.slot_of(k)].frame_bytes(sub, terms));
    });
    return sum;
  }
  /// A codec with these sizes. It refers to this object.
  counting_codec frames() const {
    return counting_codec([this](segment part, int terms) { return bytes(part, terms); });
  }
  /// Chunks that lie within one vector are counted together, for any number of them.
  schedule::detail::piece_sizes sizes(partition const& cut, int parts, int terms = 1) const {
    return {
        cut, parts, false, [&](segment piece, std::uint64_t rounds) {
          std::size_t const k = places_.vector_at(piece.first);
          group_places::cut_pieces const b = places_.inside(k, piece, rounds);
          if (b.rounds < 2) {
            std::uint64_t const all = bytes(piece, terms);
            return schedule::detail::chunk_run{1, all, all};
          }
          // each chunk has as many grains of the vector as fit, or one more
          std::uint64_t const fewer = piece.count / b.grain, more = b.grains - fewer * b.rounds;
          auto const of_grains = [&](std::uint64_t grains) {
            return head_ + wire::padded(codecs_[ops_.slot_of(k)].frame_bytes({0, grains * b.grain}, terms));
          };
          return schedule::detail::chunk_run{
              b.rounds, more * of_grains(fewer + 1) + (b.rounds - more) * of_grains(fewer),
              of_grains(fewer + (more != 0))};
        }};
  }

 private:
  group_places const& places_;
  group_operators const& ops_;
  std::span<counting_codec const> codecs_;
  std::size_t head_;
};

}  // namespace GLOBALQ_ABI::detail
