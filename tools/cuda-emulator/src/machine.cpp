// SPDX-License-Identifier: Apache-2.0

#include "machine.hpp"

#include "execution.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace emulator {

namespace {

constexpr uint32_t nowhere = std::numeric_limits<uint32_t>::max();

std::string triple(dimensions const& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

dimensions place_of(uint64_t index, dimensions const& in) {
  return {static_cast<uint32_t>(index % in.x), static_cast<uint32_t>(index / in.x % in.y),
          static_cast<uint32_t>(index / in.x / in.y)};
}

uint64_t volume(dimensions const& d) { return uint64_t{d.x} * d.y * d.z; }

/// What the special registers hold in a lane.
std::array<uint64_t, special_registers.size()> special_values(block const& b, uint32_t warp, uint32_t lane) {
  dimensions const thread = place_of(warp * lanes + lane, b.how.block);
  dimensions const &threads = b.how.block, &blocks = b.how.grid;
  uint32_t const before = (1U << lane) - 1, up_to = all_lanes >> (31 - lane);
  return {thread.x,  thread.y, thread.z, threads.x, threads.y,
          threads.z, b.at.x,   b.at.y,   b.at.z,    blocks.x,
          blocks.y,  blocks.z, lane,     warp,      1U << lane,
          before,    up_to,    ~up_to,   ~before,   b.count.instructions};
}

/// Makes a block ready to run at a place in the grid. Registers keep what they hold: decoding has listed those that matter.
void start(block& b, dimensions at) {
  b.at = at;
  b.epoch = b.global.tick();
  b.sees.clear();
  b.shared.forget();
  for (uint32_t k = 0; k < b.warps.size(); ++k) {
    warp& w = b.warps[k];
    w.index = k;
    w.live = all_lanes >> (lanes - std::min(lanes, b.threads - k * lanes));
    w.epoch = b.epoch;
    w.at_warp = w.at_block = w.fence = 0;
    w.pc.fill(0);
    std::ranges::fill(w.undefined, 0U);
    w.local.forget();
    for (uint32_t r = 0; r < b.code.unwritten; ++r) {
      w.undefined[r] = all_lanes;
      w.shadows[r].fill(~0ULL);
    }
    for (auto const& s : b.code.specials) w.undefined[s.second] = 0;
    for (uint32_t l = 0; l < lanes; ++l) {
      auto const values = special_values(b, k, l);
      for (auto const& [which, r] : b.code.specials) w.values[r][l] = values[which];
    }
  }
}

/// Chooses the lanes that are furthest behind: those that have gone ahead meet them where paths join again. Lanes that wait for
/// others of the warp wait again if they are still alone.
bool choose(step& s) {
  warp& w = s.w;
  uint32_t const ready = w.live & ~w.at_block;
  s.pc = s.merge = nowhere;
  each_lane(ready & ~w.at_warp, [&](uint32_t l) { s.pc = std::min(s.pc, w.pc[l]); });
  if (s.pc == nowhere) return false;
  s.mask = 0;
  s.again = false;
  each_lane(ready, [&](uint32_t l) {
    if (w.pc[l] == s.pc)
      s.mask |= 1U << l;
    else if (w.pc[l] > s.pc)
      s.merge = std::min(s.merge, w.pc[l]);
  });
  w.at_warp &= ~s.mask;
  return true;
}

/// Runs one warp until all of its lanes have ended or wait.
void run_warp(step& s) {
  instruction const* const code = s.of.code.code.data();
  counts& count = s.of.count;
  while (choose(s)) {
    if (count.instructions > s.of.how.most_instructions)
      throw fault("the launch does not end: too many instructions");
    uint64_t budget = 1'000'000;
    do {
      instruction const& i = code[s.pc++];
      s.active = s.mask;
      if (i.guard != no_register) {
        s.demand_defined(i.guard, i.flow == flow::branches ? "a branch" : "a guard");
        s.active &= s.where(i.guard) ^ (i.guard_negated ? all_lanes : 0);
        if (s.active == 0) continue;
      }
      ++count.warp_instructions;
      count.instructions += static_cast<uint64_t>(std::popcount(s.active));
      i.run(s, i);
    } while (!s.again && s.pc < s.merge && --budget != 0);
    if (!s.again) each_lane(s.mask, [&](uint32_t l) { s.w.pc[l] = s.pc; });
  }
}

instruction const& instruction_of(block const& b, warp const& w, uint32_t lane) {
  return b.code.code[w.pc[lane]];
}

/// Lanes of one warp that wait for each other at several bar.warp.sync: they may pass when all whom one names are at one.
bool pass_warp_barriers(block& b) {
  bool passed = false;
  for (warp& w : b.warps) {
    // The lanes that a lane waits for: the last source.
    auto const mask_of = [&](uint32_t l) {
      instruction const& i = instruction_of(b, w, l);
      return static_cast<uint32_t>(w.values[i.from[i.sources - 1U]][l]);
    };
    while (w.at_warp != 0) {
      auto const first = static_cast<uint32_t>(std::countr_zero(w.at_warp));
      uint32_t const needed = mask_of(first);
      uint32_t elsewhere = needed & ~w.at_warp;
      each_lane(needed & w.at_warp, [&](uint32_t l) {
        bool const barrier = instruction_of(b, w, l).text.find("bar.warp.sync") != std::string_view::npos;
        if (!barrier || mask_of(l) != needed) elsewhere |= 1U << l;
      });
      if (elsewhere != 0)
        throw fault("warp ", w.index, ": lane ", first, " waits at `", instruction_of(b, w, first).text,
                    "` for lanes that are elsewhere: ", text_of_lanes(elsewhere));
      each_lane(needed, [&](uint32_t l) { ++w.pc[l]; });
      w.at_warp &= ~needed;
      w.epoch = b.global.tick();
      passed = true;
    }
  }
  return passed;
}

/// Lets threads pass the barriers that are complete. @throws fault where nobody can go on.
void pass_block_barriers(block& b) {
  struct barrier {
    uint64_t needed = 0;
    uint64_t arrived = 0;
    uint64_t yes = 0;  // votes
  };
  std::map<uint64_t, barrier> barriers;  // by their numbers
  auto const each_waiting = [&](auto visit) {
    for (warp& w : b.warps) {
      each_lane(w.at_block, [&](uint32_t l) {
        instruction const& i = instruction_of(b, w, l);
        visit(w, l, i, barriers[w.values[i.from[0]][l]]);
      });
    }
  };
  each_waiting([&](warp& w, uint32_t l, instruction const& i, barrier& at) {
    // bar.red has a result, and the predicate behind the other sources.
    at.needed = i.sources > 1U + i.results ? w.values[i.from[1]][l] : b.threads;
    ++at.arrived;
    if (i.results > 0) at.yes += w.values[i.from[i.sources - 1U]][l] & 1;
    // All lanes of a warp that live wait at the same barrier instruction.
    each_lane(w.live, [&](uint32_t k) {
      if (w.pc[k] == w.pc[l]) return;
      throw fault("divergent barrier: thread ", w.index * lanes + l, " waits at `", i.text, "`, thread ",
                  w.index * lanes + k, " of its warp at `", instruction_of(b, w, k).text, "`");
    });
  });
  bool passed = false;
  each_waiting([&](warp& w, uint32_t l, instruction const& i, barrier& at) {
    if (at.arrived != at.needed) return;
    bool const vote = i.variant != 0 ? at.yes > 0 : at.yes == at.arrived;
    if (i.results > 0) step{b, w}.set(i.to[0], l, vote, 0);
    w.at_block &= ~(1U << l);
    ++w.pc[l];
    passed = true;
  });
  if (!passed) {
    auto const& [number, at] = *barriers.begin();
    throw fault("divergent barrier: ", at.arrived, " of ", at.needed, " threads wait at barrier ", number,
                ", the others have ended or wait elsewhere");
  }
  b.epoch = b.global.tick();
  ++b.count.barriers;
}

/// A message with everything that finds the place.
fault located(fault const& what, step const& s) {
  warp const& w = s.w;
  instruction const& i = s.of.code.code[s.pc == 0 ? 0 : s.pc - 1];
  return fault(what.what(), "\n  kernel ", s.of.code.name, "\n  block ", triple(s.of.at), " of ",
               triple(s.of.how.grid), ", thread ",
               triple(place_of(w.index * lanes + s.culprit, s.of.how.block)), " of ", triple(s.of.how.block),
               "\n  instruction ", i.text);
}

void run_block(block& b) {
  auto const alive = [&] { return std::ranges::any_of(b.warps, [](warp const& w) { return w.live != 0; }); };
  while (alive()) {
    for (warp& w : b.warps) {
      step s{b, w};
      try {
        run_warp(s);
      } catch (fault const& what) {
        throw located(what, s);
      }
    }
    try {
      if (alive() && !pass_warp_barriers(b)) pass_block_barriers(b);
    } catch (fault const& what) {
      throw fault(what.what(), "\n  kernel ", b.code.name, "\n  block ", triple(b.at));
    }
  }
}

}  // namespace

void step::fail_undefined(uint32_t bad, char const* uses) {
  culprit = static_cast<uint32_t>(std::countr_zero(bad));
  throw fault("uninitialized: bits that nobody wrote reach ", uses);
}

void step::send(uint32_t those, uint32_t to) {
  each_lane(mask, [&](uint32_t l) { w.pc[l] = (those >> l & 1) != 0 ? to : pc; });
  again = true;
}

void step::wait(uint32_t& waiting) {
  send(active, pc - 1);
  waiting |= active;
}

std::string text_of_lanes(uint32_t mask) {
  std::string text;
  each_lane(mask, [&](uint32_t l) { text += (text.empty() ? "" : ", ") + std::to_string(l); });
  return text;
}

loaded_module::loaded_module(std::string text, memory& in) : text_(std::move(text)) {
  for (auto const& [name, v] : text_.global) {
    uint64_t const bytes = std::max<uint64_t>(v.bytes, 1);
    uint64_t const address = in.allocate(bytes, "the variable " + name);
    // What is not initialized is zero.
    in.fill(address, 0, bytes);
    in.write(address, v.initial.data(), v.initial.size());
    addresses_[name] = address;
  }
}

uint64_t loaded_module::address_of(std::string_view name) const {
  auto const found = addresses_.find(name);
  if (found == addresses_.end()) throw fault("the module has no variable ", name);
  return found->second;
}

program const& loaded_module::kernel(std::string const& name) {
  auto const known = programs_.find(name);
  if (known != programs_.end()) return known->second;
  auto const f = text_.functions.find(name);
  if (f == text_.functions.end() || !f->second.entry) throw fault("the module has no kernel ", name);
  return programs_.emplace(name, decode(text_, f->second, addresses_)).first->second;
}

counts run(program const& kernel, launch const& how, memory& on) {
  counts count;
  block b{kernel, how, on, count};
  uint64_t const threads = volume(how.block);
  if (threads == 0 || threads > 1024)
    throw fault("a block of ", triple(how.block), " threads: 1 to 1,024 are possible");
  if (how.parameters.size() < kernel.parameter_bytes) {
    throw fault(kernel.name, " takes ", kernel.parameter_bytes, " bytes of parameters, given are ",
                how.parameters.size());
  }
  uint64_t const shared = kernel.shared_bytes + how.dynamic_shared;
  if (shared > 227 * 1024)
    throw fault("a block of ", shared, " bytes of shared memory: 227 KiB are possible");
  b.begin = on.tick();
  b.threads = static_cast<uint32_t>(threads);
  b.shared = storage(shared);
  b.written.resize(shared);
  b.read.resize(shared);
  b.warps.resize((threads + lanes - 1) / lanes);
  for (warp& w : b.warps) {
    w.values.resize(kernel.registers);
    for (auto const bits : kernel.constants) w.values.emplace_back().fill(bits);
    w.shadows.resize(kernel.registers);
    w.undefined.resize(w.values.size());
    w.local = storage(lanes * kernel.local_bytes);
  }
  uint64_t const blocks = volume(how.grid);
  for (uint64_t k = 0; k < blocks; ++k) {
    b.number = static_cast<uint32_t>(k);
    start(b, place_of(k, how.grid));
    run_block(b);
  }
  return count;
}

}  // namespace emulator
