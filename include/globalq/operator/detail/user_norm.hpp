// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a user-defined norm without its type; statistics are bytes.
///
/// The loop over values is compiled in the user's source; the exchange of statistics does not depend on the type.

#include "../../core/concepts.hpp"
#include "../../core/detail/joined.hpp"
#include "../../kernel/reduction.hpp"
#include "resolve.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace GLOBALQ_ABI::detail {

/// The statistic of some values, and their largest magnitude. It is sent as these bytes.
struct user_statistic {
  std::byte bytes[most_statistic_bytes] = {};
  std::uint64_t max_bits = 0;  ///< of |x| as a double
};
/// The scale from the statistics of all workers, and the largest magnitude. It is sent as these bytes.
struct user_scale {
  double scale = 0;
  std::uint64_t max_bits = 0;

  double max() const { return double_of(max_bits); }
};

/// A user-defined norm without its type.
class user_norm {
 public:
  explicit user_norm(bool bounds) : bounds_(bounds) {}
  virtual ~user_norm() = default;

  /// Computes the statistics of consecutive buckets of finite values [0, count). @param parts  reused memory
  virtual void measure(kernel::host_executor const& on, const_vector x, std::uint64_t count,
                       std::uint64_t bucket, std::span<user_statistic> result,
                       std::vector<user_statistic>& parts) const = 0;
  /// The statistic of no values.
  virtual user_statistic none() const = 0;
  /// into becomes the statistic of both.
  virtual void merge(user_statistic& into, user_statistic const& more) const = 0;
  virtual user_scale scale(user_statistic const& of) const = 0;

  /// The scale times 2^-wide, rounded to its encoding: never below the largest magnitude. Infinity: the norm is wrong.
  virtual double scale_of(user_scale const& of, norm::order q, dtype type, int wide) const {
    double const max = of.max();
    if (max == 0) return 0;
    bool const number = of.scale >= 0 && bits_of(of.scale) < double_infinity;
    if (!number || (bounds_ && of.scale < max)) return double_of(double_infinity);
    return representable(q.scale(std::max(of.scale, max) * power_of_two(-wide)), q.format(type));
  }
  /// The error text if scale_of() is infinity. @param which  the bucket
  static std::string refusal(operator_facts const& op, std::uint64_t which, user_scale const& of) {
    double const max = of.max();
    return joined({"the norm of ", op.name, " returned the scale ", std::to_string(of.scale), " for bucket ",
                   which, ", whose largest magnitude is ", std::to_string(max),
                   "; return a finite, non-negative scale",
                   of.scale < max ? ", at least the largest magnitude if bounds_largest is true" : ""});
  }

 private:
  bool bounds_;
};

/// The statistic of a block.
template <class N>
struct own_block {
  N const& norm;
  const_vector x;

  user_statistic operator()(std::uint64_t first, int count) const {
    kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
    user_statistic s;
    typename N::statistic found{};
    if (x.type == dtype::float64) {
      found = norm.measure(static_cast<double const*>(x.data) + first, count);
    } else if (x.type == dtype::float32) {
      found = norm.measure(static_cast<float const*>(x.data) + first, count);
    } else {
      float buffer[norm::block_values];
      for (int at = 0; at < count; at += kernel::piece_values)
        leaf.load(x, first + static_cast<std::uint64_t>(at), std::min(kernel::piece_values, count - at), 0,
                  buffer + at);
      found = norm.measure(buffer, count);
    }
    std::memcpy(s.bytes, &found, sizeof found);
    s.max_bits = leaf.statistic(x, first, count, infinity).max_bits;
    return s;
  }
};

template <class N>
class user_norm_of final : public user_norm {
  using statistic = typename N::statistic;

 public:
  explicit user_norm_of(N const& norm) : user_norm(N::bounds_largest), norm_(norm) {}

  void measure(kernel::host_executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
               std::span<user_statistic> result, std::vector<user_statistic>& parts) const override {
    auto const both = [this](user_statistic a, user_statistic const& b) {
      merge(a, b);
      return a;
    };
    norm::reduce_buckets(on, count, bucket, both, own_block<N>{norm_, x}, result, parts);
  }
  user_statistic none() const override {
    user_statistic s;
    statistic const empty{};
    std::memcpy(s.bytes, &empty, sizeof empty);
    return s;
  }
  void merge(user_statistic& into, user_statistic const& more) const override {
    statistic const both = norm_.merge(of(into), of(more));
    std::memcpy(into.bytes, &both, sizeof both);
    into.max_bits = std::max(into.max_bits, more.max_bits);
  }
  user_scale scale(user_statistic const& s) const override { return {norm_.scale(of(s)), s.max_bits}; }

 private:
  static statistic of(user_statistic const& s) {
    statistic found;
    std::memcpy(&found, s.bytes, sizeof found);
    return found;
  }

  N norm_;
};

}  // namespace GLOBALQ_ABI::detail
