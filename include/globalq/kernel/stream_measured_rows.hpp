// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: encodes buckets with a local norm that stay in the registers of 16 threads, from measuring to codes.

#include "stream_measured.hpp"

namespace GLOBALQ_ABI::kernel {

/// Whether the threads of a warp exchange values by shuffles in kernels of a space.
template <class Space>
inline constexpr bool has_shuffles = false;
#if defined(KOKKOS_ENABLE_CUDA)
template <>
inline constexpr bool has_shuffles<Kokkos::Cuda> = true;
#endif

/// measured_codes of own values for maxima and sums of squares of buckets of 32, 64 ... 1,024 values, where warps have
/// shuffles. The bits are the same.
///
/// 16 threads process a tile, or the tiles of a longer bucket in turn. Values stay in registers, and threads exchange
/// maxima and squares by shuffles, so there is no shared memory and no barrier.
/// @tparam Order  infinity or 2
/// @tparam Long   whether buckets are longer than a tile. All tiles but the last are then loaded again for encoding, from
///                the first cache.
template <class Operands, std::uint32_t Order, bool Long>
struct measured_rows : measured_codes<Operands, false> {
  using base = measured_codes<Operands, false>;
  using base::lanes;
  using base::o;
  using base::q;
  using base::team_threads;
  using base::threads_of_tile;
  using typename base::encoding;
  using typename base::rows;
  static_assert(lanes == 1 && rows::R == 4 && rows::N == 4 && threads_of_tile == 16);
  /// 128, 96 or 80 registers.
  static constexpr int teams =
      base::by_table && Long ? 4 : (base::by_table && Order == 2 && base::quarter_bytes ? 5 : 6);
  static constexpr std::size_t scratch_bytes = 16;

  int shift;  ///< a bucket has 2^shift values

  explicit measured_rows(base const& all) : base(all), shift(log2_ceil(std::uint64_t{all.o.bucket})) {}

  static bool suits(Operands const& o, norm::order q) {
    constexpr std::uint64_t shortest = Long ? 512 : 32, longest = Long ? 1024 : 256;
    std::uint64_t const width = o.bucket;
    return q == Order && o.x.type != dtype::float64 && width >= shortest && width <= longest &&
           (width & (width - 1)) == 0;
  }

