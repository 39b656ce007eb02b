// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: what users may pass as a vector: a span, a container, or a Kokkos::View.

#include "dtype.hpp"
#include "error.hpp"

#include <Kokkos_Core.hpp>
#include <ranges>
#include <string>
#include <type_traits>

namespace GLOBALQ_ABI {

namespace detail {

template <class V>
concept KokkosView = Kokkos::is_view_v<std::remove_cvref_t<V>>;

/// Whether kernels of a space reach a view's values.
template <class View, class Space>
inline constexpr bool reaches =
    Kokkos::SpaceAccessibility<Space, typename std::remove_cvref_t<View>::memory_space>::accessible;

/// Where the values of a span, vector, array, or Kokkos::View of any rank begin.
/// @tparam Space  where they are read
template <class Space = Kokkos::HostSpace, class V>
auto data_of(V& v) {
  if constexpr (KokkosView<V>) {
    if constexpr (std::is_same_v<Space, Kokkos::HostSpace>)
      static_assert(reaches<V, Space>,
                    "globalq: this view lies in device memory, which this transport does not reach. Use "
                    "transport::nccl, or wrap the transport: transport::staged{workers, Kokkos::Cuda{}}");
    else
      static_assert(
          reaches<V, Space>,
          "globalq: this view lies in memory that the transport's execution space does not reach. Copy it "
          "to a view of that space, or use a transport of host memory");
    if (!v.span_is_contiguous())
      throw configuration_error("globalq: the view is strided (" + std::to_string(v.size()) +
                                " values over a span of " + std::to_string(v.span()) +
                                "); pass a contiguous view or copy it to one");
    return v.data();
  } else {
    static_assert(std::is_same_v<Space, Kokkos::HostSpace>,
                  "globalq: this transport moves memory of a device, and the vector is a host range. Pass a "
                  "Kokkos::View of the device; an unmanaged one wraps a pointer");
    return std::ranges::data(v);
  }
}
/// Where a stream finds the number of a call.
template <class V>
concept StepView =
    KokkosView<V> && std::is_same_v<typename std::remove_cvref_t<V>::value_type, std::uint64_t>;

template <class V>
std::uint64_t size_of_vector(V const& v) {
  if constexpr (KokkosView<V>) {
    return v.size();
  } else {
    return static_cast<std::uint64_t>(std::ranges::size(v));
  }
}
/// Whether values stay where they are when an argument of type V&& is gone: not those of a temporary that owns them. A view
/// passes, whose values may have another owner.
template <class V>
inline constexpr bool outlasts_call =
    std::is_lvalue_reference_v<V> || KokkosView<V> || std::ranges::borrowed_range<V> || std::ranges::view<V>;

template <class V>
auto value_type_of() {
  if constexpr (KokkosView<V>)
    return std::type_identity<typename std::remove_cvref_t<V>::non_const_value_type>{};
  else
    return std::type_identity<std::remove_cvref_t<decltype(*std::ranges::data(std::declval<V&>()))>>{};
}
template <class V>
using value_of = typename decltype(value_type_of<V>())::type;

/// Input and output of a call, of one type and length, in host memory.
template <class Value>
struct vector_pair {
  Value const* in;
  Value* out;
  std::uint64_t length;
};
/// Why vectors of these lengths are no input and output; empty: they are.
inline std::string unequal_lengths(std::uint64_t input, std::uint64_t output) {
  if (input == output) return {};
  return "the input has " + std::to_string(input) + " values and the output " + std::to_string(output) +
         "; they must have the same length";
}
/// @returns the length of @p x; see unequal_lengths()
template <class X, class Y>
auto unchecked_pair_of(X& x, Y& y) {
  auto* const in = data_of(x);
  auto* const out = data_of(y);
  using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(out)>>,
                "globalq: the vector is const; pass one to write to: the output comes after the input");
  static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                "globalq: input and output have different types; use one type for both");
  return vector_pair<value>{in, out, size_of_vector(x)};
}
/// @throws configuration_error when the lengths differ
template <class X, class Y>
auto pair_of(X& x, Y& y, char const* operation) {
  std::string const why = unequal_lengths(size_of_vector(x), size_of_vector(y));
  if (!why.empty()) throw configuration_error("globalq: " + std::string(operation) + ": " + why);
  return unchecked_pair_of(x, y);
}

}  // namespace detail

/// A vector that globalq can average: contiguous, of a known type.
template <class V>
concept Vector = (detail::KokkosView<V> ||
                  (std::ranges::contiguous_range<V> && std::ranges::sized_range<V>)) &&
                 Scalar<detail::value_of<std::remove_reference_t<V>>>;

}  // namespace GLOBALQ_ABI
