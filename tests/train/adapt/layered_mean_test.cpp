// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief All layers in one call: the bits of a call for each, one message, and errors that name the layer.

#include "examples/custom_policy/three_halves.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/operator/centered.hpp>
#include <globalq/train/adapt/layered_mean.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gq = globalq;
using gq::adapt::layered_mean;
using support::on_threads;
using support::refusal;
using support::same_bits;
using support::values;
using testing::HasSubstr;

namespace layered_mean_test {

gq::rounding::stochastic const dice;

/// Rows of 147 values, biases, a gap, a single value, nothing, and layers that chunks and segments end inside of.
gq::adapt::model_layout network() {
  gq::adapt::model_layout m;
  m.add("conv.weight", {13, 3, 7, 7}).add("conv.bias", {13}).add("norm.gain", {300});
  m.add_at(3000, "attention", {40, 25}).add("none", {0}).add("scale", {}).add("embedding", {33, 64});
  m.add("head.weight", {10, 77}).add("head.bias", {10}).add("fixed", {5, 100});
  m.add("own", {30, 20}).add("own.local", {20, 30});
  return m;
}

/// A worker's own.
struct local_three_halves : three_halves {
  static constexpr char const* name = "l:3/2";
  static constexpr bool is_local = true;
};

/// Sums of codes, requantized sums under own norms, tables, float32, codes of variable length, fixed units and norms of one's own.
std::vector<gq::any_quantizer> operators(gq::adapt::model_layout const& model) {
  return gq::adapt::operators_of(
      model, gq::adapt::filter::cgx().below(2), [](gq::adapt::layer const& l) -> gq::any_quantizer {
        if (l.name == "conv.weight")
          return gq::quantizer{gq::norm::linf{.bucket = bucket_of_whole_rows(l, 512)}, gq::levels::uniform{9},
                               dice, gq::wire::int8{}};
        if (l.name == "attention")
          return gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<7>{}, dice,
                               gq::wire::packed<4>{}};
        if (l.name == "embedding")
          return gq::quantizer{gq::norm::l<2, 2>{.bucket = 1000}, gq::levels::table{0, 0.2, 1}, dice,
                               gq::wire::packed<3>{}};
        if (l.name == "fixed")
          return gq::quantizer{gq::norm::fixed{.scale = 8}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
        if (l.name == "own")
          return gq::quantizer{three_halves{.bucket = 70}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
        if (l.name == "own.local")
          return gq::quantizer{local_three_halves{{.bucket = 50}}, gq::levels::uniform{7}, dice,
                               gq::wire::int8{}};
        return gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::uniform{5}, dice, gq::wire::int8{}};
      });
}

/// A call for each layer, as layered_mean promises to do.
template <class Workers, class Schedule>
std::vector<float> one_by_one(Workers& workers, gq::adapt::model_layout const& model,
                              std::vector<gq::any_quantizer> const& ops, Schedule schedule,
                              std::vector<float> x, std::uint64_t step) {
  for (std::size_t k = 0; k < model.size(); ++k) {
    gq::allreduce_mean mean{workers, ops[k], schedule, {.seed = 6}};
    mean(std::span(x).subspan(model[k].offset, model[k].size), step * model.size() + k);
  }
  return x;
}

TEST(LayeredMean, has_the_bits_of_a_call_for_each_layer_where_every_worker_decodes_all_frames) {
  gq::adapt::model_layout const model = network();
  for (int n : {1, 2, 3, 5, 9})
    for (std::uint64_t chunk : {std::uint64_t{0}, std::uint64_t{256}})
      on_threads(n, [&](auto& workers) {
        layered_mean mean{workers,
                          model,
                          operators(model),
                          gq::schedule::allgather{},
                          {.call = {.seed = 6, .chunk_values = chunk}}};
        std::vector<float> x = values(model.length(), workers.rank());
        for (std::uint64_t step : {0, 7}) {
          auto const each = one_by_one(workers, model, operators(model), gq::schedule::allgather{}, x, step);
          mean(x, step);
          EXPECT_TRUE(same_bits(x, each)) << "n = " << n << ", chunks of " << chunk;
        }
      });
}

TEST(LayeredMean, has_the_bits_of_a_call_for_each_layer_where_codes_are_added_as_integers) {
  gq::adapt::model_layout const model = network();
  auto ops = operators(model);
  for (std::size_t k : {model.find("attention"), model.find("embedding"), model.find("own.local")})
    ops[k] = ops[0];
  for (auto const& l : model)
    if (gq::adapt::filter::cgx().below(2)(l))
      ops[model.find(l.name)] = ops[0];  // float32 sums depend on their order
  for (char const* schedule : {"ring", "tree", "sra", "hierarchical:2"})
    for (int n : {2, 3, 5})
      on_threads(n, [&](auto& workers) {
        layered_mean mean{workers, model, ops, gq::schedule::any{schedule}, {.call = {.seed = 6}}};
        std::vector<float> x = values(model.length(), workers.rank());
        auto const each = one_by_one(workers, model, ops, gq::schedule::any{schedule}, x, 3);
        mean(x, 3);
        EXPECT_TRUE(same_bits(x, each)) << schedule << ", n = " << n;
      });
}

TEST(LayeredMean, gives_every_worker_the_same_bits_however_layers_are_given_and_leaves_gaps_alone) {
  gq::adapt::model_layout const model = network();
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2"})
    for (int n : {1, 2, 3, 4, 7}) {
      std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
      on_threads(n, [&](auto& workers) {
        layered_mean mean{workers,
                          model,
                          operators(model),
                          gq::schedule::any{schedule},
                          {.call = {.seed = 6, .chunk_values = 512}}};
        std::vector<float> const x = values(model.length(), workers.rank());
        std::vector<float> flat = x, out(x.size(), -1.0F);
        mean(flat, 5);
        mean(x, out, 5);
        std::vector<std::vector<float>> tensors;
        for (auto const& l : model)
          tensors.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(l.offset),
                               x.begin() + static_cast<std::ptrdiff_t>(l.offset + l.size));
        gq::vector_group group;
        for (auto& t : tensors) group.add(t);
        mean(group, 5);
        std::vector<float> gathered = x;
        for (std::size_t k = 0; k < model.size(); ++k)
          std::copy(tensors[k].begin(), tensors[k].end(),
                    gathered.begin() + static_cast<std::ptrdiff_t>(model[k].offset));
        EXPECT_TRUE(same_bits(flat, gathered)) << schedule << ", n = " << n;
        for (std::size_t i = 2224; i < 3000; ++i) {
          ASSERT_EQ(flat[i], x[i]) << "between layers";
          ASSERT_EQ(out[i], -1.0F);
          out[i] = x[i];
        }
        EXPECT_TRUE(same_bits(flat, out));
        // gaps are each worker's own
        std::fill(flat.begin() + 2224, flat.begin() + 3000, 0.0F);
        results[static_cast<std::size_t>(workers.rank())] = flat;
      });
      for (auto const& r : results) EXPECT_TRUE(same_bits(r, results[0])) << schedule << ", n = " << n;
    }
}

