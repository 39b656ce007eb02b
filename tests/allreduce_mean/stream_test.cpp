// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Calls on a stream give the bits of calls on the host, for one composition of each policy over every schedule.
///
/// The stream is an instance of Kokkos::Serial, and transport::staged carries its memory: what a GPU does, step by step, in
/// the shape of GPU threads. With Kokkos::Cuda the same file tests a GPU (tests/cuda).

#include "tests/support/allocations.hpp"
#include "tests/support/any_operator.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/space.hpp"
#include "tests/support/values.hpp"

#include <globalq/call/options.hpp>
#include <globalq/globalq.hpp>
#include <globalq/operator/stage.hpp>
#include <globalq/operator/stream_stage.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <limits>
#include <tuple>

namespace gq = globalq;
using testing::HasSubstr;

namespace {

using support::space;
using memory = space::memory_space;
using staged = gq::transport::staged<gq::transport::threads::endpoint, space>;

/// A stream for each worker.
space stream_of([[maybe_unused]] gq::transport::threads::endpoint& workers) {
#if defined(KOKKOS_ENABLE_CUDA)
  return Kokkos::Experimental::partition_space(space(), 1)[0];
#else
  return workers.execution();
#endif
}

/// A vector in the memory of the stream.
template <class Value>
class on_device {
 public:
  using view = Kokkos::View<Value*, memory>;

  explicit on_device(std::vector<Value> const& x) : values_("values", x.size()) { *this = x; }
  on_device& operator=(std::vector<Value> const& x) {
    Kokkos::deep_copy(values_, host(const_cast<Value*>(x.data()), x.size()));
    return *this;
  }
  operator std::vector<Value>() const {
    std::vector<Value> x(values_.size());
    Kokkos::deep_copy(host(x.data(), x.size()), values_);
    return x;
  }
  view const& values() const { return values_; }

 private:
  using host = Kokkos::View<Value*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  view values_;
};

static_assert(gq::Transport<staged> && gq::transport::OnStream<staged> &&
              gq::transport::OwnAllgather<staged>);
static_assert(gq::transport::OwnAllreduceSum<staged, std::int8_t>);

/// As over a transport that only enqueues: nobody but the kernels sees what went wrong before the payload moves.
struct unattended : staged {
  using staged::staged;
  static constexpr bool host_driven = false;
};

/// Damages what arrives, when it is told to.
struct damaging : unattended {
  using unattended::unattended;
  bool on = false;
  std::size_t from_bytes = 0;  ///< only messages of so many
  std::span<std::byte> arriving;

  request recv_async(int peer, std::span<std::byte> bytes) {
    arriving = bytes;
    return unattended::recv_async(peer, bytes);
  }
  void wait(request& posted) {
    unattended::wait(posted);
    auto const bytes = std::exchange(arriving, {});
    if (!on || bytes.empty() || bytes.size() < from_bytes) return;
    using view = Kokkos::View<unsigned char*, memory, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Kokkos::deep_copy(execution(), view(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()),
                      static_cast<unsigned char>(0x80));
  }
};
static_assert(gq::Transport<unattended> && gq::transport::OnStream<damaging>);

inline constexpr gq::rounding::stochastic dice;

/// A stage of a user: half the value with the other sign, which is exact.
struct turned : gq::stage, gq::stream_stage<support::space> {
  struct times {
    void const* x;
    void* y;
    gq::dtype type;
    std::uint64_t first;
    double factor;
    gq::kernel::agreed_call const* agreed;  ///< null: whatever the call has
    GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
      if (agreed != nullptr && !agreed->writes) return;
      if (type == gq::dtype::float64)
        static_cast<double*>(y)[first + i] = static_cast<double const*>(x)[first + i] * factor;
      else
        static_cast<float*>(y)[first + i] =
            static_cast<float const*>(x)[first + i] * static_cast<float>(factor);
    }
  };
  std::string name() const override { return "turned"; }
  std::uint64_t grain() const override { return 1; }
  void enter(gq::stage_call const& c, gq::const_vector x, gq::segment part, gq::mutable_vector to,
             gq::mutable_vector) const override {
    c.on.items(part.count, times{x.data, to.data, c.type, part.first, -0.5, nullptr});
  }
  bool leave(gq::stage_call const& c, gq::mutable_vector mean, gq::const_vector,
             gq::segment part) const override {
    c.on.items(part.count, times{mean.data, mean.data, c.type, part.first, -2, nullptr});
    return false;
  }
  using there = gq::stream_stage_call<support::space>;
  void enter(there const& c, gq::const_vector x, gq::segment part, gq::mutable_vector to) const override {
    c.on.items(part.count, times{x.data, to.data, c.type, part.first, -0.5, nullptr});
  }
  void leave(there const& c, gq::mutable_vector mean, gq::segment part) const override {
    c.on.items(part.count, times{mean.data, mean.data, c.type, part.first, -2, c.agreed});
  }
};

using one_bit_float = gq::levels::minifloat<2, 0>;  ///< 0, 1, 2, 4

