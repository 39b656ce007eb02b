// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The state of a block while it runs. A warp's lanes go in step: an instruction is executed once for all lanes that are at it.

#pragma once

#include "machine.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace emulator {

inline constexpr std::uint32_t lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xffff'ffff;

/// Calls `visit(lane)` for each lane of a mask.
template <class Visit>
void each_lane(std::uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<std::uint32_t>(std::countr_zero(mask)));
}

/// One value a lane.
using row = std::array<std::uint64_t, lanes>;

/// What a lane waits for.
enum class waiting : std::uint8_t { nothing, warp, block };

struct warp {
  std::uint32_t index = 0;  // in its block
  std::uint32_t live = 0;   // lanes that exist and have not ended
  std::uint32_t epoch = 0;  // how often the warp was synchronised
  std::vector<row> values{};
  std::vector<row> shadows{};              // bits that are undefined, of lanes that `undefined` names
  std::vector<std::uint32_t> undefined{};  // lanes, of each register
  std::vector<std::uint32_t> predicates{};
  std::vector<std::uint32_t> undefined_predicates{};
  std::array<std::uint32_t, lanes> pc{};
  std::array<waiting, lanes> waits{};
  std::vector<std::byte> local{};  // of all lanes, one after the other
  std::vector<std::byte> local_shadow{};
};

/// Who touched a byte of shared memory last.
struct touch {
  std::uint32_t block_epoch = 0;  // from 1 on: 0 is nobody
  std::uint32_t warp_epoch = 0;
  std::uint16_t thread = 0;
  bool synchronising = false;
  bool many = false;     // several threads
  bool several = false;  // of several warps
};

struct block {
  program const& code;
  launch const& how;
  memory& global;
  counts& count;
  std::uint32_t threads = 0;
  dimensions at{};          // in the grid
  std::uint32_t epoch = 1;  // how often the block was synchronised
  std::vector<warp> warps{};
  std::vector<row> constants{};
  std::vector<std::byte> shared{};
  std::vector<std::byte> shared_shadow{};
  std::vector<touch> written{};
  std::vector<touch> read{};
  range const* last = nullptr;  // where the last access of global memory was

  /// A register of a warp, or a constant.
  row const& value(warp const& w, std::uint32_t r) const {
    return r < code.registers ? w.values[r] : constants[r - code.registers];
  }
};

/// One instruction of some lanes of a warp.
struct step {
  block& of;
  warp& w;
  std::uint32_t mask = 0;     // lanes at this instruction
  std::uint32_t active = 0;   // those that its guard lets through
  std::uint32_t pc = 0;       // of the next instruction
  std::uint32_t merge = 0;    // the lowest place where other lanes are
  bool again = false;         // choose lanes anew: pc is set for each
  std::uint32_t culprit = 0;  // lane of which a fault tells

  row const& value(std::uint32_t r) const { return of.value(w, r); }

  /// The source that is a predicate, of all lanes.
  std::uint32_t predicate(instruction const& i) const {
    return w.predicates[i.predicate] ^ (i.predicate_negated ? all_lanes : 0);
  }
  std::uint32_t undefined(std::uint32_t r) const { return r < of.code.registers ? w.undefined[r] : 0; }
  std::uint64_t shadow(std::uint32_t r, std::uint32_t lane) const {
    return r < of.code.registers && (w.undefined[r] >> lane & 1) != 0 ? w.shadows[r][lane] : 0;
  }

  /// Sets a lane of a register.
  void set(std::uint32_t r, std::uint32_t lane, std::uint64_t bits, std::uint64_t shadow_bits) {
    w.values[r][lane] = bits;
    if (shadow_bits != 0) {
      w.shadows[r][lane] = shadow_bits;
      w.undefined[r] |= 1U << lane;
    } else {
      w.undefined[r] &= ~(1U << lane);
    }
  }

  /// Sets a predicate of the active lanes.
  void set_predicate(std::uint32_t p, std::uint32_t value, std::uint32_t undefined_lanes) {
    if (p == no_register) return;
    auto& to = w.predicates[p];
    auto& bad = w.undefined_predicates[p];
    to = (to & ~active) | (value & active);
    bad = (bad & ~active) | (undefined_lanes & active);
  }

  /// @throws fault where a lane has undefined bits in what it `uses`.
  void demand_defined(std::uint32_t r, char const* uses) {
    if (std::uint32_t const bad = undefined(r) & active; bad != 0) [[unlikely]]
      fail_undefined(bad, uses);
  }
  [[noreturn]] void fail_undefined(std::uint32_t bad, char const* uses);

  /// Lets the active lanes wait at this instruction.
  void wait(waiting what);
};

/// Bytes and their shadow.
struct place {
  std::byte* data;
  std::byte* shadow;
};

/// Where a lane's access goes, with all checks. `address` is complete: with offset, and the window of its space;
/// `value` is what a store writes. (access.cpp)
place resolve(step& s, instruction const& i, std::uint32_t lane, std::uint64_t address, std::uint32_t bytes,
              bool writes, std::byte const* value = nullptr);

}  // namespace emulator
