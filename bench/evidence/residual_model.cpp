// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the residual network of examples/torch_trainer.

#include "pictures_share.hpp"
#include "torch_model.hpp"

#include <torch_trainer/pictures.hpp>
#include <torch_trainer/residual_net.hpp>

namespace evidence {
namespace {

namespace tt = torch_trainer;

constexpr double highest_rate = 0.1;

class residual final : public torch_model {
 public:
  explicit residual(replica_setting const& with)
      : data_(digits::split_and_standardize(digits::read_pictures(GLOBALQ_DIGITS_CSV), 1.0 / 3, 42)),
        own_test_(tt::tensors_of(share_of(data_.test, with.rank, with.workers))),
        dealer_(data_.train, with.small ? 4 : 16, with.rank, with.workers, with.seed) {
    std::lock_guard const alone(torch_generator());
    torch::manual_seed(with.seed);
    net_ = tt::residual_net(tt::residual_shape{.width = with.small ? 8 : 32});
    take(*net_);
    step_with(std::make_unique<torch::optim::SGD>(net_->parameters(),
                                                  torch::optim::SGDOptions(highest_rate).momentum(0.9)),
              highest_rate, with.steps);
  }

  judgment evaluate() override {
    double const count = static_cast<double>(own_test_.digits.size(0));
    return {count == 0 ? 0 : count * tt::judge(net_, own_test_).accuracy, count};
  }

 protected:
  torch::Tensor loss(std::uint64_t step) override {
    tt::batch const b = tt::tensors_of(dealer_.deal(step));
    return torch::nn::functional::cross_entropy(net_->forward(b.pictures), b.digits);
  }

 private:
  digits::dataset data_;
  tt::batch own_test_;
  digits::batch_dealer dealer_;
  tt::residual_net net_{nullptr};
};

}  // namespace

std::unique_ptr<model> make_residual(replica_setting const& with) { return std::make_unique<residual>(with); }

}  // namespace evidence
