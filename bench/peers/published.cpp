// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief peers: the algorithms as papers print them. Encoding: random floats for the whole vector first, then a loop
/// over
///        the values with floor, log2 and exp2. The exponential reduce: integers, one random number for each addition.
///
/// Random numbers come from a cheap generator, cheaper than the ones of common libraries, and all loops run on the
/// threads of the library's own kernels, in blocks of the same size.

#include "peer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace globalq::bench {
namespace {

constexpr std::uint64_t block = 4096;

/// body(i) for every value.
template <class Body>
void for_each_value(task const& t, Body const& body) {
  t.on.items(divide_up(t.n, block), [&](std::uint64_t b) {
    Body const own = body;  // a copy: writes of bytes might alias the pointers in a body held by reference
    std::uint64_t const end = std::min(t.n, (b + 1) * block);
    for (std::uint64_t i = b * block; i < end; ++i) own(i);
  });
}

/// Uniform in [0, 1).
void draw(task const& t, float* u) {
  for_each_value(t, [=](std::uint64_t i) {
    u[i] = static_cast<float>(mix((i + 1) * 0x9E3779B97F4A7C15ULL) >> 40) * 0x1p-24F;
  });
}

constexpr int smallest = 126;  ///< code k is 2^-(k-1) times the norm; code 0 is zero

/// Alistarh et al. 2017 (QSGD): sign(x) floor(s |x| / norm + u).
std::int8_t encode_uniform(float x, float norm, float u) {
  float const level = std::floor(127.0F * std::fabs(x) / norm + u);
  return static_cast<std::int8_t>(x < 0 ? -level : level);
}

/// Horvath et al. 2019: the power of two below, or the one above with the probability that makes the result unbiased.
std::int8_t encode_exponential(float x, float norm, float u) {
  float const magnitude = std::fabs(x) / norm;
  if (magnitude == 0) return 0;
  float const lower = std::floor(std::log2(magnitude));
  float const power = lower < -smallest ? 0.0F : std::exp2(lower);
  float const gap = power == 0 ? std::exp2(-static_cast<float>(smallest)) : power;
  bool const up = u < (magnitude - power) / gap;
  int code = up ? -static_cast<int>(lower) : 1 - static_cast<int>(lower);
  if (power == 0) code = up ? smallest + 1 : 0;
  return static_cast<std::int8_t>(x < 0 ? -code : code);
}

float decode_exponential(std::int8_t code, float norm) {
  if (code == 0) return 0;
  float const magnitude = norm * std::pow(2.0F, 1.0F - std::fabs(static_cast<float>(code)));
  return code < 0 ? -magnitude : magnitude;
}

float decode_uniform(std::int8_t code, float norm) { return static_cast<float>(code) * norm / 127; }

/// Draws the random numbers of the whole vector, then encodes each value.
template <std::int8_t (*Encode)(float, float, float), float (*Decode)(std::int8_t, float)>
class encode final : public peer {
 public:
  explicit encode(task const& t) : task_(t), u_("u", t.n), codes_("codes", t.n) {}

  void run() override {
    float* const u = u_.data();
    float const* const x = task_.x.data();
    std::int8_t* const codes = codes_.data();
    float const norm = static_cast<float>(task_.norm);
    draw(task_, u);
    for_each_value(task_, [=](std::uint64_t i) { codes[i] = Encode(x[i], norm, u[i]); });
  }

  double error() override {
    return relative_error(
        task_.n, [&](std::uint64_t i) { return double{task_.x(i)}; },
        [&](std::uint64_t i) { return double{Decode(codes_(i), static_cast<float>(task_.norm))}; });
  }

