// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Loads, stores and atomic operations.

#include "apply.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace emulator {
namespace {

/// The address of a lane, with offset and window.
uint64_t address_of(step const& s, instruction const& i, uint32_t lane) {
  uint64_t const address = s.value(i.from[0])[lane] + i.offset;
  // Addresses of shared memory have 32 bits, and wrap there.
  if (i.where == space::shared) {
    uint64_t const high = address >> 32;
    if (high > 1 && high != 0xffff'ffff) throw fault("an address that is not one of shared memory");
    return (address & 0xffff'ffff) + shared_window;
  }
  if (i.where == space::local && address < shared_window) return address + local_window;
  return address;
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
      uint64_t const width = mask_of_bytes(i.width);
      s.set(i.to[k], l, extended(bits, i.type) & width, extended(shadow, i.type) & width);
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
      uint64_t const result =
          bits_of<T>(F{}(as<T>(old), as<T>(s.value(i.from[1])[l]), as<T>(s.value(last)[l])));
      uint64_t const sources = s.shadow(i.from[1], l) | s.shadow(last, l);
      uint64_t const result_shadow = ((i.variant != 0 ? 0 : shadow) | sources) != 0 ? ~0ULL : 0;
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

handler memory_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  bool const is_atomic = n == "atom" || n == "red";
  if (n != "ld" && n != "st" && !is_atomic) return nullptr;
  i.where = op.has("shared")                      ? space::shared
            : op.has("local")                     ? space::local
            : op.has("param")                     ? space::parameter
            : op.has("global") || op.has("const") ? space::global
                                                  : space::generic;
  i.synchronising =
      is_atomic || op.has("volatile") || op.has("relaxed") || op.has("acquire") || op.has("release");
  if (!is_atomic) return !i.type ? nullptr : n == "st" ? store : load;
  i.variant = op.has("exch");
  return op.has("noftz") ? nullptr : with_type(i.type, [&]<class T>() { return atomic_of<T>(op); });
}

}  // namespace emulator
