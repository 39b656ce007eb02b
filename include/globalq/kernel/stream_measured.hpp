// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: encodes buckets with a local norm, in the same kernel that measures them, so values are read once.
///
/// A team holds whole buckets in shared memory: own values, or the sum of own values and decoded frames. It measures
/// and encodes them there. For float32, each value costs a read of four bytes and a write of its code; with frames,
/// also a read of their codes.

#include "../norm/order.hpp"
#include "../wire/frame.hpp"
#include "detail/team_statistics.hpp"
#include "device/share.hpp"
#include "stream.hpp"

namespace GLOBALQ_ABI::kernel {

/// The number of buckets that a team processes at a time, and whether it can.
struct measured_buckets {
  /// The longest bucket; the most values if a team takes several buckets; the most buckets.
  static constexpr int longest = 8192, side_by_side = 4096, most = norm::detail::shared_sums::most_blocks;

  /// Teams per multiprocessor, limited by their shared memory: Kokkos refuses a launch if they do not fit.
#if defined(KOKKOS_ARCH_HOPPER90) || defined(KOKKOS_ARCH_BLACKWELL100)
  static constexpr int teams = 5;
#elif defined(KOKKOS_ARCH_AMPERE80)
  static constexpr int teams = 4;
#elif defined(KOKKOS_ARCH_TURING75)
  static constexpr int teams = 1;
#else
  static constexpr int teams = 2;
#endif

  /// @param bucket  values per bucket
  /// @param row     values in a thread's row
  /// @returns the number of buckets that together are whole tiles; 0 if a bucket is too long or a row spans two buckets
  static constexpr int of(std::uint64_t bucket, int row) {
    if (bucket == 0 || bucket > longest || bucket % static_cast<std::uint64_t>(row) != 0) return 0;
    int const width = static_cast<int>(bucket);
    for (int k = width > side_by_side ? 1 : smaller(most, side_by_side / width); k > 0; --k)
      if (k * width % tile_values == 0) return k;
    return 0;
  }
};

/// The work of teams: an item is `group` buckets.
/// @tparam Operands  of a device; sums of float64 vectors are not supported
/// @tparam Sum       true: encodes the sum of own values and sources; false: encodes own values
template <class Operands, bool Sum>
struct measured_codes {
  static constexpr int team_threads = norm::detail::statistics_threads;
  static constexpr bool by_table = std::is_same_v<typename Operands::levels_type, device::table_view>;
  static constexpr bool quarter_bytes = device::row_bytes<typename Operands::wire_type, 4> == 1;
  /// Codes across bytes, and sums encoded by a table to codes of several or quarter bytes, need more registers.
  static constexpr bool heavy =
      device::row_bytes<typename Operands::wire_type, 4> == 0 ||
      (Sum && by_table && (quarter_bytes || sizeof(typename Operands::code_type) > 1));
  static constexpr int teams = smaller(heavy ? 4 : 5, measured_buckets::teams);

  Operands o;
  frame_headers headers;
  piece_list pieces;  ///< start counts items, tile counts tiles; a single piece if there are sources
  norm::order q;
  double* bucket_scales;  ///< own values only: receives one scale per bucket of the vector; or null
  std::uint64_t* top;     ///< own values only: raised to the largest max_bits
  int group;              ///< buckets per item

 protected:
  static constexpr int lanes = device::value_lanes<typename Operands::wire_type>,
                       threads_of_tile = 16 / lanes;
  using rows = device::share<Operands, lanes, 4>;

  /// How values of a bucket become codes: value * power * gain, and the bucket's random word.
  struct encoding {
    float power, gain;
    std::uint32_t word;
  };
  /// The factors by which own values, and those of up to `frames` frames, are added to a bucket's sum.
  struct terms {
    static constexpr int frames = 8;
    int reference;
    input_scale own;
    typename rows::affine frame[frames];
  };

  /// The shared memory of a team.
  struct shared {
    std::byte* memory;
    static constexpr std::size_t values = measured_buckets::longest * sizeof(float),
                                 sums = norm::detail::shared_sums::bytes,
                                 found = measured_buckets::most * sizeof(norm::statistic),
                                 ways = measured_buckets::most * sizeof(encoding),
                                 added = Sum ? measured_buckets::most * sizeof(terms) : 0;
    static constexpr std::size_t bytes = values + sums + found + ways + added;

