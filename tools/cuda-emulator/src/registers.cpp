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

/// A register's life, both ends included.
struct interval {
  uint32_t begin = std::numeric_limits<uint32_t>::max();
  uint32_t end = 0;

  void extend(uint32_t at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

/// Where registers are alive: from what uses them backwards to what writes them. What may be read before it is written is alive
/// from the begin on.
std::vector<interval> find_lives(std::vector<instruction> const& code, uint32_t registers) {
  std::vector<interval> lives(registers);
  std::vector<std::vector<uint32_t>> uses(registers), before(code.size());
  for (uint32_t at = 0; at < code.size(); ++at) {
    instruction const& i = code[at];
    bool const goes_on = i.flow == flow::on || i.guard != no_register;
    if (goes_on && at + 1 < code.size()) before[at + 1].push_back(at);
    if (i.flow == flow::branches) before[i.target].push_back(at);
    auto const use = [&](uint32_t r) {
      if (r < registers) uses[r].push_back(at);
    };
    std::ranges::for_each(i.from, use);
    use(i.guard);
    for (auto const r : i.to) {
      if (r < registers) lives[r].extend(at);
    }
  }
  std::vector<uint32_t> seen(code.size(), no_register);
  for (uint32_t r = 0; r < registers; ++r) {
    for (auto& open = uses[r]; !open.empty();) {
      uint32_t const at = open.back();
      open.pop_back();
      if (std::exchange(seen[at], r) == r) continue;
      // Sources end behind the instruction: a result never takes the register of a source.
      lives[r].extend(at);
      for (auto const from : before[at]) {
        lives[r].extend(from);
        // What a guard may leave as it was is not written anew.
        bool const written =
            code[from].guard == no_register && std::ranges::find(code[from].to, r) != code[from].to.end();
        if (!written) open.push_back(from);
      }
    }
  }
  return lives;
}

}  // namespace

void allocate_registers(program& p, uint32_t virtual_registers) {
  auto lives = find_lives(p.code, virtual_registers);
  for (auto const& s : p.specials) lives[s.second] = {0, static_cast<uint32_t>(p.code.size())};
  std::vector<uint32_t> order;
  for (uint32_t r = 0; r < virtual_registers; ++r) {
    if (lives[r].begin <= lives[r].end) order.push_back(r);
  }
  std::ranges::stable_sort(order, {}, [&](uint32_t r) { return lives[r].begin; });

  std::vector<uint32_t> place(virtual_registers, no_register);
  using ending = std::pair<uint32_t, uint32_t>;
  std::priority_queue<ending, std::vector<ending>, std::greater<>> taken;
  for (auto const r : order) {
    if (!taken.empty() && taken.top().first < lives[r].begin) {
      place[r] = taken.top().second;
      taken.pop();
    } else {
      place[r] = p.registers++;
    }
    taken.emplace(lives[r].end, place[r]);
    if (lives[r].begin == 0) p.unwritten = p.registers;
  }

  auto const rename = [&](uint32_t& r) {
    if (r == no_register) return;
    r = (r & constant_bit) != 0 ? p.registers + (r & ~constant_bit) : place[r];
  };
  for (auto& i : p.code) {
    std::ranges::for_each(i.to, rename);
    std::ranges::for_each(i.from, rename);
    rename(i.guard);
  }
  for (auto& s : p.specials) rename(s.second);
}

}  // namespace emulator
