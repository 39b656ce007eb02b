// SPDX-License-Identifier: Apache-2.0
#include "../support/floors.hpp"
#include "operators.hpp"

#include <globalq/operator/vector_codec.hpp>

namespace globalq::bench {
namespace {

template <class Value>
stored<Value>* words_of(values<Value> const& y) {
  return reinterpret_cast<stored<Value>*>(y.data());
}

/// Decodes a frame: the last step of every schedule.
template <class Value>
void decode(benchmark::State& state, point at) {
  ring_codec codec(uniform_int8(), 1, at);
  auto const x = gradient<Value>(at.n, 1);
  values<Value> const y("decoded", at.n);
  double const scale = codec.largest(reading(x));
  codec.begin(reading(x), writing(y), scale);
  byte_buffer memory;
  auto const frame = codec.frame(memory);
  codec.encode(frame);

  codec.decode({frame, 1, 0});
  if (!near(x, y, scale / codec.levels()))
    return fail(state, "decoded values are not adjacent to the encoded ones");

  widen_floor<stored<Value>, false> const floor{frame.data(), words_of(y),
                                                static_cast<float>(scale / codec.levels())};
  interleave(
      state, {at.n, at.n * (1 + sizeof(Value))},
      [&] {
        codec.decode({frame, 1, 0});
      },
      [&] { codec.executor().items(at.n / block_values, floor); });
}

/// y += the decoded frame, as in error feedback and parameter servers.
template <class Value>
void decode_add(benchmark::State& state, point at) {
  auto const on = at.executor();
  auto const op = uniform_int8();
  encoding_key const key{1, 0, 0};
  at.with_space([&](auto const& space) {
    vector_codec codec(op, space, frame_checksum::none);
    auto const x = gradient<Value>(at.n, 1);
    values<Value> const y("sum", at.n), other("sum of the floor", at.n);
    byte_buffer memory;
    auto const frame = memory.get(codec.frame_bytes(at.n, dtype_of<Value>::value));
    codec.encode(x, key, frame);

    double max = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      max = std::max(max, std::fabs(static_cast<double>(static_cast<float>(x(i)))));
      y(i) = Value(1.0F);
    }
    codec.decode_add(frame, key, y);
    values<float> const added("added", at.n);
    for (std::size_t i = 0; i < y.size(); ++i) added(i) = static_cast<float>(y(i)) - 1.0F;
    double const rounding = unit_roundoff<Value>() * (1 + 2 * max);
    if (!near(x, added, max / codec.levels() + rounding))
      return fail(state, "added values are not adjacent to the encoded ones");

    std::uint64_t calls = 0;
    widen_floor<stored<Value>, true> const floor{frame.data(), words_of(other),
                                                 static_cast<float>(max / codec.levels())};
    interleave(
        state, {at.n, at.n * (1 + 2 * sizeof(Value))},
        [&] {
          if (++calls % 4096 == 0) Kokkos::deep_copy(y, Value(0.0F));  // sums of 16 bits would overflow
          codec.decode_add(frame, key, y);
        },
        [&] { on.items(at.n / block_values, floor); });
  });
}

template <class Value>
void add_type(std::string const& suffix) {
  add("decode/uniform/int8" + suffix, decode<Value>);
  add("decode_add/uniform/int8" + suffix, decode_add<Value>);
}

}  // namespace

void add_decoders() {
  for_each_type([]<class Value>(Value, std::string const& suffix) { add_type<Value>(suffix); });
}

}  // namespace globalq::bench
