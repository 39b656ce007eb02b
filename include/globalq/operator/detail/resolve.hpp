// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: selects the reduce method and the number of levels, or returns an error with a remedy.

#include "../../core/codec.hpp"
#include "../../core/detail/hash.hpp"
#include "../../core/error.hpp"
#include "../../norm/order.hpp"
#include "../../random/stream.hpp"
#include "../floats.hpp"
#include "../stage.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace GLOBALQ_ABI {

/// The method that computes the codes of a sum from the codes of several workers.
enum class method : std::uint8_t {
  none,         ///< frames are not added: every worker decodes all of them and adds in float32 (allgather)
  sum,          ///< integer addition of codes
  exponential,  ///< rounded addition of powers of two
  requantize,   ///< decode, add in float32, encode again
  plain,        ///< addition of floats in float32
  user          ///< a user-defined reduce operator
};
inline constexpr std::size_t methods = 6;

constexpr char const* name_of(method m) {
  switch (m) {
    case method::none:
      return "none";
    case method::sum:
      return "sum";
    case method::exponential:
      return "exponential";
    case method::requantize:
      return "requantize";
    case method::user:
      return "user";
    default:
      return "plain";
  }
}

namespace detail {

class user_norm;
class operator_codec;
struct operator_of_sums;

/// The reduce policy of the user; the first values are those of reduce::way.
enum class request : std::uint8_t { automatic, sum, exponential, requantize, user };

/// Properties that a schedule declares; see schedule/concept.hpp.
struct schedule_facts {
  char const* name = "";
  int height = 0;             ///< additions on the longest path (headroom of the exponential reduce)
  bool combines = true;       ///< false: every worker gets every frame
  bool native = false;        ///< the transport adds numbers itself
  bool one_addition = false;  ///< one worker receives all frames of a segment and encodes their sum once
  int roundings = 0;     ///< on the longest path, if sums are encoded again; 0: from one_addition and height
  bool varying = false;  ///< can send frames of variable length
  char const* operation = "allreduce_mean";  ///< the call that it serves, for errors
  int most_terms =
      0;  ///< workers in the largest sum that is sent, if sums are sent only within nodes; 0: all
  int encoders =
      0;  ///< nodes, if each adds its values in float32 and one worker encodes the sum; 0: all encode
  int largest_node = 1;      ///< workers of the largest of these nodes
  bool chunks_wait = false;  ///< workers wait for each other's chunks: several chunks deadlock on a stream
  /// On a stream, kernels of a chunk overlap with transfers of others, and a chunk takes one or two exchanges.
  bool chunks_overlap = false;

