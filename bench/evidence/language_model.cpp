// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the transformer of examples/language_model, every worker with all of it; of bytes, or of words.

#include "torch_model.hpp"
#include "word_text.hpp"

#include <language_model/text.hpp>
#include <language_model/transformer.hpp>

#include <algorithm>

namespace evidence {
namespace {

namespace lm = language_model;

constexpr double highest_rate = 3e-3;

std::vector<std::string> text_of(replica_setting const& with) {
  return with.text.empty() ? std::vector<std::string>{GLOBALQ_LANGUAGE_MODEL_TEXT} : with.text;
}

template <class Text>
class language final : public torch_model {
 public:
  language(replica_setting const& with, Text text, std::int64_t symbols)
      : with_(with), batch_(with.small ? 2 : 8), text_(std::move(text)) {
    if (with.small) shape_ = {.context = 16, .width = 16, .heads = 2, .blocks = 1};
    shape_.symbols = symbols;
    std::lock_guard const alone(torch_generator());
    torch::manual_seed(with.seed);
    net_ = lm::transformer(shape_);
    take(*net_);
    step_with(std::make_unique<torch::optim::Adam>(
                  net_->parameters(), torch::optim::AdamOptions(highest_rate).betas({0.9, 0.99})),
              highest_rate, with.steps);
  }

  bool steps_along_gradients() const override {
    return false;
  }  // Adam's have one length whatever the gradient's

  judgment evaluate() override {
    torch::NoGradGuard const none;
    judgment own;
    for (int k = with_.rank; k < 8; k += with_.workers) {
      lm::batch const b =
          text_.draw_held_out(static_cast<std::uint64_t>(k), with_.small ? 1 : 16, shape_.context);
      own.sum += net_->loss(b.input, b.next).item<double>();
      own.weight += 1;
    }
    return own;
  }

 protected:
  torch::Tensor loss(std::uint64_t step) override {
    auto const workers = static_cast<std::uint64_t>(with_.workers);
    lm::batch const b =
        text_.draw((with_.seed * (1U << 20) + step) * workers + static_cast<std::uint64_t>(with_.rank),
                   batch_, shape_.context);
    return net_->loss(b.input, b.next);
  }

 private:
  replica_setting with_;
  std::int64_t batch_;
  lm::shape shape_;
  Text text_;
  lm::transformer net_{nullptr};
};

}  // namespace

std::unique_ptr<model> make_language(replica_setting const& with) {
  return std::make_unique<language<lm::text>>(with, lm::text(text_of(with)), lm::text::symbols);
}
std::unique_ptr<model> make_words(replica_setting const& with) {
  std::int64_t const symbols = with.small ? 64 : 8192;
  return std::make_unique<language<word_text>>(with, word_text(text_of(with), symbols), symbols);
}

}  // namespace evidence
