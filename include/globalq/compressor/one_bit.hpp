// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: 1-bit SGD: signs, and for each bucket the means of its values above and below zero.

#include "detail/caller.hpp"
#include "detail/signs.hpp"

namespace globalq::compressor {

/// Parameters of one_bit; the same on every worker.
struct one_bit_options {
  /// Values that share two means; 0: a row of each matrix, where the paper has a column. A bucket does not cross layers.
  std::uint64_t bucket = 512;
};

/// @brief Every worker sends a bit for each value, and two float32 for each bucket: what the bits stand for.
///
/// Of all ways to send signs with two numbers a bucket this has the least squared error: the means of the values at or above
/// zero and of those below. Biased: made for error_feedback. Every worker gets the frames of all and adds them (the paper
/// adds at one worker for each stripe, and encodes the sum again with an error of its own, which is one more loss).
/// @complexity  bytes sent: (d/8 + 8 d/bucket) (n-1)
/// @determinism bit-identical on all workers: values are added in rank order
/// @source      Seide et al. 2014
class one_bit {
 public:
  /// @throws configuration_error for a layer that is not float32
  explicit one_bit(adapt::layout layers, one_bit_options const& how = {}, options const& settings = {})
      : caller_("one_bit", std::move(layers), settings, how.bucket) {
    for (adapt::layer const& l : caller_.layers()) {
      std::uint64_t const width = how.bucket != 0 ? how.bucket : std::max<std::uint64_t>(l.columns(), 1);
      for (std::uint64_t at = 0; at < l.size; at += width) {
        std::uint64_t const count = std::min(width, l.size - at);
        buckets_.push_back({l.offset + at, count, words_});
        words_ += divide_up<std::uint64_t>(count, 64);
      }
    }
  }

  adapt::layout const& layers() const { return caller_.layers(); }
  /// Bytes that a worker sends to each other one.
  std::size_t frame_bytes() const { return 8 * (words_ + buckets_.size()); }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = detail::executor_of(workers);
    return caller_.call(
        workers, on, x, mean, rest, step, caller_.largest(on, x), [&](auto const& o, auto left) {
          return exchange(workers, on, x.data(), mean.data(), left.empty() ? nullptr : left.data(), o.unit);
        });
  }

 private:
  struct bucket {
    std::uint64_t first, count, words;
  };
  struct means {
    float positive, negative;
  };
  static_assert(sizeof(means) == 8);
  static constexpr std::uint64_t group = 32;  ///< buckets in a piece of work

  template <class F>
  void each_bucket(kernel::host_executor const& on, F const& f) const {
    on.items(divide_up<std::uint64_t>(buckets_.size(), group), [&](std::uint64_t g) {
      for (std::uint64_t b = g * group; b < std::min<std::uint64_t>(buckets_.size(), (g + 1) * group); ++b)
        f(b, buckets_[b]);
    });
  }

  /// The means of the values at or above zero and of those below, in 16 partial sums.
  GLOBALQ_LOOP static means means_of(float const* x, std::uint64_t count) {
    constexpr std::uint64_t lanes = 16;
    double sums[lanes] = {}, below[lanes] = {};
    std::uint32_t negatives[lanes] = {};
    std::uint64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (std::uint64_t j = 0; j < lanes; ++j) {
        float const v = x[i + j], low = v < 0 ? v : 0.0F;
        sums[j] += static_cast<double>(v);
        below[j] += static_cast<double>(low);
        negatives[j] += v < 0 ? 1U : 0U;
      }
    for (std::uint64_t j = 0; i < count; ++i, ++j) {
      sums[j] += static_cast<double>(x[i]);
      below[j] += x[i] < 0 ? static_cast<double>(x[i]) : 0.0;
      negatives[j] += x[i] < 0 ? 1U : 0U;
    }
    double all = 0, low = 0;
    std::uint64_t negative = 0;
    for (std::uint64_t j = 0; j < lanes; ++j) {
      all += sums[j];
      low += below[j];
      negative += negatives[j];
    }
    double const above = all - low;
    return {negative == count || above < 0
                ? 0.0F
                : static_cast<float>(above / static_cast<double>(count - negative)),
            negative == 0 ? 0.0F : static_cast<float>(low / static_cast<double>(negative))};
  }

  template <Transport T>
  outcome exchange(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                   double unit) {
    auto const n = static_cast<std::uint64_t>(workers.size());
    std::uint64_t const words = words_ + buckets_.size();
    auto& memory = caller_.memory();
    auto* const mine = memory.mine.get_values<std::uint64_t>(words);
    auto* const all = memory.all.get_values<std::uint64_t>(words * n);
    float const share = static_cast<float>(1 / unit);
    // a frame: the means of all buckets, then their bits
    each_bucket(on, [&](std::uint64_t b, bucket const& at) {
      means m = means_of(x + at.first, at.count);
      m = {m.positive * share, m.negative * share};
      std::memcpy(mine + b, &m, sizeof m);
      detail::pack_signs(x + at.first, at.count, mine + buckets_.size() + at.words);
    });
    caller_.allgather(workers, std::span<std::uint64_t const>(mine, words), std::span(all, words * n));
    auto const timed = caller_.enter(phase::decode);
    for (std::uint64_t r = 0; r < n; ++r)
      for (std::uint64_t b = 0; b < buckets_.size(); ++b) {
        means m;
        std::memcpy(&m, all + r * words + b, sizeof m);
        if (!is_finite(m.positive) || !is_finite(m.negative))
          throw frame_error("globalq: one_bit: worker " + std::to_string(r) +
                            " sent a mean that is not finite; the bytes were damaged");
      }
    double const factor = unit / static_cast<double>(n);
    auto const add = [&](std::uint64_t b, bucket const& at, float* sums) {
      std::fill_n(sums, at.count, 0.0F);
      for (std::uint64_t r = 0; r < n; ++r) {
        means m;
        std::memcpy(&m, all + r * words + b, sizeof m);
        detail::add_signed(all + r * words + buckets_.size() + at.words, at.count, m.positive, m.negative,
                           sums);
      }
      for (std::uint64_t i = 0; i < at.count; ++i)
        sums[i] = static_cast<float>(static_cast<double>(sums[i]) * factor);
    };
    // the mean of means is at most the largest of them but for rounding, so only the largest numbers need a look first
    if (unit != 1) {
      std::atomic<bool> finite{true};
      sums_.resize(caller_.layers().length());
      each_bucket(on, [&](std::uint64_t b, bucket const& at) {
        add(b, at, sums_.data() + at.first);
        if (detail::largest_bits(sums_.data() + at.first, at.count) >= float_infinity) finite = false;
      });
      if (!finite) return outcome::not_finite;
    }
    each_bucket(on, [&](std::uint64_t b, bucket const& at) {
      if (rest != nullptr) {
        means m;
        std::memcpy(&m, mine + b, sizeof m);
        m = {static_cast<float>(m.positive * unit), static_cast<float>(m.negative * unit)};
        for (std::uint64_t i = at.first; i < at.first + at.count; ++i)
          rest[i] = x[i] - (x[i] < 0 ? m.negative : m.positive);
      }
      add(b, at, mean + at.first);
    });
    return outcome::mean;
  }

  detail::caller caller_;
  std::vector<bucket> buckets_;
  std::uint64_t words_ = 0;
  std::vector<float> sums_;
};

}  // namespace globalq::compressor
