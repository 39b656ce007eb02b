// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: what the loops work on, and the two steps they share: values to codes, frames to a sum of values.

#include "../core/concepts.hpp"
#include "../core/scale_word.hpp"
#include "executor.hpp"

namespace globalq::kernel {

/// What went wrong inside a kernel; or-ed into one word that the host reads afterwards.
enum fault : std::uint32_t { none = 0, bad_code = 1, out_of_range = 2 };

/// A checked frame, taken apart.
struct source_view {
  std::byte const* codes;
  std::byte const* scales;  ///< scale words, when scales travel
  std::int32_t terms;
  std::int32_t worker;
};

/// How values are brought to the level scheme's scale: loaded times 2^exponent, then times gain.
struct input_scale {
  int exponent;
  float gain;
};

/// x * 2^exponent * gain = x * target / (unit * 2^wide), with an exponent of 0 wherever float32 allows it.
/// @param wide  power of two that units are divided by (0 but for float64 near its largest)
GLOBALQ_FUNCTION input_scale input_scale_of(dtype type, double unit, int wide, double target) {
  if (!(unit > 0)) return {0, 0.0F};
  int const e = exponent_of(unit) + wide;
  int loaded = 0;
  if (type == dtype::float64) {
    loaded = -e < -1022 ? -1022 : (-e > 1023 ? 1023 : -e);
  } else if (e < -20 || e > 20) {
    loaded = -e < -126 ? -126 : (-e > 127 ? 127 : -e);
  }
  return {loaded, static_cast<float>(target / (unit * power_of_two(loaded + wide)))};
}

/// A small policy is copied to a loop: byte stores may alias anything, and members would be read again for each value.
template <class Policy>
using local_copy = std::conditional_t<sizeof(Policy) <= 32, Policy const, Policy const&>;

/// Codes of count values. The loop that every composition shares.
///
/// t = |z| * gain, clamped to [0, extent] as an integer, is all that the level scheme sees: no product feeds a sum.
/// @param words   a word for each value, or unused
/// @param shared  the word of the bucket, or unused
template <int N, class Levels, class Rounding, class Lane>
GLOBALQ_FUNCTION void codes(Levels const& levels, Rounding const& rounding, float gain, float const* z,
                            int count, std::uint32_t const* words, std::uint32_t shared, Lane* out) {
  float const* __restrict in = z;
  std::uint32_t const* __restrict random = words;
  Lane* __restrict lanes = out;
  std::uint32_t const top = bits_of(levels.extent());
  local_copy<Levels> scheme = levels;
  detail::with_count<N>(count, [&](auto n) {
    for (int i = 0; i < n; ++i) {
      std::uint32_t const b = bits_of(in[i]);
      std::uint32_t const sign = static_cast<std::uint32_t>(static_cast<std::int32_t>(b) >> 31);
      std::uint32_t const m = bits_of(multiply(float_of(b & float_magnitude), gain));
      neighbours const c = scheme.locate(float_of(m < top ? m : top));
      std::uint32_t word = shared;
      if constexpr (Rounding::word_per_coordinate) word = random[i];
      std::int32_t const code = rounding.up(c.threshold, word, sign) ? c.upper : c.lower;
      std::int32_t const s = static_cast<std::int32_t>(sign);
      lanes[i] = static_cast<Lane>((code ^ s) - s);
    }
  });
}

/// Whether all codes are in range; with @p zero_free zero is not.
template <class Lane>
GLOBALQ_FUNCTION bool in_range(Lane const* lanes, int count, std::uint32_t limit, bool zero_free) {
  using magnitude = std::make_unsigned_t<Lane>;  // narrow on purpose: 64 bytes a vector
  Lane const* __restrict in = lanes;
  magnitude top = 0, zero = 0;
  for (int i = 0; i < count; ++i) {
    magnitude const c = static_cast<magnitude>(in[i]);
    magnitude const m =
        in[i] < 0 ? static_cast<magnitude>(magnitude{0} - c) : c;  // the lowest number is too large
    top = top < m ? m : top;
    zero = static_cast<magnitude>(zero | (m == 0 ? 1 : 0));
  }
  return top <= limit && !(zero_free && zero != 0);
}

/// Everything that the loops of one call on one segment need.
///
/// Values are indexed within the vector; rows and tiles within the segment, whose start is a multiple of a tile.
template <class Levels, class Rounding, class Wire>
struct operands {
  using lane = typename Wire::lane;

  Levels levels;
  Rounding rounding;
  Wire wire;
  const_vector x;
  std::uint64_t first = 0;   ///< of the segment
  std::uint64_t count = 0;   ///< of the segment
  std::uint64_t bucket = 0;  ///< values that share a scale; 0: the whole vector
  double const* units =
      nullptr;  ///< one a bucket of the vector: of all workers, or this worker's own (local)
  int wide = 0;
  bool local = false;      ///< scales travel with the frames
  bool zero_free = false;  ///< levels have no zero
  bool summed = false;     ///< frames of several terms are sums of codes, else encoded sums of values
  int rank = 0;
  int workers = 1;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  source_view const* sources = nullptr;
  int source_count = 0;
  bool own = false;
  int terms = 1;           ///< of own and sources together
  bool codes_add = false;  ///< a frame's codes are integer sums of its workers' codes
  std::uint32_t* faults = nullptr;

  GLOBALQ_FUNCTION void report(fault f) const { Kokkos::atomic_or(faults, static_cast<std::uint32_t>(f)); }

