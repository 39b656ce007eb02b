// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom compressor: averages every k-th value in a step, so that each value is averaged once in k steps.

//! [take-turns]
#include <globalq/baseline/concept.hpp>
#include <globalq/globalq.hpp>

#include <cmath>

class take_turns {
 public:
  take_turns(globalq::adapt::model_layout layers, std::uint64_t every, globalq::options settings)
      : layers_(std::move(layers)), every_(every), settings_(settings) {
    settings_.seed += every;  // workers compare seeds
  }
  globalq::adapt::model_layout const& layers() const { return layers_; }

  template <class Transport>
  globalq::baseline::outcome reduce(Transport& workers, std::span<float const> x, std::span<float> mean,
                                    std::span<float> rest, std::uint64_t step) {
    bool finite = true;
    sent_.clear();
    for (auto const& l : layers_)
      for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) {
        finite = finite && std::isfinite(x[i]);
        if ((i + step) % every_ == 0) sent_.push_back(x[i]);
      }
    sent_.push_back(finite ? 0 : NAN);  // so that all workers learn of it
    globalq::allreduce_mean together{workers, globalq::uncompressed{}, globalq::schedule::ring{}, settings_};
    together(sent_, step);
    finite = !std::isnan(sent_.back());
    auto next = sent_.cbegin();
    for (auto const& l : layers_)
      for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) {
        bool const turn = (i + step) % every_ == 0;
        if (finite && !rest.empty()) rest[i] = turn ? 0 : x[i];  // before writing mean, which may be x
        mean[i] = !finite ? NAN : turn ? *next++ : 0;
      }
    return finite ? globalq::baseline::outcome::mean : globalq::baseline::outcome::not_finite;
  }

 private:
  globalq::adapt::model_layout layers_;
  std::uint64_t every_;
  globalq::options settings_;
  std::vector<float> sent_;
};

static_assert(globalq::baseline::Compressor<take_turns, globalq::transport::threads::endpoint>);
//! [take-turns]
