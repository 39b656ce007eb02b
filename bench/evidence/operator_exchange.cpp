// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: named operators over one long vector, with what they do besides: clipping, midpoints, learned levels.

#include "exchange.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/clip.hpp>
#include <globalq/schedule/any.hpp>

#include <globalq/named/level_learning.hpp>

namespace evidence {
namespace {

class operator_exchange final : public exchange {
 public:
  operator_exchange(setting const& with, gq::named::named_operator const& asked, std::string const& schedule)
      : all_(with.all),
        asked_(asked),
        mean_(with.all, gq::named::operator_of(asked), gq::schedule::any{schedule}, {.seed = with.seed}),
        learning_(asked.words, asked.learns, gq::learn::schedule_for(with.steps)) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override {
    if (asked_.clip > 0) gq::clip_deviations(gradient, asked_.clip, asked_.words.bucket, all_.execution());
    static_cast<void>(learning_.update(all_, std::span<float const>{gradient}, step, mean_));
    mean_(gradient, step);
  }

 private:
  workers& all_;
  gq::named::named_operator asked_;
  gq::allreduce_mean<> mean_;
  gq::named::level_learning learning_;
};

}  // namespace

std::unique_ptr<exchange> make_operator(setting const& with, gq::named::named_operator const& asked,
                                        std::string const& schedule) {
  return std::make_unique<operator_exchange>(with, asked, schedule);
}

}  // namespace evidence
