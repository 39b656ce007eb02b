// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: codecs of compositions with sums of codes in 32 bits.

#include <globalq/operator/detail/composed_codec.hpp>

GLOBALQ_DEFINE_CODE_TYPE(std::int32_t)
