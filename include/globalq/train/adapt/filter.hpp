// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: selects the layers of a model that are not quantized.

#include "model_layout.hpp"

#include <fnmatch.h>

#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief Conditions for layers that travel as float32; a layer that meets one of them is not quantized.
///
/// @code
/// auto const keep = gq::adapt::filter{}.named("*bias").named("*.norm?.*").below(10000).below_dimensions(2);
/// @endcode
/// @source Markov 2024 (thesis), section 3.5 (CGX: normalization layers, biases, small layers); Alistarh et al. 2017
///         (QSGD)
class filter {
 public:
  /// Keeps layers whose name matches a shell pattern: * is any text, ? any character, [..] one of some characters.
  filter& named(std::string pattern) {
    patterns_.push_back(std::move(pattern));
    return *this;
  }
  /// Keeps layers of fewer values.
  filter& below(std::uint64_t values) {
    fewest_values_ = values;
    return *this;
  }
  /// Keeps layers of fewer dimensions: below 2 are biases, scales of normalization layers, and other vectors.
  filter& below_dimensions(std::size_t dimensions) {
    fewest_dimensions_ = dimensions;
    return *this;
  }

  /// The reason why a layer travels as float32; empty if it is quantized.
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

  /// The filter of CGX: biases, layers of batch and layer normalization, and all other tensors of one dimension.
  /// @source Markov 2024 (thesis), section 3.5
  static filter cgx() {
    return filter{}.named("*bias*").named("*norm*").named("*bn[0-9]*").named("*ln_*").below_dimensions(2);
  }

  /// The filter of QSGD: tensors of fewer than 10,000 values.
  /// @source Alistarh et al. 2017 (QSGD), section 5
  static filter qsgd() { return filter{}.below(10000); }

 private:
  std::vector<std::string> patterns_;
  std::uint64_t fewest_values_ = 0;
  std::size_t fewest_dimensions_ = 0;
};

/// @brief The largest bucket up to @p bucket that consists of whole rows of a layer, so that no row is split; one row
/// if a row is longer. For vectors it returns @p bucket unchanged.
/// @source Alistarh et al. 2017 (QSGD), section 5: no receptive field is split across two buckets
inline std::uint64_t bucket_of_whole_rows(layer const& l, std::uint64_t bucket) {
  std::uint64_t const columns = l.columns();
  if (l.rows() <= 1 || columns == 0) return bucket;
  return bucket < columns ? columns : bucket / columns * columns;
}

}  // namespace GLOBALQ_ABI::adapt
