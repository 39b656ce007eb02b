// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Few registers for many: nvcc writes PTX with a register for each result, thousands in a kernel, which would not stay in
/// cache. Intervals of liveness, and a linear scan over them.

#include "program.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace emulator {
namespace {

using position = uint32_t;

/// A register's life, both ends included.
struct interval {
  position begin = std::numeric_limits<position>::max();
  position end = 0;

  void extend(position at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

struct life {
  std::vector<interval> of;           // each register
  std::vector<uint32_t> unwritten{};  // what is alive at the begin
};

/// Where registers are alive: from what uses them backwards to what writes them.
life find_life(std::vector<instruction> const& code, uint32_t registers) {
  life alive{std::vector<interval>(registers)};
  std::vector<std::vector<position>> uses(registers), before(code.size());
  for (position at = 0; at < code.size(); ++at) {
    instruction const& i = code[at];
    bool const goes_on = i.flow == flow::on || i.guard != no_register;
    if (goes_on && at + 1 < code.size()) before[at + 1].push_back(at);
    if (i.flow == flow::branches) before[i.target].push_back(at);
    for (auto const r : i.from) {
      if (r < registers) uses[r].push_back(at);
    }
    for (auto const r : i.to) {
      if (r < registers) alive.of[r].extend(at);
    }
  }
  std::vector<uint32_t> seen(code.size(), no_register);
  for (uint32_t r = 0; r < registers; ++r) {
    for (auto& open = uses[r]; !open.empty();) {
      position const at = open.back();
      open.pop_back();
      if (std::exchange(seen[at], r) == r) continue;
      // Sources end behind the instruction: a result never takes the register of a source.
      alive.of[r].extend(at);
      if (at == 0) alive.unwritten.push_back(r);
      for (auto const from : before[at]) {
        alive.of[r].extend(from);
        // What a guard may leave as it was is not written anew.
        bool const written =
            code[from].guard == no_register && std::ranges::find(code[from].to, r) != code[from].to.end();
        if (!written) open.push_back(from);
      }
    }
  }
  return alive;
}

}  // namespace

void allocate_registers(program& p, uint32_t virtual_registers) {
  auto [lives, unwritten] = find_life(p.code, virtual_registers);
  for (auto const& s : p.specials) {
    lives[s.second] = {0, static_cast<position>(p.code.size())};
    std::erase(unwritten, s.second);
  }
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < virtual_registers; ++r) {
    if (lives[r].begin <= lives[r].end) order.push_back(r);
  }
  std::ranges::stable_sort(order, {}, [&lives = lives](uint32_t r) { return lives[r].begin; });

  std::vector<uint32_t> place(virtual_registers, no_register);
  using ending = std::pair<position, uint32_t>;
  std::priority_queue<ending, std::vector<ending>, std::greater<>> taken;
  for (auto const r : order) {
    if (!taken.empty() && taken.top().first < lives[r].begin) {
      place[r] = taken.top().second;
      taken.pop();
    } else {
      place[r] = p.registers++;
    }
    taken.emplace(lives[r].end, place[r]);
  }

  auto const rename = [&](uint32_t& r) {
    if (r == no_register) return;
    r = (r & constant_bit) != 0 ? p.registers + (r & ~constant_bit) : place[r];
  };
  for (auto& i : p.code) {
    std::ranges::for_each(i.to, rename);
    std::ranges::for_each(i.from, rename);
  }
  for (auto& s : p.specials) rename(s.second);
  std::ranges::for_each(unwritten, rename);
  p.unwritten = std::move(unwritten);
}

}  // namespace emulator
