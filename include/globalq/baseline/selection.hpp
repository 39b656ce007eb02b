// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: finds the k values of largest magnitude.

#include "../core/error.hpp"
#include "detail/blocks.hpp"
#include "detail/keep_large.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// @brief Finds the k values of largest magnitude.
///
/// Returns exactly k places, ascending; of equal magnitudes it takes the lower places. So the result is unique,
/// whatever the threads and the instruction set. NaN counts as larger than infinity, zeros of both signs as equal.
///
/// A sample gives two thresholds: slightly more than k values should reach the first, and slightly fewer the second.
/// One pass over the values keeps those that reach the first; the search continues among those that do not reach the
/// second, or among all that were kept if the second is wrong. If the first is wrong, or too many values are equal,
/// three histograms over the bits of all magnitudes find the k-th one, and a last pass collects the places. Memory is
/// kept for the next call.
/// @complexity  one read of the values and about 3 k words; at worst 5 reads
/// @determinism the same places for any threads, spaces and samples
class selection {
 public:
  static constexpr std::uint64_t most = std::uint64_t{1} << 32;

  /// @param k  number of values to find; all if there are fewer
  /// @returns places, ascending; valid until the next call
  /// @throws configuration_error if there are 2^32 values or more
  std::span<std::uint32_t const> largest(kernel::host_executor const& on, std::span<float const> x,
                                         std::uint64_t k) {
    return run(on, x, k, by_sample(x, k));
  }

  /// Estimated magnitudes, as integers: at least k values should reach `least`, and fewer than k `sure`.
  struct thresholds {
    std::uint32_t least = whole, sure = nothing;
  };
  static constexpr std::uint32_t whole = 0;               ///< all values reach it
  static constexpr std::uint32_t nothing = 0x8000'0000U;  ///< no value reaches it

  /// largest() with given thresholds, of any quality; for tests.
  std::span<std::uint32_t const> largest_by(kernel::host_executor const& on, std::span<float const> x,
                                            std::uint64_t k, thresholds guess) {
    return run(on, x, k, guess);
  }

 private:
  /// The candidates and counts of a thread's share of the values.
  struct share {
    std::vector<std::uint32_t> places, bits, unsure;
    std::vector<std::uint32_t> counts;
    std::uint64_t above = 0, equal = 0, unsure_count = 0;
  };

  /// Magnitudes have 31 bits: digits of 11, 11 and 9 bits from bits 20, 9 and 0 on.
  static constexpr std::size_t digits = 1U << 11;
  static constexpr std::uint32_t mask_of(int shift) { return shift == 0 ? (1U << 9) - 1 : digits - 1; }
  static constexpr std::uint64_t short_vector = 4096;

  std::span<std::uint32_t const> run(kernel::host_executor const& on, std::span<float const> x,
                                     std::uint64_t k, thresholds guess) {
    std::uint64_t const n = x.size();
    if (n >= most)
      throw configuration_error("globalq: selection: " + std::to_string(n) +
                                " values; select among at most 2^32 - 1 at a time");
    k = std::min(k, n);
    found_.resize(k);
    if (k == 0) return {};
    if (k == n) {
      for (std::uint64_t i = 0; i < n; ++i) found_[i] = static_cast<std::uint32_t>(i);
      return found_;
    }
    cut(n);
    // room for candidates: if they are many, histograms are cheaper than keeping them
    std::uint64_t const room = n <= short_vector ? n : std::max(n / 2, short_vector);
    if ((guess.least == whole && n > short_vector) ||
        !keep(on, x, k, guess.least, room / shares_.size() + 1)) {
      by_histograms(on, x, k);
      return found_;
    }
    if (!among_kept(on, k, guess.sure)) among_kept(on, k, nothing);
    return found_;
  }

