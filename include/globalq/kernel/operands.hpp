// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: what one call works on, and the steps that its loop bodies share.

#include "../core/concepts.hpp"
#include "../core/scale_word.hpp"
#include "detail/avx512.hpp"
#include "executor.hpp"
#include "loops.hpp"

namespace globalq::kernel {

/// What went wrong inside a kernel; or-ed into one word that the host reads afterwards.
enum fault : std::uint32_t { none = 0, bad_code = 1, out_of_range = 2, not_finite = 4, bad_frame = 8 };

/// A checked frame, taken apart.
struct source_view {
  std::byte const* codes;
  std::byte const* scales;  ///< scale words, when scales travel
  std::int32_t terms;
  std::int32_t worker;
  std::int32_t first = 0;  ///< of the summed workers
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
  std::uint64_t step = 0;
  input_scale whole{};           ///< of the whole vector, where it has one scale
  store_scale mean{}, single{};  ///< the same for what is decoded: of sums, and of one encoded sum
  std::uint32_t faults = none;
};

/// Everything that the loops of one call on one segment need.
///
/// Values are indexed within the vector; rows and tiles within the segment, whose start is a multiple of a tile.
template <class Levels, class Rounding, class Wire>
struct operands {
  using lane = typename Wire::lane;
  static constexpr fault bad_code_fault = bad_code;

  Levels levels;
  Rounding rounding;
  Wire wire;
  const_vector x;
  std::uint64_t first = 0;   ///< of the segment
  std::uint64_t count = 0;   ///< of the segment
  std::uint64_t bucket = 0;  ///< values that share a scale; 0: the whole vector
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
  source_view const* sources = nullptr;
  int source_count = 0;
  bool own = false;
  int terms = 1;           ///< of own and sources together
  bool codes_add = false;  ///< a frame's codes are integer sums of its workers' codes
  bool verified = false;   ///< codes were found to be in range before
  input_scale whole{};     ///< of encode_own(), where there are no buckets
  std::uint32_t* faults = nullptr;
  agreed_call const* agreed =
      nullptr;  ///< on a stream: what stands here counts instead of wide, step and whole

  /// Computes what follows from the other members once for all values; the last step of filling this in.
  void settle() {
    if (own && bucket == 0 && agreed == nullptr)
      whole = input_scale_of(x.type, units[0], wide, levels.extent());
  }

  GLOBALQ_FUNCTION void report(fault f) const { Kokkos::atomic_or(faults, static_cast<std::uint32_t>(f)); }

  GLOBALQ_FUNCTION double unit(std::uint64_t b) const { return units[b]; }

  /// The power of two that units are divided by.
  GLOBALQ_FUNCTION int power() const { return agreed != nullptr ? agreed->wide : wide; }

  GLOBALQ_FUNCTION random::stream stream(std::uint32_t worker, random::purpose use) const {
    return {seed, agreed != nullptr ? agreed->step : step, worker, use};
  }

  /// The word that a bucket shares.
  GLOBALQ_FUNCTION std::uint32_t shared_word(std::uint64_t b, int worker, bool again) const {
    if constexpr (Rounding::word_per_coordinate) return 0;
    random::purpose const use = again ? random::purpose::shift_requantise : random::purpose::shift;
    return rounding.word(stream(static_cast<std::uint32_t>(worker), use).group(b).word[0]);
  }

  /// Where the scale of a bucket of the vector is among those of the segment.
  GLOBALQ_FUNCTION std::uint64_t scale_index(std::uint64_t b) const {
    return bucket == 0 ? 0 : b - first / bucket;
  }

  /// The scale of a frame in a bucket, in units of 2^wide.
  GLOBALQ_FUNCTION double travelled_unit(source_view const& s, std::uint64_t b) const {
    return read_scale(s.scales, scale_index(b), scale_form, s.terms);
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
      for (int w = s.first; w < s.first + s.terms; ++w) sum += rounding.shift(shared_word(b, w, false));
    } else {
      sum = rounding.shift(shared_word(b, s.worker, s.terms > 1));
    }
    return static_cast<float>(sum);
  }

  /// Largest code that a frame may hold.
  GLOBALQ_FUNCTION std::uint32_t limit_of(source_view const& s) const {
    return levels.max_code() * (codes_add ? static_cast<std::uint32_t>(s.terms) : 1U);
  }