/// One composition of each policy, with a name.
std::vector<std::pair<char const*, support::any_operator>> operators() {
  return {
    {"uniform", gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}}},
        {"shifted buckets", gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::uniform{5},
                                          gq::rounding::random_shift<>{}, gq::wire::packed<5>{}}},
        {"exponential", gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, dice, gq::wire::int8{}}},
        {"exponential buckets",
         gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::exponential<>{}, dice, gq::wire::int16{}}},
        {"local", gq::quantizer{gq::norm::local<3>{.bucket = 512}, gq::levels::symmetric{0.25, 0.5, 1}, dice,
                                gq::wire::packed<3>{}}},
        {"local maxima of short buckets", gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128},
                                                        gq::levels::uniform{7}, dice, gq::wire::packed<4>{}}},
        {"local buckets of two blocks", gq::quantizer{gq::norm::local<2>{.bucket = 8192},
                                                      gq::levels::uniform{7}, dice, gq::wire::packed<4>{}}},
        {"local long buckets", gq::quantizer{gq::norm::local<2>{.bucket = 10000}, gq::levels::uniform{7},
                                             dice, gq::wire::packed<4>{}}},
        {"scales of two levels",
         gq::quantizer{gq::norm::two_level<one_bit_float>{}, one_bit_float{}, dice, gq::wire::packed<3>{}}},
        {"scales of two levels, of longer blocks",
         gq::quantizer{gq::norm::two_level<one_bit_float>{64}, one_bit_float{}, dice, gq::wire::packed<3>{}}},
        {"turned, scales of two levels",
         support::mapped(gq::quantizer{gq::norm::two_level<one_bit_float>{}, one_bit_float{}, dice,
                                       gq::wire::packed<3>{}},
                         std::make_shared<turned>())},
        {"rounded up", gq::quantizer{gq::norm::power_of_two<gq::norm::linf>{{.bucket = 100}},
                                     gq::levels::exponential<>{}, dice, gq::wire::int8{}}},
        {"local rounded up in short buckets",
         gq::quantizer{gq::norm::power_of_two<gq::norm::local<2>>{{.bucket = 32}}, gq::levels::uniform{7},
                       dice, gq::wire::packed<4>{}}},
        {"local rounded up", gq::quantizer{gq::norm::power_of_two<gq::norm::local<2>>{{.bucket = 10000}},
                                           gq::levels::uniform{7}, dice, gq::wire::packed<4>{}}},
        {"seventh order",
         gq::quantizer{gq::norm::l<7, 3>{}, gq::levels::uniform<>{}, dice, gq::wire::int16{}}},
        {"fixed", gq::quantizer{gq::norm::fixed{.scale = 64, .bucket = 64}, gq::levels::uniform<>{}, dice,
                                gq::wire::int16{}}},
#if !defined(KOKKOS_ENABLE_CUDA) || defined(GLOBALQ_TEST_IN_FULL)  // kernels of their own: a minute of nvcc
        {"local and shifted",
         gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 64}, gq::levels::uniform<1>{},
                       gq::rounding::random_shift<false>{}, gq::wire::packed<2>{}}},
        {"local whole", gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::uniform<1>{},
                                      gq::rounding::random_shift<false>{}, gq::wire::packed<2>{}}},
        {"table", gq::quantizer{gq::norm::l<1, gq::infinity>{}, gq::levels::table{0, 0.1, 1},
                                gq::rounding::nearest{}, gq::wire::int32{}}},
        {"correlated", gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::correlated{},
                                     gq::wire::int8{}}},
        {"correlated by a table",
         gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 64}, gq::levels::symmetric{0.25, 0.5, 1},
                       gq::rounding::correlated{}, gq::wire::packed<3>{}}},
#endif
        {"sparse", gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{5}, dice, gq::wire::sparse<>{}}},
        {"sparse local", gq::quantizer{gq::norm::local<2>{.bucket = 300}, gq::levels::symmetric{0.25, 0.5, 1},
                                       dice, gq::wire::sparse<>{}}},
        {"rotated",
         support::rotated(gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
                          64)},
        {"rotated in long blocks",
         support::rotated(gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{7},
                                        dice, gq::wire::packed<4>{}},
                          16384)},
        {"rotated twice",
         support::rotated(
             support::rotated(
                 gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{100}, dice, gq::wire::int16{}}, 4096),
             2)},
        {"turned and rotated",
         support::mapped(
             support::rotated(
                 gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}}, 8),
             std::make_shared<turned>())},
        {"feedback", support::with_feedback(
                         gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}})},
        {"feedback of local maxima",
         support::with_feedback(gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128},
                                              gq::levels::uniform{7}, dice, gq::wire::packed<4>{}},
                                {.decay = 0.9F, .average = 0.3F})},
        {"feedback in 8 bits before a rotation",
         support::with_feedback(
             support::rotated(gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128},
                                            gq::levels::uniform{7}, dice, gq::wire::packed<4>{}},
                              16384),
             {.decay = 0.9F, .average = 0.3F, .bits = 8})},
        {"feedback of sparse frames",
         support::with_feedback(
             gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 300}, gq::levels::symmetric{0.25, 0.5, 1},
                           dice, gq::wire::sparse<>{}},
             {.bits = 8})},
        {"feedback of scales of two levels",
         support::with_feedback(gq::quantizer{gq::norm::two_level<one_bit_float>{}, one_bit_float{}, dice,
                                              gq::wire::packed<3>{}})},
        {"sums of maxima by more bits",
         support::second_half(
             gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
             gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{7}, dice,
                           gq::wire::packed<4>{}})},
        {"sums by scales of two levels, rotated",
         support::rotated(
             support::second_half(gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128},
                                                gq::levels::uniform{3}, dice, gq::wire::packed<4>{}},
                                  gq::quantizer{gq::norm::two_level<one_bit_float>{}, one_bit_float{}, dice,
                                                gq::wire::packed<3>{}}),
             64)},
        {"sums of buckets by one scale",
         support::second_half(gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128},
                                            gq::levels::uniform{3}, dice, gq::wire::packed<4>{}},
                              gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::uniform{7}, dice,
                                            gq::wire::packed<4>{}})},
        {"eden", support::eden<2>(64)},
