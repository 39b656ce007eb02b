// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: combines the library's norms over all workers, with one exchange per order p and value type.

#include "../../core/codec.hpp"
#include "../../schedule/detail/scales.hpp"
#include "../../transport/endpoint.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// The norms of the vectors of a call, in memory that calls reuse.
class shared_norms {
 public:
  /// @param vectors,buckets  capacity to reserve, so that later calls allocate nothing
  void clear(std::size_t vectors = 0, std::size_t buckets = 0) {
    norms_.clear();
    norms_.reserve(vectors);
    exchanged_.reserve(buckets);
  }
  bool empty() const { return norms_.empty(); }

  /// @param p      order over the workers
  /// @param type   norms are sent in its width
  /// @param bucket_scales  in: own norms, one per bucket; out, after exchange(): combined norms
  void add(std::uint32_t p, dtype type, std::span<double> bucket_scales) {
    norms_.push_back({p, type, bucket_scales});
  }

  /// Calls agree_on_scales() for all of them.
  void exchange(transport::endpoint& workers, frame_pool& frames) {
    auto const agree_on = [&](std::span<double> bucket_scales, vector const& of) {
      agree_on_scales(workers, bucket_scales, of.p, of.type, frames);
    };
    if (norms_.size() == 1) return agree_on(norms_[0].bucket_scales, norms_[0]);
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      vector const of = norms_[i];
      if (of.bucket_scales.empty()) continue;  // already exchanged with others
      exchanged_.clear();
      for (vector const& v : norms_)
        if (v.exchanged_with(of))
          exchanged_.insert(exchanged_.end(), v.bucket_scales.begin(), v.bucket_scales.end());
      agree_on(exchanged_, of);
      auto from = exchanged_.cbegin();
      for (vector& v : norms_) {
        if (!v.exchanged_with(of)) continue;
        std::copy_n(from, v.bucket_scales.size(), v.bucket_scales.begin());
        from += static_cast<std::ptrdiff_t>(v.bucket_scales.size());
        v.bucket_scales = {};
      }
    }
  }

 private:
  struct vector {
    std::uint32_t p;
    dtype type;
    std::span<double> bucket_scales;
    bool exchanged_with(vector const& other) const { return p == other.p && type == other.type; }
  };

  std::vector<vector> norms_;
  std::vector<double> exchanged_;
};

}  // namespace GLOBALQ_ABI::detail
