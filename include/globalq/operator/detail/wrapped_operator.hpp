// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator whose codec wraps that of another one.

#include "../any_quantizer.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// An operator that wraps the codec of another one.
class wrapped_operator : public any_quantizer {
 public:
  using any_quantizer::make_codec;
  /// @throws configuration_error always: any_quantizer knows streams of Kokkos::Cuda only
  template <class Space>
  std::unique_ptr<operator_codec> make_codec(operator_facts const&, resolution const&,
                                             kernel::stream_executor<Space> const&) const {
    refuse_stream(this->facts());
  }

 protected:
  /// Wraps the codec of the operator in host memory.
  /// @param inner_stages  stages of the operator, the last ones of those in the facts
  using wrapper = std::unique_ptr<operator_codec> (*)(std::unique_ptr<operator_codec> inner,
                                                      operator_facts const&, resolution const&,
                                                      std::size_t inner_stages, kernel::host_executor const&);

#if defined(KOKKOS_ENABLE_CUDA)
  /// The same on a stream; null: that is refused.
  using stream_wrapper = std::unique_ptr<operator_codec> (*)(std::unique_ptr<operator_codec> inner,
                                                             operator_facts const&, resolution const&,
                                                             std::size_t inner_stages,
                                                             stream_executor const&);
#else
  using stream_wrapper = std::nullptr_t;
#endif

  /// @param facts  of the wrapped operator
  template <class Operator>
  wrapped_operator(Operator const& op, operator_facts facts, wrapper wrap, stream_wrapper on_stream = nullptr)
      : any_quantizer(std::shared_ptr<parts const>(
            std::make_shared<model<Operator>>(op, std::move(facts), wrap, on_stream))) {}

 private:
  [[noreturn]] static void refuse_stream(operator_facts const& f) {
    if (f.plain_tail && f.chain.empty())
      throw configuration_error("globalq: " + f.name +
                                ": a float32 tail is supported only in host memory; on a stream remove "
                                "float32_tail, so that a short last bucket has its own scale, or average in "
                                "host memory");
    if (f.of_sums != nullptr)
      throw configuration_error(
          "globalq: " + f.name +
          ": another operator for sums is not supported on this stream; use a stream of Kokkos::Cuda, remove "
          "second_half, or average in host memory");
    if (f.chain.empty())
      throw configuration_error(
          "globalq: " + f.name +
          ": rotations of single workers are not supported on this stream; use a stream of Kokkos::Cuda, "
          "operators::rotated_optimal with its own type, or average in host memory");
    throw configuration_error(
        "globalq: " + f.name + ": " + f.chain.front()->name() +
        " is not supported on this stream; use a stream of Kokkos::Cuda if the stage "
        "has a form for it, map the values in your own kernel before the call, or average in "
        "host memory");
  }

  template <class Operator>
  struct model : parts {
    model(Operator const& o, operator_facts all, wrapper w, stream_wrapper s)
        : op(o), inner_stages(facts_of(o).chain.size()), wrap(w), wrap_on_stream(s) {
      this->facts = std::move(all);
      this->on_host = [](parts const& p, operator_facts const& f, resolution const& r,
                         kernel::host_executor const& on) {
        model const& of = static_cast<model const&>(p);
        return of.wrap(detail::make_codec(of.op, f, r, on), f, r, of.inner_stages, on);
      };
#if defined(KOKKOS_ENABLE_CUDA)
      this->on_stream = [](parts const& p, operator_facts const& f, resolution const& r,
                           stream_executor const& on) -> std::unique_ptr<operator_codec> {
        model const& of = static_cast<model const&>(p);
        if (of.wrap_on_stream == nullptr) refuse_stream(of.facts);
        return of.wrap_on_stream(detail::make_codec(of.op, f, r, on), f, r, of.inner_stages, on);
      };
#endif
    }
    Operator op;
    std::size_t inner_stages;
    wrapper wrap;
    stream_wrapper wrap_on_stream;
  };
};

}  // namespace GLOBALQ_ABI::detail
