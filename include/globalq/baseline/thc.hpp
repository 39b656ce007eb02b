// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: THC: rotated values, rounded to a table that all workers share, and added as small integers.

#include "../kernel/host/value_leaves.hpp"
#include "../schedule/native.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/position_table.hpp"
#include "detail/round_up_or_down.hpp"

#include <bit>
#include <optional>

namespace GLOBALQ_ABI::baseline {

/// Parameters of thc; the same on every worker.
struct thc_options {
  int bits = 4;  ///< of an index into the table: 2, 4 or 8
  /// Values that are rotated together: a power of two; the last block of a run is padded to a power of two.
  std::uint64_t block = 8192;
  /// Steps of the even grid of the table's values, 2^bits - 1 (the values are then evenly spaced) to 1023. With more
  /// steps the table fits the values better, and sums need more bits. 0: 30 as published for 4 bits, 255 with 8 bits.
  int granularity = 0;
  /// Share of the rotated values, if they were normal, that are beyond the table's ends and are clipped, at most 1/2;
  /// it sets the ends as a multiple of the block's norm. Empty: 1/32 as published for 4 bits, 1/4096 with 8 bits. 0:
  /// the ends are the largest magnitude, and means are unbiased.
  std::optional<double> cut = {};
};

namespace detail {

/// The sum of squares, with eight partial sums.
GLOBALQ_LOOP double squares(float const* x, std::uint64_t count) {
  double sums[8] = {};
  std::uint64_t const whole = count / 8 * 8;
  for (std::uint64_t i = 0; i < whole; i += 8)
    for (std::uint64_t j = 0; j < 8; ++j)
      sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (std::uint64_t i = whole; i < count; ++i)
    sums[i - whole] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// @brief Positions of a table. One worker's positions are sent as indices of 2, 4 or 8 bits, since each position of
/// one worker is in the table; sums as sums of positions of 4, 8 or 16 bits, as many as that number of workers needs.
class position_codec final : public codec {
 public:
  static constexpr std::uint64_t tile = 2048;

  position_codec(kernel::host_executor const& on, std::span<std::uint16_t> values,
                 position_table const& table)
      : on_(on), values_(values), table_(table) {}

  /// Bits of a value of @p terms workers on the wire.
  int width(int terms) const {
    if (terms == 1) return table_.bits();
    std::uint64_t const largest = std::uint64_t{table_.granularity()} * static_cast<std::uint64_t>(terms);
    return largest < 16 ? 4 : (largest < 256 ? 8 : 16);
  }
  std::size_t frame_bytes(segment part, int terms) const override {
    return divide_up<std::uint64_t>(part.count * static_cast<std::uint64_t>(width(terms)), 8);
  }
  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    add(part, own, sources, [&](std::uint64_t first, std::uint64_t count, std::uint16_t* sums) {
      if (terms == 1) look_up(table_.indices().data(), sums, count, sums);
      pack(sums, count, width(terms), out.data() + first * static_cast<std::uint64_t>(width(terms)) / 8);
    });
  }
  void finish(segment part, std::span<source const> sources) override {
    add(part, false, sources, [&](std::uint64_t first, std::uint64_t count, std::uint16_t const* sums) {
      std::copy_n(sums, count, values_.data() + part.first + first);
    });
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  /// Packs values narrower than a byte: the first in its lowest bits.
  template <unsigned Bits>
  GLOBALQ_LOOP static void pack_narrow(std::uint16_t const* in, std::uint64_t count, std::uint8_t* out) {
    constexpr std::uint64_t each = 8 / Bits;
    for (std::uint64_t i = 0; i < count / each; ++i) {
      unsigned byte = 0;
      for (unsigned j = 0; j < each; ++j) byte |= static_cast<unsigned>(in[each * i + j]) << (Bits * j);
      out[i] = static_cast<std::uint8_t>(byte);
    }
    std::uint64_t const whole = count / each * each;
    if (whole == count) return;
    unsigned byte = 0;
    for (std::uint64_t i = whole; i < count; ++i)
      byte |= static_cast<unsigned>(in[i]) << (Bits * (i - whole));
    out[count / each] = static_cast<std::uint8_t>(byte);
  }
  template <unsigned Bits>
  GLOBALQ_LOOP static void unpack_narrow(std::uint8_t const* in, std::uint64_t count, std::uint16_t* out) {
    constexpr std::uint64_t each = 8 / Bits;
    constexpr unsigned mask = (1U << Bits) - 1;
    for (std::uint64_t i = 0; i < count / each; ++i)
      for (unsigned j = 0; j < each; ++j)
        out[each * i + j] = static_cast<std::uint16_t>(in[i] >> (Bits * j) & mask);
    std::uint64_t const whole = count / each * each;
    for (std::uint64_t i = whole; i < count; ++i)
      out[i] = static_cast<std::uint16_t>(in[i / each] >> (Bits * (i - whole)) & mask);
  }

  GLOBALQ_LOOP static void pack(std::uint16_t const* in, std::uint64_t count, int width, std::byte* out) {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(out);
    if (width == 16) {
      std::memcpy(out, in, 2 * count);
    } else if (width == 8) {
      for (std::uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(in[i]);
    } else if (width == 4) {
      pack_narrow<4>(in, count, bytes);
    } else {
      pack_narrow<2>(in, count, bytes);
    }
  }
  GLOBALQ_LOOP static void unpack(std::byte const* in, std::uint64_t count, int width, std::uint16_t* out) {
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(in);
    if (width == 16) {
      std::memcpy(out, in, 2 * count);
    } else if (width == 8) {
      for (std::uint64_t i = 0; i < count; ++i) out[i] = bytes[i];
    } else if (width == 4) {
      unpack_narrow<4>(bytes, count, out);
    } else {
      unpack_narrow<2>(bytes, count, out);
    }
  }
  /// out[i] = table[in[i]]; both may be the same memory.
  GLOBALQ_LOOP static void look_up(std::uint16_t const* table, std::uint16_t const* in, std::uint64_t count,
                                   std::uint16_t* out) {
    for (std::uint64_t i = 0; i < count; ++i) out[i] = table[in[i]];
  }
  GLOBALQ_LOOP static void add_to(std::uint16_t* __restrict sums, std::uint16_t const* __restrict in,
                                  std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) sums[i] = static_cast<std::uint16_t>(sums[i] + in[i]);
  }

  template <class Use>
  void add(segment part, bool own, std::span<source const> sources, Use const& use) const {
    on_.items(divide_up(part.count, tile), [&](std::uint64_t t) {
      std::uint64_t const first = t * tile, count = std::min(tile, part.count - first);
      std::uint16_t sums[tile];
      if (own)
        std::copy_n(values_.data() + part.first + first, count, sums);
      else
        std::fill_n(sums, count, std::uint16_t{0});
      for (source const& s : sources) {
        std::uint16_t theirs[tile];
        unpack(s.frame.data() + first * static_cast<std::uint64_t>(width(s.terms)) / 8, count, width(s.terms),
               theirs);
        if (s.terms == 1) look_up(table_.positions().data(), theirs, count, theirs);
        add_to(sums, theirs, count);
      }
      use(first, count, sums);
    });
  }

  kernel::host_executor const& on_;
  std::span<std::uint16_t> values_;
  position_table const& table_;
};

}  // namespace detail

/// @brief Rotates blocks by a random Hadamard transform that all workers share, so that values of a block become nearly
/// normal; rounds them at random to the 2^bits values of a table that all workers share, and adds these as integers.
///
/// The table covers [-range, range], with the range a multiple of the block's norm, and the largest one of all workers.
/// Its values lie on an even grid, whose positions can be added, such that rounding has the least variance. Rounding is
/// unbiased within the range; the few values beyond are clipped, which is biased: use error_feedback, or set `cut` to
/// 0. With `cut` 0 and a granularity of 2^bits - 1 this is the paper's uniform THC, whose range is the largest
/// magnitude. A call exchanges one float32 for each block, then sums over the schedule: a worker's own values as
/// indices, sums in 4, 8 or 16 bits.
/// @tparam Schedule  any except schedule::native
/// @complexity       bytes sent with 4 bits and granularity 30 over scatter-reduce-allgather: 1.5 d (n-1)/n for up to 8
///                   workers,
///                   2.5 d (n-1)/n for more; d log2(block) additions to rotate, and as many to rotate back
/// @determinism      bit-identical on all workers
/// @source           Li et al. 2024 (THC), sections 4 and 5; the table's ends for `cut` 0 (optimal for a normal
///                   variable of which one value of a block is beyond the ends), and the choices for 8 bits, are ours
template <class Schedule = schedule::scatter_reduce_allgather>
class thc {
 public:
  /// @throws configuration_error for other bits, a block that is not a power of two from 2 to 2^20, a granularity or a
  ///         cut outside the ranges of thc_options, schedule native, and a layer that is not float32
  explicit thc(adapt::model_layout layers, thc_options const& how = {}, options const& settings = {},
               Schedule schedule = {})
      : schedule_(std::move(schedule)),
        how_(checked(how)),
        ends_(detail::two_sided_quantile(*how_.cut > 0 ? *how_.cut : 1 / static_cast<double>(how_.block))),
        table_(how_.bits, how_.granularity, ends_),
        caller_("thc", std::move(layers), settings, parameters(), schedule::detail::text_of(schedule_), 1) {
    if (schedule::detail::text_of(schedule_) == schedule::native::name)
      throw configuration_error(
          "globalq: thc: schedule native cannot send sums in more bits than indices; use "
          "scatter_reduce_allgather, ring or tree");
    std::uint64_t blocks = 0;
    for (detail::run const& r : caller_.runs()) blocks += divide_up(r.count, how_.block);
    blocks_.reserve(blocks);  // fails at once if there are too many
    for (detail::run const& r : caller_.runs())
      for (std::uint64_t at = 0; at < r.count; at += how_.block) {
        std::uint64_t const count = std::min(how_.block, r.count - at);
        blocks_.push_back({r.first + at, count, std::bit_ceil(count), total_});
        total_ += std::bit_ceil(count);
      }
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }

