// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Counts the instructions and bytes of kernels per value while their PTX is interpreted: the numbers of
/// docs/performance-gpu.md, and bounds on them.

#include "../../support/emulated_counts.hpp"
#include "../../support/space.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>

#include <gtest/gtest.h>

#include <cstdio>

namespace gq = globalq;
namespace inside = globalq::detail;

namespace {

using support::space;
template <class T>
using device = Kokkos::View<T*, space::memory_space>;
using bytes_on_device = device<std::byte>;

inline constexpr std::size_t length = 1U << 16;
inline constexpr gq::rounding::stochastic dice;

struct work {
  double launches = 0, instructions = 0, loaded = 0, stored = 0;
};

/// The steps of one worker, of which another one's frame is a source.
struct steps {
  work norm, encode, hop, mean, add;
  /// Of an average among two over sra: half of the values are encoded, half are a hop's.
  double instructions() const {
    return norm.instructions + (encode.instructions + hop.instructions) / 2 + mean.instructions;
  }
};

class worker {
 public:
  template <class Op>
  worker(char const* name, Op const& op, bool local) : name_(name) {
    inside::operator_facts facts = inside::single_worker_facts(op);
    inside::resolution r = inside::resolve_single_worker(facts);
    facts.local = local;
    r.how = gq::method::requantize;
    codec_ = inside::make_codec(op, facts, r, on_);
    bucket_ = facts.bucket;
    q_ = facts.q;
    std::vector<float> x(length);
    for (std::size_t i = 0; i < length; ++i)
      x[i] = static_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(i + 1) * 2654435761U)) *
             0x1p-31F;
    Kokkos::deep_copy(x_, Kokkos::View<float const*, Kokkos::HostSpace>(x.data(), length));
    inside::stream_state state;
    state.agreed.writes = true;
    Kokkos::deep_copy(state_, state);
    std::size_t const buckets = bucket_ == 0 ? 1 : gq::divide_up<std::size_t>(length, bucket_);
    bucket_scales_ = device<double>("bucket_scales", buckets);
    statistics_ = device<gq::norm::statistic>("statistics", buckets);
    Kokkos::deep_copy(bucket_scales_, 1.0);
    call_.x = {x_.data(), gq::dtype::float32};
    call_.y = {y_.data(), gq::dtype::float32};
    call_.length = length;
    call_.rank = 1;
    call_.workers = 2;
    call_.bucket_scales = std::span<double const>(bucket_scales_.data(), buckets);
    call_.agreed = &state_.data()->agreed;
    codec_->note(call_);
    frame_ = bytes_on_device("frame", codec_->frame_bytes(all, 1));
    sum_ = bytes_on_device("sum", frame_.size());
  }

  steps count() {
    steps s;
    gq::source const one{bytes(frame_), 1, 0}, both{bytes(sum_), 2, 0};
    if (codec_->measures(gq::dtype::float32)) {
      gq::unsent const leaf{all, bytes(frame_)};
      s.encode = tell("encode", [&] {
        codec_->measure_all({&leaf, 1}, bucket_scales_.data(), &state_.data()->top);
      });
    } else {
      s.norm = tell("norm", [&] {
        gq::norm::enqueue_statistics(on_, call_.x, length, bucket_, q_, tree_, statistics_.data(),
                                     &state_.data()->top);
      });
      s.encode = tell("encode", [&] { codec_->combine(all, true, {}, bytes(frame_)); });
    }
    s.hop = tell("own values and a frame", [&] { codec_->combine(all, true, {&one, 1}, bytes(sum_)); });
    s.mean = tell("mean", [&] { codec_->finish(all, {&both, 1}); });
    s.add = tell("decode and add", [&] { codec_->add_decoded(all, {&one, 1}); });
    return s;
  }

 private:
  static constexpr gq::segment all{0, length};

  static std::span<std::byte> bytes(bytes_on_device const& of) { return {of.data(), of.size()}; }

  template <class F>
  work tell(char const* what, F const& f) {
    auto const run = [&] {
      codec_->begin(call_);
      on_.fence();
      auto const before = support::executed();
      f();
      on_.fence();
      return *support::executed() - *before;
    };
    run();  // memory that is allocated is cleared by launches
    support::emulated_counts const n = run();
    double const d = static_cast<double>(length);
    work const w{static_cast<double>(n.launches), static_cast<double>(n.instructions) / d,
                 static_cast<double>(n.loaded_bytes) / d, static_cast<double>(n.stored_bytes) / d};
    std::printf("| %s | %s | %g | %.1f | %.2f | %.2f |\n", name_, what, w.launches, w.instructions, w.loaded,
                w.stored);
    return w;
  }

  char const* name_;
  gq::kernel::stream_executor<space> on_{space()};
  std::unique_ptr<inside::operator_codec> codec_;
  std::uint64_t bucket_ = 0;
  gq::norm::order q_;
  gq::norm::statistics_memory tree_{on_.memory()};
  device<float> x_{"x", length}, y_{"y", length};
  device<inside::stream_state> state_{"state", 1};
  device<double> bucket_scales_;
  device<gq::norm::statistic> statistics_;
  bytes_on_device frame_, sum_;
  inside::call call_;
};

template <class Norm>
steps count(char const* name, Norm norm, bool local) {
  return worker(name, gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::int8{}}, local).count();
}

}  // namespace

/// Buckets with norms of their own cost at most 1.3 times what one norm of all values does; values are read once.
TEST(Work, local_norms) {
  if (!support::executed()) GTEST_SKIP() << "the device does not count";
  using one = gq::norm::local<2>;
  using largest = gq::norm::local<gq::infinity>;
  steps const whole = count("l2", one{}, false);
  steps const l2[] = {count("l2, buckets of 512", one{.bucket = 512}, true),
                      count("l2, buckets of 8192", one{.bucket = 8192}, true)};
  steps const linf[] = {count("linf, buckets of 128", largest{.bucket = 128}, true),
                        count("linf, buckets of 1024", largest{.bucket = 1024}, true)};
  for (steps const& s : {l2[0], l2[1], linf[0], linf[1]}) {
    EXPECT_LE(s.instructions(), 1.3 * whole.instructions());
    EXPECT_EQ(s.encode.launches, 1);
    EXPECT_EQ(s.hop.launches, 1);
    EXPECT_LE(s.encode.loaded, 4.01);
    EXPECT_LE(s.encode.stored, 1.1);
    EXPECT_LE(s.hop.loaded + s.hop.stored, 6.4);
  }
}
