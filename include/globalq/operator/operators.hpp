// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operators: the operators of the papers by name, each a composition of policies.
///
/// A name is a function that returns a quantizer, whose parts can be changed: `auto op = operators::qsgd<4>(512);
/// op.levels = levels::uniform{3};`. Bounds: E||G(x) - mean||^2 <= (theta / n) sum ||x_i||^2 with D the number of
/// values under one scale (n d under a global norm, n B with buckets of B, d or B under a local one); the plan of a
/// call contains theta for all its roundings. docs/operators.md has a table of all names, with measurements; programs
/// accept them as words (globalq/named/operators.hpp).

#include "clip.hpp"
#include "quantizer.hpp"

namespace GLOBALQ_ABI::operators {

namespace detail {

template <int Bits>
struct wire_of_bits {
  static_assert(Bits >= 1 && Bits <= 8,
                "globalq: operators: this number of bits is not supported; use 1 to 8, 16 or 32; see "
                "docs/operators.md");
  using type = wire::packed<static_cast<std::uint32_t>(Bits)>;
};
template <>
struct wire_of_bits<8> {
  using type = wire::int8;
};
template <>
struct wire_of_bits<16> {
  using type = wire::int16;
};
template <>
struct wire_of_bits<32> {
  using type = wire::int32;
};

}  // namespace detail

/// A wire format of fixed width or of variable length.
template <class W>
concept AnyWire = WireFormat<W> || wire::BlockCode<W>;

/// The fixed-width wire format for a number of bits per code, sign included: 8, 16, 32: integers; else packed.
template <int Bits>
using wire_of = typename detail::wire_of_bits<Bits>::type;

/// @name Global-QSGD: one norm for all workers, codes that can be added
/// @{

/// @brief Global-Q with standard dithering: levels k/s of the norm of all workers.
///
/// Codes are added as integers, so any Allreduce of integers works (schedule native). @n
/// Wire: @p Bits per value; the scale is part of the handshake. Levels: floor((2^(Bits-1) - 1) / n) if codes are added,
/// else 2^(Bits-1) - 1. @n
/// Bound: theta = min(c^2 D / 4 s^2, c sqrt(D) / s) / n, c = d^max(0, 1/q - 1/2) n^max(0, 1/p - 1/2).
/// Non-zero codes under l<2,2>: at most s sqrt(D); *erratum:* Theorem 3.3 prints s^2 + sqrt(D), which is too low.
/// @param norm    norm::linf (default), or any norm::l<Q, P>
/// @param levels  s; 0: as many as fit
/// @source Xin et al. (Global-QSGD), Definition 3.1 and Theorem 3.3; defaults of its section 6
template <int Bits = 8, NormScheme Norm = norm::linf, WireFormat Wire = wire_of<Bits>>
quantizer<Norm, levels::uniform<>, rounding::stochastic, Wire> global_uniform(Norm norm = {},
                                                                              std::uint32_t levels = 0,
                                                                              Wire wire = {}) {
  static_assert(!Norm::is_local,
                "globalq: operators::global_uniform needs one norm for all workers; for local norms use "
                "operators::qsgd");
  return {norm, globalq::levels::uniform<>{levels}, {}, wire};
}

/// @brief Global-Q with exponential dithering: levels 2^-(k-1) of the norm of all workers.
///
/// Codes are added by reduce::exponential on ring and tree, with one rounded addition of powers of two per hop. @n
/// Wire: @p Bits per value. Levels: 2^(Bits-1) - 1 - h with h additions on the longest path of the schedule.
/// *Erratum:* the paper divides by 2n, which is enough headroom only for balanced trees over a power of two. @n
/// Bound: omega = 1/8 + min(c sqrt(D) 2^(1-s), c^2 D 4^(1-s)); theta = omega / n plus the variance of the additions
/// (docs/theory.md). Prefer scatter-reduce-allgather, which rounds the sum once: a tree sends more bytes, and both tree and
/// ring have more variance, on a ring (9/8)^(n-2) in the worst case. Non-zero codes under l<2,2>: at most
/// 2^(s-1) sqrt(D).
/// @param levels  s; 0: as many as fit
/// @source Xin et al. (Global-QSGD), Definition 3.1, Theorem 3.3 and Algorithm 2
template <int Bits = 8, NormScheme Norm = norm::linf, WireFormat Wire = wire_of<Bits>>
quantizer<Norm, levels::exponential<>, rounding::stochastic, Wire> global_exponential(
    Norm norm = {}, std::uint32_t levels = 0, Wire wire = {}) {
  static_assert(!Norm::is_local,
                "globalq: operators::global_exponential needs one norm for all workers; for local norms use "
                "operators::nuqsgd");
  return {norm, globalq::levels::exponential<>{levels}, {}, wire};
}

/// @}
/// @name Local norms: each worker has its own scales, which travel with the codes
/// @{

/// @brief QSGD: levels k/s of each bucket's own norm.
///
/// Best over allgather; other schedules encode sums again. @n
/// Wire: @p Bits per value and 32 bits per bucket at fixed width. wire::elias<>{} is the code of the paper;
/// docs/theory.md bounds its length, at s = sqrt(B) by 37/12 B + 32 bits (it can exceed the 2.8 B + 32 of Corollary 3.3).
/// wire::huffman<>{} and wire::sparse<>{} are often shorter: docs/codes.md. @n
/// Bound: omega = min(c^2 B / 4 s^2, c sqrt(B) / s), c = B^max(0, 1/Q - 1/2), theta = omega / n with allgather.
/// Non-zero codes with Q = 2: at most s sqrt(B) per bucket, which equal values attain.
/// @tparam Q      2 (theory), or globalq::infinity (the paper's experiments; "QSGDinf")
/// @param bucket  values that share a norm; 0: the whole vector; 512 in the paper's experiments
/// @param levels  s; 0: 2^(Bits-1) - 1 at fixed width, 127 with a variable-length code
/// @source Alistarh et al. 2017 (QSGD), section 3.1, Lemma 3.1 and section 4 (buckets)
template <int Bits = 4, std::uint32_t Q = 2, AnyWire Wire = wire_of<Bits>>
quantizer<norm::local<Q>, levels::uniform<>, rounding::stochastic, Wire> qsgd(std::uint64_t bucket = 512,
                                                                              std::uint32_t levels = 0,
                                                                              Wire wire = {}) {
  return {norm::local<Q>{bucket}, globalq::levels::uniform<>{levels}, {}, wire};
}

/// @brief TernGrad: -1, 0 or 1 times the largest magnitude.
///
/// Wire: 2 bits per value and 32 bits per bucket. @n
/// Bound: omega = min(B / 4, sqrt(B)), theta = omega / n with allgather. clip_deviations(x, 2.5) is TernGrad's gradient
/// clipping: the maximum is then at most 2.5 sigma, but the result is biased. It is a separate step because it changes
/// the vectors that are averaged. "Scaler sharing" is a global norm: pass norm::linf.
/// @param norm  norm::local<infinity> with a bucket for each layer, or norm::linf (scaler sharing)
/// @source Wen et al. 2017 (TernGrad), ternarizing, scaler sharing and gradient clipping
template <NormScheme Norm = norm::local<infinity>>
quantizer<Norm, levels::uniform<1>, rounding::stochastic, wire::packed<2>> terngrad(Norm norm = {}) {
  return {norm, {}, {}, {}};
}

/// @brief NUQSGD: levels 2^-(k-1) of each bucket's own Euclidean norm.
///
/// Wire: @p Bits per value and 32 bits per bucket. @n
/// Bound: omega = 1/8 + min(sqrt(B) 2^(1-s), B 4^(1-s)), theta = omega / n with allgather. Non-zero codes: at most
/// 2^(s-1) sqrt(B) per bucket.
/// @param bucket  values that share a norm; 0: the whole vector
/// @param levels  s; 0: 2^(Bits-1) - 1
/// @source Ramezani-Kebrya et al. 2021 (NUQSGD)
template <int Bits = 4, AnyWire Wire = wire_of<Bits>>
quantizer<norm::local<2>, levels::exponential<>, rounding::stochastic, Wire> nuqsgd(
    std::uint64_t bucket = 8192, std::uint32_t levels = 0, Wire wire = {}) {
  return {norm::local<2>{bucket}, globalq::levels::exponential<>{levels}, {}, wire};
}

/// @brief Natural compression: each value becomes one of the two powers of two next to it.
///
/// The scale is the largest magnitude rounded up to a power of two, so levels are powers of two in absolute terms. @n
/// Wire: 8 bits per value instead of the paper's 9 (a sign and 7 bits for 127 exponents below the scale, rather than
/// for all 256 of float32); smaller values are rounded to zero or the smallest power of two, still without bias. @n
/// Bound: omega = 1/8 up to a term of 2^-126, attained by 4/3 times a power of two; theta = omega / n with allgather.
/// @tparam Norm   norm::linf by default, so that codes can be added on ring and tree; or norm::local<infinity>
/// @param bucket  values that share a scale; 0: the whole vector
/// @source Horvath et al. 2019 (Natural Compression), its operator C_nat
template <NormScheme Norm = norm::linf>
quantizer<norm::power_of_two<Norm>, levels::exponential<>, rounding::stochastic, wire::int8>
natural_compression(std::uint64_t bucket = 0) {
  norm::power_of_two<Norm> scale;
  scale.bucket = bucket;
  return {scale, {}, {}, {}};
}

/// @brief Natural dithering: levels 2^-(k-1) of each vector's own norm of any order.
///
/// Wire: @p Bits per value and 32 bits per bucket. @n
/// Bound: omega = 1/8 + min(c sqrt(B) 2^(1-s), c^2 B 4^(1-s)), c = B^max(0, 1/Q - 1/2); allgather: theta = omega / n.
/// @tparam Q      order of the norm; the paper's p
/// @param bucket  values that share a norm; 0: the whole vector
/// @param levels  s; 0: 2^(Bits-1) - 1
/// @source Horvath et al. 2019 (Natural Compression), natural dithering
template <int Bits = 4, std::uint32_t Q = infinity, WireFormat Wire = wire_of<Bits>>
quantizer<norm::local<Q>, levels::exponential<>, rounding::stochastic, Wire> natural_dithering(
    std::uint64_t bucket = 0, std::uint32_t levels = 0, Wire wire = {}) {
  return {norm::local<Q>{bucket}, globalq::levels::exponential<>{levels}, {}, wire};
}

/// @}
/// @name Systems: CGX, QSDP
/// @{

/// @brief QSDP's random-shift quantizer: rounds to the nearest point of a grid with one random shift per bucket.
///
/// Wire: @p Bits per value and 32 bits per bucket; the shift is not sent. @n
/// Bound: delta^2 / 12 per value if shifted back, for any value (*erratum:* the published
/// delta^2 sum {v/delta} (1 - {v/delta}) belongs to the variant that does not shift back, whose bound is that of QSGD
/// with the same norm). With Q = infinity delta = max / s.
/// This quantizer scales by magnitude. The published system scales by minimum and maximum: centered{qsdp<8>()}.
/// @tparam ShiftBack  true: Definition 1; false: its proof
/// @param bucket      values that share a shift and a scale; 1,024 in the paper
/// @source Markov 2024 (thesis), chapter 5, Definition 1 and Lemmas 4 and 5
template <int Bits = 8, bool ShiftBack = true, WireFormat Wire = wire_of<Bits>>
quantizer<norm::local<infinity>, levels::uniform<>, rounding::random_shift<ShiftBack>, Wire> qsdp(
    std::uint64_t bucket = 1024, Wire wire = {}) {
  return {norm::local<infinity>{bucket}, {}, {}, wire};
}

/// @brief The grid of QSDP's theory: one absolute step size for all workers and calls.
///
/// If any worker has a magnitude above @p scale, all workers throw. Codes can be added.
/// @param scale    the scale: delta times the number of levels
/// @param levels  s; 0: as many as fit
template <int Bits = 8, bool ShiftBack = true, WireFormat Wire = wire_of<Bits>>
quantizer<norm::fixed, levels::uniform<>, rounding::random_shift<ShiftBack>, Wire> qsdp_grid(
    double scale, std::uint32_t levels = 0, Wire wire = {}) {
  return {norm::fixed{scale}, globalq::levels::uniform<>{levels}, {}, wire};
}

/// @brief A bound on every value of the mean: it differs from the exact mean by @p error at most.
///
/// Rounds to the nearest multiple of a step that a call derives from the error, the range, the workers and the schedule, so
/// that roundings on the way, arithmetic in float32 and the rounding of the result are included; biased. If any worker has
/// a value beyond the range, all workers throw. Codes of integer wires are added without rounding: the step is nearly
/// 2 @p error for any number of workers. docs/theory.md has the proof. vector_codec: the bound of one frame. @n
/// Wire: @p Bits per value; other wires, for example wire::huffman<std::int16_t>{}, need levels for several roundings
/// except over allgather. If levels do not fit, the call is refused.
/// @param error    1e-30 or more, above some 2^-20 of the range (docs/theory.md)
/// @param range    the largest magnitude that a value may have
/// @param vectors  dtype::float16 or bfloat16 for vectors of that type, which are refused otherwise
template <int Bits = 16, AnyWire Wire = wire_of<Bits>>
quantizer<norm::fixed, levels::uniform<>, rounding::nearest, Wire> bounded(double error, double range,
                                                                           Wire wire = {},
                                                                           dtype vectors = dtype::float32) {
  return {norm::fixed{range, 0, {error, vectors}}, {}, {}, wire};
}

/// @brief CGX's quantizer: short buckets, each scaled by its largest magnitude; for scatter-reduce-allgather.
///
/// Wire: @p Bits per value and 32 bits per bucket. @n
/// Bound with stochastic rounding: omega = B / 4 s^2 per encoding. Rounding to nearest, CGX's default, is biased, has
/// no such bound, and needs error feedback; its error is at most delta / 2 per value.
/// To scale by minimum and maximum, use centered{cgx<4>()}; for 2^Bits levels, with
/// levels::symmetric{1/(2^Bits-1), 3/(2^Bits-1), .., 1} (docs/design.md, "Affine frames").
/// @tparam Rounding  rounding::stochastic or rounding::nearest
/// @param bucket     values that share a scale; 128, or 1,024 for convolutional networks
/// @source Markov 2024 (thesis), chapter 3
template <int Bits = 4, RoundingScheme Rounding = rounding::stochastic, WireFormat Wire = wire_of<Bits>>
quantizer<norm::local<infinity>, levels::uniform<>, Rounding, Wire> cgx(std::uint64_t bucket = 128,
                                                                        Wire wire = {}) {
  return {norm::local<infinity>{bucket}, {}, {}, wire};
}

/// @}
/// @name Learned levels; learning is not part of the operator
/// @{

/// @brief ALQ: any levels 0 = l_0 < ... < l_s = 1 of each bucket's own norm.
///
/// Wire: @p Bits per value, for up to 2^(Bits-1) levels including zero, and 32 bits per bucket. @n
/// Bound: omega = (r - 1)^2 / 4r + inf_p K_p (c l_1)^(2-p) B^((2-p)/2), r the largest ratio of neighbors
/// (docs/theory.md); theta = omega / n with allgather.
/// @param levels  ascending from 0 to 1; see levels::table
/// @param bucket  values that share a norm
/// @source Faghri et al. 2020 (ALQ, AMQ), section 3 and Theorem 2
template <int Bits = 3, std::uint32_t Q = 2, WireFormat Wire = wire_of<Bits>>
quantizer<norm::local<Q>, levels::table, rounding::stochastic, Wire> alq(std::span<double const> levels,
                                                                         std::uint64_t bucket = 8192,
                                                                         Wire wire = {}) {
  return {norm::local<Q>{bucket}, globalq::levels::table{levels}, {}, wire};
}

/// The levels of AMQ: p^(s-1), ..., p, 1.
/// @throws configuration_error unless 0 < p < 1 and p^(s-1) is at least 2^-94
inline std::vector<double> multiplier_levels(double multiplier, std::uint32_t size) {
  if (!(multiplier > 0 && multiplier < 1))
    throw configuration_error("globalq: operators::amq: the multiplier is " + std::to_string(multiplier) +
                              "; use a number between 0 and 1");
  float_environment const exact;
  std::vector<double> levels(size);
  double level = 1;
  for (std::size_t k = levels.size(); k-- > 0;) {
    levels[k] = level;
    level = rounded(level * multiplier);
  }
  if (!levels.empty() && levels[0] < 0x1p-94)
    throw configuration_error("globalq: operators::amq: " + std::to_string(size) + " levels of multiplier " +
                              std::to_string(multiplier) +
                              " reach below 2^-94; use fewer bits, or a larger multiplier");
  return levels;
}

/// @brief AMQ: levels -1, -p, ..., -p^(s-1), p^(s-1), ..., p, 1 of each bucket's own norm; there is no zero.
///
/// Wire: @p Bits per value, with all 2^Bits patterns in use, and 32 bits per bucket. @n
/// Bound: omega = (1/p - 1)^2 p / 4 + c^2 B p^(2s-2), theta = omega / n with allgather.
/// @param multiplier  p, between 0 and 1
/// @param bucket      values that share a norm
/// @source Faghri et al. 2020 (ALQ, AMQ), section 3.3 and appendix B.3
template <int Bits = 3, std::uint32_t Q = 2, WireFormat Wire = wire_of<Bits>>
quantizer<norm::local<Q>, levels::symmetric, rounding::stochastic, Wire> amq(double multiplier = 0.5,
                                                                             std::uint64_t bucket = 8192,
                                                                             Wire wire = {}) {
  return {norm::local<Q>{bucket},
          globalq::levels::symmetric{multiplier_levels(multiplier, wire.largest_code(true))},
          {},
          wire};
}

/// @}

/// @name Block-scaled formats
/// @{

/// @brief Values of a small floating-point format; 32 of them share a power-of-two scale: MXFP4, MXFP6, MXFP8.
///
/// Sums are decoded, added in float32 and encoded again. @n
/// Wire: the bits of the format per value and 8 bits per block; the bytes are those of the format. @n
/// Bound: that of general levels with c = 2 sqrt(32), as a scale is less than twice the largest magnitude; the variance
/// of a value is at most a quarter of the squared gap between its neighbors.
/// @tparam Levels  levels::e2m1 (MXFP4), e2m3 or e3m2 (MXFP6), e4m3 or e5m2 (MXFP8)
/// @param block    values that share a scale
/// @source Open Compute Project: Microscaling Formats (MX) Specification 1.0, but scales are rounded up to avoid
///    clipping
template <class Levels, class Rounding = rounding::stochastic>
auto block_scaled(std::uint64_t block = 32, Rounding rounding = {}) {
  constexpr std::uint32_t bits = 1 + static_cast<std::uint32_t>(std::bit_width(Levels::patterns - 1));
  return quantizer{norm::shared_exponent<Levels>{block}, Levels{}, rounding, wire::packed<bits>{}};
}
inline auto mxfp4() { return block_scaled<levels::e2m1>(); }

/// @brief FP4 with scales of two levels, as NVFP4: 16 values share an E4M3 number, and all a scale of 32 bits.
///
/// Sums are decoded, added in float32 and encoded again. Block scales are rounded up by less than 1/8, those of mxfp4 by
/// up to a factor of 2. @n
/// Wire: 4.5 bits per value, and 32 bits per frame. @n
/// Bound: that of general levels with c = 9/8 sqrt(16), plus 2^-20 sqrt(d) for blocks far below the vector's largest
/// value, d its length.
/// @param block  values that share an E4M3 number
/// @source NVIDIA 2025, Pretraining Large Language Models with NVFP4, but scales are rounded up to avoid clipping
template <class Rounding = rounding::stochastic>
quantizer<norm::two_level<levels::e2m1>, levels::e2m1, Rounding, wire::packed<4>> nvfp4(
    std::uint64_t block = 16, Rounding rounding = {}) {
  return {{block}, {}, rounding, {}};
}

/// @tparam Levels  levels::e2m3 or e3m2
template <class Levels = levels::e2m3>
auto mxfp6() {
  static_assert(
      std::is_same_v<Levels, levels::e2m3> || std::is_same_v<Levels, levels::e3m2>,
      "globalq: operators::mxfp6: these levels do not have 6 bits; use levels::e2m3 or levels::e3m2");
  return block_scaled<Levels>();
}
/// @tparam Levels  levels::e4m3 or e5m2
template <class Levels = levels::e4m3>
auto mxfp8() {
  static_assert(
      std::is_same_v<Levels, levels::e4m3> || std::is_same_v<Levels, levels::e5m2>,
      "globalq: operators::mxfp8: these levels do not have 8 bits; use levels::e4m3 or levels::e5m2");
  return block_scaled<Levels>();
}

/// @}

/// @name Floating-point numbers of 16 bits: floats, added in float32
/// @{

/// @brief bfloat16: the range of float32, 8 bits of precision. omega = 2^-16.
/// @tparam Rounding  stochastic or nearest
template <class Rounding = rounding::stochastic>
floats<globalq::bfloat16, Rounding> bfloat16() {
  return {};
}
/// @brief float16: 11 bits of precision, values scaled so that no sum overflows. omega = 2^-22, down to 2^(g-27) of the
/// largest value, g = ceil(log2 n).
/// @tparam Rounding  stochastic or nearest
template <class Rounding = rounding::stochastic>
floats<globalq::float16, Rounding> float16() {
  return {};
}

/// @}

}  // namespace GLOBALQ_ABI::operators
