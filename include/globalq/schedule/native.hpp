// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: the transport's own Allreduce, for sums of integers (exact in any order).

#include "../wire/frame.hpp"
#include "concept.hpp"
#include "detail/piece_sizes.hpp"

#include <string>

namespace GLOBALQ_ABI::schedule {

/// @brief Passes the codes to the transport's library, which chooses the order of additions.
///
/// Only for integer sums: a randomized addition could round differently on two workers. With globalq::uncompressed it
/// is the library's float32 Allreduce, the only case without guaranteed bit-identical results.
/// @complexity bytes sent: determined by the library; 2 S (n-1)/n is assumed
struct native {
  static constexpr char const* name = "native";
  static globalq::detail::schedule_facts facts(int workers) { return {name, workers - 1, true, true, false}; }
  static int parts(int) { return 1; }
  static std::vector<std::pair<int, int>> additions(int workers) { return detail::chain(workers); }

  /// Bytes that a worker sends, assuming that the library sends 2 S (n-1)/n of the numbers in a chunk; headers are not
  /// sent.
  static std::uint64_t sent(detail::piece_sizes const& all, int workers, int) {
    std::uint64_t bytes = 0;
    for (auto const& run : all.runs())
      for (detail::chunk_run const& c : run.chunks) {
        std::uint64_t const twice = 2 * (c.largest - wire::header_bytes);
        bytes += c.rounds * (twice - divide_up(twice, static_cast<std::uint64_t>(workers)));
      }
    return bytes;
  }
  /// Sizes of a worker's frames, slot by slot.
  static void hold(detail::piece_sizes const& all, int, int, detail::slot_sizes& frames) {
    frames.hold(0, 1, all.largest());
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    static_assert(
        transport::OwnAllreduceSum<T, std::int8_t>,
        "globalq: schedule::native needs a transport that adds integers itself (allreduce_sum). Use "
        "schedule::ring, tree, scatter_reduce_allgather or allgather with this transport");
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      segment const part = cut.piece(0, round);
      auto const frame = frames.get(0, c.frame_bytes(part, 1));
      c.combine(part, true, {}, frame);
      payload const p = c.numbers(part, frame);
      switch (p.type) {
        case payload::kind::int8:
          t.allreduce_sum(std::span(static_cast<std::int8_t*>(p.data), p.count));
          break;
        case payload::kind::int16:
          t.allreduce_sum(std::span(static_cast<std::int16_t*>(p.data), p.count));
          break;
        case payload::kind::int32:
          t.allreduce_sum(std::span(static_cast<std::int32_t*>(p.data), p.count));
          break;
        case payload::kind::float32:
          t.allreduce_sum(std::span(static_cast<float*>(p.data), p.count));
          break;
        default:
          break;  // refused when the call was set up
      }
      c.declare(frame, t.size());
      source const done{frame, t.size(), t.rank()};
      c.finish(part, {&done, 1});
    }
  }
};

}  // namespace GLOBALQ_ABI::schedule
