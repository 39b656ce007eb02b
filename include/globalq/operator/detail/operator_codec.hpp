// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what allreduce_mean asks of any operator: a codec that is told about each call.

#include "../../core/codec.hpp"
#include "../../core/detail/compiled.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../kernel/operands.hpp"
#include "../../levels/table.hpp"
#include "../../wire/frame.hpp"

#include <functional>

namespace GLOBALQ_ABI::detail {

/// One call of one worker.
struct call {
  const_vector x;
  mutable_vector y;
  std::uint64_t length = 0;
  int rank = 0;
  int workers = 1;
  double weight = 1;  ///< the mean is multiplied by it: see schedule_facts::weight
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t const* step_at = nullptr;  ///< on a stream: where it is, if that is not the host
  std::span<double const> units;  ///< one a bucket, in units of 2^wide: of all workers, or own (local)
  int wide = 0;
  double plain_unit = 1;  ///< what float32 beside codes is divided by, in units of 2^plain_wide
  int plain_wide = 0;
  kernel::agreed_call* agreed = nullptr;  ///< on a stream: where wide is, once the kernels run
  bool settled = false;                   ///< on a stream: so are the scales of the whole vector
  std::function<void()> wait;             ///< on a stream: returns when what was enqueued has run
};

/// A codec between calls.
class operator_codec : public codec {
 public:
  /// Takes note of a call, so that frame_bytes() can be asked. Enqueues nothing.
  virtual void note(call const& c) {
    call_ = c;
    faults_ = 0;
  }

  virtual void begin(call const& c) { note(c); }

  /// On a stream: the largest level, by which begin() settles scales that are not; 0: it settles none.
  virtual double extent() const { return 0; }

  /// Codes from now on by other levels, of the same number and kind.
  /// @throws configuration_error when these levels are none that can change
  GLOBALQ_DECL virtual void set_levels(levels::detail::level_table const&);

  /// Writes the frame of own values and their local norms in one pass, where buckets are short enough.
  /// @param units  one a bucket, written
  /// @returns false when that was not done, or values are NaN or infinity: the frame is none then
  virtual bool encode_measured(segment, std::span<double> /*units*/, std::span<std::byte> /*out*/) {
    return false;
  }

  /// The same on a stream, enqueued, of some segments: whether that can be done with values of this type.
  virtual bool measures(dtype) const { return false; }
  /// @param all    in order; a frame that is empty is not made. The first combine() of each other one does nothing in this call
  /// @param units  one a bucket of the vector, written, or null
  /// @param top    raised to the largest max_bits of a bucket
  virtual void measure_all(std::span<unsent const> /*all*/, double* /*units*/, std::uint64_t* /*top*/) {}

  /// Checks every code of the sources, so that finish() or add_decoded(), which must follow with the same sources, need
  /// not.
  /// @throws frame_error naming the worker
  virtual void verify(segment, std::span<source const>) {}

  /// finish(), added to what the output holds; for operators that vector_codec takes.
  GLOBALQ_DECL virtual void add_decoded(segment, std::span<source const>);

  /// What decoding a frame of this call depends on besides its wire format.
  virtual wire::frame_traits traits() const { return 0; }

  /// What the kernels found since begin().
  std::uint32_t faults() const { return faults_; }

  void declare(std::span<std::byte> frame, int terms) const override {
    if (frame.empty()) return;
    std::uint32_t const t = static_cast<std::uint32_t>(terms);
    std::memcpy(frame.data() + offsetof(wire::frame_header, terms), &t, sizeof t);
  }

 protected:
  /// Workers in the sum of own values and sources.
  static int terms_of(bool own, std::span<source const> sources);

  /// Throws the error of a frame that the kernels found bad.
  void check_codes(std::span<source const> sources);

  call call_;
  std::uint32_t faults_ = 0;
};

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "operator_codec-inl.hpp"
#endif
