// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Counts the instructions and bytes of kernels per value while their PTX is interpreted: the numbers of
/// docs/performance-gpu.md, and bounds on them.

#include "tests/support/compositions.hpp"

#include <globalq/globalq.hpp>
#include <globalq/kernel/stream_sparse.hpp>
#include <globalq/operator/stream_vector_codec.hpp>

#include <gtest/gtest.h>
#include <cuda_emulator/counts.hpp>

#include <cstdio>
#include <string>

namespace gq = globalq;
namespace inside = globalq::detail;

namespace {

using support::space;
template <class T>
using device = Kokkos::View<T*, space::memory_space>;
using bytes_on_device = device<std::byte>;

inline constexpr std::size_t length = 1U << 16;
inline constexpr gq::rounding::stochastic dice;

using executor = gq::kernel::stream_executor<space>;

/// On hardware nothing is counted.
struct Work : testing::Test {
  void SetUp() override {
    if (!emulator::executed()) GTEST_SKIP() << "the device does not count";
  }
};

/// What the second run of an action executes: memory that the first one allocates is cleared by launches.
template <class Action>
emulator::executed_counts executed_by(executor const& on, Action const& action) {
  action();
  on.fence();
  auto const before = emulator::executed();
  action();
  on.fence();
  return *emulator::executed() - *before;
}

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
    emulator::executed_counts const n = executed_by(on_, [&] {
      codec_->begin(call_);
      f();
    });
    double const d = static_cast<double>(length);
    work const w{static_cast<double>(n.launches), static_cast<double>(n.instructions) / d,
                 static_cast<double>(n.loaded_bytes) / d, static_cast<double>(n.stored_bytes) / d};
    std::printf("| %s | %s | %g | %.1f | %.2f | %.2f |\n", name_, what, w.launches, w.instructions, w.loaded,
                w.stored);
    return w;
  }

  char const* name_;
  executor on_{space()};
  std::unique_ptr<inside::operator_codec> codec_;
  std::uint64_t bucket_ = 0;
  gq::norm::order q_;
  gq::norm::statistics_memory tree_{on_.memory()};
  device<float> x_{"x", length}, y_{"y", length};
  device<inside::stream_state> state_{"state", 1};
  device<double> bucket_scales_;
  device<gq::norm::statistic> statistics_;
  bytes_on_device frame_, sum_;
  inside::codec_call call_;
};

template <class Norm, class Levels = gq::levels::uniform<>, class Wire = gq::wire::int8>
steps count(char const* name, Norm norm, bool local, Levels levels = {}, Wire wire = {}) {
  return worker(name, gq::quantizer{norm, levels, dice, wire}, local).count();
}

using l2 = gq::norm::local<2>;
using linf = gq::norm::local<gq::infinity>;

/// Local norms cost at most 1.3 times what one norm of all values does; values are read once, or again from a cache.
/// @param code      bytes of a code
/// @param gathered  bytes of a table that finding and reading a level takes
/// @param again     bytes that buckets of several tiles are read again
void expect_cheap(steps const& s, steps const& whole, double code, double gathered = 0, double again = 0) {
  EXPECT_LE(s.instructions(), 1.3 * whole.instructions());
  EXPECT_EQ(s.encode.launches, 1);
  EXPECT_EQ(s.hop.launches, 1);
  EXPECT_LE(s.encode.loaded,
            4.51 + gathered + again);  // a thread may read the largest magnitude so far, from a cache
  EXPECT_LE(s.encode.stored, code + 0.1);
  EXPECT_LE(s.hop.loaded + s.hop.stored, 4.4 + 2 * code + 4.0 / 3 * gathered);
}

}  // namespace

TEST_F(Work, qsgd_and_qsdp) {
  steps const whole = count("l2", l2{}, false);
  expect_cheap(count("l2, buckets of 512", l2{.bucket = 512}, true), whole, 1, 0, 2);
  expect_cheap(count("l2, buckets of 8192", l2{.bucket = 8192}, true), whole, 1);
  expect_cheap(count("linf, buckets of 128", linf{.bucket = 128}, true), whole, 1);
  expect_cheap(count("linf, buckets of 1024", linf{.bucket = 1024}, true), whole, 1, 0, 3);
}

