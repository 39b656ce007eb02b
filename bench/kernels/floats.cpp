// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <globalq/bench/floor.hpp>
#include <globalq/operator/floats.hpp>

#include <cmath>

namespace globalq::bench {
namespace {

constexpr int workers = 4;

std::span<std::byte> bytes_of(values<float> const& x) {
  return std::as_writable_bytes(std::span(x.data(), x.size()));
}

/// Encodes a worker's own values as numbers, or decodes them. The floor is memcpy of the same bytes.
/// @param gap  the largest gap between numbers, relative to them; 0: values are sent as they are
void floats_of(benchmark::State& state, point at, any_quantizer const& op, double gap, bool decodes) {
  ring_codec codec(op, workers, at);
  auto const x = gradient<float>(at.n, 1);
  values<float> const y("decoded", at.n);
  double const top = codec.largest(reading(x));
  bool const scaled =
      op.facts().floats.type == dtype::float16;  // as for values of this size: sums are below 2^15
  codec.begin(reading(x), writing(y), 0, 0, scaled ? std::exp2(std::ilogb(workers * top) - 13) : 1.0);
  byte_buffer memory;
  auto const frame = codec.frame(memory);
  auto const encode = [&] { codec.encode(frame); };
  auto const decode = [&] { codec.decode({frame, 1, 0}); };
  encode();
  decode();
  for (std::size_t i = 0; i < y.size(); ++i) {
    double const a = static_cast<double>(x(i)), b = workers * static_cast<double>(y(i));
    if (!(std::fabs(a - b) <= gap * std::fabs(a) + 0x1p-24 * top * gap))
      return fail(state, "decoded values are not adjacent to the encoded ones");
  }

  copy_floor const floor =
      decodes ? copy_floor(frame, bytes_of(y)) : copy_floor(std::as_bytes(bytes_of(x)), frame);
  auto const copy = [&] { codec.executor().items(floor.pieces(), floor); };
  amount const each{at.n, at.n * sizeof(float) + frame.size()};
  if (decodes)
    interleave(state, each, decode, copy);
  else
    interleave(state, each, encode, copy);
}

}  // namespace

void add_floats() {
  struct {
    char const* name;
    any_quantizer op;
    double gap;
  } const all[] = {{"float32", uncompressed{}, 0},
                   {"bfloat16", floats<bfloat16>{}, 0x1p-7},
                   {"float16", floats<float16>{}, 0x1p-10},
                   {"bfloat16/nearest", floats<bfloat16, rounding::nearest>{}, 0x1p-8},
                   {"float16/nearest", floats<float16, rounding::nearest>{}, 0x1p-11}};
  for (bool const decodes : {false, true})
    for (auto const& each : all) {
      bool const nearest = std::string(each.name).ends_with("nearest");
      if (decodes && nearest) continue;
      add((decodes ? "decode/as_" : "encode/as_") + std::string(each.name),
          [op = each.op, gap = each.gap, decodes](benchmark::State& state, point at) {
            floats_of(state, at, op, gap, decodes);
          });
    }
}

}  // namespace globalq::bench
