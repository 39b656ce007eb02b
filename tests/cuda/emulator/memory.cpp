// SPDX-License-Identifier: Apache-2.0

#include "memory.hpp"

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

std::byte* mapped(std::byte* at, uint64_t bytes, int flags, int file) {
  void* const p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, file, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(p);
}

constexpr uint64_t file_bytes = uint64_t{1} << 21;

int file_of_ones() {
  int const file = memfd_create("ones", MFD_CLOEXEC);
  std::vector<char> const all(file_bytes, static_cast<char>(0xff));
  if (write(file, all.data(), file_bytes) != static_cast<ssize_t>(file_bytes)) throw std::bad_alloc();
  return file;
}

}  // namespace

/// Bytes that are all zero or all ones until they are written: a large allocation costs what is used of it.
class memory::pages {
 public:
  pages(uint64_t bytes, bool ones)
      : bytes_(std::max<uint64_t>(bytes, 1)),
        begin_(mapped(nullptr, bytes_, MAP_ANONYMOUS | MAP_NORESERVE, -1)) {
    static int const file = file_of_ones();
    for (uint64_t k = 0; ones && k < bytes_; k += file_bytes)
      mapped(begin_ + k, std::min(file_bytes, bytes_ - k), MAP_FIXED, file);
  }
  pages(pages const&) = delete;
  ~pages() { munmap(begin_, bytes_); }

  std::byte* begin() const { return begin_; }

 private:
  uint64_t bytes_;
  std::byte* begin_;
};

std::string hex(uint64_t number) {
  std::ostringstream out;
  out << "0x" << std::hex << number;
  return out.str();
}

uint64_t memory::allocate(uint64_t bytes, std::string what) {
  uint64_t const address = next_;
  // A gap behind each range: an access that leaves it meets no other.
  next_ += (bytes + 255) / 256 * 256 + 4096;
  auto const data = std::make_shared<pages>(bytes, false), shadow = std::make_shared<pages>(bytes, true);
  ranges_[address] = {address,         address + bytes, data->begin(),
                      shadow->begin(), std::move(what), {data, shadow}};
  return address;
}

void memory::adopt(void* host, uint64_t bytes, std::string what) {
  auto const address = reinterpret_cast<uint64_t>(host);
  auto const shadow = std::make_shared<pages>(bytes, false);
  ranges_[address] = {address,         address + bytes, static_cast<std::byte*>(host),
                      shadow->begin(), std::move(what), {shadow}};
}

void memory::free(uint64_t address) {
  auto const at = ranges_.find(address);
  if (at == ranges_.end()) throw fault("free: nothing was allocated at ", hex(address));
  if (at->second.freed()) throw fault("free: ", at->second.what, " at ", hex(address), " is freed already");
  at->second.owned.clear();
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

void memory::write(uint64_t address, void const* from, uint64_t bytes) {
  if (bytes == 0) return;
  place const to = find(address, bytes).at(address);
  std::memcpy(to.data, from, bytes);
  std::memset(to.shadow, 0, bytes);
}

void memory::read(void* to, uint64_t address, uint64_t bytes) const {
  if (bytes == 0) return;
  range const& r = find(address, bytes);
  place const from = r.at(address);
  auto const* const bad =
      std::find_if(from.shadow, from.shadow + bytes, [](std::byte b) { return b != std::byte{0}; });
  if (bad != from.shadow + bytes)
    throw fault("uninitialised: byte ", bad - from.shadow, " of a copy to the host, ", bad - r.shadow,
                " bytes into ", r.what);
  std::memcpy(to, from.data, bytes);
}

void memory::fill(uint64_t address, int value, uint64_t bytes) {
  if (bytes == 0) return;
  place const to = find(address, bytes).at(address);
  std::memset(to.data, value, bytes);
  std::memset(to.shadow, 0, bytes);
}

void memory::copy(uint64_t to, memory const& other, uint64_t from, uint64_t bytes) {
  if (bytes == 0) return;
  place const a = find(to, bytes).at(to), b = other.find(from, bytes).at(from);
  std::memmove(a.data, b.data, bytes);
  std::memmove(a.shadow, b.shadow, bytes);
}

}  // namespace emulator
