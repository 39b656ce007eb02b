// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The memory that kernels may touch: ranges, and which of their bits somebody has written.

#pragma once

#include "ptx.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace emulator {

/// Where device memory begins. x86-64 gives such addresses to nobody: a host that follows one is stopped by the processor.
inline constexpr uint64_t first_address = 0x0fd0'0000'0000'0000;

/// Each device has addresses of its own.
/// @{
inline constexpr uint64_t first_address_of(int device) {
  return first_address + (static_cast<uint64_t>(device) << 44);
}
inline constexpr uint64_t device_of(uint64_t address) { return (address - first_address) >> 44; }
/// @}

/// An address for a message.
std::string hex(uint64_t number);

/// Bytes, and a shadow of as many: a bit there is as in `defined` where the bit here is defined. New shadows are zeros.
struct place {
  std::byte* data;
  std::byte* shadow;
  uint64_t defined;
};

/// Who wrote a byte last, and when; not whoever wrote it by a copy or a fill.
struct stamp {
  uint32_t time = 0;               ///< Of `memory::now()`.
  uint32_t thread : 31 = 0;        ///< In the grid.
  uint32_t synchronizing : 1 = 0;  ///< As `instruction::synchronizing`.
};

/// Consecutive bytes under one address.
struct range {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::shared_ptr<std::byte> data{}, shadow{};  ///< Null when it is freed.
  std::shared_ptr<stamp> written{};             ///< One for each byte.
  uint64_t defined = ~0ULL;
  std::string what{};  ///< For messages.

  bool freed() const { return shadow == nullptr; }
  place at(uint64_t address) const {
    return {data.get() + (address - begin), shadow.get() + (address - begin), defined};
  }
};

/// All ranges. The addresses of freed ones are not used again, so that a use after free is seen as long as the process lives.
class memory {
 public:
  explicit memory(uint64_t first = first_address) : next_(first) {}
  memory(memory const&) = delete;
  memory& operator=(memory const&) = delete;

  /// Undefined bytes at an address of 256 bytes' alignment that no host code can use.
  uint64_t allocate(uint64_t bytes, std::string what);

  /// Memory of the host that kernels see under its own address; its bytes count as defined.
  void adopt(void* host, uint64_t bytes, std::string what);

  /// @throws fault where no range begins there, or it is freed already.
  void free(uint64_t address);

  /// The range that holds `bytes` bytes from `address` on.
  /// @throws fault that names the nearest range.
  range const& find(uint64_t address, uint64_t bytes) const;

  /// Whether an address lies in a range that is not freed.
  bool holds(uint64_t address) const;

  /// Copies to and from the host, and fills; a copy to the host throws where a bit is undefined.
  /// @{
  void write(uint64_t address, void const* from, uint64_t bytes);
  void read(void* to, uint64_t address, uint64_t bytes) const;
  void fill(uint64_t address, int value, uint64_t bytes);
  /// What is undefined stays so.
  void copy(uint64_t to, memory const& other, uint64_t from, uint64_t bytes);
  /// @}

  /// A time of this memory. What is written after tick() is later than what was written before.
  /// @{
  uint32_t now() const { return clock_; }
  uint32_t tick() { return ++clock_; }
  /// @}

 private:
  std::map<uint64_t, range> ranges_;  // by their begin
  uint64_t next_;
  uint32_t clock_ = 0;
};

}  // namespace emulator
