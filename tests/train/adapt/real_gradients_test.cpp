// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief L-GreCo against uniform parameters on gradients of a training: how much smaller at the same error.
///
/// With GLOBALQ_LAYERS_TABLE set the rows of docs/layers.md are printed.

#include <examples/digits/data.hpp>
#include <examples/digits/mlp.hpp>

#include <globalq/train/adapt/accordion.hpp>
#include <globalq/train/adapt/cgx.hpp>
#include <globalq/train/adapt/lgreco.hpp>
#include <globalq/train/adapt/quantizer_errors.hpp>

#include <globalq/named/description.hpp>

#include <gtest/gtest.h>

#include <cstdlib>

namespace gq = globalq;
namespace ad = globalq::adapt;

namespace {

std::vector<Eigen::Index> const widths{digits::num_pixels, 192, 256, 192, 128, 128, 96, 64,
                                       digits::num_classes};

ad::model_layout layout_of_model() {
  ad::model_layout model;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    auto const in = static_cast<std::uint64_t>(widths[l]), out = static_cast<std::uint64_t>(widths[l + 1]);
    model.add("fc" + std::to_string(l) + ".weight", {in, out});  // Eigen's columns are rows here
    model.add("fc" + std::to_string(l) + ".bias", {out});
  }
  return model;
}

bool is_weight(ad::layer const& l) { return l.shape.size() > 1; }

/// Gradients of a training in float32, added up over windows of 20 steps.
struct training {
  std::vector<ad::gradient_accumulator> windows;
  double accuracy = 0;

  training() {
    digits::dataset const data =
        digits::split_and_standardize(digits::read_pictures(GLOBALQ_DIGITS_CSV), 1.0 / 3, 42);
    digits::mlp model{widths, 42};
    digits::batch_dealer dealer{data.train, 64, 0, 1, 42};
    Eigen::VectorXf velocity = Eigen::VectorXf::Zero(model.parameters().size());
    int const steps = 160, window = 20;
    ad::model_layout const layers = layout_of_model();
    for (int step = 0; step < steps; ++step) {
      static_cast<void>(model.differentiate(dealer.deal(static_cast<std::uint64_t>(step))));
      if (step % window == 0) windows.emplace_back(layers);
      Eigen::VectorXf const& g = model.gradient();
      EXPECT_TRUE(windows.back().add(std::span<float const>(g.data(), static_cast<std::size_t>(g.size()))));
      velocity = 0.9F * velocity + g;
      model.parameters() -= 0.02F * velocity;
    }
    accuracy = model.evaluate(data.test).accuracy;
  }
};

training const& trained() {
  static training const once;
  return once;
}

gq::any_quantizer quantizer(ad::bits_and_bucket q) {
  return gq::named::make({.norm = "local:inf",
                          .levels = "uniform:" + std::to_string((1 << (q.bits - 1)) - 1),
                          .wire = "packed:" + std::to_string(q.bits),
                          .bucket = q.bucket});
}

std::vector<gq::any_quantizer> quantizers(std::vector<ad::bits_and_bucket> const& parameters) {
  std::vector<gq::any_quantizer> all;
  for (ad::bits_and_bucket const& q : parameters) all.push_back(quantizer(q));
  return all;
}

std::vector<ad::layer_point> points_of(ad::gradient_accumulator const& g) {
  std::vector<ad::layer_point> p;
  for (std::size_t l = 0; l < g.model().size(); ++l)
    p.push_back({static_cast<double>(g.model()[l].size), g.norm(l)});
  return p;
}

double full_size(ad::model_layout const& model) { return 4.0 * static_cast<double>(model.length()); }

/// A row of docs/layers.md: bytes of float32 over bytes of the choice.
void report(char const* what, std::size_t window, ad::choice_table const& table,
            ad::model_layout const& model, std::vector<std::uint32_t> const& reference,
            std::vector<ad::selection> const& found) {
  if (std::getenv("GLOBALQ_LAYERS_TABLE") == nullptr) return;
  std::printf("| %s | %s | %.2f |", what, window == 0 ? "first 20" : "last 20",
              full_size(model) / table.cost(reference));
  for (ad::selection const& s : found) std::printf(" %.2f |", full_size(model) / s.cost);
  std::printf(" %.4f %% |\n", 100 * (1 - found[0].lower_bound / found[0].cost));
}

