// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator whose sums travel by another one.

#include "detail/sums_codec.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/stream_sums_codec.hpp"
#endif
#include "detail/wrapped_operator.hpp"

#include <functional>

namespace GLOBALQ_ABI {

/// @brief On scatter-reduce-allgather, own values travel by one operator and the means of segments by another.
///
/// The owner of a segment encodes its mean once, for all workers, and that error is not averaged: more bits there cost half
/// of the bytes and remove most of the variance. With error feedback at 2 bits, 4 bits for the second half make up most of
/// what the second rounding loses (docs/design-measurements.md, dm_feedback).
///
/// Works on schedule sra, for vectors and groups, inside error_feedback, rotated and float32_tail; on streams of Kokkos::Cuda
/// with the same bits. Other schedules and calls send no such sums and refuse it.
///
/// Wire: the first operator's for own values, the second one's for means. @n
/// Bound: theta = (omega_1 + omega_2 (n + omega_1)) / n with omega_1 of own values and omega_2 of means.
/// @code
/// gq::second_half const op{gq::operators::cgx<2>(), gq::operators::cgx<4>()};
/// gq::allreduce_mean mean{workers, op, gq::schedule::sra{}, {.seed = 42}};
/// @endcode
/// @determinism as the operators'; both are compared in the fingerprint
/// @source second compression of the server: Tang et al. 2019 (DoubleSqueeze), Algorithm 1
class second_half : public detail::wrapped_operator {
 public:
  /// @param op       encodes own values: a quantizer or any_quantizer without stages
  /// @param of_sums  encodes means: the same, with local norms
  /// @throws configuration_error for operators with stages, or frames whose length varies; and for @p of_sums with a norm of
  ///         all workers, of a fixed size or of a user
  template <class Operator, class Sums>
  second_half(Operator const& op, Sums const& of_sums)
      : wrapped_operator(op, facts_in(detail::facts_of(op), of_sums), wrap, wrap_on_stream<Operator>()) {}

 private:
  struct held_operator : detail::operator_of_sums {
#if defined(KOKKOS_ENABLE_CUDA)
    std::function<std::unique_ptr<detail::operator_codec>(stream_executor const&)> make_on_stream;
#endif
  };

  template <class Sums>
  static detail::operator_facts facts_in(detail::operator_facts f, Sums const& of_sums) {
    auto held = std::make_shared<held_operator>();
    held->facts = detail::facts_of(of_sums);
    expect(f, held->facts);
    held->alone = detail::resolve(held->facts, {"second_half"}, 1);
    if (!held->alone.fits()) throw configuration_error(held->alone.refusal);
    held->own_unbiased = f.unbiased;
    auto const make = [of_sums, facts = held->facts, r = held->alone](auto const& on) {
      return detail::make_codec(of_sums, facts, r, on);
    };
    held->make = make;
#if defined(KOKKOS_ENABLE_CUDA)
    held->make_on_stream = make;
#endif
    f.name += ", sums by " + held->facts.name;
    f.unbiased = f.unbiased && held->facts.unbiased;
    f.of_sums = std::move(held);
    return f;
  }
  static void expect(detail::operator_facts const& own, detail::operator_facts const& sums) {
    auto const refuse = [&](std::string const& why) {
      throw configuration_error("globalq: second_half: " + own.name + ", sums by " + sums.name + ": " + why);
    };
    for (auto const* f : {&own, &sums}) {
      if (!f->chain.empty() || f->plain_tail || f->of_sums != nullptr || f->own_rotation)
        refuse("an operator has stages or a tail; put them around it, as in rotated{second_half{..}, 1024}");
      if (!f->has_codes() || f->most_bytes != nullptr)
        refuse("an operator sends floats or frames whose length varies; use wire packed or int8");
    }
    if (!sums.local || sums.user_norm != nullptr)
      refuse("means have scales of their own; use norm::local for the second operator");
  }
  static std::unique_ptr<detail::operator_codec> wrap(std::unique_ptr<detail::operator_codec> own,
                                                      detail::operator_facts const& f,
                                                      detail::resolution const&, std::size_t,
                                                      kernel::host_executor const& on) {
    return std::make_unique<detail::sums_codec>(std::move(own), f.of_sums->make(on), f.of_sums->facts, on);
  }
  /// A template, so that kernels are compiled only where it is used.
  template <class Operator>
  static stream_wrapper wrap_on_stream() {
#if defined(KOKKOS_ENABLE_CUDA)
    return [](std::unique_ptr<detail::operator_codec> own, detail::operator_facts const& f,
              detail::resolution const&, std::size_t,
              stream_executor const& on) -> std::unique_ptr<detail::operator_codec> {
      return std::make_unique<detail::stream_sums_codec<Kokkos::Cuda>>(
          std::move(own), static_cast<held_operator const&>(*f.of_sums).make_on_stream(on), f.of_sums->facts,
          on);
    };
#else
    return nullptr;
#endif
  }
};

}  // namespace GLOBALQ_ABI