  /// Whether lanes can be used where they lie. Users' frames may begin at any byte.
  GLOBALQ_FUNCTION static bool lies_as_lanes(std::byte const* p) {
    return reinterpret_cast<std::uintptr_t>(p) % alignof(lane) == 0;
  }

  /// The codes of a row of a frame, not checked: where they lie if lanes travel as they are, else in the buffer.
  template <int N>
  GLOBALQ_FUNCTION lane const* read(source_view const& s, row const r, lane* buffer) const {
    std::byte const* const bytes = s.codes + wire.bytes(r.first);
    if constexpr (travels_as_lanes<N>) {
      if (lies_as_lanes(bytes)) return reinterpret_cast<lane const*>(bytes);
      std::memcpy(buffer, bytes, wire.bytes(static_cast<std::uint64_t>(r.count)));
      return buffer;
    }
    if (wire.unpack(bytes, r.count, buffer, zero_free)) report(bad_code);
    return buffer;
  }

  /// Where the codes of a row are written: into the frame if lanes travel as they are, else into the buffer.
  template <int N>
  GLOBALQ_FUNCTION lane* target(std::byte* out, row const r, lane* buffer) const {
    if constexpr (travels_as_lanes<N>)
      if (lies_as_lanes(out)) return reinterpret_cast<lane*>(out + wire.bytes(r.first));
    return buffer;
  }

  /// Brings the codes of a row into a frame, if target() has not done so.
  template <int N>
  GLOBALQ_FUNCTION void write(lane const* lanes, row const r, std::byte* out) const {
    if (r.count == 0) return;
    std::byte* const bytes = out + wire.bytes(r.first);
    if (static_cast<void const*>(lanes) == bytes) return;
    if constexpr (travels_as_lanes<N>)
      std::memcpy(bytes, lanes, wire.bytes(static_cast<std::uint64_t>(r.count)));
    else
      wire.pack(lanes, r.count, bytes, zero_free);
  }

  template <int N>
  GLOBALQ_FUNCTION void check(lane const* lanes, row const r, source_view const& s) const {
    if (!verified && !in_range<N>(lanes, r.count, limit_of(s), zero_free)) report(bad_code);
  }

  /// read() and check().
  template <int N>
  GLOBALQ_FUNCTION lane const* read_checked(source_view const& s, row const r, lane* buffer) const {
    lane const* const lanes = read<N>(s, r, buffer);
    check<N>(lanes, r, s);
    return lanes;
  }