  /// See Compressor.
  /// @throws configuration_error on all workers if workers times granularity does not fit 16 bits
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(workers, on, x, mean, rest, step, caller_.largest(on, x),
                        [&](auto const& o, auto left) {
                          if (static_cast<std::uint64_t>(workers.size()) * table_.granularity() > 65535)
                            throw configuration_error(
                                "globalq: thc: sums of " + std::to_string(workers.size()) +
                                " positions of granularity " + std::to_string(how_.granularity) +
                                " do not fit 16 bits; use a lower granularity, and fewer bits if needed");
                          return exchange(workers, on, x.data(), mean.data(),
                                          left.empty() ? nullptr : left.data(), step, o.top);
                        });
  }

 private:
  struct block {
    std::uint64_t first, count;   ///< values of the vector
    std::uint64_t padded, place;  ///< size and place of the rotated values
  };

  /// Checks the options and replaces defaults.
  static thc_options checked(thc_options how) {
    if (how.bits != 2 && how.bits != 4 && how.bits != 8)
      throw configuration_error("globalq: thc: " + std::to_string(how.bits) + " bits; use 2, 4 or 8");
    if (how.block < 2 || how.block > (1U << 20) || !std::has_single_bit(how.block))
      throw configuration_error("globalq: thc: a block of " + std::to_string(how.block) +
                                " values; use a power of two from 2 to 2^20");
    int const least = (1 << how.bits) - 1, most = 1023;
    if (how.granularity == 0) how.granularity = std::max(30, least);
    if (how.granularity < least || how.granularity > most)
      throw configuration_error("globalq: thc: a granularity of " + std::to_string(how.granularity) +
                                " with " + std::to_string(how.bits) + " bits; use " + std::to_string(least) +
                                " to " + std::to_string(most));
    if (!how.cut) how.cut = how.bits == 8 ? 1.0 / 4096 : 1.0 / 32;
    if (!(*how.cut >= 0 && *how.cut <= 0.5))
      throw configuration_error("globalq: thc: the cut is " + std::to_string(*how.cut) + "; use 0 to 0.5");
    return how;
  }
  /// Includes the table: mathematical libraries may differ in the last bit.
  std::uint64_t parameters() const {
    std::uint64_t h = globalq::detail::hash(0, static_cast<std::uint64_t>(how_.bits));
    h = globalq::detail::hash(h, how_.block);
    h = globalq::detail::hash(h, static_cast<std::uint64_t>(how_.granularity));
    h = detail::hash_of(h, *how_.cut);
    for (std::uint16_t position : table_.positions()) h = globalq::detail::hash(h, std::uint64_t{position});
    return h;
  }

