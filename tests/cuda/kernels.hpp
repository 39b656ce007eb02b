// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The kernels that kernels.cpp compiles, for those who run them.

#include "../support/space.hpp"

#include <globalq/kernel/detail/block_tree.hpp>
#include <globalq/kernel/device/add_floats.hpp>
#include <globalq/kernel/device/operands.hpp>
#include <globalq/kernel/device/write_table.hpp>
#include <globalq/kernel/stream.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/rounding/correlated.hpp>
#include <globalq/rounding/shared_draw.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/frame.hpp>
#include <globalq/wire/integer.hpp>
#include <globalq/wire/packed.hpp>

namespace compiled_kernels {

namespace gq = globalq;

using support::space;

using executor = gq::kernel::stream_executor<space>;

template <class L, class R, class W>
using operands = gq::kernel::device::operands<gq::kernel::device::levels_on_device<L>, R, W>;

using gq::levels::detail::level_table;
using gq::rounding::stochastic;
using gq::rounding::detail::shared_draw;

/// Puts a body on the stream. Headers of sources stand in front of their scales, and say the terms and o.count.
/// @param frame     to begin, or null
/// @param codes_at  bytes from there to its codes
template <class Operands, class Body>
void enqueue(executor const& on, Operands const& o, std::byte* frame, std::size_t codes_at, Body const& body);

/// The body of frames of floats, which writes no header. Headers of its sources say one term and count.
template <class Sent>
void enqueue(executor const& on, std::uint64_t count, gq::kernel::device::add_floats<Sent> const& body);

/// The statistics of all buckets.
void measure(executor const& on, gq::const_vector x, std::uint64_t count, std::uint64_t bucket,
             std::uint32_t q, gq::norm::statistics_memory& memory, gq::norm::statistic* result,
             std::uint64_t* top);

}  // namespace compiled_kernels
