// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief quantizer: what users may pass as a vector: a span, a container, or a Kokkos::View.

#include "../core/dtype.hpp"
#include "../core/error.hpp"

#include <ranges>
#include <string>

namespace globalq {

namespace detail {

/// A contiguous vector in host memory: span, vector, array, or a Kokkos::View of any rank.
template <class V>
concept KokkosView = Kokkos::is_view_v<std::remove_cvref_t<V>>;

template <class V>
auto data_of(V& v) {
  if constexpr (KokkosView<V>) {
    using view = std::remove_cvref_t<V>;
    static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename view::memory_space>::accessible,
                  "globalq: this view lies in device memory, which the transports of this version do not "
                  "reach. Copy it to a "
                  "host mirror first");
    if (!v.span_is_contiguous())
      throw configuration_error("globalq: the view is strided (" + std::to_string(v.size()) +
                                " values over a span of " + std::to_string(v.span()) +
                                "); pass a contiguous view or copy it to one");
    return v.data();
  } else {
    return std::ranges::data(v);
  }
}
template <class V>
std::uint64_t size_of_vector(V const& v) {
  if constexpr (KokkosView<V>) {
    return v.size();
  } else {
    return static_cast<std::uint64_t>(std::ranges::size(v));
  }
}
template <class V>
using value_of = std::remove_cvref_t<decltype(*data_of(std::declval<V&>()))>;

}  // namespace detail

/// A vector that globalq can average: contiguous, of a known type.
template <class V>
concept Vector = (detail::KokkosView<V> ||
                  (std::ranges::contiguous_range<V> && std::ranges::sized_range<V>)) &&
                 Scalar<detail::value_of<std::remove_reference_t<V>>>;

}  // namespace globalq
