// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>

namespace emulator {
namespace {

/// Zeros: a large allocation costs what is used of it.
template <class T = std::byte>
std::shared_ptr<T> zeros(uint64_t count) {
  std::size_t const size = sizeof(T) * std::max<uint64_t>(count, 1);
  void* const p =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<T*>(p), [size](T* begin) { munmap(begin, size); }};
}

}  // namespace

std::string hex(uint64_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << number;
  return out.str();
}

uint64_t memory::allocate(uint64_t bytes, std::string what) {
  uint64_t const address = next_;
  // A gap behind each range: an access that leaves it meets no other.
  next_ += (bytes + 255) / 256 * 256 + 4096;
  ranges_[address] = {address, address + bytes, zeros(bytes), zeros(bytes), zeros<stamp>(bytes),
                      ~0ULL,   std::move(what)};
  return address;
}

void memory::adopt(void* host, uint64_t bytes, std::string what) {
  auto const address = reinterpret_cast<uint64_t>(host);
  // No owner: the host frees its data itself.
  std::shared_ptr<std::byte> const data(std::shared_ptr<void>(), static_cast<std::byte*>(host));
  ranges_[address] = {address, address + bytes, data, zeros(bytes), zeros<stamp>(bytes), 0, std::move(what)};
}

void memory::free(uint64_t address) {
  auto const at = ranges_.find(address);
  if (at == ranges_.end()) throw fault("free: nothing was allocated at ", hex(address));
  if (at->second.freed()) throw fault("free: ", at->second.what, " at ", hex(address), " is freed already");
  at->second.data = at->second.shadow = nullptr;
  at->second.written = nullptr;
}

range const& memory::find(uint64_t address, uint64_t bytes) const {
  auto const outside = [&](std::string const& where) {
    return fault("out of bounds: ", bytes, " bytes at ", hex(address), ", ", where);
  };
  auto const after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) throw outside("where nothing is allocated");
  range const& r = std::prev(after)->second;
  if (address >= r.end || bytes > r.end - address)
    throw outside("which is " + std::to_string(address - r.begin) + " bytes into " + r.what + " of " +
                  std::to_string(r.end - r.begin) + " bytes");
  if (r.freed()) throw fault("use after free: ", hex(address), " lies in ", r.what, ", which is freed");
  return r;
}

bool memory::holds(uint64_t address) const {
  auto const after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return false;
  range const& r = std::prev(after)->second;
  return address < r.end && !r.freed();
}

void memory::write(uint64_t address, void const* from, uint64_t bytes) {
  if (bytes == 0) return;
  place const to = find(address, bytes).at(address);
  std::memcpy(to.data, from, bytes);
  std::memset(to.shadow, static_cast<int>(to.defined & 0xff), bytes);
}

void memory::read(void* to, uint64_t address, uint64_t bytes) const {
  if (bytes == 0) return;
  range const& r = find(address, bytes);
  place const from = r.at(address);
  auto const is_undefined = [&](std::byte b) { return b != static_cast<std::byte>(from.defined); };
  auto const undefined = std::find_if(from.shadow, from.shadow + bytes, is_undefined) - from.shadow;
  if (static_cast<uint64_t>(undefined) != bytes)
    throw fault("uninitialized: byte ", undefined, " of a copy to the host, ",
                address - r.begin + static_cast<uint64_t>(undefined), " bytes into ", r.what);
  std::memcpy(to, from.data, bytes);
}

void memory::fill(uint64_t address, int value, uint64_t bytes) {
  if (bytes == 0) return;
  place const to = find(address, bytes).at(address);
  std::memset(to.data, value, bytes);
  std::memset(to.shadow, static_cast<int>(to.defined & 0xff), bytes);
}

void memory::copy(uint64_t to, memory const& other, uint64_t from, uint64_t bytes) {
  if (bytes == 0) return;
  place const a = find(to, bytes).at(to), b = other.find(from, bytes).at(from);
  std::memmove(a.data, b.data, bytes);
  std::memmove(a.shadow, b.shadow, bytes);
}

}  // namespace emulator
