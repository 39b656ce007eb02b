// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: what rounding does to the own values of a call: they are encoded and decoded by themselves.

#include "../kernel/executor.hpp"
#include "../telemetry.hpp"
#include "grouped_codec.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace globalq::detail {

/// Sums of a block.
struct block_errors {
  double energy = 0, error = 0;
  std::uint64_t zeros = 0;
};

/// @tparam Widen  widen(word): the value as a double, exactly
template <class Widen, class Word>
GLOBALQ_LOOP block_errors errors_of(Word const* x, Word const* rounded, std::uint64_t count) {
  constexpr std::uint64_t lanes = 8;
  double energy[lanes] = {}, error[lanes] = {};
  std::uint64_t zeros[lanes] = {};
  auto const add = [&](std::uint64_t i, std::uint64_t lane) {
    double const v = Widen{}(x[i]), r = Widen{}(rounded[i]), off = r - v;
    energy[lane] += v * v;
    error[lane] += off * off;
    zeros[lane] += r == 0 ? 1U : 0U;
  };
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::uint64_t lane = 0; lane < lanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, 0);
  block_errors sum;
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    sum.energy += energy[lane];
    sum.error += error[lane];
    sum.zeros += zeros[lane];
  }
  return sum;
}

struct widen_real {
  template <class Real>
  GLOBALQ_FUNCTION double operator()(Real v) const {
    return v;
  }
};
template <class Half>
struct widen_half {
  GLOBALQ_FUNCTION double operator()(std::uint16_t v) const { return Half::widen(v); }
};

/// Adds the zeros and errors of some values.
inline void add_errors(kernel::host_executor const& on, const_vector x, mutable_vector rounded,
                       std::uint64_t count, call_report& to) {
  constexpr std::uint64_t block = 1U << 14;
  auto const over_blocks = [&](auto widen, auto word) {
    using type = decltype(word);
    std::mutex together;
    on.items(divide_up(count, block), [&](std::uint64_t b) {
      block_errors const e = errors_of<decltype(widen)>(static_cast<type const*>(x.data) + b * block,
                                                        static_cast<type const*>(rounded.data) + b * block,
                                                        std::min(block, count - b * block));
      std::scoped_lock const lock(together);
      to.zeros += e.zeros;
      to.energy += e.energy;
      to.error_energy += e.error;
    });
  };
  to.rounded += count;
  switch (x.type) {
    case dtype::float64:
      return over_blocks(widen_real{}, double{});
    case dtype::float16:
      return over_blocks(widen_half<float16>{}, std::uint16_t{});
    case dtype::bfloat16:
      return over_blocks(widen_half<bfloat16>{}, std::uint16_t{});
    default:
      return over_blocks(widen_real{}, float{});
  }
}

/// @brief Own vectors, encoded and decoded by themselves; with the memory that calls reuse.
class own_rounding {
 public:
  /// @param on       where sums are computed
  /// @param frames   the codec of a call
  /// @param cut      as the schedule cuts the vector, so that frames are those of the call
  /// @param brought  the part of the vector that there are values of
  /// @param members  the own vectors; their results are not looked at
  /// @param begin    begin(members): begins a call of one worker whose results go where these members say
  /// @param to       gets the zeros and errors
  template <class Begin>
  void measure(kernel::host_executor const& on, codec& frames, layout const& cut, int parts, segment brought,
               int rank, std::span<vector_group::member const> members, Begin const& begin, call_report& to) {
    place(members);
    begin(std::span<vector_group::member const>(alone_));
    for (int p = 0; p < parts; ++p)
      for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
        segment const piece = cut.piece(p, round);
        bool const inside =
            piece.first >= brought.first && piece.first + piece.count <= brought.first + brought.count;
        if (!piece.empty() && inside) there_and_back(frames, piece, rank);
      }
    for (vector_group::member const& m : alone_) add_errors(on, m.x, m.y, m.length, to);
  }

 private:
  /// The same vectors, with results in memory of this object.
  void place(std::span<vector_group::member const> members) {
    std::size_t bytes = 0;
    for (auto const& m : members) bytes += grouped_codec::padded(m.length * size_of(m.x.type));
    std::byte* to = rounded_.get(bytes).data();
    alone_.assign(members.begin(), members.end());
    for (auto& m : alone_) {
      m.y = {to, m.x.type};
      to += grouped_codec::padded(m.length * size_of(m.x.type));
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
