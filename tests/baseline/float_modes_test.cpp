// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A caller's rounding mode and flushing of subnormals, on one worker, change no bit of compressors, learned levels and
/// choices.

#include "cases.hpp"
#include "tests/support/caller_mode.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/one_bit.hpp>
#if defined(GLOBALQ_HAS_EIGEN)
#include <globalq/baseline/power_sgd.hpp>
#endif
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/minifloat.hpp>
#include <globalq/operator/clip.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/train/adapt/adaptive_mean.hpp>
#include <globalq/train/learn/level_learner.hpp>
#include <globalq/train/learn/multiplier.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace gq = globalq;
namespace cp = globalq::baseline;

namespace {

using support::caller_mode;
using support::mode;

using endpoint = gq::transport::threads::endpoint;
using vector = std::vector<float>;

/// body(workers, x) -> the worker's result; the same bits with each mode on worker 0 or 1.
template <class Body>
void expect_same_bits(char const* what, Body const& body) {
  std::vector<vector> right;
  for (mode const m : {mode::standard, mode::upward, mode::flushing})
    for (int const who : {0, 1}) {
      std::vector<vector> found(2);
      support::on_threads(2, [&](endpoint& workers) {
        vector x = cases::values(5000, static_cast<unsigned>(workers.rank()) + 1);
        for (float& v : x) v *= 0.1F;
        for (std::size_t i = 0; i < 50; ++i) x[i] *= 0x1p-140F;  // subnormal
        caller_mode const here(workers.rank() == who ? m : mode::standard);
        found[static_cast<std::size_t>(workers.rank())] = body(workers, x);
      });
      if (right.empty()) right = found;
      for (std::size_t r = 0; r < 2; ++r)
        EXPECT_TRUE(cases::same_bits(found[r], right[r]))
            << what << ", mode " << static_cast<int>(m) << " on worker " << who;
    }
}

gq::adapt::model_layout layers() {
  gq::adapt::model_layout l;
  l.add("a", {30, 100}).add("b", {2000});
  return l;
}

/// The means of four steps with error feedback.
template <class Make>
void expect_compressor(char const* what, Make const& make) {
  expect_same_bits(what, [&](endpoint& workers, vector const& x) {
    cp::error_feedback c{make()};
    vector all, mean(x.size());
    for (std::uint64_t step = 0; step < 4; ++step) {
      c.reduce(workers, x, mean, step);
      all.insert(all.end(), mean.begin(), mean.end());
    }
    return all;
  });
}

TEST(FloatModes, change_no_bit_of_compressors) {
  expect_compressor("top_k", [] { return cp::top_k{layers(), {.density = 0.0123}}; });
  expect_compressor("top_k, 4 bits", [] { return cp::top_k{layers(), {.density = 0.0123, .bits = 4}}; });
  expect_compressor("rand_k", [] { return cp::rand_k<>{layers(), {.density = 0.07, .unbiased = false}}; });
  expect_compressor("send_first", [] { return cp::send_first<>{layers(), {.gamma = 3}}; });
  expect_compressor("sign_sgd", [] { return cp::sign_sgd{layers(), {.scale = cp::sign_scale::layers}}; });
  expect_compressor("one_bit", [] { return cp::one_bit{layers()}; });
  expect_compressor("thc", [] { return cp::thc<>{layers(), {.cut = 0.03}}; });
  expect_compressor("thc with 8 bits", [] { return cp::thc<>{layers(), {.bits = 8}}; });
#if defined(GLOBALQ_HAS_EIGEN)
  expect_compressor("power_sgd", [] { return cp::power_sgd<>{layers(), {.rank = 2}}; });
#endif
  expect_compressor("int_sgd", [] {
    cp::int_sgd<> c{layers()};
    c.observe(0.1, 0.3);
    return c;
  });
}

TEST(FloatModes, change_no_choice) {
  expect_same_bits("adaptive", [](endpoint& workers, vector const& x) {
    cp::adaptive c{cp::top_k{layers(), {.density = 0.013}},
                   {.candidates = gq::adapt::around(0.013, 9), .reference = 0.013, .every = 2}};
    vector all, mean(x.size());
    for (std::uint64_t step = 0; step < 6; ++step) {
      c.reduce(workers, x, mean, step);
      all.insert(all.end(), mean.begin(), mean.end());
    }
    return all;
  });
  expect_same_bits("adaptive_mean", [](endpoint& workers, vector const& x) {
    gq::adapt::adaptive_mean mean{workers, layers(), gq::schedule::any{"sra"}, {.every = 2}};
    vector all;
    for (std::uint64_t step = 0; step < 6; ++step) {
      vector y = x;
      mean(y, step);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  });
}

TEST(FloatModes, change_no_level) {
  auto const learned = [](auto const& norm, auto const& solver, gq::learn::learner_options const& how) {
    return [=](endpoint& workers, vector const& x) {
      gq::learn::level_learner learner{norm, solver, how};
      vector all;
      auto const found = learner.update(workers, x, 100);
      for (double const v : found->levels.values)  // as two words, since a conversion would round in the mode
        for (int const shift : {0, 32})
          all.push_back(gq::float_of(static_cast<std::uint32_t>(gq::bits_of(v) >> shift)));
      return all;
    };
  };
  expect_same_bits("optimal", learned(gq::norm::l<3, 3>{}, gq::learn::optimal{.size = 7}, {}));
  expect_same_bits("multiplier", learned(gq::norm::local<2>{.bucket = 300}, gq::learn::multiplier{.size = 4},
                                         {.exchange = gq::learn::statistics::normals}));
  expect_same_bits("tables", [](endpoint&, vector const&) {
    vector all;
    auto const add = [&](gq::levels::detail::level_table const& t) {
      float const* const parts[] = {t.ascending(), t.by_code(), t.slopes(), t.offsets()};
      for (float const* part : parts) all.insert(all.end(), part, part + 128);
    };
    add(gq::levels::table{0, 0.1, 0.3, 1});
    add(gq::levels::exponential{9, 1.7});
    add(gq::levels::e4m3{});
    add(gq::levels::symmetric{gq::operators::multiplier_levels(0.3, 7)});
    return all;
  });
}

TEST(FloatModes, change_no_bit_of_clipping) {
  expect_same_bits("clip_deviations", [](endpoint&, vector x) {
    gq::clip_deviations(x, 0.7, 100, Kokkos::Serial());
    return x;
  });
}

}  // namespace
