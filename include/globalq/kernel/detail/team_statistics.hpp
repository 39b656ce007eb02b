// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: how a team of threads computes the statistics of blocks of values in shared memory.
///
/// Value i of a block belongs to partial sum i % 16, which one thread adds in the order of the values. The bits are
/// those of kernel/reduction.hpp.

#include "../block_statistic.hpp"
#include "../device/registers.hpp"
#include "../device/team_collectives.hpp"

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::norm::detail {

/// Threads per team.
inline constexpr int statistics_threads = 128;

/// Teams per multiprocessor, with 21 KiB of shared memory each: Kokkos refuses a launch if they do not fit.
#if defined(KOKKOS_ARCH_AMPERE80) || defined(KOKKOS_ARCH_HOPPER90) || defined(KOKKOS_ARCH_BLACKWELL100)
inline constexpr int statistics_teams = 5;
#else
inline constexpr int statistics_teams = 3;
#endif

/// The representation of values of a type in memory.
template <dtype Type>
struct patterns_of {
  static constexpr int size = static_cast<int>(size_of(Type));
  using magnitude = std::conditional_t<size == 8, std::uint64_t, std::uint32_t>;

  /// The bit pattern of the magnitude of a value.
  GLOBALQ_FUNCTION static magnitude pattern(std::byte const* value) {
    if constexpr (size == 2) {
      return *reinterpret_cast<kernel::device::uint16_alias const*>(value) & 0x7fffU;
    } else {
      std::uint32_t words[size / 4];
      kernel::device::load_whole<size>(value, words);
      if constexpr (size == 8)
        return ((static_cast<std::uint64_t>(words[1]) << 32) | words[0]) & double_magnitude;
      else
        return words[0] & float_magnitude;
    }
  }

  /// The value with that pattern times 2^exponent, computed as in load().
  GLOBALQ_FUNCTION static float scaled(magnitude m, int exponent) {
    if constexpr (size == 8)
      return static_cast<float>(double_of(m) * globalq::power_of_two(exponent));
    else
      return multiply(exact(m), power_of_two_float(exponent));
  }

  /// max_bits() of a pattern.
  GLOBALQ_FUNCTION static std::uint64_t max_bits(magnitude m) {
    if constexpr (size == 8)
      return m > double_infinity ? double_nan : m;
    else
      return as_double_bits(exact(m));
  }

  /// The value with that pattern, for types whose values float32 represents exactly.
  GLOBALQ_FUNCTION static float exact(std::uint32_t m) {
    if constexpr (Type == dtype::float32)
      return float_of(m);
    else if constexpr (Type == dtype::float16)
      return float16::widen(static_cast<std::uint16_t>(m));
    else
      return bfloat16::widen(static_cast<std::uint16_t>(m));
  }
};

/// The largest magnitude of every step-th staged value, starting with value `thread`.
template <dtype Type>
GLOBALQ_FUNCTION std::uint64_t find_max(std::byte const* values, int count, int thread, int step) {
  using patterns = patterns_of<Type>;
  using magnitude = typename patterns::magnitude;
  constexpr int ahead = 4;
  magnitude top = 0;
  int i = thread;
  GLOBALQ_NO_UNROLL
  for (; i + (ahead - 1) * step < count; i += ahead * step) {
    magnitude m[ahead];
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) m[r] = patterns::pattern(values + (i + r * step) * patterns::size);
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) top = top < m[r] ? m[r] : top;
  }
  GLOBALQ_NO_UNROLL
  for (; i < count; i += step) {
    magnitude const m = patterns::pattern(values + i * patterns::size);
    top = top < m ? m : top;
  }
  return patterns::max_bits(top);
}

/// find_max() for float32 values at a multiple of 16 bytes, four per access.
GLOBALQ_FUNCTION std::uint64_t find_max_of_quads(std::byte const* values, int count, int thread, int step) {
  std::uint32_t top = 0;
  GLOBALQ_NO_UNROLL
  for (int i = 4 * thread; i + 4 <= count; i += 4 * step) {
    std::uint32_t words[4];
    kernel::device::load_whole<16>(values + 4 * i, words);
    GLOBALQ_UNROLL
    for (int k = 0; k < 4; ++k) {
      std::uint32_t const m = words[k] & float_magnitude;
      top = top < m ? m : top;
    }
  }
  std::uint64_t const rest = find_max<dtype::float32>(values + 4 * (count & ~3), count & 3, thread, step),
                      found = patterns_of<dtype::float32>::max_bits(top);
  return found < rest ? rest : found;
}

