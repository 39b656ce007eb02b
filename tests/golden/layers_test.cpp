// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The same for layered_mean: results, frames and bytes are those that were recorded.

#include "calls.hpp"

#include <globalq/train/adapt/layered_mean.hpp>

namespace gq = globalq;

namespace {

constexpr auto average_of_layers = []<class T, class Value>(T& over, golden::golden_case const& c,
                                                            std::span<Value> x, std::uint64_t step,
                                                            gq::options const& settings) {
  gq::adapt::model_layout model;
  gq::dtype const type = gq::dtype_of<Value>::value;
  std::size_t const d = x.size();
  model.add("a", {d / 2}, type).add("b", {d / 5}, type).add("c", {d - d / 2 - d / 5}, type);
  std::vector<gq::any_quantizer> const ops{c.op, gq::uncompressed{}, c.op};
  gq::schedule::any const schedule{c.schedule};
  Kokkos::Serial const on_one_core;
  gq::adapt::layered_mean mean{over, model, ops, schedule, {.call = settings}, on_one_core};
  mean(x, step);
};

TEST(Golden, results_frames_and_bytes_of_layers_are_those_recorded) {
  golden::expect_calls("layers.txt", 100, average_of_layers);
}

}  // namespace