#if !defined(KOKKOS_ENABLE_CUDA) || defined(GLOBALQ_TEST_IN_FULL)
        {"eden of the shortest blocks", support::eden<1>(2)},
        {"eden of blocks of two pieces", support::eden<3>(8192)},
        {"eden, rotated", support::rotated(support::eden<4>(1024), 256)},
#endif
        {"float32", gq::uncompressed{}}, {"bfloat16", gq::floats<gq::bfloat16>{}},
        {"float16", gq::floats<gq::float16>{}},
        {"float16 to nearest", gq::floats<gq::float16, gq::rounding::nearest>{}},
  };
}

/// Values of a worker, times 2^exponent.
template <class Value>
std::vector<Value> values_of(int rank, std::size_t d, int exponent = 0) {
  return support::values_of<Value>(static_cast<std::uint32_t>(rank) + 1, d, exponent);
}

using support::expect_same;

/// Two calls each on host and stream with the same input; compares all bits.
template <class Value>
void compare(char const* name, support::any_operator const& op, char const* how, int n, std::size_t d,
             gq::options o, int exponent = 0) {
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    std::vector<Value> on_host = values_of<Value>(workers.rank(), d, exponent);
    on_device<Value> const on_stream(on_host);
    gq::schedule::any const schedule{how};
    gq::allreduce_mean host{workers, op, schedule, o};
    gq::allreduce_mean stream{device, op, schedule, o};
    for (std::uint64_t step : {3U, 4U}) {
      host(on_host, step);
      stream(on_stream.values(), step);
      stream.wait();
      expect_same<Value>(on_host, on_stream,
                         std::string(name) + ", " + how + ", n " + std::to_string(n) + ", d " +
                             std::to_string(d) + ", " + gq::name_of(gq::dtype_of<Value>::value) + ", step " +
                             std::to_string(step));
    }
    EXPECT_TRUE(stream.good());
  });
}

bool fits(support::any_operator const& op, char const* how, int n) {
  return gq::plan_for(op, gq::schedule::any{how}, n, 1000).fits;
}

template <class Value>
void compare_schedules(int n, std::size_t d, gq::options o, int exponent = 0) {
  for (auto const& [name, op] : operators()) {
    for (char const* how : {"ring", "tree", "sra", "allgather", "native", "hierarchical:2"})
      if (fits(op, how, n)) compare<Value>(name, op, how, n, d, o, exponent);
  }
}

}  // namespace

TEST(Stream, same_bits_as_the_host_for_every_schedule_and_number_of_workers) {
  for (int n : {1, 2, 3, 5}) compare_schedules<float>(n, 10007, {.seed = 3});
}

TEST(Stream, same_bits_at_every_awkward_length_and_in_chunks) {
  for (std::size_t d : {0U, 1U, 15U, 31U, 64U, 255U, 257U, 1000U, 4096U, 4097U, 70001U})
    compare_schedules<float>(3, d, {.seed = 4, .chunk_values = d % 2 == 0 ? 0U : 2048U});
}

TEST(Stream, same_bits_for_every_type) {
  compare_schedules<double>(3, 5003, {.seed = 5});
  compare_schedules<gq::float16>(3, 5003, {.seed = 5});
  compare_schedules<gq::bfloat16>(3, 5003, {.seed = 5});
}

TEST(Stream, same_bits_at_both_ends_of_the_range) {
  for (int exponent : {1020, 900, -900, -1060})
    for (auto const& [name, op] : operators()) {
      if (std::string(name) == "fixed") continue;  // has an absolute scale
      for (char const* how : {"ring", "sra"})
        if (fits(op, how, 3)) compare<double>(name, op, how, 3, 3001, {.seed = 6}, exponent);
    }
  for (int exponent : {120, -130})
    for (auto const& [name, op] : operators()) {
      if (std::string(name) == "fixed") continue;
      for (char const* how : {"tree", "allgather", "sra"}) {
        if (!fits(op, how, 3)) continue;
        compare<float>(name, op, how, 3, 3001, {.seed = 6}, exponent);
        break;
      }
    }
}

namespace {

/// Averages with one worker's values changed, on host and stream; returns what each worker threw, and compares results.
template <class Value, class Spoil>
std::vector<std::string> spoiled(gq::non_finite mode, Spoil const& spoil, support::any_operator const& op) {
  gq::transport::threads cluster{3};
  std::vector<std::string> thrown(3);
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    std::vector<Value> on_host = values_of<Value>(workers.rank(), 3000);
    spoil(workers.rank(), on_host);
    on_device<Value> on_stream(on_host);
    std::string said;
    gq::allreduce_mean host{workers, op, gq::schedule::ring{}, {.non_finite = mode}};
    try {
      host(on_host, 1);
    } catch (gq::error const& e) {
      said = e.what();
    }
    gq::allreduce_mean stream{device, op, gq::schedule::ring{}, {.non_finite = mode}};
    auto const r = static_cast<std::size_t>(workers.rank());
    try {
      stream(on_stream.values(), 1);
      stream.wait();
    } catch (gq::error const& e) {
      thrown[r] = e.what();
    }
    EXPECT_EQ(thrown[r], said);
    EXPECT_TRUE(stream.good()) << "an error is thrown once";
    expect_same<Value>(on_host, on_stream, "results");
    // and the next call is as good as any
    std::vector<Value> on_host_again = values_of<Value>(workers.rank(), 3000);
    on_device<Value> const again(on_host_again);
    stream(again.values(), 2);
    stream.wait();
    host(on_host_again, 2);
    expect_same<Value>(on_host_again, again, "the next call");
  });
  return thrown;
}

