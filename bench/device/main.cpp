// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_device_bench: kernels in device memory compared with a copy that moves the same bytes.
///
///   globalq_device_bench --benchmark_filter=encode/exponential/int8/n:268435456
///   globalq_device_bench --check 65536
///
/// The second form only compares the results for vectors of that length with the host's.
///
/// The floor of a kernel is a device-to-device copy of half the bytes that the kernel reads and writes, because a copy
/// moves each byte twice. Both take their vectors in turn from 256 MiB, so that no cache holds them. The floor of a
/// reduce is a plain sum of bytes, sixteen at a time (`reduce/plain/int8`, itself compared with the copy); its ratio is
/// `omega`. norm/.../cub are the same reductions by CUB. Exits with 1 if a result is wrong or nothing ran.

#include "../support/data.hpp"
#include "device.hpp"

#include <globalq/core/quad.hpp>
#include <globalq/kernel/reduction.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/schedule/ring.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#if defined(KOKKOS_ENABLE_CUDA)
#include <cub/device/device_reduce.cuh>
#endif

namespace GLOBALQ_ABI::bench {
namespace {

template <class Value>
device<Value> gradient_there(std::uint64_t n, std::uint64_t seed) {
  auto const x = gradient<Value>(n, seed);
  device<Value> y(Kokkos::view_alloc("gradient", Kokkos::WithoutInitializing), n);
  Kokkos::deep_copy(y, x);
  return y;
}

auto uniform_int8() {
  return quantizer{norm::linf{}, levels::uniform<>{}, rounding::stochastic{}, wire::int8{}};
}
auto exponential_int8() {
  return quantizer{norm::linf{}, levels::exponential<>{}, rounding::stochastic{}, wire::int8{}};
}
/// Norms of one's own, as of qsgd and cgx: measured and encoded in one pass.
auto local_int8_bucket512() {
  return quantizer{norm::local<2>{.bucket = 512}, levels::uniform<>{}, rounding::stochastic{}, wire::int8{}};
}
auto local_packed4_bucket128() {
  return quantizer{norm::local<infinity>{.bucket = 128}, levels::uniform<>{}, rounding::stochastic{},
                   wire::packed<4>{}};
}
auto uniform_packed4_bucket128() {
  return quantizer{norm::linf{128}, levels::uniform<>{}, rounding::stochastic{}, wire::packed<4>{}};
}

// ---- norms

/// The result of the library's reduction on the host.
norm::statistic measured(device<float> const& x, std::uint32_t q) {
  std::vector<norm::statistic> parts;
  norm::statistic s;
  auto const there = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  norm::bucket_statistics(kernel::host_executor(Kokkos::DefaultHostExecutionSpace()), x.size(), 0, q,
                          norm::input_block{{there.data(), dtype::float32}, q}, std::span(&s, 1), parts);
  return s;
}

void time_norm(benchmark::State& state, std::uint64_t n, std::uint32_t q) {
  kernel::stream_executor<space> const on{space()};
  in_turn<float> x(gradient_there<float>(n, 1));
  norm::statistics_memory memory(on.memory());
  device<norm::statistic> const result("result", 1);
  device<std::uint64_t> const top("top", 1);
  auto const kernel = [&] {
    norm::enqueue_statistics(on, {x.next().data(), dtype::float32}, n, 0, q, memory, result.data(),
                             top.data());
  };
  kernel();
  norm::statistic const expected = measured(x.first(), q);
  auto const is_right = [&] {
    norm::statistic found;
    Kokkos::deep_copy(Kokkos::View<norm::statistic, Kokkos::HostSpace>(&found), Kokkos::subview(result, 0));
    return found.max_bits == expected.max_bits &&
           norm::relative_norm(found, q) == norm::relative_norm(expected, q);
  };
  if (!is_right()) return fail(state, "the norm differs from the host's");
  against_copy(state, n, 4 * n, kernel);
  if (!is_right()) fail(state, "the norm differs from the host's after many launches");
}

#if defined(KOKKOS_ENABLE_CUDA)
struct magnitude_of {
  __host__ __device__ float operator()(float x) const { return x < 0 ? -x : x; }
};
struct square_of {
  __host__ __device__ double operator()(float x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};
struct larger_of {
  __host__ __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};
struct sum_of {
  __host__ __device__ double operator()(double a, double b) const { return a + b; }
};

/// The same by CUB, whose bits may differ between machines and which does not detect NaN.
template <class Result, class Reduce, class Transform>
void time_norm_by_cub(benchmark::State& state, std::uint64_t n, Reduce reduce, Transform transform) {
  in_turn<float> x(gradient_there<float>(n, 1));
  device<Result> const result("result", 1);
  cudaStream_t const stream = space().cuda_stream();
  std::size_t room = 0;
  auto const call = [&](void* temporary) {
    return cub::DeviceReduce::TransformReduce(temporary, room, x.next().data(), result.data(),
                                              static_cast<std::int64_t>(n), reduce, transform, Result(0),
                                              stream);
  };
  if (call(nullptr) != cudaSuccess) return fail(state, "CUB returned an error");
  device<unsigned char> const temporary("temporary", room);
  against_copy(state, n, 4 * n, [&] { call(temporary.data()); });
}
#endif

// ---- vectors to frames and back

/// @param passes  how often the vector is read: twice where norms come first, once where they are measured on the way
template <class Operator>
void time_encode(benchmark::State& state, std::uint64_t n, Operator const& op, std::uint64_t passes = 2) {
  stream_vector_codec codec{op, space()};
  in_turn<float> x(gradient_there<float>(n, 1));
  in_turn<std::byte> frame(device<std::byte>("frame", codec.frame_bytes(n)));
  encoding_key const key{1, 0, 0};
  auto const kernel = [&] { codec.encode(x.next(), key, frame.next()); };
  kernel();
  codec.wait();
  vector_codec host{op, {}, frame_checksum::none};
  std::vector<std::byte> expected(frame.first().size());
  host.encode(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x.first()), key, expected);
  auto const is_right = [&] {
    auto const made = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), frame.last());
    return std::memcmp(made.data(), expected.data(), expected.size()) == 0;
  };
  if (!is_right()) return fail(state, "the frame differs from the host's");
  against_copy(state, n, 4 * passes * n + expected.size(), kernel);
  codec.wait();
  if (!is_right()) fail(state, "the frame differs from the host's after many calls");
}

