// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the form of a stage on a stream: it enqueues kernels.

#include "../kernel/stream.hpp"
#include "stage.hpp"

namespace GLOBALQ_ABI {

/// @brief The call on a stream that a stage takes part in.
template <class Space>
struct stream_stage_call {
  kernel::stream_executor<Space> const& on;
  std::uint64_t length = 0;  ///< of the vector
  std::uint64_t seed = 0, step = 0;
  std::uint64_t const* step_at = nullptr;  ///< if not null, the address of the step
  int rank = 0;
  kernel::agreed_call* agreed =
      nullptr;      ///< when kernels run: top, whether there is a mean, and faults that they find
  stage_bound top;  ///< top(agreed->top), in kernels: no value that enters, of any worker, is larger
  dtype type = dtype::float32;  ///< of mapped vectors
};

/// @brief What a stage of your own also derives from, to be used on streams of @p Space. Only stages without side values.
template <class Space>
class stream_stage {
 public:
  virtual ~stream_stage() = default;

  /// @brief Enqueues stage::enter(). Kernels run also if workers disagree or values are not finite; what they write is
  /// not used then.
  virtual void enter(stream_stage_call<Space> const& c, const_vector x, segment part,
                     mutable_vector to) const = 0;

  /// @brief Enqueues stage::leave(). Kernels change nothing unless c.agreed->writes, and set kernel::out_of_range in
  /// c.agreed->faults if a value left its range.
  virtual void leave(stream_stage_call<Space> const& c, mutable_vector mean, segment part) const = 0;
};

}  // namespace GLOBALQ_ABI
