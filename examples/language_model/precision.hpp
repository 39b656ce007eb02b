// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The formats in which sharded weights and gradients travel, as text: W8G4.

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/train/learn/nearest.hpp>

#include <cstdint>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>

namespace language_model {

/// The rounding and the levels of weights of 2 to 8 bits. Gradients are always rounded stochastically; their levels are learned
/// if those of the weights are.
enum class scheme {
  shifted,     ///< even levels, random shift: QSDP
  nearest,     ///< even levels, to the nearest: isolates the effect of rounding
  learned,     ///< levels of least error (learn::lloyd), to the nearest
  descent,     ///< levels of QSDP's algorithm 5.1 (learn::weight_levels), to the nearest
  stochastic,  ///< levels of least variance (learn::optimal), stochastic rounding: unbiased, as shifted is
  lgreco  ///< even levels, random shift, and for each layer 2 to 8 bits: as many that together err as the given number does
};

/// The formats of weights and gradients.
struct precision {
  std::string name = "float32";
  int weight_bits = 32, gradient_bits = 32;  ///< 2 to 8; 16: floats; 32: as they are
  scheme by = scheme::shifted;               ///< levels are even until they are learned
  /// Of so many values one is sent, the first ones: for times only (step_times).
  std::uint64_t weights_of = 1, gradients_of = 1;
  bool learns() const { return by != scheme::shifted && by != scheme::nearest && by != scheme::lgreco; }
};

/// Values of a bucket share a scale and a midpoint.
inline constexpr std::uint64_t bucket = 1024;

/// Levels above zero of codes of so many bits.
constexpr std::uint32_t levels_of(int bits) { return bits > 8 ? 0 : (std::uint32_t{1} << (bits - 1)) - 1; }

/// Buckets scaled by minimum and maximum.
template <class Levels, class Rounding>
globalq::any_quantizer centered_buckets(Levels const& levels, Rounding const& rounding, int bits) {
  return globalq::centered{globalq::quantizer{globalq::norm::local<globalq::infinity>{bucket}, levels,
                                              rounding,
                                              globalq::wire::packed<>{static_cast<std::uint32_t>(bits)}}};
}

/// For weights. Each step sends the exact weights again, so the errors of rounding to nearest do not accumulate. Its squared error is
/// half that of stochastic rounding and, for even levels, that of a random shift.
inline globalq::any_quantizer weight_operator(int bits, scheme by) {
  if (bits == 32) return globalq::uncompressed{};
  if (bits == 16) return globalq::operators::float16();
  if (by == scheme::shifted || by == scheme::lgreco)
    return centered_buckets(globalq::levels::uniform<>{}, globalq::rounding::random_shift<>{}, bits);
  globalq::levels::table const even = globalq::learn::uniform_levels(levels_of(bits)).table();
  if (by == scheme::stochastic) return centered_buckets(even, globalq::rounding::stochastic{}, bits);
  return centered_buckets(even, globalq::rounding::nearest{}, bits);
}

/// For gradients: stochastic rounding, unbiased.
inline globalq::any_quantizer gradient_operator(int bits, bool learns) {
  globalq::rounding::stochastic const dice;
  if (bits == 32) return globalq::uncompressed{};
  if (bits == 16) return globalq::operators::float16();
  if (learns) return centered_buckets(globalq::learn::uniform_levels(levels_of(bits)).table(), dice, bits);
  return centered_buckets(globalq::levels::uniform<>{}, dice, bits);
}

/// "float32", or "W8G4", followed by a scheme for 2 to 8 bits.
inline precision precision_of(std::string const& name) {
  static std::map<std::string, scheme> const schemes{
      {"", scheme::shifted},         {" nearest", scheme::nearest},       {" learned", scheme::learned},
      {" descent", scheme::descent}, {" stochastic", scheme::stochastic}, {" lgreco", scheme::lgreco}};
  if (name == "float32") return {};
  std::smatch part;
  if (!std::regex_match(name, part, std::regex{"W([2-8]|16|32)G([2-8]|16|32)( .*)?"}) ||
      !schemes.contains(part[3]))
    throw std::runtime_error{
        "language_model: \"" + name +
        "\" is no precision; use float32, or W and G with 2 to 8, 16 or 32 bits each, as W8G8, "
        "and behind it nearest, learned, descent, stochastic or lgreco, as \"W4G4 learned\""};
  precision const p{name, std::stoi(part[1]), std::stoi(part[2]), schemes.at(part[3])};
  bool const some = p.weight_bits <= 8 || (p.by == scheme::learned && p.gradient_bits <= 8);
  if (p.by != scheme::shifted && !some)
    throw std::runtime_error{"language_model: \"" + name + "\" has no levels for which there is \"" +
                             name.substr(name.find(' ') + 1) + "\"; leave it out"};
  return p;
}

}  // namespace language_model