/// The same for an operator without and with a stage.
template <class Value, class Spoil>
std::vector<std::string> spoiled(gq::non_finite mode, Spoil const& spoil) {
  gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  std::vector<std::string> all = spoiled<Value>(mode, spoil, op);
  auto const rotated = spoiled<Value>(mode, spoil, support::rotated(op, 32));
  all.insert(all.end(), rotated.begin(), rotated.end());
  return all;
}

}  // namespace

TEST(Stream, not_a_number_spreads_or_is_an_error_as_on_the_host) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto const spoil = [&](int rank, std::vector<float>& x) {
      if (rank == 1) x[1234] = bad;
    };
    for (std::string const& t : spoiled<float>(gq::non_finite::propagate, spoil)) EXPECT_EQ(t, "");
    for (std::string const& t : spoiled<float>(gq::non_finite::error, spoil))
      EXPECT_NE(t.find("the input of rank 1 contains NaN or infinity, nothing was changed"),
                std::string::npos)
          << t;
  }
}

TEST(Stream, zeros_stay_zeros) {
  auto const spoil = [](int rank, std::vector<float>& x) {
    for (float& v : x) v = rank == 2 ? -0.0F : 0.0F;
  };
  for (std::string const& t : spoiled<float>(gq::non_finite::error, spoil)) EXPECT_EQ(t, "");
}

TEST(Stream, refuses_what_stages_cannot_precede_there) {
  auto const refusal = [](support::any_operator const& op) {
    std::string text;
    gq::transport::threads{1}.run([&](auto& workers) {
      staged device{workers, stream_of(workers)};
      try {
        gq::allreduce_mean{device, op, gq::schedule::ring{}};
      } catch (gq::configuration_error const& e) {
        text = e.what();
      }
    });
    return text;
  };
  gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  EXPECT_THAT(refusal(support::rotated(gq::float32_tail{op}, 64)),
              HasSubstr("a float32 tail is supported only in host"));
  EXPECT_THAT(refusal(support::rotated(gq::centered{op}, 64)),
              HasSubstr("centered is not supported on this stream"));
  EXPECT_THAT(
      refusal(support::rotated(
          gq::quantizer{gq::norm::fixed{.scale = 64}, gq::levels::uniform<>{}, dice, gq::wire::int8{}}, 64)),
      HasSubstr("norm::fixed of mapped values is supported only in host memory"));
  EXPECT_THAT(refusal(support::rotated(gq::floats<gq::bfloat16>{}, 64)), HasSubstr("stages before floats"));
}

namespace {

/// Calls in turn, of which some have no mean (n: NaN) or only zeros (z), on host and stream: the same bits and residuals. After
/// half of them each continues with the residuals of the other.
/// @param steps  whether the stream reads the step in its memory
template <class Value>
void compare_calls(support::any_operator const& op, char const* how, int n, std::size_t d, bool steps) {
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    gq::telemetry seen_on_host({.errors = true}), seen_on_stream({.errors = true});
    gq::options o{.seed = 3, .chunk_values = d > 9000 ? 2048U : 0U};
    gq::schedule::any const schedule{how};
    o.telemetry = &seen_on_host;
    gq::allreduce_mean host{workers, op, schedule, o};
    o.telemetry = steps ? nullptr : &seen_on_stream;
    gq::allreduce_mean stream{device, op, schedule, o};
    Kokkos::View<std::uint64_t, memory> const counter("step");
    std::uint64_t step = 0;
    for (char const kind : std::string("vvnvzvzzvv")) {
      std::vector<Value> on_host = kind == 'z'
                                       ? std::vector<Value>(d)
                                       : values_of<Value>(workers.rank() + 10 * static_cast<int>(step), d);
      if (kind == 'n' && workers.rank() == n - 1)
        on_host[d / 2] = static_cast<Value>(std::numeric_limits<float>::quiet_NaN());
      on_device<Value> const on_stream(on_host);
      host(on_host, step);
      if (steps)
        stream(on_stream.values(), counter);
      else
        stream(on_stream.values(), step);
      stream.wait();
      std::string const where = op.facts().name + ", " + how + ", n " + std::to_string(n) + ", d " +
                                std::to_string(d) + ", " + gq::name_of(gq::dtype_of<Value>::value) +
                                ", step " + std::to_string(step);
      expect_same<Value>(on_host, on_stream, where);
      gq::saved_state const of_host = host.save(), of_stream = stream.save();
      EXPECT_EQ(of_host.bytes(), of_stream.bytes()) << where;
      if (step == 4) {
        stream.load({&of_host, 1});
        host.load({&of_stream, 1});
        EXPECT_EQ(host.save().bytes(), stream.save().bytes()) << where;
      }
      if (!steps) {
        gq::call_report const a = seen_on_host.last(), b = seen_on_stream.last();
        EXPECT_EQ(a.rounded, b.rounded) << where;
        EXPECT_EQ(a.zeros, b.zeros) << where;
        EXPECT_NEAR(a.energy, b.energy, 1e-9 * a.energy) << where;  // added in another order
        EXPECT_NEAR(a.error_energy, b.error_energy, 1e-9 * a.energy) << where;
      }
      ++step;
    }
  });
}

}  // namespace

