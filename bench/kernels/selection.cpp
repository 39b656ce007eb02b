// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <globalq/baseline/selection.hpp>
#include <globalq/bench/floor.hpp>

#include <algorithm>

namespace globalq::bench {
namespace {

/// Whether @p places are the k largest magnitudes, ascending.
bool are_the_largest(values<float> const& x, std::span<std::uint32_t const> places, std::uint64_t k) {
  auto const magnitude = [&](std::uint64_t i) { return std::fabs(x(i)); };
  std::vector<float> all(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) all[i] = magnitude(i);
  auto const kth = all.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(all.begin(), kth, all.end(), std::greater<>());
  return places.size() == k && std::is_sorted(places.begin(), places.end()) &&
         std::adjacent_find(places.begin(), places.end()) == places.end() &&
         std::all_of(places.begin(), places.end(), [&](std::uint32_t i) { return magnitude(i) >= *kth; });
}

/// Selects the k values of largest magnitude; the floor is a copy of the vector.
void select(benchmark::State& state, point at, double density) {
  auto const on = at.executor();
  auto const x = gradient<float>(at.n, 1);
  values<float> const y("copy", at.n);
  auto const k = static_cast<std::uint64_t>(std::ceil(density * static_cast<double>(at.n)));
  baseline::selection largest;
  std::span<float const> const in(x.data(), x.size());
  if (!are_the_largest(x, largest.largest(on, in, k), k)) return fail(state, "other values are larger");

  copy_floor const floor(std::as_bytes(in), std::as_writable_bytes(std::span(y.data(), y.size())));
  interleave(
      state, {at.n, at.n * sizeof(float)},
      [&] {
        auto const places = largest.largest(on, in, k);
        benchmark::DoNotOptimize(places.data());
      },
      [&] { on.items(floor.pieces(), floor); });
}

}  // namespace

void add_selections() {
  for (auto const& [name, density] :
       {std::pair{"0.1%", 0.001}, std::pair{"1%", 0.01}, std::pair{"10%", 0.1}, std::pair{"30%", 0.3}})
    add(std::string("select/density:") + name,
        [density = density](benchmark::State& state, point at) { select(state, at, density); });
}

}  // namespace globalq::bench
