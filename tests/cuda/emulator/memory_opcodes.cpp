// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Loads, stores and atomic operations.

#include "apply.hpp"
#include "handlers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace emulator {
namespace {

/// The address of a lane, with offset and window.
std::uint64_t address_of(step const& s, instruction const& i, std::uint32_t lane) {
  std::uint64_t const address = s.value(i.from[0])[lane] + i.offset;
  // Addresses of shared memory have 32 bits, and wrap there.
  if (i.where == space::shared) {
    std::uint64_t const high = address >> 32;
    if (high > 1 && high != 0xffff'ffff) throw fault("an address that is not one of shared memory");
    return (address & 0xffff'ffff) + shared_window;
  }
  if (i.where == space::local && address < shared_window) return address + local_window;
  return address;
}

bool counted(instruction const& i) { return i.where == space::global || i.where == space::generic; }

void load(step& s, instruction const& i) {
  s.demand_defined(i.from[0], "an address");
  unsigned const each = i.type.bytes;
  unsigned const bytes = each * i.results;
  if (counted(i)) {
    auto const n = static_cast<std::uint64_t>(std::popcount(s.active));
    s.of.count.loads += n;
    s.of.count.loaded_bytes += n * bytes;
  }
  each_lane(s.active, [&](std::uint32_t l) {
    place const from = resolve(s, i, l, address_of(s, i, l), bytes, false);
    for (unsigned k = 0; k < i.results; ++k) {
      if (i.to[k] == no_register) continue;
      std::uint64_t bits = 0, shadow = 0;
      std::memcpy(&bits, from.data + k * each, each);
      std::memcpy(&shadow, from.shadow + k * each, each);
      bits = extended(bits, i.type) & mask_of_bytes(i.width);
      shadow = extended(shadow, i.type) & mask_of_bytes(i.width);
      s.set(i.to[k], l, bits, shadow);
    }
  });
}

void store(step& s, instruction const& i) {
  s.demand_defined(i.from[0], "an address");
  unsigned const each = i.type.bytes;
  unsigned const values = i.sources - 1U;
  if (counted(i)) {
    auto const n = static_cast<std::uint64_t>(std::popcount(s.active));
    s.of.count.stores += n;
    s.of.count.stored_bytes += n * each * values;
  }
  each_lane(s.active, [&](std::uint32_t l) {
    std::array<std::byte, 16> data{};
    std::array<std::byte, 16> shadows{};
    for (unsigned k = 0; k < values; ++k) {
      std::uint64_t const bits = s.value(i.from[k + 1])[l];
      std::uint64_t const shadow = s.shadow(i.from[k + 1], l);
      std::memcpy(data.data() + k * each, &bits, each);
      std::memcpy(shadows.data() + k * each, &shadow, each);
    }
    place const to = resolve(s, i, l, address_of(s, i, l), each * values, true, data.data());
    std::memcpy(to.data, data.data(), each * values);
    std::memcpy(to.shadow, shadows.data(), each * values);
  });
}

enum atomic_operation : std::uint8_t {
  add,
  exchange,
  cas,
  bit_and,
  bit_or,
  bit_xor,
  minimum,
  maximum,
  increment,
  decrement,
  no_operation
};

atomic_operation operation_of(opcode const& op) {
  constexpr std::string_view names[] = {"add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec"};
  for (unsigned k = 0; k < std::size(names); ++k) {
    if (op.has(names[k])) return static_cast<atomic_operation>(k);
  }
  return no_operation;
}

std::uint64_t float_sum(std::uint64_t a, std::uint64_t b, unsigned bytes) {
  return bytes == 8 ? bits_of(as<double>(a) + as<double>(b)) : bits_of(as<float>(a) + as<float>(b));
}

std::uint64_t combined(instruction const& i, std::uint64_t old, std::uint64_t b, std::uint64_t c) {
  unsigned const bytes = i.type.bytes;
  bool const less = i.type.kind == 's' ? static_cast<std::int64_t>(extended(old, i.type)) <
                                             static_cast<std::int64_t>(extended(b, i.type))
                                       : old < b;
  switch (static_cast<atomic_operation>(i.variant)) {
    case add:
      return i.type.kind == 'f' ? float_sum(old, b, bytes) : old + b;
    case exchange:
      return b;
    case cas:
      return old == b ? c : old;
    case bit_and:
      return old & b;
    case bit_or:
      return old | b;
    case bit_xor:
      return old ^ b;
    case minimum:
      return less ? old : b;
    case maximum:
      return less ? b : old;
    case increment:
      return old >= b ? 0 : old + 1;
    default:
      return old == 0 || old > b ? b : old - 1;  // decrement
  }
}

/// atom and red: lanes one after the other.
void atomic(step& s, instruction const& i) {
  s.demand_defined(i.from[0], "an address");
  unsigned const bytes = i.type.bytes;
  s.of.count.atomics += static_cast<std::uint64_t>(std::popcount(s.active));
  each_lane(s.active, [&](std::uint32_t l) {
    place const at = resolve(s, i, l, address_of(s, i, l), bytes, true);
    std::uint64_t old = 0, shadow = 0;
    std::memcpy(&old, at.data, bytes);
    std::memcpy(&shadow, at.shadow, bytes);
    std::uint64_t const b = s.value(i.from[1])[l] & mask_of_bytes(bytes);
    std::uint64_t const c = i.sources > 2 ? s.value(i.from[2])[l] & mask_of_bytes(bytes) : 0;
    std::uint64_t const result = combined(i, old, b, c);
    std::uint64_t const sources = s.shadow(i.from[1], l) | (i.sources > 2 ? s.shadow(i.from[2], l) : 0);
    bool const replaced = i.variant == exchange;
    std::uint64_t const result_shadow = ((replaced ? 0 : shadow) | sources) != 0 ? ~0ULL : 0;
    std::memcpy(at.data, &result, bytes);
    std::memcpy(at.shadow, &result_shadow, bytes);
    if (i.results > 0 && i.to[0] != no_register) s.set(i.to[0], l, old, shadow);
  });
}

}  // namespace

handler memory_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n != "ld" && n != "ldu" && n != "st" && n != "atom" && n != "red") return nullptr;
  i.where = op.has("shared")                      ? space::shared
            : op.has("local")                     ? space::local
            : op.has("param")                     ? space::parameter
            : op.has("global") || op.has("const") ? space::global
                                                  : space::generic;
  i.synchronising = n == "atom" || n == "red" || op.has("volatile") || op.has("relaxed") ||
                    op.has("acquire") || op.has("release");
  if (n == "atom" || n == "red") {
    // A type of two halves has no handler, and neither has an atomic one of 16 bytes.
    i.variant = operation_of(op);
    return i.variant == no_operation || !i.type || i.type.kind == 'h' || op.has("noftz") ? nullptr : atomic;
  }
  return i.type ? n == "st" ? store : load : nullptr;
}

}  // namespace emulator
