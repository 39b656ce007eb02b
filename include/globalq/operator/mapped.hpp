// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator with a stage before it.

#include "detail/staged_codec.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/stream_staged_codec.hpp"
#endif
#include "detail/wrapped_operator.hpp"
#include "stage.hpp"

namespace GLOBALQ_ABI {

/// @brief Applies a stage to vectors before an operator, and undoes it after the operator's mean.
///
/// Works in every call in host memory: allreduce_mean over ring, tree, sra, allgather and hierarchical,
/// reduce_scatter_mean, all_gather, groups and layers; on a stream of Kokkos::Cuda if the stage is also a
/// stream_stage<Kokkos::Cuda>, has no side values and precedes codes under a measured norm. With side values, vector_codec and schedule native refuse it. A
/// plan's theta refers to the squares of mapped values.
/// @code
/// gq::allreduce_mean mean{workers, gq::mapped{gq::operators::qsgd<4>(128), std::make_shared<my_stage const>()},
///                         gq::schedule::allgather{}};
/// @endcode
/// @determinism as the operator's; names of stages are compared in the fingerprint
class mapped : public detail::wrapped_operator {
 public:
  /// @param op   a quantizer or any_quantizer; its stages follow this one
  /// @param map  shared by all copies and calls
  /// @throws configuration_error if it is null
  template <class Operator>
  mapped(Operator const& op, std::shared_ptr<stage const> map)
      : wrapped_operator(op, facts_in(detail::facts_of(op), std::move(map)), wrap, wrap_on_stream) {}

 private:
  static detail::operator_facts facts_in(detail::operator_facts f, std::shared_ptr<stage const> map) {
    if (map == nullptr)
      throw configuration_error("globalq: mapped: " + f.name +
                                ": the stage is null; pass std::make_shared of a class derived from stage");
    if (detail::feedback_of(f.chain) != nullptr)
      throw configuration_error("globalq: " + f.name + ": " + map->name() +
                                " before error feedback would map its residuals anew in each call; put "
                                "error_feedback around it: error_feedback{rotated{op, block}}");
    f.name += ", " + map->name();
    f.chain.insert(f.chain.begin(), std::move(map));
    return f;
  }
  static std::unique_ptr<detail::operator_codec> wrap(std::unique_ptr<detail::operator_codec> inner,
                                                      detail::operator_facts const& f,
                                                      detail::resolution const&, std::size_t inner_stages,
                                                      kernel::host_executor const& on) {
    return std::make_unique<detail::staged_codec>(std::move(inner), f, f.chain.size() - inner_stages - 1, on);
  }
#if defined(KOKKOS_ENABLE_CUDA)
  static std::unique_ptr<detail::operator_codec> wrap_on_stream(std::unique_ptr<detail::operator_codec> inner,
                                                                detail::operator_facts const& f,
                                                                detail::resolution const&,
                                                                std::size_t inner_stages,
                                                                stream_executor const& on) {
    return std::make_unique<detail::stream_staged_codec<Kokkos::Cuda>>(std::move(inner), f,
                                                                       f.chain.size() - inner_stages - 1, on);
  }
#else
  static constexpr std::nullptr_t wrap_on_stream = nullptr;
#endif
};

}  // namespace GLOBALQ_ABI
