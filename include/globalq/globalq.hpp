// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Everything: workers agree on the mean of their vectors while sending a fraction of the bytes.

#include "all_gather.hpp"
#include "allreduce_mean.hpp"
#include "any_quantizer.hpp"
#include "centred.hpp"
#include "clip.hpp"
#include "float32_tail.hpp"
#include "operators.hpp"
#include "plan.hpp"
#include "quantizer.hpp"
#include "reduce_scatter_mean.hpp"
#include "schedule/any.hpp"
#include "stream_vector_codec.hpp"
#include "telemetry.hpp"
#include "transport/staged.hpp"
#include "transport/threads.hpp"
#include "vector_codec.hpp"
#include "vector_group.hpp"
#if __has_include(<globalq/version.hpp>)
#include <globalq/version.hpp>
#endif
#if defined(GLOBALQ_HAS_MPI)
#include "transport/mpi.hpp"
#endif
