// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Branches, ends, barriers, and what the lanes of a warp exchange.

#include "execution.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace emulator {
namespace {

std::string lanes_text(std::uint32_t mask) {
  std::string text;
  each_lane(mask, [&](std::uint32_t l) { text += (text.empty() ? "" : ", ") + std::to_string(l); });
  return text;
}

void branch(step& s, instruction const& i) {
  if (s.active == s.mask) {
    s.pc = i.target;
    return;
  }
  each_lane(s.mask, [&](std::uint32_t l) { s.w.pc[l] = (s.active >> l & 1) != 0 ? i.target : s.pc; });
  s.again = true;
}

void end(step& s, instruction const&) {
  s.w.live &= ~s.active;
  s.mask &= ~s.active;
  if (s.mask == 0) s.again = true;
}

void nothing(step&, instruction const&) {}

/// A fault of which the first active lane is told.
[[noreturn]] void fail(step& s, std::string const& text) {
  s.culprit = static_cast<std::uint32_t>(std::countr_zero(s.active));
  throw fault(text);
}

void trap(step& s, instruction const&) { fail(s, "trap"); }

/// __assertfail(message, file, line, function, size), or another function that the module does not define.
void call_outside(step& s, instruction const& i) {
  std::string text = "a call of a function that the module does not define";
  if (i.text.find("__assertfail") != std::string_view::npos && i.sources > 0) {
    std::uint64_t at = 0;
    std::uint32_t const lane = static_cast<std::uint32_t>(std::countr_zero(s.active));
    instruction generic = i;
    generic.where = space::generic;
    std::memcpy(&at, resolve(s, generic, lane, s.value(i.from[0])[lane], 8, false).data, 8);
    text = "assertion failed: ";
    for (char c = 0;; ++at) {
      std::memcpy(&c, resolve(s, generic, lane, at, 1, false).data, 1);
      if (c == 0) break;
      text += c;
    }
  }
  fail(s, text);
}

void unknown(step& s, instruction const&) { fail(s, "the interpreter does not know this instruction"); }

// ---- A block's barriers

void block_barrier(step& s, instruction const& i) {
  for (std::uint32_t k = 0; k < i.sources; ++k) s.demand_defined(i.from[k], "a barrier");
  s.wait(waiting::block);
}

// ---- What a warp's lanes do together

/// Whether lanes of a group, those that the mask, the last source, names, are all at this instruction: then the step goes on with
/// them alone, and other lanes that are here come to it again. If there is no such group, those that are here wait.
bool together(step& s, instruction const& i) {
  std::uint32_t const r = i.from[i.sources - 1U];
  s.demand_defined(r, "a mask of lanes");
  row const& masks = s.value(r);
  std::uint32_t group = 0;
  each_lane(s.active, [&](std::uint32_t l) {
    s.culprit = l;
    auto const m = static_cast<std::uint32_t>(masks[l]);
    if ((m >> l & 1) == 0) throw fault("lane " + std::to_string(l) + " is not in its own mask of lanes");
    if (std::uint32_t const gone = m & ~s.w.live; gone != 0)
      throw fault("waits for lanes " + lanes_text(gone) + ", which have ended or do not exist");
    if ((m & ~s.active) != 0) return;
    each_lane(m, [&](std::uint32_t k) {
      if (static_cast<std::uint32_t>(masks[k]) != m)
        throw fault("lanes " + std::to_string(l) + " and " + std::to_string(k) +
                    " have different masks of lanes");
    });
    if (group == 0) group = m;
  });
  if (group == 0) {
    s.wait(waiting::warp);
    return false;
  }
  if (group == s.active) return true;
  each_lane(s.mask, [&](std::uint32_t l) {
    bool const later = ((s.active & ~group) >> l & 1) != 0;
    s.w.pc[l] = later ? s.pc - 1 : s.pc;
  });
  s.again = true;
  s.active = group;
  return true;
}

void warp_barrier(step& s, instruction const& i) {
  if (together(s, i)) ++s.w.epoch;
}

enum shuffle_mode : std::uint8_t { idx, up, down, bfly };

/// shfl.sync: d|p = a, b, c, mask
void shuffle(step& s, instruction const& i) {
  if (!together(s, i)) return;
  s.demand_defined(i.from[1], "the source of a shuffle");
  s.demand_defined(i.from[2], "the source of a shuffle");
  row const a = s.value(i.from[0]);
  row shadow{};
  each_lane(s.active, [&](std::uint32_t l) { shadow[l] = s.shadow(i.from[0], l); });
  std::uint32_t in_range = 0;
  each_lane(s.active, [&](std::uint32_t l) {
    auto const b = static_cast<std::uint32_t>(s.value(i.from[1])[l]) & 31;
    auto const c = static_cast<std::uint32_t>(s.value(i.from[2])[l]);
    std::uint32_t const segment = c >> 8 & 31;
    auto const bound = static_cast<std::int32_t>((l & segment) | (c & 31 & ~segment));
    std::int32_t from = 0;
    bool valid = false;
    switch (static_cast<shuffle_mode>(i.variant)) {
      case up:
        from = static_cast<std::int32_t>(l) - static_cast<std::int32_t>(b);
        valid = from >= bound;
        break;
      case down:
        from = static_cast<std::int32_t>(l + b);
        valid = from <= bound;
        break;
      case bfly:
        from = static_cast<std::int32_t>(l ^ b);
        valid = from <= bound;
        break;
      case idx:
        from = static_cast<std::int32_t>((l & segment) | (b & ~segment));
        valid = from <= bound;
        break;
    }
    auto const source = valid ? static_cast<std::uint32_t>(from) : l;
    if ((s.active >> source & 1) == 0) {
      s.culprit = l;
      throw fault("a shuffle from lane " + std::to_string(source) + ", which does not take part");
    }
    in_range |= static_cast<std::uint32_t>(valid) << l;
    if (i.results > 0 && i.to[0] != no_register) s.set(i.to[0], l, a[source] & 0xffff'ffff, shadow[source]);
  });
  s.set_predicate(i.to_predicate[0], in_range, 0);
}

enum vote_mode : std::uint8_t { ballot, any, every, uniform };

void vote(step& s, instruction const& i) {
  if (!together(s, i)) return;
  // A bit that is undefined reaches all lanes.
  std::uint32_t const bad = s.w.undefined_predicates[i.predicate] & s.active;
  std::uint32_t const votes = s.predicate(i) & s.active;
  if (i.variant == ballot) {
    each_lane(s.active, [&](std::uint32_t l) { s.set(i.to[0], l, votes, bad); });
    return;
  }
  bool const yes = i.variant == any     ? votes != 0
                   : i.variant == every ? votes == s.active
                                        : votes == 0 || votes == s.active;
  s.set_predicate(i.to_predicate[0], yes ? all_lanes : 0, bad != 0 ? all_lanes : 0);
}

enum reduction : std::uint8_t { sum, least, most, all_bits, any_bits, odd_bits };

/// redux.sync of 32 bits.
void reduce(step& s, instruction const& i) {
  if (!together(s, i)) return;
  row const& a = s.value(i.from[0]);
  bool first = true;
  std::uint32_t result = 0;
  std::uint64_t shadow = 0;
  bool const is_signed = i.type.kind == 's';
  each_lane(s.active, [&](std::uint32_t l) {
    auto const v = static_cast<std::uint32_t>(a[l]);
    shadow |= s.shadow(i.from[0], l);
    bool const less =
        is_signed ? static_cast<std::int32_t>(v) < static_cast<std::int32_t>(result) : v < result;
    switch (static_cast<reduction>(i.variant)) {
      case sum:
        result += v;
        break;
      case least:
        result = first || less ? v : result;
        break;
      case most:
        result = first || !less ? v : result;
        break;
      case all_bits:
        result = first ? v : result & v;
        break;
      case any_bits:
        result |= v;
        break;
      case odd_bits:
        result ^= v;
        break;
    }
    first = false;
  });
  each_lane(s.active, [&](std::uint32_t l) { s.set(i.to[0], l, result, shadow != 0 ? 0xffff'ffff : 0); });
}

/// match.any.sync: which lanes have my value.
void match_any(step& s, instruction const& i) {
  if (!together(s, i)) return;
  s.demand_defined(i.from[0], "a match");
  row const a = s.value(i.from[0]);
  each_lane(s.active, [&](std::uint32_t l) {
    std::uint32_t same = 0;
    each_lane(s.active, [&](std::uint32_t k) { same |= static_cast<std::uint32_t>(a[k] == a[l]) << k; });
    s.set(i.to[0], l, same, 0);
  });
}

void active_mask(step& s, instruction const& i) {
  each_lane(s.active, [&](std::uint32_t l) { s.set(i.to[0], l, s.active, 0); });
}

template <class... Words>
std::uint8_t which(opcode const& op, Words... words) {
  std::uint8_t k = 0, found = 0xff;
  ((op.has(words) ? void(found = k) : void(), ++k), ...);
  return found;
}

}  // namespace

handler control_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "bra") return i.flow = flow::branches, branch;
  if (n == "ret" || n == "exit") return i.flow = flow::ends, end;
  if (n == "trap") return i.flow = flow::ends, trap;
  if (n == "call") return call_outside;
  // Blocks and lanes take turns at whole instructions: memory is always consistent.
  if (n == "membar" || n == "fence" || n == "nanosleep" || n == "prefetch" || n == "discard") return nothing;
  if (n == "bar" && op.has("warp")) return warp_barrier;
  if (n == "bar" || n == "barrier") {
    i.variant = op.has("red") ? which(op, "popc", "or", "and") + 1 : 0;
    bool const known = op.has("sync") || (op.has("red") && (op.has("or") || op.has("and")));
    return known && !op.has("cluster") ? block_barrier : nullptr;
  }
  if (n == "shfl" && op.has("sync")) {
    i.variant = which(op, "idx", "up", "down", "bfly");
    return shuffle;
  }
  if (n == "vote" && op.has("sync")) {
    i.variant = which(op, "ballot", "any", "all", "uni");
    return vote;
  }
  if (n == "redux" && i.type.bytes == 4 && i.type.kind != 'f') {
    i.variant = which(op, "add", "min", "max", "and", "or", "xor");
    return reduce;
  }
  if (n == "match" && op.has("any")) return match_any;
  if (n == "activemask") return active_mask;
  return nullptr;
}

void choose_handler(instruction& i, opcode const& op) {
  i.run = unknown;
  // Nothing here rounds but to nearest, and nothing is approximate; but for two opcodes that -use_fast_math makes, so that what
  // it does to a program can be seen.
  bool const fast = (op.name == "mul" && op.has("ftz") && op.modifiers.back() == "f32") ||
                    (op.name == "rcp" && op.has("approx") && op.has("ftz"));
  for (std::string_view word : {"ftz", "approx", "full", "rz", "rm", "rp", "cc"}) {
    if (!fast && op.has(word)) return;
  }
  if (op.has("sat") && op.name != "cvt") return;
  for (auto const group :
       {control_handler, memory_handler, predicate_handler, move_handler, arithmetic_handler}) {
    handler const found = group(i, op);
    if (found == nullptr) continue;
    i.run = found;
    return;
  }
}

}  // namespace emulator
