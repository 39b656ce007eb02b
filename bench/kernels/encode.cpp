// SPDX-License-Identifier: Apache-2.0
#include "../support/floors.hpp"
#include "operators.hpp"

#include <globalq/operator/vector_codec.hpp>

namespace globalq::bench {
namespace {

constexpr int workers = 4;

template <class Value>
stored<Value> const* words_of(values<Value> const& x) {
  return reinterpret_cast<stored<Value> const*>(x.data());
}

/// Encodes a worker's own values with a known norm: the first step of every schedule.
template <class Value>
void encode_int8(benchmark::State& state, point at, any_quantizer const& op) {
  ring_codec codec(op, workers, at);
  auto const x = gradient<Value>(at.n, 1);
  values<float> y("decoded", at.n);
  double const scale = codec.largest(reading(x));
  codec.begin(reading(x), writing(y), scale);
  byte_buffer memory;
  auto const frame = codec.frame(memory);
  codec.encode(frame);

  codec.decode({frame, 1, 0});
  for (std::size_t i = 0; i < y.size(); ++i) y(i) *= workers;  // the mean; other workers contribute zeros
  if (!(op.facts().evenly_spaced ? near(x, y, scale / codec.levels()) : neighbors_in_powers(x, y)))
    return fail(state, "decoded values are not adjacent to the encoded ones");

  narrow_floor<stored<Value>> const floor{words_of(x), frame.data(), static_cast<float>(127 / scale)};
  interleave(
      state, {at.n, at.n * (sizeof(Value) + 1)}, [&] { codec.encode(frame); },
      [&] { codec.executor().items(at.n / block_values, floor); });
}

/// Encodes a vector to a self-contained frame: the norms of its buckets, then four bits a value.
template <class Value>
void encode_packed4(benchmark::State& state, point at) {
  constexpr std::uint64_t bucket = 128;
  auto const on = at.executor();
  auto const op = uniform_packed4_bucket128();
  auto const x = gradient<Value>(at.n, 1);
  encoding_key const key{1, 0, 0};
  at.with_space([&](auto const& space) {
    vector_codec codec(op, space, frame_checksum::none);
    byte_buffer memory;
    auto const frame = memory.get(codec.frame_bytes(at.n, dtype_of<Value>::value));
    codec.encode(x, key, frame);

    {
      values<float> y("decoded", at.n);
      codec.decode(frame, key, y);
      for (std::uint64_t first = 0; first < at.n; first += bucket) {
        auto const range = std::make_pair(first, first + bucket);
        values<Value> const part = Kokkos::subview(x, range);
        double max = 0;
        for (std::size_t i = 0; i < bucket; ++i)
          max = std::max(max, std::fabs(static_cast<double>(static_cast<float>(part(i)))));
        if (!near(part, values<float>(Kokkos::subview(y, range)), max / codec.levels()))
          return fail(state, "decoded values are not adjacent to the encoded ones");
      }
    }

    pack_floor<stored<Value>, bucket> const floor{
        words_of(x), frame.data(), frame.data() + wire::scale_section(at.n / bucket, dtype::float32), 8.0F};
    interleave(
        state, {at.n, at.n * sizeof(Value) + frame.size() - wire::header_bytes},
        [&] { codec.encode(x, key, frame); }, [&] { on.items(at.n / block_values, floor); });
  });
}

template <class Value>
void add_type(std::string const& suffix) {
  add("encode/uniform/int8" + suffix,
      [](benchmark::State& state, point at) { encode_int8<Value>(state, at, uniform_int8()); });
  add("encode/exponential/int8" + suffix,
      [](benchmark::State& state, point at) { encode_int8<Value>(state, at, exponential_int8()); });
  add("encode/uniform/packed4/bucket128" + suffix, encode_packed4<Value>);
}

}  // namespace

void add_encoders() {
  for_each_type([]<class Value>(Value, std::string const& suffix) { add_type<Value>(suffix); });
}

}  // namespace globalq::bench
