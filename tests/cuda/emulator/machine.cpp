// SPDX-License-Identifier: Apache-2.0

#include "machine.hpp"

#include "execution.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace emulator {

struct lane_place {
  dimensions thread;
  block const& of;
  std::uint32_t warp;
  std::uint32_t lane;
};

namespace {

constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

std::string triple(dimensions const& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

dimensions place_of(std::uint64_t index, dimensions const& in) {
  return {static_cast<std::uint32_t>(index % in.x), static_cast<std::uint32_t>(index / in.x % in.y),
          static_cast<std::uint32_t>(index / in.x / in.y)};
}

std::uint64_t volume(dimensions const& d) { return std::uint64_t{d.x} * d.y * d.z; }

/// Makes a block ready to run at a place in the grid. Registers keep what they hold: decoding has listed those that matter.
void start(block& b, dimensions at) {
  b.at = at;
  ++b.epoch;
  std::ranges::fill(b.shared, std::byte{0xa5});
  std::ranges::fill(b.shared_shadow, std::byte{0xff});
  for (std::uint32_t k = 0; k < b.warps.size(); ++k) {
    warp& w = b.warps[k];
    w.index = k;
    std::uint32_t const left = b.threads - k * lanes;
    w.live = left >= lanes ? all_lanes : (1U << left) - 1;
    w.epoch = 0;
    w.pc.fill(0);
    w.waits.fill(waiting::nothing);
    std::ranges::fill(w.undefined, 0U);
    std::ranges::fill(w.undefined_predicates, all_lanes);
    std::ranges::fill(w.local, std::byte{0xa5});
    std::ranges::fill(w.local_shadow, std::byte{0xff});
    for (auto const r : b.code.unwritten) {
      w.undefined[r] = all_lanes;
      w.values[r].fill(0xa5a5'a5a5'a5a5'a5a5);
      w.shadows[r].fill(~0ULL);
    }
    for (auto const& [which, r] : b.code.specials) {
      for (std::uint32_t l = 0; l < lanes; ++l)
        w.values[r][l] = which({place_of(k * lanes + l, b.how.block), b, k, l});
    }
  }
}

/// Chooses the lanes that are furthest behind: those that have gone ahead meet them where paths join again. Lanes that wait for
/// others of the warp wait again if they are still alone.
bool choose(step& s) {
  warp& w = s.w;
  std::uint32_t lowest = nowhere;
  each_lane(w.live, [&](std::uint32_t l) {
    if (w.waits[l] == waiting::nothing) lowest = std::min(lowest, w.pc[l]);
  });
  if (lowest == nowhere) return false;
  s.pc = lowest;
  s.mask = 0;
  s.merge = nowhere;
  s.again = false;
  each_lane(w.live, [&](std::uint32_t l) {
    if (w.pc[l] == lowest && w.waits[l] != waiting::block) {
      s.mask |= 1U << l;
      w.waits[l] = waiting::nothing;
    } else if (w.pc[l] > lowest && w.waits[l] != waiting::block) {
      s.merge = std::min(s.merge, w.pc[l]);
    }
  });
  return true;
}

/// Runs one warp until all of its lanes have ended or wait.
void run_warp(step& s) {
  instruction const* const code = s.of.code.code.data();
  counts& count = s.of.count;
  while (choose(s)) {
    if (count.instructions > s.of.how.most_instructions)
      throw fault("the launch does not end: too many instructions");
    std::uint64_t budget = 1'000'000;
    do {
      instruction const& i = code[s.pc++];
      s.active = s.mask;
      if (i.guard != no_register) {
        if (std::uint32_t const bad = s.w.undefined_predicates[i.guard] & s.mask; bad != 0) [[unlikely]] {
          s.fail_undefined(bad, i.flow == flow::branches ? "a branch" : "a guard");
        }
        s.active &= s.w.predicates[i.guard] ^ (i.guard_negated ? all_lanes : 0);
        if (s.active == 0) continue;
      }
      ++count.warp_instructions;
      count.instructions += static_cast<std::uint64_t>(std::popcount(s.active));
      i.run(s, i);
    } while (!s.again && s.pc < s.merge && --budget != 0);
    if (!s.again) each_lane(s.mask, [&](std::uint32_t l) { s.w.pc[l] = s.pc; });
  }
}

instruction const& instruction_of(block const& b, warp const& w, std::uint32_t lane) {
  return b.code.code[w.pc[lane]];
}

/// Lanes of one warp that wait for each other at several bar.warp.sync: they may pass when all whom one names are at one.
bool pass_warp_barriers(block& b) {
  bool passed = false;
  for (warp& w : b.warps) {
    std::uint32_t waits = 0;
    each_lane(w.live, [&](std::uint32_t l) {
      waits |= static_cast<std::uint32_t>(w.waits[l] == waiting::warp) << l;
    });
    // The lanes that a lane waits for: the last source.
    auto const mask_of = [&](std::uint32_t l) {
      instruction const& i = instruction_of(b, w, l);
      return static_cast<std::uint32_t>(b.value(w, i.from[i.sources - 1U])[l]);
    };
    while (waits != 0) {
      auto const l = static_cast<std::uint32_t>(std::countr_zero(waits));
      instruction const& i = instruction_of(b, w, l);
      auto const needed = mask_of(l);
      // All are at such a barrier, with the same mask.
      bool barrier = true;
      each_lane(needed & waits, [&](std::uint32_t k) {
        instruction const& other = instruction_of(b, w, k);
        barrier =
            barrier && other.text.find("bar.warp.sync") != std::string_view::npos && mask_of(k) == needed;
      });
      if (!barrier || (needed & ~waits) != 0) {
        std::string missing;
        each_lane(needed & ~waits, [&](std::uint32_t k) { missing += " " + std::to_string(k); });
        throw fault("warp " + std::to_string(w.index) + ": lane " + std::to_string(l) + " waits at `" +
                    std::string(i.text) + "` for lanes that are elsewhere:" +
                    (missing.empty() ? " all at other instructions" : missing));
      }
      each_lane(needed, [&](std::uint32_t k) {
        w.waits[k] = waiting::nothing;
        ++w.pc[k];
      });
      waits &= ~needed;
      ++w.epoch;
      passed = true;
    }
  }
  return passed;
}

/// The number of a barrier of the block, and how many threads it takes.
std::pair<std::uint64_t, std::uint64_t> barrier_of(block const& b, warp const& w, std::uint32_t lane) {
  instruction const& i = instruction_of(b, w, lane);
  auto const source = [&](std::uint32_t k, std::uint64_t otherwise) {
    return k < i.sources ? b.value(w, i.from[k])[lane] & 0xffff'ffff : otherwise;
  };
  return {source(0, 0), source(1, b.threads)};
}

/// Lets threads pass the barriers that are complete. @throws fault where nobody can go on.
void pass_block_barriers(block& b) {
  struct barrier {
    std::uint64_t needed = 0;
    std::uint64_t arrived = 0;
    bool any = false;
    bool every = true;
  };
  std::map<std::uint64_t, barrier> barriers;
  auto const each_waiting = [&](auto visit) {
    for (warp& w : b.warps) {
      each_lane(w.live, [&](std::uint32_t l) {
        if (w.waits[l] == waiting::block) visit(w, l);
      });
    }
  };
  each_waiting([&](warp& w, std::uint32_t l) {
    auto const [number, needed] = barrier_of(b, w, l);
    instruction const& i = instruction_of(b, w, l);
    auto& at = barriers[number];
    at.needed = needed;
    ++at.arrived;
    if (i.predicate != no_register) {
      if ((w.undefined_predicates[i.predicate] >> l & 1) != 0)
        throw fault("uninitialised: a vote at a barrier");
      bool const yes = ((w.predicates[i.predicate] >> l & 1) != 0) != i.predicate_negated;
      at.any |= yes;
      at.every &= yes;
    }
    // All lanes of a warp that live wait at the same barrier instruction.
    each_lane(w.live, [&](std::uint32_t k) {
      if (w.pc[k] == w.pc[l]) return;
      throw fault("divergent barrier: thread " + std::to_string(w.index * lanes + l) + " waits at `" +
                  std::string(i.text) + "`, thread " + std::to_string(w.index * lanes + k) +
                  " of its warp at `" + std::string(instruction_of(b, w, k).text) + "`");
    });
  });
  bool passed = false;
  each_waiting([&](warp& w, std::uint32_t l) {
    barrier const& at = barriers[barrier_of(b, w, l).first];
    if (at.arrived != at.needed) return;
    instruction const& i = instruction_of(b, w, l);
    if (i.to_predicate[0] != no_register) {
      bool const result = i.variant == 2 ? at.any : at.every;
      auto& to = w.predicates[i.to_predicate[0]];
      to = (to & ~(1U << l)) | (static_cast<std::uint32_t>(result) << l);
      w.undefined_predicates[i.to_predicate[0]] &= ~(1U << l);
    }
    w.waits[l] = waiting::nothing;
    ++w.pc[l];
    passed = true;
  });
  if (passed) {
    ++b.epoch;
    ++b.count.barriers;
    return;
  }
  for (auto const& [number, at] : barriers) {
    throw fault("divergent barrier: " + std::to_string(at.arrived) + " of " + std::to_string(at.needed) +
                " threads wait at barrier " + std::to_string(number) +
                ", the others have ended or wait elsewhere");
  }
}

bool alive(block const& b) {
  return std::ranges::any_of(b.warps, [](warp const& w) { return w.live != 0; });
}

/// A message with everything that finds the place.
fault located(fault const& what, step const& s) {
  warp const& w = s.w;
  instruction const& i = s.of.code.code[s.pc == 0 ? 0 : s.pc - 1];
  return fault(std::string(what.what()) + "\n  kernel " + s.of.code.name + "\n  block " + triple(s.of.at) +
               " of " + triple(s.of.how.grid) + ", thread " +
               triple(place_of(w.index * lanes + s.culprit, s.of.how.block)) + " of " +
               triple(s.of.how.block) + "\n  instruction " + std::string(i.text));
}

void run_block(block& b) {
  while (alive(b)) {
    for (warp& w : b.warps) {
      step s{b, w};
      try {
        run_warp(s);
      } catch (fault const& what) {
        throw located(what, s);
      }
    }
    if (!alive(b)) return;
    try {
      if (!pass_warp_barriers(b)) pass_block_barriers(b);
    } catch (fault const& what) {
      throw fault(std::string(what.what()) + "\n  kernel " + b.code.name + "\n  block " + triple(b.at));
    }
  }
}

}  // namespace

special special_of(std::string_view name) {
  static std::map<std::string_view, special> const specials{
      {"%tid.x", [](auto const& p) -> std::uint64_t { return p.thread.x; }},
      {"%tid.y", [](auto const& p) -> std::uint64_t { return p.thread.y; }},
      {"%tid.z", [](auto const& p) -> std::uint64_t { return p.thread.z; }},
      {"%ntid.x", [](auto const& p) -> std::uint64_t { return p.of.how.block.x; }},
      {"%ntid.y", [](auto const& p) -> std::uint64_t { return p.of.how.block.y; }},
      {"%ntid.z", [](auto const& p) -> std::uint64_t { return p.of.how.block.z; }},
      {"%ctaid.x", [](auto const& p) -> std::uint64_t { return p.of.at.x; }},
      {"%ctaid.y", [](auto const& p) -> std::uint64_t { return p.of.at.y; }},
      {"%ctaid.z", [](auto const& p) -> std::uint64_t { return p.of.at.z; }},
      {"%nctaid.x", [](auto const& p) -> std::uint64_t { return p.of.how.grid.x; }},
      {"%nctaid.y", [](auto const& p) -> std::uint64_t { return p.of.how.grid.y; }},
      {"%nctaid.z", [](auto const& p) -> std::uint64_t { return p.of.how.grid.z; }},
      {"%laneid", [](auto const& p) -> std::uint64_t { return p.lane; }},
      {"%warpid", [](auto const& p) -> std::uint64_t { return p.warp; }},
      {"%lanemask_eq", [](auto const& p) -> std::uint64_t { return 1U << p.lane; }},
      {"%lanemask_lt", [](auto const& p) -> std::uint64_t { return (1U << p.lane) - 1; }},
      {"%lanemask_le", [](auto const& p) -> std::uint64_t { return all_lanes >> (31 - p.lane); }},
      {"%lanemask_gt", [](auto const& p) -> std::uint64_t { return all_lanes << p.lane << 1; }},
      {"%lanemask_ge", [](auto const& p) -> std::uint64_t { return all_lanes << p.lane; }},
      {"%clock64", [](auto const& p) { return p.of.count.instructions; }}};
  auto const found = specials.find(name);
  return found == specials.end() ? nullptr : found->second;
}

void step::fail_undefined(std::uint32_t bad, char const* uses) {
  culprit = static_cast<std::uint32_t>(std::countr_zero(bad));
  throw fault(std::string("uninitialised: bits that nobody wrote reach ") + uses);
}

void step::wait(waiting what) {
  each_lane(mask, [&](std::uint32_t l) {
    bool const waits = (active >> l & 1) != 0;
    w.pc[l] = waits ? pc - 1 : pc;
    if (waits) w.waits[l] = what;
  });
  again = true;
}

loaded_module::loaded_module(std::string text, memory& in) : text_(std::move(text)) {
  for (auto const& [name, v] : text_.global) {
    std::uint64_t const bytes = std::max<std::uint64_t>(v.bytes, 1);
    std::uint64_t const address = in.allocate(bytes, "the variable " + name);
    // What is not initialised is zero.
    in.fill(address, 0, bytes);
    in.write(address, v.initial.data(), v.initial.size());
    addresses_[name] = address;
  }
}

std::uint64_t loaded_module::address_of(std::string_view name) const {
  auto const found = addresses_.find(name);
  if (found == addresses_.end()) throw fault("the module has no variable " + std::string(name));
  return found->second;
}

program const& loaded_module::kernel(std::string const& name) {
  auto const known = programs_.find(name);
  if (known != programs_.end()) return known->second;
  auto const f = text_.functions.find(name);
  if (f == text_.functions.end() || !f->second.entry) throw fault("the module has no kernel " + name);
  auto const address = [this](std::string_view symbol) { return address_of(symbol); };
  return programs_.emplace(name, decode(text_, f->second, address)).first->second;
}

counts run(program const& kernel, launch const& how, memory& on) {
  counts count;
  block b{kernel, how, on, count};
  std::uint64_t const threads = volume(how.block);
  if (threads == 0 || threads > 1024)
    throw fault("a block of " + triple(how.block) + " threads: 1 to 1,024 are possible");
  if (how.parameters.size() < kernel.parameter_bytes) {
    throw fault(kernel.name + " takes " + std::to_string(kernel.parameter_bytes) +
                " bytes of parameters, given are " + std::to_string(how.parameters.size()));
  }
  std::uint64_t const shared = kernel.shared_bytes + how.dynamic_shared;
  if (shared > 227 * 1024)
    throw fault("a block of " + std::to_string(shared) + " bytes of shared memory: 227 KiB are possible");
  b.threads = static_cast<std::uint32_t>(threads);
  b.constants.resize(kernel.constants.size());
  for (std::size_t k = 0; k < b.constants.size(); ++k) b.constants[k].fill(kernel.constants[k]);
  b.shared.resize(shared);
  b.shared_shadow.resize(shared);
  b.written.resize(shared);
  b.read.resize(shared);
  b.warps.resize((threads + lanes - 1) / lanes);
  for (warp& w : b.warps) {
    w.values.resize(kernel.registers);
    w.shadows.resize(kernel.registers);
    w.undefined.resize(kernel.registers);
    w.predicates.resize(kernel.predicates);
    w.undefined_predicates.resize(kernel.predicates);
    w.local.resize(lanes * kernel.local_bytes);
    w.local_shadow.resize(lanes * kernel.local_bytes);
  }
  std::uint64_t const blocks = volume(how.grid);
  for (std::uint64_t k = 0; k < blocks; ++k) {
    start(b, place_of(k, how.grid));
    run_block(b);
  }
  return count;
}

}  // namespace emulator
