// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: several vectors that are averaged in one call.

#include "../core/vector.hpp"

#include <vector>

namespace GLOBALQ_ABI {

/// @brief A list of vectors in host memory, of possibly different types. It does not own them.
///
/// @code
/// gq::vector_group layers;
/// for (auto& layer : model) layers.add(layer.gradient);
/// mean(layers, step);                       // uses the steps step, .., step + layers.size() - 1
/// @endcode
class vector_group {
 public:
  /// A vector of the group.
  struct member {
    const_vector x;
    mutable_vector y;
    std::uint64_t length = 0;
  };

  /// Adds a vector that is averaged in place.
  template <class V>
  vector_group& add(V&& x) {
    expect_lasting<V>();
    return add(x, x);
  }

  /// Adds a vector that is averaged into @p y, of the same length and type; or, with a number y, y values at the
  /// pointer x in place.
  template <class X, class Y>
  vector_group& add(X&& x, Y&& y) {
    if constexpr (detail::PointerAndNumber<X, Y>) {
      auto const values = detail::values_at<Kokkos::HostSpace>(x, y);
      return add(values, values);
    } else {
      expect_lasting<X, Y>();
      return add_pair(x, y);
    }
  }

  /// Adds the @p n values at the pointer @p x, which are averaged into those at the pointer @p y.
  template <class X, class Y, class N>
  vector_group& add(X&& x, Y&& y, N const& n) {
    detail::expect_pointers<X, Y, N>();
    return add(detail::values_at<Kokkos::HostSpace>(x, n), detail::values_at<Kokkos::HostSpace>(y, n));
  }

  void clear() { members_.clear(); }
  std::size_t size() const { return members_.size(); }
  bool empty() const { return members_.empty(); }
  std::vector<member> const& members() const { return members_; }

 private:
  template <class X, class Y>
  vector_group& add_pair(X& x, Y& y) {
    auto const [in, out, length] = detail::pair_of(x, y, "vector_group");
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(out)>>>::value;
    members_.push_back({{in, type}, {out, type}, length});
    return *this;
  }

  template <class... V>
  static constexpr void expect_lasting() {
    static_assert((detail::outlasts_call<V> && ...),
                  "globalq: the vector is a temporary, which is destroyed before the group is averaged; give "
                  "it a name");
  }

  std::vector<member> members_;
};

}  // namespace GLOBALQ_ABI
