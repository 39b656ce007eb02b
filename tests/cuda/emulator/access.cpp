// SPDX-License-Identifier: Apache-2.0

#include "execution.hpp"

#include <algorithm>

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
    now.synchronising = now.synchronising && to.synchronising;
  }
  to = now;
}

/// Notes an access of shared memory, and throws where another thread's was not ordered before it. Two writes of the same value
/// are no fault: Kokkos' scans have some, and compute-sanitizer calls them information.
void note_shared(step& s, instruction const& i, uint32_t lane, uint64_t offset, uint32_t bytes, bool writes,
                 std::byte const* value) {
  block& b = s.of;
  auto const thread = static_cast<uint16_t>(s.w.index * lanes + lane);
  touch const now{b.epoch, s.w.epoch, thread, i.synchronising};
  auto const conflict = [&](touch const& before, char const* was) {
    if (ordered(before, thread, b, s.w)) return true;
    if (before.synchronising && i.synchronising) return false;
    throw fault("race in shared memory: ", (writes ? "a write of" : "a read of"), " byte ", offset,
                ", which thread ", before.thread, " has ", was, " with no barrier between");
  };
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    bool const same =
        value != nullptr && b.shared.data[at] == value[at - offset] && b.shared.shadow[at] == std::byte{0};
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
    return b.last->at(address);
  }
  auto const [window, size] = in == space::shared  ? std::pair(shared_window, uint64_t{b.shared.data.size()})
                              : in == space::local ? std::pair(local_window, b.code.local_bytes)
                                                   : std::pair(parameter_window, b.code.parameter_bytes);
  uint64_t const offset = address - window;
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
  static std::array<std::byte, 16> const defined{};
  // Parameters are written by the host: all their bits are defined. Nobody writes to either.
  return {const_cast<std::byte*>(b.how.parameters.data() + offset), const_cast<std::byte*>(defined.data())};
}

}  // namespace emulator