TEST(Stream, error_feedback_keeps_the_residuals_of_the_host) {
  gq::quantizer const local{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{7}, dice,
                            gq::wire::packed<4>{}};
  gq::quantizer const own{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{3}, dice,
                          gq::wire::packed<4>{}};
  gq::quantizer const sums{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  gq::feedback_options const loco{.decay = 0.9F, .average = 0.3F, .bits = 8, .reset = 3};
  auto const compare_types = [](support::any_operator const& op, char const* how, int n, std::size_t d) {
    compare_calls<float>(op, how, n, d, n == 2);
    if (n != 3) return;
    compare_calls<double>(op, how, n, d, d == 1000);
    compare_calls<gq::float16>(op, how, n, d, false);
    compare_calls<gq::bfloat16>(op, how, n, d, false);
  };
  for (int n : {1, 2, 3, 4, 5})
    for (std::size_t d : {1U, 1000U, 9001U}) {
      for (char const* how : {"allgather", "sra"}) {
        compare_types(support::with_feedback(local), how, n, d);
        compare_types(support::with_feedback(support::rotated(local, 64), loco), how, n, d);
      }
      compare_types(support::with_feedback(support::second_half(own, local)), "sra", n, d);
      for (char const* how : {"ring", "tree", "native", "hierarchical:2"})
        compare_types(support::with_feedback(sums, loco), how, n, d);
    }
}

TEST(Stream, a_residual_stays_with_vectors_of_its_length) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    support::any_operator const op = support::with_feedback(
        gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}});
    gq::allreduce_mean host{workers, op, gq::schedule::ring{}};
    gq::allreduce_mean stream{device, op, gq::schedule::ring{}};
    EXPECT_EQ(stream.save().bytes(), host.save().bytes()) << "before the first call";
    std::vector<float> const bad(700, std::numeric_limits<float>::quiet_NaN());
    on_device<float> const none(bad);
    stream(none.values(), 0);  // keeps nothing, so that another length may follow
    std::uint64_t step = 1;
    for (std::size_t d : {1000U, 0U, 1000U, 5000U, 900U}) {
      std::vector<float> x = values_of<float>(workers.rank(), d);
      on_device<float> const y(x);
      if (d == 5000 || d == 900) {
        try {
          stream(y.values(), step);
          ADD_FAILURE() << "no error";
        } catch (gq::configuration_error const& e) {
          EXPECT_THAT(e.what(), HasSubstr("values of type float32, its residual"));
        }
        expect_same<float>(x, y, "a vector that is refused");
        host.forget_residuals();
        stream.forget_residuals();
      }
      host(x, step);
      stream(y.values(), step);
      stream.wait();
      expect_same<float>(x, y, "length " + std::to_string(d));
      ++step;
    }
    gq::saved_state const state = stream.save();
    stream.load({&state, 1});
    EXPECT_EQ(stream.save().bytes(), host.save().bytes());
    gq::allreduce_mean plain{device, gq::uncompressed{}, gq::schedule::ring{}};
    EXPECT_EQ(plain.save().size(), 0U);
    plain.forget_residuals();
    EXPECT_THROW(plain.load({&state, 1}), gq::configuration_error);
  });
}

TEST(Stream, vectors_behind_pointers_give_the_same_bits) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    std::vector<float> const values = values_of<float>(workers.rank(), 1000), zeros(1000);
    on_device<float> const x(values), expected(zeros), y(zeros);
    gq::allreduce_mean mean{device, op, gq::schedule::ring{}};
    mean(x.values(), expected.values(), 3);
    mean(x.values().data(), y.values().data(), 1000, 3);
    Kokkos::View<std::uint64_t, support::space> const step("step");
    Kokkos::deep_copy(step, 3);
    mean(x.values().data(), 1000, step.data());
    mean.wait();
    expect_same<float>(y, expected, "from one pointer to another");
    expect_same<float>(x, expected, "in place, with the step at a pointer");
    std::uint64_t next = 0;
    Kokkos::deep_copy(next, step);
    EXPECT_EQ(next, 4U);
  });
}

TEST(Stream, workers_that_disagree_hear_of_it_before_anything_is_sent) {
  gq::transport::threads cluster{3};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    std::vector<float> const before = values_of<float>(workers.rank(), 1000);
    on_device<float> const x(before);
    std::uint64_t const seed = workers.rank() == 2 ? 8 : 7;
    gq::allreduce_mean stream{device, op, gq::schedule::ring{}, {.seed = seed}};
    for (int call = 0; call < 2; ++call) {
      try {
        stream(x.values(), 1);
        ADD_FAILURE() << "no error";
      } catch (gq::disagreement_error const& e) {
        EXPECT_NE(std::string(e.what()).find("rank 2 differs from rank 0 in the seed"), std::string::npos)
            << e.what();
      }
      expect_same<float>(x, before, "the vector");
    }
    // lengths
    gq::allreduce_mean other{device, op, gq::schedule::ring{}, {.seed = 7}};
    std::size_t const length = workers.rank() == 1 ? 999 : 1000;
    EXPECT_THROW(other(Kokkos::subview(x.values(), std::pair<std::size_t, std::size_t>(0, length)), 1),
                 gq::disagreement_error);
  });
}

