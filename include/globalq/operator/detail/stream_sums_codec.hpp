// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: sums_codec on a stream; the same bits.

#include "../../kernel/load_store.hpp"
#include "../../kernel/stream_reduction.hpp"
#include "stream_state.hpp"
#include "sums_frames.hpp"

namespace GLOBALQ_ABI::detail {

/// Finds the means of own values and sums.
template <class T>
struct find_means {
  mean_of_sum mean;
  double const* sum;
  const_vector x;
  std::uint64_t first;  ///< of own values
  bool own;
  T* to;

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    double v = 0;
    if constexpr (std::is_same_v<T, double>) {
      if (own) v = static_cast<double const*>(x.data)[first + i];
    } else {
      float buffer[1];
      if (own) v = static_cast<double>(*kernel::load<1>(x, first + i, 1, 0, buffer));
    }
    to[i] = mean.template operator()<T>(sum[i], v);
  }
};

/// Adds faults of a part of a call to those of the call.
struct join_faults {
  stream_state const* part;
  std::uint32_t which;
  kernel::agreed_call* call;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { call->faults |= part->agreed.faults & which; }
};

template <class Space>
class stream_sums_codec final : public sums_frames {
 public:
  /// As sums_codec().
  stream_sums_codec(std::unique_ptr<operator_codec> own, std::unique_ptr<operator_codec> sums,
                    operator_facts const& of_sums, kernel::stream_executor<Space> const& on)
      : sums_frames(std::move(own), std::move(sums), of_sums, on.memory()),
        on_(on),
        apart_(apart_memory_.template get_values<stream_state>(1)) {}

  double extent() const override { return own_->extent(); }
  bool measures(dtype type) const override { return own_->measures(type); }
  void measure_all(std::span<unsent const> all, double* bucket_scales, std::uint64_t* top) override {
    own_->measure_all(all, bucket_scales, top);
  }

  bool batches() const override { return own_->batches(); }
  void encode_all(std::span<unsent const> all) override { own_->encode_all(all); }
  void finish_all(std::span<arrived const> all) override {
    if (all.empty() || all[0].from.terms == 1) return own_->finish_all(all);
    finish_sums(all);
  }

 private:
  void set_apart(codec_call& c) override {
    c.agreed = &apart_->agreed;
    on_.items(1, begin_apart{call_.agreed, apart_});
  }
  void join(operator_codec const&, std::uint32_t faults) override {
    on_.items(1, join_faults{apart_, faults, call_.agreed});
  }

  void encode_mean(segment part, bool own, mean_of_sum const& mean, std::span<std::byte> out) override {
    dtype const type = mapped_type(call_.x.type);
    with_type(type, [&]<class T>(T) {
      on_.items(part.count, find_means<T>{mean, reinterpret_cast<double const*>(sum_.get(0).data()), call_.x,
                                          part.first, own, mean_.get_values<T>(part.count)});
    });
    const_vector const means{mean_.get(0).data(), type};
    codec_call c = call_of_sums(at(means, -part.first).data);
    set_apart(c);
    if (sums_->measures(type)) {
      unsent const one{part, out};
      sums_->begin(c);
      sums_->measure_all({&one, 1}, nullptr, &apart_->top);
    } else {
      encode_measured_before(part, means, c, out);
    }
    join(*sums_, ~0U);
  }

  void encode_measured_before(segment part, const_vector means, codec_call c, std::span<std::byte> out) {
    std::uint64_t const first = format_.first_bucket(part), buckets = format_.scales(part);
    auto* const statistics = statistics_.get_values<norm::statistic>(buckets);
    double* const scales = scales_.get_values<double>(buckets);
    norm::enqueue_statistics(on_, means, part.count, format_.bucket, format_.q, tree_, statistics,
                             &apart_->own_top);
    on_.items(buckets,
              find_bucket_scales{apart_, statistics, format_.q, means.type, scales, &apart_->own_top});
    c.bucket_scales = {scales - first, first + buckets};
    c.settled = false;
    sums_->begin(c);
    sums_->combine(part, true, {}, out);
  }

  kernel::stream_executor<Space> on_;
  byte_buffer apart_memory_{on_.memory()}, statistics_{on_.memory()}, scales_{on_.memory()};
  norm::statistics_memory tree_{on_.memory()};
  stream_state* apart_;  ///< of the parts of a call
};

}  // namespace GLOBALQ_ABI::detail