template <bool Add, class Operator>
void time_decode(benchmark::State& state, std::uint64_t n, Operator const& op) {
  stream_vector_codec codec{op, space()};
  device<std::byte> const encoded("frame", codec.frame_bytes(n));
  encoding_key const key{1, 0, 0};
  codec.encode(gradient_there<float>(n, 1), key, encoded);
  codec.wait();
  in_turn<std::byte> frame(encoded);
  in_turn<float> y(device<float>("decoded", n));
  auto const kernel = [&] {
    if constexpr (Add)
      codec.decode_add(frame.next(), key, y.next());
    else
      codec.decode(frame.next(), key, y.next());
  };
  std::vector<float> expected(n);
  auto const made = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), encoded);
  vector_codec{op}.decode(std::span<std::byte const>(made.data(), made.size()), key, expected);
  auto const is_right = [&] {
    for (auto const& each : y.all()) Kokkos::deep_copy(each, 0.0F);
    kernel();
    codec.wait();
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y.last());
    return std::memcmp(found.data(), expected.data(), n * sizeof(float)) == 0;
  };
  if (!is_right()) return fail(state, "the values differ from the host's");
  against_copy(state, n, (Add ? 8 : 4) * n + encoded.size(), kernel);
  if (!is_right()) fail(state, "the values differ from the host's after many calls");
}

// ---- codes only, as in the steps of a schedule

/// The codec of an operator on a ring of four workers, with a known scale.
class ring_of_four {
 public:
  template <class Operator>
  ring_of_four(Operator const& op, std::uint64_t n) : n_(n), agreed_("agreed", 1), scale_("scale", 1) {
    detail::operator_facts const facts = detail::facts_of(op);
    detail::resolution const r = detail::resolve(facts, schedule::ring::facts(4), 4);
    if (!r.fits()) throw configuration_error(r.refusal);
    codec_ = detail::make_codec(op, facts, r, kernel::stream_executor<space>{space()});
    kernel::agreed_call agreed;
    agreed.writes = true;
    Kokkos::deep_copy(Kokkos::subview(agreed_, 0),
                      Kokkos::View<kernel::agreed_call, Kokkos::HostSpace>(&agreed));
    Kokkos::deep_copy(scale_, 4.0);  // no value of gradient() is larger
  }
  void begin(const_vector x, mutable_vector y, int rank) {
    detail::codec_call c;
    c.x = x;
    c.y = y;
    c.length = n_;
    c.rank = rank;
    c.workers = 4;
    c.seed = 1;
    c.bucket_scales = std::span<double const>(scale_.data(), 1);
    c.agreed = agreed_.data();
    codec_->begin(c);
  }
  std::size_t bytes() const { return codec_->frame_bytes({0, n_}, 1); }
  void combine(bool own, std::span<source const> sources, std::span<std::byte> out) {
    codec_->combine({0, n_}, own, sources, out);
  }

