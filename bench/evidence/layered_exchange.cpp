// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: an operator for every layer, with biases and normalisations in float32 as CGX has it; and L-GreCo, which
/// chooses the bits of each layer while it trains.

#include "exchange.hpp"

#include <globalq/adapt/agree.hpp>
#include <globalq/adapt/layered_mean.hpp>
#include <globalq/adapt/lgreco.hpp>
#include <globalq/adapt/quantiser_errors.hpp>
#include <globalq/schedule/any.hpp>

#include <algorithm>

namespace evidence {
namespace {

using layered = gq::adapt::layered_mean<workers, gq::schedule::any>;

class layered_exchange final : public exchange {
 public:
  layered_exchange(setting const& with, compose::named_operator const& asked, std::string const& schedule)
      : mean_(with.all, with.layers,
              gq::adapt::operators_of(with.layers, gq::adapt::filter::cgx(), compose::make(asked.words)),
              gq::schedule::any{schedule}, {.call = {.seed = with.seed}}) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override { mean_(gradient, step); }

 private:
  layered mean_;
};

/// CGX's operator with some bits.
gq::any_quantizer bits_operator(std::uint32_t bits, std::uint64_t bucket) {
  compose::description words;
  words.norm = "local:inf";
  words.levels = "uniform";
  words.wire = "packed:" + std::to_string(bits);
  words.bucket = bucket;
  return compose::make(words);
}

/// The bits of each layer are chosen anew every so many steps, from gradients added up since, under the error of the same bits
/// everywhere.
class lgreco_exchange final : public exchange {
 public:
  lgreco_exchange(setting const& with, compose::arguments const& how)
      : all_(with.all),
        every_(how.number("every", 0, 1U << 30)),
        sum_(with.layers),
        bits_(gq::adapt::around(static_cast<std::uint32_t>(how.number("bits", 2, 4)))),
        mean_(with.all, with.layers,
              gq::adapt::operators_of(with.layers, gq::adapt::filter::cgx(),
                                      bits_operator(static_cast<std::uint32_t>(how.number("bits", 2, 4)),
                                                    how.number("bucket", 1, 1U << 20))),
              gq::schedule::any{"sra"}, {.call = {.seed = with.seed}}) {
    if (every_ == 0) every_ = std::max<std::uint64_t>(with.steps / 8, 5);
    auto const reference = static_cast<std::uint32_t>(how.number("bits", 2, 4));
    for (std::uint32_t const b : bits_)
      operators_.push_back(bits_operator(b, how.number("bucket", 1, 1U << 20)));
    reference_ = static_cast<std::uint32_t>(std::find(bits_.begin(), bits_.end(), reference) - bits_.begin());
  }

  void operator()(std::span<float> gradient, std::uint64_t step) override {
    sum_.add(std::span<float const>(gradient));
    if ((step + 1) % every_ == 0) choose(step);
    mean_(gradient, step);
  }

 private:
  void choose(std::uint64_t step) {
    gq::adapt::filter const keep = gq::adapt::filter::cgx();
    gq::adapt::choice_table table;
    if (sum_.skipped() == 0)
      table = gq::adapt::measure(sum_, gq::adapt::quantisers(operators_, all_.execution()),
                                 [&](gq::adapt::layer const& l) { return !keep(l); });
    auto const found =
        gq::adapt::agree(all_, table,
                         [&](gq::adapt::choice_table const& all) {
                           auto const same = gq::adapt::uniform_choice(all, reference_);
                           return gq::adapt::lgreco{}(all, gq::adapt::budget_of(all, same), same);
                         },
                         {.step = step, .settings = reference_});
    sum_.clear();
    if (!found) return;
    std::vector<gq::any_quantizer> chosen;
    for (std::size_t k = 0; k < mean_.model().size(); ++k)
      chosen.push_back(keep(mean_.model()[k]) ? gq::any_quantizer(gq::uncompressed{})
                                              : operators_[found->choices[k]]);
    mean_.assign(chosen);
  }

  workers& all_;
  std::uint64_t every_;
  gq::adapt::gradient_accumulator sum_;
  std::vector<std::uint32_t> bits_;
  std::vector<gq::any_quantizer> operators_;
  std::uint32_t reference_ = 0;
  layered mean_;
};

}  // namespace

std::unique_ptr<exchange> make_layered(setting const& with, compose::named_operator const& asked,
                                       std::string const& schedule) {
  return std::make_unique<layered_exchange>(with, asked, schedule);
}
std::unique_ptr<exchange> make_lgreco(setting const& with, compose::arguments const& how) {
  return std::make_unique<lgreco_exchange>(with, how);
}

}  // namespace evidence