    GLOBALQ_FUNCTION std::byte* stage() const { return memory; }
    GLOBALQ_FUNCTION norm::detail::shared_sums partial() const { return {memory + values}; }
    GLOBALQ_FUNCTION norm::statistic* statistics() const {
      return reinterpret_cast<norm::statistic*>(memory + values + sums);
    }
    GLOBALQ_FUNCTION encoding* encodings() const {
      return reinterpret_cast<encoding*>(memory + values + sums + found);
    }
    GLOBALQ_FUNCTION terms* added_up() const {
      return reinterpret_cast<terms*>(memory + values + sums + found + ways);
    }
    /// Row r of share k of the item's tiles.
    GLOBALQ_FUNCTION std::byte* row(int k, int r) const {
      int const at = k / threads_of_tile * tile_values + 64 * r + 4 * lanes * (k % threads_of_tile);
      return memory + at * static_cast<int>(sizeof(float));
    }
  };

  /// The place of an item.
  struct place {
    std::uint64_t tile, bucket;  ///< the first of the item
    int buckets, shares;         ///< shares of threads
    GLOBALQ_FUNCTION std::uint64_t tile_of(int k) const {
      return tile + static_cast<std::uint64_t>(k / threads_of_tile);
    }
  };
  GLOBALQ_FUNCTION static int lane_of(int k) { return k % threads_of_tile * lanes; }

