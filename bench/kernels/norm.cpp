// SPDX-License-Identifier: Apache-2.0
#include "../support/floors.hpp"
#include "operators.hpp"

namespace globalq::bench {
namespace {

/// The norm of the whole vector, as the handshake of a call needs it.
template <class Value>
void whole_norm(benchmark::State& state, point at, std::uint32_t q) {
  auto const on = at.executor();
  auto const x = gradient<Value>(at.n, 1);
  std::vector<norm::statistic> parts;
  norm::statistic result;
  auto const kernel = [&] {
    norm::bucket_statistics(on, at.n, 0, q, norm::input_block{reading(x), q}, std::span(&result, 1), parts);
    benchmark::DoNotOptimize(result);
  };

  kernel();
  double max = 0, powers = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const v = std::fabs(static_cast<double>(static_cast<float>(x(i))));
    max = std::max(max, v);
    if (q != infinity) powers += std::pow(v, q);
  }
  double const expected = q == infinity ? max : std::pow(powers, 1.0 / q);
  double const found = norm::relative_norm(result, q) * power_of_two(result.exponent());
  // Both add doubles: at most n roundings of 2^-53 each, far below this, and so are q - 2 cuts of 2^-25, divided by q.
  if (!(std::fabs(found - expected) <= (q == infinity ? 0.0 : 1e-7) * expected))
    return fail(state, "the norm is " + std::to_string(found) + " and should be " + std::to_string(expected));

  using word = std::conditional_t<sizeof(Value) == 2, std::uint16_t, std::uint32_t>;
  std::vector<word> tops(at.n / block_values);
  read_floor<word> const floor{reinterpret_cast<word const*>(x.data()), tops.data()};
  interleave(state, {at.n, at.n * sizeof(Value)}, kernel, [&] { on.items(tops.size(), floor); });
}

template <class Value>
void add_type(std::string const& suffix) {
  add("norm/linf" + suffix,
      [](benchmark::State& state, point at) { whole_norm<Value>(state, at, infinity); });
  for (std::uint32_t q : {2U, 3U, 8U})
    add("norm/l" + std::to_string(q) + suffix,
        [q](benchmark::State& state, point at) { whole_norm<Value>(state, at, q); });
}

}  // namespace

void add_norms() {
  for_each_type([]<class Value>(Value, std::string const& suffix) { add_type<Value>(suffix); });
}

}  // namespace globalq::bench