  GLOBALQ_FUNCTION double unit(std::uint64_t b) const { return units[b]; }

  GLOBALQ_FUNCTION random::stream stream(std::uint32_t worker, random::purpose use) const {
    return {seed, step, worker, use};
  }

  /// The word that a bucket shares.
  GLOBALQ_FUNCTION std::uint32_t shared_word(std::uint64_t b, int worker, bool again) const {
    if constexpr (Rounding::word_per_coordinate) return 0;
    random::purpose const use = again ? random::purpose::shift_requantise : random::purpose::shift;
    return rounding.word(stream(static_cast<std::uint32_t>(worker), use).group(b).word[0]);
  }

  /// The scale of a frame in a bucket, in units of 2^wide.
  GLOBALQ_FUNCTION double travelled_unit(source_view const& s, std::uint64_t b) const {
    std::uint64_t const i = bucket == 0 ? 0 : b - first / bucket;
    if (x.type == dtype::float64) return reinterpret_cast<double const*>(s.scales)[i];
    return scale_of_word(reinterpret_cast<std::uint32_t const*>(s.scales)[i]);
  }

  /// Largest exponent of the scales that meet in a bucket (local norms): what sums are taken in units of.
  GLOBALQ_FUNCTION int reference(std::uint64_t b) const {
    double top = own ? unit(b) : 0.0;
    for (int k = 0; k < source_count; ++k) {
      double const u = travelled_unit(sources[k], b);
      top = top < u ? u : top;
    }
    int const e = top > 0 ? exponent_of(top) : 0;
    return e < -1000 ? -1000 : e;
  }

  /// What must be added to a frame's value in a bucket, in level gaps: the shifts of those who encoded it.
  GLOBALQ_FUNCTION float shift_of(source_view const& s, std::uint64_t b) const {
    if (!rounding.shifts()) return 0.0F;
    double sum = 0;
    if (summed && s.terms > 1) {
      for (int w = 0; w < workers; ++w) sum += rounding.shift(shared_word(b, w, false));
    } else {
      sum = rounding.shift(shared_word(b, s.worker, s.terms > 1));
    }
    return static_cast<float>(sum);
  }

  /// Largest code that a frame may hold.
  GLOBALQ_FUNCTION std::uint32_t limit_of(source_view const& s) const {
    return levels.max_code() * (codes_add ? static_cast<std::uint32_t>(s.terms) : 1U);
  }

  /// Reads a row of a frame into lanes.
  GLOBALQ_FUNCTION void unpack(source_view const& s, row const r, lane* lanes) const {
    bool const bad = wire.unpack(s.codes + wire.bytes(r.first), r.count, lanes, zero_free);
    if (bad || !in_range(lanes, r.count, limit_of(s), zero_free)) report(bad_code);
  }

  /// The codes of this worker's own values in a row.
  template <int N>
  GLOBALQ_FUNCTION void encode_own(row const r, std::uint32_t const* words, lane* lanes) const {
    float buffer[N];
    for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
      input_scale const s = input_scale_of(x.type, unit(b), wide, levels.extent());
      float const* z =
          load<N>(x, first + r.first + static_cast<std::uint64_t>(at), m, s.exponent, buffer + at);
      codes<N>(levels, rounding, s.gain, z, m, words + (Rounding::word_per_coordinate ? at : 0),
               shared_word(b, rank, false), lanes + at);
    });
  }

  /// The sum of own values (unencoded) and decoded sources in a row; at least one of them is there.
  ///
  /// In units of unit / extent (one norm for all) or of 2^reference (local norms). Several frames are added in float32 in
  /// the order given; frames encoded again count as terms times their value.
  /// @param multiply_terms  false: a single frame is wanted in units of its own scale
  template <int N>
  GLOBALQ_FUNCTION void accumulate(row const r, bool multiply_terms, float* sum) const {
    float* __restrict acc = sum;
    if (own) {
      float buffer[N];
      for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
        double const u = local ? power_of_two(reference(b)) : unit(b);
        input_scale const s =
            input_scale_of(x.type, u, wide, local ? 1.0 : static_cast<double>(levels.extent()));
        float const* __restrict z =
            load<N>(x, first + r.first + static_cast<std::uint64_t>(at), m, s.exponent, buffer + at);
        for (int i = 0; i < m; ++i) acc[at + i] = with_sign(multiply(z[i], s.gain), bits_of(z[i]));
      });
    }
    lane lanes[N];
    for (int k = 0; k < source_count; ++k) {
      source_view const s = sources[k];
      unpack(s, r, lanes);
      for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
        float factor = multiply_terms && !summed ? static_cast<float>(s.terms) : 1.0F;
        if (local) {
          double const u = travelled_unit(s, b);
          factor = static_cast<float>(u * power_of_two(-reference(b)) / static_cast<double>(levels.extent()));
        }
        float const shift = shift_of(s, b);
        local_copy<Levels> scheme = levels;
        auto const term = [&](int i) {
          std::int32_t const c = lanes[i], sign = c >> 31;
          float const v = with_sign(scheme.value(static_cast<std::uint32_t>((c ^ sign) - sign)),
                                    static_cast<std::uint32_t>(sign)) +
                          shift;
          return with_sign(multiply(v, factor), bits_of(v));
        };
        if (k == 0 && !own) {
          for (int i = at; i < at + m; ++i) acc[i] = term(i);
        } else {
          for (int i = at; i < at + m; ++i) acc[i] += term(i);
        }
      });
    }
  }
};

}  // namespace globalq::kernel