TEST(LayeredMean, is_unbiased_for_every_layer) {
  gq::adapt::model_layout const model = network();
  constexpr int draws = 400;
  on_threads(3, [&](auto& workers) {
    layered_mean mean{workers, model, operators(model), gq::schedule::sra{}, {.call = {.seed = 11}}};
    std::vector<float> const x = values(model.length(), workers.rank());
    std::vector<float> exact = x;
    gq::allreduce_mean{workers, gq::uncompressed{}, gq::schedule::allgather{}}(exact, 0);
    std::vector<double> sum(x.size()), squares(x.size());
    for (int d = 0; d < draws; ++d) {
      std::vector<float> y = x;
      mean(y, static_cast<std::uint64_t>(d));
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const e = static_cast<double>(y[i]) - static_cast<double>(exact[i]);
        sum[i] += e;
        squares[i] += e * e;
      }
    }
    for (auto const& l :
         model) {  // pooled over a layer's coordinates as in tests/quantizer/vector_codec_test.cpp
      double error = 0, variance = 0, variance2 = 0;
      for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) {
        double const v = squares[i] / draws;
        error += sum[i] * sum[i] / draws;
        variance += v;
        variance2 += v * v;
      }
      bool const plain = mean.operator_name(model.find(l.name)) == "float32";
      if (plain) {
        EXPECT_LT(variance, 1e-9 * static_cast<double>(l.size + 1)) << l.name;
      } else {
        EXPECT_LT(error / variance, 1 + 5 * std::sqrt(2 * variance2) / variance) << l.name;
      }
    }
  });
}

