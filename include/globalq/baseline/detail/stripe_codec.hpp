// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: messages of buckets of 1-bit SGD; the owner of a stripe adds them.

#include "bit_buckets.hpp"
#include "blocks.hpp"
#include "sums_codec.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::baseline::detail {

/// @brief Messages of buckets: a worker's own, and those of the mean, which the owner of a stripe computes.
class stripe_codec final : public codec {
 public:
  /// @param own     this worker's message of all buckets, its means in units of @p divisor
  /// @param means   receives the message of the mean
  /// @param before  the residual of this worker's stripe; null: zeros
  /// @param after   receives the residual after this call
  /// @param from    reused memory: the message of each worker, in order of ranks
  stripe_codec(kernel::host_executor const& on, bit_buckets const& buckets, int workers, int rank,
               double divisor, std::uint64_t const* own, std::uint64_t* means, float const* before,
               float* after, std::vector<std::uint64_t const*>& from)
      : on_(on),
        buckets_(buckets),
        rank_(rank),
        factor_(divisor / workers),
        stripe_(buckets.stripe(workers, rank).value),
        own_(own),
        means_(means),
        before_(before),
        after_(after),
        from_(from) {
    from_.resize(static_cast<std::size_t>(workers));
  }

  /// Whether the mean is within float32; the same on every worker.
  bool within() const { return within_; }

  std::size_t frame_bytes(segment part, int) const override { return 8 * buckets_.in(part).words; }
  void combine(segment part, bool, std::span<source const> sources, std::span<std::byte> out) override {
    auto const here = buckets_.in(part);
    auto* const to = reinterpret_cast<std::uint64_t*>(out.data());
    if (sources.empty()) {
      std::copy_n(own_ + here.word, here.words, to);
      return;
    }
    from_[static_cast<std::size_t>(rank_)] = own_ + here.word;
    for (source const& s : sources) {
      auto const* const words = reinterpret_cast<std::uint64_t const*>(s.frame.data());
      check_means(here, words, s.worker, false);
      from_[static_cast<std::size_t>(s.worker)] = words;
    }
    each_bucket(on_, here.buckets, [&](bit_bucket const& b) {
      std::uint64_t const word = b.word - here.word, value = b.before - stripe_;
      float* const sums = after_ + value;
      std::fill_n(sums, b.count, 0.0F);
      for (std::uint64_t const* words : from_) add_bucket(words + word, b.count, sums);
      scale_sums(sums, b.count, factor_);
      if (before_ != nullptr) add_values(sums, reinterpret_cast<std::byte const*>(before_ + value), b.count);
      if (largest_bits(sums, b.count) >= float_infinity) {
        std::fill_n(to + word, 1 + divide_up<std::uint64_t>(b.count, 64), std::uint64_t{0});
        to[word] = beyond_range;
        return;
      }
      leave_over(sums, b.count, write_bucket(sums, b.count, 1, to + word), sums);
    });
  }
  void finish(segment part, std::span<source const> sources) override {
    auto const here = buckets_.in(part);
    if (here.words == 0) return;
    std::memcpy(means_ + here.word, sources[0].frame.data(), 8 * here.words);
    within_ = check_means(here, means_ + here.word, sources[0].worker, true) && within_;
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  kernel::host_executor const& on_;
  bit_buckets const& buckets_;
  int rank_;
  double factor_;
  std::uint64_t stripe_;  ///< the first value of this worker's stripe
  std::uint64_t const* own_;
  std::uint64_t* means_;
  float const* before_;
  float* after_;
  std::vector<std::uint64_t const*>& from_;
  bool within_ = true;
};

}  // namespace GLOBALQ_ABI::baseline::detail