std::vector<ad::selection> all_rules(ad::choice_table const& table, ad::gradient_accumulator const& g,
                                     double budget, std::vector<std::uint32_t> const& reference) {
  auto const points = points_of(g);
  return {ad::lgreco{}(table, budget, reference),
          ad::lgreco{.how = ad::lgreco::method::grid}(table, budget, reference),
          ad::cgx_kmeans{}(table, points, budget), ad::cgx_linear{}(table, points, budget),
          ad::cgx_bayes{}(table, points, budget)};
}

void expect_order(ad::choice_table const& table, double budget, std::vector<std::uint32_t> const& reference,
                  std::vector<ad::selection> const& found) {
  for (ad::selection const& s : found) {
    EXPECT_TRUE(table.within(s.choices, budget));
    EXPECT_LE(s.cost, table.cost(reference));
    EXPECT_GE(s.cost, found[0].lower_bound);
  }
  for (std::size_t k = 1; k < found.size(); ++k)
    if (found[0].optimal) {
      EXPECT_LE(found[0].cost, found[k].cost * (1 + 1e-9));
    }
}

TEST(RealGradients, come_from_a_model_that_learns) { EXPECT_GT(trained().accuracy, 0.9); }

/// The error of what is sent: 10 encodings of all layers.
double sent_error(ad::gradient_accumulator const& g, std::vector<gq::any_quantizer> const& operators,
                  std::vector<std::uint32_t> const& choices) {
  double sum = 0;
  int const draws = 10;
  for (std::size_t l = 0; l < g.model().size(); ++l) {
    if (!is_weight(g.model()[l])) continue;
    gq::vector_codec codec(operators[choices[l]], Kokkos::Serial());
    std::vector<float> const x(g.of(l).begin(), g.of(l).end());
    std::vector<float> y(x.size());
    std::vector<std::byte> frame(codec.frame_bytes(x.size()));
    for (int k = 0; k < draws; ++k) {
      gq::encoding_key const key{.seed = 1, .step = static_cast<std::uint64_t>(k)};
      codec.encode(x, key, frame);
      codec.decode(frame, key, y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const e = static_cast<double>(y[i]) - static_cast<double>(x[i]);
        sum += e * e / draws;
      }
    }
  }
  return sum;
}

TEST(RealGradients, bits_and_buckets_by_lgreco_are_smaller_at_the_same_error) {
  std::vector<ad::bits_and_bucket> of_bits, of_both;
  for (std::uint32_t b : ad::around(4)) of_bits.push_back({b, 128});
  for (std::uint32_t b : ad::around(4))
    for (std::uint64_t bucket : {32U, 64U, 128U, 256U, 512U, 1024U}) of_both.push_back({b, bucket});
  for (std::size_t w : {std::size_t{0}, trained().windows.size() - 1}) {
    ad::gradient_accumulator const& g = trained().windows[w];
    // bits alone: whole bits for eight layers leave little to choose
    ad::choice_table const bits =
        ad::measure(g, ad::quantizers(quantizers(of_bits), Kokkos::Serial()), is_weight);
    auto const four_bits = ad::uniform_choice(bits, 2);
    double const budget = ad::budget_of(bits, four_bits);
    auto const few = all_rules(bits, g, budget, four_bits);
    expect_order(bits, budget, four_bits, few);
    report("bits 2 to 8, buckets of 128", w, bits, g.model(), four_bits, few);

    ad::choice_table const both =
        ad::measure(g, ad::quantizers(quantizers(of_both), Kokkos::Serial()), is_weight);
    ad::choice_table const pairs = ad::measure(
        g, ad::quantizers(quantizers(ad::bits_and_buckets(2, 8, 32, 1024)), Kokkos::Serial()), is_weight);
    auto const reference = ad::uniform_choice(both, 2 * 6 + 2);
    ASSERT_EQ(ad::budget_of(both, reference), budget);
    auto many = all_rules(pairs, g, budget, {});
    many[0] = ad::lgreco{}(both, budget, reference);
    many[1] = ad::lgreco{.how = ad::lgreco::method::grid}(both, budget, reference);
    EXPECT_LT(many[0].cost, bits.cost(four_bits));
    EXPECT_LE(many[0].cost, few[0].cost);
    EXPECT_TRUE(both.within(many[0].choices, budget));
    report("bits 2 to 8, buckets of 32 to 1,024", w, bits, g.model(), four_bits, many);

    // 10 times 160,000 values: their sum of squares is known to 1 %
    EXPECT_NEAR(sent_error(g, quantizers(of_both), many[0].choices) / many[0].error, 1, 0.04);
    EXPECT_NEAR(sent_error(g, quantizers(of_bits), four_bits) / budget, 1, 0.04);
  }
}