TEST(LayeredMean, warm_up_is_uncompressed_to_the_last_bit) {
  gq::adapt::model_layout model;
  model.add("a", {30, 50}).add("b", {7});
  for (int n : {1, 3})
    on_threads(n, [&](auto& workers) {
      gq::quantizer const op{gq::norm::linf{.bucket = 100}, gq::levels::uniform{5}, dice, gq::wire::int8{}};
      layered_mean mean{
          workers, model, gq::adapt::operators_of(model, {}, op), gq::schedule::allgather{}, {.warm_up = 2}};
      EXPECT_TRUE(mean.warms_up(1));
      EXPECT_FALSE(mean.warms_up(2));
      std::vector<float> const x = values(model.length(), workers.rank());
      std::vector<float> exact = x;
      gq::allreduce_mean{workers, gq::uncompressed{}, gq::schedule::allgather{}}(exact, 0);
      for (std::uint64_t step = 0; step < 4; ++step) {
        std::vector<float> y = x;
        mean(y, step);
        EXPECT_EQ(same_bits(y, exact), step < 2) << step;
      }
    });
}

TEST(LayeredMean, sends_what_its_plan_says) {
  gq::adapt::model_layout const model = network();
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2"})
    for (int n : {1, 2, 3, 5}) {
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(n)), planned = sent;
      std::vector<gq::any_quantizer> ops = operators(model);
      if (n != 2) ops[model.find("fixed")] = gq::centered{ops[model.find("fixed")]};  // one exchange more
      if (n != 3) ops[0] = gq::floats<gq::float16>{};                                 // and another one
      on_threads(n, [&](auto& workers) {
        layered_mean mean{
            workers, model, ops, gq::schedule::any{schedule}, {.call = {.chunk_values = n == 3 ? 256U : 0U}}};
        std::vector<float> x = values(model.length(), workers.rank());
        std::uint64_t const before = workers.bytes_sent();
        mean(x, 0);
        sent[static_cast<std::size_t>(workers.rank())] = workers.bytes_sent() - before;
        gq::plan const p = mean.plan();
        planned[static_cast<std::size_t>(workers.rank())] = p.bytes_sent;
        EXPECT_TRUE(p.fits);
        EXPECT_EQ(p.length, model.length() - 776);
        EXPECT_GT(p.bits_per_value, 4);
        EXPECT_LT(p.bits_per_value, 12);
      });
      EXPECT_THAT(planned, testing::Each(*std::max_element(sent.begin(), sent.end()))) << schedule << n;
    }
}

TEST(LayeredMean, takes_layers_of_several_types) {
  gq::adapt::model_layout model;
  model.add("a", {700}, gq::dtype::float64)
      .add("b", {3, 100}, gq::dtype::bfloat16)
      .add("c", {64}, gq::dtype::float32);
  for (int n : {1, 2, 4})
    on_threads(n, [&](auto& workers) {
      gq::quantizer const op{gq::norm::linf{.bucket = 100}, gq::levels::uniform{5}, dice, gq::wire::int8{}};
      layered_mean mean{workers, model, gq::adapt::operators_of(model, gq::adapt::filter{}.named("c"), op),
                        gq::schedule::allgather{}};
      auto a = values<double>(700, workers.rank());
      auto b = values<gq::bfloat16>(300, workers.rank());
      auto c = values<float>(64, workers.rank());
      auto sa = a;
      auto sb = b;
      auto sc = c;
      gq::allreduce_mean single{workers, op, gq::schedule::allgather{}};
      gq::allreduce_mean plain{workers, gq::uncompressed{}, gq::schedule::allgather{}};
      single(sa, 6);
      single(sb, 7);
      plain(sc, 8);
      mean(gq::vector_group{}.add(a).add(b).add(c), 2);
      support::expect_same(a, sa, "float64");
      support::expect_same(b, sb, "bfloat16");
      support::expect_same(c, sc, "float32");
      std::vector<float> flat(model.length());
      EXPECT_THROW(mean(flat, 3), gq::configuration_error);
    });
}

