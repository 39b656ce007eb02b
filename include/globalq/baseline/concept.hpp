// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: what the methods of other papers have in common, so that they can be compared and wrapped.

#include "../call/options.hpp"
#include "../train/adapt/model_layout.hpp"
#include "../transport/concept.hpp"

#include <concepts>
#include <cstdint>
#include <span>

namespace GLOBALQ_ABI::baseline {

/// What came of a call, the same on every worker.
enum class outcome : std::uint8_t {
  mean,  ///< all went well
  not_finite  ///< a worker brought NaN or infinity, or a result left float32: the mean is NaN, no state has changed
};

/// @brief A published way of averaging vectors while sending less; not necessarily unbiased.
///
/// `reduce(workers, x, mean, rest, step)`, called by all workers together:
/// - @c x is this worker's vector, of layers().length() values; what lies between layers is neither read nor written.
/// - @c mean becomes the same bits on every worker. It may be the memory of @c x.
/// - @c rest becomes x minus what this worker's message stood for; empty: nobody wants it. It may be the memory of @c x,
///   and is written only when the outcome is a mean. The mean of all messages is @c mean, but for rounding, where a method
///   is an average (a majority vote is not): then nothing is lost by adding @c rest to the next vector.
/// - @c step tells calls apart; the same on every worker. With the seed it selects random bits: use each once.
///
/// Workers that bring other lengths, layers, parameters, seeds or steps get disagreement_error, all of them, before any
/// payload has moved. Under non_finite::error, what would be outcome::not_finite is non_finite_error on all workers.
/// After transport_error, contents of @c mean and state are unspecified. A worker whose memory runs out leaves the call with
/// std::bad_alloc and its state as it was; the others learn of it by their transport, and load() a state that all have.
/// After the first call nothing is allocated, but for the first with values whose sum might leave float32, and where a
/// method says so.
template <class C, class T>
concept Compressor = Transport<T> && std::movable<C> &&
    requires(C& c, C const& fixed, T& workers, std::span<float const> x, std::span<float> y,
             std::uint64_t step) {
  { fixed.layers() } -> std::same_as<adapt::model_layout const&>;
  { c.reduce(workers, x, y, y, step) } -> std::same_as<outcome>;
};

}  // namespace GLOBALQ_ABI::baseline
