// SPDX-License-Identifier: Apache-2.0

#include "execution.hpp"

#include <algorithm>

namespace emulator {
namespace {

/// Whether accesses of a byte are ordered before one of a thread: by a barrier of the block between them, or of the warp that all
/// are in.
bool ordered(touch const& before, std::uint32_t thread, block const& b, warp const& w) {
  if (before.block_epoch != b.epoch || (before.thread == thread && !before.many)) return true;
  return before.thread / lanes == w.index && before.warp_epoch != w.epoch && !before.several;
}

/// An access more, of which it is not known that those before are ordered before it.
void join(touch& to, touch now, block const& b) {
  if (to.block_epoch == b.epoch) {
    now.several = to.several || to.thread / lanes != now.thread / lanes;
    bool const earlier = !now.several && to.warp_epoch != now.warp_epoch;
    now.many = !earlier && (to.many || to.thread != now.thread);
    now.synchronising = now.synchronising && to.synchronising;
  }
  to = now;
}

/// Notes an access of shared memory, and throws where another thread's was not ordered before it. Two writes of the same value
/// are no fault: Kokkos' scans have some, and compute-sanitizer calls them information.
void note_shared(step& s, instruction const& i, std::uint32_t lane, std::uint64_t offset, std::uint32_t bytes,
                 bool writes, std::byte const* value) {
  block& b = s.of;
  auto const thread = static_cast<std::uint16_t>(s.w.index * lanes + lane);
  touch const now{b.epoch, s.w.epoch, thread, i.synchronising};
  auto const conflict = [&](touch const& before, char const* was) {
    if (ordered(before, thread, b, s.w)) return true;
    if (before.synchronising && i.synchronising) return false;
    throw fault(std::string("race in shared memory: ") + (writes ? "a write of" : "a read of") + " byte " +
                std::to_string(offset) + ", which thread " + std::to_string(before.thread) + " has " + was +
                " with no barrier between");
  };
  for (std::uint64_t at = offset; at < offset + bytes; ++at) {
    bool const same =
        value != nullptr && b.shared[at] == value[at - offset] && b.shared_shadow[at] == std::byte{0};
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

/// An offset into a window, where the whole access lies inside of it.
std::uint64_t inside(std::uint64_t address, std::uint64_t window, std::uint64_t size, std::uint32_t bytes,
                     char const* what) {
  std::uint64_t const offset = address - window;
  if (offset < size && bytes <= size - offset) return offset;
  throw fault("out of bounds: " + std::to_string(bytes) + " bytes at " +
              std::to_string(static_cast<std::int64_t>(offset)) + " of " + std::to_string(size) +
              " bytes of " + what);
}

}  // namespace

place resolve(step& s, instruction const& i, std::uint32_t lane, std::uint64_t address, std::uint32_t bytes,
              bool writes, std::byte const* value) {
  s.culprit = lane;
  if ((address & (bytes - 1)) != 0) [[unlikely]] {
    throw fault("misaligned: " + std::to_string(bytes) + " bytes at " + hex(address));
  }
  block& b = s.of;
  if (address < shared_window) [[likely]] {
    if (i.where != space::global && i.where != space::generic)
      throw fault("a global address in another space: " + hex(address));
    if (b.last == nullptr || address < b.last->begin || address + bytes > b.last->end)
      b.last = &b.global.find(address, bytes);
    std::uint64_t const offset = address - b.last->begin;
    return {b.last->data + offset, b.last->shadow + offset};
  }
  if (address < local_window) {
    if (i.where != space::shared && i.where != space::generic)
      throw fault("an address of shared memory in another space");
    std::uint64_t const offset = inside(address, shared_window, b.shared.size(), bytes, "shared memory");
    note_shared(s, i, lane, offset, bytes, writes, value);
    return {b.shared.data() + offset, b.shared_shadow.data() + offset};
  }
  if (address < parameter_window) {
    if (i.where == space::shared || i.where == space::global)
      throw fault("an address of local memory in another space");
    std::uint64_t const size = b.code.local_bytes;
    std::uint64_t const offset = inside(address, local_window, size, bytes, "local memory") + lane * size;
    return {s.w.local.data() + offset, s.w.local_shadow.data() + offset};
  }
  if (i.where == space::local)
    throw fault("out of bounds: " + hex(address) + " is not an address of local memory");
  if (writes) throw fault("a write to parameters");
  std::uint64_t const offset = inside(address, parameter_window, b.code.parameter_bytes, bytes, "parameters");
  bool const one = std::ranges::any_of(b.code.parameters, [&](parameter const& p) {
    return p.offset <= offset && offset + bytes <= p.offset + p.bytes;
  });
  if (!one) throw fault("out of bounds: a read of " + std::to_string(bytes) + " bytes across parameters");
  static std::array<std::byte, 16> const defined{};
  // Parameters are written by the host: all their bits are defined. Nobody writes to either.
  return {const_cast<std::byte*>(b.how.parameters.data() + offset), const_cast<std::byte*>(defined.data())};
}

}  // namespace emulator