TEST(Stream, a_value_beyond_a_fixed_scale_is_an_error_on_all) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::fixed{.scale = 1}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    std::vector<float> before(100, 0.5F);
    if (workers.rank() == 1) before[7] = -3;
    on_device<float> const x(before);
    gq::allreduce_mean stream{device, op, gq::schedule::ring{}};
    EXPECT_THROW(stream(x.values(), 1), gq::configuration_error);
    expect_same<float>(x, before, "the vector");
  });
}

TEST(Stream, a_result_beyond_float16_is_seen) {
  for (gq::non_finite mode : {gq::non_finite::propagate, gq::non_finite::error}) {
    gq::transport::threads cluster{1};
    cluster.run([&](auto& workers) {
      staged device{workers, stream_of(workers)};
      // shifted, so that a decoded value may pass the norm by half a gap
      gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{1}, gq::rounding::random_shift<>{},
                             gq::wire::int8{}};
      std::vector<gq::float16> x(64, gq::float16(65504.0F));
      gq::allreduce_mean stream{device, op, gq::schedule::ring{}, {.non_finite = mode}};
      bool seen = false;
      for (std::uint64_t step = 0; step < 64 && !seen; ++step) {
        on_device<gq::float16> const y(x);
        try {
          stream(y.values(), step);
          stream.wait();
          std::vector<gq::float16> const result = y;
          seen = std::isnan(static_cast<float>(result[0]));
          for (gq::float16 v : result) EXPECT_EQ(std::isnan(static_cast<float>(v)), seen);
          EXPECT_FALSE(seen && mode == gq::non_finite::error);
        } catch (gq::non_finite_error const&) {
          EXPECT_EQ(mode, gq::non_finite::error);
          seen = true;
        }
      }
      EXPECT_TRUE(seen);
    });
  }
}

TEST(Stream, what_kernels_find_is_thrown_by_the_next_call_or_by_waiting) {
  gq::transport::threads cluster{3};
  cluster.run([&](auto& workers) {
    unattended device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    std::vector<float> const good = values_of<float>(workers.rank(), 3000);
    std::vector<float> bad = good;
    if (workers.rank() == 1) bad[77] = std::numeric_limits<float>::quiet_NaN();
    gq::allreduce_mean stream{
        device, op, gq::schedule::ring{}, {.seed = 7, .non_finite = gq::non_finite::error}};
    gq::allreduce_mean host{workers, op, gq::schedule::ring{}, {.seed = 7}};
    on_device<float> x(good);
    stream(x.values(), 0);  // waits: the length is new
    stream.wait();

    x = bad;
    stream(x.values(), 1);
    device.execution().fence();
    EXPECT_FALSE(stream.good());
    expect_same<float>(x, bad, "a vector that has no mean");
    on_device<float> const y(good);
    try {
      stream(y.values(), 2);
      ADD_FAILURE() << "no error";
    } catch (gq::non_finite_error const& e) {
      EXPECT_NE(std::string(e.what()).find("the input of rank 1 contains NaN or infinity"), std::string::npos)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("(found on the stream, in this call or an earlier one)"),
                std::string::npos)
          << e.what();
    }
    expect_same<float>(y, good, "the vector of the call that threw");
    EXPECT_TRUE(stream.good()) << "an error is thrown once";

    // a number that differs, in a call of a length that is known
    stream(y.values(), workers.rank() == 2 ? 9U : 8U);
    try {
      stream.wait();
      ADD_FAILURE() << "no error";
    } catch (gq::disagreement_error const& e) {
      EXPECT_NE(std::string(e.what()).find("rank 2 differs from rank 0 in the step"), std::string::npos)
          << e.what();
    }
    expect_same<float>(y, good, "a vector that workers disagree about");

    stream(y.values(), 10);
    stream.wait();
    std::vector<float> result = good;
    host(result, 10);
    expect_same<float>(y, result, "the call after all that");
  });
}

TEST(Stream, a_damaged_frame_is_an_error_where_it_arrived) {
  gq::transport::threads cluster{3};
  cluster.run([&](auto& workers) {
    damaging device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    std::vector<float> const good = values_of<float>(workers.rank(), 3000);
    // rank 1 is a leaf: what arrives there is the result
    gq::allreduce_mean stream{device, op, gq::schedule::tree{}, {.seed = 7}};
    on_device<float> expected(good), x(good);
    stream(expected.values(), 0);
    stream.wait();
    device.on = workers.rank() == 1;
    stream(x.values(), 0);
    device.on = false;
    if (workers.rank() == 1) {
      try {
        stream.wait();
        ADD_FAILURE() << "no error";
      } catch (gq::frame_error const& e) {
        EXPECT_NE(std::string(e.what()).find("rank 1 of 3: a received frame is corrupt"), std::string::npos)
            << e.what();
      }
    } else {
      stream.wait();
      expect_same<float>(x, expected, "the mean where nothing was damaged");
    }
    x = good;
    stream(x.values(), 0);
    stream.wait();
    expect_same<float>(x, expected, "the next call");
  });
}

