// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Definitions of the library globalq::compiled, for one source of a program that does not link the library.
///
/// Compile every source with GLOBALQ_COMPILED defined, and include this header in one of them.

#if !defined(GLOBALQ_COMPILED)
#error \
    "globalq: GLOBALQ_COMPILED is not defined; define it for all sources, or do not include definitions.hpp"
#endif

#include "call/detail/definitions.hpp"
#include "kernel/isa/make_set.hpp"
#include "kernel/isa/set-inl.hpp"
#include "operator/built_in-inl.hpp"
#include "operator/detail/composed_codec.hpp"
#include "schedule/built_in-inl.hpp"
#include "transport/named_memory-inl.hpp"
#include "transport/threads-inl.hpp"
#if defined(GLOBALQ_HAS_MPI)
#include "transport/mpi-inl.hpp"
#endif
#if defined(GLOBALQ_HAS_NCCL)
#include "transport/nccl-inl.hpp"
#endif

namespace GLOBALQ_ABI::kernel::isa::native {
constinit leaf_set const all = host::detail::make_set();
}  // namespace GLOBALQ_ABI::kernel::isa::native

GLOBALQ_DEFINE_CODE_TYPE(std::int8_t)
GLOBALQ_DEFINE_CODE_TYPE(std::int16_t)
GLOBALQ_DEFINE_CODE_TYPE(std::int32_t)
