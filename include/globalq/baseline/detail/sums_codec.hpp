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
template <class Value>
GLOBALQ_LOOP void add_values(Value* __restrict to, std::byte const* __restrict from, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Value v;
    std::memcpy(&v, from + i * sizeof(Value), sizeof(Value));
    to[i] = static_cast<Value>(to[i] + v);
  }
}

/// @brief The numbers of one worker, added in place, in the order of the schedule.
/// @tparam Value  float, or an integer wide enough for the sum
template <class Value>
class sums_codec final : public codec {
 public:
  sums_codec(kernel::host_executor const& on, std::span<Value> values) : on_(on), values_(values) {}

  std::size_t frame_bytes(segment part, int) const override { return part.count * sizeof(Value); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    add(part, own, sources, reinterpret_cast<Value*>(out.data()));
  }
  void finish(segment part, std::span<source const> sources) override {
    add(part, false, sources, values_.data() + part.first);
  }
  payload numbers(segment part, std::span<std::byte> frame) const override {
    if (part.empty()) return {};
    constexpr payload::kind kind = std::is_same_v<Value, float>          ? payload::kind::float32
                                   : std::is_same_v<Value, std::int8_t>  ? payload::kind::int8
                                   : std::is_same_v<Value, std::int16_t> ? payload::kind::int16
                                                                         : payload::kind::int32;
    return {kind, frame.data(), part.count};
  }
  void declare(std::span<std::byte>, int) const override {}

 private:
  void add(segment part, bool own, std::span<source const> sources, Value* out) const {
    for_blocks(on_, part.count, [&](std::uint64_t first, std::uint64_t count) {
      Value* const to = out + first;
      std::size_t next = 0;
      if (own)
        std::copy_n(values_.data() + part.first + first, count, to);
      else
        std::memcpy(static_cast<void*>(to), sources[next++].frame.data() + first * sizeof(Value),
                    count * sizeof(Value));
      for (; next < sources.size(); ++next)
        add_values(to, sources[next].frame.data() + first * sizeof(Value), count);
    });
  }

  kernel::host_executor const& on_;
  std::span<Value> values_;
};

}  // namespace GLOBALQ_ABI::baseline::detail
