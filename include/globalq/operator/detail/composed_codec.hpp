// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of a composition in host memory. It checks headers before kernels read frames.

#include "../../kernel/host/combine.hpp"
#include "../../kernel/host/mean.hpp"
#include "../../kernel/reduction.hpp"
#include "../../reduce/reduce.hpp"
#include "composition.hpp"
#include "host_policies.hpp"
#include "user_norm.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// One class for each code type, and so one set of kernels.
template <class Int>
class composed_codec final : public composition {
  using operands = kernel::host::operands<Int>;

 public:
  composed_codec(std::unique_ptr<host_policies<Int>> held, operator_facts const& facts, method how,
                 kernel::host_executor const& on)
      : composition(held->facts, facts, how), held_(std::move(held)), start_(held_->kernels()), on_(on) {}

  void begin(codec_call const& c) override {
    composition::begin(c);
    if (held_->tell(c.encoder, c.encoders)) start_.rounding = held_->kernels().rounding;
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    int const terms = terms_of(own, sources);
    operands const o = prepare(part, own, sources, terms);
    std::byte* const scales = out.data() + wire::header_bytes;
    std::byte* const codes = scales + scale_bytes_of(part);
    bool const leaf = sources.empty();
    if (format_.local) begin_scales(o, part, scales);
    if (leaf && format_.local)
      write_scales(o, part, scales, call_.bucket_scales.data() + format_.first_bucket(part));
    if (leaf || adds_codes()) {
      on_.values(part.count, kernel::host::add_codes<Int>{o, codes, leaf ? nullptr : reduce_leaves()});
    } else {
      bool const fit = format_.local && user_norm_ == nullptr && kernel::buckets_fit(format_.bucket);
      if (format_.local && user_norm_ != nullptr)
        measure_user_sum(o, part, scales);
      else if (format_.local && !fit)
        measure_sum(o, part, scales);
      on_.values(part.count, kernel::host::add_values<Int>{o, codes, scales, fit, format_.q});
    }
    check_codes(sources);
    wire::write_header(out, policies_.identifier, terms, part.count, traits());
  }

  bool encode_measured(segment all, std::span<double> bucket_scales, std::span<std::byte> out) override {
    if (!format_.local || user_norm_ != nullptr || !kernel::buckets_fit(format_.bucket) || all.empty() ||
        format_.q.format(call_.x.type).two_level())
      return false;
    operands o = prepare(all, true, {}, 1);
    o.bucket_scales = bucket_scales.data();
    std::byte* const scales = out.data() + wire::header_bytes;
    std::byte* const codes = scales + scale_bytes_of(all);
    std::memset(out.data(), 0, wire::header_bytes + scale_bytes_of(all));
    on_.values(all.count,
               kernel::host::encode_measured<Int>{{o, codes}, scales, bucket_scales.data(), format_.q});
    if ((faults_ & kernel::not_finite) != 0) return false;
    wire::write_header(out, policies_.identifier, 1, all.count, traits());
    return true;
  }

  void finish(segment part, std::span<source const> sources) override { write(part, sources, false); }

  void add_decoded(segment part, std::span<source const> sources) override { write(part, sources, true); }

  void set_levels(levels::detail::level_table const& levels) override {
    composition::set_levels(levels);
    start_.by.has_tiles = levels.has_lines();
  }

  void verify(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    operands const o = prepare(part, false, sources, call_.workers);
    on_.values(part.count, kernel::host::check_codes<Int>{o});
    check_codes(sources);
    verified_ = true;
  }

 protected:
  levels::detail::level_table* table() override { return held_->table; }

 private:
  kernel::reduce_leaves<Int> const* reduce_leaves() const {
    return how_ == method::sum ? &sum_ : &held_->adding;
  }

  void write(segment part, std::span<source const> sources, bool add) {
    if (part.empty()) return;
    operands o = prepare(part, false, sources, call_.workers);
    o.verified = std::exchange(verified_, false);
    on_.values(part.count, kernel::host::write_mean<Int>(o, call_.y, add));
    check_codes(sources);
  }

  /// Checks the headers of all sources and fills in the operands of the kernels.
  operands prepare(segment part, bool own, std::span<source const> sources, int terms) {
    views_.clear();
    for (source const& s : sources) {
      std::size_t const bytes = frame_bytes(part, s.terms);
      wire::check_header(s, policies_.identifier, part.count, bytes, traits());
      if (format_.local) format_.check_scales(part, s, call_.x.type);
      views_.push_back(view_of(part, s));
    }
    operands o = start_;
    lay_out(o, part, own, terms);
    o.sources = {views_.data(), views_.size()};
    o.faults = &faults_;
    o.settle();
    return o;
  }

  /// Clears the scales, and writes the scale of the vector if there are two levels.
  void begin_scales(operands const& o, segment part, std::byte* scales) const {
    std::memset(scales, 0, scale_bytes_of(part));
    if (o.scale_form.two_level())
      store_to(scales, kernel::vector_scale_word(o.own ? call_.vector_scale : 0.0, o.sources));
  }

