// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Prints a hash of the results of some compositions. Built with several sets of flags, -ffast-math among them
///        (linked with it too, so that subnormals are flushed outside the library): all must print the same.
///
/// Inputs are made of bit patterns: a generator that divides would change under -ffast-math by itself.

#include "../../support/hash.hpp"
#include "compositions.hpp"

#include <cstdio>

namespace gq = globalq;
using support::mix;

namespace {

/// 40 binades from 2^-20 on; one value in sixteen is subnormal (all are, when asked).
std::vector<std::uint32_t> floats(std::uint64_t seed, bool subnormal) {
  std::vector<std::uint32_t> x(100'003);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint64_t const h = mix(mix(seed) + i);
    std::uint32_t const mantissa = static_cast<std::uint32_t>(h >> 8) & 0x7fffffU;
    std::uint32_t const exponent =
        subnormal || h % 16 == 0 ? 0 : 107 + static_cast<std::uint32_t>(h >> 40) % 40;
    x[i] = (static_cast<std::uint32_t>(h >> 63) << 31) | (exponent << 23) | mantissa;
  }
  return x;
}
std::vector<std::uint64_t> doubles(std::uint64_t seed, bool subnormal) {
  std::vector<std::uint64_t> x(30'011);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint64_t const h = mix(mix(seed) + i), g = mix(h);
    std::uint64_t const exponent = subnormal || h % 16 == 0 ? 0 : 1003 + (h >> 40) % 40;
    x[i] = (h >> 63 << 63) | (exponent << 52) | (g >> 12);
  }
  return x;
}

/// float16, or bfloat16 of a narrow range.
std::vector<std::uint16_t> halves(std::uint64_t seed, bool subnormal) {
  std::vector<std::uint16_t> x(30'011);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint64_t const h = mix(mix(seed) + i);
    std::uint64_t const exponent = subnormal || h % 16 == 0 ? 0 : 5 + (h >> 40) % 20;
    x[i] = static_cast<std::uint16_t>((h >> 63 << 15) | (exponent << 10) | (h >> 8 & 0x3ffU));
  }
  return x;
}

template <class T, class Word>
std::uint64_t run(gq::any_quantizer const& op, char const* schedule,
                  std::vector<Word> (*make)(std::uint64_t, bool), bool subnormal) {
  constexpr int n = 3;
  std::vector<std::vector<Word>> all(n);
  gq::transport::threads cluster{n};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 9}};
    std::vector<Word> x = make(r, subnormal);
    std::vector<T> values(x.size());
    std::memcpy(static_cast<void*>(values.data()), x.data(), x.size() * sizeof(Word));
    mean(values, 3);
    std::memcpy(x.data(), values.data(), x.size() * sizeof(Word));
    all[r] = x;
  });
  std::uint64_t h = 0;
  for (auto const& x : all) h = mix(h, support::hash_bytes(x.data(), x.size() * sizeof(Word)));
  return h;
}

/// A frame's values added to a vector, all of them a few times 2^-1074. With 4 levels up to 6 * 2^-1074 every other level lies halfway
/// between two numbers: whether it is rounded before it is added, or after, shows.
std::uint64_t added_at_the_end_of_the_range() {
  constexpr std::size_t n = 1000;
  std::vector<std::uint64_t> bits(n);
  std::vector<double> x(n), y(n);
  for (std::size_t i = 0; i < n; ++i) bits[i] = i == 0 ? 6 : mix(i) % 7;
  std::memcpy(x.data(), bits.data(), n * sizeof(double));
  for (std::size_t i = 0; i < n; ++i) bits[i] = mix(n + i) % 4096;
  std::memcpy(y.data(), bits.data(), n * sizeof(double));
  gq::vector_codec codec{gq::quantizer{gq::norm::l<>{gq::infinity, gq::infinity}, gq::levels::uniform<>{4},
                                       gq::rounding::stochastic{}, gq::wire::packed<>{8}}};
  gq::encoding_key const key{.seed = 9, .step = 3};
  std::vector<std::byte> frame(codec.frame_bytes(n, gq::dtype::float64));
  frame.resize(codec.encode(x, key, frame));
  codec.decode_add(frame, key, y);
  return support::hash_bytes(y.data(), n * sizeof(double));
}

}  // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  gq::rounding::stochastic const stochastic;
  gq::wire::packed<> const bits{8};
  gq::levels::uniform<> const uniform{7};
  std::vector<named> all = {
      {"uniform linf sum ring",
       gq::quantizer{gq::norm::l<>{gq::infinity, gq::infinity}, uniform, stochastic, bits, gq::reduce::sum{}},
       "ring"},
      {"uniform l2 requantize ring",
       gq::quantizer{gq::norm::l<>{2, 2}, uniform, stochastic, bits, gq::reduce::requantize{}}, "ring"},
      {"uniform l3,1 bucket 100 allgather",
       gq::quantizer{gq::norm::l<>{3, 1, 100}, uniform, stochastic, bits, gq::reduce::requantize{}},
       "allgather"},
      {"uniform local 2 bucket 128 tree", gq::quantizer{gq::norm::local<>{2, 128}, uniform, stochastic, bits},
       "tree"},
      {"uniform l1 shift sra",
       gq::quantizer{gq::norm::l<>{1, 1}, uniform, gq::rounding::random_shift<>{}, bits, gq::reduce::sum{}},
       "sra"},
      {"rotated centered local inf ring",
       gq::rotated{
           gq::centered{gq::quantizer{gq::norm::local<>{gq::infinity, 128}, uniform, stochastic, bits}}, 256},
       "ring"},
  };
  for (named const& each : other_levels()) all.push_back(each);
  for (named const& each : all) {
    std::printf("%s:", each.name);
    for (bool subnormal : {false, true}) {
      std::printf(" %016llx",
                  static_cast<unsigned long long>(run<float>(each.op, each.schedule, floats, subnormal)));
      std::printf(" %016llx",
                  static_cast<unsigned long long>(run<double>(each.op, each.schedule, doubles, subnormal)));
      std::printf(
          " %016llx %016llx",
          static_cast<unsigned long long>(run<gq::float16>(each.op, each.schedule, halves, subnormal)),
          static_cast<unsigned long long>(run<gq::bfloat16>(each.op, each.schedule, halves, subnormal)));
    }
    std::printf("\n");
  }
  std::printf("added to float64: %016llx\n",
              static_cast<unsigned long long>(added_at_the_end_of_the_range()));
}
