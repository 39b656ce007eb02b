// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_layers: the time of L-GreCo's two methods, and the cost of their choice relative to the optimum.
///
///   globalq_layers [MOST_LAYERS [ROUNDS [MOST_MS]]]    prints the table of docs/layers.md; by default 1000 layers, 7
///   rounds
///
/// Methods run in turn; times are medians of processor time, one thread. The optimum is proved by the search with 2^23
/// sums a pass; if it is not, its lower bound is used, marked by a star. Exits with 1 if a choice exceeds its budget or
/// costs more than the reference, or if the fastest round of a method takes more than MOST_MS milliseconds. With
/// MOST_MS, the optimum is that of the ordinary search, to save time.

#include <globalq/train/adapt/lgreco.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

namespace ad = globalq::adapt;

namespace {

enum class kind { bits, few_sizes, densities };

/// A problem with ten candidates a layer; the third is the reference.
ad::choice_table problem(kind what, std::size_t layers) {
  std::mt19937 draw(static_cast<std::uint32_t>(layers) + 7);
  auto const unit = [&] { return static_cast<double>(draw() >> 8) * 0x1p-24; };
  ad::choice_table table;
  for (std::size_t l = 0; l < layers; ++l) {
    double const size =
        what == kind::few_sizes ? (l % 4 == 0 ? 0x1p22 : 0x1p20) : std::floor(100 * std::pow(1e5, unit()));
    double const scale = std::exp(4 * unit()), speed = 0.5 + unit();
    std::vector<ad::candidate> of;
    for (int k = 0; k < 10; ++k) {
      double const kept = std::pow(1.6, k);
      if (what == kind::densities)
        of.push_back({8 * std::ceil(size * 0.001 * kept),
                      size * scale * std::exp(-0.3 * speed * std::pow(kept, 0.7))});
      else
        of.push_back({std::ceil(size * (k + 2) / 8), size * scale * std::pow(4.0, -(k + 2))});
    }
    table.add(of);
  }
  return table;
}

double milliseconds(ad::lgreco const& solve, ad::choice_table const& table, double budget,
                    std::vector<std::uint32_t> const& reference, ad::selection& found) {
  std::clock_t const begin = std::clock();
  found = solve(table, budget, reference);
  return 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t const most = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 1000;
  int const rounds = count > 2 ? std::max(1, std::atoi(arguments[2])) : 7;
  double const most_ms = count > 3 ? std::strtod(arguments[3], nullptr) : 0;
  bool good = true;
  std::printf(
      "| problem | layers | grid | above the optimum | search | above the optimum |\n| --- | --- | --- | --- "
      "| --- | --- |\n");
  for (auto const& [what, name] :
       {std::pair{kind::bits, "bits 2 to 11, sizes over five decades"},
        std::pair{kind::few_sizes, "bits 2 to 11, two sizes"},
        std::pair{kind::densities, "densities, errors falling at different speeds"}})
    for (std::size_t layers : {std::size_t{20}, std::size_t{200}, std::size_t{1000}}) {
      if (layers > most) continue;
      ad::choice_table const table = problem(what, layers);
      std::vector<std::uint32_t> const reference = ad::uniform_choice(table, 2);
      double const budget = ad::budget_of(table, reference);
      ad::lgreco const methods[] = {{.how = ad::lgreco::method::grid}, {}};
      ad::selection found[2];
      std::vector<double> times[2];
      for (int round = 0; round < rounds; ++round)
        for (int m = 0; m < 2; ++m)
          times[m].push_back(milliseconds(methods[m], table, budget, reference, found[m]));
      ad::selection const best =
          most_ms > 0 ? found[1] : ad::lgreco{.most_states = 1U << 23}(table, budget, reference);
      double const optimum = best.optimal ? best.cost : best.lower_bound;
      std::printf("| %s | %zu |", name, layers);
      for (int m = 0; m < 2; ++m) {
        if (double const least = *std::min_element(times[m].begin(), times[m].end());
            most_ms > 0 && least > most_ms) {
          std::fprintf(stderr, "globalq_layers: %zu layers take %.3g ms, more than the limit of %.3g ms\n",
                       layers, least, most_ms);
          good = false;
        }
        good = good && table.within(found[m].choices, budget) && found[m].cost <= table.cost(reference) &&
               found[m].cost >= best.lower_bound;
        std::printf(" %.2g ms | %.2g %%%s |", median(times[m]), 100 * (found[m].cost / optimum - 1),
                    best.optimal ? "" : "*");
      }
      std::printf("\n");
    }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