  /// @param bucket_scales  scales of the part's buckets, already rounded to their encoding
  GLOBALQ_CALLED void write_scales(operands const& o, segment part, std::byte* scales,
                                   double const* bucket_scales) const {
    for (std::uint64_t b = format_.first_bucket(part), end = b + format_.scales(part); b < end; ++b)
      o.write_scale(scales, b, *bucket_scales++);
  }

  /// For local norms: computes the norm of the sum for each bucket, and writes the scales.
  void measure_sum(operands const& o, segment part, std::byte* scales) {
    statistics_.resize(format_.scales(part));
    auto const block = [&](std::uint64_t first, int count) {
      float values[norm::block_values];
      float sum[kernel::tile_values];
      std::uint64_t const end = first + static_cast<std::uint64_t>(count);
      for (std::uint64_t tile = first / kernel::tile_values; tile * kernel::tile_values < end; ++tile) {
        kernel::row const r = kernel::row_of<16>(tile, 0, 0, part.count);
        o.accumulate(r, true, sum);
        std::uint64_t const from = std::max(first, r.first),
                            to = std::min(end, r.first + static_cast<std::uint64_t>(r.count));
        for (std::uint64_t i = from; i < to; ++i) values[i - first] = sum[i - r.first];
      }
      return o.by.leaf->statistic({values, dtype::float32}, 0, count, format_.q);
    };
    norm::bucket_statistics(on_, part.count, format_.bucket, format_.q, block, statistics_, parts_);
    bucket_scales_.clear();
    for (norm::statistic const& s : statistics_)
      bucket_scales_.push_back(norm::local_scale(
          s, format_.q, call_.x.type, -o.reference(format_.first_bucket(part) + bucket_scales_.size())));
    write_scales(o, part, scales, bucket_scales_.data());
  }

  /// The same for a user-defined norm, which measures whole blocks of the sum.
  void measure_user_sum(operands const& o, segment part, std::byte* scales) {
    sums_.resize(part.count);
    own_.resize(format_.scales(part));
    on_.items(divide_up<std::uint64_t>(part.count, kernel::tile_values), [&](std::uint64_t tile) {
      kernel::row const r = kernel::row_of<16>(tile, 0, 0, part.count);
      float sum[kernel::tile_values];
      o.accumulate(r, true, sum);
      kernel::for_each_run(
          part.first + r.first, r.count, format_.bucket, [&](std::uint64_t b, int at, int count) {
            double const bucket_scale = power_of_two(o.reference(b));
            for (int i = at; i < at + count; ++i)
              sums_[r.first + static_cast<std::uint64_t>(i)] = static_cast<double>(sum[i]) * bucket_scale;
          });
    });
    user_norm_->measure(on_, {sums_.data(), dtype::float64}, part.count, format_.bucket, own_, own_parts_);
    bucket_scales_.clear();
    for (user_statistic const& s : own_) {
      user_scale scale = user_norm_->scale(s);
      bucket_scales_.push_back(user_norm_->scale_of(scale, format_.q, call_.x.type, 0));
      if (bits_of(bucket_scales_.back()) < double_infinity) continue;
      faults_ |= kernel::no_scale;  // the call continues, because other workers wait for this frame
      scale.scale = scale.max();
      bucket_scales_.back() = user_norm_->scale_of(scale, format_.q, call_.x.type, 0);
    }
    write_scales(o, part, scales, bucket_scales_.data());
  }

  std::unique_ptr<host_policies<Int>> held_;
  operands start_;  ///< common to all calls
  kernel::reduce_leaves<Int> const sum_ = kernel::host::adding_of<reduce::sum, Int>();
  bool verified_ = false;  ///< verify() checked the sources of the next finish() or add_decoded()
  kernel::host_executor on_;
  std::vector<kernel::source_view> views_;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> bucket_scales_;  ///< of sums
  std::vector<double> sums_;           ///< of frames, for a user-defined norm
  std::vector<user_statistic> own_, own_parts_;
};

template <class Int>
std::unique_ptr<operator_codec> make_composed(std::unique_ptr<host_policies<Int>> held,
                                              operator_facts const& facts, method how,
                                              kernel::host_executor const& on) {
  return std::make_unique<composed_codec<Int>>(std::move(held), facts, how, on);
}

}  // namespace GLOBALQ_ABI::detail

/// Defines the codec of a code type, in one source of a library, outside all namespaces.
#define GLOBALQ_DEFINE_CODE_TYPE(code_type)                                                         \
  namespace GLOBALQ_ABI::detail {                                                                   \
  template std::unique_ptr<operator_codec> make_composed(std::unique_ptr<host_policies<code_type>>, \
                                                         operator_facts const&, method,             \
                                                         kernel::host_executor const&);             \
  }
