// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: plan of a call for several vectors, each with its own operator.

#include "../../plan/plan.hpp"
#include "grouped_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// A codec with a group's frame sizes that encodes nothing.
class counting_group final : public codec {
 public:
  /// @param codecs  one per slot
  counting_group(group_places const& places, group_operators const& ops,
                 std::span<std::unique_ptr<codec> const> codecs, bool varying)
      : places_(places), ops_(ops), codecs_(codecs), head_(varying ? wire::long_header_bytes : 0) {}

  std::size_t frame_bytes(segment part, int terms) const override {
    if (part.empty()) return 0;
    std::size_t bytes = head_;
    places_.for_each(part, [&](std::size_t k, segment sub) {
      bytes += wire::padded(codecs_[ops_.slot_of(k)]->frame_bytes(sub, terms));
    });
    return bytes;
  }
  /// Chunks that lie within one vector are counted together, for any number of them.
  schedule::detail::piece_sizes sizes(partition const& cut, int parts) const {
    return {cut, parts, false, [&](segment piece, std::uint64_t rounds) {
              std::size_t const k = places_.vector_at(piece.first);
              group_places::cut_pieces const b = places_.inside(k, piece, rounds);
              if (b.rounds < 2) {
                std::uint64_t const bytes = frame_bytes(piece, 1);
                return schedule::detail::chunk_run{1, bytes, bytes};
              }
              // each chunk has as many grains of the vector as fit, or one more
              std::uint64_t const fewer = piece.count / b.grain, more = b.grains - fewer * b.rounds;
              auto const bytes = [&](std::uint64_t grains) {
                return head_ + wire::padded(codecs_[ops_.slot_of(k)]->frame_bytes({0, grains * b.grain}, 1));
              };
              return schedule::detail::chunk_run{b.rounds,
                                                 more * bytes(fewer + 1) + (b.rounds - more) * bytes(fewer),
                                                 bytes(fewer + (more != 0))};
            }};
  }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  group_places const& places_;
  group_operators const& ops_;
  std::span<std::unique_ptr<codec> const> codecs_;
  std::size_t head_;
};

}  // namespace GLOBALQ_ABI::detail