/// The largest pattern of values in global memory: every step-th unit of 16 bytes, and every step-th of the values after the
/// last unit.
template <dtype Type>
struct max_in_memory {
  using patterns = patterns_of<Type>;
  using magnitude = typename patterns::magnitude;
  static constexpr int each = 16 / patterns::size;

  std::byte const* values;
  int step;
  magnitude top = 0;

  GLOBALQ_FUNCTION void see(magnitude m) { top = top < m ? m : top; }

  /// Loads Units units before it uses the first.
  template <int Units>
  GLOBALQ_FUNCTION void see_units(int at) {
    std::uint32_t words[Units][4];
    GLOBALQ_UNROLL
    for (int r = 0; r < Units; ++r) kernel::device::load_whole<16>(values + 16 * (at + r * step), words[r]);
    GLOBALQ_UNROLL
    for (int r = 0; r < Units; ++r) {
      GLOBALQ_UNROLL
      for (int k = 0; k < 4; ++k) {
        std::uint32_t const w = words[r][k];
        if constexpr (patterns::size == 2) {
          see(w & 0x7fffU);
          see((w >> 16) & 0x7fffU);
        } else if constexpr (patterns::size == 4) {
          see(w & float_magnitude);
        } else if (k % 2 != 0) {
          see(((static_cast<std::uint64_t>(w) << 32) | words[r][k - 1]) & double_magnitude);
        }
      }
    }
  }

  GLOBALQ_FUNCTION void see_all(int count, int thread) {
    int const units = kernel::device::aligned<16>(values) ? count / each : 0;
    int at = thread;
    GLOBALQ_NO_UNROLL
    for (; at + 7 * step < units; at += 8 * step) see_units<8>(at);
    if (at + 3 * step < units) {
      see_units<4>(at);
      at += 4 * step;
    }
    if (at + step < units) {
      see_units<2>(at);
      at += 2 * step;
    }
    if (at < units) see_units<1>(at);
    GLOBALQ_NO_UNROLL
    for (int i = each * units + thread; i < count; i += step)
      see(patterns::pattern(values + i * patterns::size));
  }
};

/// The values of add_powers(): loaded times 2^loaded, then times a factor.
struct scaled_powers {
  int loaded;
  float factor;
  template <class Patterns>
  GLOBALQ_FUNCTION float operator()(Patterns, typename Patterns::magnitude m) const {
    return multiply(Patterns::scaled(m, loaded), factor);
  }
};
/// The values of add_powers(), unscaled.
struct plain_powers {
  template <class Patterns>
  GLOBALQ_FUNCTION float operator()(Patterns, typename Patterns::magnitude m) const {
    return Patterns::exact(m);
  }
};

/// Adds powers to partial sum number @p thread of add_powers().
/// @returns the largest magnitude
template <dtype Type, class Seen>
GLOBALQ_FUNCTION std::uint64_t find_powers(std::byte const* values, int count, int thread, std::uint32_t q,
                                           Seen const& seen, double& sum) {
  using patterns = patterns_of<Type>;
  typename patterns::magnitude top = 0;
  double partial = sum;
  with_power(q, [&](auto power) {
    for (int i = thread; i < count; i += 16) {
      auto const m = patterns::pattern(values + i * patterns::size);
      top = top < m ? m : top;
      partial += power(static_cast<double>(seen(patterns{}, m)));
    }
  });
  sum = partial;
  return patterns::max_bits(top);
}