  /// Magnitudes that slightly more and slightly fewer than k values reach, if the sample is representative.
  thresholds by_sample(std::span<float const> x, std::uint64_t k) {
    std::uint64_t const n = x.size();
    if (n <= short_vector || k >= n) return {};
    std::uint64_t const taken = std::min<std::uint64_t>(n / 16, 16384);
    sample_.resize(taken);
    std::uint64_t const stride = n / taken;
    for (std::uint64_t i = 0; i < taken; ++i) {
      // the jitter avoids resonance with a pattern of the values
      std::uint64_t const jitter = (i * 0x9E3779B97F4A7C15ULL >> 33) % stride;
      sample_[i] = bits_of(x[i * stride + jitter]) & float_magnitude;
    }
    // the k-th value is expected at rank taken k/n of the sample, within four standard deviations
    double const expected = static_cast<double>(taken) * static_cast<double>(k) / static_cast<double>(n);
    double const away = 4 * std::sqrt(expected) + 4;
    if (expected + away >= 0.4 * static_cast<double>(taken)) return {};
    auto const ranked = [&](double rank, auto end) {
      auto const at = sample_.begin() + static_cast<std::ptrdiff_t>(rank);
      std::nth_element(sample_.begin(), at, end, std::greater<>());
      return at;
    };
    auto const least = ranked(expected + away, sample_.end());
    return {*least, expected > away ? *ranked(expected - away, least) + 1 : nothing};
  }

  /// Divides the values into shares of whole blocks, so that nothing depends on the number of threads.
  void cut(std::uint64_t n) {
    std::uint64_t const blocks = divide_up(n, block_);
    shares_.resize(std::min<std::uint64_t>(blocks, 64));
    std::uint64_t const each = divide_up(blocks, static_cast<std::uint64_t>(shares_.size()));
    share_values_ = each * block_;
  }
  std::span<float const> values_of(std::span<float const> x, std::uint64_t s) const {
    std::uint64_t const first = std::min<std::uint64_t>(s * share_values_, x.size());
    return x.subspan(first, std::min<std::uint64_t>(share_values_, x.size() - first));
  }

  /// Keeps the values that reach the threshold.
  /// @param room  of each share
  /// @returns whether there was room, and at least k values were kept
  bool keep(kernel::host_executor const& on, std::span<float const> x, std::uint64_t k, std::uint32_t least,
            std::uint64_t room) {
    std::atomic<bool> full{false};
    on.items(shares_.size(), [&](std::uint64_t s) {
      share& mine = shares_[s];
      auto const values = values_of(x, s);
      std::uint64_t kept = 0;
      if (mine.places.size() < block_ + detail::keep_slack) {
        mine.bits.resize(block_ +
                         detail::keep_slack);  // first, because the condition reads the size of places
        mine.places.resize(block_ + detail::keep_slack);
      }
      for (std::uint64_t at = 0; at < values.size(); at += block_) {
        if (kept > room + block_) {
          full.store(true, std::memory_order_relaxed);
          break;
        }
        std::uint64_t const needed = kept + block_ + detail::keep_slack;
        if (mine.places.size() < needed) {
          mine.bits.resize(2 * needed);
          mine.places.resize(2 * needed);
        }
        kept += detail::keep_large(values.data() + at, static_cast<std::uint32_t>(s * share_values_ + at),
                                   std::min<std::uint64_t>(block_, values.size() - at), least,
                                   {mine.places.data() + kept, mine.bits.data() + kept});
      }
      mine.above = kept;
    });
    if (full) return false;
    std::uint64_t total = 0;
    for (share const& s : shares_) total += s.above;
    return total >= k;
  }

  /// Finds the k largest of the kept values, digit by digit of the k-th magnitude.
  /// @param sure  a magnitude that fewer than k values should reach: only values below it are searched
  /// @returns false if k or more values reach it
  bool among_kept(kernel::host_executor const& on, std::uint64_t k, std::uint32_t sure) {
    on.items(shares_.size(), [&](std::uint64_t s) {
      share& mine = shares_[s];
      mine.unsure.resize(std::max<std::size_t>(mine.unsure.size(), mine.above));
      mine.unsure_count = detail::keep_unsure(mine.bits.data(), mine.above, sure, mine.unsure.data());
    });
    std::uint64_t wanted = k;  // of the values with the prefix
    for (share const& s : shares_) {
      std::uint64_t const taken = s.above - s.unsure_count;
      if (taken >= wanted) return false;
      wanted -= taken;
    }
    std::array<std::uint64_t, digits> counts;
    std::uint32_t prefix = 0, known = 0;  // of the k-th magnitude
    for (int shift : {20, 9, 0}) {
      std::uint32_t const mask = mask_of(shift);
      counts.fill(0);
      for (share const& s : shares_)
        for (std::uint64_t i = 0; i < s.unsure_count; ++i) {
          std::uint32_t const b = s.unsure[i];
          if ((b & known) == prefix) ++counts[b >> shift & mask];
        }
      descend(counts, shift, prefix, known, wanted);
    }
    std::uint64_t out = 0, equal = wanted;
    for (share const& s : shares_)
      for (std::uint64_t i = 0; i < s.above && out < k; ++i) {
        bool const tie = s.bits[i] == prefix && equal != 0;
        found_[out] = s.places[i];
        out += s.bits[i] > prefix || tie ? 1 : 0;
        equal -= tie ? 1 : 0;
      }
    return true;
  }