/// A bucket in the registers of 16 threads takes about what the norm of all values and encoding with it take.
TEST_F(Work, buckets_in_registers) {
  auto const own = [](steps const& s) { return s.norm.instructions + s.encode.instructions; };
  double const one_l2 = own(count("l2", l2{}, false)), one_maximum = own(count("linf", linf{}, false));
  for (std::uint64_t const bucket : {32U, 64U, 128U, 256U, 512U, 1024U}) {
    auto const name = ", buckets of " + std::to_string(bucket);
    EXPECT_LE(own(count(("l2" + name).c_str(), l2{.bucket = bucket}, true)),
              (bucket <= 64 ? 1.25 : 1.15) * one_l2);
    EXPECT_LE(own(count(("linf" + name).c_str(), linf{.bucket = bucket}, true)), 1.15 * one_maximum);
  }
}

TEST_F(Work, cgx) {
  gq::levels::uniform<> const levels{7};
  gq::wire::packed<4> const wire{};
  steps const whole = count("l2, packed4", l2{}, false, levels, wire);
  expect_cheap(count("linf, packed4, buckets of 128", linf{.bucket = 128}, true, levels, wire), whole, 0.5);
}

TEST_F(Work, nuqsgd) {
  gq::levels::exponential<> const levels{};
  steps const whole = count("l2, exponential", l2{}, false, levels);
  expect_cheap(count("l2, exponential, buckets of 512", l2{.bucket = 512}, true, levels), whole, 1, 0, 2);
}

/// A table of levels costs at most 1.5 times what uniform levels do.
TEST_F(Work, alq) {
  gq::levels::table const levels{0, 0.05, 0.1, 0.2, 0.4, 0.7, 1};
  steps const uniform = count("l2", l2{}, false), whole = count("l2, table", l2{}, false, levels);
  EXPECT_LE(whole.instructions(), 1.5 * uniform.instructions());
  expect_cheap(count("l2, table, buckets of 512", l2{.bucket = 512}, true, levels), whole, 1, 12, 2);
}

/// Sparse frames, a fifth of whose codes are not zero. With the collectives of Kokkos' teams instead of CUB's, encoding
/// would take 52 instructions a value and decoding 55.
TEST_F(Work, sparse_frames) {
  using code = std::int8_t;
  std::vector<code> codes(length);
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t const bits = static_cast<std::uint32_t>(i + 1) * 2654435761U;
    codes[i] = static_cast<code>(bits % 1280 < 256 ? 1 + (bits >> 24) % 7 : 0);
  }
  executor const on{space()};
  gq::wire::stream_sparse<code, space> coder(7);
  device<code> const from("codes", length), to("decoded", length);
  bytes_on_device const body("body", coder.capacity(length));
  device<std::uint64_t> const total("total", 1);
  device<std::uint32_t> const faults("faults", 1);
  Kokkos::deep_copy(from, Kokkos::View<code const*, Kokkos::HostSpace>(codes.data(), length));
  auto const count = [&](char const* what, auto const& f) {
    auto const n = executed_by(on, f);
    double const each = static_cast<double>(n.instructions) / static_cast<double>(length);
    std::printf("| sparse frame | %s | %llu | %.1f | | |\n", what, n.launches, each);
    return each;
  };
  double const encode =
      count("encode", [&] { coder.encode(on, from.data(), length, body.data(), total.data(), 0); });
  double const decode =
      count("decode", [&] { coder.decode(on, body.data(), total.data(), length, to.data(), faults.data()); });
  EXPECT_LE(encode, 36);
  EXPECT_LE(decode, 44);
  std::vector<code> decoded(length);
  Kokkos::deep_copy(Kokkos::View<code*, Kokkos::HostSpace>(decoded.data(), length), to);
  EXPECT_EQ(decoded, codes);
}
