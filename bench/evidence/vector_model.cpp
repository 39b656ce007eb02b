// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: one vector of random values, to time exchanges without a model.

#include "model.hpp"

#include <algorithm>
#include <random>

namespace evidence {
namespace {

class vector_model final : public model {
 public:
  explicit vector_model(replica_setting const& with) : drawn_(with.values), gradient_(with.values) {
    std::mt19937_64 bits(with.seed * static_cast<std::uint64_t>(with.workers) +
                         static_cast<std::uint64_t>(with.rank));
    std::normal_distribution<float> normal;
    std::generate(drawn_.begin(), drawn_.end(), [&] { return normal(bits); });
    layers_.add("vector", {with.values, 1});  // a matrix: filters keep vectors in float32
  }

  gq::adapt::model_layout const& layers() const override { return layers_; }
  std::span<float> differentiate(std::uint64_t) override {
    std::copy(drawn_.begin(), drawn_.end(), gradient_.begin());
    return gradient_;
  }
  void update(std::uint64_t) override {}
  double rate(std::uint64_t) const override { return 0; }
  std::span<float const> parameters() override { return drawn_; }
  judgment evaluate() override { return {}; }

 private:
  std::vector<float> drawn_, gradient_;
  gq::adapt::model_layout layers_;
};

constexpr model_kind kind{"vector",
                          "independent normal values, no computing",
                          "",
                          0,
                          0,
                          [](replica_setting const& with) -> std::unique_ptr<model> {
                            return std::make_unique<vector_model>(with);
                          },
                          ""};

}  // namespace

model_kind const& vector_kind() { return kind; }

}  // namespace evidence
