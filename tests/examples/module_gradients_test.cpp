// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The layers that examples/torch_trainer makes of a LibTorch module, and its backward pass.

#include "examples/torch_trainer/module_gradients.hpp"
#include "examples/torch_trainer/residual_net.hpp"

#include <globalq/operator/operators.hpp>
#include <globalq/schedule/allgather.hpp>
#include <globalq/train/adapt/filter.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace globalq_test {
namespace {

namespace gq = globalq;
using torch_trainer::module_gradients;

/// A layer that is used twice, one that may be left out, and one that is not trained.
class three_layers_impl : public torch::nn::Module {
 public:
  three_layers_impl()
      : twice(register_module("twice", torch::nn::Linear(4, 4))),
        maybe(register_module("maybe", torch::nn::Linear(4, 4))),
        fixed(register_module("fixed", torch::nn::Linear(4, 4))) {
    for (auto& p : fixed->parameters()) p.set_requires_grad(false);
  }
  torch::Tensor forward(torch::Tensor x, bool with_maybe) {
    x = twice(torch::tanh(twice(fixed(x))));
    return (with_maybe ? maybe(x) : x).square().sum();
  }
  torch::nn::Linear twice, maybe, fixed;
};
TORCH_MODULE_IMPL(three_layers, three_layers_impl);

std::vector<float> copy_of(torch::Tensor const& t) {
  return {t.data_ptr<float>(), t.data_ptr<float>() + t.numel()};
}

TEST(ModuleGradients, trained_parameters_are_layers_by_name_and_shape) {
  three_layers const model;
  module_gradients const gradients(*model);
  std::vector<std::string> names;
  for (auto const& layer : gradients.layers()) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"twice.weight", "twice.bias", "maybe.weight", "maybe.bias"}));
  EXPECT_EQ(gradients.layers()[0].shape, (std::vector<std::uint64_t>{4, 4}));
}

TEST(ModuleGradients, each_layer_is_ready_once_with_its_whole_gradient) {
  torch::manual_seed(1);
  three_layers model;
  auto const x = torch::randn({3, 4});
  model->forward(x, true).backward();
  std::vector<std::vector<float>> expected;
  for (auto const& p : {model->twice->weight, model->twice->bias, model->maybe->weight, model->maybe->bias})
    expected.push_back(copy_of(p.grad()));

  module_gradients gradients(*model);
  for (int pass = 0; pass < 2; ++pass) {
    model->zero_grad();
    std::vector<std::vector<float>> found(4);
    std::vector<std::size_t> order;
    gradients.backward(model->forward(x, true), [&](std::size_t layer, std::span<float> values) {
      order.push_back(layer);
      found[layer].assign(values.begin(), values.end());
    });
    EXPECT_EQ(found, expected);
    ASSERT_EQ(order.size(), 4U);
    EXPECT_GE(std::min(order[0], order[1]), 2U) << "the last layers are ready first";
  }
}

TEST(ModuleGradients, layers_that_a_pass_does_not_reach_come_as_zeros) {
  three_layers model;
  module_gradients gradients(*model);
  std::vector<std::size_t> order;
  gradients.backward(
      model->forward(torch::randn({3, 4}), false), [&](std::size_t layer, std::span<float> values) {
        order.push_back(layer);
        EXPECT_EQ(std::any_of(values.begin(), values.end(), [](float v) { return v != 0; }), layer < 2);
      });
  EXPECT_EQ(std::vector<std::size_t>(order.end() - 2, order.end()), (std::vector<std::size_t>{3, 2}));
  EXPECT_EQ(gradients.group().size(), 4U);
}

TEST(ModuleGradients, plain_passes_add_up_and_are_not_watched) {
  torch::manual_seed(2);
  three_layers model;
  auto const x = torch::randn({3, 4});
  module_gradients gradients(*model);
  int calls = 0;
  auto const count = [&](std::size_t, std::span<float>) { ++calls; };
  gradients.backward(model->forward(x, true), count);
  auto const once = copy_of(model->maybe->weight.grad());
  model->forward(x, true).backward();
  EXPECT_EQ(calls, 4);
  auto const twice = copy_of(model->maybe->weight.grad());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
}

