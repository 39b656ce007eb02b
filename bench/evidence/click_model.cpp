// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: a click model in the manner of DeepLight, on clicks that are drawn from a planted model, so that the
/// best possible AUC is known.

#include "torch_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

namespace evidence {
namespace {

constexpr double highest_rate = 1e-2;

/// Examples: a category of each field, as rows of one table, and whether it was clicked.
struct examples {
  torch::Tensor rows, clicked;
  std::vector<float> logits;  ///< of the planted model
};

/// @brief The planted model: a bias, a weight for each category, and products of short vectors of categories. Categories of a
/// field have Zipf's distribution: P(c) is about 1 / ((c + 1) ln(count)).
class world {
 public:
  explicit world(bool small) {
    std::mt19937_64 bits(1);
    std::normal_distribution<float> normal;
    double count = small ? 4 : 10;
    for (std::size_t f = 0; f < fields; ++f, count *= small ? 1.1 : std::numbers::sqrt2) {
      first_.push_back(rows_);
      rows_ += static_cast<std::int64_t>(count);
    }
    first_.push_back(rows_);
    planted_.resize(static_cast<std::size_t>(rows_));
    for (auto& p : planted_) {
      p[0] = 0.25F * normal(bits);
      for (std::size_t d = 1; d < p.size(); ++d) p[d] = 0.13F * normal(bits);
    }
  }

  static constexpr std::size_t fields = 26;
  std::int64_t rows() const { return rows_; }

  /// The same for the same seed.
  examples draw(std::uint64_t seed, std::int64_t count) const {
    std::mt19937_64 bits(seed);
    std::uniform_real_distribution<double> uniform;
    examples e{torch::empty({count, std::int64_t{fields}}, torch::kLong), torch::empty({count}), {}};
    auto* row = e.rows.data_ptr<std::int64_t>();
    auto* clicked = e.clicked.data_ptr<float>();
    for (std::int64_t k = 0; k < count; ++k) {
      planted sum{}, squares{};
      for (std::size_t f = 0; f < fields; ++f) {
        double const all = static_cast<double>(first_[f + 1] - first_[f]);
        *row = first_[f] + static_cast<std::int64_t>(std::pow(all + 1, uniform(bits))) - 1;
        planted const& p = planted_[static_cast<std::size_t>(*row++)];
        for (std::size_t d = 0; d < p.size(); ++d) {
          sum[d] += p[d];
          squares[d] += p[d] * p[d];
        }
      }
      float logit = sum[0] - 1.4F;
      for (std::size_t d = 1; d < sum.size(); ++d) logit += (sum[d] * sum[d] - squares[d]) / 2;
      e.logits.push_back(logit);
      clicked[k] = uniform(bits) < 1 / (1 + std::exp(-static_cast<double>(logit))) ? 1.0F : 0.0F;
    }
    return e;
  }

 private:
  using planted = std::array<float, 5>;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> first_;  ///< row of each field
  std::vector<planted> planted_;
};

/// The probability that an example with a click has a higher score than one without.
double area_under_curve(std::span<float const> scores, torch::Tensor const& clicked) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double below = 0, pairs = 0, clicks = 0;
  for (std::size_t const k : order)
    if (clicked.data_ptr<float>()[k] == 0) {
      ++below;
    } else {
      ++clicks;
      pairs += below;
    }
  return pairs / (below * clicks);
}

/// A weight and an embedding for each category, products of the embeddings weighted by pairs of fields, and a perceptron
/// (DeepFwFM, Deng et al. 2021).
class click_net : public torch::nn::Module {
 public:
  explicit click_net(std::int64_t rows)
      : table_(register_parameter("table", 0.05 * torch::randn({rows, 1 + width}))),
        pairs_(register_parameter("pairs", 0.1 * torch::randn({fields, fields}))),
        bias_(register_parameter("bias", torch::zeros({1}))),
        deep_(register_module("deep", torch::nn::Sequential(torch::nn::Linear(fields * width, 64),
                                                            torch::nn::ReLU(), torch::nn::Linear(64, 32),
                                                            torch::nn::ReLU(), torch::nn::Linear(32, 1)))) {}

  /// @returns a logit for each example
  torch::Tensor forward(torch::Tensor const& rows) {
    auto const found = torch::embedding(table_, rows);
    auto const v = found.narrow(2, 1, width);
    auto const products = torch::matmul(pairs_.triu(1), v) * v;
    return bias_ + found.select(2, 0).sum(1) + products.sum({1, 2}) + deep_->forward(v.flatten(1)).squeeze(1);
  }

 private:
  static constexpr std::int64_t fields = world::fields, width = 10;
  torch::Tensor table_, pairs_, bias_;
  torch::nn::Sequential deep_;
};

class click final : public torch_model {
 public:
  explicit click(replica_setting const& with)
      : with_(with), world_(with.small), batch_(with.small ? 32 : 1024) {
    std::lock_guard const alone(torch_generator());
    torch::manual_seed(with.seed);
    net_ = std::make_unique<click_net>(world_.rows());
    take(*net_);
    step_with(
        std::make_unique<torch::optim::Adam>(net_->parameters(), torch::optim::AdamOptions(highest_rate)),
        highest_rate, with.steps);
    if (with.rank == 0) test_ = world_.draw(0, with.small ? 1024 : 1 << 17);
  }

  bool steps_along_gradients() const override { return false; }

  /// An AUC is no mean over workers, so one evaluates all examples.
  judgment evaluate() override {
    if (with_.rank != 0) return {};
    torch::NoGradGuard const none;
    std::vector<float> scores;
    for (torch::Tensor const& rows : test_.rows.split(4096)) {
      auto const some = net_->forward(rows).contiguous();
      scores.insert(scores.end(), some.data_ptr<float>(), some.data_ptr<float>() + some.numel());
    }
    return {area_under_curve(scores, test_.clicked), 1};
  }
  double best() const override { return with_.rank != 0 ? 0 : area_under_curve(test_.logits, test_.clicked); }

 protected:
  torch::Tensor loss(std::uint64_t step) override {
    auto const number = (with_.seed << 32) + step * static_cast<std::uint64_t>(with_.workers);
    examples const e = world_.draw(number + static_cast<std::uint64_t>(with_.rank), batch_);
    return torch::binary_cross_entropy_with_logits(net_->forward(e.rows), e.clicked);
  }

 private:
  replica_setting with_;
  world world_;
  std::int64_t batch_;
  examples test_;
  std::unique_ptr<click_net> net_;
};

}  // namespace

std::unique_ptr<model> make_click(replica_setting const& with) { return std::make_unique<click>(with); }

}  // namespace evidence
