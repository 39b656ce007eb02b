// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the common interface of the methods of other papers, so that they can be compared and wrapped.

#include "../call/options.hpp"
#include "../train/adapt/model_layout.hpp"
#include "../transport/concept.hpp"

#include <concepts>
#include <cstdint>
#include <span>

namespace GLOBALQ_ABI::baseline {

/// The result of a call, the same on every worker.
enum class outcome : std::uint8_t {
  mean,       ///< success
  not_finite  ///< a worker passed NaN or infinity, or a result overflowed: the mean is NaN, no state has changed
};

/// @brief A published method that averages vectors while sending fewer bytes; it may be biased.
///
/// `reduce(workers, x, mean, rest, step)`, called by all workers together:
/// - @c x is this worker's vector, of layers().length() values; values between layers are neither read nor written.
/// - @c mean receives the result, the same bits on every worker. It may be the memory of @c x.
/// - @c rest receives the residual: x minus the vector that this worker's message represents. If empty, it is not
///   computed. It may be the memory of @c x, and is written only if the outcome is a mean. If the method is an average
///   (a majority vote is not), @c mean is the mean of all messages up to rounding; adding @c rest to the next vector
///   then loses nothing.
/// - @c step is the number of the training step, the same on every worker. With the seed it selects random bits: use
/// each once.
///
/// If workers differ in lengths, layers, parameters, seeds or steps, all of them throw disagreement_error before any
/// payload is sent. With non_finite::error, all workers throw non_finite_error instead of returning
/// outcome::not_finite. After transport_error, the contents of @c mean and of the state are unspecified. A worker that
/// runs out of memory throws std::bad_alloc and keeps its state; the transport reports the failure to the others, and
/// all load() a common state. Calls after the first allocate nothing, except the first call whose sum might overflow
/// float32, and methods that say so.
template <class C, class T>
concept Compressor = Transport<T> && std::movable<C> &&
    requires(C& c, C const& fixed, T& workers, std::span<float const> x, std::span<float> y,
             std::uint64_t step) {
  { fixed.layers() } -> std::same_as<adapt::model_layout const&>;
  { c.reduce(workers, x, y, y, step) } -> std::same_as<outcome>;
};

}  // namespace GLOBALQ_ABI::baseline