 public:
  static constexpr std::size_t scratch_bytes = shared::bytes;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    shared const s{scratch};
    int const p = pieces.of(item), width = static_cast<int>(std::uint64_t{o.bucket}), most = group * width;
    piece_list::piece const& at = pieces.all[p];
    std::uint64_t const before = (item - at.start) * static_cast<std::uint64_t>(most),
                        tile = at.tile + before / tile_values,
                        bucket = o.bucket.quotient(o.first + tile * tile_values),
                        left = wire::values_of_word(at.values) - before;
    int const count = left < static_cast<std::uint64_t>(most) ? static_cast<int>(left) : most,
              buckets = divide_up(count, width), shares = divide_up(count, tile_values) * threads_of_tile;
    place const at_item{tile, bucket, buckets, shares};
    std::uint64_t const top_before = Sum ? 0 : top_so_far();  // with the values: nothing waits for it
    if constexpr (Sum)
      stage_sums(team, at_item, s);
    else
      stage_values(team, at_item, s);
    measure(team, s, count, width);
    std::byte* const scales = scales_of(at);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, buckets), [&](int g) {
      s.encodings()[g] = settle(g, bucket + static_cast<std::uint64_t>(g), scales, top_before, s);
      if (g == 0 && item == at.start) begin(at, p);
    });
    team.team_barrier();
    if (at.frame == nullptr) return;
    std::byte* const codes = codes_of(at);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, shares), [&](int k) {
      rows const part(o, at_item.tile_of(k), lane_of(k));
      if (part.count(0) > 0) encode(part, at_item, k, s, codes);
    });
  }

 protected:
  GLOBALQ_FUNCTION std::uint64_t buckets_of(piece_list::piece const& at) const {
    return o.bucket.quotient(wire::values_of_word(at.values) + (o.bucket - 1));
  }
  /// Where the scale of the operands' first bucket, and the code of their first value, would be in a frame.
  GLOBALQ_FUNCTION std::byte* scales_of(piece_list::piece const& at) const {
    return at.frame == nullptr ? nullptr : at.frame + wire::header_bytes - o.scales_before(at.tile);
  }
  GLOBALQ_FUNCTION std::byte* codes_of(piece_list::piece const& at) const {
    return at.frame + wire::header_bytes + wire::scale_section(buckets_of(at), o.scale_form) -
           o.wire.bytes(std::uint64_t{at.tile} * tile_values);
  }

  /// Computes the statistics of the staged values.
  template <class Team>
  KOKKOS_FUNCTION void measure(Team const& team, shared const& s, int count, int width) const {
    int const each = smaller(width, static_cast<int>(norm::block_values)), blocks = divide_up(count, each);
    norm::detail::team_statistics<norm::detail::as_float32>{Sum ? dtype::float32 : o.x.type, q}.measure(
        team, blocks, s.partial(),
        [&](int threads, auto const& f) {
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * threads), [&](int k) {
            int const g = k / threads, rest = count - g * each;
            f(g, k % threads, s.stage() + g * each * static_cast<int>(sizeof(float)), smaller(rest, each));
          });
          team.team_barrier();
        },
        s.statistics());
    static_assert(measured_buckets::longest <= 2 * norm::block_values);
    if (each == width || blocks < 2) return;
    Kokkos::single(Kokkos::PerTeam(team),
                   [&] { s.statistics()[0] = norm::merge(s.statistics()[0], s.statistics()[1], q); });
    team.team_barrier();
  }

  /// Processes the headers of a piece, and writes zeros between its scales and its codes.
  GLOBALQ_FUNCTION void begin(piece_list::piece const& at, int p) const {
    headers.treat(at, p, o.sources, o.faults, o.scales_before(at.tile));
    if (at.frame == nullptr) return;
    std::size_t const scales = vector_scale_bytes(o.scale_form) + buckets_of(at) * scale_bytes(o.scale_form),
                      section = wire::scale_section(buckets_of(at), o.scale_form);
    for (std::size_t i = scales; i < section; ++i) at.frame[wire::header_bytes + i] = std::byte{0};
  }

  /// Loads own values to shared memory.
  template <class Team>
  KOKKOS_FUNCTION void stage_values(Team const& team, place const& p, shared const& s) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.shares), [&](int k) {
      rows const part(o, p.tile_of(k), lane_of(k));
      if (part.count(0) == 0) return;
      typename rows::floats z;
      part.load_narrow(o.x, z);
      keep(z, k, s);
    });
    team.team_barrier();
  }

  /// Computes sums of own values and frames in shared memory. The factors are computed once per bucket, for some frames
  /// at a time.
  template <class Team>
  KOKKOS_FUNCTION void stage_sums(Team const& team, place const& p, shared const& s) const {
    for (int from = 0; from == 0 || from < o.sources.count; from += terms::frames) {
      int const number = smaller(o.sources.count - from, terms::frames), threads = number + 1;
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.buckets * threads), [&](int k) {
        int const g = k / threads, frame = k % threads;
        std::uint64_t const b = p.bucket + static_cast<std::uint64_t>(g);
        terms& t = s.added_up()[g];
        int const reference = o.reference(b);
        if (frame < number) {
          source_view const from_frame = o.sources[from + frame];
          t.frame[frame] = {o.shift_of(from_frame, b), o.factor_of(from_frame, b, true, reference)};
        } else {
          t.reference = reference;
          t.own = o.sum_scale(b, reference);
        }
      });
      team.team_barrier();
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.shares), [&](int k) {
        rows const part(o, p.tile_of(k), lane_of(k));
        if (part.count(0) > 0) add_frames(part, p, k, from, from + number, s);
      });
      team.team_barrier();
    }
  }

  /// Adds frames [from, to) to the staged sums; if from is 0, to own values.
  GLOBALQ_FUNCTION void add_frames(rows const& part, place const& p, int k, int from, int to,
                                   shared const& s) const {
    typename rows::codes first{};
    if (from < to) part.fetch(o.sources[from].codes, first);
    typename rows::floats z;
    int bucket[rows::R];
    part.find_buckets(p.bucket, p.buckets - 1, bucket);
    if (from > 0)
      take(z, k, s);
    else if (o.own)
      part.load_narrow(o.x, z);
    GLOBALQ_UNROLL
    for (int r = 0; r < rows::R; ++r) {
      input_scale const own = s.added_up()[bucket[r]].own;
      float const power = power_of_two_float(own.exponent);
      GLOBALQ_UNROLL
      for (int i = 0; i < rows::N; ++i)
        z[r][i] = from > 0 ? z[r][i] : (o.own ? multiply(multiply(z[r][i], power), own.gain) : -0.0F);
    }
    part.add_frames(
        first, from, to,
        [&](int frame, source_view const&, auto const& use) {
          GLOBALQ_UNROLL
          for (int r = 0; r < rows::R; ++r) {
            auto const a = s.added_up()[bucket[r]].frame[frame - from];
            GLOBALQ_UNROLL
            for (int i = 0; i < rows::N; ++i) use(a, r, i);
          }
        },
        z);
    keep(z, k, s);
  }

  /// Copies the values of a thread to and from shared memory.
  /// @{
  GLOBALQ_FUNCTION static void keep(typename rows::floats const& z, int k, shared const& s) {
    GLOBALQ_UNROLL
    for (int r = 0; r < rows::R; ++r) {
      std::uint32_t words[rows::N];
      GLOBALQ_UNROLL
      for (int i = 0; i < rows::N; ++i) words[i] = bits_of(z[r][i]);
      device::store_whole<4 * rows::N>(s.row(k, r), words);
    }
  }
  GLOBALQ_FUNCTION static void take(typename rows::floats& z, int k, shared const& s) {
    GLOBALQ_UNROLL
    for (int r = 0; r < rows::R; ++r) {
      std::uint32_t words[rows::N];
      device::load_whole<4 * rows::N>(s.row(k, r), words);
      GLOBALQ_UNROLL
      for (int i = 0; i < rows::N; ++i) z[r][i] = float_of(words[i]);
    }
  }
  /// @}

  /// Computes and writes the scale of a bucket, and returns its factors for values.
  /// @param g  index of the bucket within the item
  /// @param before  top_so_far()
  GLOBALQ_FUNCTION encoding settle(int g, std::uint64_t b, std::byte* scales,
                                   [[maybe_unused]] std::uint64_t before, shared const& s) const {
    norm::statistic const found = s.statistics()[g];
    std::uint32_t const word = o.shared_word(b, o.rank, Sum);
    if constexpr (Sum) {
      int const reference = s.added_up()[g].reference;
      o.write_scale(scales, b, norm::local_scale(found, q, o.x.type, -reference));
      return {1, o.gain_of_sum(b, scales, reference), word};
    } else {
      raise_top(found.max_bits, before);
      double const bucket_scale = found.finite() ? norm::local_scale(found, q, o.x.type, 0) : 0.0;
      if (bucket_scales != nullptr) bucket_scales[b] = bucket_scale;
      if (scales != nullptr) o.write_scale(scales, b, bucket_scale);
      input_scale const in = input_scale_of(o.x.type, bucket_scale, 0, static_cast<double>(o.extent));
      return {power_of_two_float(in.exponent), in.gain, word};
    }
  }

  /// Raises the largest magnitude of all buckets. A read comes first, because an address takes about one atomic operation
  /// a cycle, and most buckets do not raise it.
  /// @param before  top_so_far()
  GLOBALQ_FUNCTION void raise_top(std::uint64_t most, std::uint64_t before) const {
    if (most > before) Kokkos::atomic_max(top, most);
  }
  /// A lower bound of the largest magnitude.
  GLOBALQ_FUNCTION std::uint64_t top_so_far() const {
#if defined(__CUDA_ARCH__)
    return *const_cast<std::uint64_t const volatile*>(
        top);  // Kokkos::atomic_load() would be a compare-and-swap
#else
    return 0;
#endif
  }

  /// Encodes the staged values of a thread.
  GLOBALQ_FUNCTION void encode(rows const& part, place const& p, int k, shared const& s,
                               std::byte* codes) const {
    typename rows::floats z;
    take(z, k, s);
    int bucket[rows::R];
    part.find_buckets(p.bucket, p.buckets - 1, bucket);
    typename rows::words words{};
    GLOBALQ_UNROLL
    for (int r = 0; r < rows::R; ++r) {
      encoding const e = s.encodings()[bucket[r]];
      GLOBALQ_UNROLL
      for (int i = 0; i < rows::N; ++i) {
        z[r][i] = multiply(Sum ? z[r][i] : multiply(z[r][i], e.power), e.gain);
        words[r][i] = e.word;
      }
    }
    typename rows::codes c;
    part.encode(!Sum, z, words,
                rows::draw(o, p.tile_of(k), lane_of(k), o.rank,
                           Sum ? random::purpose::requantize : random::purpose::encode),
                c);
    part.write(c, codes);
  }
};

}  // namespace GLOBALQ_ABI::kernel