TEST(Stream, chunks_of_a_tree_are_refused_where_workers_would_wait_for_ever) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    gq::options const chunks{.chunk_values = 2048};
    unattended device{workers, stream_of(workers)};
    staged attended{workers, stream_of(workers)};
    auto const expect_refusal = [&](auto const& schedule) {
      try {
        gq::allreduce_mean const mean{device, op, schedule, chunks};
        ADD_FAILURE() << "no error";
      } catch (gq::configuration_error const& e) {
        EXPECT_NE(std::string(e.what()).find("set it to 0 or use ring or sra"), std::string::npos)
            << e.what();
      }
    };
    expect_refusal(gq::schedule::any{"tree"});
    expect_refusal(gq::schedule::hierarchical<gq::schedule::star, gq::schedule::tree>{1});
    EXPECT_NO_THROW((gq::allreduce_mean{device, op, gq::schedule::ring{}, chunks}));
    EXPECT_NO_THROW((gq::allreduce_mean{device, op, gq::schedule::tree{}}));
    EXPECT_NO_THROW((gq::allreduce_mean{attended, op, gq::schedule::tree{}, chunks}));
  });
}

// Neither the head of a sparse frame nor its rest is taken on trust, wherever it is found out.
TEST(Stream, a_damaged_sparse_frame_is_an_error_where_it_arrived) {
  gq::transport::threads cluster{2, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    damaging device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::l<2, 2>{}, gq::levels::uniform{5}, dice, gq::wire::sparse<>{}};
    std::vector<float> const good = values_of<float>(workers.rank(), 30000);
    on_device<float> x(good);
    gq::allreduce_mean stream{device, op, gq::schedule::allgather{}, {.seed = 7}};
    gq::allreduce_mean host{workers, op, gq::schedule::allgather{}, {.seed = 7}};
    stream(x.values(), 0);
    stream.wait();
    device.from_bytes = 33;  // not the head
    device.on = workers.rank() == 1;
    stream(x.values(), 1);
    if (workers.rank() == 1) {
      EXPECT_THROW(stream.wait(), gq::frame_error);
    } else {
      EXPECT_NO_THROW(stream.wait());
    }
    device.on = false;
    x = good;
    stream(x.values(), 2);
    stream.wait();
    std::vector<float> result = good;
    host(result, 2);
    expect_same<float>(x, result, "the call after that");
    device.from_bytes = 0;
    device.on = true;
    EXPECT_THROW(stream(x.values(), 3), gq::frame_error) << "no length";
  });
}

// Frames travel, whatever codes came of such values; what is wrong with them is no news then.
TEST(Stream, not_a_number_spreads_over_sparse_frames_as_on_the_host) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    unattended device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::l<2, 2>{.bucket = 500}, gq::levels::uniform{5}, dice,
                           gq::wire::sparse<>{}};
    gq::allreduce_mean stream{device, op, gq::schedule::sra{}, {.seed = 7}};
    gq::allreduce_mean host{workers, op, gq::schedule::sra{}, {.seed = 7}};
    for (std::uint64_t step : {0U, 1U, 2U}) {  // a length that is new, a NaN in one that is known, and on
      std::vector<float> x = values_of<float>(workers.rank(), 30000);
      if (step == 1 && workers.rank() == 1) x[77] = std::numeric_limits<float>::quiet_NaN();
      on_device<float> const y(x);
      stream(y.values(), step);
      stream.wait();
      host(x, step);
      expect_same<float>(y, x, "step " + std::to_string(step));
    }
  });
}

TEST(Stream, fewer_bytes_are_sent_for_sparse_frames) {
  gq::transport::threads cluster{3};
  cluster.run([&](auto& workers) {
    auto const bytes_of = [&](auto wire) {
      staged device{workers, stream_of(workers)};
      gq::quantizer const op{gq::norm::l<2, 2>{}, gq::levels::uniform<3>{}, dice, wire};
      on_device<float> const x(values_of<float>(workers.rank(), 100000));
      gq::allreduce_mean stream{device, op, gq::schedule::allgather{}, {.seed = 7}};
      std::uint64_t const before = workers.bytes_sent();
      stream(x.values(), 0);
      stream.wait();
      return workers.bytes_sent() - before;
    };
    EXPECT_LT(bytes_of(gq::wire::sparse<>{}), bytes_of(gq::wire::packed<3>{}) / 10);
  });
}

TEST(Stream, halves_of_a_sharded_step_take_sparse_frames_and_keep_residuals) {
  gq::quantizer const sparse{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::uniform{5}, dice,
                             gq::wire::sparse<>{}};
  gq::quantizer const local{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{7}, dice,
                            gq::wire::packed<4>{}};
  for (support::any_operator const& op :
       {support::any_operator(sparse), support::with_feedback(local, {.decay = 0.9F, .average = 0.3F})}) {
    gq::transport::threads cluster{3};
    cluster.run([&](auto& workers) {
      staged device{workers, stream_of(workers)};
      std::vector<float> on_host = values_of<float>(workers.rank(), 10007);
      on_device<float> const on_stream(on_host);
      gq::reduce_scatter_mean scatter_there{device, op, {.seed = 7}};
      gq::reduce_scatter_mean scatter{workers, op, {.seed = 7}};
      gq::all_gather gather_there{device, op, {.seed = 7}};
      gq::all_gather gather{workers, op, {.seed = 7}};
      gq::broadcast send_there{device, op, 1, {.seed = 7}};
      gq::broadcast send{workers, op, 1, {.seed = 7}};
      for (std::uint64_t step : {1U, 2U}) {
        scatter(on_host, step);
        gather(on_host, step);
        scatter_there(on_stream.values(), step);
        scatter_there.wait();
        gather_there(on_stream.values(), step);
        gather_there.wait();
        expect_same<float>(on_host, on_stream, "step " + std::to_string(step));
        EXPECT_EQ(scatter.save().bytes(), scatter_there.save().bytes());
        EXPECT_EQ(gather.save().bytes(), gather_there.save().bytes());
        send(on_host, step + 10);
        send_there(on_stream.values(), step + 10);
        send_there.wait();
        expect_same<float>(on_host, on_stream, "broadcast, step " + std::to_string(step));
        EXPECT_EQ(send.save().bytes(), send_there.save().bytes());
      }
    });
  }
}

