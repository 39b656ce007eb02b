// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief peers: this library's encoders and reduce, called through the codecs of allreduce_mean.

#include "peer.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/schedule/ring.hpp>

namespace globalq::bench {
namespace {

any_quantizer uniform() {
  return quantizer{norm::linf{}, levels::uniform<>{}, rounding::stochastic{}, wire::int8{}};
}
any_quantizer exponential() {
  return quantizer{norm::linf{}, levels::exponential<>{}, rounding::stochastic{}, wire::int8{}};
}

/// The codec of an operator for the workers of a ring, with a known norm.
class ring_codec {
 public:
  ring_codec(any_quantizer const& op, int workers, task const& t)
      : task_(t), workers_(workers), scale_(t.norm) {
    detail::operator_facts const facts = op.facts();
    detail::resolution const r = detail::resolve(facts, schedule::ring::facts(workers), workers);
    if (!r.fits()) throw configuration_error(r.refusal);
    codec_ = op.make_codec(facts, r, task_.on);
    begin(task_.x, 0);
  }

  std::span<std::byte> frame(byte_buffer& memory) const {
    return memory.get(codec_->frame_bytes(whole(), 1));
  }

  void encode(std::span<std::byte> out) { codec_->combine(whole(), true, {}, out); }
  void encode_as(values<float> const& x, int rank, std::span<std::byte> out) {
    begin(x, rank);
    encode(out);
  }
  void reduce(std::span<source const> frames, std::span<std::byte> out) {
    codec_->combine(whole(), false, frames, out);
  }

  /// The sum that a frame of all workers represents.
  values<float> decode(std::span<std::byte> frame) {
    y_ = values<float>("decoded", task_.n);
    begin(task_.x, 0);
    source const one{frame, workers_, 0};
    codec_->finish(whole(), {&one, 1});
    for (std::size_t i = 0; i < y_.size(); ++i) y_(i) *= static_cast<float>(workers_);
    return y_;
  }

 private:
  segment whole() const { return {0, task_.n}; }

  void begin(values<float> const& x, int rank) {
    detail::codec_call c;
    c.x = reading(x);
    c.y = writing(y_);
    c.length = task_.n;
    c.rank = rank;
    c.workers = workers_;
    c.seed = 1;
    c.bucket_scales = std::span(&scale_, 1);
    codec_->begin(c);
  }

  task task_;
  int workers_;
  double scale_;
  std::unique_ptr<detail::operator_codec> codec_;
  values<float> y_;
};

/// Encodes values.
template <any_quantizer (*Operator)()>
class encode final : public peer {
 public:
  explicit encode(task const& t) : task_(t), codec_(Operator(), 1, t), frame_(codec_.frame(memory_)) {}

  void run() override { codec_.encode(frame_); }

  double error() override {
    auto const y = codec_.decode(frame_);
    return relative_error(
        task_.n, [&](std::uint64_t i) { return double{task_.x(i)}; },
        [&](std::uint64_t i) { return double{y(i)}; });
  }

 private:
  task task_;
  ring_codec codec_;
  byte_buffer memory_;
  std::span<std::byte> frame_;
};

/// Computes the norm, then encodes values.
class norm_and_encode final : public peer {
 public:
  explicit norm_and_encode(task const& t) : task_(t), codec_(make_codec(t)) {
    frame_ = memory_.get(codec_.frame_bytes(t.n));
  }

  void run() override { codec_.encode(task_.x, {.seed = 1}, frame_); }

  double error() override {
    values<float> const y("decoded", task_.n);
    codec_.decode(frame_, {.seed = 1}, y);
    return relative_error(
        task_.n, [&](std::uint64_t i) { return double{task_.x(i)}; },
        [&](std::uint64_t i) { return double{y(i)}; });
  }

 private:
  static vector_codec make_codec(task const& t) {
    if (t.threads == 1) return vector_codec(uniform(), Kokkos::Serial(), frame_checksum::none);
    return vector_codec(uniform(), Kokkos::DefaultHostExecutionSpace(), frame_checksum::none);
  }

  task task_;
  vector_codec codec_;
  byte_buffer memory_;
  std::span<std::byte> frame_;
};

/// Adds two vectors of codes.
class reduce_exponential final : public peer {
 public:
  explicit reduce_exponential(task const& t) : task_(t), codec_(exponential(), 2, t) {
    for (int i = 0; i < 2; ++i) frames_[i] = codec_.frame(memory_[i]);
    sum_ = codec_.frame(memory_[2]);
    codec_.encode_as(t.x, 0, frames_[0]);
    codec_.encode_as(t.other, 1, frames_[1]);
  }

  void run() override {
    source const both[] = {{frames_[0], 1, 0}, {frames_[1], 1, 1}};
    codec_.reduce(both, sum_);
  }

  double error() override {
    auto const y = codec_.decode(sum_);
    return relative_error(
        task_.n, [&](std::uint64_t i) { return double{task_.x(i)} + double{task_.other(i)}; },
        [&](std::uint64_t i) { return double{y(i)}; });
  }

 private:
  task task_;
  ring_codec codec_;
  byte_buffer memory_[3];
  std::span<std::byte> frames_[2], sum_;
};

template <class Peer>
std::unique_ptr<peer> make(task const& t) {
  return std::make_unique<Peer>(t);
}

}  // namespace

std::vector<named_peer> library_peers() {
  return {
      {"globalq: encode uniform int8", make<encode<uniform>>},
      {"globalq: encode exponential int8", make<encode<exponential>>},
      {"globalq: norm and encode uniform int8", make<norm_and_encode>},
      {"globalq: reduce exponential int8", make<reduce_exponential>},
  };
}

}  // namespace globalq::bench
