// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: THC: rotated values, rounded to a table that all workers share, and added as small integers.

#include "../schedule/native.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/hadamard.hpp"
#include "detail/round_up_or_down.hpp"

#include <bit>

namespace globalq::compressor {

/// Parameters of thc; the same on every worker.
struct thc_options {
  int bits = 4;  ///< of an index into the table: 2, 4 or 8
  std::uint64_t block =
      8192;  ///< values that are rotated together: a power of two; the last ones of a run are filled up to one
};

namespace detail {

/// @brief Indices below 2^bits, which travel in 4, 8 or 16 bits, as many as the sum of so many workers needs.
class index_codec final : public codec {
 public:
  static constexpr std::uint64_t tile = 2048;

  index_codec(kernel::host_executor const& on, std::span<std::uint16_t> values, int bits)
      : on_(on), values_(values), most_((1U << bits) - 1) {}

  /// Bits of a sum of @p terms indices on the wire.
  int width(int terms) const {
    std::uint64_t const largest = static_cast<std::uint64_t>(most_) * static_cast<std::uint64_t>(terms);
    return largest < 16 ? 4 : (largest < 256 ? 8 : 16);
  }
  std::size_t frame_bytes(segment part, int terms) const override {
    return divide_up<std::uint64_t>(part.count * static_cast<std::uint64_t>(width(terms)), 8);
  }
  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    add(part, own, sources, [&](std::uint64_t first, std::uint64_t count, std::uint16_t const* sums) {
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
  GLOBALQ_LOOP static void pack(std::uint16_t const* in, std::uint64_t count, int width, std::byte* out) {
    auto* const bytes = reinterpret_cast<std::uint8_t*>(out);
    if (width == 16) {
      std::memcpy(out, in, 2 * count);
    } else if (width == 8) {
      for (std::uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(in[i]);
    } else {
      for (std::uint64_t i = 0; i < count / 2; ++i)
        bytes[i] = static_cast<std::uint8_t>(in[2 * i] | in[2 * i + 1] << 4);
      if (count % 2 != 0) bytes[count / 2] = static_cast<std::uint8_t>(in[count - 1]);
    }
  }
  GLOBALQ_LOOP static void add_packed(std::byte const* in, std::uint64_t count, int width,
                                      std::uint16_t* sums) {
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(in);
    if (width == 16) {
      add_lanes(sums, in, count);
    } else if (width == 8) {
      for (std::uint64_t i = 0; i < count; ++i) sums[i] = static_cast<std::uint16_t>(sums[i] + bytes[i]);
    } else {
      for (std::uint64_t i = 0; i < count / 2; ++i) {
        sums[2 * i] = static_cast<std::uint16_t>(sums[2 * i] + (bytes[i] & 15));
        sums[2 * i + 1] = static_cast<std::uint16_t>(sums[2 * i + 1] + (bytes[i] >> 4));
      }
      if (count % 2 != 0)
        sums[count - 1] = static_cast<std::uint16_t>(sums[count - 1] + (bytes[count / 2] & 15));
    }
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
      for (source const& s : sources)
        add_packed(s.frame.data() + first * static_cast<std::uint64_t>(width(s.terms)) / 8, count,
                   width(s.terms), sums);
      use(first, count, sums);
    });
  }

  kernel::host_executor const& on_;
  std::span<std::uint16_t> values_;
  std::uint32_t most_;
};

}  // namespace detail

/// @brief Rotates blocks by a random Hadamard transform that all workers share, so that values in a block become alike; rounds
/// them, at random and without bias, to 2^bits even levels between minus and plus the block's largest magnitude over all
/// workers; and adds the indices of the levels, which is adding the values.
///
/// Unbiased (the paper's uniform THC; it also cuts off rare large values at a bound from the norm, which is biased, and
/// has uneven tables). One exchange of a float32 for each block, then a sum over the schedule: one worker's indices travel
/// in 4 or 8 bits, sums in 8 or 16.
/// @tparam Schedule  not schedule::native
/// @complexity       bytes sent with 4 bits over scatter-reduce-allgather, up to 17 workers: 1.5 d (n-1)/n; d log2(block)
///                   additions to rotate, and as many to rotate back
/// @determinism      bit-identical on all workers
/// @source           Li et al. 2024 (THC), sections 4 and 5
template <class Schedule = schedule::scatter_reduce_allgather>
class thc {
 public:
  /// @throws configuration_error for other bits, a block that is no power of two from 2 to 2^20, and a layer that is not float32
  explicit thc(adapt::layout layers, thc_options const& how = {}, options const& settings = {},
               Schedule schedule = {})
      : schedule_(std::move(schedule)),
        how_(how),
        caller_(
            "thc", std::move(layers), settings,
            globalq::detail::hash(globalq::detail::hash(0, static_cast<std::uint64_t>(how.bits)), how.block),
            schedule::detail::text_of(schedule_)) {
    if (schedule::detail::text_of(schedule_) == schedule::native::name)
      throw configuration_error(
          "globalq: thc: sums travel in more bits than indices, which schedule native "
          "cannot do; use scatter_reduce_allgather, ring or tree");
    if (how.bits != 2 && how.bits != 4 && how.bits != 8)
      throw configuration_error("globalq: thc: " + std::to_string(how.bits) + " bits; use 2, 4 or 8");
    if (how.block < 2 || how.block > (1U << 20) || !std::has_single_bit(how.block))
      throw configuration_error("globalq: thc: a block of " + std::to_string(how.block) +
                                " values; use a power of two from 2 to 2^20");
    for (detail::run const& r : caller_.runs())
      for (std::uint64_t at = 0; at < r.count; at += how.block) {
        std::uint64_t const count = std::min(how.block, r.count - at);
        blocks_.push_back({r.first + at, count, std::bit_ceil(count), total_});
        total_ += std::bit_ceil(count);
      }
  }

