// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The space whose instances are the streams of a test: a GPU's where Kokkos has CUDA, else one thread of the host.

#include <Kokkos_Core.hpp>

namespace support {

#if defined(KOKKOS_ENABLE_CUDA)
using space = Kokkos::Cuda;
#else
using space = Kokkos::Serial;
#endif

}  // namespace support
