// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The library's bits are those of a plain scalar reference (tests/support/reference.hpp).

#include "tests/support/reference.hpp"
#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using support::composition;

namespace {

struct scheme {
  char const* words;
  reference::levels levels;
};

std::vector<scheme> const schemes = {
    {"uniform:1", {reference::levels::kind::uniform, 1, 0, {}, false}},
    {"uniform:7", {reference::levels::kind::uniform, 7, 0, {}, false}},
    {"exponential:5", {reference::levels::kind::exponential, 5, 0, {}, false}},
    {"exponential:20", {reference::levels::kind::exponential, 20, 0, {}, false}},
    {"exponential:4:1.5",
     {reference::levels::kind::table,
      4,
      0,
      {static_cast<float>(8.0 / 27), static_cast<float>(4.0 / 9), static_cast<float>(2.0 / 3), 1.0F},
      true}},
    {"table:0,0.1,0.4,1", {reference::levels::kind::table, 3, 0, {0.1F, 0.4F, 1.0F}, false}},
    {"symmetric:0.1,0.3,0.6,1", {reference::levels::kind::symmetric, 4, 0, {0.1F, 0.3F, 0.6F, 1.0F}, false}},
};

char const* const roundings[] = {"stochastic", "random-shift",     "random-shift-unshifted",    "nearest",
                                 "correlated", "correlated-shift", "correlated-shift-unshifted"};

/// Runs the library on threads; all workers must agree.
std::vector<float> library_mean(composition const& c, std::vector<std::vector<float>> const& x,
                                std::uint64_t seed, std::uint64_t step, gq::method& how,
                                std::uint32_t& headroom) {
  int const n = static_cast<int>(x.size());
  gq::any_quantizer const op = support::make_operator(c);
  std::vector<std::vector<float>> y(x.size(), std::vector<float>(x[0].size()));
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = seed}};
    if (r == 0) how = mean.reduce(), headroom = mean.headroom();
    mean(x[r], y[r], step);
  });
  for (auto const& v : y) EXPECT_TRUE(support::same_bytes(v, y[0])) << c.text();
  return y[0];
}

class Reference : public testing::TestWithParam<int> {};

TEST_P(Reference, gives_the_same_bits_for_every_method_and_schedule) {
  int const n = GetParam();
  int cases = 0;
  for (std::size_t l = 0; l < schemes.size(); ++l)
    for (int r = 0; r < 7; ++r)
      for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2", "hierarchical:3"})
        for (char const* reduce : {"auto", "sum", "exponential", "requantize"})
          for (std::uint64_t bucket : {0U, 100U}) {
            if (r >= 5 && (reduce[0] != 'a' || bucket == 0)) continue;  // shares its loops with those before
            std::uint64_t const id = support::mix(
                l * 1000 + static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(n),
                support::hash_bytes(schedule, 3) + bucket + static_cast<std::uint64_t>(reduce[0]));
            char const* wires[] = {"int8", "int16", "int32", "packed:8"};
            composition const c{"linf",        bucket, schemes[l].words, roundings[r],
                                wires[id % 4], reduce, schedule};
            gq::any_quantizer const* op = nullptr;
            std::optional<gq::any_quantizer> made;
            try {
              made.emplace(support::make_operator(c));
              op = &*made;
            } catch (gq::configuration_error const&) {
              continue;
            }
            if (!gq::plan_for(*op, gq::schedule::any{schedule}, n, 1).fits) continue;
            std::uint64_t const d =
                bucket == 0 ? 1300 - id % 7 : 6400 * static_cast<std::uint64_t>(n) - 7 * 256 + id % 64;
            reference::problem p;
            p.x.assign(static_cast<std::size_t>(n), std::vector<float>(d));
            for (int w = 0; w < n; ++w)
              for (std::uint64_t i = 0; i < d; ++i) {
                float const v = support::value_at<float>(support::input::normal, id, w, n, i, d);
                // a third is small, some are zero, and some equal the maximum
                std::uint64_t const h = support::mix(id, i, static_cast<std::uint64_t>(w) + 5);
                p.x[static_cast<std::size_t>(w)][i] =
                    h % 3 == 0 ? v * 0x1p-9F : (h % 97 == 1 ? 0.0F : (h % 97 == 2 ? -2.0F : v));
              }
            p.schedule = schedule;
            p.bucket = bucket;
            p.seed = id;
            p.step = id >> 20 & 0xffffffffffULL;
            p.how = static_cast<reference::rounding>(r);
            gq::method how{};
            std::uint32_t headroom = 0;
            std::vector<float> const y = library_mean(c, p.x, p.seed, p.step, how, headroom);
            p.reduce = static_cast<reference::method>(how);
            p.scheme = schemes[l].levels;
            p.scheme.headroom = how == gq::method::exponential ? headroom : 0;
            std::vector<float> const expected = reference::mean(p);
            ++cases;
            for (std::uint64_t i = 0; i < d; ++i)
              if (support::word_of(y[i]) != support::word_of(expected[i]))
                FAIL() << c.text() << ", n = " << n << ", d = " << d << ": coordinate " << i << " is " << y[i]
                       << ", the reference says " << expected[i] << " (" << gq::name_of(how) << ")";
          }
  RecordProperty("cases", cases);
  EXPECT_GT(cases, 100);
}

INSTANTIATE_TEST_SUITE_P(workers, Reference, testing::Values(1, 2, 3, 4, 5));

}  // namespace