TEST(Stream, the_step_can_be_where_the_stream_is_and_is_counted) {
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    staged device{workers, stream_of(workers)};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
    on_device<float> const x(values_of<float>(workers.rank(), 1000));
    gq::allreduce_mean numbered{device, op, gq::schedule::ring{}, {.seed = 1}};
    gq::allreduce_mean counting{device, op, gq::schedule::ring{}, {.seed = 1}};
    Kokkos::View<std::uint64_t, memory> const step("step");
    auto const now = [&] {
      std::uint64_t value = 0;
      Kokkos::deep_copy(value, step);
      return value;
    };
    Kokkos::deep_copy(step, 11);
    on_device<float> const a(std::vector<float>(1000)), b(std::vector<float>(1000));
    for (std::uint64_t s = 11; s < 14; ++s) {
      EXPECT_EQ(now(), s);
      numbered(x.values(), a.values(), s);
      numbered.wait();
      counting(x.values(), b.values(), step);
      counting.wait();
      expect_same<float>(a, b, "step " + std::to_string(s));
    }
    EXPECT_EQ(now(), 14U);
    Kokkos::View<std::uint64_t*, memory> const two("step", 2);
    EXPECT_THROW(counting(x.values(), two), gq::configuration_error);
    EXPECT_THROW(counting(x.values(), static_cast<std::uint64_t*>(nullptr)), gq::configuration_error);
    Kokkos::deep_copy(step, std::uint64_t{1} << 48);
    EXPECT_THROW(counting(x.values(), step), gq::configuration_error);
    EXPECT_THROW(numbered(x.values(), std::uint64_t{1} << 48), gq::configuration_error);
  });
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TEST(Stream, nothing_of_its_own_is_allocated_after_the_first_calls) {
  for (auto const& each : operators()) {
    gq::transport::threads cluster{3};
    cluster.run([&](auto& workers) {
      staged device{workers, stream_of(workers)};
      on_device<float> const x(values_of<float>(workers.rank(), 20000));
      gq::allreduce_mean stream{device, each.second, gq::schedule::sra{}, {.seed = 1}};
      if (!fits(each.second, "sra", 3)) return;
      std::uint64_t least = ~std::uint64_t{0};
      for (std::uint64_t step = 0; step < 8; ++step) {
        auto const before = support::own_allocations;
        stream(x.values(), step);
        stream.wait();
        least = std::min<std::uint64_t>(least, support::own_allocations - before);
      }
      EXPECT_EQ(least, 0U) << each.first;
    });
  }
}

namespace {
std::atomic<int> launches{0};
}

TEST(Stream, launches_of_a_call_do_not_grow_with_the_number_of_segments) {
  using namespace Kokkos::Tools::Experimental;
  set_begin_parallel_for_callback([](char const* name, std::uint32_t, std::uint64_t*) {
    if (std::string_view(name) == "globalq") ++launches;
  });
  support::any_operator const whole =
      gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, dice, gq::wire::int8{}};
  support::any_operator const local =
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::packed<4>{}};
  // statistics, decision, end; leaves, the sum of a segment, means; the frame of one segment, or all in one launch. Norms of
  // one's own are measured with the leaves, and the record is a launch
  struct call_over {
    support::any_operator const* op;
    char const* how;
    int n, most;
  };
  for (call_over const& c : {call_over{&whole, "sra", 8, 6},
                             {&whole, "sra", 9, 7},
                             {&whole, "sra", 10, 10},
                             {&whole, "allgather", 8, 5},
                             {&local, "sra", 8, 6},
                             {&local, "allgather", 8, 5}}) {
    int const n = c.n;
    gq::transport::threads cluster{n};
    std::barrier all(n);
    cluster.run([&](auto& workers) {
      staged device{workers, stream_of(workers)};
      on_device<float> const x(values_of<float>(workers.rank(), 100000));
      gq::allreduce_mean stream{device, *c.op, gq::schedule::any{c.how}, {.seed = 1}};
      for (std::uint64_t step = 0; step < 2; ++step) {
        all.arrive_and_wait();
        if (workers.rank() == 0) launches = 0;
        all.arrive_and_wait();
        stream(x.values(), step);
        stream.wait();
      }
      all.arrive_and_wait();
      if (workers.rank() == 0) {
        EXPECT_LE(launches, n * c.most) << c.how << " with " << n << (c.op == &local ? ", local" : "");
      }
    });
  }
  set_begin_parallel_for_callback(nullptr);
}
#endif
