// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the arguments of a call on one segment that do not depend on the policies: scales, shifts, random
/// streams.

#include "../core/concepts.hpp"
#include "../core/dtype.hpp"
#include "../core/scale_word.hpp"
#include "../random/stream.hpp"
#include "../rounding/correlated.hpp"

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::kernel {

/// Faults found inside a kernel; combined by bitwise or into one word that the host reads afterwards.
enum fault : std::uint32_t {
  none = 0,
  bad_code = 1,
  out_of_range = 2,
  not_finite = 4,
  bad_frame = 8,
  bad_sum = 16,
  no_scale = 32  ///< a user-defined norm returned no valid scale for a sum
};

/// The parts of a validated frame.
struct source_view {
  std::byte const* codes;
  std::byte const* scales;  ///< the scale words, if scales travel with the frame
  std::int32_t terms;
  std::int32_t worker;
  std::int32_t first = 0;  ///< first of the summed workers
};

/// The source frames of a kernel. Up to eight are stored in the kernel's arguments, so a launch needs no copy before it
/// and a captured launch depends on no other memory.
struct source_list {
  static constexpr int direct = 8;
  source_view first[direct] = {};
  source_view const* all =
      nullptr;  ///< if more than eight: all of them, in memory that the kernel can access
  int count = 0;

  source_list() = default;
  /// @param views  must be accessible to kernels if there are more than eight
  source_list(source_view const* views, std::size_t number) : all(views), count(static_cast<int>(number)) {
    for (int k = 0; k < count && count <= direct; ++k) first[k] = views[k];
  }

  GLOBALQ_FUNCTION source_view operator[](int k) const {
    if (count <= direct) return first[k];
#if defined(__CUDA_ARCH__)
    // a branch: loading both at once would need registers that some kernels do not have
    asm volatile("" ::: "memory");
#endif
    return all[k];
  }
};

/// The conversion of values to the scale of the levels: load times 2^exponent, then multiply by gain.
struct input_scale {
  int exponent;
  float gain;
};

/// x * 2^exponent * gain = x * target / (scale * 2^wide), with an exponent of 0 wherever float32 allows it.
/// @param wide  scales are divided by 2^wide; not 0 only for float64 near its largest value
GLOBALQ_FUNCTION input_scale input_scale_of(dtype type, double scale, int wide, double target) {
  if (!(scale > 0)) return {0, 0.0F};
  int const e = exponent_of(scale) + wide;
  int loaded = 0;
  if (type == dtype::float64) {
    loaded = -e < -1022 ? -1022 : (-e > 1023 ? 1023 : -e);
  } else if (e < -20 || e > 20) {
    loaded = -e < -126 ? -126 : (-e > 127 ? 127 : -e);
  }
  return {loaded, static_cast<float>(target / (scale * power_of_two(loaded + wide)))};
}

/// Results of a call on a stream that the following kernels read without the host: see call/detail/stream_call.hpp.
struct agreed_call {
  bool writes = false;  ///< whether there is a mean to write
  int wide = 0;
  input_scale whole{};           ///< of the whole vector, if it has one scale
  store_scale mean{}, single{};  ///< the same for decoding: of sums, and of one encoded sum
  std::uint32_t faults = none;
  double top = 0;           ///< max|x| of all workers
  double vector_scale = 0;  ///< of this worker's values, with two levels of scales
};

/// With two levels of scales: the word of the scale of the vector in a frame of own values and of frames.
///
/// No value exceeds quantum * 448 times the scale of its frame. The sum, added in float32, does not exceed that multiple of
/// the scale returned: each addition has a relative error of at most 2^-24, and each value of 2^-22.
/// @param own  the scale of own values; 0: there are none
GLOBALQ_FUNCTION std::uint32_t vector_scale_word(double own, source_list const& frames) {
  double sum = own;
  for (int k = 0; k < frames.count; ++k)
    sum = rounded(sum + scale_of_word(load_from<std::uint32_t>(frames[k].scales)));
  return scale_word(frames.count == 0 ? sum : rounded(sum * ((0x100000 + frames.count) * 0x1p-20)));
}

/// The factor from sums to the mean: scale * 2^wide / levels.
GLOBALQ_FUNCTION store_scale mean_scale(double scale, int wide, double levels) {
  // float64 near the ends of its range: multiply by the power of two last, to avoid losing digits or overflowing
  if (scale < 0x1p-800) return store_scale::in_two(scale * 0x1p128 / levels, 0x1p-128);
  if (wide != 0) return store_scale::in_two(scale / levels, power_of_two(wide));
  return store_scale(scale / levels);
}

/// The arguments of a call on one segment that do not depend on the policies.
///
/// Values are indexed within the vector, rows and tiles within the segment. The segment starts at a multiple of a tile.
struct segment_call {
  float extent = 1;            ///< of the levels
  std::uint32_t max_code = 1;  ///< of the levels
  const_vector x;
  std::uint64_t first = 0;  ///< of the segment
  std::uint64_t count = 0;  ///< of the segment
  divisor bucket;           ///< values that share a scale; 0: the whole vector
  double const* bucket_scales =
      nullptr;  ///< one per bucket of the vector: of all workers, or this worker's own (local)
  scale_format scale_form{dtype::float32};  ///< of the scales that travel with frames
  int wide = 0;
  bool local = false;      ///< scales travel with the frames
  bool zero_free = false;  ///< levels have no zero
  bool summed = false;     ///< true: frames of several terms are sums of codes; false: encoded sums of values
  int rank = 0;
  int workers = 1;
  double weight = 1;  ///< of the mean
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t const* step_at =
      nullptr;  ///< on a stream: the address of the step, if the host does not know it
  source_list sources;
  bool own = false;
  int terms = 1;           ///< of own and sources together
  bool codes_add = false;  ///< a frame's codes are integer sums of its workers' codes
  bool verified = false;   ///< codes were already found to be in range
  input_scale whole{};     ///< for encode_own() without buckets
  std::uint32_t* faults = nullptr;
  agreed_call const* agreed = nullptr;  ///< on a stream: replaces wide and whole

  /// Computes `whole` from the other members; call it after setting them.
  void settle() {
    if (own && bucket == 0 && agreed == nullptr)
      whole = input_scale_of(x.type, bucket_scales[0], wide, extent);
  }

  GLOBALQ_FUNCTION void report(fault f) const { Kokkos::atomic_or(faults, static_cast<std::uint32_t>(f)); }

  GLOBALQ_FUNCTION double bucket_scale(std::uint64_t b) const { return bucket_scales[b]; }

  /// The exponent of the power of two that scales are divided by.
  GLOBALQ_FUNCTION int power() const { return agreed != nullptr ? agreed->wide : wide; }

  GLOBALQ_FUNCTION random::stream stream(int worker, random::purpose use) const {
    return {seed, step_at != nullptr ? *step_at : step, static_cast<std::uint32_t>(worker), use};
  }

  /// The index of a bucket's scale within the segment; @p b is the bucket's index within the vector.
  GLOBALQ_FUNCTION std::uint64_t scale_index(std::uint64_t b) const { return b - bucket.quotient(first); }

  /// The bytes of the traveling scales of all buckets before a tile of the segment.
  GLOBALQ_FUNCTION std::uint64_t scales_before(std::uint64_t tile) const {
    return local ? bucket.quotient(tile * random::tile_values) * scale_bytes(scale_form) : 0;
  }

  /// The scale of a frame's bucket, in units of 2^wide.
  GLOBALQ_FUNCTION double traveled_scale(source_view const& s, std::uint64_t b) const {
    return read_scale(s.scales, scale_index(b), scale_form, s.terms);
  }

  /// The scale word of a frame's bucket, if scales travel as words.
  GLOBALQ_FUNCTION std::uint32_t word_of(source_view const& s, std::uint64_t b) const {
    return load_from<std::uint32_t>(s.scales + 4 * scale_index(b));
  }

  /// Writes the scale of a bucket in its traveling format.
  /// @param scale  representable
  GLOBALQ_FUNCTION void write_scale(std::byte* to, std::uint64_t b, double scale) const {
    globalq::write_scale(to, scale_index(b), scale_form, scale, terms);
  }

  /// The largest exponent of the scales of a bucket (local norms). Sums of the bucket are in units of 2^reference. The
  /// functions below also take it as an argument, because computing it is most of their cost.
  /// @param source  index of the first frame
  GLOBALQ_FUNCTION int reference(std::uint64_t b, int source = 0) const {
    constexpr int least = -1000;
    if (!local) return 0;
    double const mine = own ? bucket_scale(b) : 0.0;
    int top = mine > 0 ? exponent_of(mine) : least;
    bool none = !(mine > 0);
    for (int k = 0; k < sources.count; ++k) {
      int e = least;
      if (scale_form.in_a_word()) {
        std::uint32_t const word = word_of(sources[source + k], b);
        if (word >> 23 == 0) continue;
        e = exponent_of_word(word);
      } else {
        double const u = traveled_scale(sources[source + k], b);
        if (!(u > 0)) continue;
        e = exponent_of(u);
      }
      top = top < e ? e : top;
      none = false;
    }
    return none ? 0 : (top < least ? least : top);
  }

  /// The scale of a frame's bucket in units of 2^exponent.
  GLOBALQ_FUNCTION double traveled_scale(source_view const& s, std::uint64_t b, int exponent) const {
    if (scale_form.in_a_word()) return scale_of_word(word_of(s, b), -exponent);
    return traveled_scale(s, b) * power_of_two(-exponent);
  }

  /// Largest code that a frame may hold.
  GLOBALQ_FUNCTION std::uint32_t limit_of(source_view const& s) const {
    return max_code * (codes_add ? static_cast<std::uint32_t>(s.terms) : 1U);
  }

  /// The factors from this worker's own values to the scale of the levels, in a bucket.
  GLOBALQ_FUNCTION input_scale scale_of(std::uint64_t b) const {
    if (bucket == 0) return agreed != nullptr ? agreed->whole : whole;
    return input_scale_of(x.type, bucket_scale(b), power(), extent);
  }

  /// The factors from this worker's own values to the scale of sums: units of bucket_scale / extent (one norm for all workers),
  /// or of 2^reference (local norms).
  GLOBALQ_FUNCTION input_scale sum_scale(std::uint64_t b) const { return sum_scale(b, reference(b)); }
  GLOBALQ_FUNCTION input_scale sum_scale(std::uint64_t b, int exponent) const {
    if (local) return input_scale_of(x.type, power_of_two(exponent), power(), 1.0);
    return input_scale_of(x.type, bucket_scale(b), power(), static_cast<double>(extent));
  }

  /// The factor from the levels of a frame to that scale, in a bucket. Requantized frames hold their sum divided by
  /// the number of terms, so they are multiplied by it.
  /// @param multiply_terms  false: keep a single frame in units of its own scale
  GLOBALQ_FUNCTION float factor_of(source_view const& s, std::uint64_t b, bool multiply_terms) const {
    return factor_of(s, b, multiply_terms, reference(b));
  }
  GLOBALQ_FUNCTION float factor_of(source_view const& s, std::uint64_t b, bool multiply_terms,
                                   int exponent) const {
    if (local) return static_cast<float>(traveled_scale(s, b, exponent) / static_cast<double>(extent));
    return multiply_terms && !summed ? static_cast<float>(s.terms) : 1.0F;
  }

  /// The factor from the sums of a bucket to values that are encoded again.
  /// @param scales  local norms: the scales of the sum, as they travel
  GLOBALQ_FUNCTION float gain_of_sum(std::uint64_t b, std::byte const* scales) const {
    return gain_of_sum(b, scales, reference(b));
  }
  GLOBALQ_FUNCTION float gain_of_sum(std::uint64_t b, std::byte const* scales, int exponent) const {
    if (!local) return 1.0F / static_cast<float>(terms);
    double const u = traveled_scale({nullptr, scales, terms, rank}, b, exponent);
    return u > 0 ? static_cast<float>(static_cast<double>(extent) / u) : 0.0F;
  }

  /// A single encoded sum of n workers has n times the scale of the bucket, so its mean has the scale of the bucket.
  GLOBALQ_FUNCTION bool one_encoded_sum() const { return sources.count == 1 && !summed; }

  /// The factor from the sums of a bucket to the mean.
  GLOBALQ_FUNCTION store_scale mean_scale_of(std::uint64_t b) const { return mean_scale_of(b, reference(b)); }
  GLOBALQ_FUNCTION store_scale mean_scale_of(std::uint64_t b, int exponent) const {
    double const share = one_encoded_sum() && !local ? 1.0 : static_cast<double>(workers);
    double const scale = (local ? power_of_two(exponent) : bucket_scale(b)) * weight;
    return mean_scale(scale, power(), local ? share : static_cast<double>(extent) * share);
  }
};

/// Adds a rounding to segment_call. host/operands.hpp and device/operands.hpp add levels and wire, because hosts and
/// devices call their loops differently.
/// @tparam Rounding  offers word_per_coordinate, shifts(), word() and shift()
template <class Rounding>
struct segment_operands : segment_call {
  Rounding rounding;

  /// The random word shared by a bucket.
  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION std::uint32_t shared_word(std::uint64_t b, int worker, bool again) const {
    if (rounding.word_per_coordinate) return 0;
    random::purpose const use = again ? random::purpose::shift_requantize : random::purpose::shift;
    std::uint32_t drawn = stream(worker, use).group(b).word[0];
#if !defined(__CUDA_ARCH__)  // on devices the words of a permutation would spill: stream_codec refuses it
    if constexpr (requires { rounding.sharers(); })
      if (rounding.sharers() > 1 && !again) drawn = in_part(drawn, b, worker, rounding.sharers());
#endif
    return rounding.word(drawn);
  }

  /// The sum of the shifts of the workers that encoded a frame, to be added to its values in a bucket; in level gaps.
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

 private:
  /// A worker's word for a bucket, in its part of the range.
  GLOBALQ_FUNCTION std::uint32_t in_part(std::uint32_t drawn, std::uint64_t b, int worker,
                                         std::uint32_t sharers) const {
    globalq::rounding::correlated const who =
        globalq::rounding::correlated().for_worker(static_cast<std::uint32_t>(worker), sharers);
    random::shared_words const common(stream(static_cast<int>(who.cohort()), random::purpose::share), b);
    return who.in_tile(common.data()).compared(drawn, 0);
  }
};

}  // namespace GLOBALQ_ABI::kernel
