// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Loads, stores and atomic operations; where an access goes, and its checks.

#include "apply.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace emulator {
namespace {

/// Whether accesses of a byte are ordered before one of a thread: by a barrier of the block between them, or of the warp that all
/// are in.
bool ordered(touch const& before, uint32_t thread, block const& b, warp const& w) {
  if (before.block_epoch != b.epoch || (before.thread == thread && !before.many)) return true;
  return before.thread / lanes == w.index && before.warp_epoch != w.epoch && !before.several;
}

/// An access more, of which it is not known that those before are ordered before it.
void join(touch& to, touch now, block const& b) {
  if (to.block_epoch == b.epoch) {
    now.several = to.several || to.thread / lanes != now.thread / lanes;
    bool const earlier = !now.several && to.warp_epoch != now.warp_epoch;
    now.many = !earlier && (to.many || to.thread != now.thread);
    now.synchronizing = now.synchronizing && to.synchronizing;
  }
  to = now;
}

/// Notes an access of shared memory, and throws where another thread's was not ordered before it. Two writes of the same value
/// are no fault: Kokkos' scans have some, and compute-sanitizer calls them information.
void note_shared(step& s, instruction const& i, uint32_t lane, uint64_t offset, uint32_t bytes, bool writes,
                 std::byte const* value) {
  block& b = s.of;
  auto const thread = static_cast<uint16_t>(s.w.index * lanes + lane);
  touch const now{b.epoch, s.w.epoch, thread, i.synchronizing};
  auto const conflict = [&](touch const& before, char const* was) {
    if (ordered(before, thread, b, s.w)) return true;
    if (before.synchronizing && i.synchronizing) return false;
    throw fault("race in shared memory: ", (writes ? "a write of" : "a read of"), " byte ", offset,
                ", which thread ", before.thread, " has ", was, " with no barrier between");
  };
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    bool const same =
        value != nullptr && b.shared.data[at] == value[at - offset] && b.shared.shadow[at] == std::byte{0xff};
    bool fresh = same ? ordered(b.written[at], thread, b, s.w) : conflict(b.written[at], "written");
    if (writes) {
      fresh = conflict(b.read[at], "read") && fresh;
      if (fresh) b.written[at] = {};
      join(b.written[at], now, b);
      if (fresh) b.read[at] = {};
    } else {
      join(b.read[at], now, b);
    }
  }
}

std::string text_of(space s) {
  constexpr char const* names[] = {"any", "global memory", "shared memory", "local memory", "parameters"};
  return names[static_cast<std::size_t>(s)];
}

