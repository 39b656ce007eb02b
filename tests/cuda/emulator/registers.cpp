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

using position = std::uint32_t;

/// A register's life, both ends included.
struct interval {
  position begin = std::numeric_limits<position>::max();
  position end = 0;

  void extend(position at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

struct basic_block {
  position begin;
  position end;  // behind its last instruction
  std::vector<std::uint32_t> successors{};
  std::vector<bool> written{};
  std::vector<bool> live_in{};
};

std::vector<basic_block> blocks_of(std::vector<instruction> const& code) {
  std::vector<bool> starts(code.size() + 1, false);
  starts[0] = true;
  auto const leaves = [&](position at) { return code[at].flow != flow::on; };
  for (position at = 0; at < code.size(); ++at) {
    if (code[at].flow == flow::branches) starts[code[at].target] = true;
    if (leaves(at)) starts[at + 1] = true;
  }
  std::vector<basic_block> blocks;
  std::vector<std::uint32_t> block_at(code.size(), 0);
  for (position at = 0; at < code.size(); ++at) {
    if (starts[at]) blocks.push_back({at, at});
    blocks.back().end = at + 1;
    block_at[at] = static_cast<std::uint32_t>(blocks.size() - 1);
  }
  for (auto& b : blocks) {
    auto const& last = code[b.end - 1];
    bool const falls_through = last.guard != no_register || !leaves(b.end - 1);
    if (falls_through && b.end < code.size()) b.successors.push_back(block_at[b.end]);
    if (last.flow == flow::branches) b.successors.push_back(block_at[last.target]);
  }
  return blocks;
}

template <class Visit>
void each_used(instruction const& i, Visit visit) {
  for (auto const r : i.from) {
    if (r != no_register && (r & constant_bit) == 0) visit(r);
  }
}

template <class Visit>
void each_written(instruction const& i, Visit visit) {
  for (auto const r : i.to) {
    if (r != no_register) visit(r);
  }
}

/// What is alive where each block begins: the least fixed point, backwards.
void find_live(std::vector<basic_block>& blocks, std::vector<instruction> const& code,
               std::uint32_t registers) {
  for (auto& b : blocks) {
    b.written.assign(registers, false);
    b.live_in.assign(registers, false);
    for (position at = b.begin; at < b.end; ++at) {
      each_used(code[at], [&](std::uint32_t r) {
        if (!b.written[r]) b.live_in[r] = true;
      });
      // What a guard may leave as it was is not written anew.
      if (code[at].guard == no_register)
        each_written(code[at], [&](std::uint32_t r) { b.written[r] = true; });
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
      for (auto const s : b->successors) {
        auto const& after = blocks[s].live_in;
        for (std::uint32_t r = 0; r < registers; ++r) {
          if (after[r] && !b->written[r] && !b->live_in[r]) changed = b->live_in[r] = true;
        }
      }
    }
  }
}

}  // namespace

void allocate_registers(program& p, std::uint32_t virtual_registers) {
  auto blocks = blocks_of(p.code);
  find_live(blocks, p.code, virtual_registers);

  std::vector<interval> lives(virtual_registers);
  for (auto const& b : blocks) {
    for (std::uint32_t r = 0; r < virtual_registers; ++r) {
      if (b.live_in[r]) lives[r].extend(b.begin);
    }
    for (auto const s : b.successors) {
      for (std::uint32_t r = 0; r < virtual_registers; ++r) {
        if (blocks[s].live_in[r]) lives[r].extend(b.end);
      }
    }
    for (position at = b.begin; at < b.end; ++at) {
      // Sources end behind the instruction: a result never takes the register of a source.
      auto const here = [&](std::uint32_t r) { lives[r].extend(at); };
      each_used(p.code[at], here);
      each_written(p.code[at], here);
    }
  }
  auto const last = static_cast<position>(p.code.size());
  for (auto const& s : p.specials) lives[s.second] = {0, last};

  std::vector<std::uint32_t> order;
  for (std::uint32_t r = 0; r < virtual_registers; ++r) {
    if (lives[r].begin <= lives[r].end) order.push_back(r);
  }
  std::ranges::stable_sort(order, {}, [&](std::uint32_t r) { return lives[r].begin; });

  std::vector<std::uint32_t> place(virtual_registers, no_register);
  using ending = std::pair<position, std::uint32_t>;
  std::priority_queue<ending, std::vector<ending>, std::greater<>> alive;
  std::vector<std::uint32_t> free;
  for (auto const r : order) {
    while (!alive.empty() && alive.top().first < lives[r].begin) {
      free.push_back(alive.top().second);
      alive.pop();
    }
    if (free.empty()) free.push_back(p.registers++);
    place[r] = free.back();
    free.pop_back();
    alive.emplace(lives[r].end, place[r]);
  }

  auto const rename = [&](std::uint32_t& r) {
    if (r == no_register) return;
    r = (r & constant_bit) != 0 ? p.registers + (r & ~constant_bit) : place[r];
  };
  for (auto& i : p.code) {
    std::ranges::for_each(i.to, rename);
    std::ranges::for_each(i.from, rename);
  }
  for (auto& s : p.specials) rename(s.second);
  for (std::uint32_t r = 0; r < virtual_registers; ++r) {
    bool const special = std::ranges::any_of(p.specials, [&](auto const& s) { return s.second == place[r]; });
    if (blocks[0].live_in[r] && !special) p.unwritten.push_back(place[r]);
  }
}

}  // namespace emulator
