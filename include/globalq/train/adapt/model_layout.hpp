// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the named layers of a model, and their places in one long vector.

#include "../../core/dtype.hpp"
#include "../../core/error.hpp"

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// One tensor of a model.
struct layer {
  std::string name;                  ///< "encoder.0.weight"; unique in a model_layout
  std::vector<std::uint64_t> shape;  ///< outermost dimension first; empty: a single value
  std::uint64_t offset = 0;          ///< of its first value in the vector of all layers, in values
  std::uint64_t size = 0;            ///< values: the product of the shape
  dtype type = dtype::float32;

  /// The matrix view of PowerSGD and of QSGD's rule for rows: shape[0] rows; a vector is one row.
  std::uint64_t rows() const { return shape.size() < 2 ? 1 : shape[0]; }
  std::uint64_t columns() const { return size == 0 ? 0 : size / rows(); }
};

/// @brief The layers of a model, in the order in which they were added; all data by layer follows this order.
///
/// @code
/// gq::adapt::model_layout model;
/// model.add("conv1.weight", {64, 3, 7, 7}).add("conv1.bias", {64}).add("fc.weight", {10, 64});
/// @endcode
/// Layers do not overlap; values between them belong to none, and calls do not change them.
class model_layout {
 public:
  /// The largest number of values of a vector.
  static constexpr std::uint64_t most = std::uint64_t{1} << 48;

  /// @brief Adds a layer after the last value of the layers so far.
  /// @throws configuration_error if another layer has the name, or if the layers would have more than 2^48 values
  model_layout& add(std::string name, std::vector<std::uint64_t> shape, dtype type = dtype::float32) {
    return add_at(length_, std::move(name), std::move(shape), type);
  }

  /// @brief Adds a layer at a given place.
  /// @throws configuration_error also if it overlaps another layer
  model_layout& add_at(std::uint64_t offset, std::string name, std::vector<std::uint64_t> shape,
                       dtype type = dtype::float32) {
    std::uint64_t size = 1;
    for (std::uint64_t extent : shape) {
      if (extent != 0 && size > most / extent) refuse(name, "it has more than 2^48 values");
      size *= extent;
    }
    if (offset > most || size > most - offset)
      refuse(name, "its " + std::to_string(size) + " values from " + std::to_string(offset) +
                       " on end beyond 2^48 values; average it in a layout of its own");
    if (index_.contains(name)) refuse(name, "another layer has this name; names must be unique");
    if (size != 0) {
      auto const after = starts_.lower_bound(offset);
      if (after != starts_.end() && after->first < offset + size) overlap(name, layers_[after->second]);
      if (after != starts_.begin()) {
        layer const& before = layers_[std::prev(after)->second];
        if (before.offset + before.size > offset) overlap(name, before);
      }
    }
    std::size_t const number = layers_.size();
    layers_.push_back({name, std::move(shape), offset, size, type});
    try {
      index_.emplace(name, number);
      if (size != 0) starts_.emplace(offset, number);
    } catch (...) {
      index_.erase(name);
      layers_.pop_back();
      throw;
    }
    length_ = length_ < offset + size ? offset + size : length_;
    return *this;
  }

  std::size_t size() const { return layers_.size(); }
  bool empty() const { return layers_.empty(); }
  layer const& operator[](std::size_t k) const { return layers_[k]; }
  auto begin() const { return layers_.begin(); }
  auto end() const { return layers_.end(); }

  /// The number of values of the vector that holds all layers, gaps included.
  std::uint64_t length() const { return length_; }

  /// @brief The number of a layer.
  /// @throws configuration_error if no layer has the name
  std::size_t find(std::string const& name) const {
    auto const found = index_.find(name);
    if (found == index_.end())
      throw configuration_error("globalq: model_layout: none of the " + std::to_string(layers_.size()) +
                                " layers has the name \"" + name + "\"; use a name that was given to add()");
    return found->second;
  }

 private:
  [[noreturn]] static void refuse(std::string const& name, std::string const& why) {
    throw configuration_error("globalq: model_layout: layer \"" + name + "\": " + why);
  }
  [[noreturn]] static void overlap(std::string const& name, layer const& other) {
    refuse(name, "it overlaps layer \"" + other.name + "\", which has the values " +
                     std::to_string(other.offset) + " to " + std::to_string(other.offset + other.size - 1) +
                     "; a value can belong to one layer only");
  }

  std::vector<layer> layers_;
  std::map<std::string, std::size_t> index_;
  std::map<std::uint64_t, std::size_t> starts_;  ///< of layers that have values
  std::uint64_t length_ = 0;
};

}  // namespace GLOBALQ_ABI::adapt
