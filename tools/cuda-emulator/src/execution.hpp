// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The state of a block while it runs. A warp's lanes go in step: an instruction is executed once for all lanes that are at it.

#pragma once

#include "machine.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulator {

inline constexpr uint32_t lanes = 32;
inline constexpr uint32_t all_lanes = 0xffff'ffff;

/// Calls `visit(lane)` for each lane of a mask.
template <class Visit>
void each_lane(uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<uint32_t>(std::countr_zero(mask)));
}

/// One value a lane.
using row = std::array<uint64_t, lanes>;

/// `0, 5, 7`
std::string text_of_lanes(uint32_t mask);

/// Memory of a block or a warp.
struct storage {
  std::vector<std::byte> data{}, shadow{};

  explicit storage(uint64_t bytes = 0) : data(bytes), shadow(bytes) {}
  void forget() { std::ranges::fill(shadow, std::byte{0}); }
  place at(uint64_t offset) { return {data.data() + offset, shadow.data() + offset, ~0ULL}; }
};

struct warp {
  uint32_t index = 0;                 // in its block
  uint32_t live = 0;                  // lanes that exist and have not ended
  uint32_t epoch = 0;                 // when the warp was synchronized last
  std::vector<row> values{};          // of registers, then of constants
  std::vector<row> shadows{};         // bits that are undefined, of lanes that `undefined` names
  std::vector<uint32_t> undefined{};  // lanes, of each register
  std::array<uint32_t, lanes> pc{};
  uint32_t at_warp = 0;      // lanes that wait for others of the warp
  uint32_t at_block = 0;     // lanes that wait at a barrier of the block
  uint32_t fence = 0;        // when a lane executed the last fence, 0 if none did
  uint32_t fence_epoch = 0;  // the block's at that time
  storage local{};           // of all lanes, one after the other
};

/// Who touched a byte of shared memory last.
struct touch {
  uint32_t block_epoch = 0;  // from 1 on: 0 is nobody
  uint32_t warp_epoch = 0;
  uint16_t thread = 0;
  bool synchronizing = false;
  bool many = false;     // several threads
  bool several = false;  // of several warps
};

/// Up to when the writes of a warp, or of a whole block, are visible (global_races.cpp).
using visible_writes = std::unordered_map<uint64_t, uint32_t>;

struct block {
  program const& code;
  launch const& how;
  memory& global;
  counts& count;
  uint32_t begin = 0;  // when the launch began
  uint32_t threads = 0;
  uint32_t number = 0;  // in the grid
  dimensions at{};      // in the grid
  uint32_t epoch = 1;   // when the block was synchronized last
  std::vector<warp> warps{};
  storage shared{};
  std::vector<touch> written{};
  std::vector<touch> read{};
  range const* last = nullptr;                              // where the last access of global memory was
  visible_writes sees{};                                    // of other blocks
  std::unordered_map<uint64_t, visible_writes> released{};  // by the address that publishes them
};

/// One instruction of some lanes of a warp.
struct step {
  block& of;
  warp& w;
  uint32_t mask = 0;     // lanes at this instruction
  uint32_t active = 0;   // those that its guard lets through
  uint32_t pc = 0;       // of the next instruction
  uint32_t merge = 0;    // the lowest place where other lanes are
  bool again = false;    // choose lanes anew: pc is set for each
  uint32_t culprit = 0;  // lane of which a fault tells

  row const& value(uint32_t r) const { return w.values[r]; }
  /// The lanes in which a predicate is true.
  uint32_t where(uint32_t p) const {
    uint64_t yes = 0;
    for (uint32_t l = 0; l < lanes; ++l) yes |= (w.values[p][l] & 1) << l;
    return static_cast<uint32_t>(yes);
  }
  uint32_t undefined(uint32_t r) const { return w.undefined[r]; }
  uint64_t shadow(uint32_t r, uint32_t lane) const {
    return (w.undefined[r] >> lane & 1) != 0 ? w.shadows[r][lane] : 0;
  }

  /// Sets a lane of a register.
  void set(uint32_t r, uint32_t lane, uint64_t bits, uint64_t shadow_bits) {
    w.values[r][lane] = bits;
    if (shadow_bits != 0) {
      w.shadows[r][lane] = shadow_bits;
      w.undefined[r] |= 1U << lane;
    } else {
      w.undefined[r] &= ~(1U << lane);
    }
  }

  /// @throws fault where a lane has undefined bits in what it `uses`.
  void demand_defined(uint32_t r, char const* uses) {
    if (uint32_t const bad = undefined(r) & active; bad != 0) [[unlikely]]
      fail_undefined(bad, uses);
  }
  [[noreturn]] void fail_undefined(uint32_t bad, char const* uses);

  /// Sends some lanes elsewhere, while the others go on.
  void send(uint32_t those, uint32_t to);

  /// Lets the active lanes wait at this instruction, as `waiting` notes.
  void wait(uint32_t& waiting);
};

/// Where a lane's access goes, with all checks. `address` is complete: with offset, and the window of its space;
/// `value` is what a store writes. (memory_opcodes.cpp)
place resolve(step& s, instruction const& i, uint32_t lane, uint64_t address, uint32_t bytes, bool writes,
              std::byte const* value = nullptr);

/// Notes an access of global memory in `block::last`, and throws where another thread's write is not ordered before it.
void note_global(step& s, instruction const& i, uint32_t lane, uint64_t address, uint32_t bytes, bool writes,
                 std::byte const* value);

/// Notes a fence of what the device sees.
void note_fence(step& s);

}  // namespace emulator