TEST(LayeredMean, operators_and_levels_change_between_calls_and_stale_ones_are_an_error_on_all) {
  gq::adapt::model_layout const model = network();
  std::size_t const k = model.find("embedding");
  gq::levels::table const other{0, 0.6, 1};
  on_threads(3, [&](auto& workers) {
    auto ops = operators(model);
    layered_mean mean{workers, model, ops, gq::schedule::allgather{}, {.call = {.seed = 6}}};
    std::vector<float> const x = values(model.length(), workers.rank());
    auto const expect = [&](std::uint64_t step) {
      std::vector<float> y = x;
      mean(y, step);
      EXPECT_TRUE(same_bits(y, one_by_one(workers, model, ops, gq::schedule::allgather{}, x, step)));
    };
    ops[k] = gq::quantizer{gq::norm::l<2, 2>{.bucket = 1000}, other, dice, gq::wire::packed<3>{}};
    mean.set_levels(k, other);
    expect(1);
    ops[0] = gq::uncompressed{};
    mean.assign(0, ops[0]);
    expect(2);
    std::swap(ops[0], ops[k]);
    mean.assign(ops);
    expect(3);
    EXPECT_THAT(mean.operator_name(0), HasSubstr("table"));

    if (workers.rank() == 1) mean.assign(0, gq::uncompressed{});
    std::vector<float> y = x;
    try {
      mean(y, 4);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("layered_mean: workers disagree: rank 1 differs from rank 0 in the "
                                      "operator of layer 0, \"conv.weight\": \"float32\" instead of \"l:2,2 "
                                      "bucket 1000 table"));
    }
    EXPECT_TRUE(same_bits(x, y));
    if (workers.rank() == 1) mean.assign(0, ops[0]);
    expect(5);
    if (workers.rank() == 2) mean.set_levels(0, gq::levels::table{0, 0.3, 1});
    try {
      mean(y, 6);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 2 differs from rank 0 in the operator of layer 0, "
                                      "\"conv.weight\": both have \"l:2,2 bucket 1000 table"));
    }
    if (workers.rank() == 2) mean.set_levels(0, other);
    expect(7);
  });
}

TEST(LayeredMean, a_plan_knows_the_levels_that_were_set) {
  gq::adapt::model_layout model;
  model.add("weight", {40, 50}).add("head", {10, 40});
  auto const of = [](gq::levels::table const& levels) {
    return gq::any_quantizer(
        gq::quantizer{gq::norm::l<2, 2>{.bucket = 500}, levels, dice, gq::wire::packed<3>{}});
  };
  gq::levels::table const coarse{0, 0.2, 1}, fine{0, 0.45, 1};
  on_threads(2, [&](auto& workers) {
    layered_mean changed{workers, model, {of(coarse), of(coarse)}, gq::schedule::allgather{}};
    layered_mean const same{workers, model, {of(fine), of(coarse)}, gq::schedule::allgather{}},
        both{workers, model, {of(fine), of(fine)}, gq::schedule::allgather{}};
    double const before = changed.plan().theta;
    changed.set_levels(0, fine);
    EXPECT_EQ(changed.plan().theta, same.plan().theta);
    changed.set_levels(1, fine);
    EXPECT_EQ(changed.plan().theta, both.plan().theta);
    EXPECT_EQ(changed.plan().iterations_factor, both.plan().iterations_factor);
    EXPECT_NE(before, both.plan().theta);  // or the lines above have compared nothing
  });
}

