// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop bodies that make frames: add as codes, add as values and encode again; and that check them.
///
/// Each reads every input once and writes its output once; what lies between stays in L1 or in registers.

#include "../norm/statistic.hpp"
#include "../reduce/reduce.hpp"
#include "detail/share.hpp"
#include "operands.hpp"

namespace globalq::kernel {

/// own codes + codes of the sources -> codes, by a reduce operator on codes. With no sources: plain encoding.
template <class Operands, class Op>
struct add_codes {
  static constexpr int device_lanes = device::value_lanes<decltype(Operands::wire)>,
                       code_lanes = device::code_lanes<decltype(Operands::wire)>;

  Operands o;
  std::byte* out;

  bool has_values() const { return o.own; }
  bool fits_registers() const { return device::fits_registers(o); }
  static constexpr int blocks(int lanes, int rows) {
    return device::blocks<Operands>(lanes, rows, lanes == device_lanes);
  }

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    constexpr bool in_place = Operands::template travels_as_lanes<static_cast<int>(host_values)>;
    bool const encodes = o.encodes_tiles() && o.x.type != dtype::float64,
               adds = adds_tiles<host_lanes> && in_place,
               writes = in_place || (o.source_count == 0 && o.writes_nibbles());
    if (!encodes) o.prefetch_own(index);
    if (!adds) o.prefetch_sources(index);
    if (!(writes && o.own && encodes) && !(adds && o.source_count > 0)) o.prefetch_target(out, index);
  }

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    constexpr int N = row_values<Lanes>;
    constexpr bool stochastic = decltype(o.rounding)::word_per_coordinate;
    std::uint64_t const tile = o.first / tile_values + index * share_tiles<Lanes>;
    row const whole = row_of<Lanes>(index, lane, 0, o.count);  // with one row: all of the share
    std::uint32_t words[16 * Lanes];
    code buffer[rows<Lanes>][N];
    code const* sum[rows<Lanes>] = {};
    if (o.own && rows<Lanes> == 1) {
      if (o.source_count == 0 && o.template encode_own_frame<N>(whole, out)) return;
      code* const codes = o.template target<N>(out, whole, buffer[0]);
      if (o.template encode_own_tiles<N>(whole, o.as_lanes(codes))) sum[0] = codes;
    }
    if (o.own && sum[0] == nullptr) {
      if constexpr (stochastic)
        random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(o.rank), random::purpose::encode), tile, lane,
                            words, whole.count);
      for (int r = 0; r < rows<Lanes>; ++r) {
        row const part = row_of<Lanes>(index, lane, r, o.count);
        code* const codes = o.template target<N>(out, part, buffer[r]);
        o.template encode_own<N>(part, words + r * N, codes);
        sum[r] = codes;
      }
    }
    for (int k = 0; k < o.source_count; ++k) {
      source_view const s = o.sources[k];
      bool const first = k == 0 && !o.own;
      if (add_whole_tiles<Lanes>(k, tile, whole, buffer[0], sum[0])) continue;
      if constexpr (Op::draws) {
        if (!first)
          random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(s.worker), random::purpose::reduce), tile,
                              lane, words, whole.count);
      }
      for (int r = 0; r < rows<Lanes>; ++r) {
        row const part = row_of<Lanes>(index, lane, r, o.count);
        if (first) {
          sum[r] = o.template read_checked<N>(s, part, buffer[r]);
        } else {
          code other[N];
          code const* const theirs = o.template read_checked<N>(s, part, other);
          code* const result = o.template target<N>(out, part, buffer[r]);
          add<Op, N>(sum[r], theirs, part.count, words + r * N, result);
          sum[r] = result;
        }
      }
    }
    for (int r = 0; r < rows<Lanes>; ++r)
      o.template write<N>(sum[r], row_of<Lanes>(index, lane, r, o.count), out);
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    bool const own = device_lanes == code_lanes ? o.own : Lanes == device_lanes;
    device::share<Operands, Lanes, Rows>::for_each(
        o, index, lane, [&](auto const& part) { add_rows(part, index, lane, own); });
  }

 private:
  using code = typename Operands::lane;

  /// The work of a GPU thread on one or all of its rows.
  template <class Share>
  GLOBALQ_FUNCTION void add_rows(Share const& part, std::uint64_t index, int lane, bool own) const {
    typename Share::codes sum{}, next{};
    int k = 0;
    if (own) {
      if (o.source_count > 0) part.fetch(o.sources[0].codes, next);
      part.encode_own(Share::draw(o, index, lane, o.rank, random::purpose::encode), sum);
    } else {
      part.fetch(o.sources[0].codes, sum);
      if (o.source_count > 1) part.fetch(o.sources[1].codes, next);
      part.unpack(sum, o.limit_of(o.sources[0]));
      k = 1;
    }
    GLOBALQ_NO_UNROLL
    for (; k < o.source_count; ++k) {
      source_view const s = o.sources[k];
      part.unpack(next, o.limit_of(s));
      part.template add<Op>(sum, next, Share::draw(o, index, lane, s.worker, random::purpose::reduce));
      if (k + 1 < o.source_count) part.fetch(o.sources[k + 1].codes, next);
    }
    part.write(sum, out);
  }

  /// Whether the operator has a loop for whole random tiles on this machine.
  template <int Lanes>
  static constexpr bool adds_tiles = Lanes >= 16 && requires(code* c) {
    Op::add_tiles(c, c, random::stream{}, 0, 1, c);
  };

  /// Adds source k of whole random tiles by the operator's own loop for this machine, where it has one.
  template <int Lanes>
  GLOBALQ_FUNCTION bool add_whole_tiles(int k, std::uint64_t tile, row const part, code* buffer,
                                        code const*& sum) const {
    if constexpr (adds_tiles<Lanes>) {
      constexpr int N = row_values<Lanes>;
      if (part.count % tile_values != 0) return false;
      source_view const s = o.sources[k];
      if (k == 0 && !o.own) {
        if (o.source_count == 1) return false;
        sum = o.template read<N>(s, part, buffer);
        if (sum == buffer) o.template check<N>(sum, part, s);  // else with the next source
        return true;
      }
      code other[N];
      code const* const theirs = o.template read<N>(s, part, other);
      code* const result = o.template target<N>(out, part, buffer);
      std::uint32_t const bits = Op::add_tiles(
          sum, theirs, o.stream(static_cast<std::uint32_t>(s.worker), random::purpose::reduce), tile,
          part.count / tile_values, result, Operands::template travels_as_lanes<N> ? o.ahead() : 0);
      if (bits > o.limit_of(s)) {  // perhaps
        o.template check<N>(theirs, part, s);
        if (k == 1 && !o.own)
          o.template check<N>(o.template read<N>(o.sources[0], part, other), part, o.sources[0]);
      }
      sum = result;
      return true;
    }
    return false;
  }
};

