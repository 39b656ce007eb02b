// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Policies of a quantizer: which there are and in which order, and what those of one's own must declare.

#include <globalq/operator/quantizer.hpp>

#include <cstring>

namespace gq = globalq;

using gq::levels::uniform;
using gq::norm::linf;
using gq::rounding::stochastic;
using gq::wire::int8;

[[maybe_unused]] gq::quantizer const accepted{linf{}, uniform<>{}, stochastic{}, int8{}};

#ifdef CASE_LEVELS_FIRST  // expect-error: globalq: quantizer: the first policy is not a norm
gq::quantizer const op{uniform<>{}, linf{}, stochastic{}, int8{}};
#endif

#ifdef CASE_ROUNDING_BEFORE_LEVELS  // expect-error: globalq: quantizer: the second policy is not a level scheme
gq::quantizer const op{linf{}, stochastic{}, uniform<>{}, int8{}};
#endif

#ifdef CASE_WIRE_BEFORE_ROUNDING  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}, int8{}, stochastic{}};
#endif

#ifdef CASE_REDUCE_BEFORE_WIRE  // expect-error: globalq: quantizer: the fourth policy is not a wire format
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}, gq::reduce::sum{}, int8{}};
#endif

#ifdef CASE_REDUCE_IS_NO_POLICY  // expect-error: globalq: quantizer: the fifth policy is not a reduce operator
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}, int8{}, 4};
#endif

#ifdef CASE_NO_WIRE  // expect-error: globalq: quantizer: the wire is missing
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}};
#endif

#ifdef CASE_NO_WIRE_IN_TYPE  // expect-error: globalq: quantizer: the wire is missing
gq::quantizer<linf, uniform<>, stochastic> const op;
#endif

#ifdef CASE_NO_ROUNDING  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}, int8{}};
#endif

#ifdef CASE_NO_ROUNDING_AND_WIRE  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}};
#endif

// Workers with other levels must find out.
struct half_and_one {
#ifndef CASE_LEVELS_WITHOUT_NAME  // expect-error: globalq: levels, rounding and wire must each declare a name
  static constexpr char const* name = "half-and-one";
#endif
  float extent() const { return 1; }
  std::uint32_t max_code() const { return 2; }
  gq::neighbors locate(float t) const {
    std::int32_t const below = t < 0.5F ? 0 : 1;
    return {below, below + 1, static_cast<std::uint32_t>((2 * t - static_cast<float>(below)) * 0x1p31F)};
  }
  float value(std::uint32_t code) const { return 0.5F * static_cast<float>(code); }
};
gq::quantizer<linf, half_and_one, stochastic, int8> of_half_and_one;

// Bounds and error feedback need to know whether a rounding is unbiased, and workers which members it has.
struct tilted {
  static constexpr char const* name = "tilted";
  static constexpr bool word_per_coordinate = true;
  std::uint32_t by = 0;
#ifndef CASE_ROUNDING_WITHOUT_UNBIASED  // expect-error: globalq: this rounding does not declare whether it is unbiased
  static constexpr bool unbiased = false;
#endif
#ifndef CASE_STATE_WITHOUT_PARAMETERS  // expect-error: globalq: a policy with members or template arguments must declare
  std::uint64_t parameters() const { return by; }
#endif
  bool shifts() const { return false; }
  std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const { return word + by < threshold; }
  double shift(std::uint32_t) const { return 0; }
};
gq::quantizer<linf, uniform<7>, tilted, int8> of_tilted;

// Plans and chunks are computed from the bits of a code.
struct bytes_of_codes {
  static constexpr char const* name = "bytes";
  using code_type = std::int8_t;
#ifndef CASE_WIRE_WITHOUT_BITS  // expect-error: globalq: this wire format does not declare how many bits a code takes
  int bits() const { return 8; }
#endif
  std::uint32_t largest_code(bool) const { return 127; }
  std::uint64_t bytes(std::uint64_t n) const { return n; }
  std::uint8_t identifier() const { return 40; }
  void pack(std::int8_t const* codes, int n, std::byte* out, bool) const {
    std::memcpy(out, codes, static_cast<std::size_t>(n));
  }
  bool unpack(std::byte const* in, int n, std::int8_t* codes, bool) const {
    std::memcpy(codes, in, static_cast<std::size_t>(n));
    return false;
  }
};
gq::quantizer<linf, uniform<7>, stochastic, bytes_of_codes> of_bytes;

// A norm with a statistic of its own.
struct mean_magnitude {
  struct statistic {
    double sum = 0, count = 0;
#ifdef CASE_STATISTIC_TOO_LARGE  // expect-error: globalq: this norm's statistic cannot be sent
    double more[3];
#endif
  };
#ifndef CASE_NORM_WITHOUT_NAME  // expect-error: globalq: a norm with a statistic must declare a name
  static constexpr char const* name = "mean-magnitude";
#endif
#ifndef CASE_NORM_WITHOUT_LOCALITY  // expect-error: globalq: this norm does not declare which values share a scale
  static constexpr bool is_local = false;
#endif
#ifndef CASE_NORM_WITHOUT_BOUNDS  // expect-error: globalq: this norm does not declare whether its scale bounds the largest magnitude
  static constexpr bool bounds_largest = false;
#endif
  std::uint64_t bucket = 0;
#ifndef CASE_NORM_WITHOUT_PARAMETERS  // expect-error: globalq: a norm with a statistic must declare a name, and a number
  std::uint64_t parameters() const { return bucket; }
#endif
#ifdef CASE_NORM_OF_FLOAT_ONLY  // expect-error: globalq: this norm does not measure values
  statistic measure(float const*, int) const { return {}; }
#else
  template <class Value>
  statistic measure(Value const*, int) const {
    return {};
  }
#endif
#ifndef CASE_NORM_WITHOUT_MERGE  // expect-error: globalq: this norm does not merge statistics
  statistic merge(statistic a, statistic) const { return a; }
#endif
#ifndef CASE_NORM_WITHOUT_SCALE  // expect-error: globalq: this norm does not compute a scale
  double scale(statistic s) const { return s.sum / s.count; }
#endif
};
[[maybe_unused]] gq::quantizer const of_own_norm{mean_magnitude{}, uniform<>{}, stochastic{}, int8{}};
