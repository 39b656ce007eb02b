// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief All that the library globalq::compiled consists of, for one source of a program that does not link it.
///
/// Every source is compiled with GLOBALQ_COMPILED defined; one of them includes this header.

#if !defined(GLOBALQ_COMPILED)
#error \
    "globalq: definitions.hpp is for programs whose sources define GLOBALQ_COMPILED; all others define what they use themselves"
#endif

#include "call/detail/engine-inl.hpp"
#include "call/detail/setup-inl.hpp"
#include "core/error-inl.hpp"
#include "kernel/executor-inl.hpp"
#include "operator/built_in-inl.hpp"
#include "operator/detail/composed_codec.hpp"
#include "operator/detail/facts_of-inl.hpp"
#include "operator/detail/make_codec-inl.hpp"
#include "operator/detail/operator_codec-inl.hpp"
#include "operator/detail/resolve-inl.hpp"
#include "operator/vector_codec-inl.hpp"
#include "plan/detail/bounds-inl.hpp"
#include "plan/plan-inl.hpp"
#include "schedule/built_in-inl.hpp"
#include "schedule/detail/piece_sizes-inl.hpp"
#include "transport/threads-inl.hpp"
#include "wire/frame-inl.hpp"

#include "kernel/compiled_for-inl.hpp"

namespace globalq::kernel::host {
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::uniform<>)
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::exponential<>)
GLOBALQ_LEAVES_OF_LEVELS(GLOBALQ_DEFINE_LEAF, levels::detail::level_table)
GLOBALQ_LEAVES_OF_WIRES(GLOBALQ_DEFINE_LEAF)
}  // namespace globalq::kernel::host

namespace globalq {
GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels::uniform<>)
GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels::exponential<>)
GLOBALQ_BUILT_IN_COMPOSITIONS(GLOBALQ_DEFINE_COMPOSITION, levels::detail::level_table)
GLOBALQ_BUILT_IN_CODES(GLOBALQ_DEFINE_CODE)
}  // namespace globalq

namespace globalq::detail {
GLOBALQ_DEFINE_COMPOSED(std::int8_t)
GLOBALQ_DEFINE_COMPOSED(std::int16_t)
GLOBALQ_DEFINE_COMPOSED(std::int32_t)
}  // namespace globalq::detail
