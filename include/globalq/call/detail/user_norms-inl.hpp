// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: scales by users' norms: measured by every worker, and merged by one worker per bucket.

#include "../../core/detail/joined.hpp"
#include "../../operator/detail/user_norm.hpp"
#include "../../plan/plan.hpp"
#include "../../schedule/detail/scales.hpp"
#include "../../transport/endpoint.hpp"
#include "user_norms.hpp"
#include "worker_texts.hpp"

#include <cstring>
#include <memory>

namespace GLOBALQ_ABI::detail {

class user_norms final : public user_scales {
 public:
  void clear() override {
    local_ = false;
    wrong_.clear();
    vectors_.clear();
    statistics_.clear();
  }

  bool empty() const override { return vectors_.empty() && !local_; }

  void add(kernel::host_executor const& on, operator_facts const& op, const_vector x, segment part,
           std::span<double> bucket_scales, dtype type, int wide) override {
    std::size_t const first = statistics_.size();
    vectors_.push_back({&op, bucket_scales, first, type, wide});
    statistics_.resize(first + bucket_scales.size(), op.user_norm->none());
    std::size_t const width = size_of(x.type);
    x.data = static_cast<std::byte const*>(x.data) + part.first * width;
    op.user_norm->measure(
        on, x, part.count, op.bucket,
        std::span(statistics_)
            .subspan(first + (op.bucket == 0 ? 0 : part.first / op.bucket), buckets_of(op, part.count)),
        parts_);
    if (!op.local) return;
    local_ = true;
    for (std::size_t b = 0; b < bucket_scales.size(); ++b) {
      user_scale const scale = op.user_norm->scale(statistics_[first + b]);
      bucket_scales[b] = op.user_norm->scale_of(scale, op.q, type, wide);
      if (wrong_.empty() && bits_of(bucket_scales[b]) >= double_infinity)
        wrong_ = user_norm::refusal(op, b, scale);
    }
    statistics_.resize(first);
    vectors_.pop_back();
  }

  void exchange(transport::endpoint& workers, char const* operation, frame_pool& frames) override {
    if (!vectors_.empty()) share(workers, operation, frames);
    if (!local_) return;
    double wrong = wrong_.empty() ? 0 : 1;
    agree_on_scales(workers, std::span(&wrong, 1), infinity, dtype::float64, frames);
    if (wrong == 0) return;
    auto const text_of = texts_of_workers(workers, wrong_);
    int who = 0;
    while (who + 1 < workers.size() && text_of(who).empty()) ++who;
    fail<configuration_error>(
        {"globalq: ", operation, ": rank ", who, " of ", workers.size(), ": ", text_of(who)});
  }

 private:
  /// The owner of a bucket merges statistics in rank order and computes the scale.
  void share(transport::endpoint& workers, char const* operation, frame_pool& frames) {
    int const n = workers.size(), rank = workers.rank();
    std::size_t const buckets = statistics_.size();
    scales_.resize(buckets);
    auto const scale_of_all = [&](segment mine, std::byte const* theirs) {
      auto of = vectors_.begin();
      for (std::uint64_t i = 0; i < mine.count; ++i) {
        while (of + 1 != vectors_.end() && (of + 1)->first <= mine.first + i) ++of;
        user_norm const& norm = *of->op->user_norm;
        user_statistic all = norm.none();
        for (int w = 0; w < n; ++w) {
          user_statistic one = statistics_[mine.first + i];
          if (w != rank)
            std::memcpy(&one, theirs + (static_cast<std::uint64_t>(w) * mine.count + i) * sizeof one,
                        sizeof one);
          norm.merge(all, one);
        }
        scales_[mine.first + i] = norm.scale(all);
      }
    };
    if (n == 1) {
      scale_of_all({0, buckets}, nullptr);
    } else {
      exchange_by_owners(
          workers, buckets, widths_of_user_norms, frames, false,
          [&](std::byte* to) { std::memcpy(to, statistics_.data(), buckets * sizeof(user_statistic)); },
          [&](std::byte const* theirs, segment mine, std::byte* to) {
            scale_of_all(mine, theirs);
            std::memcpy(to, scales_.data() + mine.first, mine.count * sizeof(user_scale));
          },
          [&](std::byte const* all, segment mine) {
            std::memcpy(scales_.data(), all, mine.first * sizeof(user_scale));
            std::uint64_t const end = mine.first + mine.count;
            std::memcpy(scales_.data() + end, all + end * sizeof(user_scale),
                        (buckets - end) * sizeof(user_scale));
          });
    }
    for (vector const& v : vectors_)
      for (std::size_t b = 0; b < v.bucket_scales.size(); ++b) {
        user_scale const& scale = scales_[v.first + b];
        v.bucket_scales[b] = v.op->user_norm->scale_of(scale, v.op->q, v.type, v.wide);
        if (bits_of(v.bucket_scales[b]) >= double_infinity)
          fail<configuration_error>({"globalq: ", operation, ": ", user_norm::refusal(*v.op, b, scale)});
      }
  }

  struct vector {
    operator_facts const* op;
    std::span<double> bucket_scales;
    std::size_t first;  ///< of its buckets, among all
    dtype type;
    int wide;
  };

  std::vector<vector> vectors_;
  std::vector<user_statistic> statistics_, parts_;
  std::vector<user_scale> scales_;
  bool local_ = false;  ///< whether some scales are local to this worker
  std::string wrong_;   ///< why one of these is invalid
};

GLOBALQ_DECL std::unique_ptr<user_scales> make_user_scales() { return std::make_unique<user_norms>(); }

}  // namespace GLOBALQ_ABI::detail