  /// Buckets per item: those of a tile, or a longer bucket, for 16 threads.
  static int group_of(std::uint64_t width) {
    return team_threads / threads_of_tile * (Long ? 1 : tile_values / static_cast<int>(width));
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* /*scratch*/) const {
    int const p = this->pieces.of(item), run = Long ? 1 << (shift - 8) : 1;
    piece_list::piece const& at = this->pieces.all[p];
    std::uint64_t const first = (item - at.start) *
                                static_cast<std::uint64_t>(team_threads / threads_of_tile * run),
                        tiles = divide_up<std::uint64_t>(wire::values_of_word(at.values), tile_values);
    if (item == at.start && team.team_rank() == 0) this->begin(at, p);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, team_threads), [&](int k) {
      std::uint64_t const tile = first + static_cast<std::uint64_t>(k / threads_of_tile * run),
                          left = tile < tiles ? tiles - tile : 0;
      int const here = left < static_cast<std::uint64_t>(run) ? static_cast<int>(left) : run;
      encode_run(at, {at.tile + tile, here, run, base::lane_of(k)});
    });
  }

 private:
  /// The tiles of 16 threads.
  struct place {
    std::uint64_t tile;
    int here, run, lane;  ///< how many of the run's tiles exist; the thread
  };

  /// Partial sums of squares and maxima of buckets.
  template <int Buckets>
  struct squares {
    double sum[Buckets] = {};
    std::uint32_t most[Buckets] = {};
  };

  /// base::scales_of() and base::codes_of(), with shifts for divisions.
  /// @{
  GLOBALQ_FUNCTION std::byte* scales_of(piece_list::piece const& at) const {
    return at.frame == nullptr
               ? nullptr
               : at.frame + wire::header_bytes - buckets_before(at) * scale_bytes(o.scale_form);
  }
  GLOBALQ_FUNCTION std::byte* codes_of(piece_list::piece const& at) const {
    std::uint64_t const buckets =
        (wire::values_of_word(at.values) + (std::uint64_t{1} << shift) - 1) >> shift;
    return at.frame + wire::header_bytes + wire::scale_section(buckets, o.scale_form) -
           o.wire.bytes(std::uint64_t{at.tile} * tile_values);
  }
  GLOBALQ_FUNCTION std::uint64_t buckets_before(piece_list::piece const& at) const {
    return std::uint64_t{at.tile} * tile_values >> shift;
  }
  /// @}

  /// Measures and encodes the tiles of a run.
  GLOBALQ_FUNCTION void encode_run(piece_list::piece const& at, place const& p) const {
    std::uint64_t const before = base::top_so_far();  // with the values: nothing waits for it
    typename rows::floats z;
    squares<1> found;
    rows const part(o, p.here > 0 ? p.tile : 0, p.lane);
    if constexpr (Long) {
      found = measure_long(p, z);
    } else {
      // all threads of a warp take part in shuffles, also for a tile that does not exist
      part.load_narrow(o.x, z);
      found = measure_short(z, p.lane);
    }
    // bits 2, 1 and 8 of the lane, from the highest, are the number of its bucket in the tile
    int const choose_by = Long ? 0 : 0xb320 >> 4 * (8 - shift) & 15, number = p.lane & choose_by & 3,
              mine = shift == 7 ? number / 2 : (shift == 5 ? 2 * number + p.lane / 8 : number);
    std::uint64_t const first = p.tile * tile_values + static_cast<std::uint64_t>(mine << shift);
    bool const writes = (p.lane & ~choose_by) == 0 && p.here > 0 && first < o.count;
    if (writes) base::raise_top(norm::detail::as_double_bits(float_of(found.most[0])), before);
    encoding const own =
        settle((o.first + first) >> shift, scale_of(found.most[0], found.sum[0]), writes, scales_of(at));
    encoding ways[4];
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      ways[r] = own;
      if constexpr (!Long) {
        int const of =
            (r & choose_by) + (p.lane & choose_by & 8);  // a lane that has settled the bucket of the row
        ways[r] = {value_of(own.power, of), value_of(own.gain, of), 0};
        if constexpr (!Operands::rounding_type::word_per_coordinate) ways[r].word = value_of(own.word, of);
      }
    }
    if (at.frame == nullptr || p.here == 0) return;
    std::byte* const codes = codes_of(at);
    if constexpr (Long) {
      GLOBALQ_NO_UNROLL
      for (int t = p.here - 1; t >= 0; --t) {
        if (t < p.run - 1) load(p, t, z);
        std::uint64_t const tile = p.tile + static_cast<std::uint64_t>(t);
        encode(rows(o, tile, p.lane), tile, p.lane, z, ways, codes);
      }
    } else {
      encode(part, p.tile, p.lane, z, ways, codes);
    }
  }

  /// The maximum and, if the norm needs it, the sum of squares of the bucket that this lane settles.
  GLOBALQ_FUNCTION squares<1> measure_short(typename rows::floats const& z, int lane) const {
    squares<1> found;
    if constexpr (Order == infinity) {
      std::uint32_t most[4] = {};
      find_maxima(z, most);
      found.most[0] = maximum_of(most, lane);
      return found;
    }
    typename rows::floats v;
    transpose(z, lane, v);
    if (shift == 8)
      found = sums_of<1>(v, lane);
    else if (shift == 7)
      found = sums_of<2>(v, lane);
    else if (shift == 6)
      found = sums_of<4>(v, lane);
    else
      found = sums_of<8>(v, lane);
    return found;
  }
  /// The same for the only bucket of a run. Leaves the values of the last tile in z.
  GLOBALQ_FUNCTION squares<1> measure_long(place const& p, typename rows::floats& z) const {
    squares<1> found;
    GLOBALQ_NO_UNROLL
    for (int t = 0; t < p.run; ++t) {
      load(p, t, z);
      if constexpr (Order == infinity) {
        GLOBALQ_UNROLL
        for (int r = 0; r < 4; ++r) {
          GLOBALQ_UNROLL
          for (int i = 0; i < 4; ++i)
            found.most[0] = larger(found.most[0], bits_of(z[r][i]) & float_magnitude);
        }
      } else {
        typename rows::floats v;
        transpose(z, p.lane, v);
        add_squares(v, found);
      }
    }
    if constexpr (Order == infinity) {
      GLOBALQ_UNROLL
      for (int far = 8; far > 0; far /= 2)
        found.most[0] = larger(found.most[0], exchanged(found.most[0], far));
      return found;
    } else {
      return added(found, p.lane);
    }
  }
  /// Loads the thread's values of a tile of the run.
  GLOBALQ_FUNCTION void load(place const& p, int t, typename rows::floats& z) const {
    if (t < p.here) return rows(o, p.tile + static_cast<std::uint64_t>(t), p.lane).load_narrow(o.x, z);
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < 4; ++i) z[r][i] = 0;
    }
  }

  GLOBALQ_FUNCTION void encode(rows const& part, std::uint64_t tile, int lane, typename rows::floats& z,
                               encoding const (&ways)[4], std::byte* codes) const {
    if (part.count(0) == 0) return;
    typename rows::words words;
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < 4; ++i) {
        z[r][i] = multiply(multiply(z[r][i], ways[r].power), ways[r].gain);
        words[r][i] = ways[r].word;
      }
    }
    typename rows::codes c;
    part.encode(true, z, words, rows::draw(o, tile, lane, o.rank, random::purpose::encode), c);
    part.write(c, codes);
  }

  // ---- Shuffles within 16 threads

  /// The value of the thread whose lane differs in the bits of @p far.
  template <class Value>
  GLOBALQ_FUNCTION static Value exchanged(Value v, [[maybe_unused]] int far) {
#if defined(__CUDA_ARCH__)
    return __shfl_xor_sync(~0U, v, far);
#else
    return v;
#endif
  }
  /// The value of a lane.
  template <class Value>
  GLOBALQ_FUNCTION static Value value_of(Value v, [[maybe_unused]] int lane) {
#if defined(__CUDA_ARCH__)
    return __shfl_sync(~0U, v, lane, threads_of_tile);
#else
    return v;
#endif
  }

  // ---- Maxima

  GLOBALQ_FUNCTION static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

  /// Raises the largest magnitude of each row.
  GLOBALQ_FUNCTION static void find_maxima(typename rows::floats const& z, std::uint32_t (&most)[4]) {
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < 4; ++i) most[r] = larger(most[r], bits_of(z[r][i]) & float_magnitude);
    }
  }

  /// The maximum of the bucket that this lane settles, from those of rows.
  GLOBALQ_FUNCTION std::uint32_t maximum_of(std::uint32_t const (&most)[4], int lane) const {
    bool const high = (lane & 2) != 0, low = (lane & 1) != 0;
    std::uint32_t m;
    if (shift > 6) {
      std::uint32_t const a = larger(most[0], most[1]), b = larger(most[2], most[3]);
      bool const one = shift == 8;
      m = one ? larger(a, b) : (high ? b : a);
      m = larger(m, exchanged(one ? m : (high ? a : b), 2));
      m = larger(m, exchanged(m, 1));
    } else {
      std::uint32_t const a = larger(high ? most[2] : most[0], exchanged(high ? most[0] : most[2], 2)),
                          b = larger(high ? most[3] : most[1], exchanged(high ? most[1] : most[3], 2));
      m = larger(low ? b : a, exchanged(low ? a : b, 1));
    }
    if (shift > 5) m = larger(m, exchanged(m, 8));
    return larger(m, exchanged(m, 4));
  }

  // ---- Sums of squares: value i of a bucket belongs to partial sum i % 16, in the order of the values

  /// Adds squares to partial sum 4 (lane % 4) + lane / 4 of each bucket.
  /// @param v  rows after transpose(), which gives each lane the values of its partial sum in their order
  template <int Buckets>
  GLOBALQ_FUNCTION static void add_squares(typename rows::floats const& v, squares<Buckets>& s) {
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      GLOBALQ_UNROLL
      for (int g = 0; g < 4; ++g) {
        int const b = Buckets == 8 ? 2 * r + g / 2 : r * Buckets / 4;
        s.most[b] = larger(s.most[b], bits_of(v[r][g]) & float_magnitude);
        double const d = static_cast<double>(v[r][g]);
        s.sum[b] += d * d;  // 24 bits each: exact
      }
    }
  }

  /// Gives lane a + 4 i the values number i of the rows of lanes a, a + 4, a + 8 and a + 12.
  GLOBALQ_FUNCTION static void transpose(typename rows::floats const& z, int lane, typename rows::floats& v) {
    bool const odd = (lane & 4) != 0, high = (lane & 8) != 0;
    GLOBALQ_UNROLL
    for (int r = 0; r < 4; ++r) {
      float half[4];
      GLOBALQ_UNROLL
      for (int k = 0; k < 4; k += 2) {
        float const other = exchanged(odd ? z[r][k] : z[r][k + 1], 4);
        half[k] = odd ? other : z[r][k];
        half[k + 1] = odd ? z[r][k + 1] : other;
      }
      GLOBALQ_UNROLL
      for (int k = 0; k < 2; ++k) {
        float const other = exchanged(high ? half[k] : half[k + 2], 8);
        v[r][k] = high ? other : half[k];
        v[r][k + 2] = high ? half[k + 2] : other;
      }
    }
  }

  /// Adds the partial sums of pairs of lanes. If there are several buckets, each lane of a pair keeps one half of them.
  template <int Far, int Buckets>
  GLOBALQ_FUNCTION static squares<(Buckets + 1) / 2> halved(squares<Buckets> const& s, int lane) {
    constexpr int half = Buckets / 2;
    bool const upper = (lane & Far) != 0;
    squares<(Buckets + 1) / 2> h;
    GLOBALQ_UNROLL
    for (int k = 0; k < (Buckets + 1) / 2; ++k) {
      h.sum[k] = (upper ? s.sum[k + half] : s.sum[k]) + exchanged(upper ? s.sum[k] : s.sum[k + half], Far);
      h.most[k] =
          larger(upper ? s.most[k + half] : s.most[k], exchanged(upper ? s.most[k] : s.most[k + half], Far));
    }
    return h;
  }

  /// Adds partial sums as norm::add_up() does: 8, 4, 2 and 1 apart. Then this lane has the sum of one bucket.
  template <int Buckets>
  GLOBALQ_FUNCTION static squares<1> added(squares<Buckets> const& s, int lane) {
    return halved<4>(halved<8>(halved<1>(halved<2>(s, lane), lane), lane), lane);
  }
  template <int Buckets>
  GLOBALQ_FUNCTION static squares<1> sums_of(typename rows::floats const& v, int lane) {
    squares<Buckets> s;
    add_squares(v, s);
    return added(s, lane);
  }

  // ---- Scales

  /// The scale of a bucket from its maximum and sum of squares: norm::local_scale() of its statistic, 0 if that is not finite.
  GLOBALQ_FUNCTION double scale_of(std::uint32_t most, double sum) const {
    if (most >= float_infinity) return 0;
    float const largest = float_of(most);
    double const max = static_cast<double>(largest);
    constexpr bool squared = Order == 2;
    if (!q.rounds_up()) {
      if (!squared) return max;
      if (is_moderate(largest)) {  // the powers of two of a statistic cancel out
        double const root = rounded(std::sqrt(sum));
        return representable(root < max ? max : root, q.format(o.x.type));
      }
    }
    norm::statistic s;
    s.max_bits = norm::detail::as_double_bits(largest);
    if (squared && most != 0) s.sum = sum * globalq::power_of_two(-2 * s.exponent());
    return norm::local_scale(s, q, o.x.type, 0);
  }

  /// Whether products and quotients of a number need no scaling by a power of two.
  GLOBALQ_FUNCTION static bool is_moderate(float scale) {
    int const e = static_cast<int>(bits_of(scale) >> 23) - 127;
    return e >= -20 && e <= 20;
  }

  /// Computes the factors of a bucket from its scale; one thread writes the scale.
  GLOBALQ_FUNCTION encoding settle(std::uint64_t b, double scale, bool writes, std::byte* scales) const {
    if (writes) {
      if (this->bucket_scales != nullptr) this->bucket_scales[b] = scale;
      if (scales != nullptr) o.write_scale(scales, b, scale);
    }
    std::uint32_t const word = o.shared_word(b, o.rank, false);
    float const narrow = static_cast<float>(scale);
    if (is_moderate(narrow)) return {1.0F, quotient(o.extent, narrow), word};  // as input_scale_of()
    input_scale const in = input_scale_of(o.x.type, scale, 0, static_cast<double>(o.extent));
    return {power_of_two_float(in.exponent), in.gain, word};
  }
};

}  // namespace GLOBALQ_ABI::kernel
