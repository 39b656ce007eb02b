// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator that wraps another one, and whose frames contain float32 numbers in addition.

#include "../any_quantizer.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// @tparam Codec  in host memory: Codec(codec of the operator, facts, executor); and `stream_refusal`, the error text
///                on a stream
template <class Codec>
class paired_operator : public any_quantizer {
 public:
  using any_quantizer::make_codec;
  /// @throws configuration_error always, because streams are not supported
  template <class Space>
  std::unique_ptr<operator_codec> make_codec(operator_facts const& f, resolution const&,
                                             kernel::stream_executor<Space> const&) const {
    refuse_stream(f);
  }

 protected:
  /// @param facts  of the combined operator
  template <class Operator>
  paired_operator(Operator const& op, operator_facts facts)
      : any_quantizer(std::shared_ptr<parts const>(std::make_shared<model<Operator>>(op, std::move(facts)))) {
  }

 private:
  [[noreturn]] static void refuse_stream(operator_facts const& f) {
    throw configuration_error("globalq: " + f.name + ": " + Codec::stream_refusal);
  }

  template <class Operator>
  struct model : parts {
    model(Operator const& o, operator_facts both) : op(o) {
      this->facts = std::move(both);
      this->on_host = [](parts const& p, operator_facts const& f, resolution const& r,
                         kernel::host_executor const& on) -> std::unique_ptr<operator_codec> {
        return std::make_unique<Codec>(detail::make_codec(static_cast<model const&>(p).op, f, r, on), f, on);
      };
#if defined(KOKKOS_ENABLE_CUDA)
      this->on_stream = [](parts const&, operator_facts const& f, resolution const&,
                           stream_executor const&) -> std::unique_ptr<operator_codec> { refuse_stream(f); };
#endif
    }
    Operator op;
  };
};

}  // namespace GLOBALQ_ABI::detail
