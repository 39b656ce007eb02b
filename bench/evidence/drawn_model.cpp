// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: vectors drawn anew for every step from known distributions, to measure errors of means.

#include "model.hpp"

#include <globalq/bench/data.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace evidence {
namespace {

/// Normal; Student's t with three degrees of freedom; normal at one place in 20, zero elsewhere.
enum class law { normal, heavy, sparse };

/// The distribution function of Student's t with three degrees of freedom.
double below(double t) {
  double const s = t / std::numbers::sqrt3;
  return 0.5 + (s / (1 + s * s) + std::atan(s)) / std::numbers::pi;
}

/// The middles of so many parts of equal probability. Largest values drawn from this law vary so much that means of
/// errors would not settle.
std::vector<double> quantiles(std::uint64_t count) {
  std::vector<double> all(count);
  for (std::uint64_t k = 0; k < count; ++k) {
    double const goal = (static_cast<double>(k) + 0.5) / static_cast<double>(count);
    double low = -1e8, high = 1e8;
    for (int i = 0; i < 64; ++i) {
      double const middle = (low + high) / 2;
      (below(middle) < goal ? low : high) = middle;
    }
    all[k] = high;
  }
  return all;
}

/// Share of a value's variance that workers with similar vectors have in common.
constexpr double common_share = 0.9;

/// @brief Similar: sqrt(0.9) g + sqrt(0.1) z, where all workers have the same g and, if sparse, the same places.
/// Otherwise workers share nothing.
template <law Law, bool Similar>
class drawn_model final : public model {
 public:
  explicit drawn_model(replica_setting const& with)
      : with_(with),
        vector_(with.values),
        quantiles_(Law == law::heavy ? quantiles(with.values) : std::vector<double>()) {
    layers_.add("vector", {with.values, 1});  // a matrix: filters keep vectors in float32
  }

  gq::adapt::model_layout const& layers() const override { return layers_; }
  std::span<float> differentiate(std::uint64_t step) override {
    std::mt19937_64 common = stream(step, 0), own = stream(step, static_cast<std::uint64_t>(with_.rank) + 1);
    double const ours = Similar ? std::sqrt(common_share) : 0,
                 mine = Similar ? std::sqrt(1 - common_share) : 1;
    if constexpr (Law == law::heavy) {
      std::vector<double> shared = quantiles_, apart = quantiles_;
      std::shuffle(shared.begin(), shared.end(), common);
      std::shuffle(apart.begin(), apart.end(), own);
      for (std::size_t i = 0; i < vector_.size(); ++i)
        vector_[i] = static_cast<float>(ours * shared[i] + mine * apart[i]);
      return vector_;
    }
    for (float& v : vector_) {
      bool const zero = Law == law::sparse && (Similar ? common : own)() % 20 != 0;
      v = zero ? 0.0F : static_cast<float>((Similar ? ours * draw(common) : 0) + mine * draw(own));
    }
    return vector_;
  }
  void update(std::uint64_t) override {}
  double rate(std::uint64_t) const override { return 0; }
  std::span<float const> parameters() override { return vector_; }
  judgment evaluate() override { return {}; }

 private:
  std::mt19937_64 stream(std::uint64_t step, std::uint64_t whose) const {
    return std::mt19937_64(gq::bench::mix(gq::bench::mix(gq::bench::mix(with_.seed) + step) + whose));
  }
  static double draw(std::mt19937_64& bits) { return std::normal_distribution<double>()(bits); }

  replica_setting with_;
  std::vector<float> vector_;
  std::vector<double> quantiles_;
  gq::adapt::model_layout layers_;
};

template <law Law, bool Similar>
std::unique_ptr<model> make_drawn(replica_setting const& with) {
  return std::make_unique<drawn_model<Law, Similar>>(with);
}

constexpr model_kind table[] = {
    {"normal", "normal values, correlation of workers 0.9", "", 0, 0, make_drawn<law::normal, true>, ""},
    {"heavy", "quantiles of Student's t with three degrees of freedom in random order, correlation 0.9", "",
     0, 0, make_drawn<law::heavy, true>, ""},
    {"sparse", "one value in 20 is normal, at the same places, correlation 0.9", "", 0, 0,
     make_drawn<law::sparse, true>, ""},
    {"independent-normal", "normal values, workers independent", "", 0, 0, make_drawn<law::normal, false>,
     ""},
    {"independent-sparse", "one value in 20 is normal, workers independent", "", 0, 0,
     make_drawn<law::sparse, false>, ""},
};

}  // namespace

std::span<model_kind const> drawn_kinds() { return table; }

}  // namespace evidence
