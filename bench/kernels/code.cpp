// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <globalq/bench/floor.hpp>
#include <globalq/kernel/host/leaf_code.hpp>

namespace globalq::bench {
namespace {

/// How the timed codes are made: from normal values of deviation 1, in buckets of 128 with their maximum as norm, or
/// (few) with the l2 norm of the whole vector and few levels, so that one code in a hundred is not zero.
enum class source_kind { uniform7, exponential7, few };

values<std::int8_t> codes_of(source_kind kind, std::uint64_t n) {
  constexpr std::uint64_t bucket = 128;
  values<std::int8_t> codes(Kokkos::view_alloc("codes", Kokkos::WithoutInitializing), n);
  Kokkos::parallel_for(
      "codes", Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, n / bucket), [=](std::uint64_t b) {
        double x[bucket], most = 0;
        std::uint64_t word[bucket];
        for (std::uint64_t i = 0; i < bucket; ++i) {
          std::uint64_t const w = mix((b * bucket + i + 1) * 0x9E3779B97F4A7C15ULL);
          // Box-Muller
          double const u = static_cast<double>((w >> 40) + 1) * 0x1p-24,
                       v = static_cast<double>(w & 0xffffffU) * 0x1p-24;
          x[i] = std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
          most = std::max(most, std::fabs(x[i]));
          word[i] = mix(w);
        }
        for (std::uint64_t i = 0; i < bucket; ++i) {
          double const y = std::fabs(x[i]) / most, toss = static_cast<double>(word[i] >> 33) * 0x1p-31;
          int level = 0;
          if (kind == source_kind::few) {
            level = toss < 0.0125 * std::fabs(x[i]) ? 1 : 0;
          } else if (kind == source_kind::uniform7) {
            level = static_cast<int>(7 * y);
            level += toss < 7 * y - level ? 1 : 0;
          } else {  // 0 and 2^-6 to 1
            auto const value = [](int k) { return k == 0 ? 0.0 : std::ldexp(1.0, k - 7); };
            while (level < 7 && value(level + 1) <= y) ++level;
            if (level < 7) level += toss < (y - value(level)) / (value(level + 1) - value(level)) ? 1 : 0;
          }
          codes(b * bucket + i) = static_cast<std::int8_t>(x[i] < 0 ? -level : level);
        }
      });
  return codes;
}

enum class direction { encode, decode };

/// Encodes codes to a body or decodes it, including tables from counts and offsets.
template <class Code>
void time_code(benchmark::State& state, point at, source_kind kind, direction way) {
  constexpr std::uint32_t max_code = 127;  // the fixed width is then 8 bits, and no block falls back to it
  auto const on = at.executor();
  auto const codes = codes_of(kind, at.n);
  values<std::int8_t> back("codes", at.n);
  byte_buffer memory, plain;
  kernel::host::leaf_coded<Code> body(Code{}, max_code);
  auto const room = memory.get(body.capacity(at.n));
  std::size_t const size = body.encode(on, codes.data(), at.n, room);
  auto const bytes = std::span<std::byte const>(room.data(), size);
  if (body.decode(on, bytes, at.n, back.data())) return fail(state, "decoding failed");
  for (std::uint64_t i = 0; i < at.n; ++i)
    if (back(i) != codes(i)) return fail(state, "decoded codes differ");

  // a byte a value on one side, half of one on the other: what a code of 4 bits moves at least
  auto const halves = plain.get(at.n / 2);
  std::span const bytes_of_codes(
      reinterpret_cast<std::byte*>(way == direction::encode ? codes.data() : back.data()), at.n);
  copy_floor const floor =
      way == direction::encode ? copy_floor(bytes_of_codes, halves) : copy_floor(halves, bytes_of_codes);
  auto const copy = [&] { on.items(floor.pieces(), floor); };
  amount const each{at.n, at.n + size};
  if (way == direction::encode)
    interleave(
        state, each, [&] { body.encode(on, codes.data(), at.n, room); }, copy);
  else
    interleave(
        state, each, [&] { body.decode(on, bytes, at.n, back.data()); }, copy);
  state.counters["bits_per_value"] = 8.0 * static_cast<double>(size) / static_cast<double>(at.n);
}

template <class Code>
void add_code(std::string const& name) {
  for (auto const& [way, verb] :
       {std::pair{direction::encode, "code_encode/"}, {direction::decode, "code_decode/"}})
    for (auto const& [kind, levels] : {std::pair{source_kind::uniform7, "uniform7"},
                                       {source_kind::exponential7, "exponential7"},
                                       {source_kind::few, "few"}})
      add(verb + ("code:" + name) + "/levels:" + levels,
          [way = way, kind = kind](benchmark::State& state, point at) {
            time_code<Code>(state, at, kind, way);
          });
}

}  // namespace

void add_codes() {
  add_code<wire::elias<>>("elias");
  add_code<wire::huffman<>>("huffman");
  add_code<wire::sparse<>>("sparse");
}

}  // namespace globalq::bench
