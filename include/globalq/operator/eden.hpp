// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: EDEN: a rotation for each worker, and the centroids of normal values.

#include "detail/eden_codec.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/stream_eden_codec.hpp"
#endif
#include "detail/wrapped_operator.hpp"

#include <bit>

namespace GLOBALQ_ABI {

namespace detail {

/// The 2^bits centroids of a normal distribution of variance 1, those above zero; they minimize the mean square of rounding to
/// the nearest.
///
/// Solutions of learn::lloyd, which a test computes again. They are constants, because workers would disagree where their
/// machines have different mathematical functions.
inline std::span<double const> normal_centroids(int bits) {
  static constexpr double one[] = {0.7978846}, two[] = {0.4527800, 1.5104176},
                          three[] = {0.2450942, 0.7560053, 1.3439093, 2.1519457},
                          four[] = {0.1283950, 0.3880483, 0.6567591, 0.9423405,
                                    1.2562312, 1.6180464, 2.0690172, 2.7325896};
  static constexpr std::span<double const> all[] = {one, two, three, four};
  return all[bits - 1];
}
/// As levels, the largest of which is 1.
inline levels::symmetric levels_of_eden(int bits) {
  float_environment const exact;
  std::span<double const> const centroids = normal_centroids(bits);
  std::vector<double> levels;
  for (double const c : centroids) levels.push_back(rounded(c / centroids.back()));
  return levels::symmetric{std::span<double const>(levels)};
}

}  // namespace detail

/// @brief EDEN: each worker rotates blocks by random signs of its own, rounds to the nearest centroid of normal values, and
/// sends the scale with which its frame is unbiased along the vector.
///
/// The least variance at 1 to 4 bits where each worker's frame is decoded alone: 1 / (1 - D) - 1 with D the error of rounding
/// a normal value to its centroids: 0.571, 0.133, 0.0358, 0.0096. Errors of workers are independent, so that of a mean over
/// allgather is n times smaller. Frames are decoded one by one, with a rotation each: no shared rotation, no addition of
/// codes. On scatter-reduce-allgather, ring and tree a worker that adds encodes the sum again.
///
/// Unbiased for uniformly random rotations; for Hadamard transforms with random signs nearly: docs/theory.md has the measured
/// bias. It is counted as biased, so plans have no bound. operators::rotated_optimal is exactly unbiased, with more variance.
///
/// Works in every call, in vector_codec and, on Kokkos::Cuda, on streams and in stream_vector_codec, with the same bits; over
/// every schedule but native. Not with error_feedback, as its scale is no largest magnitude. @n
/// Wire: the bits and 32 bits per block. Memory: two vectors of float. Time: a rotation for each frame that is encoded or
/// decoded.
/// @code
/// gq::allreduce_mean mean{workers, gq::operators::eden<2>(), gq::schedule::allgather{}, {.seed = 42}};
/// @endcode
/// @determinism the same bits on every worker and instruction set
/// @source Vargaftik et al. 2022 (EDEN); the rotation of a block that is no power of two is ours
class eden : public detail::wrapped_operator {
 public:
  /// @param op  quantizer{norm::local<2>{block}, levels::symmetric of the centroids, rounding::nearest{}, wire::packed<bits>{}},
  ///            as operators::eden makes it
  /// @throws configuration_error for any other operator, and for blocks that are no power of two from 2 to 2^20
  template <class Operator>
  requires(!std::is_same_v<Operator, eden>) explicit eden(Operator const& op)
      : wrapped_operator(op, facts_in(detail::facts_of(op)), wrap, wrap_on_stream<Operator>()) {}

 private:
  static detail::operator_facts facts_in(detail::operator_facts f) {
    int const bits = f.wire_bits;
    bool const packed = f.has_codes() && !f.integer_wire && f.most_bytes == nullptr && !f.wire_bytes &&
                        bits >= 1 && bits <= 4;
    if (!packed || !f.local || f.q != 2 || f.q.rounds_up() || f.user_norm != nullptr || f.unbiased ||
        f.plain_tail || !f.chain.empty() || f.own_rotation || f.reduce == detail::request::user ||
        f.levels != levels_hash(bits))
      throw configuration_error(
          "globalq: eden: " + f.name +
          " is not the quantizer of EDEN; use operators::eden<bits>(block) with 1 to 4 bits");
    if (!std::has_single_bit(f.bucket) || f.bucket < 2 || f.bucket > std::uint64_t{1} << 20)
      throw configuration_error(detail::joined({"globalq: eden: ", f.name, ": blocks of ", f.bucket,
                                                " values; use a power of two from 2 to 2^20"}));
    f.own_rotation = true;
    f.name += ", eden";
    return f;
  }
  static std::uint64_t levels_hash(int bits) {
    detail::operator_facts f;
    detail::take_values(f, detail::levels_of_eden(bits));
    return f.levels;
  }
  static std::unique_ptr<detail::operator_codec> wrap(std::unique_ptr<detail::operator_codec> inner,
                                                      detail::operator_facts const& f,
                                                      detail::resolution const&, std::size_t,
                                                      kernel::host_executor const& on) {
    return std::make_unique<detail::eden_codec>(std::move(inner), f,
                                                detail::normal_centroids(f.wire_bits).back(), on);
  }
  /// A template, so that kernels are compiled only where it is used.
  template <class Operator>
  static stream_wrapper wrap_on_stream() {
#if defined(KOKKOS_ENABLE_CUDA)
    return [](std::unique_ptr<detail::operator_codec> inner, detail::operator_facts const& f,
              detail::resolution const&, std::size_t,
              stream_executor const& on) -> std::unique_ptr<detail::operator_codec> {
      return std::make_unique<detail::stream_eden_codec<Kokkos::Cuda>>(
          std::move(inner), f, detail::normal_centroids(f.wire_bits).back(), on);
    };
#else
    return nullptr;
#endif
  }
};

}  // namespace GLOBALQ_ABI
