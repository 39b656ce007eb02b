// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief rounding: stochastic, with each worker's words in another part of their range.

#include "stochastic.hpp"

namespace GLOBALQ_ABI::rounding {

namespace detail {

/// Stochastic rounding with words of one of n equal parts of the range of words.
struct stratified : stochastic {
  std::uint32_t start, width;  ///< of the part

  /// Negative values use the complement: the part refers to values, not to magnitudes.
  GLOBALQ_FUNCTION constexpr std::uint32_t compared(std::uint32_t word, std::uint32_t sign) const {
    return (start + static_cast<std::uint32_t>((std::uint64_t{word} * width) >> 32)) ^ sign;
  }
  GLOBALQ_FUNCTION constexpr bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t sign) const {
    return compared(word, sign) < threshold;
  }
};

}  // namespace detail

/// @brief Unbiased like @c stochastic, and rounding errors of workers partly cancel in their mean.
///
/// The n workers of a cohort (at most 16) divide the range of words into n equal parts. In every tile of 256 values each
/// takes another part: a random permutation, which they compute from words that all of them know. Each worker's word is
/// uniform, so each worker is unbiased by itself (bias at most 2^-31 of a gap). Two workers' decisions on a coordinate
/// have a covariance of at most 0 whatever their values, so the bounds of @c stochastic hold. On average over uniform
/// fractions of gaps, the variance of the mean is 2 / (1 + 1/n^2) times smaller if they are independent, and n times if they
/// are equal. (Equal fractions f below 1/n gain (1 - f) / (1 - n f).)
///
/// It gains where workers encode their own values and share a norm, and less with local norms. Sums that are encoded
/// again are rounded as by @c stochastic. A worker's decisions in a tile depend on one part, so its errors in a tile are
/// correlated: fully, if n = 2 and fractions are 1/2.
/// @source  Suresh, Sun, Ro, Yu 2022: Correlated quantization for distributed mean estimation (arXiv 2203.04925)
struct correlated : stochastic {
  static constexpr char const* name = "correlated";
  using compares_words_alone = correlated;
  static constexpr std::uint32_t most_members = 16;

  constexpr std::uint64_t parameters() const { return 0; }

  /// Workers are dealt to as few cohorts as possible, which differ by at most one worker.
  GLOBALQ_FUNCTION constexpr correlated for_worker(std::uint32_t rank, std::uint32_t workers) const {
    std::uint32_t const cohorts = cohorts_of(workers);
    correlated c;
    c.cohort_ = rank % cohorts;
    c.member_ = rank / cohorts;
    c.members_ = (workers - c.cohort_ + cohorts - 1) / cohorts;
    c.part_ = ~std::uint64_t{0} / c.members_ + 1;
    return c;
  }

  /// Workers of the smallest cohort.
  static constexpr std::uint32_t smallest_cohort(std::uint32_t workers) {
    return workers / cohorts_of(workers);
  }

  /// 2 / (1 + 1/n^2) for up to 16 workers; of the mean over cohorts for more.
  static constexpr double gain(std::uint32_t workers) {
    double variance = 0;
    for (std::uint32_t r = 0; r < workers; ++r) {
      double const members = correlated().for_worker(r, workers).members_;
      variance += (1 + 1 / (members * members)) / 2 / workers;
    }
    return 1 / variance;
  }

  GLOBALQ_FUNCTION constexpr std::uint32_t cohort() const { return cohort_; }

  /// The rounding in a tile: part p of n, where p is this member under a random permutation.
  ///
  /// The permutation moves parts 1 to n - 1 by transpositions, and then all by a rotation from 64 bits, so that each part
  /// has the probability 1/n to 2^-60.
  GLOBALQ_FUNCTION constexpr detail::stratified in_tile(std::uint32_t const* shared) const {
    std::uint32_t p = member_;
    GLOBALQ_UNROLL
    for (std::uint32_t i = most_members - 1; i > 1; --i) {
      std::uint32_t const j = 1 + static_cast<std::uint32_t>((std::uint64_t{shared[i]} * i) >> 32);
      std::uint32_t const moved = p == i ? j : (p == j ? i : p);
      p = i < members_ ? moved : p;
    }
    std::uint64_t const turn =
        (std::uint64_t{shared[0]} * members_ + ((std::uint64_t{shared[1]} * members_) >> 32)) >> 32;
    p += static_cast<std::uint32_t>(turn);
    p -= p < members_ ? 0U : members_;
    return {{}, start_of(p), start_of(p + 1) - start_of(p) - (members_ == 1 ? 1U : 0U)};
  }

 private:
  GLOBALQ_FUNCTION static constexpr std::uint32_t cohorts_of(std::uint32_t workers) {
    return (workers + most_members - 1) / most_members;
  }
  /// The first word of a part; of part n: 0, for 2^32.
  GLOBALQ_FUNCTION constexpr std::uint32_t start_of(std::uint32_t p) const {
    return static_cast<std::uint32_t>((part_ * p) >> 32);
  }

  std::uint32_t cohort_ = 0, member_ = 0, members_ = 1;
  std::uint64_t part_ = 0;  ///< the length of a part, 2^64 / n rounded up, in 2^-32 of a word; 0: 2^64
};

}  // namespace GLOBALQ_ABI::rounding
