// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: sums of plain numbers over any schedule; frames are the numbers themselves.

#include "../../schedule/concept.hpp"
#include "../../transport/collectives.hpp"
#include "blocks.hpp"

#include <cstring>

namespace GLOBALQ_ABI::baseline::detail {

/// to[i] += from[i]; bytes may be unaligned.
template <class Lane>
GLOBALQ_LOOP void add_lanes(Lane* __restrict to, std::byte const* __restrict from, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Lane v;
    std::memcpy(&v, from + i * sizeof(Lane), sizeof(Lane));
    to[i] = static_cast<Lane>(to[i] + v);
  }
}

/// @brief The numbers of one worker, added in place, in the order of the schedule.
/// @tparam Lane  float, or an integer wide enough for the sum
template <class Lane>
class lanes_codec final : public codec {
 public:
  lanes_codec(kernel::host_executor const& on, std::span<Lane> values) : on_(on), values_(values) {}

  std::size_t frame_bytes(segment part, int) const override { return part.count * sizeof(Lane); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    add(part, own, sources, reinterpret_cast<Lane*>(out.data()));
  }
  void finish(segment part, std::span<source const> sources) override {
    add(part, false, sources, values_.data() + part.first);
  }
  payload numbers(segment part, std::span<std::byte> frame) const override {
    if (part.empty()) return {};
    constexpr payload::kind kind = std::is_same_v<Lane, float>          ? payload::kind::float32
                                   : std::is_same_v<Lane, std::int8_t>  ? payload::kind::int8
                                   : std::is_same_v<Lane, std::int16_t> ? payload::kind::int16
                                                                        : payload::kind::int32;
    return {kind, frame.data(), part.count};
  }
  void declare(std::span<std::byte>, int) const override {}

 private:
  void add(segment part, bool own, std::span<source const> sources, Lane* out) const {
    for_blocks(on_, part.count, [&](std::uint64_t first, std::uint64_t count) {
      Lane* const to = out + first;
      std::size_t next = 0;
      if (own)
        std::copy_n(values_.data() + part.first + first, count, to);
      else
        std::memcpy(static_cast<void*>(to), sources[next++].frame.data() + first * sizeof(Lane),
                    count * sizeof(Lane));
      for (; next < sources.size(); ++next)
        add_lanes(to, sources[next].frame.data() + first * sizeof(Lane), count);
    });
  }

  kernel::host_executor const& on_;
  std::span<Lane> values_;
};

/// The size of the messages of a long vector, in bytes, if a transport does not set one.
inline constexpr std::size_t default_message_bytes = std::size_t{256} << 10;

/// The size of a message of these workers, in bytes.
template <Transport T>
std::size_t message_bytes(T const& workers) {
  if constexpr (transport::OwnChunkBytes<T>)
    return workers.chunk_bytes();
  else
    return default_message_bytes;
}

}  // namespace GLOBALQ_ABI::baseline::detail
