// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: error feedback: calls add to a vector what earlier frames of it left out.

#include "detail/feedback_codec.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/stream_feedback_codec.hpp"
#endif
#include "detail/wrapped_operator.hpp"
#include "stage.hpp"

#include <charconv>
#include <cstring>
#include <string>

namespace GLOBALQ_ABI {

/// @brief Adds to each vector what the frames of earlier calls left out, so that few bits lose nothing in the long run.
///
/// A worker encodes p = x + decay e, and keeps e = p - Q(p), Q(p) being what its frame contains. With decay 1 the sum of all
/// means is therefore the sum of all vectors minus the last residuals, but for the rounding of means to their type, and a
/// biased rounding converges where it would stall. With `average` the kept residual is (1 - average) e + average (p - Q(p));
/// with `bits` = 8 it takes a quarter of the memory.
///
/// On scatter-reduce-allgather the owner of a segment also rounds the sum; what that leaves out is a second residual, which
/// the owner adds to its own values of the segment. Without it two bits fail there.
///
/// Use rounding::nearest: the residual repairs its bias, and nothing else has as little error. Where residuals would grow, the
/// call is refused: a stochastic rounding with one level (2 bits), or as many workers as twice the levels where sums are
/// encoded under a norm of all workers.
///
/// Works over allgather, scatter-reduce-allgather, where codes are added as integers (native, ring, tree), between nodes
/// (hierarchical with sums in nodes), in reduce_scatter_mean, all_gather and groups; on streams of Kokkos::Cuda with the same
/// bits, around operators that work there. Refused where a worker would round sums of others again (ring and tree with local
/// norms, packed codes or exponential levels), for floats, norm::fixed and norms other than the largest magnitude, whose
/// residuals may grow without bound.
///
/// Residuals belong to the call object and the number of a vector in it: average different vectors by different objects, or
/// as a group. allreduce_mean::save() and load() store them. A call that throws, or whose mean is NaN, leaves them as they
/// were (of reduce_scatter_mean: on the worker that owns the shard). Where the residual is large compared with the values that
/// follow, as after a loss of scale, it dominates their bucket: use reset. On a stream kernels
/// decide about all this, so a graph keeps residuals in each replay. @n
/// Wire: the operator's. Memory: three vectors of float (float64 vectors: double), with 8 bits one and a half; with further
/// stages one more. Time: each frame is decoded by the worker that made it.
/// @code
/// auto const two_bits = gq::operators::cgx<2, gq::rounding::nearest>();
/// gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}, {.seed = 42}};
/// @endcode
/// @determinism as the operator's; options are compared in the fingerprint, residuals are each worker's own
/// @source Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019 (EF-SGD), Algorithm 2; second residual: Tang et al. 2019
///         (DoubleSqueeze), Algorithm 1; average, 8 bits and reset: Xie et al. 2024 (LoCo)
class error_feedback : public detail::wrapped_operator {
 public:
  /// @param op  a quantizer, any_quantizer, or these with stages or float32_tail
  /// @throws configuration_error for options out of range, or an operator that has error feedback already
  template <class Operator>
  requires(!std::is_same_v<Operator, error_feedback>) explicit error_feedback(
      Operator const& op, feedback_options const& options = {})
      : wrapped_operator(op, facts_in(detail::facts_of(op), options), wrap, wrap_on_stream<Operator>()) {}

 private:
  class stage_of final : public stage {
   public:
    explicit stage_of(feedback_options const& o) : options_(o) {}
    std::string name() const override {
      std::string words = "error feedback";
      if (options_.decay != 1) words += ", decay " + digits(options_.decay);
      if (options_.average != 1) words += ", average " + digits(options_.average);
      if (options_.bits != 32) words += ", 8 bits";
      if (options_.reset != 0) words += detail::joined({", reset every ", options_.reset});
      return words;
    }
    std::uint64_t grain() const override { return random::tile_values; }
    feedback_options const* feedback() const override { return &options_; }
    /// A call adds residuals before it applies stages.
    void enter(stage_call const&, const_vector x, segment part, mutable_vector to,
               mutable_vector) const override {
      if (part.empty() || x.data == to.data) return;
      std::size_t const size = size_of(to.type);
      std::memcpy(static_cast<std::byte*>(to.data) + part.first * size,
                  static_cast<std::byte const*>(x.data) + part.first * size, part.count * size);
    }
    bool leave(stage_call const&, mutable_vector, const_vector, segment) const override { return false; }

   private:
    static std::string digits(float x) {
      char text[16];
      return {text, std::to_chars(text, text + sizeof text, x).ptr};
    }
    feedback_options options_;
  };

  static detail::operator_facts facts_in(detail::operator_facts f, feedback_options const& o) {
    auto const refuse = [&](std::string const& why) {
      throw configuration_error("globalq: error_feedback: " + f.name + ": " + why);
    };
    if (detail::feedback_of(f.chain) != nullptr) refuse("it has error feedback already; remove one");
    if (!(o.decay > 0 && o.decay <= 1)) refuse("decay is not above 0 and at most 1");
    if (!(o.average > 0 && o.average <= 1)) refuse("average is not above 0 and at most 1");
    if (o.bits != 32 && o.bits != 8) refuse(detail::joined({o.bits, " bits of a residual; use 32 or 8"}));
    auto map = std::make_shared<stage_of const>(o);
    f.name += ", " + map->name();
    f.chain.insert(f.chain.begin(), std::move(map));
    return f;
  }
  static std::unique_ptr<detail::operator_codec> wrap(std::unique_ptr<detail::operator_codec> inner,
                                                      detail::operator_facts const& f,
                                                      detail::resolution const& r, std::size_t,
                                                      kernel::host_executor const& on) {
    return std::make_unique<detail::feedback_codec>(std::move(inner), f, r.how, on);
  }
  /// A template, so that kernels are compiled only where it is used.
  template <class Operator>
  static stream_wrapper wrap_on_stream() {
#if defined(KOKKOS_ENABLE_CUDA)
    return [](std::unique_ptr<detail::operator_codec> inner, detail::operator_facts const& f,
              detail::resolution const& r, std::size_t,
              stream_executor const& on) -> std::unique_ptr<detail::operator_codec> {
      return std::make_unique<detail::stream_feedback_codec<Kokkos::Cuda>>(std::move(inner), f, r.how, on);
    };
#else
    return nullptr;
#endif
  }
};

}  // namespace GLOBALQ_ABI
