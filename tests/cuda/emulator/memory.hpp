// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The memory that kernels may touch: ranges with a shadow that says which bits nobody has written.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace emulator {

/// Where device memory begins. x86-64 gives such addresses to nobody: a host that follows one is stopped by the processor.
inline constexpr std::uint64_t first_address = 0x0fd0'0000'0000'0000;

/// Each device has addresses of its own.
/// @{
inline constexpr std::uint64_t first_address_of(int device) {
  return first_address + (static_cast<std::uint64_t>(device) << 44);
}
inline constexpr std::uint64_t device_of(std::uint64_t address) { return (address - first_address) >> 44; }
/// @}

/// An address for a message.
std::string hex(std::uint64_t number);

/// Consecutive bytes under one address, with a shadow of the same size: a bit of the shadow is set where the bit is undefined.
struct range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* data = nullptr;
  std::byte* shadow = nullptr;
  std::string what{};  ///< For messages.
  bool freed = false;
};

/// All ranges. The addresses of freed ones are not used again, so that a use after free is seen as long as the process lives.
class memory {
 public:
  explicit memory(std::uint64_t first = first_address);
  ~memory();
  memory(memory const&) = delete;
  memory& operator=(memory const&) = delete;

  /// Undefined bytes at an address of 256 bytes' alignment that no host code can use.
  std::uint64_t allocate(std::uint64_t bytes, std::string what);

  /// Memory of the host that kernels see under its own address; its bytes count as defined.
  void adopt(void const* host, std::uint64_t bytes, std::string what);

  /// @throws fault where no range begins there, or it is freed already.
  void free(std::uint64_t address);

  /// The range that holds `bytes` bytes from `address` on.
  /// @throws fault that names the nearest range.
  range const& find(std::uint64_t address, std::uint64_t bytes) const;

  /// Copies to and from the host, and fills; a copy to the host throws where a bit is undefined.
  /// @{
  void write(std::uint64_t address, void const* from, std::uint64_t bytes);
  void read(void* to, std::uint64_t address, std::uint64_t bytes) const;
  void fill(std::uint64_t address, int value, std::uint64_t bytes);
  void copy(std::uint64_t to, memory const& other, std::uint64_t from,
            std::uint64_t bytes);  ///< What is undefined stays so.
                                   /// @}

 private:
  class owned;

  std::map<std::uint64_t, range> ranges_;  // by their begin
  std::map<std::uint64_t, std::unique_ptr<owned>> owned_;
  std::uint64_t next_;
};

}  // namespace emulator