 private:
  std::uint64_t n_;
  std::unique_ptr<detail::operator_codec> codec_;
  device<kernel::agreed_call> agreed_;
  device<double> scale_;
};

/// Codecs, each with a vector of its own, that take turns.
template <class Operator>
class rings_in_turn {
 public:
  rings_in_turn(Operator const& op, std::uint64_t n, int rank)
      : x_(gradient_there<float>(n, 1)), frame_(device<std::byte>("frame", ring_of_four(op, n).bytes())) {
    for (auto const& each : x_.all()) {
      codecs_.push_back(std::make_unique<ring_of_four>(op, n));
      codecs_.back()->begin({each.data(), dtype::float32}, {}, rank);
    }
  }
  /// The next codec adds its values to the sources.
  device<std::byte> const& combine(std::span<source const> sources) {
    auto const& out = frame_.next();
    codecs_[at_++ % codecs_.size()]->combine(true, sources, {out.data(), out.size()});
    return out;
  }

 private:
  in_turn<float> x_;
  in_turn<std::byte> frame_;
  std::vector<std::unique_ptr<ring_of_four>> codecs_;
  std::size_t at_ = 0;
};

/// The bytes of a frame on the host.
std::vector<std::byte> copied(device<std::byte> const& frame) {
  auto const here = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), frame);
  return {here.data(), here.data() + here.size()};
}

/// Times combine(), and fails unless its last result is that of its first call.
template <class Combine>
void time_combine(benchmark::State& state, std::uint64_t n, std::uint64_t bytes, Combine const& combine) {
  std::vector<std::byte> const expected = copied(combine());
  against_copy(state, n, bytes, combine);
  if (copied(combine()) != expected) fail(state, "the frame differs after many launches");
}

template <class Operator>
void time_encode_alone(benchmark::State& state, std::uint64_t n, Operator const& op) {
  rings_in_turn<Operator> rings(op, n, 0);
  time_combine(
      state, n, 5 * n, [&]() -> auto const& { return rings.combine({}); });
}

/// A hop of a ring: own values and a frame become the next frame.
template <class Operator>
void time_requantize(benchmark::State& state, std::uint64_t n, Operator const& op) {
  rings_in_turn<Operator> first(op, n, 0), second(op, n, 1);
  in_turn<std::byte> received(first.combine({}));
  time_combine(
      state, n, 6 * n, [&]() -> auto const& {
        auto const& from = received.next();
        source const frame[] = {{{from.data(), from.size()}, 1, 0}};
        return second.combine(frame);
      });
}

struct alignas(16) sixteen_bytes {
  std::uint32_t x, y, z, w;
};

/// Adds bytes, sixteen at a time.
struct plain_sum {
  sixteen_bytes const *a, *b;
  sixteen_bytes* sum;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    sixteen_bytes const x = a[i], y = b[i];
    sum[i] = {quad::add(x.x, y.x), quad::add(x.y, y.y), quad::add(x.z, y.z), quad::add(x.w, y.w)};
  }
};

/// The plain sum of the codes of two frames without scales.
plain_sum sum_of_codes(device<std::byte> const& a, device<std::byte> const& b, device<std::byte> const& sum) {
  return {reinterpret_cast<sixteen_bytes const*>(a.data() + wire::header_bytes),
          reinterpret_cast<sixteen_bytes const*>(b.data() + wire::header_bytes),
          reinterpret_cast<sixteen_bytes*>(sum.data() + wire::header_bytes)};
}

void launch(plain_sum const& body, std::uint64_t n) {
  Kokkos::parallel_for("sum", Kokkos::RangePolicy<space>(space(), 0, n / 16), body);
}

template <class Operator>
void time_reduce(benchmark::State& state, std::uint64_t n, Operator const& op) {
  in_turn<std::byte> a(rings_in_turn<Operator>(op, n, 0).combine({})),
      b(rings_in_turn<Operator>(op, n, 1).combine({})), sum(device<std::byte>("sum", a.first().size()));
  ring_of_four codec(op, n);
  codec.begin({nullptr, dtype::float32}, {}, 2);
  auto const kernel = [&]() -> auto const& {
    auto const &one = a.next(), &other = b.next(), &out = sum.next();
    source const frames[] = {{{one.data(), one.size()}, 1, 0}, {{other.data(), other.size()}, 1, 1}};
    codec.combine(false, frames, {out.data(), out.size()});
    return out;
  };
  std::vector<std::byte> const expected = copied(kernel());
  state.counters["omega"] =
      against(state, {n, 3 * n}, kernel, [&] { launch(sum_of_codes(a.next(), b.next(), sum.next()), n); });
  if (copied(kernel()) != expected) fail(state, "the frame differs after many launches");
}

