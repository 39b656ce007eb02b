// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: codes of frames that differ in length.

#include <globalq/operator/built_in-inl.hpp>

namespace globalq {
GLOBALQ_BUILT_IN_CODES(GLOBALQ_DEFINE_CODE)
}  // namespace globalq