TEST(ModuleGradients, an_error_of_a_layer_ends_the_pass_and_the_next_one_is_whole) {
  three_layers model;
  module_gradients gradients(*model);
  auto const x = torch::randn({3, 4});
  EXPECT_THROW(gradients.backward(model->forward(x, true),
                                  [](std::size_t, std::span<float>) { throw std::runtime_error{"no"}; }),
               std::runtime_error);
  int calls = 0;
  gradients.backward(model->forward(x, true), [&](std::size_t, std::span<float>) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST(ModuleGradients, hooks_outlive_their_owner_without_harm) {
  three_layers model;
  auto const x = torch::randn({3, 4});
  torch::Tensor const loss = model->forward(x, true);  // its graph keeps the nodes that have hooks
  {
    module_gradients gradients(*model);
    gradients.backward(model->forward(x, true), [](std::size_t, std::span<float>) {});
  }
  loss.backward();
}

TEST(ModuleGradients, parameters_that_are_not_float32_are_refused_by_name) {
  three_layers model;
  model->maybe->to(torch::kDouble);
  try {
    module_gradients const gradients(*model);
    FAIL() << "was accepted";
  } catch (std::runtime_error const& e) {
    EXPECT_NE(std::string(e.what()).find("\"maybe.weight\" is Double"), std::string::npos) << e.what();
  }
}

/// Over allgather the bits do not depend on what travels together, nor on when.
TEST(ModuleGradients, overlapped_and_in_one_call_give_the_same_bits_on_all_workers) {
  constexpr int n = 3;
  std::vector<std::vector<float>> results(2 * n);
  std::vector<char> agree(n), agreed_before(n);
  std::mutex making;
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    std::unique_lock lock(making);
    torch::manual_seed(10 + workers.rank());  // all start differently
    torch_trainer::residual_net model(torch_trainer::residual_shape{.width = 8, .stages = 2});
    auto const pictures = torch::randn({4, 1, 8, 8});
    lock.unlock();
    agreed_before[rank] = torch_trainer::replicas_agree(workers, *model);
    torch_trainer::copy_from_first(workers, *model);
    agree[rank] = torch_trainer::replicas_agree(workers, *model);

    module_gradients gradients(*model);
    auto const operators = gq::adapt::operators_of(gradients.layers(), gq::adapt::filter::cgx(),
                                                   gq::any_quantizer(gq::operators::qsgd<4>(64)));
    gq::adapt::layered_options const options{.call = {.seed = 3}};
    gq::schedule::allgather const schedule;
    gq::adapt::layered_mean mean(workers, gradients.layers(), operators, schedule, options);
    gq::adapt::overlapped_mean overlapped(workers, gradients.layers(), operators, schedule,
                                          {.layers = options, .group_bytes = 2048});
    EXPECT_GT(overlapped.groups(), 3U);
    auto const loss = [&] { return model->forward(pictures).square().sum(); };
    auto const keep = [&](std::size_t where) {
      for (auto const& p : model->parameters())
        for (float v : copy_of(p.grad())) results[where].push_back(v);
    };
    for (std::uint64_t step = 0; step < 2; ++step) {
      model->zero_grad();
      loss().backward();
      mean(gradients.group(), step);
      keep(rank);
      model->zero_grad();
      overlapped.begin(step);
      gradients.backward(loss(), [&](std::size_t layer, std::span<float> g) { overlapped.ready(layer, g); });
      overlapped.wait();
      keep(n + rank);
    }
  });
  for (auto const& r : results) EXPECT_EQ(r, results[0]);
  EXPECT_FALSE(results[0].empty());
  EXPECT_EQ(agreed_before, std::vector<char>(n, 0));
  EXPECT_EQ(agree, std::vector<char>(n, 1));
}

/// The code of examples/torch_trainer/README.md.
TEST(ModuleGradients, the_code_of_the_page_averages_gradients) {
  std::vector<float> gradient[2][2];
  std::mutex making;
  gq::transport::threads cluster{2};
  cluster.run([&](auto& workers) {
    std::uint64_t const step = 0;
    auto const rank = static_cast<std::size_t>(workers.rank());
    std::unique_lock lock(making);
    torch::manual_seed(10 + workers.rank());
    torch_trainer::residual_net model(torch_trainer::residual_shape{.width = 8, .stages = 2});
    auto const pictures = torch::randn({4, 1, 8, 8});
    lock.unlock();
    gq::any_quantizer const op(gq::operators::qsgd<4>(64));

    //! [torch-layers]
    torch_trainer::copy_from_first(workers, *model);  // all workers start with the same model
    torch_trainer::module_gradients gradients(*model);
    auto const operators = gq::adapt::operators_of(gradients.layers(), gq::adapt::filter::cgx(), op);
    gq::adapt::layered_mean mean{workers, gradients.layers(), operators, gq::schedule::sra{}};
    //! [torch-layers]
    torch::Tensor loss = model->forward(pictures).square().sum();
    //! [torch-step]
    loss.backward();
    mean(gradients.group(), step);  // all gradients are means now
    //! [torch-step]
    gradient[0][rank] = copy_of(model->parameters()[0].grad());

    model->zero_grad();
    loss = model->forward(pictures).square().sum();
    //! [torch-overlap]
    gq::adapt::overlapped_mean overlapped{workers, gradients.layers(), operators, gq::schedule::sra{}};
    overlapped.begin(step);
    gradients.backward(loss,
                       [&](std::size_t layer, std::span<float> values) { overlapped.ready(layer, values); });
    overlapped.wait();
    //! [torch-overlap]
    gradient[1][rank] = copy_of(model->parameters()[0].grad());
  });
  for (auto const& of : gradient) {
    EXPECT_FALSE(of[0].empty());
    EXPECT_EQ(of[0], of[1]);
  }
}

}  // namespace
}  // namespace globalq_test
