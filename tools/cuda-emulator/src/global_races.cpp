// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Races in global memory: whether the last write of a byte is ordered before an access of another thread in the same launch.
///
/// Within a block, barriers order. A block sees writes of another one that this has released and it has acquired (PTX ISA 9.0, 8.8):
/// a fence behind the writes, then a synchronizing write of a word, which a synchronizing access of that word reads. A fence of one
/// thread covers what barriers order before it, and stands for its whole warp; no fence is demanded of who acquires. Reads are not
/// noted: a write that follows an unordered read is no fault.

#include "execution.hpp"

#include <algorithm>

namespace emulator {
namespace {

/// Keys of `visible_writes`.
/// @{
uint64_t key_of_block(uint64_t number) { return number << 6; }
uint64_t key_of_warp(uint64_t number, uint32_t warp) { return number << 6 | (warp + 1); }
/// @}

bool is_visible(visible_writes const& to, uint64_t key, uint32_t time) {
  auto const found = to.find(key);
  return found != to.end() && time <= found->second;
}

void see(visible_writes& by, uint64_t key, uint32_t until) {
  auto& known = by[key];
  known = std::max(known, until);
}

void see_all(visible_writes& by, visible_writes const& what) {
  for (auto const& [key, until] : what) see(by, key, until);
}

bool is_ordered(stamp const& before, uint32_t thread, step const& s) {
  block const& b = s.of;
  if (before.time < b.begin || before.thread == thread) return true;
  uint32_t const number = before.thread / b.threads, warp = before.thread % b.threads / lanes;
  if (number == b.number) return before.time < b.epoch || (warp == s.w.index && before.time < s.w.epoch);
  return is_visible(b.sees, key_of_block(number), before.time) ||
         is_visible(b.sees, key_of_warp(number, warp), before.time);
}

/// What the block sees, and what fences of its warps cover.
void release(step const& s, visible_writes& to) {
  block const& b = s.of;
  see_all(to, b.sees);
  see(to, key_of_block(b.number), s.w.fence_epoch - 1);
  for (warp const& w : b.warps) {
    if (w.fence != 0 && (w.index == s.w.index || w.fence < b.epoch))
      see(to, key_of_warp(b.number, w.index), w.fence);
  }
}

}  // namespace

void note_fence(step& s) {
  s.w.fence = s.of.global.now();
  s.w.fence_epoch = s.of.epoch;
  s.of.global.tick();
}

void note_global(step& s, instruction const& i, uint32_t lane, uint64_t address, uint32_t bytes, bool writes,
                 std::byte const* value) {
  block& b = s.of;
  uint32_t const in_block = s.w.index * lanes + lane, thread = b.number * b.threads + in_block;
  uint64_t const offset = address - b.last->begin;
  stamp* const stamps = b.last->written.get() + offset;
  place const old = b.last->at(address);
  if (i.synchronizing) {
    auto& word = b.released[address];
    see_all(b.sees, word);
    if (writes && i.releasing) note_fence(s);
    if (writes && s.w.fence != 0) release(s, word);
  }
  for (uint32_t k = 0; k < bytes; ++k) {
    stamp const& before = stamps[k];
    bool const same = value != nullptr && old.data[k] == value[k];
    if (is_ordered(before, thread, s) || same || (before.synchronizing != 0 && i.synchronizing)) continue;
    throw fault("race in global memory: ", (writes ? "a write of" : "a read of"), " byte ", offset + k,
                " of ", b.last->what, ", which thread ", before.thread % b.threads, " of block ",
                before.thread / b.threads, " has written with no ",
                (before.thread / b.threads == b.number ? "barrier" : "fence and atomic operation"),
                " between");
  }
  if (writes)
    std::fill_n(stamps, bytes, stamp{b.global.now(), thread & 0x7fff'ffffU, uint32_t{i.synchronizing}});
}

}  // namespace emulator
