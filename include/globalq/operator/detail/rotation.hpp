// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the rotation of blocks, as a stage.

#include "../../kernel/executor.hpp"
#include "../../kernel/hadamard.hpp"
#include "../../kernel/host/value_leaves.hpp"
#include "../stage.hpp"

#include <bit>

namespace GLOBALQ_ABI::detail {

/// y = H D x by blocks: D random signs that all workers share, H the Hadamard matrix with a factor 2^-(k/2) for blocks of
/// 2^k values, of which the map has the whole powers of two, and its inverse the others: both are exact products.
///
/// The last values of a vector, fewer than a block, are rotated in blocks of descending powers of two, so nothing is padded.
class rotation : public stage {
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

}  // namespace GLOBALQ_ABI::detail
