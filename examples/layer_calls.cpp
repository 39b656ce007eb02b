// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Calls for the layers of a model: one mean, overlap with the backward pass, bits and densities that adapt, reports,
/// and the performance model.

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/globalq.hpp>
#include <globalq/model/bypass.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/adaptive_mean.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>

#include <cstdio>
#include <iostream>
#include <random>
#include <span>
#include <vector>

namespace gq = globalq;

namespace {

std::vector<float> gradient_of(int rank, std::size_t length) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) + 1);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> x(length);
  for (float& v : x) v = normal(draw);
  return x;
}

/// Stands for a loss scaler of mixed-precision training.
struct loss_scaler {
  bool skip = false;
  void skip_step() { skip = true; }
};

using operator_list = std::vector<gq::any_quantizer>;

template <class Workers>
void overlap(Workers& workers, gq::adapt::model_layout const& model, operator_list const& operators,
             std::vector<float>& gradient, std::uint64_t step) {
  auto const backward = [&](auto const& done) {
    for (std::size_t l = model.size(); l-- > 0;)
      done(l, std::span(gradient).subspan(model[l].offset, model[l].size));
  };
  //! [layers-overlap]
  gq::adapt::overlapped_mean mean{workers, model, operators, gq::schedule::sra{}, {.group_bytes = 4 << 20}};
  mean.begin(step);
  backward([&](std::size_t layer, std::span<float> values) { mean.ready(layer, values); });
  mean.wait();  // all gradients are means now
  //! [layers-overlap]
}

template <class Workers>
void adapt(Workers& workers, gq::adapt::model_layout const& model, std::vector<float>& gradient,
           std::uint64_t step) {
  //! [layers-adaptive]
  gq::schedule::hierarchical<> const nodes{2};  // of 2 workers
  gq::adapt::adaptive_mean mean{
      workers, model, nodes, {.layers = {.call = {.seed = 42}, .warm_up = 100}, .every = 500}};
  mean(gradient, step);
  //! [layers-adaptive]
}

template <class Workers>
void adapt_densities(Workers& workers, gq::adapt::model_layout const& model,
                     std::vector<float> const& gradient, std::uint64_t step) {
  std::vector<float> y(gradient.size());
  //! [layers-densities]
  gq::baseline::adaptive mean{
      gq::baseline::top_k{model, {.density = 0.01}},
      {.candidates = gq::adapt::around(0.01, 9, 10), .reference = 0.01, .every = 500}};
  mean.reduce(workers, gradient, y, step);
  //! [layers-densities]
}

template <class Workers, class Operator>
void report(Workers& workers, Operator const& op, std::vector<float>& gradient, std::uint64_t step) {
  loss_scaler scaler;
  //! [telemetry-report]
  gq::telemetry seen;  // declared before what it watches
  gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42, .telemetry = &seen}};
  mean(gradient, step);

  gq::call_report const r = seen.last();  // or total(), or take(): the sum since the last take()
  std::printf("%llu bytes, %.2f ms: %.2f encoding, %.2f on messages\n",
              static_cast<unsigned long long>(r.bytes_sent), 1e3 * r.seconds, 1e3 * r.in(gq::phase::encode),
              1e3 * r.in(gq::phase::transfer));
  //! [telemetry-report]
  //! [telemetry-skip]
  // with non_finite::propagate the gradient is NaN everywhere
  if (seen.take().non_finite != 0) scaler.skip_step();
  //! [telemetry-skip]
}

template <class Workers, class Operator>
void predict(Workers& workers, gq::adapt::model_layout const& model, Operator const& op,
             std::vector<float>& gradient, std::uint64_t step) {
  //! [model-choose]
  auto const links = gq::model::calibrate(workers);  // every worker calls
  std::vector const candidates{
      gq::model::calibrate_operator(workers, "float32", gq::uncompressed{}),
      gq::model::calibrate_operator(workers, "int8", gq::operators::global_uniform())};
  auto const choice =
      gq::model::choose(links.net, candidates, gradient.size(), {.most_theta = 0.5}, {}, links.shape());
  std::puts(choice.reason.c_str());
  // int8 on schedule ring, 13.6 ms: 3.9 times as fast as float32 on schedule ring, 53.4 ms
  //! [model-choose]

  //! [model-bypass]
  auto const compressed = gq::model::calibrate_operator(workers, "4 bits", op);
  auto const plain = gq::model::calibrate_operator(workers, "float32", gq::uncompressed{});
  auto const print = [](auto const& decision) { std::clog << decision.reason << '\n'; };
  gq::model::bypass bypass{workers, gq::schedule::sra{}, links, compressed, plain, print};
  std::vector<gq::any_quantizer> operators(model.size(), op);
  if (!bypass(model.length()).compress) operators.assign(model.size(), gq::uncompressed{});
  gq::adapt::layered_mean mean{workers, model, operators, gq::schedule::sra{}};
  // prints, for example: "globalq: A to B values: 4 bits, since 4 bits is predicted to take .. and float32 .."
  //! [model-bypass]
  mean(gradient, step);
}

template <class Workers>
void train(Workers& workers) {
  std::uint64_t const step = 0;
  //! [layers-mean]
  gq::adapt::model_layout model;
  model.add("conv1.weight", {64, 3, 7, 7}).add("conv1.bias", {64});
  model.add("fc.weight", {10, 512}).add("fc.bias", {10});

  gq::quantizer op{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<7>{},
                   gq::rounding::stochastic{}, gq::wire::packed<4>{}};
  auto const operators = gq::adapt::operators_of(model, gq::adapt::filter::cgx(), op);
  gq::adapt::layered_mean mean{
      workers, model, operators, gq::schedule::sra{}, {.call = {.seed = 42}, .warm_up = 100}};
  //! [layers-mean]
  std::vector<float> gradient = gradient_of(workers.rank(), model.length());
  gq::vector_group tensors;
  for (gq::adapt::layer const& l : model) tensors.add(std::span(gradient).subspan(l.offset, l.size));
  //! [layers-call]
  mean(gradient, step);  // one vector that contains all layers, at the offsets of the model layout
  mean(tensors, step);   // or a vector_group: one vector a layer, of several types if need be
  //! [layers-call]
  overlap(workers, model, operators, gradient, step);
  adapt(workers, model, gradient, step);
  adapt_densities(workers, model, gradient, step);
  report(workers, op, gradient, step);
  predict(workers, model, op, gradient, step);
}

}  // namespace

int main() {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  gq::transport::threads cluster{4};
  cluster.run([](auto& workers) { train(workers); });
}
