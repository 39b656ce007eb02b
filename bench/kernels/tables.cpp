// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <globalq/operator/quantizer.hpp>
#include <globalq/operator/vector_codec.hpp>

#include <cmath>

namespace globalq::bench {
namespace {

/// Levels k^2 / s^2: dense near zero, like learned levels, and not evenly spaced.
levels::table squares(int s) {
  std::vector<double> values;
  for (int k = 0; k <= s; ++k) values.push_back(static_cast<double>(k) * k / (static_cast<double>(s) * s));
  return levels::table(values);
}

/// An operator with s levels above zero, either evenly spaced or as a table.
struct pair_of_operators {
  any_quantizer even, table;
};
template <class Wire>
pair_of_operators with(int s, Wire wire, std::uint64_t bucket) {
  norm::linf const norm{bucket};
  rounding::stochastic const dice;
  return {quantizer{norm, levels::uniform<>(s), dice, wire}, quantizer{norm, squares(s), dice, wire}};
}

enum class work { encode, decode, decode_add };

/// Times levels as a table and evenly spaced levels in turn: floor_ratio is the time of the latter divided by that of
/// the table.
void compare(benchmark::State& state, point at, work what, pair_of_operators const& ops, int s,
             std::uint64_t bucket) {
  auto const x = gradient<float>(at.n, 1);
  values<float> y("decoded", at.n);
  encoding_key const key{1, 0, 0};
  at.with_space([&](auto const& space) {
    vector_codec even(ops.even, space, frame_checksum::none), table(ops.table, space, frame_checksum::none);
    byte_buffer memory[2];
    std::size_t const bytes = even.frame_bytes(at.n, dtype::float32);
    auto const even_frame = memory[0].get(bytes), frame = memory[1].get(bytes);
    even.encode(x, key, even_frame);
    table.encode(x, key, frame);

    table.decode(frame, key, y);
    std::uint64_t const width = bucket == 0 ? at.n : bucket;
    for (std::uint64_t first = 0; first < at.n; first += width) {
      double max = 0;
      for (std::uint64_t i = first; i < first + width; ++i)
        max = std::max(max, std::fabs(static_cast<double>(x(i))));
      // the widest gap, the last one
      double const gap = max * (2.0 * s - 1) / (static_cast<double>(s) * s);
      for (std::uint64_t i = first; i < first + width; ++i)
        if (!(std::fabs(static_cast<double>(x(i)) - static_cast<double>(y(i))) <= gap * 1.0001))
          return fail(state, "decoded values are not adjacent to the encoded ones");
    }

    auto const run = [&](vector_codec& codec, std::span<std::byte> of) {
      if (what == work::encode) codec.encode(x, key, of);
      if (what == work::decode) codec.decode(of, key, y);
      if (what == work::decode_add) codec.decode_add(of, key, y);
    };
    interleave(
        state, {at.n, at.n * (what == work::decode_add ? 8 : 4) + bytes}, [&] { run(table, frame); },
        [&] { run(even, even_frame); });
  });
}

}  // namespace

void add_tables() {
  struct row {
    std::string name;
    int levels;
    std::uint64_t bucket;
    pair_of_operators ops;
  };
  std::vector<row> const rows = {
      {"7/packed4/bucket128", 7, 128, with(7, wire::packed<4>{}, 128)},
      {"15/int8", 15, 0, with(15, wire::int8{}, 0)},
      {"31/int8", 31, 0, with(31, wire::int8{}, 0)},
      {"127/int8", 127, 0, with(127, wire::int8{}, 0)},
  };
  for (auto const& [verb, what] : {std::pair{"encode", work::encode}, std::pair{"decode", work::decode},
                                   std::pair{"decode_add", work::decode_add}})
    for (row const& r : rows)
      add(std::string("table/") + verb + "/levels:" + r.name,
          [r, w = what](benchmark::State& state, point at) {
            compare(state, at, w, r.ops, r.levels, r.bucket);
          });
}

}  // namespace globalq::bench
