// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: the measured operators, and one worker's part of a call without a transport.

#include "../support/axes.hpp"
#include "../support/data.hpp"

#include <globalq/bench/measure.hpp>
#include <globalq/kernel/reduction.hpp>
#include <globalq/operator/any_quantizer.hpp>
#include <globalq/schedule/ring.hpp>

namespace globalq::bench {

// Compiled in one place. Benchmarks run the same composed codec that allreduce_mean constructs.
any_quantizer uniform_int8();
any_quantizer exponential_int8();
any_quantizer uniform_packed4_bucket128();

// Each function registers the benchmarks of its file.
void add_norms();
void add_encoders();
void add_decoders();
void add_floats();
void add_reduces();
void add_codes();
void add_learning();
void add_tables();
void add_selections();

/// The codec of an operator on a ring, configured for calls like in allreduce_mean.
class ring_codec {
 public:
  ring_codec(any_quantizer const& op, int workers, point const& at)
      : n_(at.n), workers_(workers), on_(at.executor()) {
    globalq::detail::operator_facts const facts = op.facts();
    globalq::detail::resolution const r =
        globalq::detail::resolve(facts, schedule::ring::facts(workers), workers);
    if (!r.fits()) throw configuration_error(r.refusal);
    levels_ = r.size;
    codec_ = op.make_codec(facts, r, on_);
  }

  /// The largest magnitude of a vector: the scale of norm::linf.
  double largest(const_vector x) {
    norm::statistic s;
    norm::bucket_statistics(on_, n_, 0, infinity, norm::input_block{x, infinity}, std::span(&s, 1), parts_);
    return norm::local_scale(s, infinity, x.type, 0);
  }

  void begin(const_vector x, mutable_vector y, double scale, int rank = 0, double divisor = 1) {
    scale_ = scale;
    globalq::detail::codec_call c;
    c.x = x;
    c.y = y;
    c.length = n_;
    c.rank = rank;
    c.workers = workers_;
    c.seed = 1;
    c.bucket_scales = std::span(&scale_, 1);
    c.floats.divisor = divisor;
    codec_->begin(c);
  }

  /// The frame of the worker's own values.
  void encode(std::span<std::byte> frame) { codec_->combine(whole(), true, {}, frame); }
  /// The frame of the sum of frames.
  void reduce(std::span<source const> frames, std::span<std::byte> out) {
    codec_->combine(whole(), false, frames, out);
  }
  /// The mean that a frame represents.
  void decode(source const& frame) { codec_->finish(whole(), {&frame, 1}); }

  std::span<std::byte> frame(byte_buffer& memory) const {
    return memory.get(codec_->frame_bytes({0, n_}, 1));
  }
  std::uint32_t levels() const { return levels_; }
  kernel::host_executor const& executor() const { return on_; }

 private:
  segment whole() const { return {0, n_}; }

  std::uint64_t n_;
  int workers_;
  kernel::host_executor on_;
  std::unique_ptr<globalq::detail::operator_codec> codec_;
  std::uint32_t levels_ = 0;
  double scale_ = 0;
  std::vector<norm::statistic> parts_;
};

/// Whether y is x within @p gap, and the rounding of the stored type.
template <class X, class Y>
bool near(values<X> const& x, values<Y> const& y, double gap) {
  double const epsilon = unit_roundoff<Y>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const a = static_cast<double>(static_cast<float>(x(i)));
    double const b = static_cast<double>(static_cast<float>(y(i)));
    if (!(std::fabs(a - b) <= gap + epsilon * (std::fabs(a) + gap) + 0x1p-25)) return false;
  }
  return true;
}

/// Whether y is a power of two times @p scale next to x, for every value.
template <class X>
bool neighbors_in_powers(values<X> const& x, values<float> const& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const a = static_cast<double>(static_cast<float>(x(i))), b = static_cast<double>(y(i));
    double const ratio = a == 0 ? (b == 0 ? 1.0 : 0.0) : b / a;
    if (!(ratio >= 0.5 * (1 - 1e-6) && ratio <= 2 * (1 + 1e-6))) return false;
  }
  return true;
}

}  // namespace globalq::bench
