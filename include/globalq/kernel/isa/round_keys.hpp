// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the keys of all Philox rounds, for the vector loops.

#include "../../core/detail/abi.hpp"

#include <cstdint>

namespace GLOBALQ_ABI::kernel::detail {

/// The keys of all rounds, as scalars, because an instruction broadcasts one to all lanes.
template <int Rounds>
struct round_keys {
  static_assert(Rounds > 3);
  std::uint64_t key[Rounds][2];

  round_keys(std::uint32_t key0, std::uint32_t key1) {
    for (std::uint32_t r = 0; r < Rounds; ++r) {
      key[r][0] = key0 + r * 0x9E3779B9U;
      key[r][1] = key1 + r * 0xBB67AE85U;
    }
  }
};

}  // namespace GLOBALQ_ABI::kernel::detail
