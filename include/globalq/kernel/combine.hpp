// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop bodies of a call: add as codes, add as values and encode again, and write the mean.
///
/// Each reads every input once and writes its output once; what lies between stays in L1 or in registers.

#include "operands.hpp"

namespace globalq::kernel {

/// own codes + codes of the sources -> codes, by a reduce operator on codes. With no sources: plain encoding.
template <class Operands, class Op>
struct add_codes {
  Operands o;
  std::byte* out;

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t tile, int lane) const {
    using code = typename Operands::lane;
    constexpr int N = row_values<Lanes>;
    constexpr bool stochastic = decltype(o.rounding)::word_per_coordinate;
    std::uint64_t const global = o.first / tile_values + tile;
    std::uint32_t words[16 * Lanes];
    code mine[rows<Lanes>][N];
    if (o.own) {
      if constexpr (stochastic)
        random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(o.rank), random::purpose::encode), global,
                            lane, words);
      for (int r = 0; r < rows<Lanes>; ++r)
        o.template encode_own<N>(row_of<Lanes>(tile, lane, r, o.count), words + r * N, mine[r]);
    }
    for (int k = 0; k < o.source_count; ++k) {
      source_view const s = o.sources[k];
      bool const first = k == 0 && !o.own;
      if constexpr (Op::draws) {
        if (!first)
          random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(s.worker), random::purpose::reduce), global,
                              lane, words);
      }
      for (int r = 0; r < rows<Lanes>; ++r) {
        row const part = row_of<Lanes>(tile, lane, r, o.count);
        code other[N];
        o.unpack(s, part, other);
        code* __restrict a = mine[r];
        code const* __restrict b = other;
        std::uint32_t const* __restrict w = words + r * N;
        if (first) {
          for (int i = 0; i < part.count; ++i) a[i] = b[i];
        } else {
          detail::with_count<N>(part.count, [&](auto n) {
            for (int i = 0; i < n; ++i) a[i] = Op::add(a[i], b[i], Op::draws ? w[i] : 0U);
          });
        }
      }
    }
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(tile, lane, r, o.count);
      if (part.count > 0) o.wire.pack(mine[r], part.count, out + o.wire.bytes(part.first), o.zero_free);
    }
  }
};

/// own values + decoded sources -> codes of the sum.
template <class Operands>
struct add_values {
  Operands o;
  std::byte* out;
  std::byte const* out_scales;  ///< local norms: the scales of the sum, as they travel

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t tile, int lane) const {
    using code = typename Operands::lane;
    constexpr int N = row_values<Lanes>;
    constexpr bool stochastic = decltype(o.rounding)::word_per_coordinate;
    std::uint32_t words[16 * Lanes];
    if constexpr (stochastic)
      random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(o.rank), random::purpose::requantise),
                          o.first / tile_values + tile, lane, words);
    source_view const result{nullptr, out_scales, o.terms, o.rank};
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(tile, lane, r, o.count);
      if (part.count == 0) continue;
      float sum[N];
      code lanes[N];
      o.template accumulate<N>(part, true, sum);
      for_each_run(o.first + part.first, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
        float gain = 1.0F / static_cast<float>(o.terms);
        if (o.local) {
          double const u = o.travelled_unit(result, b) * power_of_two(-o.reference(b));
          gain = u > 0 ? static_cast<float>(static_cast<double>(o.levels.extent()) / u) : 0.0F;
        }
        codes<N>(o.levels, o.rounding, gain, sum + at, m, words + (stochastic ? r * N + at : 0),
                 o.shared_word(b, o.rank, true), lanes + at);
      });
      o.wire.pack(lanes, part.count, out + o.wire.bytes(part.first), o.zero_free);
    }
  }
};

/// Frames -> nothing but a report of codes out of range.
template <class Operands>
struct check_codes {
  Operands o;

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t tile, int lane) const {
    typename Operands::lane lanes[row_values<Lanes>];
    for (int k = 0; k < o.source_count; ++k)
      for (int r = 0; r < rows<Lanes>; ++r)
        o.unpack(o.sources[k], row_of<Lanes>(tile, lane, r, o.count), lanes);
  }
};

/// Frames that together hold every worker -> the mean.
template <class Operands>
struct write_mean {
  Operands o;
  mutable_vector y;

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t tile, int lane) const {
    constexpr int N = row_values<Lanes>;
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(tile, lane, r, o.count);
      if (part.count == 0) continue;
      float sum[N];
      bool const one_encoded_sum = o.source_count == 1 && !o.summed;
      o.template accumulate<N>(part, !one_encoded_sum, sum);
      double const workers = static_cast<double>(o.workers);
      for_each_run(o.first + part.first, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
        // a single encoded sum of n workers has scale n * unit, so its mean has scale unit
        double const share = one_encoded_sum && !o.local ? 1.0 : workers;
        double const unit = o.local ? power_of_two(o.reference(b)) : o.unit(b);
        double const levels = o.local ? share : static_cast<double>(o.levels.extent()) * share;
        // float64 near the ends of its range: the power of two comes last, or digits or the number itself would be lost
        store_scale const scale = unit < 0x1p-800 ? store_scale::in_two(unit * 0x1p128 / levels, 0x1p-128)
                                  : o.wide != 0   ? store_scale::in_two(unit / levels, power_of_two(o.wide))
                                                  : store_scale(unit / levels);
        if (store<N>(y, o.first + part.first + static_cast<std::uint64_t>(at), m, scale, sum + at))
          o.report(out_of_range);
      });
    }
  }
};

}  // namespace globalq::kernel