TEST(LayeredMean, a_warm_up_that_ends_earlier_on_a_worker_is_an_error_of_all) {
  gq::adapt::model_layout const model = network();
  on_threads(3, [&](auto& workers) {
    layered_mean mean{workers,
                      model,
                      operators(model),
                      gq::schedule::allgather{},
                      {.warm_up = workers.rank() == 1 ? 2U : 3U}};
    std::vector<float> y = values(model.length(), workers.rank());
    try {
      mean(y, 2);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(),
                  HasSubstr("rank 1 differs from rank 0 in other settings (rank 0: warm_up 3, layers "
                            "from 0 of"));
    }
    mean(y, 3);
  });
  // told in the first call
  gq::adapt::model_layout two;
  two.add("bias", {10}).add("weight", {20, 30});
  on_threads(2, [&](auto& workers) {
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{}, dice, gq::wire::int8{}};
    layered_mean mean{workers,
                      two,
                      gq::adapt::operators_of(two, gq::adapt::filter::cgx(), op),
                      gq::schedule::allgather{},
                      {.warm_up = workers.rank() == 1 ? 2U : 3U}};
    std::vector<float> y = values(two.length(), workers.rank());
    try {
      mean(y, 0);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("in other settings (rank 0: warm_up 3, "));
    }
  });
}

TEST(LayeredMean, layouts_that_differ_are_an_error_on_all) {
  auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
    gq::adapt::model_layout model;
    model.add(workers.rank() == 2 ? "x" : "a", {30}).add("b", {7});
    layered_mean mean{workers, model, gq::adapt::operators_of(model, {}, gq::uncompressed{}),
                      gq::schedule::ring{}};
    std::vector<float> x(model.length());
    mean(x, 0);
  });
  for (auto const& text : texts)
    EXPECT_THAT(text, HasSubstr("rank 2 differs from rank 0 in the type of the values or their grouping"));
}

TEST(LayeredMean, a_model_without_layers_compares_what_it_is_told_to) {
  for (bool const alike : {true, false}) {
    gq::transport::threads cluster(2);
    auto const run = [&] {
      cluster.run([&](auto& w) {
        gq::adapt::layered_mean mean{w,
                                     gq::adapt::model_layout{},
                                     {},
                                     gq::schedule::sra{},
                                     {.alike = alike ? 7U : 7U + static_cast<unsigned>(w.rank())}};
        mean(gq::vector_group{}, 0);
      });
    };
    if (alike)
      EXPECT_NO_THROW(run());
    else
      EXPECT_THROW(run(), gq::disagreement_error);
  }
}

TEST(LayeredMean, refusals_name_the_layer_and_the_remedy) {
  on_threads(2, [&](auto& workers) {
    gq::adapt::model_layout model;
    model.add("a", {30}).add("b", {7});
    gq::quantizer const wide{gq::norm::linf{}, gq::levels::uniform{100}, dice, gq::wire::int8{}};
    std::vector<gq::any_quantizer> const ops{gq::uncompressed{}, wide};
    EXPECT_THAT(refusal([&] {
                  layered_mean{workers, model, ops, gq::schedule::ring{}};
                }),
                testing::AllOf(HasSubstr("layered_mean: rank"), HasSubstr("layer \"b\""),
                               HasSubstr("use at most 63 levels")));
    EXPECT_THAT(refusal([&] {
                  layered_mean{workers, model, std::vector<gq::any_quantizer>{wide}, gq::schedule::ring{}};
                }),
                HasSubstr("1 operators for 2 layers"));
    EXPECT_THAT(refusal([&] {
                  layered_mean{workers, model, ops, gq::schedule::native{}};
                }),
                HasSubstr("schedule native"));
    for (std::uint64_t const first : {9, 11})
      EXPECT_THAT(refusal([&] {
                    layered_mean{workers,
                                 model,
                                 gq::adapt::operators_of(model, {}, gq::uncompressed{}),
                                 gq::schedule::ring{},
                                 {.first = first, .of = 10}};
                  }),
                  HasSubstr("exceed the 10 layers of the model, so random bits would repeat"));
    layered_mean mean{workers, model, gq::adapt::operators_of(model, {}, gq::uncompressed{}),
                      gq::schedule::ring{}};
    std::vector<float> x(36), a(30), b(8);
    std::vector<double> d(37);
    EXPECT_THAT(refusal([&] { mean(x, 0); }),
                HasSubstr("the vector has 36 values and the layout ends at 37"));
    EXPECT_THAT(refusal([&] { mean(d, 0); }),
                HasSubstr("layer \"a\" is of float32 and the vector of float64"));
    EXPECT_THAT(refusal([&] { mean(gq::vector_group{}.add(a), 0); }),
                HasSubstr("the group has 1 vectors and the layout 2"));
    EXPECT_THAT(refusal([&] { mean(gq::vector_group{}.add(a).add(b), 0); }),
                HasSubstr("layer \"b\" has 7 values of float32 and vector 1 has 8 of float32"));
    EXPECT_THAT(refusal([&] { mean.assign(2, ops[0]); }), HasSubstr("there is no layer 2 among 2"));
    EXPECT_THAT(refusal([&] { mean.assign(1, ops[1]); }), HasSubstr("layer \"b\""));
    std::vector<float> y(37);
    std::uint64_t const last = (std::uint64_t{1} << 47) - 1;
    EXPECT_THAT(refusal([&] { mean(y, last + 1); }), HasSubstr("is above 2^48 - 1"));
    mean(y, last);
  });
}

