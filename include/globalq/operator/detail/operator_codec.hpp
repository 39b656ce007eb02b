// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the interface of the codecs of all operators: a codec that receives the data of each call.

#include "../../core/codec.hpp"
#include "../../core/detail/compiled.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../kernel/operands.hpp"
#include "../../levels/table.hpp"
#include "../../wire/frame.hpp"
#include "kept_on_stream.hpp"

#include <functional>

namespace GLOBALQ_ABI::detail {

/// Scale of floats in frames: a power of two; 1 if neither values nor their sum exceed the range of the frames' numbers,
/// unless it is short.
struct float_scale {
  double divisor = 1;  ///< in units of 2^wide
  std::int32_t wide = 0;
};

class residual;

/// One call of one worker.
struct codec_call {
  const_vector x;
  mutable_vector y;
  std::uint64_t length = 0;
  int rank = 0;
  int workers = 1;
  /// For roundings that are told: this worker among those that encode values of one mean, and how many they are.
  std::uint32_t encoder = 0, encoders = 1;
  double weight = 1;  ///< the mean is multiplied by it: see schedule_facts::weight
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t const* step_at = nullptr;  ///< on a stream: the address of the step; null: step is it
  std::span<double const>
      bucket_scales;        ///< scales of buckets in units of 2^wide: of all workers, or own (local)
  double vector_scale = 0;  ///< in host memory: of a norm with two levels of scales
  int wide = 0;
  residual* kept = nullptr;  ///< in host memory: of this vector, for error feedback; null: none is kept
  bool keeps = false;        ///< on a stream, for error feedback: what frames leave out is kept
  float_scale floats;        ///< in host memory
  double top = 0;            ///< in host memory: max|x| of all workers
  kernel::agreed_call* agreed = nullptr;  ///< on a stream: contains wide when the kernels run
  bool settled = false;                   ///< on a stream: agreed contains the scales of the whole vector too
  bool scales_written = false;  ///< on a stream: a kernel before combine() writes local scales to the frame
  std::function<void()> wait;   ///< on a stream: waits for the enqueued work

  /// Results are means of @p n encoded vectors, of which this worker, or its node, has number @c rank.
  void average(int n) {
    workers = n;
    encoder = static_cast<std::uint32_t>(rank);
    encoders = static_cast<std::uint32_t>(n);
  }
};

/// A codec that is reused for many calls.
class operator_codec : public codec {
 public:
  /// Stores a call, which is enough for frame_bytes(). Enqueues nothing.
  virtual void note(codec_call const& c) {
    call_ = c;
    faults_ = 0;
  }

  virtual void begin(codec_call const& c) { note(c); }

  /// On a stream: enqueues the stages of the operator, which map a part of the vector, after the workers agreed.
  /// @param x   of the type of mapped vectors; may be @p to
  virtual void enter(codec_call const&, const_vector /*x*/, segment, mutable_vector /*to*/) {}

  /// On a stream: the residual that calls add to their vectors; null: there is none.
  virtual kept_on_stream* kept() { return nullptr; }

  /// On a stream: the largest level, with which begin() computes the scales of the whole vector; 0: it computes none.
  virtual double extent() const { return 0; }

  /// Replaces the levels by others of the same number and kind.
  /// @throws configuration_error unless the operator has a table of levels
  GLOBALQ_DECL virtual void set_levels(levels::detail::level_table const&);

  /// Writes the frame of own values and their local norms in one pass, if buckets are short enough.
  /// @param bucket_scales  receives the scale of each bucket
  /// @returns false if it did not, or if values are not finite: there is no valid frame then
  virtual bool encode_measured(segment, std::span<double> /*bucket_scales*/, std::span<std::byte> /*out*/) {
    return false;
  }

  /// On a stream: whether measure_all() supports values of this type.
  virtual bool measures(dtype) const { return false; }
  /// On a stream: enqueues encode_measured() of several segments.
  /// @param all    in order; empty frames are not written. For the others, the next combine() does nothing
  /// @param bucket_scales  receives the scale of each bucket of the vector; may be null
  /// @param top    raised to the largest max_bits of a bucket
  virtual void measure_all(std::span<unsent const> /*all*/, double* /*bucket_scales*/,
                           std::uint64_t* /*top*/) {}

  /// Checks every code of the sources. finish() or add_decoded() must follow with the same sources, without the check.
  /// @throws frame_error that names the worker
  virtual void verify(segment, std::span<source const>) {}

  /// finish(), but adds to the output; for operators that vector_codec supports.
  GLOBALQ_DECL virtual void add_decoded(segment, std::span<source const>);

  /// The frame_traits of this call's frames.
  virtual wire::frame_traits traits() const { return 0; }

  /// The faults that kernels found since begin().
  std::uint32_t faults() const { return faults_; }

  void declare(std::span<std::byte> frame, int terms) const override {
    if (frame.empty()) return;
    std::uint32_t const t = static_cast<std::uint32_t>(terms);
    std::memcpy(frame.data() + offsetof(wire::frame_header, terms), &t, sizeof t);
  }

 protected:
  /// The number of workers in the sum of own values and sources.
  static int terms_of(bool own, std::span<source const> sources);

  /// Throws the error for bad codes that the kernels found.
  void check_codes(std::span<source const> sources);

  codec_call call_;
  std::uint32_t faults_ = 0;
};

/// The error text of a reduce operator whose sums exceed its largest_code().
GLOBALQ_DECL std::string bad_sum_text(char const* operation, int rank);

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "operator_codec-inl.hpp"
#endif