/// The floor of reduces.
void time_plain_sum(benchmark::State& state, std::uint64_t n) {
  in_turn<std::byte> a(device<std::byte>("a", n + 16)), b = a.others(), sum = a.others();
  against_copy(state, n, 3 * n, [&] { launch(sum_of_codes(a.next(), b.next(), sum.next()), n); });
}

/// Removes `--check N` from the arguments. @returns false unless N is a positive multiple of 16, as all benchmarks need
bool take_check(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--check") continue;
    std::uint64_t const n = i + 1 < argc ? std::strtoull(argv[i + 1], nullptr, 10) : 0;
    only_checks = true;
    lengths = {n};
    std::copy(argv + std::min(i + 2, argc), argv + argc + 1, argv + i);
    argc -= 2;
    return n >= 16 && n % 16 == 0;
  }
  return true;
}

}  // namespace
}  // namespace GLOBALQ_ABI::bench

int main(int argc, char** argv) {
  using namespace globalq;
  using namespace globalq::bench;
  Kokkos::ScopeGuard const kokkos(argc, argv);
  if (!take_check(argc, argv)) {
    std::fputs("globalq_device_bench: --check takes a number of values, a multiple of 16\n", stderr);
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("space", space::name());
  if (!only_checks) benchmark::AddCustomContext("vectors", "taken in turn from 256 MiB");
#if defined(KOKKOS_ENABLE_CUDA)
  cudaDeviceProp const device = space().cuda_device_prop();
  benchmark::AddCustomContext("device", device.name);
#endif
  using state = benchmark::State;
  add("norm/linf", [](state& s, std::uint64_t n) { time_norm(s, n, infinity); });
  add("norm/l2", [](state& s, std::uint64_t n) { time_norm(s, n, 2); });
#if defined(KOKKOS_ENABLE_CUDA)
  add("norm/linf/cub",
      [](state& s, std::uint64_t n) { time_norm_by_cub<float>(s, n, larger_of{}, magnitude_of{}); });
  add("norm/l2/cub",
      [](state& s, std::uint64_t n) { time_norm_by_cub<double>(s, n, sum_of{}, square_of{}); });
#endif
  add("encode/uniform/int8",
      [](state& s, std::uint64_t n) { time_encode_alone(s, n, bench::uniform_int8()); });
  add("encode/exponential/int8",
      [](state& s, std::uint64_t n) { time_encode_alone(s, n, bench::exponential_int8()); });
  add("norm_and_encode/uniform/int8",
      [](state& s, std::uint64_t n) { time_encode(s, n, bench::uniform_int8()); });
  add("norm_and_encode/uniform/packed4/bucket128",
      [](state& s, std::uint64_t n) { time_encode(s, n, uniform_packed4_bucket128()); });
  add("norm_and_encode/local/int8/bucket512",
      [](state& s, std::uint64_t n) { time_encode(s, n, local_int8_bucket512(), 1); });
  add("norm_and_encode/local/packed4/bucket128",
      [](state& s, std::uint64_t n) { time_encode(s, n, local_packed4_bucket128(), 1); });
  add("decode/uniform/int8",
      [](state& s, std::uint64_t n) { time_decode<false>(s, n, bench::uniform_int8()); });
  add("decode/local/packed4/bucket128",
      [](state& s, std::uint64_t n) { time_decode<false>(s, n, local_packed4_bucket128()); });
  add("decode_add/uniform/int8",
      [](state& s, std::uint64_t n) { time_decode<true>(s, n, bench::uniform_int8()); });
  add("requantize/uniform/int8",
      [](state& s, std::uint64_t n) { time_requantize(s, n, bench::uniform_int8()); });
  add("reduce/plain/int8", time_plain_sum);
  add("reduce/uniform/int8", [](state& s, std::uint64_t n) { time_reduce(s, n, bench::uniform_int8()); });
  add("reduce/exponential/int8",
      [](state& s, std::uint64_t n) { time_reduce(s, n, bench::exponential_int8()); });
  add_sparse();
  std::size_t const run = benchmark::RunSpecifiedBenchmarks();
  return run == 0 || failed ? 1 : 0;
}