  adapt::layout const& layers() const { return caller_.layers(); }

  /// See Compressor.
  /// @throws configuration_error on all workers where a sum of their indices does not fit 16 bits
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = detail::executor_of(workers);
    return caller_.call(
        workers, on, x, mean, rest, step, caller_.largest(on, x), [&](auto const& o, auto left) {
          if (static_cast<std::uint64_t>(workers.size()) * top() > 65535)
            throw configuration_error("globalq: thc: sums of " + std::to_string(workers.size()) +
                                      " indices of " + std::to_string(how_.bits) +
                                      " bits do not fit 16 bits; use fewer bits");
          return exchange(workers, on, x.data(), mean.data(), left.empty() ? nullptr : left.data(), step,
                          o.top);
        });
  }

 private:
  struct block {
    std::uint64_t first, count;   ///< values of the vector
    std::uint64_t padded, place;  ///< and where its rotated values lie
  };
  std::uint32_t top() const { return (1U << how_.bits) - 1; }

  template <class F>
  void each_block(kernel::host_executor const& on, F const& f) const {
    on.items(blocks_.size(), [&](std::uint64_t b) { f(b, blocks_[b]); });
  }

  /// Values from the sum of k indices: (2 sum - k top) range / (k top), in double, rounded once.
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
    indices_.resize(total_);
    auto& memory = caller_.memory();
    float* const ranges = memory.mine.get_values<float>(blocks_.size());
    float* const all = memory.all.get_values<float>(blocks_.size() * n);
    each_block(on, [&](std::uint64_t k, block const& b) {
      float* const v = rotated_.data() + b.place;
      for (std::uint64_t i = 0; i < b.count; ++i)
        v[i] = static_cast<float>(static_cast<double>(x[b.first + i]) * down);
      std::fill_n(v + b.count, b.padded - b.count, 0.0F);
      detail::turn_signs(signs, b.place, b.padded, v);
      detail::hadamard(v, b.padded);
      ranges[k] = float_of(detail::largest_bits(v, b.padded));
    });
    caller_.allgather(workers, std::span<float const>(ranges, blocks_.size()),
                      std::span(all, blocks_.size() * n));
    for (std::size_t k = 0; k < blocks_.size(); ++k)
      for (std::size_t r = 0; r < n; ++r) {
        float const theirs = all[r * blocks_.size() + k];
        if (!is_finite(theirs) || theirs < 0)
          throw frame_error("globalq: thc: worker " + std::to_string(r) +
                            " sent a range that is no magnitude; the bytes were damaged");
        ranges[k] = std::max(ranges[k], theirs);
      }

    each_block(on, [&](std::uint64_t k, block const& b) {
      double const half = top() / 2.0, gain = ranges[k] > 0 ? half / static_cast<double>(ranges[k]) : 0;
      detail::round_all(words, b.place, rotated_.data() + b.place, b.padded, gain, half, 0.0,
                        static_cast<double>(top()), indices_.data() + b.place);
    });
    if (rest != nullptr) own_.assign(indices_.begin(), indices_.end());

    if (n > 1 && total_ != 0) {
      std::uint64_t const chunk = caller_.settings().chunk_values;
      detail::index_codec codes(on, indices_, how_.bits);
      caller_.exchange(workers, schedule_, codes,
                       globalq::layout(total_, schedule_.parts(workers.size()), detail::index_codec::tile,
                                       chunk != 0 ? chunk : detail::message_bytes(workers)));
    }
    auto const timed = caller_.enter(phase::decode);
    decode(on, indices_, static_cast<std::uint32_t>(n), ranges, up);
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

  /// rotated_ = the values of sums of indices, divided by the length of their block.
  void decode(kernel::host_executor const& on, std::span<std::uint16_t const> sums, std::uint32_t terms,
              float const* ranges, double up) {
    each_block(on, [&](std::uint64_t k, block const& b) {
      double const share = static_cast<double>(ranges[k]) / (static_cast<double>(terms) * top());
      values_of(sums.data() + b.place, b.padded, terms * top(),
                rounded(share / static_cast<double>(b.padded)) * up, rotated_.data() + b.place);
    });
  }
  void unrotate(kernel::host_executor const& on, random::stream const& signs) {
    each_block(on, [&](std::uint64_t, block const& b) {
      detail::hadamard(rotated_.data() + b.place, b.padded);
      detail::turn_signs(signs, b.place, b.padded, rotated_.data() + b.place);
    });
  }
  void copy_out(kernel::host_executor const& on, float* y) const {
    each_block(on, [&](std::uint64_t, block const& b) {
      std::copy_n(rotated_.data() + b.place, b.count, y + b.first);
    });
  }

  Schedule schedule_;
  thc_options how_;
  detail::caller caller_;
  std::vector<block> blocks_;
  std::uint64_t total_ = 0;
  std::vector<float> rotated_, sums_;
  std::vector<std::uint16_t> indices_, own_;
};

}  // namespace globalq::compressor
