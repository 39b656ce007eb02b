// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Vectors as other libraries have them: data() and size(), and nothing that a range has.

#include <cstddef>
#include <memory>

namespace support {

/// Owns its values; signed sizes, as Eigen's.
template <class Value>
class plain_vector {
 public:
  explicit plain_vector(std::ptrdiff_t size)
      : values_(std::make_unique<Value[]>(static_cast<std::size_t>(size))), size_(size) {}
  Value* data() { return values_.get(); }
  Value const* data() const { return values_.get(); }
  std::ptrdiff_t size() const { return size_; }
  Value& operator[](std::ptrdiff_t i) { return values_[static_cast<std::size_t>(i)]; }

 private:
  std::unique_ptr<Value[]> values_;
  std::ptrdiff_t size_;
};

/// Some columns of a matrix, with the names that Eigen has for their strides.
struct columns {
  float* values;
  std::ptrdiff_t inner, outer, inner_stride, outer_stride;

  float* data() const { return values; }
  std::ptrdiff_t size() const { return inner * outer; }
  std::ptrdiff_t innerSize() const { return inner; }
  std::ptrdiff_t outerSize() const { return outer; }
  std::ptrdiff_t innerStride() const { return inner_stride; }
  std::ptrdiff_t outerStride() const { return outer_stride; }
};

}  // namespace support
