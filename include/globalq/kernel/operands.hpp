// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: what one call works on, whatever the policies are: scales, shifts, random streams.

#include "../core/concepts.hpp"
#include "../core/dtype.hpp"
#include "../core/scale_word.hpp"
#include "../random/stream.hpp"

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::kernel {

/// What went wrong inside a kernel; or-ed into one word that the host reads afterwards.
enum fault : std::uint32_t {
  none = 0,
  bad_code = 1,
  out_of_range = 2,
  not_finite = 4,
  bad_frame = 8,
  bad_sum = 16,
  no_scale = 32  ///< a norm of one's own made none of a sum
};

/// A checked frame, taken apart.
struct source_view {
  std::byte const* codes;
  std::byte const* scales;  ///< scale words, when scales travel
  std::int32_t terms;
  std::int32_t worker;
  std::int32_t first = 0;  ///< of the summed workers
};

/// The frames that a kernel takes. Up to eight travel among its arguments: nothing has to be copied before a launch, and a
/// captured one needs nothing but itself.
struct source_list {
  static constexpr int direct = 8;
  source_view first[direct] = {};
  source_view const* all = nullptr;  ///< where there are more: all of them, where the kernel reaches them
  int count = 0;

  source_list() = default;
  /// @param views  where kernels reach it if there are more than eight
  source_list(source_view const* views, std::size_t number) : all(views), count(static_cast<int>(number)) {
    for (int k = 0; k < count && count <= direct; ++k) first[k] = views[k];
  }

  GLOBALQ_FUNCTION source_view operator[](int k) const {
    if (count <= direct) return first[k];
#if defined(__CUDA_ARCH__)
    // a branch: both loads at once would take registers that some kernels do not have
    asm volatile("" ::: "memory");
#endif
    return all[k];
  }
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

/// What a call on a stream finds out behind the host's back, for the kernels that follow: see call/detail/stream_call.hpp.
struct agreed_call {
  bool writes = false;  ///< whether there is a mean to write
  int wide = 0;
  input_scale whole{};           ///< of the whole vector, where it has one scale
  store_scale mean{}, single{};  ///< the same for what is decoded: of sums, and of one encoded sum
  std::uint32_t faults = none;
};

/// What brings sums to the scale of the mean: unit * 2^wide / levels.
GLOBALQ_FUNCTION store_scale mean_scale(double unit, int wide, double levels) {
  // float64 near the ends of its range: the power of two comes last, or digits or the number itself would be lost
  if (unit < 0x1p-800) return store_scale::in_two(unit * 0x1p128 / levels, 0x1p-128);
  if (wide != 0) return store_scale::in_two(unit / levels, power_of_two(wide));
  return store_scale(unit / levels);
}

/// What one call on one segment needs, whatever the policies are.
///
/// Values are indexed within the vector; rows and tiles within the segment, whose start is a multiple of a tile.
struct segment_call {
  float extent = 1;            ///< of the levels
  std::uint32_t max_code = 1;  ///< of the levels
  const_vector x;
  std::uint64_t first = 0;  ///< of the segment
  std::uint64_t count = 0;  ///< of the segment
  divisor bucket;           ///< values that share a scale; 0: the whole vector
  double const* units =
      nullptr;  ///< one a bucket of the vector: of all workers, or this worker's own (local)
  scale_format scale_form{dtype::float32};  ///< of those that travel with frames
  int wide = 0;
  bool local = false;      ///< scales travel with the frames
  bool zero_free = false;  ///< levels have no zero
  bool summed = false;     ///< frames of several terms are sums of codes, else encoded sums of values
  int rank = 0;
  int workers = 1;
  double weight = 1;  ///< of the mean
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t const* step_at = nullptr;  ///< on a stream: where it is, if that is not the host
  source_list sources;
  bool own = false;
  int terms = 1;           ///< of own and sources together
  bool codes_add = false;  ///< a frame's codes are integer sums of its workers' codes
  bool verified = false;   ///< codes were found to be in range before
  input_scale whole{};     ///< of encode_own(), where there are no buckets
  std::uint32_t* faults = nullptr;
  agreed_call const* agreed = nullptr;  ///< on a stream: counts instead of wide and whole

  /// Computes what follows from the other members once for all values; the last step of filling this in.
  void settle() {
    if (own && bucket == 0 && agreed == nullptr) whole = input_scale_of(x.type, units[0], wide, extent);
  }

  GLOBALQ_FUNCTION void report(fault f) const { Kokkos::atomic_or(faults, static_cast<std::uint32_t>(f)); }

  GLOBALQ_FUNCTION double unit(std::uint64_t b) const { return units[b]; }

  /// The power of two that units are divided by.
  GLOBALQ_FUNCTION int power() const { return agreed != nullptr ? agreed->wide : wide; }

  GLOBALQ_FUNCTION random::stream stream(int worker, random::purpose use) const {
    return {seed, step_at != nullptr ? *step_at : step, static_cast<std::uint32_t>(worker), use};
  }

  /// Where the scale of a bucket of the vector is among those of the segment.
  GLOBALQ_FUNCTION std::uint64_t scale_index(std::uint64_t b) const { return b - bucket.quotient(first); }

  /// Bytes of the scales that travel for the buckets in front of a tile of the segment.
  GLOBALQ_FUNCTION std::uint64_t scales_before(std::uint64_t tile) const {
    return local ? bucket.quotient(tile * random::tile_values) * scale_bytes(scale_form) : 0;
  }

  /// The scale of a frame in a bucket, in units of 2^wide.
  GLOBALQ_FUNCTION double traveled_unit(source_view const& s, std::uint64_t b) const {
    return read_scale(s.scales, scale_index(b), scale_form, s.terms);
  }

  /// The same as it travels, where scales are words.
  GLOBALQ_FUNCTION std::uint32_t word_of(source_view const& s, std::uint64_t b) const {
    return load_from<std::uint32_t>(s.scales + 4 * scale_index(b));
  }

  /// Writes the scale of a bucket as it travels.
  /// @param unit  representable
  GLOBALQ_FUNCTION void write_scale(std::byte* to, std::uint64_t b, double unit) const {
    globalq::write_scale(to, scale_index(b), scale_form, unit, terms);
  }

  /// Largest exponent of the scales that meet in a bucket (local norms): what sums are taken in units of. The functions that
  /// depend on it may be given it, since it is most of their work.
  /// @param source  the first of the frames
  GLOBALQ_FUNCTION int reference(std::uint64_t b, int source = 0) const {
    constexpr int least = -1000;
    if (!local) return 0;
    double const mine = own ? unit(b) : 0.0;
    int top = mine > 0 ? exponent_of(mine) : least;
    bool none = !(mine > 0);
    for (int k = 0; k < sources.count; ++k) {
      int e = least;
      if (scale_form.in_a_word()) {
        std::uint32_t const word = word_of(sources[source + k], b);
        if (word >> 23 == 0) continue;
        e = exponent_of_word(word);
      } else {
        double const u = traveled_unit(sources[source + k], b);
        if (!(u > 0)) continue;
        e = exponent_of(u);
      }
      top = top < e ? e : top;
      none = false;
    }
    return none ? 0 : (top < least ? least : top);
  }

  /// The scale of a frame in a bucket in units of 2^exponent.
  GLOBALQ_FUNCTION double traveled_unit(source_view const& s, std::uint64_t b, int exponent) const {
    if (scale_form.in_a_word()) return scale_of_word(word_of(s, b), -exponent);
    return traveled_unit(s, b) * power_of_two(-exponent);
  }

  /// Largest code that a frame may hold.
  GLOBALQ_FUNCTION std::uint32_t limit_of(source_view const& s) const {
    return max_code * (codes_add ? static_cast<std::uint32_t>(s.terms) : 1U);
  }

  /// How this worker's own values are brought to the level scheme's scale in a bucket.
  GLOBALQ_FUNCTION input_scale scale_of(std::uint64_t b) const {
    if (bucket == 0) return agreed != nullptr ? agreed->whole : whole;
    return input_scale_of(x.type, unit(b), power(), extent);
  }

  /// How this worker's own values are brought to the scale of sums: in units of unit / extent (one norm for all) or of
  /// 2^reference (local norms).
  GLOBALQ_FUNCTION input_scale sum_scale(std::uint64_t b) const { return sum_scale(b, reference(b)); }
  GLOBALQ_FUNCTION input_scale sum_scale(std::uint64_t b, int exponent) const {
    if (local) return input_scale_of(x.type, power_of_two(exponent), power(), 1.0);
    return input_scale_of(x.type, unit(b), power(), static_cast<double>(extent));
  }

  /// What the levels of a frame are multiplied by in a bucket to be on that scale. Frames encoded again count as terms
  /// times their value.
  /// @param multiply_terms  false: a single frame is wanted in units of its own scale
  GLOBALQ_FUNCTION float factor_of(source_view const& s, std::uint64_t b, bool multiply_terms) const {
    return factor_of(s, b, multiply_terms, reference(b));
  }
  GLOBALQ_FUNCTION float factor_of(source_view const& s, std::uint64_t b, bool multiply_terms,
                                   int exponent) const {
    if (local) return static_cast<float>(traveled_unit(s, b, exponent) / static_cast<double>(extent));
    return multiply_terms && !summed ? static_cast<float>(s.terms) : 1.0F;
  }

  /// What sums of a bucket are multiplied by before they are encoded again.
  /// @param scales  local norms: those of the sum, as they travel
  GLOBALQ_FUNCTION float gain_of_sum(std::uint64_t b, std::byte const* scales) const {
    return gain_of_sum(b, scales, reference(b));
  }
  GLOBALQ_FUNCTION float gain_of_sum(std::uint64_t b, std::byte const* scales, int exponent) const {
    if (!local) return 1.0F / static_cast<float>(terms);
    double const u = traveled_unit({nullptr, scales, terms, rank}, b, exponent);
    return u > 0 ? static_cast<float>(static_cast<double>(extent) / u) : 0.0F;
  }

  /// A single encoded sum of n workers has scale n * unit, so its mean has scale unit.
  GLOBALQ_FUNCTION bool one_encoded_sum() const { return sources.count == 1 && !summed; }

  /// What brings the sums of a bucket to the mean.
  GLOBALQ_FUNCTION store_scale mean_scale_of(std::uint64_t b) const { return mean_scale_of(b, reference(b)); }
  GLOBALQ_FUNCTION store_scale mean_scale_of(std::uint64_t b, int exponent) const {
    double const share = one_encoded_sum() && !local ? 1.0 : static_cast<double>(workers);
    double const scale = (local ? power_of_two(exponent) : unit(b)) * weight;
    return mean_scale(scale, power(), local ? share : static_cast<double>(extent) * share);
  }
};

/// The same with a rounding; levels and wire, whose loops a host and a device call differently, are added by
/// host/operands.hpp and device/operands.hpp.
/// @tparam Rounding  word_per_coordinate, shifts(), word() and shift() of a rounding
template <class Rounding>
struct segment_operands : segment_call {
  Rounding rounding;

  /// The word that a bucket shares.
  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION std::uint32_t shared_word(std::uint64_t b, int worker, bool again) const {
    if (rounding.word_per_coordinate) return 0;
    random::purpose const use = again ? random::purpose::shift_requantize : random::purpose::shift;
    return rounding.word(stream(worker, use).group(b).word[0]);
  }

  /// What must be added to a frame's value in a bucket, in level gaps: the shifts of those who encoded it.
  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION float shift_of(source_view const& s, std::uint64_t b) const {
    if (!rounding.shifts()) return 0.0F;
    double sum = 0;
    if (summed && s.terms > 1) {
      for (int w = s.first; w < s.first + s.terms; ++w) sum += rounding.shift(shared_word(b, w, false));
    } else {
      sum = rounding.shift(shared_word(b, s.worker, s.terms > 1));
    }
    return static_cast<float>(sum);
  }
};

}  // namespace GLOBALQ_ABI::kernel
