// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: kernels that encode codes into a sparse body: the size of each block, and its bytes.

#include "../device/team_collectives.hpp"
#include "sparse_blocks.hpp"

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::wire::detail {

/// A summary of a block, from the parts of all threads.
struct block_summary {
  int before = 0;           ///< non-zeros in the parts of earlier threads
  int n = 0;                ///< non-zeros of the block
  std::uint32_t asked = 0;  ///< sparse_form::asks() of all codes, combined by or
};

/// @param masks  receives one mask per part, unless null
template <class Int, class Team>
GLOBALQ_FUNCTION block_summary summarize_block(Team const& team, Int const* codes, int count,
                                               std::uint32_t* masks) {
  int const parts = divide_up(count, part_codes);
  block_summary s;
  int own = 0;
  for (int p = first_part(team, team.team_rank(), parts); p < first_part(team, team.team_rank() + 1, parts);
       ++p) {
    int const left = count - p * part_codes;
    part_summary const part = summarize(codes + p * part_codes, left < part_codes ? left : part_codes);
    own += Kokkos::Experimental::popcount_builtin(part.mask);
    s.asked |= part.asked;
    if (masks != nullptr) masks[p] = part.mask;
  }
  if (masks != nullptr)
    s.before = kernel::device::prefix_sum<sparse_threads>(team, own, s.n);
  else
    s.n = kernel::device::sum_of_all<sparse_threads>(team, own);
  s.asked = kernel::device::bits_of_all<sparse_threads>(team, s.asked);
  return s;
}

/// Computes the index of a body from codes.
template <class Int>
struct measure_blocks {
  static constexpr int team_threads = sparse_threads;
  static constexpr std::size_t scratch_bytes = 16;

  sparse_layout<Int> of;
  Int const* codes;
  std::uint16_t* index;

  template <class Team>
  GLOBALQ_FUNCTION void operator()(Team const& team, std::uint64_t b, std::byte*) const {
    int const count = of.values_of(b);
    block_summary const s =
        summarize_block(team, codes + b * block_values, count, static_cast<std::uint32_t*>(nullptr));
    if (team.team_rank() != 0) return;
    int const bytes = sparse_form::block_bytes(s.n, sparse_form::width<Int>(s.asked), count);
    index[b] = static_cast<std::uint16_t>(bytes < of.dense_bytes(count) ? bytes : 0);
  }
};

/// Writes the blocks of a body from codes and the index.
template <class Int>
struct compact_blocks {
  static constexpr int team_threads = sparse_threads;
  struct workspace {
    std::byte stage[sizeof(Int) * block_values + 16];
    Int non_zeros[block_values];  ///< the non-zeros
    std::uint32_t masks[block_parts];
    std::uint16_t positions[sparse_form::most_positions + 1];
  };
  static constexpr std::size_t scratch_bytes = sizeof(workspace);

  sparse_layout<Int> of;
  Int const* codes;
  std::uint16_t const* index;
  std::uint64_t const* places;
  std::byte* body;

  template <class Team>
  GLOBALQ_FUNCTION void operator()(Team const& team, std::uint64_t b, std::byte* scratch) const {
    auto& with = *reinterpret_cast<workspace*>(scratch);
    int const count = of.values_of(b), size = index[b];
    Int const* const from = codes + b * block_values;
    std::byte* const to = body + places[b];
    std::byte* const stage = as_aligned(with.stage, to);
    if (size == 0)
      for_each_eight(team, count, [&](int, int first, int n) {
        pack_dense(of, from + first, n, stage + of.dense_bytes(first));
      });
    else
      write(team, from, count, with, stage);
    team.team_barrier();
    move_bytes(team, stage, to, size == 0 ? of.dense_bytes(count) : size);
  }

 private:
  template <class Team>
  GLOBALQ_FUNCTION void write(Team const& team, Int const* from, int count, workspace& with,
                              std::byte* out) const {
    int const thread = team.team_rank(), threads = team.team_size();
    block_summary const s = summarize_block(team, from, count, with.masks);
    if (s.n == 0) {
      if (thread == 0) out[0] = std::byte{0};
      return;
    }
    bool const positions = sparse_form::takes_positions(s.n, count);
    int at = s.before;
    int const parts = divide_up(count, part_codes);
    for (int p = first_part(team, thread, parts); p < first_part(team, thread + 1, parts); ++p)
      for (std::uint32_t mask = with.masks[p]; mask != 0; mask &= mask - 1) {
        int const i = p * part_codes + Kokkos::Experimental::countr_zero_builtin(mask);
        with.non_zeros[at] = from[i];
        if (positions) with.positions[at] = static_cast<std::uint16_t>(i);
        ++at;
      }
    team.team_barrier();
    int const w = sparse_form::width<Int>(s.asked);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(out);
    if (thread == 0) bytes[0] = static_cast<std::uint8_t>(w | (positions ? 128 : 0));
    if (positions) {
      if (thread == 0) {
        bytes[1] = static_cast<std::uint8_t>(s.n - 1);
        bytes[2] = static_cast<std::uint8_t>((s.n - 1) >> 8);
      }
      for (int k = 2 * thread; k < s.n; k += 2 * threads) {
        bool const pair = k + 1 < s.n;
        std::uint32_t const two = with.positions[k] | (pair ? with.positions[k + 1] : 0U) << 12;
        std::uint8_t* const three = bytes + 3 + 3 * (k / 2);
        three[0] = static_cast<std::uint8_t>(two);
        three[1] = static_cast<std::uint8_t>(two >> 8);
        if (pair) three[2] = static_cast<std::uint8_t>(two >> 16);
      }
    } else {
      for (int i = thread; i < sparse_form::bitmap_bytes(count); i += threads)
        bytes[1 + i] = static_cast<std::uint8_t>(with.masks[i / 4] >> (8 * (i % 4)));
    }
    std::byte* const fields = out + 1 + sparse_form::where_bytes(s.n, count);
    for_each_eight(team, s.n, [&](int group, int first, int n) {
      pack_fields(with.non_zeros + first, n, w, 1, fields + group * w);
    });
  }
};

}  // namespace GLOBALQ_ABI::wire::detail
