// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the places of 1-bit SGD's buckets in a vector, in a message and in its stripes.

#include "../../core/codec.hpp"
#include "../../core/error.hpp"
#include "../../kernel/executor.hpp"
#include "../../train/adapt/model_layout.hpp"
#include "two_means.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::baseline::detail {

/// Values that share two means. In a message, one word holds the means, and the words after it the bits.
struct bit_bucket {
  std::uint64_t first, count;  ///< its values
  std::uint64_t before;        ///< values of the buckets before it
  std::uint64_t word;          ///< where it begins in a message of all buckets
};

/// @brief The buckets of all layers, and their places in messages.
class bit_buckets {
 public:
  bit_buckets(adapt::model_layout const& layers, std::uint64_t bucket) {
    auto const width_of = [bucket](adapt::layer const& l) {
      return bucket != 0 ? bucket : std::max<std::uint64_t>(l.columns(), 1);
    };
    std::uint64_t buckets = 0;
    for (adapt::layer const& l : layers) buckets += divide_up(l.size, width_of(l));
    all_.reserve(buckets);  // fails at once if there are too many
    for (adapt::layer const& l : layers) {
      std::uint64_t const width = width_of(l);
      for (std::uint64_t at = 0; at < l.size; at += width) {
        std::uint64_t const count = std::min(width, l.size - at);
        all_.push_back({l.offset + at, count, values_, words_});
        values_ += count;
        words_ += 1 + divide_up<std::uint64_t>(count, 64);
      }
    }
  }

  /// Words of a message of all buckets.
  std::uint64_t words() const { return words_; }

  /// Consecutive buckets, their words in a message, and their values, counted without values between layers.
  struct range {
    std::span<bit_bucket const> buckets;
    std::uint64_t word = 0, words = 0, value = 0, values = 0;
  };
  range all() const { return {all_, 0, words_, 0, values_}; }
  /// The buckets that begin in a range of words: a bucket belongs to one segment, wherever words are cut.
  range in(segment part) const {
    auto const from = [&](std::uint64_t word) {
      return static_cast<std::size_t>(
          std::lower_bound(all_.begin(), all_.end(), word,
                           [](bit_bucket const& b, std::uint64_t w) { return b.word < w; }) -
          all_.begin());
    };
    std::size_t const a = from(part.first), b = from(part.first + part.count);
    auto const word = [&](std::size_t i) { return i < all_.size() ? all_[i].word : words_; };
    auto const value = [&](std::size_t i) { return i < all_.size() ? all_[i].before : values_; };
    return {std::span(all_).subspan(a, b - a), word(a), word(b) - word(a), value(a), value(b) - value(a)};
  }
  /// The stripe of a worker.
  range stripe(int workers, int rank) const {
    return in(globalq::partition(words_, workers, 1, 0).part(rank));
  }

 private:
  std::vector<bit_bucket> all_;
  std::uint64_t words_ = 0, values_ = 0;
};

/// f(bucket) for buckets, in parallel.
template <class F>
void each_bucket(kernel::host_executor const& on, std::span<bit_bucket const> buckets, F const& f) {
  constexpr std::uint64_t group = 32;  // a piece of work
  on.items(divide_up<std::uint64_t>(buckets.size(), group), [&](std::uint64_t g) {
    for (std::uint64_t b = g * group; b < std::min<std::uint64_t>(buckets.size(), (g + 1) * group); ++b)
      f(buckets[b]);
  });
}

/// Marks a bucket with a value that overflowed float32.
inline constexpr std::uint64_t beyond_range = std::uint64_t{float_infinity} << 32 | float_infinity;

/// @throws frame_error if a mean is not finite, except for the mark beyond_range if @p may_leave
/// @returns whether all buckets are within float32
inline bool check_means(bit_buckets::range part, std::uint64_t const* words, int worker, bool may_leave) {
  bool within = true;
  for (bit_bucket const& b : part.buckets) {
    std::uint64_t const* const here = words + (b.word - part.word);
    two_means const m = means_in(here);
    if (is_finite(m.positive) && is_finite(m.negative)) continue;
    if (!may_leave || *here != beyond_range)
      throw frame_error("globalq: one_bit: worker " + std::to_string(worker) +
                        " sent a mean that is not finite; the bytes are corrupt");
    within = false;
  }
  return within;
}

}  // namespace GLOBALQ_ABI::baseline::detail
