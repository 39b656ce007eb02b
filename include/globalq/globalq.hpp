// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The main header: collectives, operators, schedules, plans; transports threads and, if enabled, mpi. Streams have stream.hpp.

#include "call/vector_group.hpp"
#include "collective/all_gather.hpp"
#include "collective/all_to_all.hpp"
#include "collective/allreduce_mean.hpp"
#include "collective/broadcast.hpp"
#include "collective/reduce_scatter_mean.hpp"
#include "operator/any_quantizer.hpp"
#include "operator/centered.hpp"
#include "operator/clip.hpp"
#include "operator/error_feedback.hpp"
#include "operator/few_bits.hpp"
#include "operator/float32_tail.hpp"
#include "operator/kernels.hpp"
#include "operator/operators.hpp"
#include "operator/quantizer.hpp"
#include "operator/rotated.hpp"
#include "operator/second_half.hpp"
#include "operator/vector_codec.hpp"
#include "plan/plan.hpp"
#include "schedule/any.hpp"
#include "telemetry/telemetry.hpp"
#include "transport/detail/not_linked.hpp"
#include "transport/threads.hpp"
#if __has_include(<globalq/version.hpp>)
#include <globalq/version.hpp>
#endif
#if defined(GLOBALQ_HAS_MPI)
#include "transport/mpi.hpp"
#endif
