// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: any operator behind one type, on the host and on the streams of a test.
///
/// A function that takes it is compiled once, not for each operator.

#include "tests/support/space.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/detail/make_stream_codec.hpp>

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

  std::function<codec(globalq::detail::operator_facts const&, globalq::detail::resolution const&,
                      executor const&)>
      make_;
};
#endif

}  // namespace support
