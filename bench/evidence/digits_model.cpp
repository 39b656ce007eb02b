// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the perceptron of examples/digits.

#include "model.hpp"
#include "pictures_share.hpp"

#include <digits/mlp.hpp>

namespace evidence {
namespace {

class digits_model final : public model {
 public:
  explicit digits_model(replica_setting const& with)
      : data_(digits::split_and_standardize(digits::read_pictures(GLOBALQ_DIGITS_CSV), 1.0 / 3, 42)),
        net_({digits::num_pixels, with.small ? 24 : 960, with.small ? 24 : 960, digits::num_classes},
             with.seed),
        own_test_(share_of(data_.test, with.rank, with.workers)),
        dealer_(data_.train, 32, with.rank, with.workers, with.seed),
        velocity_(Eigen::VectorXf::Zero(net_.parameters().size())),
        steps_(with.steps) {
    std::uint64_t in = digits::num_pixels;
    for (int l = 0; l < 3; ++l) {
      std::uint64_t const out = l == 2 ? digits::num_classes : (with.small ? 24 : 960);
      std::string const name = "layer" + std::to_string(l);
      layers_.add(name + ".weight", {in, out})
          .add(name + ".bias", {out});  // Eigen's matrices lie column by column
      in = out;
    }
  }

  gq::adapt::model_layout const& layers() const override { return layers_; }
  std::span<float> differentiate(std::uint64_t step) override {
    net_.differentiate(dealer_.deal(step));
    return {net_.gradient().data(), static_cast<std::size_t>(net_.gradient().size())};
  }
  void update(std::uint64_t step) override {
    velocity_ = 0.9F * velocity_ + net_.gradient();
    net_.parameters() -= static_cast<float>(rate(step)) * velocity_;
  }
  double rate(std::uint64_t step) const override { return 0.015 * share_of_rate(step, steps_); }
  std::span<float const> parameters() override {
    return {net_.parameters().data(), static_cast<std::size_t>(net_.parameters().size())};
  }
  judgment evaluate() override {
    double const count = static_cast<double>(own_test_.count());
    return {count == 0 ? 0 : count * net_.evaluate(own_test_).accuracy, count};
  }

 private:
  digits::dataset data_;
  digits::mlp net_;
  digits::pictures own_test_;
  digits::batch_dealer dealer_;
  Eigen::VectorXf velocity_;
  std::uint64_t steps_;
  gq::adapt::model_layout layers_;
};

}  // namespace

std::unique_ptr<model> make_digits(replica_setting const& with) {
  return std::make_unique<digits_model>(with);
}

}  // namespace evidence
