// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator whose sums another operator encodes.

#include "../../kernel/host/value_leaves.hpp"
#include "../../kernel/reduction.hpp"
#include "sums_frames.hpp"

namespace GLOBALQ_ABI::detail {

class sums_codec final : public sums_frames {
 public:
  sums_codec(std::unique_ptr<operator_codec> own, std::unique_ptr<operator_codec> sums,
             operator_facts const& of_sums, kernel::host_executor const& on)
      : sums_frames(std::move(own), std::move(sums), of_sums, byte_memory::host()), on_(on) {}

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    sums_frames::combine(part, own, sources, out);
    faults_ |= own_->faults();
  }
  void finish(segment part, std::span<source const> sources) override {
    sums_frames::finish(part, sources);
    faults_ |= own_->faults();
  }

 private:
  void join(operator_codec const& part, std::uint32_t faults) override { faults_ |= part.faults() & faults; }

  void encode_mean(segment part, bool own, mean_of_sum const& mean, std::span<std::byte> out) override {
    with_type(mapped_type(call_.x.type), [&]<class T>(T) { encode_mean<T>(part, own, mean, out); });
    join(*sums_, ~0U);
  }

  template <class T>
  void encode_mean(segment part, bool own, mean_of_sum const& mean, std::span<std::byte> out) {
    auto const* const sum = reinterpret_cast<double const*>(sum_.get(0).data());
    T* const means = mean_.get_values<T>(part.count);
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
      for (std::uint64_t i = 0; i < count; ++i)
        means[at + i] = mean.template operator()<T>(sum[at + i], own ? static_cast<double>(x[i]) : 0.0);
    });
    const_vector const here{means, mapped_type(call_.x.type)};
    std::uint64_t const first = format_.first_bucket(part), buckets = format_.scales(part);
    scales_.resize(std::max<std::size_t>(scales_.size(), first + buckets));
    codec_call c = call_of_sums(at(here, -part.first).data);
    c.bucket_scales = scales_;
    sums_->begin(c);
    if (sums_->encode_measured(part, scales_, out)) return;
    statistics_.resize(buckets);
    norm::bucket_statistics(on_, part.count, format_.bucket, format_.q, norm::input_block{here, format_.q},
                            statistics_, parts_);
    for (std::uint64_t b = 0; b < buckets; ++b)
      scales_[first + b] = norm::local_scale(statistics_[b], format_.q, here.type, call_.wide);
    if (scale_format const form = format_.q.format(here.type); form.two_level())
      c.vector_scale = norm::settle_two_levels(std::span(scales_).subspan(first, buckets), form);
    sums_->begin(c);
    sums_->combine(part, true, {}, out);
  }

  kernel::host_executor on_;
  std::vector<double> scales_;  ///< of the buckets of means
  std::vector<norm::statistic> statistics_, parts_;
};

}  // namespace GLOBALQ_ABI::detail
