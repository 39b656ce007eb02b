// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator whose sums another operator encodes.

#include "../../core/detail/hash.hpp"
#include "../../kernel/host/value_leaves.hpp"
#include "../../kernel/reduction.hpp"
#include "operator_codec.hpp"
#include "resolve.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// @brief Encodes own values by one codec, and the mean of all workers by another, as a vector of its own.
///
/// Random words of means have a key of their own: words of buckets are counted by buckets, which differ between the two.
class sums_codec final : public operator_codec {
 public:
  /// @param own      the codec of own values
  /// @param of_sums  of means; its scales are local
  sums_codec(std::unique_ptr<operator_codec> own, std::unique_ptr<operator_codec> of_sums,
             operator_facts const& sums, kernel::host_executor const& on)
      : own_(std::move(own)), sums_(std::move(of_sums)), bucket_(sums.bucket), q_(sums.q), on_(on) {}

  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    own_->begin(c);
    begin_sums({nullptr, mapped_type(c.x.type)});
  }
  void set_levels(levels::detail::level_table const& levels) override { own_->set_levels(levels); }

  std::size_t frame_bytes(segment part, int terms) const override { return of(terms).frame_bytes(part, 1); }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  wire::frame_traits traits() const override { return own_->traits(); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (sources.empty()) {
      own_->combine(part, own, sources, out);
    } else if (!part.empty()) {
      add(part, sources);
      with_type(mapped_type(call_.x.type),
                [&]<class T>(T) { encode_mean<T>(part, own, terms_of(own, sources), out); });
    }
    collect_faults();
  }

  void finish(segment part, std::span<source const> sources) override {
    if (sources.size() == 1 && sources[0].terms > 1) {
      source const alone{sources[0].frame, 1, sources[0].worker, sources[0].first};
      sums_->finish(part, {&alone, 1});
    } else {
      own_->finish(part, sources);
    }
    collect_faults();
  }

 private:
  operator_codec const& of(int terms) const { return terms > 1 ? *sums_ : *own_; }

  /// @param x  what it encodes
  void begin_sums(const_vector x) {
    codec_call c = call_;
    c.x = x;
    c.workers = 1;
    c.seed = hash(c.seed, std::uint64_t{2});
    c.encoder = 0;
    c.encoders = 1;
    c.bucket_scales = scales_;
    c.vector_scale = vector_scale_;
    sums_->begin(c);
  }

  /// The unit of sums: near the largest float64 they would overflow.
  double unit() const { return call_.wide != 0 ? 0x1p-40 : 1.0; }

  /// Writes the sum of the values in frames, in that unit.
  void add(segment part, std::span<source const> sources) {
    codec_call c = call_;
    c.y = at(mutable_vector{sum_.get(part.count * sizeof(double)).data(), dtype::float64}, -part.first);
    c.workers = 1;
    c.weight = unit();
    own_->begin(c);
    own_->finish(part, sources);
    collect_faults();
    own_->begin(call_);
  }

  /// Encodes the mean of own values and that sum.
  template <class T>
  void encode_mean(segment part, bool own, double terms, std::span<std::byte> out) {
    auto const* const sum = reinterpret_cast<double const*>(sum_.get(0).data());
    T* const mean = mean_.get_values<T>(part.count);
    constexpr double most = static_cast<double>(std::numeric_limits<T>::max());
    double const one = unit();
    kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
    on_.items(divide_up(part.count, kernel::host_values), [&](std::uint64_t piece) {
      std::uint64_t const at = piece * kernel::host_values, first = part.first + at,
                          count = std::min<std::uint64_t>(kernel::host_values, part.count - at);
      float room[kernel::host_values];
      T const* x;
      if constexpr (std::is_same_v<T, double>)
        x = static_cast<double const*>(call_.x.data) + first;
      else
        x = leaf.load(call_.x, first, static_cast<int>(count), 0, room);
      for (std::uint64_t i = 0; i < count; ++i) {
        double const v = (sum[at + i] + (own ? static_cast<double>(x[i]) * one : 0.0)) / terms / one;
        mean[at + i] = static_cast<T>(std::clamp(v, -most, most));
      }
    });
    const_vector const here{mean, mapped_type(call_.x.type)};
    std::uint64_t const first = bucket_ == 0 ? 0 : part.first / bucket_,
                        buckets = bucket_ == 0 ? 1 : divide_up(part.count, bucket_);
    scales_.resize(std::max<std::size_t>(scales_.size(), first + buckets));
    begin_sums(at(here, -part.first));
    if (sums_->encode_measured(part, scales_, out)) return;
    statistics_.resize(buckets);
    norm::bucket_statistics(on_, part.count, bucket_, q_, norm::input_block{here, q_}, statistics_, parts_);
    for (std::uint64_t b = 0; b < buckets; ++b)
      scales_[first + b] = norm::local_scale(statistics_[b], q_, here.type, call_.wide);
    if (scale_format const form = q_.format(here.type); form.two_level())
      vector_scale_ = norm::settle_two_levels(std::span(scales_).subspan(first, buckets), form);
    begin_sums(at(here, -part.first));
    sums_->combine(part, true, {}, out);
  }

  void collect_faults() { faults_ |= own_->faults() | sums_->faults(); }

  std::unique_ptr<operator_codec> own_, sums_;
  std::uint64_t bucket_;
  norm::order q_;
  kernel::host_executor on_;
  byte_buffer sum_, mean_;
  std::vector<double> scales_;  ///< of the buckets of means
  double vector_scale_ = 0;     ///< with two levels of scales
  std::vector<norm::statistic> statistics_, parts_;
};

}  // namespace GLOBALQ_ABI::detail
