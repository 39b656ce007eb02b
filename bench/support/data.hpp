// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: vectors as codecs see them, and memory for frames.

#include <globalq/bench/data.hpp>
#include <globalq/core/codec.hpp>
#include <globalq/core/dtype.hpp>

#include <cmath>

namespace GLOBALQ_ABI::bench {

/// The rounding error of a stored value of magnitude 1.
template <class Value>
constexpr double unit_roundoff() {
  switch (dtype_of<Value>::value) {
    case dtype::float16:
      return 0x1p-11;
    case dtype::bfloat16:
      return 0x1p-8;
    default:
      return 0x1p-24;
  }
}

template <class Value>
const_vector reading(values<Value> const& x) {
  return {x.data(), dtype_of<Value>::value};
}
template <class Value>
mutable_vector writing(values<Value> const& y) {
  return {y.data(), dtype_of<Value>::value};
}

}  // namespace GLOBALQ_ABI::bench