  /// The number of vectors that are encoded.
  int vectors(int workers) const { return encoders != 0 ? encoders : workers; }
  /// Factor on the mean of the encoded vectors, which are sums of nodes divided by the size of the largest node.
  double weight(int workers) const {
    return encoders == 0 ? 1.0 : static_cast<double>(largest_node) * encoders / workers;
  }
};

/// A hash of all fields. A field that is missing from it is a compile-time error.
GLOBALQ_DECL std::uint64_t fingerprint(schedule_facts const& s);

/// What an operator's frames hold, beside what float32_tail and centered add.
enum class frame_content : std::uint8_t {
  codes,  ///< of levels, relative to scales
  floats  ///< floating-point numbers
};

/// The properties of an operator, as numbers.
struct operator_facts {
  std::string name;         ///< for messages: all policies with their parameters
  std::string before = {};  ///< what callers do with vectors before calls; see any_quantizer::after
  frame_content content = frame_content::codes;
  floats_policies floats = {};  ///< if that is the content
  std::uint64_t grain = 1;      ///< segments begin at multiples of it, of buckets and of random tiles
  bool plain_tail = false;      ///< a short last bucket travels as float32
  stages chain;                 ///< maps before encoding, the first one first
  /// Encodes the sums that scatter-reduce-allgather sends; null: the operator itself does.
  std::shared_ptr<operator_of_sums const> of_sums;
  bool own_rotation =
      false;  ///< each frame has a rotation of its own, that of the worker that encodes it (eden)
  bool evenly_spaced = false;
  bool binary = false;  ///< base-2 exponential levels
  bool zero_free = false;
  std::uint32_t size = 0;   ///< levels above zero; 0: as many as fit
  std::uint32_t limit = 0;  ///< the most levels of the scheme
  norm::order q;            ///< of the norm within a worker
  std::uint32_t p = 0;      ///< of the norm over the workers
  std::uint64_t bucket = 0;
  bool local = false;
  double fixed_scale = 0;
  norm::error_bound error;  ///< of norm::fixed
  std::shared_ptr<detail::user_norm const>
      user_norm;  ///< a user-defined norm, which has neither orders nor a fixed scale; else null
  bool unbiased = true;
  bool nearest = false;                             ///< rounds to nearest, so by half a gap at most
  bool told_worker = false;                         ///< the rounding depends on rank and workers
  double (*gain)(std::uint32_t workers) = nullptr;  ///< of a rounding that SaysGain; else null
  double (*variance_factor)(std::uint32_t workers) = nullptr;  ///< of one that SaysVarianceFactor
  bool shifts = false;
  bool integer_wire = false;
  std::uint32_t largest_code = 0;
  int wire_bits = 0;  ///< of a code; if frames vary in length, of its integer in memory
  /// The bytes of count codes of a wire with gaps, where they are not ceil(count * wire_bits / 8); else empty.
  std::function<std::uint64_t(std::uint64_t count)> wire_bytes;
  /// The most bytes of count codes, if frames vary in length; else null.
  std::size_t (*most_bytes)(std::uint64_t count, std::uint32_t largest, bool zero_free) = nullptr;
  std::string wire;
  request reduce = request::automatic;
  /// The largest code of a sum, of a user-defined reduce operator; else null. See core/concepts.hpp, SaysLargestCode.
  std::uint64_t (*largest_sum)(std::uint32_t max_code, std::uint32_t terms, std::uint32_t height) = nullptr;
  bool codes_end = false;      ///< no code represents a value above the largest level
  std::uint64_t policies = 0;  ///< hash of the policies' names and parameters
  // The values of levels, which may change between calls; empty if they follow from the number of levels.
  std::uint64_t levels = 0;        ///< hash of the values
  std::vector<double> magnitudes;  ///< as fractions of the norm, ascending, without zero