 private:
  task task_;
  values<float> u_;
  values<std::int8_t> codes_;
};

/// 32 bits that depend on all bits of @p i, by integer operations that compilers vectorize.
std::uint32_t random_word(std::uint32_t i) {
  i = (i ^ (i >> 16)) * 0x85EBCA6BU;
  i = (i ^ (i >> 13)) * 0xC2B2AE35U;
  return i ^ (i >> 16);
}

/// Xin et al. (Global-QSGD), appendix B, Algorithm 2: comparisons of integers and no branch, so compilers vectorize it.
/// A code is its sign times e, and zero is 0. k > difference is p < 2^-difference, p being @p word / 2^31, as the text
/// has it.
std::int8_t add_exponential(std::int8_t a, std::int8_t b, std::uint32_t word) {
  int const sign1 = a < 0 ? -1 : 1, sign2 = b < 0 ? -1 : 1;
  int const e1 = sign1 * a, e2 = sign2 * b;
  int const sign12 = sign1 * sign2 * (e1 > 0) * (e2 > 0);
  int const difference = std::clamp(std::abs(e1 - e2) - (sign12 < 0), 0, 31);
  bool const k_is_larger = word >> (31 - difference) == 0;
  bool const first = (e1 > 0) & ((e1 <= e2) | (e2 == 0)), cancel = (e1 == e2) & (sign12 < 0);
  int const e = ((first ? e1 : e2) - sign12 * k_is_larger) * !cancel;
  return static_cast<std::int8_t>((first ? sign1 : sign2) * e);
}

void sum_in_integers(task const& t, std::int8_t const* a, std::int8_t const* b, float*, float,
                     std::int8_t* sum) {
  for_each_value(t, [=](std::uint64_t i) {
    sum[i] = add_exponential(a[i], b[i], random_word(static_cast<std::uint32_t>(i)) >> 1);
  });
}

/// Not an algorithm of the paper: decodes both codes to floats, adds them, and rounds the exponent of the sum again.
void sum_in_float(task const& t, std::int8_t const* a, std::int8_t const* b, float* u, float scale,
                  std::int8_t* sum) {
  draw(t, u);
  for_each_value(t, [=](std::uint64_t i) {
    sum[i] =
        encode_exponential(decode_exponential(a[i], scale) + decode_exponential(b[i], scale), scale, u[i]);
  });
}

/// Adds two vectors of codes. The scale is twice the norm, which no sum exceeds.
template <void (*Sum)(task const&, std::int8_t const*, std::int8_t const*, float*, float, std::int8_t*)>
class reduce_exponential final : public peer {
 public:
  explicit reduce_exponential(task const& t)
      : task_(t),
        scale_(2 * static_cast<float>(t.norm)),
        u_("u", t.n),
        a_("a", t.n),
        b_("b", t.n),
        sum_("sum", t.n) {
    draw(task_, u_.data());
    for (std::uint64_t i = 0; i < t.n; ++i) {
      a_(i) = encode_exponential(t.x(i), scale_, u_(i));
      b_(i) = encode_exponential(t.other(i), scale_, 1 - 0x1p-24F - u_(i));
    }
  }

  void run() override { Sum(task_, a_.data(), b_.data(), u_.data(), scale_, sum_.data()); }

  double error() override {
    return relative_error(
        task_.n, [&](std::uint64_t i) { return double{task_.x(i)} + double{task_.other(i)}; },
        [&](std::uint64_t i) { return double{decode_exponential(sum_(i), scale_)}; });
  }

 private:
  task task_;
  float scale_;
  values<float> u_;
  values<std::int8_t> a_, b_, sum_;
};

template <class Peer>
std::unique_ptr<peer> make(task const& t) {
  return std::make_unique<Peer>(t);
}

}  // namespace

std::vector<named_peer> published_peers() {
  return {
      {"published: encode uniform int8", make<encode<encode_uniform, decode_uniform>>},
      {"published: encode exponential int8", make<encode<encode_exponential, decode_exponential>>},
      {"published: reduce exponential int8", make<reduce_exponential<sum_in_integers>>},
      {"decode, add, encode in float: reduce exponential int8", make<reduce_exponential<sum_in_float>>},
  };
}

}  // namespace globalq::bench
