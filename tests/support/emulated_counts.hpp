// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What an emulated CUDA device has executed, for tests that bound the work of kernels.

#include <dlfcn.h>

#include <optional>

namespace support {

/// Sums over all launches of the process. Instructions are those of threads, of PTX.
struct emulated_counts {
  unsigned long long launches = 0, instructions = 0, loaded_bytes = 0, stored_bytes = 0;

  emulated_counts operator-(emulated_counts const& before) const {
    return {launches - before.launches, instructions - before.instructions,
            loaded_bytes - before.loaded_bytes, stored_bytes - before.stored_bytes};
  }
};

/// Those of now, of what has run; nothing on a device that does not count: hardware.
inline std::optional<emulated_counts> executed() {
  using function = void (*)(emulated_counts*);
  auto const tell = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "emulatedCounts"));
  if (tell == nullptr) return std::nullopt;
  emulated_counts now;
  tell(&now);
  return now;
}

}  // namespace support
