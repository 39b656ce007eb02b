// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: what a caller may choose besides operator, schedule and transport.

#include "../core/detail/abi.hpp"

#include <cstdint>

namespace GLOBALQ_ABI {

class telemetry;

/// What happens when a worker brings NaN or infinity, or a result is beyond the range of its type.
enum class non_finite : std::uint8_t {
  propagate,  ///< every value of the result is NaN on every worker, as an uncompressed sum would show
  error  ///< every worker throws non_finite_error; nothing is changed unless a result overflowed on the way
};

/// Options of a call; the same on every worker, but for telemetry.
struct options {
  std::uint64_t seed = 0;
  globalq::non_finite non_finite = globalq::non_finite::propagate;
  /// Values sent at a time, 0: chosen by the library. Changes no bit of the result. Workers that differ in it get an
  /// error from the transport, since the sizes of their messages differ.
  std::uint64_t chunk_values = 0;
  /// Who is told of each call, or null. It must outlive the call's object.
  globalq::telemetry* telemetry = nullptr;
};

}  // namespace GLOBALQ_ABI
