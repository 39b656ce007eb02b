// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: which layers of a model are not quantized.

#include "model_layout.hpp"

#include <fnmatch.h>

#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief Rules for layers that travel as float32: a layer that one of them names does.
///
/// @code
/// auto const keep = gq::adapt::filter{}.named("*bias").named("*.norm?.*").below(10000).below_dimensions(2);
/// @endcode
/// @source Markov 2024 (thesis), section 3.5 (CGX: layers of normalization, biases, small ones); Alistarh et al. 2017 (QSGD)
class filter {
 public:
  /// Layers whose name matches a shell pattern: * is any text, ? any character, [..] one of some.
  filter& named(std::string pattern) {
    patterns_.push_back(std::move(pattern));
    return *this;
  }
  /// Layers of fewer values.
  filter& below(std::uint64_t values) {
    fewest_values_ = values;
    return *this;
  }
  /// Layers of fewer dimensions: below 2 are biases, scales of normalizations, and other vectors.
  filter& below_dimensions(std::size_t dimensions) {
    fewest_dimensions_ = dimensions;
    return *this;
  }

  /// Why a layer travels as float32; empty where it is quantized.
  std::string reason(layer const& l) const {
    for (std::string const& pattern : patterns_)
      if (::fnmatch(pattern.c_str(), l.name.c_str(), 0) == 0) return "its name matches " + pattern;
    if (l.size < fewest_values_)
      return "its " + std::to_string(l.size) + " values are fewer than " + std::to_string(fewest_values_);
    if (l.shape.size() < fewest_dimensions_)
      return "its " + std::to_string(l.shape.size()) + " dimensions are fewer than " +
             std::to_string(fewest_dimensions_);
    return {};
  }
  bool operator()(layer const& l) const { return !reason(l).empty(); }

  /// The rule of CGX: biases and layers of batch and layer normalization.
  /// @source Markov 2024 (thesis), section 3.5
  static filter cgx() {
    return filter{}.named("*bias*").named("*norm*").named("*bn[0-9]*").named("*ln_*").below_dimensions(2);
  }

  /// The rule of QSGD: tensors of fewer than 10,000 values.
  /// @source Alistarh et al. 2017 (QSGD), section 5
  static filter qsgd() { return filter{}.below(10000); }

 private:
  std::vector<std::string> patterns_;
  std::uint64_t fewest_values_ = 0;
  std::size_t fewest_dimensions_ = 0;
};

/// @brief The longest bucket up to @p bucket that holds whole rows of a layer, so that no row is parted; one row where a row
/// is longer. Vectors have no rows to part: @p bucket as it is.
/// @source Alistarh et al. 2017 (QSGD), section 5: no receptive field is split across two buckets
inline std::uint64_t bucket_of_whole_rows(layer const& l, std::uint64_t bucket) {
  std::uint64_t const columns = l.columns();
  if (l.rows() <= 1 || columns == 0) return bucket;
  return bucket < columns ? columns : bucket / columns * columns;
}

}  // namespace GLOBALQ_ABI::adapt
