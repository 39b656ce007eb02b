// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: templates by which a program controls where kernels are compiled.

#include "../kernel/executor.hpp"
#include "built_in.hpp"
#include "detail/composition.hpp"
#if !defined(GLOBALQ_COMPILED)
#include "detail/composed_codec.hpp"
#endif

#include <memory>

namespace GLOBALQ_ABI {

/// @brief The types of levels and rounding for which kernels are compiled. All tables share kernels; so do
///        levels::uniform<S> for all S, levels::exponential<S> for all S, and all roundings that draw one word per
///        bucket, or none.
template <class Levels>
using kernel_levels = detail::kernel_levels<Levels>;
template <class Rounding>
using kernel_rounding = detail::kernel_rounding<Rounding>;

/// @brief The kernels of a composition in host memory; declare it as `extern template` to compile them in one source.
///
/// Every source that uses a quantizer compiles its kernels. To compile them once, declare
/// `extern template struct globalq::host_kernels<Levels, Rounding, Wire>;` in a header, and repeat it without `extern`
/// in one source; see docs/composing.md. make() is not inline for this purpose. Kernels do not depend on norm and
/// reduce. All sources must be compiled with the same flags.
/// @tparam Levels,Rounding  kernel_levels and kernel_rounding of the quantizer's policies
/// @tparam Wire             that of the quantizer; wire::integer<T> for wire::elias<T>, huffman<T> and sparse<T>
template <class Levels, class Rounding, WireFormat Wire>
struct host_kernels {
  static_assert(
      std::is_same_v<Levels, kernel_levels<Levels>> && std::is_same_v<Rounding, kernel_rounding<Rounding>>,
      "globalq: these levels or this rounding share their kernels with others; use "
      "host_kernels<kernel_levels<Levels>, kernel_rounding<Rounding>, Wire>; see docs/composing.md");

  static std::unique_ptr<detail::operator_codec> make(Levels const& levels, Rounding const& rounding,
                                                      Wire const& wire, detail::operator_facts const& facts,
                                                      method how, kernel::host_executor const& on);
};

template <class Levels, class Rounding, WireFormat Wire>
std::unique_ptr<detail::operator_codec> host_kernels<Levels, Rounding, Wire>::make(
    Levels const& levels, Rounding const& rounding, Wire const& wire, detail::operator_facts const& facts,
    method how, kernel::host_executor const& on) {
#if defined(GLOBALQ_COMPILED)
  constexpr auto place = detail::place_of<Levels, Rounding, Wire>;
  if constexpr (place.built_in())
    return detail::make_built_in(place, &levels, &rounding, &wire, facts, how, on);
  else
#endif
  {
    constexpr bool has_loops = requires { compose(levels, rounding, wire, facts, how, on); };
    static_assert(
        has_loops,
        "globalq: the compiled library has no loops for levels, a rounding or a wire format of your own; "
        "include globalq/policies.hpp");
    if constexpr (has_loops) return compose(levels, rounding, wire, facts, how, on);
  }
}

}  // namespace GLOBALQ_ABI