  /// Asks for the input of host_values values.
  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    prefetch_own(index);
    prefetch_sources(index);
  }
  GLOBALQ_ALWAYS_INLINE void prefetch_own(std::uint64_t index) const {
    std::size_t const width = size_of(x.type);
    if (own)
      globalq::prefetch(static_cast<std::byte const*>(x.data) + (first + index * host_values) * width,
                        host_values * width);
  }
  GLOBALQ_ALWAYS_INLINE void prefetch_sources(std::uint64_t index) const {
    for (int k = 0; k < source_count; ++k)
      globalq::prefetch(sources[k].codes + wire.bytes(index * host_values), wire.bytes(host_values));
  }

  /// Asks for the codes of host_values values of a frame that will be written.
  GLOBALQ_ALWAYS_INLINE void prefetch_target(std::byte* out, std::uint64_t index) const {
    globalq::prefetch<true>(out + wire.bytes(index * host_values), wire.bytes(host_values));
  }

  /// How this worker's own values are brought to the level scheme's scale in a bucket.
  GLOBALQ_FUNCTION input_scale scale_of(std::uint64_t b) const {
    if (bucket == 0) return agreed != nullptr ? agreed->whole : whole;
    return input_scale_of(x.type, unit(b), power(), levels.extent());
  }

  /// The codes of this worker's own values in a row.
  template <int N>
  GLOBALQ_FUNCTION void encode_own(row const r, std::uint32_t const* words, lane* lanes) const {
    float buffer[N];
    for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
      input_scale const s = scale_of(b);
      float const* z =
          load<N>(x, first + r.first + static_cast<std::uint64_t>(at), m, s.exponent, buffer + at);
      codes<N>(levels, rounding, s.gain, z, m, words + (Rounding::word_per_coordinate ? at : 0),
               shared_word(b, rank, false), lanes + at);
    });
  }

  /// encode_own() of whole random tiles by the loop for this machine, where it has one.
  /// @param out  see encode_tiles()
  template <int N, class Out>
  GLOBALQ_FUNCTION bool encode_own_tiles(row const r, Out out) const {
    if (!has_tiles<N>(r)) return false;
    float buffer[N], gain[N / 64 + 1];
    bool scaled = false;
    for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
      input_scale const s = scale_of(b);
      scaled = scaled || s.exponent != 0;
      set_gain(gain, at, m, s.gain);
    });
    auto const encode = [&](auto const* z) {
      encode_tiles<N>(r, z, gain, random::purpose::encode, ahead(), out);
    };
    if (!scaled && with_stored(r, encode)) return true;
    for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
      std::uint64_t const from = first + r.first + static_cast<std::uint64_t>(at);
      float const* const part = load<N>(x, from, m, scale_of(b).exponent, buffer + at);
      if (part != buffer + at)
        for (int i = 0; i < m; ++i) buffer[at + i] = part[i];
    });
    encode_tiles<N>(r, buffer, gain, random::purpose::encode, 0, out);
    return true;
  }

  /// f(this worker's own values of a row, as they are stored), for types that encode_tiles() reads.
  GLOBALQ_ANY_FUNCTION
  template <class F>
  GLOBALQ_FUNCTION bool with_stored(row const r, F const& f) const {
    switch (x.type) {
      case dtype::float16:
        f(static_cast<float16 const*>(x.data) + first + r.first);
        return true;
      case dtype::bfloat16:
        f(static_cast<bfloat16 const*>(x.data) + first + r.first);
        return true;
      case dtype::float64:
        return false;
      default:
        f(static_cast<float const*>(x.data) + first + r.first);
        return true;
    }
  }

  /// Whether encode_tiles() takes a row: whole random tiles, and scales that change at multiples of 64 values only.
  template <int N>
  GLOBALQ_FUNCTION bool has_tiles(row const r) const {
    return N >= tile_values && encodes_tiles() && r.count % tile_values == 0;
  }
  GLOBALQ_FUNCTION bool encodes_tiles() const {
    if constexpr (detail::Tabled<Levels>)
      if (!levels.has_lines()) return false;
    return detail::has_codes_of_tiles<Levels, Rounding, lane> && bucket % 64 == 0;
  }

  /// Sets the gain of values [at, at + count), one for every 64.
  GLOBALQ_FUNCTION static void set_gain(float* gain, int at, int count, float value) {
    for (int k = at / 64; k < (at + count) / 64; ++k) gain[k] = value;
  }

  /// The codes of a row of scaled values.
  /// @param z    float, float16 or bfloat16
  /// @param out  detail::as_bytes, or detail::as_nibbles where writes_nibbles()
  /// @pre has_tiles<N>(r)
  template <int N, class Value, class Out>
  GLOBALQ_FUNCTION void encode_tiles(row const r, Value const* z, float const* gain, random::purpose use,
                                     std::size_t asked_ahead, Out out) const {
    if constexpr (detail::has_codes_of_tiles<Levels, Rounding, lane>)
      detail::codes_of_tiles(levels, rounding, z, gain, stream(static_cast<std::uint32_t>(rank), use),
                             (first + r.first) / tile_values, r.count / tile_values, out, asked_ahead);
  }

  /// Whether the codes of whole tiles can be written as they travel, four bits each.
  GLOBALQ_FUNCTION bool writes_nibbles() const {
    return encodes_tiles() && bucket % 128 == 0 && detail::writes_nibbles(wire);
  }
  GLOBALQ_FUNCTION detail::as_nibbles nibbles(row const r, std::byte* out) const {
    return {reinterpret_cast<std::uint8_t*>(out + wire.bytes(r.first)), zero_free ? 1 : 0};
  }

  /// encode_own_tiles() into a frame.
  template <int N>
  GLOBALQ_FUNCTION bool encode_own_frame(row const r, std::byte* out) const {
    return writes_nibbles() && encode_own_tiles<N>(r, nibbles(r, out));
  }

  /// Measures the buckets of host_values values by their maximum norm and encodes these, where this machine has loops for
  /// both. Writes scales and codes of a frame.
  template <int N>
  bool encode_own_measured(row const r, std::byte* scales, std::byte* out) const {
    if (!has_tiles<N>(r) || r.count != static_cast<int>(host_values) || bucket % 128 != 0) return false;
    std::byte* const words = scales + 4 * scale_index((first + r.first) / bucket);
    bool done = false;
    with_stored(r, [&](auto const* z) {
      float gain[N / 64 + 1];
      done = detail::scales_of_piece(z, bucket, levels.extent(), words, gain);
      if (!done) return;
      if (writes_nibbles()) {
        encode_tiles<N>(r, z, gain, random::purpose::encode, ahead(), nibbles(r, out));
        return;
      }
      lane buffer[N];
      lane* const lanes = target<N>(out, r, buffer);
      encode_tiles<N>(r, z, gain, random::purpose::encode, ahead(), as_lanes(lanes));
      write<N>(lanes, r, out);
    });
    return done;
  }

  /// Codes as lanes of this wire format.
  GLOBALQ_FUNCTION static auto as_lanes(lane* lanes) {
    if constexpr (detail::has_codes_of_tiles<Levels, Rounding, lane>)
      return detail::as_bytes{lanes};
    else
      return lanes;
  }

  /// How many values ahead a loop that asks for memory by itself does so.
  GLOBALQ_FUNCTION std::size_t ahead() const { return count < prefetch_from ? 0 : values_ahead; }

  /// Writes the scale of a bucket as it travels.
  /// @param unit  representable
  GLOBALQ_FUNCTION void write_scale(std::byte* to, std::uint64_t b, double unit) const {
    globalq::write_scale(to, scale_index(b), scale_form, unit, terms);
  }

  /// How this worker's own values are brought to what accumulate() adds in.
  /// @tparam Local  false: the caller knows that scales do not travel, and the compiler shall know it
  template <bool Local = true>
  GLOBALQ_FUNCTION input_scale sum_scale(std::uint64_t b) const {
    if (Local && local) return input_scale_of(x.type, power_of_two(reference(b)), power(), 1.0);
    return input_scale_of(x.type, unit(b), power(), static_cast<double>(levels.extent()));
  }

  /// The sum of own values (unencoded) and decoded sources in a row; at least one of them is there.
  ///
  /// In units of unit / extent (one norm for all) or of 2^reference (local norms). Several frames are added in float32 in
  /// the order given; frames encoded again count as terms times their value.
  /// @param multiply_terms  false: a single frame is wanted in units of its own scale
  template <int N>
  GLOBALQ_FUNCTION void accumulate(row const r, bool multiply_terms, float* sum) const {
    if (own) {
      float buffer[N];
      for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
        input_scale const s = sum_scale(b);
        float const* const z =
            load<N>(x, first + r.first + static_cast<std::uint64_t>(at), m, s.exponent, buffer + at);
        scaled<N>(z, m, s.gain, sum + at);
      });
    }
    lane buffer[N];
    for (int k = 0; k < source_count; ++k) {
      source_view const s = sources[k];
      lane const* const lanes = read_checked<N>(s, r, buffer);
      for_each_run(first + r.first, r.count, bucket, [&](std::uint64_t b, int at, int m) {
        float const shift = shift_of(s, b), factor = factor_of(s, b, multiply_terms);
        if (k == 0 && !own)
          values<N, false>(levels, lanes + at, m, shift, factor, sum + at);
        else
          values<N, true>(levels, lanes + at, m, shift, factor, sum + at);
      });
    }
  }

  /// What the levels of a frame are multiplied by in a bucket, see accumulate().
  /// @tparam Local  see sum_scale()
  template <bool Local = true>
  GLOBALQ_FUNCTION float factor_of(source_view const& s, std::uint64_t b, bool multiply_terms) const {
    if (Local && local)
      return static_cast<float>(travelled_unit(s, b) * power_of_two(-reference(b)) /
                                static_cast<double>(levels.extent()));
    return multiply_terms && !summed ? static_cast<float>(s.terms) : 1.0F;
  }

  /// Whether a frame holds lanes as a host thread reads them (a GPU thread takes its share into registers).
  template <int N>
  static constexpr bool travels_as_lanes = [] {
    if constexpr (requires { Wire::is_integer; }) return Wire::is_integer && N >= tile_values;
    return false;
  }();
};

}  // namespace globalq::kernel
