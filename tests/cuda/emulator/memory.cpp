// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

#include "ptx.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

namespace emulator {

namespace {

/// A file of equal bytes, which pages show until they are written: a large allocation costs what is used of it.
class pattern {
 public:
  static constexpr std::uint64_t bytes = std::uint64_t{1} << 21;

  explicit pattern(int value) : file_(memfd_create("pattern", MFD_CLOEXEC)) {
    std::vector<char> const all(bytes, static_cast<char>(value));
    if (write(file_, all.data(), bytes) != static_cast<ssize_t>(bytes)) throw std::bad_alloc();
  }

  void show(std::byte* at, std::uint64_t size) const {
    for (std::uint64_t k = 0; k < size; k += bytes) {
      void* const p =
          mmap(at + k, std::min(bytes, size - k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file_, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
    }
  }

 private:
  int file_;
};

}  // namespace

/// Where the bytes of a range really are: data and shadow, with 16 bytes more of each, so that one access may be read with
/// padding. Where the host has the data already, only the shadow is used: all defined.
class memory::owned {
 public:
  owned(std::uint64_t size, bool defined) : half_((size + 16 + 4095) / 4096 * 4096) {
    static pattern const unwritten(0xa5), undefined(0xff);
    void* const p =
        mmap(nullptr, 2 * half_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(p);
    if (defined) return;
    unwritten.show(begin_, half_);
    undefined.show(begin_ + half_, half_);
  }
  owned(owned const&) = delete;
  ~owned() { munmap(begin_, 2 * half_); }

  std::byte* data() const { return begin_; }
  std::byte* shadow() const { return begin_ + half_; }

 private:
  std::uint64_t half_;
  std::byte* begin_;
};

std::string hex(std::uint64_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << number;
  return out.str();
}

memory::memory(std::uint64_t first) : next_(first) {}
memory::~memory() = default;

std::uint64_t memory::allocate(std::uint64_t bytes, std::string what) {
  std::uint64_t const address = next_;
  // A gap behind each range: an access that leaves it meets no other.
  next_ += (bytes + 255) / 256 * 256 + 4096;
  auto& own = owned_[address] = std::make_unique<owned>(bytes, false);
  ranges_[address] = {address, address + bytes, own->data(), own->shadow(), std::move(what)};
  return address;
}

void memory::adopt(void const* host, std::uint64_t bytes, std::string what) {
  auto const address = reinterpret_cast<std::uint64_t>(host);
  auto& own = owned_[address] = std::make_unique<owned>(bytes, true);
  auto* const data = static_cast<std::byte*>(const_cast<void*>(host));
  ranges_[address] = {address, address + bytes, data, own->shadow(), std::move(what)};
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

void memory::copy(std::uint64_t to, memory const& other, std::uint64_t from, std::uint64_t bytes) {
  if (bytes == 0) return;
  range const& a = find(to, bytes);
  range const& b = other.find(from, bytes);
  std::memmove(a.data + (to - a.begin), b.data + (from - b.begin), bytes);
  std::memmove(a.shadow + (to - a.begin), b.shadow + (from - b.begin), bytes);
}

}  // namespace emulator
