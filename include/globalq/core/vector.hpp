// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the vectors that users may pass: anything with data() and size(), or a Kokkos::View.

#include "dtype.hpp"
#include "error.hpp"

#include <Kokkos_Core.hpp>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

namespace GLOBALQ_ABI {

namespace detail {

/// A Kokkos::View or DynRankView: has a memory space and reports whether it is contiguous.
template <class V>
concept KokkosView = requires(std::remove_cvref_t<V> const& v) {
  typename std::remove_cvref_t<V>::memory_space;
  typename std::remove_cvref_t<V>::non_const_value_type;
  v.span_is_contiguous();
};

/// Whether kernels of a space can access a view's values.
template <class View, class Space>
inline constexpr bool reaches =
    Kokkos::SpaceAccessibility<Space, typename std::remove_cvref_t<View>::memory_space>::accessible;

/// Has data() and size(), or is an array. Views of other libraries are checked for gaps at run time.
template <class V>
concept Contiguous = KokkosView<V> || requires(std::remove_reference_t<V>& v) {
  std::ranges::data(v);
  std::ranges::size(v);
};

template <class V>
auto value_type_of() {
  if constexpr (KokkosView<V>)
    return std::type_identity<typename std::remove_cvref_t<V>::non_const_value_type>{};
  else
    return std::type_identity<std::remove_cvref_t<decltype(*std::ranges::data(std::declval<V&>()))>>{};
}
template <class V>
using value_of = typename decltype(value_type_of<V>())::type;
template <class V>
inline constexpr dtype type_of_values = dtype_of<value_of<V>>::value;

}  // namespace detail

/// @brief A vector that globalq can average: contiguous values of a supported type. Anything with data() and size(),
///        such as spans, containers and vectors of Eigen; arrays; views of Kokkos.
template <class V>
concept Vector = detail::Contiguous<V> && Scalar<detail::value_of<std::remove_reference_t<V>>>;

namespace detail {

/// Asserts that V is a vector. Functions that take vectors are not constrained, so this is the first compiler error.
template <class V>
struct expect_vector {
  static constexpr bool pointer = std::is_pointer_v<std::remove_cvref_t<V>>;
  static_assert(
      !pointer,
      "globalq: a pointer is not a vector, because the number of values is missing; pass the number "
      "after it, or pass std::span(pointer, n)");
  static_assert(pointer || Contiguous<V>,
                "globalq: this is not a vector, which has data() and size() and contiguous values; pass a "
                "std::vector, std::span or Kokkos::View, or copy the values to one");
  static_assert(!Contiguous<V> || Vector<V>,
                "globalq: values of this type cannot be averaged; they may be float, double, "
                "globalq::float16 or globalq::bfloat16 (or a type of the same layout, see dtype_of)");
};

/// Whether there are gaps between the values, as in a strided view of Kokkos or Eigen.
template <class V>
bool has_gaps(V const& v) {
  if constexpr (KokkosView<V>)
    return !v.span_is_contiguous();
  else if constexpr (requires { v.innerStride() + v.outerStride() + v.innerSize() + v.outerSize(); })
    return v.size() != 0 && ((v.innerSize() > 1 && v.innerStride() != 1) ||
                             (v.outerSize() > 1 && v.outerStride() != v.innerSize()));
  else
    return false;
}

template <class V>
std::uint64_t size_of_vector(V const& v) {
  if constexpr (KokkosView<V>) {
    return v.size();
  } else {
    return static_cast<std::uint64_t>(std::ranges::size(v));
  }
}

[[noreturn]] inline void refuse_gaps(std::uint64_t values) {
  fail<configuration_error>({"globalq: the view of ", values,
                             " values is not contiguous; pass a contiguous view, or copy the values to one"});
}

/// The address of the values of a span, vector, array, or Kokkos::View of any rank, of any type.
/// @tparam Space  the memory space in which they are read
/// @throws configuration_error when there are gaps between them
template <class Space, class V>
auto memory_of(V& v) {
  if (has_gaps(v)) refuse_gaps(size_of_vector(v));
  if constexpr (KokkosView<V>) {
    if constexpr (std::is_same_v<Space, Kokkos::HostSpace>)
      static_assert(reaches<V, Space>,
                    "globalq: this view is in device memory, which this transport cannot access; use "
                    "transport::nccl, or wrap the transport: transport::staged{workers, Kokkos::Cuda{}}");
    else
      static_assert(
          reaches<V, Space>,
          "globalq: this view is in memory that the transport's execution space cannot access; copy it "
          "to a view of that space, or use a transport of host memory");
    return v.data();
  } else {
    static_assert(std::is_same_v<Space, Kokkos::HostSpace>,
                  "globalq: this transport moves device memory, but the vector is a host range; pass a "
                  "Kokkos::View of the device (an unmanaged view wraps a pointer)");
    return std::ranges::data(v);
  }
}

/// The address of the values of a vector that can be averaged; see memory_of().
template <class Space = Kokkos::HostSpace, class V>
auto data_of(V& v) {
  expect_vector<V>();
  return memory_of<Space>(v);
}

/// A view that holds the step of a call, for reading on a stream.
template <class V>
concept StepView =
    KokkosView<V> && std::is_same_v<typename std::remove_cvref_t<V>::value_type, std::uint64_t>;

/// A pointer to the step of a call, for reading on a stream. CUDA's own code names 64 bits `unsigned long long`.
template <class P>
concept StepPointer = std::is_same_v<std::remove_cvref_t<P>, std::uint64_t*> ||
                      std::is_same_v<std::remove_cvref_t<P>, unsigned long long*>;

template <class Step>
concept StepPlace = StepView<Step> || StepPointer<Step>;

/// The step of a call, or its address.
struct call_step {
  std::uint64_t value = 0;
  std::uint64_t* where = nullptr;  ///< in the memory of the stream; null: value is the step
  GLOBALQ_FUNCTION std::uint64_t operator()() const { return where != nullptr ? *where : value; }
};

/// Whether the values outlive an argument of type V&&: false for a temporary that owns them. Views pass, because their
/// values may have another owner.
template <class V>
inline constexpr bool outlasts_call =
    std::is_lvalue_reference_v<V> || std::is_pointer_v<std::remove_cvref_t<V>> || KokkosView<V> ||
    std::ranges::borrowed_range<V> || std::ranges::view<V>;

/// A pointer and a number of values, in place of a vector.
template <class X, class N>
concept PointerAndNumber =
    std::is_pointer_v<std::remove_cvref_t<X>> && std::is_integral_v<std::remove_cvref_t<N>>;

/// Asserts that values at a pointer have a type.
template <class Value>
struct expect_typed {
  static_assert(
      !std::is_void_v<Value>,
      "globalq: a void pointer does not state the type of the values; cast it to float* or another type");
};
/// The values at a pointer, as a vector.
/// @tparam Space  Kokkos::HostSpace, or the execution space that reads them; the caller vouches that it can
template <class Space, class Value, class N>
auto values_at(Value* x, N n) {
  expect_typed<Value>();
  if constexpr (std::is_same_v<Space, Kokkos::HostSpace>)
    return std::span(x, static_cast<std::size_t>(n));
  else
    return Kokkos::View<Value*, typename Space::memory_space, Kokkos::MemoryUnmanaged>(
        x, static_cast<std::size_t>(n));
}

/// Asserts that the arguments before the step are two pointers and a number of values.
template <class X, class Y, class N>
struct expect_pointers {
  static_assert(
      PointerAndNumber<X, N> && PointerAndNumber<Y, N>,
      "globalq: four arguments are two pointers, the number of values and the step; vectors have a size, "
      "so leave out the number: mean(input, output, step)");
};

/// Input and output of a call, of one type and length, in host memory.
template <class Value>
struct vector_pair {
  Value const* in;
  Value* out;
  std::uint64_t length;
};
/// The error text if input and output have different lengths; else empty.
inline std::string unequal_lengths(std::uint64_t input, std::uint64_t output) {
  if (input == output) return {};
  return joined(
      {"the input has ", input, " values and the output ", output, "; pass vectors of the same length"});
}
/// @returns the length of @p x; see unequal_lengths()
template <class X, class Y>
auto unchecked_pair_of(X& x, Y& y) {
  auto* const in = data_of(x);
  auto* const out = data_of(y);
  using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(out)>>,
                "globalq: the vector is const; pass one that can be written, after the input");
  static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                "globalq: input and output have different types; use one type for both");
  return vector_pair<value>{in, out, size_of_vector(x)};
}
/// @throws configuration_error when the lengths differ
template <class X, class Y>
auto pair_of(X& x, Y& y, char const* operation) {
  std::string const why = unequal_lengths(size_of_vector(x), size_of_vector(y));
  if (!why.empty()) fail<configuration_error>({"globalq: ", operation, ": ", why});
  return unchecked_pair_of(x, y);
}

}  // namespace detail

}  // namespace GLOBALQ_ABI