TEST(RealGradients, densities_by_lgreco_are_smaller_at_the_same_error) {
  std::vector<double> const densities = ad::around(0.01, 21);
  std::vector<double> wide;
  for (int k = -10; k <= 10; ++k) wide.push_back(k == 0 ? 0.01 : 0.01 * std::pow(10.0, k / 10.0));
  for (auto const& [name, range] : {std::pair{"density, 1 % uniform, 0.5 to 2 %", densities},
                                    {"density, 1 % uniform, 0.1 to 10 %", wide}})
    for (std::size_t w : {std::size_t{0}, trained().windows.size() - 1}) {
      ad::gradient_accumulator const& g = trained().windows[w];
      ad::choice_table const table = ad::measure(g, ad::top_k(range), is_weight);
      auto const reference = ad::uniform_choice(table, 10);
      double const budget = ad::budget_of(table, reference);
      auto const found = all_rules(table, g, budget, reference);
      expect_order(table, budget, reference, found);
      EXPECT_LT(found[0].cost, table.cost(reference));
      report(name, w, table, g.model(), reference, found);
    }
}

TEST(RealGradients, ranks_by_lgreco_are_lower_at_the_same_error) {
  std::vector<std::uint32_t> wide;
  for (std::uint32_t r = 1; r <= 16; ++r) wide.push_back(r);
  for (std::size_t w : {std::size_t{0}, trained().windows.size() - 1})
    for (bool all : {false, true}) {
      ad::gradient_accumulator const& g = trained().windows[w];
      ad::choice_table const table = ad::measure(g, ad::low_rank(all ? wide : ad::around(4)), is_weight);
      auto const reference = ad::uniform_choice(table, all ? 3 : 2);
      double const budget = ad::budget_of(table, reference);
      auto const found = all_rules(table, g, budget, reference);
      expect_order(table, budget, reference, found);
      EXPECT_LT(found[0].cost, table.cost(reference));
      report(all ? "rank 4, 1 to 16" : "rank 4, 2 to 8", w, table, g.model(), reference, found);
    }
}

TEST(RealGradients, accordion_with_lgreco_is_smaller_than_accordion) {
  // as in the thesis' Table 4.5, an eighth of its ranks: 4 uniform, 2 and 8 by Accordion, 1 to 16 together
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t r = 1; r <= 16; ++r) ranks.push_back(r);
  ad::accordion regimes(trained().windows[0].model().size());
  double total[4] = {};
  std::size_t critical = 0;
  for (ad::gradient_accumulator const& g : trained().windows) {
    ad::choice_table const table = ad::measure(g, ad::low_rank(ranks), is_weight);
    auto const rank = [&](std::uint32_t r) { return ad::uniform_choice(table, r - 1); };
    for (bool c : regimes.update(g.norms())) critical += c;
    auto const alone = regimes.choices(rank(8), rank(2));
    ad::selection const lgreco = ad::lgreco{}(table, ad::budget_of(table, rank(4)), rank(4));
    ad::selection const both = ad::lgreco{}(table, ad::budget_of(table, alone), alone);
    EXPECT_LE(both.cost, table.cost(alone));
    EXPECT_TRUE(table.within(both.choices, table.error(alone)));
    total[0] += table.cost(rank(4));
    total[1] += lgreco.cost;
    total[2] += table.cost(alone);
    total[3] += both.cost;
  }
  EXPECT_LT(total[3], total[2]);
  if (std::getenv("GLOBALQ_LAYERS_TABLE") == nullptr) return;
  double const whole =
      full_size(trained().windows[0].model()) * static_cast<double>(trained().windows.size());
  std::printf("| rank 4 | L-GreCo | Accordion | both |\n| %.1f | %.1f | %.1f | %.1f |\n%zu of %zu critical\n",
              whole / total[0], whole / total[1], whole / total[2], whole / total[3], critical,
              trained().windows.size() * trained().windows[0].model().size());
}

}  // namespace
