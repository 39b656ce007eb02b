// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: what rounding does to the own values of a call: they are encoded and decoded by themselves.

#include "../core/codec.hpp"
#include "../core/dtype.hpp"
#include "../telemetry.hpp"

namespace globalq::detail {

/// Value i, exactly.
inline double value_at(const_vector x, std::uint64_t i) {
  switch (x.type) {
    case dtype::float64:
      return static_cast<double const*>(x.data)[i];
    case dtype::float16:
      return float16::widen(static_cast<std::uint16_t const*>(x.data)[i]);
    case dtype::bfloat16:
      return bfloat16::widen(static_cast<std::uint16_t const*>(x.data)[i]);
    default:
      return static_cast<float const*>(x.data)[i];
  }
}

/// Adds the zeros and errors of values [first, first + count).
inline void add_errors(const_vector x, const_vector rounded, std::uint64_t first, std::uint64_t count,
                       call_report& to) {
  double energy = 0, error = 0;
  std::uint64_t zeros = 0;
  for (std::uint64_t i = first; i < first + count; ++i) {
    double const v = value_at(x, i), r = value_at(rounded, i);
    energy += v * v;
    error += (r - v) * (r - v);
    zeros += r == 0 ? 1 : 0;
  }
  to.rounded += count;
  to.zeros += zeros;
  to.energy += energy;
  to.error_energy += error;
}

/// @brief Writes what own values become when a worker is alone.
/// @param own    begun with a call of one worker, whose result is where this writes
/// @param cut    as the schedule cuts the vector, so that frames are those of the call
/// @param brought  the part of the vector that there are values of
inline void round_alone(codec& own, layout const& cut, int parts, segment brought, int rank,
                        byte_buffer& memory) {
  for (int p = 0; p < parts; ++p)
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      segment const piece = cut.piece(p, round);
      bool const inside =
          piece.first >= brought.first && piece.first + piece.count <= brought.first + brought.count;
      if (piece.empty() || !inside) continue;
      std::span<std::byte> const room = memory.get(own.frame_bytes(piece, 1));
      own.combine(piece, true, {}, room);
      std::size_t const used = own.head_bytes() == 0 ? room.size() : own.length_of(room, rank);
      source const mine{room.first(used), 1, rank, rank};
      own.finish(piece, {&mine, 1});
    }
}

}  // namespace globalq::detail
