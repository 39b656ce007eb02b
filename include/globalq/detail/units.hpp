// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: the statistics of all workers become one scale: the exchange of bucket norms.

#include "../core/codec.hpp"
#include "../core/scale_word.hpp"
#include "../norm/statistic.hpp"
#include "../schedule/concept.hpp"

namespace globalq::detail {

/// (sum_i a_i^p)^(1/p), added in rank order in double; the same bits wherever it is computed.
/// @param a  norms of the workers, finite and not negative
inline double combine_norms(std::span<double const> a, std::uint32_t p) {
  double top = 0;
  for (double v : a) top = top < v ? v : top;
  if (p == infinity || top == 0) return top;
  double sum = 0;
  for (double v : a) {
    double const share = rounded(v / rounded(top));  // else -ffast-math multiplies by a reciprocal
    double power = share;
    for (std::uint32_t k = 1; k < p; ++k) power = rounded(power * share);
    sum = rounded(sum + power);
  }
  return rounded(norm::root(sum, p) * top);  // sum is in [1, n]
}

/// Turns the own norms of all buckets into the scales of all workers, on every worker alike.
///
/// Each worker owns a range of buckets: it gets the norms of that range from all, combines them in rank order and sends
/// the scales to all. Two rounds; 2 (n-1)/n of the norms' bytes are sent.
/// @param units  in: own norms, representable; out: scales
template <Transport T>
void agree_on_units(T& t, std::span<double> units, std::uint32_t p, dtype type, frame_pool& frames) {
  int const n = t.size(), r = t.rank();
  if (n == 1) return;
  layout const cut(units.size(), n, 1, 0);
  std::size_t const width = scale_bytes(type);
  bool const counting = units.data() == nullptr;
  auto const write = [&](segment s, std::span<std::byte> out) {
    if (counting) return;
    for (std::uint64_t i = 0; i < s.count; ++i) {
      if (width == 8) {
        std::memcpy(out.data() + 8 * i, &units[s.first + i], 8);
      } else {
        std::uint32_t const word = scale_word(units[s.first + i]);
        std::memcpy(out.data() + 4 * i, &word, 4);
      }
    }
  };
  auto const read = [&](std::span<std::byte const> in, std::uint64_t i) {
    if (width == 8) {
      double u = 0;
      std::memcpy(&u, in.data() + 8 * i, 8);
      return u;
    }
    std::uint32_t word = 0;
    std::memcpy(&word, in.data() + 4 * i, 4);
    return scale_of_word(word);
  };
  schedule::detail::transfers<T> under_way;
  segment const mine = cut.part(r);
  auto const slots = static_cast<std::size_t>(n);
  auto const frame_of = [&](int p_) { return frames.get(static_cast<std::size_t>(p_), mine.count * width); };
  for (int q = 0; q < n; ++q)
    if (q != r) under_way.recv(t, q, frame_of(q));
  for (int k = 1; k < n; ++k) {
    int const to = (r + k) % n;
    auto const out = frames.get(slots + static_cast<std::size_t>(to), cut.part(to).count * width);
    write(cut.part(to), out);
    under_way.send(t, to, out);
  }
  under_way.wait_all(t);
  if (!counting) {
    thread_local std::vector<double> a;  // kept: nothing is allocated after the first call
    a.resize(slots);
    for (std::uint64_t i = 0; i < mine.count; ++i) {
      for (int q = 0; q < n; ++q)
        a[static_cast<std::size_t>(q)] = q == r ? units[mine.first + i] : read(frame_of(q), i);
      units[mine.first + i] = representable(combine_norms(a, p), type);
    }
  }
  auto const scales = frames.get(2 * slots, mine.count * width);
  write(mine, scales);
  auto const theirs = [&](int q) {
    return frames.get(static_cast<std::size_t>(q), cut.part(q).count * width);
  };
  for (int q = 0; q < n; ++q)
    if (q != r) under_way.recv(t, q, theirs(q));
  for (int k = 1; k < n; ++k) under_way.send(t, (r + k) % n, scales);
  under_way.wait_all(t);
  if (counting) return;
  for (int q = 0; q < n; ++q) {
    if (q == r) continue;
    segment const s = cut.part(q);
    for (std::uint64_t i = 0; i < s.count; ++i) units[s.first + i] = read(theirs(q), i);
  }
}

}  // namespace globalq::detail
