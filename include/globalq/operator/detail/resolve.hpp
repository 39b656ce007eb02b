// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: decides how codes are added and how many levels fit, or says why nothing does, with a remedy.

#include "../../core/codec.hpp"
#include "../../core/detail/hash.hpp"
#include "../../core/error.hpp"
#include "../../norm/order.hpp"
#include "../../random/stream.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace GLOBALQ_ABI {

namespace kernel {
class host_executor;
}

/// How the codes of several workers become the code of their sum.
enum class method : std::uint8_t {
  none,         ///< not on the way: every worker decodes all frames and adds in float32 (allgather)
  sum,          ///< integer addition of codes
  exponential,  ///< rounded addition of powers of two
  requantize,   ///< decode, add in float32, encode again
  plain,        ///< float32 values, no quantization
  own           ///< by a reduce operator of one's own
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
    case method::own:
      return "own";
    default:
      return "plain";
  }
}

namespace detail {

class own_norm;

/// What the user asked for; the first are those of reduce::way.
enum class request : std::uint8_t { automatic, sum, exponential, requantize, own };

/// What a schedule says of itself; see schedule/concept.hpp.
struct schedule_facts {
  char const* name = "";
  int height = 0;             ///< additions on the longest path (headroom of the exponential reduce)
  bool combines = true;       ///< false: every worker gets every frame
  bool native = false;        ///< the transport adds numbers itself
  bool one_addition = false;  ///< all frames of a segment meet at one worker, so one encoding serves them all
  int roundings = 0;          ///< on the longest way, where sums are encoded again; 0: as the two above say
  bool varying = false;       ///< can send frames whose length only their maker knows
  char const* operation = "allreduce_mean";  ///< the call that it serves, for errors
  int most_terms =
      0;  ///< workers in the largest sum that is sent, where those are the workers of a node; 0: all
  int encoders =
      0;  ///< nodes, where each adds its values in float32 and one worker encodes the sum; 0: all workers encode
  int largest_node = 1;  ///< workers of the largest of these nodes
  bool chunks_wait =
      false;  ///< workers wait for each other's chunks: on a stream for ever, unless there is one

  /// Vectors that are encoded.
  int vectors(int workers) const { return encoders != 0 ? encoders : workers; }
  /// What the mean of the encoded vectors is multiplied by: they are sums of nodes over the size of the largest node.
  double weight(int workers) const {
    return encoders == 0 ? 1.0 : static_cast<double>(largest_node) * encoders / workers;
  }
};

/// A hash of all fields. One that is not listed here does not compile.
GLOBALQ_DECL std::uint64_t fingerprint(schedule_facts const& s);

/// What an operator is made of, as numbers.
struct operator_facts {
  std::string name;         ///< for people: all policies with their parameters
  bool plain = false;       ///< uncompressed float32
  bool plain_tail = false;  ///< what whole buckets leave over travels as float32
  /// Takes midpoints off, where values are encoded around those of buckets, which travel as float32; null: they are not.
  void (*centered)(kernel::host_executor const& on, operator_facts const& op, const_vector x,
                   std::uint64_t length, segment part, mutable_vector to) = nullptr;
  std::uint64_t center = 0;  ///< values that share a midpoint; 0: the whole vector
  bool evenly_spaced = false;
  bool binary = false;  ///< base-2 exponential levels
  bool zero_free = false;
  std::uint32_t size = 0;   ///< levels above zero; 0: as many as fit
  std::uint32_t limit = 0;  ///< the most the scheme can have
  norm::order q;            ///< of the norm within a worker
  std::uint32_t p = 0;      ///< and over the workers
  std::uint64_t bucket = 0;
  bool local = false;
  double fixed_scale = 0;
  std::shared_ptr<detail::own_norm const>
      own_norm;  ///< one's own: neither orders nor a unit count; else null
  bool unbiased = true;
  bool shifts = false;
  bool integer_wire = false;
  std::uint32_t largest_code = 0;
  int wire_bits = 0;  ///< of a code; where frames differ in length, of the codes inside
  /// Most bytes of that many codes up to the largest, where frames differ in length; null: they do not.
  std::size_t (*most_bytes)(std::uint64_t count, std::uint32_t largest, bool zero_free) = nullptr;
  std::string wire;
  request reduce = request::automatic;
  /// The largest code of a sum by a reduce operator of one's own; else null. See core/concepts.hpp, SaysLargestCode.
  std::uint64_t (*largest_sum)(std::uint32_t max_code, std::uint32_t terms, std::uint32_t height) = nullptr;
  bool codes_end = false;      ///< no code stands for a value above the largest level
  std::uint64_t policies = 0;  ///< hash of what policies declare: names and parameters
  /// What only the values of levels tell, which may change between calls; nothing where the number of levels tells all.
  std::uint64_t levels = 0;        ///< hash of the values
  std::vector<double> magnitudes;  ///< as fractions of the norm, ascending, zero left out
};

/// Vectors are cut at multiples of it: neither buckets nor random tiles are parted.
inline std::uint64_t grain_of(operator_facts const& op) {
  std::uint64_t grain = random::tile_values;
  if (op.bucket != 0) grain = std::lcm(op.bucket, grain);
  if (op.center != 0) grain = std::lcm(op.center, grain);
  return grain;
}

/// Buckets of a vector.
inline std::uint64_t buckets_of(operator_facts const& op, std::uint64_t length) {
  return length == 0 ? 0 : (op.bucket == 0 ? 1 : divide_up(length, op.bucket));
}

/// Whether workers exchange which share of a fixed unit they need, after the opening, as midpoints are taken off only then.
inline bool shares_scale(operator_facts const& op) { return op.centered != nullptr && op.fixed_scale > 0; }

/// The outcome: a method with its numbers, or a sentence.
struct resolution {
  method how = method::none;
  std::uint32_t size = 0;
  std::uint32_t headroom = 0;  ///< how far codes of sums go beyond the number of levels
  std::string refusal;         ///< empty when it fits
  bool fits() const { return refusal.empty(); }
};

/// A hash of all that shapes results, except the values of levels, which may change between calls. A field that is not listed
/// here does not compile.
GLOBALQ_DECL std::uint64_t fingerprint(operator_facts const& op, resolution const& r);

inline std::string number(std::uint64_t x) { return std::to_string(x); }

/// Why vectors are not that long: random bits cannot tell more values apart; empty: they may be.
GLOBALQ_DECL std::string length_refusal(std::uint64_t length);
/// @throws configuration_error
GLOBALQ_DECL void expect_length(std::uint64_t length, char const* operation);

/// The narrowest integer wire that holds a code; empty when none does.
GLOBALQ_DECL std::string wire_for(std::uint64_t code);

GLOBALQ_DECL method choose_method(operator_facts const& op, schedule_facts const& s);

/// Whether sums of k terms are encoded at k times the norm, which their values must not exceed.
inline bool keeps_scale_of_sums(operator_facts const& op, method how) {
  return how == method::requantize && !op.local;
}

/// Whether the policies fit together for @p workers workers on a schedule, and with which numbers.
///
/// The choice of the method depends on the policies alone, never on what fits.
GLOBALQ_DECL resolution resolve(operator_facts const& op, schedule_facts const& s, int workers);

}  // namespace detail
}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "resolve-inl.hpp"
#endif
