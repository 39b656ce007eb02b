// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: stages: maps of a worker's vector before encoding that are undone after decoding.

#include "../core/codec.hpp"
#include "../core/dtype.hpp"

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace GLOBALQ_ABI {

namespace kernel {
class host_executor;
}

/// @brief The call that a stage takes part in.
struct stage_call {
  kernel::host_executor const& on;
  std::uint64_t length = 0;  ///< of the vector
  std::uint64_t seed = 0, step = 0;
  int rank = 0;
  double top = 0;               ///< no value that enters, of any worker, is larger
  dtype type = dtype::float32;  ///< of mapped vectors
};

/// @brief Calls f(T{}), T being the type of mapped values: float, or double for float64.
template <class F>
decltype(auto) with_type(dtype type, F&& f) {
  return type == dtype::float64 ? f(0.0) : f(0.0F);
}

/// @brief The bound of mapped values, from that of values. Kernels may compute it.
struct stage_bound {
  double growth = 1;           ///< of the stages in between, at least 1
  double most = 0, clips = 0;  ///< the largest bound; values from which it is that

  stage_bound(double growth_of_stages, dtype type)
      : growth(growth_of_stages), most(type == dtype::float64 ? 0x1p1022 : 0x1p126), clips(most / growth) {}

  GLOBALQ_FUNCTION double operator()(double top) const {
    double const grown = top > clips ? most : top * growth;
    return top < grown ? grown : top;
  }
};

/// @brief What error_feedback keeps of a call for the next one.
struct feedback_options {
  float decay = 1;    ///< factor of the residual when it is added, from 0 to 1
  float average = 1;  ///< weight of a call's residual in the kept one, above 0; 1: the kept one is the last
  int bits = 32;      ///< of a kept value: 32 (float64 vectors: 64), or 8 with a double scale for 256 values
  std::uint64_t reset = 0;  ///< forget residuals at steps that are multiples of it; 0: never

  /// Whether the call of a step begins without residuals.
  GLOBALQ_FUNCTION bool resets(std::uint64_t step) const { return reset != 0 && step % reset == 0; }
};

/// @brief A map that each worker applies to its vector before encoding, and undoes after the mean is decoded.
///
/// An operator is a chain: stages, then what its frames hold. The mean of mapped vectors must be the mapped mean, so a
/// stage is linear, or sends what it takes off as *side values*: float32 numbers beside the codes, which are averaged.
/// centered is a stage; `mapped` adds one of your own to an operator.
///
/// A call applies stages after the handshake, so values are finite and workers agree, and before it measures norms: norms
/// are those of mapped vectors. 16-bit vectors are converted to float before, and the mean to their type after.
class stage {
 public:
  virtual ~stage() = default;

  /// @brief The name with all parameters, for messages; workers compare it.
  virtual std::string name() const = 0;

  /// @brief Values that must stay together: segments begin at multiples of it. 0: segments may begin anywhere, and all of a
  /// vector have the same side values.
  virtual std::uint64_t grain() const = 0;

  /// @brief The side values of a part of a vector, by their numbers. Parts begin at multiples of the grain.
  virtual segment side_values(segment /*part*/) const { return {}; }

  /// @brief How much larger than the largest value of a vector a mapped value can be.
  virtual double growth() const { return 1; }

  /// @brief For error_feedback: calls add to the vector what earlier frames left out. null for all other stages.
  virtual feedback_options const* feedback() const { return nullptr; }

  /// @brief Maps a part of a vector. All vectors have the type of the call, float or double (`with_type`).
  /// @param x      the vector; may be @p to
  /// @param to     receives the mapped values of the part
  /// @param sides  receives its side values
  virtual void enter(stage_call const& c, const_vector x, segment part, mutable_vector to,
                     mutable_vector sides) const = 0;

  /// @brief Undoes the map for a part of the mean, in place.
  /// @param sides  the means of side values
  /// @returns whether a value left the range of its type
  virtual bool leave(stage_call const& c, mutable_vector mean, const_vector sides, segment part) const = 0;
};

namespace detail {

using stages = std::vector<std::shared_ptr<stage const>>;

/// The options of error_feedback, which is the first stage; null: there is none.
inline feedback_options const* feedback_of(stages const& chain) {
  return chain.empty() ? nullptr : chain.front()->feedback();
}

/// The type of mapped vectors: 16-bit values minus their midpoint would lose digits in their own type.
inline constexpr dtype mapped_type(dtype type) { return type == dtype::float64 ? type : dtype::float32; }
/// The largest value of vectors that are mapped.
inline constexpr double largest_mapped(dtype type) {
  return type == dtype::float64 ? std::numeric_limits<double>::max()
                                : static_cast<double>(std::numeric_limits<float>::max());
}

/// Where the side values of a stage are in the memory of a mapped vector: after the values, for each stage its side
/// values and their means.
struct stage_places {
  std::uint64_t sides, means, end;  ///< offsets in values
};
/// @param number  of the stage; the places end after it
inline stage_places places_of(stages const& chain, std::uint64_t length, std::size_t number) {
  constexpr std::uint64_t line = 16;  // values that begin a cache line
  stage_places at{};
  at.end = length;
  for (std::size_t k = 0; k <= number; ++k) {
    std::uint64_t const count = chain[k]->side_values({0, length}).count;
    at.sides = divide_up(at.end, line) * line;
    at.means = at.sides + divide_up(count, line) * line;
    at.end = at.means + count;
  }
  return at;
}

/// The bound of values that enter a stage, or with the number of stages, of mapped values.
/// @param top  that of the vector
inline double top_of(stages const& chain, double top, std::size_t number, dtype type) {
  for (std::size_t k = 0; k < number; ++k) top = stage_bound(chain[k]->growth(), type)(top);
  return top;
}

/// Values of the memory of a mapped vector.
inline std::uint64_t values_of(stages const& chain, std::uint64_t length) {
  return chain.empty() ? length : places_of(chain, length, chain.size() - 1).end;
}

/// Applies all stages to a part of a vector.
/// @param c     the call, with the bound of the vector
/// @param x     of the call's type; may be @p room
/// @param room  values_of() values
inline void enter(stages const& chain, stage_call c, const_vector x, segment part, mutable_vector room) {
  double const top = c.top;
  for (std::size_t k = 0; k < chain.size(); ++k) {
    c.top = top_of(chain, top, k, c.type);
    chain[k]->enter(c, x, part, room, at(room, places_of(chain, c.length, k).sides));
    x = {room.data, room.type};
  }
}

}  // namespace detail
}  // namespace GLOBALQ_ABI