/// own values -> their local norms and their codes, on a host: both from L1.
template <class Operands>
struct encode_measured {
  add_codes<Operands, reduce::sum> encode;
  std::byte* scales;
  double* units;  ///< one a bucket of the vector; what encode reads where it runs by itself
  norm::order q;

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const { encode.prefetch(index); }

  /// @pre buckets_fit()
  template <int Lanes>
  void tile(std::uint64_t index, int lane) const {
    Operands const& o = encode.o;
    row const part = row_of<Lanes>(index, lane, 0, o.count);
    std::uint64_t const start = o.first + part.first;
    if (q == infinity && !q.rounds_up() &&
        o.template encode_own_measured<row_values<Lanes>>(part, scales, encode.out))
      return;
    for_each_run(start, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
      norm::statistic const s = norm::block_statistic(o.x, start + static_cast<std::uint64_t>(at), m, q);
      units[b] = s.finite() ? norm::local_unit(s, q, o.x.type, o.wide) : 0.0;
      if (!s.finite() || bits_of(units[b]) >= double_infinity) o.report(not_finite);
      o.write_scale(scales, b, units[b]);
    });
    encode.template tile<Lanes>(index, lane);
  }
};

/// own values + decoded sources -> codes of the sum.
template <class Operands>
struct add_values {
  static constexpr int device_lanes = device::value_lanes<decltype(Operands::wire)>;
  static constexpr int blocks(int lanes, int rows) { return device::blocks<Operands>(lanes, rows, true); }
  bool fits_registers() const { return device::fits_registers(o); }

