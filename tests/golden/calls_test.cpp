// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Results, frames and bytes of calls are those that were recorded: operators x schedules x types x worlds.

#include "calls.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/vector_codec.hpp>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace gq = globalq;
using support::hash_bytes;
using support::mix;

namespace {

constexpr auto average = []<class T, class Value>(T& over, golden::golden_case const& c, std::span<Value> x,
                                                  std::uint64_t step, gq::options const& settings) {
  gq::any_quantizer const& op = c.op;
  gq::schedule::any const schedule{c.schedule};
  Kokkos::Serial const on_one_core;
  if (c.call == "allreduce_mean") {
    gq::allreduce_mean{over, op, schedule, settings, on_one_core}(x, step);
  } else if (c.call == "group") {
    std::size_t const d = x.size();
    std::span<Value> const first = x.first(d / 3), rest = x.subspan(d / 3);
    gq::allreduce_mean{over, op, schedule, settings, on_one_core}(gq::vector_group{}.add(first).add(rest),
                                                                  step);
  } else if (c.call == "reduce_scatter_mean") {
    gq::reduce_scatter_mean{over, op, settings, on_one_core}(x, step);
  } else if (c.call == "all_gather") {
    gq::all_gather{over, op, settings, on_one_core}(x, step);
  } else {
    throw std::runtime_error("there is no call " + c.call);
  }
};

#if defined(__GLIBC__)
/// Memory that nobody has written is no zeros, and must not travel.
int const not_zeros = mallopt(M_PERTURB, 0xA5);
#endif

TEST(Golden, results_frames_and_bytes_of_calls_are_those_recorded) {
  golden::expect_calls("calls.txt", 2000, average);
}

/// `OPERATOR: hash of frames`, of vectors of all types.
TEST(Golden, frames_of_vector_codec_are_those_recorded) {
  golden::record record("frames.txt");
  std::vector<golden::record::line> now;
  for (auto const& [name, before] : record.lines()) {
    golden::golden_case const c = golden::read_case("vector_codec - " + name);
    gq::vector_codec codec{c.op};
    std::uint64_t h = 0;
    auto const encode = [&]<class Value>(Value) {
      for (std::uint64_t d : {1U, 257U, 1000U}) {
        std::vector<Value> x(d);
        for (std::uint64_t i = 0; i < d; ++i)
          x[i] = support::value_at<Value>(support::input::normal, c.seed, 1, 3, i, d);
        std::vector<std::byte> frame(codec.frame_bytes(d, gq::dtype_of<Value>::value));
        frame.resize(codec.encode(x, {.seed = c.seed, .step = d}, frame));
        std::vector<Value> back(d);
        codec.decode(frame, {.seed = c.seed, .step = d}, back);
        h = mix(h, hash_bytes(frame.data(), frame.size()), hash_bytes(back.data(), d * sizeof(Value)));
      }
    };
    encode(float{});
    encode(double{});
    encode(gq::float16{});
    encode(gq::bfloat16{});
    now.emplace_back(name, golden::text(h));
  }
  EXPECT_GE(now.size(), 300U);
  record.expect(now);
}

}  // namespace
