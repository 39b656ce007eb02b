// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: the pictures that one worker uses to evaluate a model.

#include <digits/data.hpp>

#include <cstddef>
#include <vector>

namespace evidence {

/// Every picture whose index is rank modulo workers.
inline digits::pictures share_of(digits::pictures const& all, int rank, int workers) {
  std::vector<std::size_t> own;
  for (auto i = static_cast<std::size_t>(rank); i < all.labels.size(); i += static_cast<std::size_t>(workers))
    own.push_back(i);
  return digits::select(all, own);
}

}  // namespace evidence
