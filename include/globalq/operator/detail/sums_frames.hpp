// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the frames of an operator whose sums another operator encodes, in host memory and on a stream.

#include "../../core/detail/hash.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"
#include "resolve.hpp"

#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// The mean of own values and of a sum in frames, which hosts and devices compute with the same bits.
struct mean_of_sum {
  double unit;   ///< of the sum: a power of two, so that it does not overflow
  double terms;  ///< workers in the mean, in that unit

  explicit mean_of_sum(int workers)
      : unit(power_of_two(-log2_ceil(static_cast<std::uint64_t>(workers)))),
        terms(static_cast<double>(workers) * unit) {}

  /// @param own  the own value, or 0
  template <class T>
  GLOBALQ_FUNCTION T operator()(double sum, double own) const {
    double const v = (sum + with_sign(multiply(own, unit), bits_of(own))) / terms;
    return static_cast<T>(v > most<T> ? most<T> : (v < -most<T> ? -most<T> : v));
  }

 private:
  template <class T>
  static constexpr double most = static_cast<double>(std::numeric_limits<T>::max());
};

/// @brief Own values have the frames of one codec, and the mean of all workers those of another, as a vector of its own.
///
/// Random words of means have a key of their own: words of buckets are counted by buckets, which differ between the two.
class sums_frames : public operator_codec {
 public:
  void note(codec_call const& c) override {
    operator_codec::note(c);
    own_->note(c);
    sums_->note(call_of_sums(nullptr));
  }
  void begin(codec_call const& c) override {
    note(c);
    own_->begin(c);
  }
  void set_levels(levels::detail::level_table const& levels) override { own_->set_levels(levels); }

  std::size_t frame_bytes(segment part, int terms) const override {
    return (terms > 1 ? *sums_ : *own_).frame_bytes(part, 1);
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte> frame, int terms) const override { own_->declare(frame, terms); }
  wire::frame_traits traits() const override { return own_->traits(); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (sources.empty()) return own_->combine(part, own, sources, out);
    if (part.empty()) return;
    mean_of_sum const mean(terms_of(own, sources));
    add(part, sources, mean.unit);
    encode_mean(part, own, mean, out);
  }
  void finish(segment part, std::span<source const> sources) override {
    if (sources.size() != 1 || sources[0].terms == 1) return own_->finish(part, sources);
    arrived const one{part, sources[0]};
    finish_sums({&one, 1});
  }

 protected:
  /// @param own     the codec of own values
  /// @param sums    of means; its scales are local
  /// @param memory  of sums and means
  sums_frames(std::unique_ptr<operator_codec> own, std::unique_ptr<operator_codec> sums,
              operator_facts const& of_sums, std::shared_ptr<byte_memory> const& memory)
      : own_(std::move(own)), sums_(std::move(sums)), format_(of_sums), sum_(memory), mean_(memory) {}

  /// Encodes the mean of own values and the sum in sum_.
  virtual void encode_mean(segment part, bool own, mean_of_sum const& mean, std::span<std::byte> out) = 0;
  /// Before a part of a call with other scales or another number of workers.
  virtual void set_apart(codec_call&) {}
  /// After it: these faults are faults of the call.
  virtual void join(operator_codec const& part, std::uint32_t faults) = 0;

  /// A call of the codec of means.
  /// @param mean  where the vector's value 0 would be
  codec_call call_of_sums(void const* mean) const {
    codec_call c = call_;
    c.x = {mean, mapped_type(call_.x.type)};
    c.workers = 1;
    c.seed = hash(c.seed, std::uint64_t{2});
    c.encoder = 0;
    c.encoders = 1;
    c.bucket_scales = {};
    c.settled = true;  // scales come with frames
    c.scales_written = false;
    return c;
  }

  void finish_sums(std::span<arrived const> all) {
    codec_call c = call_of_sums(nullptr);
    set_apart(c);
    sums_->begin(c);
    alone_.assign(all.begin(), all.end());
    for (arrived& each : alone_) each.from.terms = 1;
    sums_->finish_all(alone_);
    join(*sums_, ~0U);
  }

  std::unique_ptr<operator_codec> own_, sums_;
  codes_format format_;  ///< of means
  byte_buffer sum_, mean_;

 private:
  /// Writes the sum of the values in frames. One that overflows is cut with the mean.
  void add(segment part, std::span<source const> sources, double unit) {
    codec_call c = call_;
    c.y = at(mutable_vector{sum_.get(part.count * sizeof(double)).data(), dtype::float64}, -part.first);
    c.workers = 1;
    c.weight = unit;
    c.settled = false;
    set_apart(c);
    own_->begin(c);
    own_->finish(part, sources);
    join(*own_, ~static_cast<std::uint32_t>(kernel::out_of_range));
    own_->begin(call_);
  }

  std::vector<arrived> alone_;
};

}  // namespace GLOBALQ_ABI::detail