/// find_powers() of order 2 for values in global memory: loads many values before it adds the first.
template <dtype Type>
GLOBALQ_FUNCTION std::uint64_t find_squares_in_memory(std::byte const* values, int count, int thread,
                                                      double& sum) {
  using patterns = patterns_of<Type>;
  using magnitude = typename patterns::magnitude;
  constexpr int ahead = 16;
  magnitude top = 0;
  double partial = 0;
  auto const see = [&](magnitude m) {
    top = top < m ? m : top;
    double const v = static_cast<double>(patterns::exact(m));
    partial += v * v;  // 24 bits each: exact
  };
  auto const load = [&](int at) { return patterns::pattern(values + at * patterns::size); };
  int at = thread;
  magnitude next[ahead] = {};
  bool more = at + 16 * (ahead - 1) < count;
  GLOBALQ_UNROLL
  for (int r = 0; r < ahead; ++r)
    if (more) next[r] = load(at + 16 * r);
  GLOBALQ_NO_UNROLL
  while (more) {
    magnitude now[ahead];
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) now[r] = next[r];
    at += 16 * ahead;
    more = at + 16 * (ahead - 1) < count;
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r)
      if (more) next[r] = load(at + 16 * r);
    GLOBALQ_UNROLL
    for (int r = 0; r < ahead; ++r) see(now[r]);
  }
  GLOBALQ_NO_UNROLL
  for (; at < count; at += 16) see(load(at));
  sum = partial;
  return patterns::max_bits(top);
}

/// Staged values of the type of the vector.
struct any_type {
  template <dtype Type>
  GLOBALQ_FUNCTION static std::uint64_t max(std::byte const* values, int count, int thread, int step) {
    return find_max<Type>(values, count, thread, step);
  }
  /// Calls f with an integral constant of the type.
  template <class F>
  GLOBALQ_FUNCTION static void with_type(dtype type, F const& f) {
    switch (type) {
      case dtype::float64:
        return f(std::integral_constant<dtype, dtype::float64>{});
      case dtype::float16:
        return f(std::integral_constant<dtype, dtype::float16>{});
      case dtype::bfloat16:
        return f(std::integral_constant<dtype, dtype::bfloat16>{});
      default:
        return f(std::integral_constant<dtype, dtype::float32>{});
    }
  }
};
/// Values of at most four bytes, staged as float32; each block begins at a multiple of 16 bytes.
struct as_float32 {
  template <dtype>
  GLOBALQ_FUNCTION static std::uint64_t max(std::byte const* values, int count, int thread, int step) {
    return find_max_of_quads(values, count, thread, step);
  }
  template <class F>
  GLOBALQ_FUNCTION static void with_type(dtype, F const& f) {
    f(std::integral_constant<dtype, dtype::float32>{});
  }
};

/// Partial results of the blocks that a team holds at a time.
struct shared_sums {
  static constexpr int most_blocks = 16;
  static constexpr std::size_t bytes = most_blocks * 16 * (sizeof(double) + sizeof(std::uint64_t));

  std::byte* memory;
  GLOBALQ_FUNCTION double* sums() const { return reinterpret_cast<double*>(memory); }
  GLOBALQ_FUNCTION std::uint64_t* most() const {
    return reinterpret_cast<std::uint64_t*>(memory) + most_blocks * 16;
  }
};

/// Computes the statistics of blocks.
/// @tparam Types  type of staged values: any_type or as_float32
template <class Types>
struct team_statistics {
  dtype type;  ///< of the values
  std::uint32_t q;

