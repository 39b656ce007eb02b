// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: the opening exchange: do all workers mean the same call, and what do they bring?

#include "../norm/reduction.hpp"
#include "../transport/collectives.hpp"
#include "../wire/frame.hpp"
#include "operator_codec.hpp"

namespace globalq::detail {

/// What each worker says first. 64 bytes, the same on every worker, whatever it is about to do.
struct opening_record {
  std::uint64_t fingerprint[2] = {};  ///< of everything that must agree
  std::uint32_t fields[6] =
      {};  ///< hashes of: type, operator, schedule and workers, seed, step, modes and version
  std::uint64_t length = 0;
  std::uint64_t max_bits = 0;  ///< of max|x| as a double; the sign bit says: NaN or infinity
  double statistic = 0;        ///< ||x||_q / 2^exponent of the maximum (never its power: that would overflow)

  bool non_finite() const { return (max_bits >> 63) != 0; }
  double max() const { return double_of(max_bits & double_magnitude); }
};
static_assert(sizeof(opening_record) == 64);

inline constexpr char const* field_names[6] = {
    "the type of the values",           "the operator", "the schedule", "the seed", "the step",
    "the mode or the library's version"};

/// Everything that must agree, as text and numbers.
struct agreement {
  dtype type = dtype::float32;
  std::uint64_t operator_hash = 0;
  std::string schedule;
  int workers = 1;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t mode = 0;

  opening_record record(std::uint64_t length, norm::statistic const& s, double relative) const {
    opening_record r;
    std::uint64_t const fields[6] = {hash(1, static_cast<std::uint64_t>(type)),
                                     hash(2, operator_hash),
                                     hash(hash(3, schedule), static_cast<std::uint64_t>(workers)),
                                     hash(4, seed),
                                     hash(5, step),
                                     hash(hash(6, mode), wire::format_version)};
    std::uint64_t a = 0x243F6A8885A308D3ULL, b = 0x13198A2E03707344ULL;
    for (int i = 0; i < 6; ++i) {
      r.fields[i] = static_cast<std::uint32_t>(fields[i] >> 32);
      a = hash(a, fields[i]);
      b = hash(b, ~fields[i]);
    }
    r.fingerprint[0] = hash(a, length);
    r.fingerprint[1] = hash(b, length);
    r.length = length;
    r.max_bits = s.max_bits | (s.finite() ? 0 : std::uint64_t{1} << 63);
    r.statistic = relative;
    return r;
  }
};

/// Throws the same error on every worker when two records differ, naming the first worker that differs and in what.
inline void check_agreement(std::span<opening_record const> all) {
  opening_record const& a = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) {
    opening_record const& b = all[i];
    if (std::memcmp(a.fingerprint, b.fingerprint, sizeof a.fingerprint) == 0 && a.length == b.length)
      continue;
    std::string what;
    auto const add = [&](std::string const& text) { what += (what.empty() ? "" : ", ") + text; };
    if (a.length != b.length)
      add("the length (rank 0 has " + std::to_string(a.length) + " values, rank " + std::to_string(i) +
          " has " + std::to_string(b.length) + ")");
    for (int k = 0; k < 6; ++k)
      if (a.fields[k] != b.fields[k]) add(field_names[k]);
    throw disagreement_error("globalq: allreduce_mean: workers disagree: rank " + std::to_string(i) +
                             " differs from rank 0 in " + what +
                             "; every worker must make the same call (nothing was changed)");
  }
}

}  // namespace globalq::detail
