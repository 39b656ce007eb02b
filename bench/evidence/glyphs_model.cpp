// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: a convolutional network on noisy glyphs.

#include "torch_model.hpp"

#include <globalq/bench/data.hpp>
#include <globalq/core/error.hpp>

#include <fstream>
#include <random>

namespace evidence {
namespace {

constexpr double highest_rate = 0.07;
constexpr std::uint64_t side = 16;              ///< of a picture, in pixels
constexpr float deviation = 0.5F;               ///< of the noise, where white is 1
constexpr std::uint64_t pictures_a_step = 128;  ///< of all workers together
constexpr std::uint64_t test_batches = 32, test_batch = 512;
/// Number of a picture that no training reaches.
constexpr std::uint64_t first_test = std::uint64_t{1} << 63;

/// @brief Clean pictures of glyphs, of which each number gives one with noise, whatever the number of workers.
class glyphs {
 public:
  explicit glyphs(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    file >> classes_ >> fonts_ >> clean_side_;
    file.get();  // the end of the line
    if (file && classes_ < 65536 && fonts_ < 65536 && clean_side_ >= side && clean_side_ < 256)
      clean_.resize(classes_ * fonts_ * clean_side_ * clean_side_);
    file.read(reinterpret_cast<char*>(clean_.data()), static_cast<std::streamsize>(clean_.size()));
    if (!file || clean_.empty())
      throw gq::configuration_error("globalq: evidence: the model glyphs cannot read its pictures from \"" +
                                    path +
                                    "\"; write them with bench/evidence/glyph_pictures.py FILE, and name the "
                                    "file with --pictures FILE");
  }

  std::int64_t classes() const { return static_cast<std::int64_t>(classes_); }

  struct batch {
    torch::Tensor pictures;  ///< n x 1 x side x side
    torch::Tensor labels;    ///< n
  };
  /// Pictures number first to first + count - 1: each a random glyph at a random place, and normal noise.
  batch draw(std::uint64_t first, std::uint64_t count) const {
    auto const n = static_cast<std::int64_t>(count);
    torch::Tensor x = torch::empty({n, 1, static_cast<std::int64_t>(side), static_cast<std::int64_t>(side)});
    torch::Tensor labels = torch::empty({n}, torch::kLong);
    float* to = x.data_ptr<float>();
    for (std::uint64_t k = 0; k < count; ++k) {
      std::mt19937_64 random(gq::bench::mix(first + k));
      std::normal_distribution<float> noise(0, deviation);
      std::uint64_t const glyph = random() % (classes_ * fonts_);
      std::uint64_t const left = random() % (clean_side_ - side + 1),
                          top = random() % (clean_side_ - side + 1);
      labels[static_cast<std::int64_t>(k)] = static_cast<std::int64_t>(glyph / fonts_);
      for (std::uint64_t row = 0; row < side; ++row)
        for (std::uint64_t column = 0; column < side; ++column)
          *to++ =
              static_cast<float>(clean_[(glyph * clean_side_ + top + row) * clean_side_ + left + column]) /
                  255.0F +
              noise(random);
    }
    return {x, labels};
  }

 private:
  std::uint64_t classes_ = 0, fonts_ = 0, clean_side_ = 0;
  std::vector<unsigned char> clean_;
};

class glyphs_model final : public torch_model {
 public:
  explicit glyphs_model(replica_setting const& with)
      : with_(with),
        rank_(static_cast<std::uint64_t>(with.rank)),
        workers_(static_cast<std::uint64_t>(with.workers)),
        data_(with.pictures) {
    std::lock_guard const alone(torch_generator());
    torch::manual_seed(with.seed);
    auto const convolution = [](std::int64_t from, std::int64_t to) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1).bias(false));
    };
    std::int64_t const width = with.small ? 4 : 32;
    net_ = torch::nn::Sequential(convolution(1, width), torch::nn::GroupNorm(4, width), torch::nn::ReLU(),
                                 convolution(width, 2 * width), torch::nn::GroupNorm(4, 2 * width),
                                 torch::nn::ReLU(), torch::nn::Flatten(),
                                 torch::nn::Linear(2 * width * 16, 4 * width), torch::nn::ReLU(),
                                 torch::nn::Linear(4 * width, data_.classes()));
    take(*net_);
    step_with(std::make_unique<torch::optim::SGD>(net_->parameters(),
                                                  torch::optim::SGDOptions(highest_rate).momentum(0.9)),
              highest_rate, with.steps);
  }

  judgment evaluate() override {
    torch::NoGradGuard const none;
    judgment own;
    for (std::uint64_t k = rank_; k < (with_.small ? 2 : test_batches); k += workers_) {
      glyphs::batch const b = data_.draw(first_test + k * test_batch, test_batch);
      own.sum += net_->forward(b.pictures).argmax(1).eq(b.labels).sum().item<double>();
      own.weight += test_batch;
    }
    return own;
  }

 protected:
  torch::Tensor loss(std::uint64_t step) override {
    std::uint64_t const begin = rank_ * pictures_a_step / workers_,
                        end = (rank_ + 1) * pictures_a_step / workers_;
    glyphs::batch const b = data_.draw((with_.seed << 32) + step * pictures_a_step + begin, end - begin);
    return torch::nn::functional::cross_entropy(net_->forward(b.pictures), b.labels);
  }

 private:
  replica_setting with_;
  std::uint64_t rank_, workers_;
  glyphs data_;
  torch::nn::Sequential net_;
};

}  // namespace

std::unique_ptr<model> make_glyphs(replica_setting const& with) {
  return std::make_unique<glyphs_model>(with);
}

}  // namespace evidence
