// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Branches, ends, barriers, and what the lanes of a warp exchange.

#include "apply.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

namespace emulator {
namespace {

/// Lanes that branch back may meet lanes that wait for them.
void branch(step& s, instruction const& i) {
  if (s.active == s.mask && (s.w.at_warp == 0 || i.target >= s.pc))
    s.pc = i.target;
  else
    s.send(s.active, i.target);
}

void end(step& s, instruction const&) {
  s.w.live &= ~s.active;
  s.mask &= ~s.active;
  if (s.mask == 0) s.again = true;
}

void nothing(step&, instruction const&) {}

/// Of all blocks of a device, or more.
void fence(step& s, instruction const&) { note_fence(s); }

/// A fault of which the first active lane is told.
[[noreturn]] void fail(step& s, std::string const& text) {
  s.culprit = static_cast<uint32_t>(std::countr_zero(s.active));
  throw fault(text);
}

void trap(step& s, instruction const&) { fail(s, "trap"); }

/// __assertfail(message, file, line, function, size), or another function that the module does not define.
void call_outside(step& s, instruction const& i) {
  std::string text = "a call of a function that the module does not define";
  if (i.text.find("__assertfail") != std::string_view::npos && i.sources > 0) {
    uint64_t at = 0;
    auto const lane = static_cast<uint32_t>(std::countr_zero(s.active));
    std::memcpy(&at, resolve(s, i, lane, s.value(i.from[0])[lane], 8, false).data, 8);
    text = "assertion failed: ";
    for (char c = 0;; ++at) {
      std::memcpy(&c, resolve(s, i, lane, at, 1, false).data, 1);
      if (c == 0) break;
      text += c;
    }
  }
  fail(s, text);
}

void unknown(step& s, instruction const&) { fail(s, "the interpreter does not know this instruction"); }

// ---- A block's barriers

void block_barrier(step& s, instruction const& i) {
  for (uint32_t k = 0; k < i.sources; ++k) s.demand_defined(i.from[k], "a barrier");
  s.wait(s.w.at_block);
}

// ---- What a warp's lanes do together

/// Whether lanes of a group, those that the mask, the last source, names, are all at this instruction: then the step goes on with
/// them alone, and other lanes that are here come to it again. If there is no such group, those that are here wait.
bool together(step& s, instruction const& i) {
  uint32_t const r = i.from[i.sources - 1U];
  s.demand_defined(r, "a mask of lanes");
  row const& masks = s.value(r);
  uint32_t group = 0;
  each_lane(s.active, [&](uint32_t l) {
    s.culprit = l;
    auto const m = static_cast<uint32_t>(masks[l]);
    if ((m >> l & 1) == 0) throw fault("lane ", l, " is not in its own mask of lanes");
    if (uint32_t const gone = m & ~s.w.live; gone != 0)
      throw fault("waits for lanes ", text_of_lanes(gone), ", which have ended or do not exist");
    if ((m & ~s.active) != 0) return;
    each_lane(m, [&](uint32_t k) {
      if (static_cast<uint32_t>(masks[k]) != m)
        throw fault("lanes ", l, " and ", k, " have different masks of lanes");
    });
    if (group == 0) group = m;
  });
  if (group == 0) {
    s.wait(s.w.at_warp);
    return false;
  }
  if (group == s.active) return true;
  s.send(s.active & ~group, s.pc - 1);
  s.active = group;
  return true;
}

void warp_barrier(step& s, instruction const& i) {
  if (together(s, i)) s.w.epoch = s.of.global.tick();
}

/// shfl.sync: d|p = a, b, c, mask. `F` gives the lane to read from; `variant` is not 0 where lanes below the bound are out of range.
template <class F>
handler shuffle(F) {
  return [](step& s, instruction const& i) {
    if (!together(s, i)) return;
    s.demand_defined(i.from[1], "the source of a shuffle");
    s.demand_defined(i.from[2], "the source of a shuffle");
    row const a = s.value(i.from[0]);
    row shadow{};
    each_lane(s.active, [&](uint32_t l) { shadow[l] = s.shadow(i.from[0], l); });
    each_lane(s.active, [&](uint32_t l) {
      auto const lane = static_cast<int>(l);
      auto const c = static_cast<int>(s.value(i.from[2])[l]);
      int const segment = c >> 8 & 31;
      int const bound = (lane & segment) | (c & 31 & ~segment);
      int const from = F{}(lane, static_cast<int>(s.value(i.from[1])[l] & 31), segment);
      bool const valid = i.variant != 0 ? from >= bound : from <= bound;
      auto const source = valid ? static_cast<uint32_t>(from) : l;
      s.culprit = l;
      if ((s.active >> source & 1) == 0)
        throw fault("a shuffle from lane ", source, ", which does not take part");
      if (i.to[0] != no_register) s.set(i.to[0], l, a[source], shadow[source]);
      if (i.to[1] != no_register) s.set(i.to[1], l, valid, 0);
    });
  };
}

/// vote.sync: `F` makes a result of the lanes that say yes and of those that are asked. An undefined bit reaches all lanes.
template <class F>
handler vote(F) {
  return [](step& s, instruction const& i) {
    if (!together(s, i)) return;
    uint32_t const bad = s.undefined(i.from[0]) & s.active;
    uint64_t const result = F{}(s.where(i.from[0]) & s.active, s.active);
    uint64_t const shadow = i.type.kind == 'p' ? bad != 0 : bad;
    each_lane(s.active, [&](uint32_t l) { s.set(i.to[0], l, result, shadow); });
  };
}

/// redux.sync of 32 bits
template <class T, class F>
void reduce(step& s, instruction const& i) {
  if (!together(s, i)) return;
  row const& a = s.value(i.from[0]);
  auto result = as<T>(a[static_cast<uint32_t>(std::countr_zero(s.active))]);
  each_lane(s.active & (s.active - 1),
            [&](uint32_t l) { result = static_cast<T>(F{}(result, as<T>(a[l]))); });
  uint64_t const shadow = (s.undefined(i.from[0]) & s.active) != 0 ? mask_of_bytes(4) : 0;
  each_lane(s.active, [&](uint32_t l) { s.set(i.to[0], l, bits_of(result), shadow); });
}

void active_mask(step& s, instruction const& i) {
  each_lane(s.active, [&](uint32_t l) { s.set(i.to[0], l, s.active, 0); });
}

}  // namespace

handler control_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "bra") return i.flow = flow::branches, branch;
  if (n == "ret" || n == "exit") return i.flow = flow::ends, end;
  if (n == "trap") return i.flow = flow::ends, trap;
  if (n == "call") return call_outside;
  // Blocks and lanes take turns at whole instructions: memory is always consistent. Fences matter to note_global().
  if (n == "nanosleep") return nothing;
  if (n == "membar" || n == "fence") return op.has("cta") || op.has("proxy") ? nothing : fence;
  if (n == "bar" && op.has("warp")) return warp_barrier;
  if (n == "bar") {
    i.variant = op.has("or");
    bool const known = op.has("sync") || (op.has("red") && (op.has("or") || op.has("and")));
    return known ? block_barrier : nullptr;
  }
  if (n == "shfl" && op.has("sync")) {
    i.variant = op.has("up");
    if (op.has("up")) return shuffle([](int lane, int b, int) { return lane - b; });
    if (op.has("down")) return shuffle([](int lane, int b, int) { return lane + b; });
    if (op.has("bfly")) return shuffle([](int lane, int b, int) { return lane ^ b; });
    return shuffle([](int lane, int b, int segment) { return (lane & segment) | (b & ~segment); });
  }
  if (n == "vote" && op.has("sync")) {
    if (op.has("ballot")) return vote([](uint32_t yes, uint32_t) { return yes; });
    if (op.has("any")) return vote([](uint32_t yes, uint32_t) { return uint32_t{yes != 0}; });
    if (op.has("all")) return vote([](uint32_t yes, uint32_t all) { return uint32_t{yes == all}; });
    return vote([](uint32_t yes, uint32_t all) { return uint32_t{yes == 0 || yes == all}; });
  }
  if (n == "redux" && i.type.bytes == 4)
    return with_type(i.type, [&]<class T>() {
      return combining<T>(op, []<class F>(F) -> handler { return reduce<T, F>; });
    });
  return n == "activemask" ? active_mask : nullptr;
}

void choose_handler(instruction& i, opcode const& op) {
  i.run = unknown;
  static char const* const left_out = std::getenv("EMULATED_WITHOUT");
  auto word = i.text;
  if (word.starts_with('@')) word.remove_prefix(word.find(' ') + 1);
  if (left_out != nullptr && *left_out != '\0' && word.starts_with(left_out)) {
    i.run = nothing;
    return;
  }
  // Nothing here rounds but to nearest, and nothing is approximate; but for products and 1 / x as -use_fast_math, -ftz=true and
  // -prec-div=false make them, so that what these do to a program can be seen.
  bool const fast = ((op.name == "mul" && op.has("ftz")) || op.name == "rcp") && op.modifiers.back() == "f32";
  for (std::string_view word : {"ftz", "approx"}) {
    if (!fast && op.has(word)) return;
  }
  for (std::string_view word : {"full", "rz", "rm", "rp", "cc"}) {
    if (op.has(word)) return;
  }
  if (op.has("sat") && op.name != "cvt") return;
  for (auto const group : {control_handler, memory_handler, move_handler, arithmetic_handler}) {
    if (handler const found = group(i, op)) {
      i.run = found;
      return;
    }
  }
}

}  // namespace emulator
