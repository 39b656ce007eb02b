// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include "ptx.hpp"

#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

namespace emulator {

/// Where the bytes of a range really are.
struct memory::owned {
  std::unique_ptr<std::byte[]> data;
  std::unique_ptr<std::byte[]> shadow;
};

std::string hex(std::uint64_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << number;
  return out.str();
}

memory::memory() : next_(first_address) {}
memory::~memory() = default;

std::uint64_t memory::allocate(std::uint64_t bytes, std::string what) {
  std::uint64_t const address = next_;
  // A gap behind each range: an access that leaves it meets no other.
  next_ += (bytes + 255) / 256 * 256 + 4096;
  auto& own = owned_[address];
  // Data and shadow of one access may be read with padding.
  own.data = std::make_unique<std::byte[]>(bytes + 16);
  own.shadow = std::make_unique<std::byte[]>(bytes + 16);
  std::memset(own.data.get(), 0xa5, bytes);
  std::memset(own.shadow.get(), 0xff, bytes);
  ranges_[address] = {address, address + bytes, own.data.get(), own.shadow.get(), std::move(what)};
  return address;
}

void memory::adopt(void const* host, std::uint64_t bytes, std::string what) {
  auto const address = reinterpret_cast<std::uint64_t>(host);
  auto& own = owned_[address];
  own.shadow = std::make_unique<std::byte[]>(bytes + 16);
  auto* const data = static_cast<std::byte*>(const_cast<void*>(host));
  ranges_[address] = {address, address + bytes, data, own.shadow.get(), std::move(what)};
}

void memory::free(std::uint64_t address) {
  auto const at = ranges_.find(address);
  if (at == ranges_.end()) throw fault("free: nothing was allocated at " + hex(address));
  if (at->second.freed) throw fault("free: " + at->second.what + " at " + hex(address) + " is freed already");
  owned_.erase(address);
  at->second.freed = true;
  at->second.data = at->second.shadow = nullptr;
}

range const& memory::find(std::uint64_t address, std::uint64_t bytes) const {
  auto const after = ranges_.upper_bound(address);
  if (after != ranges_.begin()) {
    range const& r = std::prev(after)->second;
    bool const inside = address < r.end && bytes <= r.end - address;
    if (inside && !r.freed) return r;
    if (inside) throw fault("use after free: " + hex(address) + " lies in " + r.what + ", which is freed");
    throw fault("out of bounds: " + std::to_string(bytes) + " bytes at " + hex(address) + ", which is " +
                std::to_string(address - r.begin) + " bytes into " + r.what + " of " +
                std::to_string(r.end - r.begin) + " bytes");
  }
  throw fault("out of bounds: " + std::to_string(bytes) + " bytes at " + hex(address) +
              ", where nothing is allocated");
}

void memory::write(std::uint64_t address, void const* from, std::uint64_t bytes) {
  if (bytes == 0) return;
  range const& r = find(address, bytes);
  std::memcpy(r.data + (address - r.begin), from, bytes);
  std::memset(r.shadow + (address - r.begin), 0, bytes);
}

void memory::read(void* to, std::uint64_t address, std::uint64_t bytes) const {
  if (bytes == 0) return;
  range const& r = find(address, bytes);
  std::byte const* const shadow = r.shadow + (address - r.begin);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (shadow[i] != std::byte{0}) {
      throw fault("uninitialised: byte " + std::to_string(i) + " of a copy to the host, " +
                  std::to_string(address - r.begin + i) + " bytes into " + r.what);
    }
  }
  std::memcpy(to, r.data + (address - r.begin), bytes);
}

void memory::fill(std::uint64_t address, int value, std::uint64_t bytes) {
  if (bytes == 0) return;
  range const& r = find(address, bytes);
  std::memset(r.data + (address - r.begin), value, bytes);
  std::memset(r.shadow + (address - r.begin), 0, bytes);
}

void memory::copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  if (bytes == 0) return;
  range const& a = find(to, bytes);
  range const& b = find(from, bytes);
  std::memmove(a.data + (to - a.begin), b.data + (from - b.begin), bytes);
  std::memmove(a.shadow + (to - a.begin), b.shadow + (from - b.begin), bytes);
}

}  // namespace emulator