  bool has_codes() const { return content == frame_content::codes; }
  /// Whether values are rounded, with random words.
  bool rounds() const { return has_codes() || floats.rounds(); }
  /// Whether frames hold floats, alone or beside codes.
  bool sends_floats() const { return !has_codes() || plain_tail || has_sides(); }
  /// Whether a stage sends side values.
  bool has_sides() const {
    return std::any_of(chain.begin(), chain.end(), [](auto const& map) {
      return !map->side_values({0, std::max<std::uint64_t>(1, map->grain())}).empty();
    });
  }
  /// Whether the workers' norms are combined to a common scale.
  bool shares_norm() const { return has_codes() && !local && fixed_scale == 0; }
};

/// The result of resolve(): a method with its numbers, or an error text.
struct resolution {
  method how = method::none;
  std::uint32_t size = 0;
  std::uint32_t headroom = 0;  ///< codes of sums beyond the number of levels
  std::string refusal;         ///< the error; empty if the policies fit
  bool fits() const { return refusal.empty(); }
};

/// An operator that encodes sums: the codec of a vector that a worker has alone.
struct operator_of_sums {
  operator_facts facts;
  resolution alone;          ///< its own, for one worker
  bool own_unbiased = true;  ///< whether own values are rounded without bias
  std::function<std::unique_ptr<operator_codec>(kernel::host_executor const&)> make;
};

/// Adds what callers do with vectors before calls.
inline operator_facts prepared(operator_facts f, std::string const& how) {
  if (how.empty()) return f;
  f.name += ", " + how;
  f.before += (f.before.empty() ? "" : ", ") + how;
  return f;
}

/// The grain of partitions: segments contain whole buckets and whole random tiles.
inline std::uint64_t grain_of(operator_facts const& op) {
  std::uint64_t grain = std::lcm(op.grain, std::uint64_t{random::tile_values});
  if (op.bucket != 0) grain = std::lcm(op.bucket, grain);
  if (op.of_sums != nullptr && op.of_sums->facts.bucket != 0)
    grain = std::lcm(op.of_sums->facts.bucket, grain);
  for (auto const& map : op.chain)
    if (map->grain() != 0) grain = std::lcm(map->grain(), grain);
  return grain;
}

/// How far a scale may exceed its norm.
inline double growth_of_scale(norm::order const& q) {
  return q.rounds_up() ? 2.0 : (q.byte == scale_byte::e4m3 ? 9.0 / 8 : 1.0);
}

/// The number of buckets of a vector.
inline std::uint64_t buckets_of(operator_facts const& op, std::uint64_t length) {
  return length == 0 ? 0 : (op.bucket == 0 ? 1 : divide_up(length, op.bucket));
}

/// Whether workers exchange, after the handshake, their largest values relative to a fixed scale: stages map them only
/// then.
inline bool shares_scale(operator_facts const& op) { return !op.chain.empty() && op.fixed_scale > 0; }

/// Whether the workers of a group agree on a scale of floats for each vector, whatever the values.
inline bool scales_each_vector(operator_facts const& op) {
  return !op.has_codes() && format_of(op.floats.type).range != 0;
}

/// A hash of all that affects results, except the values of levels, which may change between calls. A field that is
/// missing from it is a compile-time error.
GLOBALQ_DECL std::uint64_t fingerprint(operator_facts const& op, resolution const& r);

inline std::string number(std::uint64_t x) { return std::to_string(x); }

/// The error for vectors of more than 2^48 values, the limit of the random bits; else empty.
GLOBALQ_DECL std::string length_refusal(std::uint64_t length);
/// @throws configuration_error when length_refusal() is not empty
GLOBALQ_DECL void expect_length(std::uint64_t length, char const* operation);

/// The narrowest integer wire format that holds a code; empty if none does.
GLOBALQ_DECL std::string wire_for(std::uint64_t code);

GLOBALQ_DECL method choose_method(operator_facts const& op, schedule_facts const& s);

/// Whether frames of sums are encoded, if the operator rounds.
inline bool encodes_sums(method how, schedule_facts const& s) {
  return how == method::requantize || (how == method::plain && s.combines);
}

/// Roundings on the longest path from a worker's value to the mean, of an operator that rounds.
inline int roundings_of(method how, schedule_facts const& s, int workers) {
  if (s.vectors(workers) == 1) return 1;
  if (encodes_sums(how, s)) return s.roundings != 0 ? s.roundings : (s.one_addition ? 2 : 1 + s.height);
  return how == method::exponential || how == method::user ? 1 + s.height : 1;
}

/// Why a mean of a type is refused under a bound on its error; empty: it is not.
inline std::string type_refusal(operator_facts const& op, dtype type) {
  if (op.error.largest == 0 || size_of(type) >= 4 || type == op.error.vectors) return {};
  return joined({"rounding the mean to ", name_of(type),
                 " may exceed the largest error of norm::fixed, which is for ", name_of(op.error.vectors),
                 "; pass vectors of float32, or set error.vectors to ", name_of(type)});
}

/// Whether sums of k terms are encoded at k times the norm, which their values must not exceed.
inline bool keeps_scale_of_sums(operator_facts const& op, method how) {
  return how == method::requantize && !op.local;
}

/// Checks whether the policies fit together for @p workers workers on a schedule, and computes their numbers.
///
/// The method depends only on the policies, not on what fits.
GLOBALQ_DECL resolution resolve(operator_facts const& op, schedule_facts const& s, int workers);

}  // namespace detail
}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "resolve-inl.hpp"
#endif
