// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a random rotation before an operator, for values of heavy tails.

#include "../kernel/executor.hpp"
#include "../kernel/hadamard.hpp"
#include "../kernel/host/value_leaves.hpp"
#include "mapped.hpp"

#include <bit>

namespace GLOBALQ_ABI {

namespace detail {

/// y = H D x by blocks: D random signs that all workers share, H the Hadamard matrix with a factor 2^-(k/2) for blocks of
/// 2^k values, of which the map has the whole powers of two, and its inverse the others: both are exact products.
///
/// The last values of a vector, fewer than a block, are rotated in blocks of descending powers of two, so nothing is padded.
class rotation final : public stage {
 public:
  explicit rotation(std::uint64_t block) : block_(block) {}

  std::string name() const override { return "rotated by " + std::to_string(block_); }
  std::uint64_t grain() const override { return block_; }
  double growth() const override { return power_of_two(growth_exponent()); }

  void enter(stage_call const& c, const_vector x, segment part, mutable_vector to,
             mutable_vector /*sides*/) const override {
    int const down = excess(c);
    random::stream const signs{c.seed, c.step, 0, random::purpose::rotate};
    with_type(c.type, [&]<class T>(T) {
      T const* const values = static_cast<T const*>(x.data);
      T* const y = static_cast<T*>(to.data);
      each_power(c.on, part, [=, this](std::uint64_t first, int k) {
        std::uint64_t const n = std::uint64_t{1} << k;
        turn_signs(signs, first, n, static_cast<T>(power_of_two(-(k / 2) - down)), values + first, y + first);
        hadamard(y + first, n);
      });
    });
  }

  bool leave(stage_call const& c, mutable_vector mean, const_vector /*sides*/, segment part) const override {
    int const up = excess(c);
    random::stream const signs{c.seed, c.step, 0, random::purpose::rotate};
    std::uint32_t any = 0;
    with_type(c.type, [&]<class T>(T) {
      T* const y = static_cast<T*>(mean.data);
      each_power(c.on, part, [=, this, &any](std::uint64_t first, int k) {
        std::uint64_t const n = std::uint64_t{1} << k;
        hadamard(y + first, n);
        if (!turn_signs(signs, first, n, static_cast<T>(power_of_two(up - (k + 1) / 2)), y + first,
                        y + first))
          Kokkos::atomic_or(&any, 1U);
      });
    });
    return any != 0;
  }

 private:
  void hadamard(float* x, std::uint64_t count) const { leaf_.hadamard(x, count); }
  void hadamard(double* x, std::uint64_t count) const { kernel::hadamard(x, count); }
  bool turn_signs(random::stream const& s, std::uint64_t first, std::uint64_t count, float factor,
                  float const* in, float* out) const {
    return leaf_.turn_signs(s, first, count, factor, in, out);
  }
  bool turn_signs(random::stream const& s, std::uint64_t first, std::uint64_t count, double factor,
                  double const* in, double* out) const {
    return kernel::turn_signs(s, first, count, factor, in, out);
  }

  /// ceil(k / 2) for blocks of 2^k values.
  int growth_exponent() const { return static_cast<int>(std::bit_width(block_)) / 2; }

  /// Values are divided by 2^this, so that sums of a block do not overflow, nor sums of eight times the errors that a block
  /// may have in the mean.
  int excess(stage_call const& c) const {
    int const most = c.type == dtype::float64 ? 1022 : 126;
    return std::max(0, exponent_of(c.top) + 2 * growth_exponent() + 4 - most);
  }

  /// f(first value, k) for the powers of two, 2^k values, of all blocks of a part, on all threads.
  template <class F>
  void each_power(kernel::host_executor const& on, segment part, F const& f) const {
    std::uint64_t const end = part.first + part.count, blocks = divide_up(part.count, block_);
    std::uint64_t const group = std::max<std::uint64_t>(1, 4096 / block_);  // blocks per item
    on.items(divide_up(blocks, group), [&](std::uint64_t item) {
      for (std::uint64_t b = item * group, last = std::min(b + group, blocks); b < last; ++b) {
        std::uint64_t first = part.first + b * block_, count = std::min(block_, end - first);
        while (count != 0) {
          int const k = static_cast<int>(std::bit_width(count)) - 1;
          f(first, k);
          first += std::uint64_t{1} << k;
          count -= std::uint64_t{1} << k;
        }
      }
    });
  }

  std::uint64_t block_;
  kernel::value_leaves const& leaf_ = kernel::host::leaves_of_values();
};

}  // namespace detail

/// @brief Rotates vectors by random rotations that all workers share before an operator, and back after its mean.
///
/// A rotated block of B values is close to normal whatever the vector, so the largest value is about sqrt(2 ln(2 B) / B)
/// of its norm. That helps uniform levels on vectors with heavy tails (4 to 13 times less variance at 4 bits on a Student
/// t distribution with 3 degrees of freedom), does nothing on normal vectors, and harms on sparse ones: measure it.
///
/// Works in every call in host memory, also native, and before any quantizer, float32_tail and centered. Calls on a stream
/// and vector_codec refuse it. Norms are those of rotated vectors, so `norm::fixed` limits these.
///
/// Unbiased if the operator is, up to the rounding of sums in float32 (float64 vectors: float64). The variance is that of the
/// operator on the rotated vector, whose l2 norm is that of the vector. @n
/// Wire: the operator's. Memory: one vector more (two for 16-bit values). Time: log2(B) additions a value, twice.
/// @code
/// gq::allreduce_mean mean{workers, gq::rotated{gq::operators::qsgd(4, 1024), 1024}, {.seed = 42}};
/// @endcode
/// @determinism the same bits on every worker and instruction set: sums of two in a fixed order, without products
/// @source Vargaftik et al. 2021 (DRIVE), 2022 (EDEN), Li et al. 2024 (THC): the randomized Hadamard transform; blocks of
///         descending powers of two are ours
class rotated : public mapped {
 public:
  /// @param op     a quantizer, any_quantizer, float32_tail or centered
  /// @param block  values that are rotated together: a power of two from 2 to 2^20
  /// @throws configuration_error for another block
  template <class Operator>
  rotated(Operator const& op, std::uint64_t block) : mapped(op, stage_of(detail::facts_of(op), block)) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: uncompressed values need no rotation; use uncompressed without rotated");
  }

 private:
  static std::shared_ptr<stage const> stage_of(detail::operator_facts const& f, std::uint64_t block) {
    if (!std::has_single_bit(block) || block < 2 || block > std::uint64_t{1} << 20)
      throw configuration_error(detail::joined({"globalq: rotated: ", f.name, ": blocks of ", block,
                                                " values; use a power of two from 2 to 2^20"}));
    return std::make_shared<detail::rotation>(block);
  }
};

}  // namespace GLOBALQ_ABI