TEST(LayeredMean, with_a_value_that_is_not_finite_or_beyond_a_fixed_scale) {
  gq::adapt::model_layout const model = network();
  on_threads(3, [&](auto& workers) {
    layered_mean mean{workers, model, operators(model), gq::schedule::sra{}};
    std::vector<float> x = values(model.length(), workers.rank());
    std::vector<float> const before = x;
    if (workers.rank() == 1) x[model[model.find("fixed")].offset + 3] = -16;
    try {
      mean(x, 0);
      ADD_FAILURE();
    } catch (gq::configuration_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("a value is 2 times the scale of norm::fixed"));
    }
    x = before;
    if (workers.rank() == 2) x[5] = std::numeric_limits<float>::quiet_NaN();
    mean(x, 1);
    for (auto const& l : model)
      for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) ASSERT_TRUE(std::isnan(x[i])) << l.name;
  });
}

TEST(LayeredMean, calls_that_are_started_have_the_bits_of_direct_ones) {
  gq::adapt::model_layout const model = network();
  on_threads(3, [&](auto& workers) {
    layered_mean mean{workers, model, operators(model), gq::schedule::sra{}, {.warm_up = 1}};
    std::vector<float> const x = values(model.length(), workers.rank());
    std::vector<float> a = x, b = x, c = x;
    mean(a, 0);
    mean(b, 1);
    std::vector<float> sa = x, sb = x;
    std::vector<std::vector<float>> tensors;
    gq::vector_group group;
    for (auto const& l : model)
      tensors.emplace_back(c.begin() + static_cast<std::ptrdiff_t>(l.offset),
                           c.begin() + static_cast<std::ptrdiff_t>(l.offset + l.size));
    for (auto& t : tensors) group.add(t);
    auto const first = mean.start(sa, 0);
    auto const second = mean.start(sb, 1);
    auto const third = mean.start(group, 1);
    first.wait();
    second.wait();
    third.wait();
    EXPECT_TRUE(same_bits(a, sa));
    EXPECT_TRUE(same_bits(b, sb));
    for (std::size_t k = 0; k < model.size(); ++k)
      EXPECT_TRUE(
          same_bits(tensors[k], {b.begin() + static_cast<std::ptrdiff_t>(model[k].offset),
                                 b.begin() + static_cast<std::ptrdiff_t>(model[k].offset + model[k].size)}));
    mean.wait();
  });
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TEST(LayeredMean, allocates_nothing_when_it_comes_again) {
  gq::adapt::model_layout const model = network();
  std::size_t before = 0, after = 0;
  on_threads(2, [&](auto& workers) {
    layered_mean mean{workers, model, operators(model), gq::schedule::sra{}, {}, Kokkos::Serial()};
    std::vector<float> x = values(model.length(), workers.rank());
    mean(x, 0);
    mean(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) before = support::allocations;
    gq::transport::barrier(workers);
    mean(x, 2);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) after = support::allocations;
    gq::transport::barrier(workers);
  });
  EXPECT_EQ(after, before);
}
#endif

}  // namespace layered_mean_test
