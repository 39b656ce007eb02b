// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator whose codec wraps that of another one.

#include "../any_quantizer.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// An operator that wraps the codec of another one in host memory.
class wrapped_operator : public any_quantizer {
 public:
  using any_quantizer::make_codec;
  /// @throws configuration_error always, because streams are not supported
  template <class Space>
  std::unique_ptr<operator_codec> make_codec(operator_facts const& f, resolution const&,
                                             kernel::stream_executor<Space> const&) const {
    refuse_stream(f);
  }

 protected:
  /// Wraps the codec of the operator in host memory.
  /// @param inner_stages  stages of the operator, the last ones of those in the facts
  using wrapper = std::unique_ptr<operator_codec> (*)(std::unique_ptr<operator_codec> inner,
                                                      operator_facts const&, std::size_t inner_stages,
                                                      kernel::host_executor const&);

  /// @param facts  of the wrapped operator
  template <class Operator>
  wrapped_operator(Operator const& op, operator_facts facts, wrapper wrap)
      : any_quantizer(
            std::shared_ptr<parts const>(std::make_shared<model<Operator>>(op, std::move(facts), wrap))) {}

 private:
  [[noreturn]] static void refuse_stream(operator_facts const& f) {
    if (f.plain_tail && f.chain.empty())
      throw configuration_error("globalq: " + f.name +
                                ": a float32 tail is supported only in host memory; on a stream remove "
                                "float32_tail, so that a short last bucket has its own scale, or average in "
                                "host memory");
    throw configuration_error("globalq: " + f.name + ": " + f.chain.front()->name() +
                              " is supported only in host memory; on a stream map the values in your own "
                              "kernel before the call, or average in host memory");
  }

  template <class Operator>
  struct model : parts {
    model(Operator const& o, operator_facts all, wrapper w)
        : op(o), inner_stages(facts_of(o).chain.size()), wrap(w) {
      this->facts = std::move(all);
      this->on_host = [](parts const& p, operator_facts const& f, resolution const& r,
                         kernel::host_executor const& on) {
        model const& of = static_cast<model const&>(p);
        return of.wrap(detail::make_codec(of.op, f, r, on), f, of.inner_stages, on);
      };
#if defined(KOKKOS_ENABLE_CUDA)
      this->on_stream = [](parts const&, operator_facts const& f, resolution const&,
                           stream_executor const&) -> std::unique_ptr<operator_codec> { refuse_stream(f); };
#endif
    }
    Operator op;
    std::size_t inner_stages;
    wrapper wrap;
  };
};

}  // namespace GLOBALQ_ABI::detail
