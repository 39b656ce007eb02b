// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: options of a call besides operator, schedule and transport.

#include "../core/detail/abi.hpp"

#include <cstdint>

namespace GLOBALQ_ABI {

class telemetry;

/// What a call does if a worker's vector contains NaN or infinity, or a result exceeds the range of its type.
enum class non_finite : std::uint8_t {
  propagate,  ///< every value of the result is NaN on every worker, as an uncompressed sum would show
  error       ///< every worker throws non_finite_error; vectors are unchanged, unless a result overflowed
};

/// Options of a call; the same on every worker, except telemetry.
struct options {
  std::uint64_t seed = 0;
  globalq::non_finite non_finite = globalq::non_finite::propagate;
  /// Values per message; 0: the library chooses. The result does not depend on it. Workers compare the sizes that they
  /// use.
  std::uint64_t chunk_values = 0;
  /// Receives a report of each call; may be null. It must outlive the object that makes the calls.
  globalq::telemetry* telemetry = nullptr;
};

}  // namespace GLOBALQ_ABI