  Operands o;
  std::byte* out;
  std::byte* scales;     ///< local norms: the scales of the sum, as they travel
  bool measure = false;  ///< local norms: whether to write them; only on a host, with buckets_fit()
  norm::order q{};       ///< of the local norm

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    o.prefetch(index);
    o.prefetch_target(out, index);
  }

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    constexpr int N = row_values<Lanes>;
    constexpr bool stochastic = decltype(o.rounding)::word_per_coordinate;
    row const whole = row_of<Lanes>(index, lane, 0, o.count);
    bool const tiles = o.template has_tiles<N>(whole);
    std::uint32_t words[16 * Lanes];
    if (stochastic && !tiles)
      random::fill<Lanes>(o.stream(static_cast<std::uint32_t>(o.rank), random::purpose::requantise),
                          o.first / tile_values + index * share_tiles<Lanes>, lane, words, whole.count);
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(index, lane, r, o.count);
      if (part.count == 0) continue;
      float sum[N], gains[N / 64 + 1];
      typename Operands::lane lanes[N];
      o.template accumulate<N>(part, true, sum);
      for_each_run(o.first + part.first, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
        float const gain = gain_of<Lanes>(b, sum + at, m);
        if (tiles)
          o.set_gain(gains, at, m, gain);
        else
          codes<N>(o.levels, o.rounding, gain, sum + at, m, words + (stochastic ? r * N + at : 0),
                   o.shared_word(b, o.rank, true), lanes + at);
      });
      if (tiles && o.writes_nibbles()) {
        o.template encode_tiles<N>(part, sum, gains, random::purpose::requantise, 0, o.nibbles(part, out));
        continue;
      }
      if (tiles)
        o.template encode_tiles<N>(part, sum, gains, random::purpose::requantise, 0, o.as_lanes(lanes));
      o.wire.pack(lanes, part.count, out + o.wire.bytes(part.first), o.zero_free);
    }
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    device::share<Operands, Lanes, Rows>::for_each(o, index, lane,
                                                   [&](auto const& part) { add_rows(part, index, lane); });
  }

 private:
  /// The work of a GPU thread on one or all of its rows.
  template <class Share>
  GLOBALQ_FUNCTION void add_rows(Share const& part, std::uint64_t index, int lane) const {
    typename Share::floats sum;
    part.template accumulate<true>(true, sum);
    struct scale {
      float gain;
      std::uint32_t word;
    };
    typename Share::words shared;
    part.for_each_value(
        !o.local && decltype(o.rounding)::word_per_coordinate,
        [&](std::uint64_t b) {
          float const gain =
              Share::may_be_local ? gain_of<1>(b, nullptr, 0) : 1.0F / static_cast<float>(o.terms);
          return scale{gain, o.shared_word(b, o.rank, true)};
        },
        [&](scale const& s, int r, int i) {
          sum[r][i] = multiply(sum[r][i], s.gain);
          shared[r][i] = s.word;
        });
    typename Share::codes codes;
    part.encode(sum, shared, Share::draw(o, index, lane, o.rank, random::purpose::requantise), codes);
    part.write(codes, out);
  }

  /// What sums of a bucket are multiplied by.
  template <int Lanes>
  GLOBALQ_FUNCTION float gain_of(std::uint64_t b, float const* sum, int count) const {
    if (!o.local) return 1.0F / static_cast<float>(o.terms);
    int const reference = o.reference(b);
    if constexpr (Lanes >= 16) {
      if (measure) {
        norm::statistic const s = norm::block_statistic({sum, dtype::float32}, 0, count, q);
        o.write_scale(scales, b, norm::local_unit(s, q, o.x.type, -reference));
      }
    }
    double const u = o.travelled_unit({nullptr, scales, o.terms, o.rank}, b) * power_of_two(-reference);
    return u > 0 ? static_cast<float>(static_cast<double>(o.levels.extent()) / u) : 0.0F;
  }
};

/// Frames -> nothing but a report of codes out of range.
template <class Operands>
struct check_codes {
  static constexpr int device_lanes = device::code_lanes<decltype(Operands::wire)>;

  Operands o;

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const { o.prefetch(index); }

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    constexpr int N = row_values<Lanes>;
    typename Operands::lane buffer[N];
    for (int k = 0; k < o.source_count; ++k)
      for (int r = 0; r < rows<Lanes>; ++r)
        o.template read_checked<N>(o.sources[k], row_of<Lanes>(index, lane, r, o.count), buffer);
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    device::share<Operands, Lanes, Rows>::for_each(o, index, lane, [&](auto const& part) {
      typename std::remove_cvref_t<decltype(part)>::codes codes;
      GLOBALQ_NO_UNROLL
      for (int k = 0; k < o.source_count; ++k) {
        part.fetch(o.sources[k].codes, codes);
        part.unpack(codes, o.limit_of(o.sources[k]));
      }
    });
  }
};

}  // namespace globalq::kernel
