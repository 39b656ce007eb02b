// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: any operator behind one type, on the host and on the streams of a test.
///
/// A function that takes it is compiled once, not for each operator.

#include "tests/support/space.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/detail/make_stream_codec.hpp>
#include <globalq/operator/detail/stream_eden_codec.hpp>
#include <globalq/operator/detail/stream_feedback_codec.hpp>
#include <globalq/operator/detail/stream_rotation.hpp>
#include <globalq/operator/detail/stream_staged_codec.hpp>
#include <globalq/operator/detail/stream_sums_codec.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/second_half.hpp>

#include <functional>

namespace support {

#if defined(KOKKOS_ENABLE_CUDA)
using any_operator = globalq::any_quantizer;
#else
/// any_quantizer, which knows no streams but those of Kokkos::Cuda, and the codec on a stream of Kokkos::Serial.
class any_operator : public globalq::any_quantizer {
  using executor = globalq::kernel::stream_executor<space>;
  using codec = std::unique_ptr<globalq::detail::operator_codec>;

 public:
  template <class Operator>
  requires(!std::is_base_of_v<globalq::any_quantizer, Operator>) any_operator(Operator const& op)
      : any_quantizer(op), make_(stream_codec<Operator>{op}) {}

  /// mapped{op, map}
  template <class Operator>
  static any_operator mapped(Operator const& op, std::shared_ptr<globalq::stage const> map) {
    return {globalq::mapped{op, std::move(map)},
            [op](auto const& facts, auto const& r, executor const& on) -> codec {
              std::size_t const inner_stages = globalq::detail::facts_of(op).chain.size();
              return std::make_unique<globalq::detail::stream_staged_codec<space>>(
                  globalq::detail::make_codec(op, facts, r, on), facts, facts.chain.size() - inner_stages - 1,
                  on);
            }};
  }

  /// error_feedback{op, options}
  template <class Operator>
  static any_operator with_feedback(Operator const& op, globalq::feedback_options const& options) {
    return {globalq::error_feedback{op, options},
            [op](auto const& facts, auto const& r, executor const& on) -> codec {
              return std::make_unique<globalq::detail::stream_feedback_codec<space>>(
                  globalq::detail::make_codec(op, facts, r, on), facts, r.how, on);
            }};
  }

  /// second_half{op, of_sums}
  template <class Operator, class Sums>
  static any_operator second_half(Operator const& op, Sums const& of_sums) {
    return {globalq::second_half{op, of_sums},
            [op, of_sums](auto const& facts, auto const& r, executor const& on) -> codec {
              globalq::detail::operator_of_sums const& sums = *facts.of_sums;
              return std::make_unique<globalq::detail::stream_sums_codec<space>>(
                  globalq::detail::make_codec(op, facts, r, on),
                  globalq::detail::make_codec(of_sums, sums.facts, sums.alone, on), sums.facts, on);
            }};
  }

  /// eden{op}
  template <class Operator>
  static any_operator eden(Operator const& op) {
    return {globalq::eden{op}, [op](auto const& facts, auto const& r, executor const& on) -> codec {
              return std::make_unique<globalq::detail::stream_eden_codec<space>>(
                  globalq::detail::make_codec(op, facts, r, on), facts,
                  globalq::detail::normal_centroids(facts.wire_bits).back(), on);
            }};
  }

  using any_quantizer::make_codec;
  codec make_codec(globalq::detail::operator_facts const& facts, globalq::detail::resolution const& r,
                   executor const& on) const {
    return make_(facts, r, on);
  }

 private:
  template <class Operator>
  struct stream_codec {
    Operator op;
    codec operator()(globalq::detail::operator_facts const& facts, globalq::detail::resolution const& r,
                     executor const& on) const {
      return globalq::detail::make_codec(op, facts, r, on);
    }
  };

  using maker = std::function<codec(globalq::detail::operator_facts const&,
                                    globalq::detail::resolution const&, executor const&)>;
  any_operator(globalq::any_quantizer const& whole, maker make)
      : any_quantizer(whole), make_(std::move(make)) {}

  maker make_;
};
#endif

/// mapped{op, map} on the host and on the streams of a test.
template <class Operator>
any_operator mapped(Operator const& op, std::shared_ptr<globalq::stage const> map) {
#if defined(KOKKOS_ENABLE_CUDA)
  return globalq::mapped{op, std::move(map)};
#else
  return any_operator::mapped(op, std::move(map));
#endif
}
/// error_feedback{op, options} on both.
template <class Operator>
any_operator with_feedback(Operator const& op, globalq::feedback_options const& options = {}) {
#if defined(KOKKOS_ENABLE_CUDA)
  return globalq::error_feedback{op, options};
#else
  return any_operator::with_feedback(op, options);
#endif
}
/// second_half{op, of_sums} on both.
template <class Operator, class Sums>
any_operator second_half(Operator const& op, Sums const& of_sums) {
#if defined(KOKKOS_ENABLE_CUDA)
  return globalq::second_half{op, of_sums};
#else
  return any_operator::second_half(op, of_sums);
#endif
}
/// operators::eden on the host and on the streams of a test.
template <int Bits>
any_operator eden(std::uint64_t block) {
#if defined(KOKKOS_ENABLE_CUDA)
  return globalq::operators::eden<Bits>(block);
#else
  return any_operator::eden(globalq::quantizer{globalq::norm::local<2>{block},
                                               globalq::detail::levels_of_eden(Bits),
                                               globalq::rounding::nearest{}, globalq::wire::packed<Bits>{}});
#endif
}
template <class Operator>
any_operator rotated(Operator const& op, std::uint64_t block) {
  return mapped(op, std::make_shared<globalq::detail::rotation_on<space>>(block));
}

}  // namespace support