  /// @param for_values  for_values(threads, f) calls f(block, thread, staged values, count) for each of @p threads
  ///                 threads of each block, once its values, or a part of them, are staged
  /// @param found       one per block; may overwrite the staged values
  template <class Team, class Values>
  KOKKOS_FUNCTION void measure(Team const& team, int blocks, shared_sums const& s, Values const& for_values,
                               statistic* found) const {
    bool const unscaled = type != dtype::float64 && q <= max_unscaled_order;
    // a maximum can use more threads than there are sums, or fewer
    int const threads = unscaled ? 16 : (blocks == 1 ? shared_sums::most_blocks * 4 : (blocks > 8 ? 8 : 16));
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * (threads < 16 ? 16 : threads)), [&](int k) {
      s.most()[k] = 0;
      if (k < blocks * 16) s.sums()[k] = 0;
    });
    for_values(threads, [&](int g, int t, std::byte const* values, int n) {
      Types::with_type(type, [&](auto is) {
        constexpr dtype of = decltype(is)::value;
        std::uint64_t most = 0;
        if (!unscaled)
          most = Types::template max<of>(values, n, t, threads);
        else if constexpr (of != dtype::float64)
          most = find_powers<of>(values, n, t, q, plain_powers{}, s.sums()[g * 16 + t]);
        std::uint64_t& before = s.most()[g * threads + t];
        before = before < most ? most : before;
      });
    });
    if (!unscaled && q != infinity)
      for_values(16, [&](int g, int t, std::byte const* values, int n) {
        std::uint64_t const most = max_of(s.most() + g * threads, threads);
        if (most == 0 || most >= double_infinity) return;
        int const e = exponent_of(double_of(most)), loaded = load_exponent(type, e), missing = -e - loaded;
        float const factor = power_of_two_float(missing > 127 ? 127 : missing);
        Types::with_type(type, [&](auto is) {
          find_powers<decltype(is)::value>(values, n, t, q, scaled_powers{loaded, factor},
                                           s.sums()[g * 16 + t]);
        });
      });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int g) {
      found[g] = put_together(max_of(s.most() + g * threads, threads), s.sums() + g * 16, unscaled);
    });
    team.team_barrier();
  }

  /// measure() of consecutive blocks of block_values values in global memory, for sums of squares. There are
  /// statistics_threads / 16 blocks at most.
  /// @pre q is 2, and values are not float64
  template <class Team>
  KOKKOS_FUNCTION void add_squares_in_memory(Team const& team, int blocks, std::byte const* values, int count,
                                             shared_sums const& s, statistic* found) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks * 16), [&](int k) {
      int const first = k / 16 * block_values, left = count - first,
                n = left < block_values ? left : block_values;
      Types::with_type(type, [&](auto is) {
        constexpr dtype of = decltype(is)::value;
        if constexpr (of != dtype::float64)
          s.most()[k] = find_squares_in_memory<of>(values + first * static_cast<int>(size_of(of)), n, k % 16,
                                                   s.sums()[k]);
      });
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, blocks), [&](int g) {
      found[g] = put_together(max_of(s.most() + g * 16, 16), s.sums() + g * 16, true);
    });
    team.team_barrier();
  }

  /// The largest pattern of a block in global memory, found by all threads.
  template <class Team>
  KOKKOS_FUNCTION std::uint64_t max_pattern(Team const& team, std::byte const* values, int count) const {
    std::uint64_t top = 0;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, statistics_threads), [&](int k) {
      Types::with_type(type, [&](auto is) {
        max_in_memory<decltype(is)::value> found{values, statistics_threads};
        found.see_all(count, k);
        top = top < found.top ? found.top : top;
      });
    });
    if (type == dtype::float64) return kernel::device::largest_of_all<statistics_threads>(team, top);
    return kernel::device::largest_of_all<statistics_threads>(team, static_cast<std::uint32_t>(top));
  }

  /// max_bits() of a pattern.
  GLOBALQ_FUNCTION std::uint64_t max_bits(std::uint64_t pattern) const {
    std::uint64_t bits = 0;
    Types::with_type(type, [&](auto is) {
      using patterns = patterns_of<decltype(is)::value>;
      bits = patterns::max_bits(static_cast<typename patterns::magnitude>(pattern));
    });
    return bits;
  }

 private:
  KOKKOS_FUNCTION static std::uint64_t max_of(std::uint64_t const* found, int number) {
    std::uint64_t most = 0;
    for (int t = 0; t < number; ++t) most = most < found[t] ? found[t] : most;
    return most;
  }
  KOKKOS_FUNCTION statistic put_together(std::uint64_t max_bits, double const* sums, bool unscaled) const {
    statistic s;
    s.max_bits = max_bits;
    if (q == infinity || !s.finite() || s.max_bits == 0) return s;
    s.sum = add_up(sums);
    if (unscaled) s.sum *= globalq::power_of_two(-s.exponent() * static_cast<int>(q));
    return s;
  }
};

}  // namespace GLOBALQ_ABI::norm::detail