/// The address of a lane, with offset and window.
uint64_t address_of(step const& s, instruction const& i, uint32_t lane) {
  uint64_t const address = s.value(i.from[0])[lane] + i.offset;
  // Addresses of shared memory have 32 bits, and wrap there.
  if (i.where == space::shared) {
    uint64_t const high = address >> 32;
    if (high > 1 && high != 0xffff'ffff) throw fault("an address that is not one of shared memory");
    return (address & 0xffff'ffff) + window_of(space::shared);
  }
  bool const offset = i.where == space::local && space_of(address) == space::global;
  return offset ? address + window_of(space::local) : address;
}

void count(step const& s, instruction const& i, unsigned bytes, uint64_t& accesses, uint64_t& sum) {
  if (i.where != space::global && i.where != space::generic) return;
  auto const n = static_cast<uint64_t>(std::popcount(s.active));
  accesses += n;
  sum += n * bytes;
}

void load(step& s, instruction const& i) {
  s.demand_defined(i.from[0], "an address");
  unsigned const each = i.type.bytes;
  count(s, i, each * i.results, s.of.count.loads, s.of.count.loaded_bytes);
  each_lane(s.active, [&](uint32_t l) {
    place const from = resolve(s, i, l, address_of(s, i, l), each * i.results, false);
    for (unsigned k = 0; k < i.results; ++k) {
      if (i.to[k] == no_register) continue;
      uint64_t bits = 0, shadow = 0;
      std::memcpy(&bits, from.data + k * each, each);
      std::memcpy(&shadow, from.shadow + k * each, each);
      s.set(i.to[k], l, extended(bits, i.type) & i.width, extended(shadow ^ from.defined, i.type) & i.width);
    }
  });
}

void store(step& s, instruction const& i) {
  s.demand_defined(i.from[0], "an address");
  unsigned const each = i.type.bytes;
  unsigned const bytes = each * (i.sources - 1U);
  count(s, i, bytes, s.of.count.stores, s.of.count.stored_bytes);
  each_lane(s.active, [&](uint32_t l) {
    std::array<std::byte, 16> data{}, shadows{};
    for (unsigned k = 0; k * each < bytes; ++k) {
      uint64_t const shadow = s.shadow(i.from[k + 1], l);
      std::memcpy(data.data() + k * each, &s.value(i.from[k + 1])[l], each);
      std::memcpy(shadows.data() + k * each, &shadow, each);
    }
    place const to = resolve(s, i, l, address_of(s, i, l), bytes, true, data.data());
    std::memcpy(to.data, data.data(), bytes);
    for (auto& bits : shadows) bits ^= static_cast<std::byte>(to.defined);
    std::memcpy(to.shadow, shadows.data(), bytes);
  });
}

/// atom and red: lanes one after the other. `F` gives what follows `old`.
template <class T, class F>
handler atomic(F) {
  return [](step& s, instruction const& i) {
    s.demand_defined(i.from[0], "an address");
    s.of.count.atomics += static_cast<uint64_t>(std::popcount(s.active));
    uint32_t const last = i.from[i.sources - 1U];
    each_lane(s.active, [&](uint32_t l) {
      place const at = resolve(s, i, l, address_of(s, i, l), sizeof(T), true);
      uint64_t old = 0, shadow = 0;
      std::memcpy(&old, at.data, sizeof(T));
      std::memcpy(&shadow, at.shadow, sizeof(T));
      shadow = (shadow ^ at.defined) & mask_of_bytes(sizeof(T));
      uint64_t const result =
          bits_of<T>(F{}(as<T>(old), as<T>(s.value(i.from[1])[l]), as<T>(s.value(last)[l])));
      uint64_t const sources = s.shadow(i.from[1], l) | s.shadow(last, l);
      bool const undefined = ((i.variant != 0 ? 0 : shadow) | sources) != 0;
      uint64_t const result_shadow = undefined ? ~at.defined : at.defined;
      std::memcpy(at.data, &result, sizeof(T));
      std::memcpy(at.shadow, &result_shadow, sizeof(T));
      if (i.results > 0 && i.to[0] != no_register) s.set(i.to[0], l, old, shadow);
    });
  };
}

template <class T>
handler atomic_of(opcode const& op) {
  if constexpr (!std::is_floating_point_v<T>) {
    if (op.has("exch")) return atomic<T>([](T, T b, T) { return b; });
    if (op.has("cas")) return atomic<T>([](T old, T b, T c) { return old == b ? c : old; });
    if (op.has("inc")) return atomic<T>([](T old, T b, T) { return old >= b ? 0 : old + 1; });
    if (op.has("dec")) return atomic<T>([](T old, T b, T) { return old == 0 || old > b ? b : old - 1; });
  }
  return combining<T>(op, []<class F>(F) { return atomic<T>([](T old, T b, T) { return F{}(old, b); }); });
}

}  // namespace

place resolve(step& s, instruction const& i, uint32_t lane, uint64_t address, uint32_t bytes, bool writes,
              std::byte const* value) {
  s.culprit = lane;
  if ((address & (bytes - 1)) != 0) [[unlikely]] {
    throw fault("misaligned: ", bytes, " bytes at ", hex(address));
  }
  block& b = s.of;
  space const in = space_of(address);
  // A parameter of a call is in local memory.
  bool const allowed =
      i.where == in || i.where == space::generic || (i.where == space::parameter && in == space::local);
  if (!allowed)
    throw fault(hex(address), " is an address of ", text_of(in), " in another space than ", text_of(i.where));
  if (in == space::global) [[likely]] {
    if (b.last == nullptr || address < b.last->begin || address + bytes > b.last->end)
      b.last = &b.global.find(address, bytes);
    note_global(s, i, lane, address, bytes, writes, value);
    return b.last->at(address);
  }
  uint64_t const size = in == space::shared  ? b.shared.data.size()
                        : in == space::local ? b.code.local_bytes
                                             : b.code.parameter_bytes;
  uint64_t const offset = address - window_of(in);
  if (offset >= size || bytes > size - offset)
    throw fault("out of bounds: ", bytes, " bytes at ", static_cast<int64_t>(offset), " of ", size,
                " bytes of ", text_of(in));
  if (in == space::shared) {
    note_shared(s, i, lane, offset, bytes, writes, value);
    return b.shared.at(offset);
  }
  if (in == space::local) return s.w.local.at(lane * size + offset);
  if (writes) throw fault("a write to parameters");
  bool const one = std::ranges::any_of(b.code.parameters, [&](parameter const& p) {
    return p.offset <= offset && offset + bytes <= p.offset + p.bytes;
  });
  if (!one) throw fault("out of bounds: a read of ", bytes, " bytes across parameters");
  // Parameters are written by the host: all their bits are defined. Nobody writes to either.
  static std::array<std::byte, 16> zeros{};
  return {const_cast<std::byte*>(b.how.parameters.data() + offset), zeros.data(), 0};
}

handler memory_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  bool const is_atomic = n == "atom" || n == "red";
  if (n != "ld" && n != "st" && !is_atomic) return nullptr;
  i.where = op.has("shared")                      ? space::shared
            : op.has("local")                     ? space::local
            : op.has("param")                     ? space::parameter
            : op.has("global") || op.has("const") ? space::global
                                                  : space::generic;
  i.synchronizing =
      is_atomic || op.has("volatile") || op.has("relaxed") || op.has("acquire") || op.has("release");
  i.releasing = (op.has("release") || op.has("acq_rel")) && !op.has("cta");
  if (!is_atomic) return !i.type ? nullptr : n == "st" ? store : load;
  i.variant = op.has("exch");
  return op.has("noftz") ? nullptr : with_type(i.type, [&]<class T>() { return atomic_of<T>(op); });
}

}  // namespace emulator