  template <class F>
  void each_block(kernel::host_executor const& on, F const& f) const {
    on.items(blocks_.size(), [&](std::uint64_t b) { f(b, blocks_[b]); });
  }

  /// The range that this worker's rotated values of a block need. A transform of k values makes none larger than
  /// sqrt(k) times their norm.
  /// @param norm  of the values before the rotation
  float range_of(float const* rotated, block const& b, double norm) const {
    if (*how_.cut == 0) return float_of(detail::largest_bits(rotated, b.padded));
    return static_cast<float>(std::min(ends_, std::sqrt(static_cast<double>(b.count))) * norm);
  }

  /// Computes values from sums of positions, in double, rounded once.
  /// @param all  the largest possible sum; share: half the range's width, divided by it
  GLOBALQ_LOOP static void values_of(std::uint16_t const* sums, std::uint64_t count, std::uint32_t all,
                                     double share, float* out) {
    for (std::uint64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(
          static_cast<double>(2 * static_cast<std::int32_t>(sums[i]) - static_cast<std::int32_t>(all)) *
          share);
  }

  template <Transport T>
  outcome exchange(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                   std::uint64_t step, double largest) {
    auto const n = static_cast<std::size_t>(workers.size());
    std::uint64_t const seed = caller_.settings().seed;
    random::stream const signs{seed, step, 0, random::purpose::rotate};
    random::stream const words{seed, step, static_cast<std::uint32_t>(workers.rank()),
                               random::purpose::encode};
    // values are divided by a power of two, so that no sum of a block overflows
    int const e = largest > 0 ? exponent_of(largest) : 0;
    double const down = power_of_two(-e), up = power_of_two(e);
    rotated_.resize(total_);
    positions_.resize(total_);
    auto& memory = caller_.memory();
    float* const ranges = memory.mine.get_values<float>(blocks_.size());
    float* const all = memory.all.get_values<float>(blocks_.size() * n);
    each_block(on, [&](std::uint64_t k, block const& b) {
      float* const v = rotated_.data() + b.place;
      for (std::uint64_t i = 0; i < b.count; ++i)
        v[i] = static_cast<float>(static_cast<double>(x[b.first + i]) * down);
      std::fill_n(v + b.count, b.padded - b.count, 0.0F);
      double const norm = std::sqrt(detail::squares(v, b.count));
      leaf_->turn_signs(signs, b.place, b.padded, 1, v, v);
      leaf_->hadamard(v, b.padded);
      ranges[k] = range_of(v, b, norm);
    });
    caller_.allgather(workers, std::span<float const>(ranges, blocks_.size()),
                      std::span(all, blocks_.size() * n));
    for (std::size_t k = 0; k < blocks_.size(); ++k)
      for (std::size_t r = 0; r < n; ++r) {
        float const theirs = all[r * blocks_.size() + k];
        if (!is_finite(theirs) || theirs < 0)
          throw frame_error("globalq: thc: worker " + std::to_string(r) +
                            " sent a negative or non-finite range; the bytes are corrupt");
        ranges[k] = std::max(ranges[k], theirs);
      }

    each_block(on, [&](std::uint64_t k, block const& b) {
      double const most = table_.granularity(), half = most / 2;
      double const gain = ranges[k] > 0 ? half / static_cast<double>(ranges[k]) : 0;
      detail::with_words(words, b.place, b.padded, [&](std::uint64_t i, int count, std::uint32_t const* w) {
        detail::round_to_cells(rotated_.data() + b.place + i, count, gain, half, most, table_.cells().data(),
                               w, positions_.data() + b.place + i);
      });
    });
    if (rest != nullptr) own_ = positions_;

    if (n > 1 && total_ != 0) {
      detail::position_codec codes(on, positions_, table_);
      caller_.exchange(workers, schedule_, codes,
                       globalq::partition(total_, schedule_.parts(workers.size()),
                                          detail::position_codec::tile, caller_.chunk_values(workers, 1)));
    }
    auto const timed = caller_.enter(phase::decode);
    decode(on, positions_, static_cast<std::uint32_t>(n), ranges, up);
    unrotate(on, signs);
    if (detail::largest_bits(rotated_.data(), total_) >= float_infinity) return outcome::not_finite;
    if (rest == nullptr) {
      copy_out(on, mean);
      return outcome::mean;
    }
    sums_.resize(caller_.layers().length());
    copy_out(on, sums_.data());
    decode(on, own_, 1, ranges, up);
    unrotate(on, signs);
    each_block(on, [&](std::uint64_t, block const& b) {
      for (std::uint64_t i = 0; i < b.count; ++i) rest[b.first + i] = x[b.first + i] - rotated_[b.place + i];
    });
    detail::copy(on, caller_.blocks(), sums_.data(), mean);
    return outcome::mean;
  }

  /// rotated_ = the values of sums of positions, divided by the size of their block.
  void decode(kernel::host_executor const& on, std::span<std::uint16_t const> sums, std::uint32_t terms,
              float const* ranges, double up) {
    each_block(on, [&](std::uint64_t k, block const& b) {
      std::uint32_t const most = terms * table_.granularity();
      double const share = static_cast<double>(ranges[k]) / most;
      values_of(sums.data() + b.place, b.padded, most, rounded(share / static_cast<double>(b.padded)) * up,
                rotated_.data() + b.place);
    });
  }
  void unrotate(kernel::host_executor const& on, random::stream const& signs) {
    each_block(on, [&](std::uint64_t, block const& b) {
      leaf_->hadamard(rotated_.data() + b.place, b.padded);
      leaf_->turn_signs(signs, b.place, b.padded, 1, rotated_.data() + b.place, rotated_.data() + b.place);
    });
  }
  void copy_out(kernel::host_executor const& on, float* y) const {
    each_block(on, [&](std::uint64_t, block const& b) {
      std::copy_n(rotated_.data() + b.place, b.count, y + b.first);
    });
  }

  Schedule schedule_;
  thc_options how_;
  double ends_;  ///< of the table, in deviations of a normal variable
  detail::position_table table_;
  detail::caller caller_;
  std::vector<block> blocks_;
  std::uint64_t total_ = 0;
  std::vector<float> rotated_, sums_;
  kernel::value_leaves const* leaf_ = &kernel::host::leaves_of_values();
  std::vector<std::uint16_t> positions_, own_;
};

}  // namespace GLOBALQ_ABI::baseline
