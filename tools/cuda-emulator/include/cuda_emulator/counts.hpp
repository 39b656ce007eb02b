// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What an emulated CUDA device has executed, for tests that bound the work of kernels. Programs that include this header also run
/// on hardware.

#include <dlfcn.h>

#include <optional>

namespace emulator {

/// Sums over all launches of the process. Instructions are those of threads, of PTX.
struct executed_counts {
  unsigned long long launches = 0, instructions = 0, loaded_bytes = 0, stored_bytes = 0;

  executed_counts operator-(executed_counts const& before) const {
    return {launches - before.launches, instructions - before.instructions,
            loaded_bytes - before.loaded_bytes, stored_bytes - before.stored_bytes};
  }
};

/// The sums over what has run so far; nothing on hardware, which does not count.
inline std::optional<executed_counts> executed() {
  using function = void (*)(executed_counts*);
  auto const tell = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "emulatedCounts"));
  if (tell == nullptr) return std::nullopt;
  executed_counts now;
  tell(&now);
  return now;
}

}  // namespace emulator
