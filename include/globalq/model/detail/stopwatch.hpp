// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: measures the time of one operator with one way of adding, phase by phase.

#include "../../kernel/reduction.hpp"
#include "../../plan/plan.hpp"
#include "../costs.hpp"
#include "../measured.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::model::detail {

/// Times one operator with one way of adding.
class stopwatch {
 public:
  template <class Operator>
  stopwatch(Operator const& op, globalq::detail::operator_facts const& facts,
            globalq::detail::resolution const& r, kernel::host_executor const& on, std::uint64_t values,
            std::size_t chunk_bytes)
      : on_(on),
        facts_(facts),
        codec_(globalq::detail::make_codec(op, facts, r, on)),
        x_(globalq::detail::values_of(facts.chain, values)),
        y_(values),
        bucket_scales_(facts.bucket == 0 ? 1 : divide_up(values, facts.bucket),
                       facts.fixed_scale > 0 ? facts.fixed_scale : 4.0),
        statistics_(bucket_scales_.size()),
        decoded_(r.how == method::none ? 2 : 1) {
    std::uint32_t state = 1;
    // sums of two uniform numbers: most values are small, none above 2
    for (std::uint64_t i = 0; i < values; ++i) {
      float sum = 0;
      for (int k = 0; k < 2; ++k) {
        state = state * 1664525U + 1013904223U;
        sum += static_cast<float>(static_cast<std::int32_t>(state >> 8) - (1 << 23)) * 0x1p-23F;
      }
      x_[i] = sum * (facts.fixed_scale > 0 ? static_cast<float>(facts.fixed_scale) / 4 : 1.0F);
    }
    if (!facts.chain.empty()) given_.assign(x_.begin(), x_.begin() + static_cast<std::ptrdiff_t>(values));
    globalq::detail::codec_call c;
    c.x = {x_.data(), dtype::float32};
    c.y = {y_.data(), dtype::float32};
    c.length = values;
    c.workers = 2;
    c.top = top();
    c.bucket_scales = bucket_scales_;
    c.vector_scale = 4.0;
    codec_->begin(c);
    globalq::partition const cut(values, 1, globalq::detail::grain_of(facts),
                                 globalq::detail::chunk_of(facts, r, 0, chunk_bytes));
    for (std::uint64_t k = 0; k < cut.rounds(); ++k) {
      segment const s = cut.piece(0, k);
      pieces_.push_back({s, std::vector<std::byte>(codec_->frame_bytes(s, 1)),
                         std::vector<std::byte>(codec_->frame_bytes(s, 2))});
    }
    std::uint64_t const grain = std::min(values, globalq::detail::grain_of(facts));
    shortest_ = {{0, grain}, std::vector<std::byte>(codec_->frame_bytes({0, grain}, 1)), {}};
  }

  static constexpr std::size_t phases = 5;
  /// Seconds of: stages and norms, encoding, encoding with one frame added, decoding, and encoding the shortest segment.
  std::array<double, phases> run() {
    std::array<double, phases> s{};
    std::uint32_t const q = facts_.q.value;
    s[0] = time([&] {
      globalq::detail::enter(facts_.chain, {on_, y_.size(), 1, 1, 0, top(), dtype::float32},
                             {given_.data(), dtype::float32}, {0, y_.size()}, {x_.data(), dtype::float32});
      norm::bucket_statistics(on_, y_.size(), facts_.bucket, q,
                              norm::input_block{const_vector{x_.data(), dtype::float32}, q}, statistics_,
                              parts_);
      if (facts_.user_norm != nullptr)
        facts_.user_norm->measure(on_, {x_.data(), dtype::float32}, y_.size(), facts_.bucket, own_,
                                  own_parts_);
    });
    s[1] = time([&] {
      for (piece& p : pieces_) codec_->combine(p.part, true, {}, p.one);
    });
    s[2] = time([&] {
      for (piece& p : pieces_) {
        source const from{used(p.one, 1), 1, 1};
        if (decoded_ == 1) codec_->combine(p.part, true, {&from, 1}, p.two);
      }
    });
    s[3] = time([&] {
      for (piece& p : pieces_) {
        source const sum{decoded_ == 1 ? used(p.two, 0) : used(p.one, 0), decoded_ == 1 ? 2 : 1, 0};
        source const both[2] = {sum, {sum.frame, 1, 1}};
        codec_->finish(p.part, std::span(both, decoded_));
      }
    });
    s[3] /= static_cast<double>(decoded_);
    constexpr int times = 64;
    s[4] = time([&] {
             for (int k = 0; k < times; ++k) codec_->combine(shortest_.part, true, {}, shortest_.one);
           }) /
           times;
    return s;
  }

  /// @param s  the result of run(), for all values
  work costs(std::array<double, phases> const& s) const {
    double const d = static_cast<double>(y_.size());
    work w;
    w.norm = s[0] / d;
    w.encode = s[1] / d;
    w.reduce = decoded_ == 1 ? std::max(0.0, s[2] - s[1]) / d : 0;
    w.decode = s[3] / d;
    w.frame = std::max(0.0, s[4] - static_cast<double>(shortest_.part.count) * w.encode);
    return w;
  }

 private:
  /// No value is larger.
  double top() const { return facts_.fixed_scale > 0 ? facts_.fixed_scale : 2; }

  struct piece {
    segment part;
    std::vector<std::byte> one, two;  // frames of one term and of two
  };

  template <class F>
  static double time(F const& f) {
    auto const start = std::chrono::steady_clock::now();
    f();
    return seconds_since(start);
  }
  std::span<std::byte const> used(std::vector<std::byte> const& frame, int worker) const {
    std::span<std::byte const> const all(frame);
    return codec_->head_bytes() == 0 ? all : all.first(codec_->length_of(all, worker));
  }

  kernel::host_executor on_;
  globalq::detail::operator_facts facts_;
  std::unique_ptr<globalq::detail::operator_codec> codec_;
  std::vector<float> x_, y_, given_;
  std::vector<double> bucket_scales_;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<globalq::detail::user_statistic> own_ = std::vector<globalq::detail::user_statistic>(
                                                   bucket_scales_.size()),
                                               own_parts_;
  std::vector<piece> pieces_;
  piece shortest_;
  std::size_t decoded_;
};

}  // namespace GLOBALQ_ABI::model::detail
