// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: an operator for every layer, with biases and normalizations in float32 as CGX has it; and CGX's rules and
/// L-GreCo, which choose the bits of each layer while it trains.

#include "exchange.hpp"

#include <globalq/schedule/any.hpp>
#include <globalq/train/adapt/adaptive_mean.hpp>
#include <globalq/train/adapt/chooser.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>

#include <string_view>
#include <utility>

namespace evidence {
namespace {

using layered = gq::adapt::layered_mean<workers, gq::schedule::any>;

class layered_exchange final : public exchange {
 public:
  layered_exchange(setting const& with, gq::named::named_operator const& asked, std::string const& schedule)
      : mean_(with.all, with.layers,
              gq::adapt::operators_of(with.layers, gq::adapt::filter::cgx(), gq::named::make(asked.words)),
              gq::schedule::any{schedule}, {.call = {.seed = with.seed}}) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override { mean_(gradient, step); }

 private:
  layered mean_;
};

class overlapped_layers final : public overlapped {
 public:
  overlapped_layers(setting const& with, gq::named::named_operator const& asked, std::string const& schedule,
                    std::uint64_t groups, double share)
      : mean_(with.all, with.layers,
              std::vector<gq::any_quantizer>(with.layers.size(), gq::named::make(asked.words)),
              gq::schedule::any{schedule},
              {.layers = {.call = {.seed = with.seed}},
               .group_bytes = with.layers.length() * sizeof(float) / groups,
               .backward_share = share}) {}

  void begin(std::uint64_t step) override { mean_.begin(step); }
  void ready(std::size_t layer, std::span<float> gradient) override { mean_.ready(layer, gradient); }
  void wait(std::size_t layer) override { mean_.wait(layer); }
  void finish() override { mean_.wait(); }

 private:
  gq::adapt::overlapped_mean<workers, gq::schedule::any> mean_;
};

/// CGX's operator with some bits, of the kernels that are compiled already.
gq::any_quantizer bits_operator(gq::adapt::bits_and_bucket const& p) {
  gq::named::description words;
  words.norm = "local:inf";
  words.levels = "uniform";
  words.wire = "packed:" + std::to_string(p.bits);
  words.bucket = p.bucket;
  return gq::named::make(words);
}

/// Bits, and buckets, of each layer are chosen anew every so many steps, from gradients added up since, under the error of the
/// reference everywhere.
class adaptive_exchange final : public exchange {
 public:
  adaptive_exchange(setting const& with, gq::named::arguments const& how, gq::adapt::chooser_options choice)
      : mean_(with.all, with.layers, gq::schedule::any{"sra"}, options(with, how, std::move(choice))) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override { mean_(gradient, step); }

 private:
  static gq::adapt::adaptive_options options(setting const& with, gq::named::arguments const& how,
                                             gq::adapt::chooser_options choice) {
    gq::adapt::adaptive_options o;
    o.layers.call.seed = with.seed;
    o.choice = std::move(choice);
    o.choice.make = bits_operator;
    o.every = every_of(with, how);
    return o;
  }

  gq::adapt::adaptive_mean<workers, gq::schedule::any> mean_;
};

}  // namespace

std::unique_ptr<exchange> make_layered(setting const& with, gq::named::named_operator const& asked,
                                       std::string const& schedule) {
  return std::make_unique<layered_exchange>(with, asked, schedule);
}
std::unique_ptr<overlapped> make_layered_overlapped(setting const& with,
                                                    gq::named::named_operator const& asked,
                                                    std::string const& schedule, std::uint64_t groups,
                                                    double share) {
  return std::make_unique<overlapped_layers>(with, asked, schedule, groups, share);
}
std::unique_ptr<exchange> make_lgreco(setting const& with, gq::named::arguments const& how) {
  auto const bits = static_cast<std::uint32_t>(how.number("bits", 2, 4));
  std::uint64_t const bucket = how.number("bucket", 1, 1U << 20);
  gq::adapt::chooser_options o;
  o.candidates.clear();
  for (std::uint32_t const b : gq::adapt::around(bits, how.real("range", 1)))
    if (b >= 2 && b <= 8) o.candidates.push_back({b, bucket});
  o.reference = {bits, bucket};
  o.how = gq::adapt::rule_of(gq::adapt::lgreco{});
  return std::make_unique<adaptive_exchange>(with, how, std::move(o));
}
std::unique_ptr<exchange> make_adaptive_cgx(setting const& with, gq::named::arguments const& how) {
  constexpr std::string_view rules[] = {"kmeans", "linear", "bayes"};
  gq::adapt::chooser_options
      o;  // CGX's: 2 to 8 bits and buckets of 64 to 1,024 at the error of 4 bits and 128
  switch (how.one_of("rule", rules)) {
    case 1:
      o.how = gq::adapt::rule_of(gq::adapt::cgx_linear{});
      break;
    case 2:
      o.how = gq::adapt::rule_of(gq::adapt::cgx_bayes{});
      break;
    default:
      o.how = gq::adapt::rule_of(gq::adapt::cgx_kmeans{});
  }
  return std::make_unique<adaptive_exchange>(with, how, std::move(o));
}

}  // namespace evidence