  /// Selects the digit of the wanted value, counted from the largest.
  static void descend(std::span<std::uint64_t const> counts, int shift, std::uint32_t& prefix,
                      std::uint32_t& known, std::uint64_t& wanted) {
    auto digit = mask_of(shift);
    while (counts[digit] < wanted) wanted -= counts[digit--];
    prefix |= digit << shift;
    known |= mask_of(shift) << shift;
  }

  /// Finds the k largest of all values, by histograms of 11, 11 and 9 bits, and a last pass.
  void by_histograms(kernel::host_executor const& on, std::span<float const> x, std::uint64_t k) {
    std::array<std::uint64_t, digits> counts;
    std::uint32_t prefix = 0, known = 0;
    std::uint64_t wanted = k;
    for (int shift : {20, 9, 0}) {
      std::uint32_t const mask = mask_of(shift);
      on.items(shares_.size(), [&](std::uint64_t s) {
        auto& mine = shares_[s].counts;
        mine.assign(4 * digits, 0);
        auto const values = values_of(x, s);
        if (known == 0)
          detail::count_digits(values.data(), values.size(), shift, mine.data());
        else
          detail::count_digits(values.data(), values.size(), known, prefix, shift, mask, mine.data());
      });
      counts.fill(0);
      for (share const& s : shares_)
        for (std::size_t i = 0; i < 4 * digits; ++i) counts[i % digits] += s.counts[i];
      descend(counts, shift, prefix, known, wanted);
    }
    on.items(shares_.size(), [&](std::uint64_t s) {
      auto const values = values_of(x, s);
      shares_[s].above = detail::count_from(values.data(), values.size(), prefix + 1);
      shares_[s].equal = detail::count_from(values.data(), values.size(), prefix) - shares_[s].above;
    });
    std::uint64_t first = 0;  // where each share's places begin; the first shares get the ties
    std::array<std::uint64_t, 64> begins{};
    for (std::size_t s = 0; s < shares_.size(); ++s) {
      shares_[s].equal = std::min(shares_[s].equal, wanted);
      wanted -= shares_[s].equal;
      begins[s] = first;
      first += shares_[s].above + shares_[s].equal;
    }
    on.items(shares_.size(), [&](std::uint64_t s) {
      std::uint64_t out = begins[s], equal = shares_[s].equal;
      std::uint64_t const end = out + shares_[s].above + equal;
      auto const values = values_of(x, s);
      std::uint32_t places[block_ + detail::keep_slack], bits[block_ + detail::keep_slack];
      for (std::uint64_t at = 0; at < values.size() && out < end; at += block_) {
        std::uint64_t const kept =
            detail::keep_large(values.data() + at, static_cast<std::uint32_t>(s * share_values_ + at),
                               std::min<std::uint64_t>(block_, values.size() - at), prefix, {places, bits});
        for (std::uint64_t i = 0; i < kept && out < end; ++i) {
          found_[out] = places[i];
          bool const above = bits[i] > prefix;
          out += above || equal != 0 ? 1 : 0;
          equal -= above || equal == 0 ? 0 : 1;
        }
      }
    });
  }

  static constexpr std::uint64_t block_ = 4096;
  std::uint64_t share_values_ = 0;
  std::vector<share> shares_;
  std::vector<std::uint32_t> sample_, found_;
};

}  // namespace GLOBALQ_ABI::baseline
