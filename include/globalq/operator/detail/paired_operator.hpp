// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator made of an operator, whose frames hold float32 numbers beside those of the other one.

#include "../any_quantizer.hpp"

#include <utility>

namespace globalq::detail {

/// @tparam Codec  in host memory: Codec(codec of the operator, facts, executor), and `stream_refusal`: why there is none on a
///                stream, with the remedy
template <class Operator, class Codec>
class paired_operator {
 public:
  std::uint64_t levels_hash() const { return detail::levels_hash(op_); }
  std::vector<double> magnitudes() const { return detail::magnitudes(op_); }

  /// @throws configuration_error on a stream
  template <class Executor>
  std::unique_ptr<operator_codec> make_codec(operator_facts const& f, resolution const& r,
                                             Executor const& on) const {
    if constexpr (std::is_same_v<Executor, kernel::host_executor>)
      return std::make_unique<Codec>(detail::make_codec(op_, f, r, on), f, on);
    else
      throw configuration_error("globalq: " + f.name + ": " + Codec::stream_refusal);
  }

 protected:
  explicit paired_operator(Operator op) : op_(std::move(op)) {}

  Operator op_;
};

}  // namespace globalq::detail
