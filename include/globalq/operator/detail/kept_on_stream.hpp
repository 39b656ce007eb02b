// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what a call on a stream asks of a codec that keeps residuals.

#include "../../core/vector.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace GLOBALQ_ABI::detail {

struct codec_call;
struct stream_state;
class residuals;

/// The residual of the vectors of a call on a stream. Its functions enqueue kernels, which also decide what is kept, so a
/// captured call does the same in each replay.
class kept_on_stream {
 public:
  /// Waits for all enqueued work.
  using waiter = std::function<void()>;

  virtual ~kept_on_stream() = default;

  /// residuals::refusal(). Waits if the length or the type is not that of the last call.
  /// @param type  of mapped vectors
  virtual std::string refusal(std::uint64_t length, dtype type, waiter const& wait) = 0;

  /// Begins a call: raises the bound of its vector to that of vector plus residual.
  /// @param top  bit pattern of the bound
  virtual void raise(codec_call const& c, std::uint64_t* top) = 0;

  /// After operator_codec::enter(): vector plus residual.
  virtual const_vector entered() const = 0;

  /// Ends a call, unless the vector is empty: what its frames left out becomes the residual, unless there is no mean.
  virtual void commit(stream_state const* state) = 0;

  /// The residual in host memory. Waits.
  virtual residuals save(waiter const& wait) = 0;
  /// Replaces the residual by the first one of @p from. Waits.
  virtual void load(residuals& from, waiter const& wait) = 0;
  virtual void forget() = 0;
};

}  // namespace GLOBALQ_ABI::detail
