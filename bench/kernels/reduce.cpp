// SPDX-License-Identifier: Apache-2.0
#include "../support/floors.hpp"
#include "operators.hpp"

#include <algorithm>

namespace globalq::bench {
namespace {

constexpr int workers = 4;

/// Adds the frames of two workers, as between two messages of a tree.
///
/// The floor is the plain sum of the same codes, so that floor_ratio, its time divided by that of the reduce, is
/// `omega`.
void reduce(benchmark::State& state, point at, any_quantizer const& op) {
  ring_codec codec(op, workers, at);
  byte_buffer memory[3];
  std::span<std::byte> frame[2];
  double scale = 0;
  for (std::uint64_t worker : {0, 1})
    scale = std::max(scale, codec.largest(reading(gradient<float>(at.n, worker))));
  for (int worker : {0, 1}) {
    auto const x = gradient<float>(at.n, static_cast<std::uint64_t>(worker));
    codec.begin(reading(x), {}, scale, worker);
    frame[worker] = codec.frame(memory[worker]);
    codec.encode(frame[worker]);
  }
  source const frames[] = {{frame[0], 1, 0}, {frame[1], 1, 1}};
  auto const out = codec.frame(memory[2]);
  values<float> const y("decoded", at.n), sum("sum", at.n);
  codec.begin({}, writing(y), scale);
  codec.reduce(frames, out);

  for (auto const& one : frames) {
    codec.decode(one);
    for (std::size_t i = 0; i < y.size(); ++i) sum(i) += y(i);
  }
  codec.decode({out, 2, 0});
  // Uniform codes add exactly: results differ by at most two roundings of the largest value.
  if (!(op.facts().evenly_spaced ? near(sum, y, 0x1p-22 * scale) : neighbors_in_powers(sum, y)))
    return fail(state, "the decoded sum is not adjacent to the sum of decoded values");

  sum_floor const floor{frame[0].data(), frame[1].data(), out.data()};
  double const ratio = interleave(
      state, {at.n, 3 * at.n}, [&] { codec.reduce(frames, out); },
      [&] { codec.executor().items(at.n / block_values, floor); });
  state.counters["omega"] = ratio;
}

}  // namespace

void add_reduces() {
  add("reduce/uniform/int8", [](benchmark::State& state, point at) { reduce(state, at, uniform_int8()); });
  add("reduce/exponential/int8",
      [](benchmark::State& state, point at) { reduce(state, at, exponential_int8()); });
}

}  // namespace globalq::bench
