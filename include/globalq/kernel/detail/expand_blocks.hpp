// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the kernel that decodes a sparse body. It rejects the same bytes as the host, and then writes zeros.

#include "../device/team_collectives.hpp"
#include "sparse_blocks.hpp"

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::wire::detail {

/// Decodes a body, given its index and the places of its blocks.
///
/// It validates everything, including the index, and reads no byte outside the body.
template <class Int>
struct expand_blocks {
  static constexpr int team_threads = sparse_threads;
  struct workspace {
    std::byte stage[sizeof(Int) * block_values + 16];
    alignas(16) Int codes[block_values];
    Int non_zeros[block_values];  ///< the non-zeros
  };
  static constexpr std::size_t scratch_bytes = sizeof(workspace);

  sparse_layout<Int> of;
  std::byte const* body;
  std::uint64_t const* bytes;  ///< size of the body; 0: the body is not readable
  std::uint64_t const* places;
  Int* codes;
  std::uint32_t* faults;
  std::uint32_t fault;  ///< reported for invalid bytes

  template <class Team>
  GLOBALQ_FUNCTION void operator()(Team const& team, std::uint64_t b, std::byte* scratch) const {
    auto& with = *reinterpret_cast<workspace*>(scratch);
    int const count = of.values_of(b), dense = of.dense_bytes(count);
    std::uint64_t const have = *bytes;
    int const size = have == 0 ? 0 : reinterpret_cast<std::uint16_t const*>(body)[b];
    int const length = size == 0 ? dense : size;
    std::uint64_t const place = places[b];
    bool bad = size >= dense || place > have || have - place < static_cast<std::uint64_t>(length);
    if (!bad) {  // has the same value in all threads of the team
      std::byte const* const from = body + place;
      std::byte* const stage = as_aligned(with.stage, from);
      move_bytes(team, from, stage, length);
      team.team_barrier();
      bad = size == 0 ? read_dense(team, stage, count, with.codes) : read(team, stage, size, count, with);
      bad = kernel::device::bits_of_all<sparse_threads>(team, bad ? 1 : 0) != 0;
    }
    if (bad) {
      for (int i = team.team_rank(); i < count; i += team.team_size()) with.codes[i] = 0;
      if (team.team_rank() == 0) Kokkos::atomic_or(faults, fault);
    }
    team.team_barrier();
    move_bytes(team, reinterpret_cast<std::byte const*>(with.codes),
               reinterpret_cast<std::byte*>(codes + b * block_values), count * static_cast<int>(sizeof(Int)));
  }

 private:
  /// @returns whether this thread found a fault
  template <class Team>
  GLOBALQ_FUNCTION bool read_dense(Team const& team, std::byte const* in, int count, Int* out) const {
    bool bad = false;
    for_each_eight(team, count, [&](int, int first, int n) {
      bad |= unpack_dense(of, in + of.dense_bytes(first), n, out + first);
    });
    return bad;
  }

  /// @returns whether there is a fault; the same value for all threads
  template <class Team>
  GLOBALQ_FUNCTION bool read(Team const& team, std::byte const* in, int size, int count,
                             workspace& with) const {
    int const thread = team.team_rank(), threads = team.team_size();
    auto const* const at = reinterpret_cast<std::uint8_t const*>(in);
    int const head = at[0], w = head & 127;
    if (head == 0) {
      for (int i = thread; i < count; i += threads) with.codes[i] = 0;
      return size != 1 || of.zero_free;
    }
    if (!(w >= 1 && w <= 8) && !(sizeof(Int) == 2 && w == 16)) return true;
    bool const positions = (head & 128) != 0;
    int n = 0, before = 0;
    if (positions) {
      if (size < 3) return true;
      n = (at[1] | at[2] << 8) + 1;
    } else {
      if (size - 1 < sparse_form::bitmap_bytes(count)) return true;
      if (count % 8 != 0 && at[sparse_form::bitmap_bytes(count)] >> (count % 8) != 0) return true;
      for_own_words(team, at + 1, count,
                    [&](int, std::uint32_t mask) { n += Kokkos::Experimental::popcount_builtin(mask); });
      int const own = n;
      before = kernel::device::prefix_sum<sparse_threads>(team, own, n);
    }
    if (n == 0 || n > count || sparse_form::takes_positions(n, count) != positions) return true;
    if (size != sparse_form::block_bytes(n, w, count)) return true;
    bool bad = of.zero_free && n < count;

    std::byte const* const fields = in + 1 + sparse_form::where_bytes(n, count);
    std::uint32_t asked = 0;
    for_each_eight(team, n, [&](int group, int first, int some) {
      fields_summary const s =
          unpack_fields(fields + group * w, some, w, of.max_code, with.non_zeros + first);
      bad |= s.bad;
      asked |= s.asked;
    });
    // f(pair, first, second, whether there is a second)
    auto const for_own_pairs = [&](auto const& f) {
      for (int k = 0; k + thread < (n + 1) / 2; k += threads) {
        int const pair = k + thread;
        std::uint8_t const* const three = at + 3 + 3 * pair;
        bool const two = 2 * pair + 1 < n;
        f(pair, three[0] | (three[1] & 15) << 8, two ? three[1] >> 4 | three[2] << 4 : count, two);
      }
    };
    if (positions) {
      for (int i = thread; i < count; i += threads) with.codes[i] = 0;
      for_own_pairs([&](int pair, int first, int second, bool two) {
        std::uint8_t const* const three = at + 3 + 3 * pair;
        int const last =
            pair == 0 ? -1 : three[-2] >> 4 | three[-1] << 4;  // second position of the pair before
        bad |= first <= last || first >= count;
        bad |= two ? second <= first || second >= count : three[1] >> 4 != 0;
      });
    }
    // share the faults among all threads before writing, because two invalid positions could be the same
    constexpr std::uint32_t bad_bit = 1U << 31;
    asked = kernel::device::bits_of_all<sparse_threads>(team, asked | (bad ? bad_bit : 0));
    team.team_barrier();
    if ((asked & bad_bit) != 0 || sparse_form::width<Int>(asked) != w) return true;

    if (positions) {
      for_own_pairs([&](int pair, int first, int second, bool two) {
        with.codes[first] = with.non_zeros[2 * pair];
        if (two) with.codes[second] = with.non_zeros[2 * pair + 1];
      });
    } else {
      int next = before;
      for_own_words(team, at + 1, count, [&](int part, std::uint32_t mask) {
        int const first = part * part_codes, left = count - first;
        for (int i = 0; i < (left < part_codes ? left : part_codes); ++i) {
          bool const is = (mask >> i & 1U) != 0;
          with.codes[first + i] = is ? with.non_zeros[next] : Int{0};
          next += is ? 1 : 0;
        }
      });
    }
    return false;
  }

  /// Calls f(part, word) for the words of a bitmap that belong to this thread.
  template <class Team, class F>
  GLOBALQ_FUNCTION static void for_own_words(Team const& team, std::uint8_t const* bitmap, int count,
                                             F const& f) {
    int const parts = divide_up(count, part_codes), bytes = sparse_form::bitmap_bytes(count);
    for (int p = first_part(team, team.team_rank(), parts); p < first_part(team, team.team_rank() + 1, parts);
         ++p) {
      std::uint32_t word = 0;
      for (int k = 0; k < 4 && 4 * p + k < bytes; ++k)
        word |= static_cast<std::uint32_t>(bitmap[4 * p + k]) << (8 * k);
      f(p, word);
    }
  }
};

}  // namespace GLOBALQ_ABI::wire::detail
