// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom stage: differences of neighbors, for vectors whose neighbors are alike.

//! [differences]
#include <globalq/operator/mapped.hpp>

/// Encodes x[i] - x[i-1] instead of x[i]. The first value of each block travels beside the codes, as float32.
class differences final : public globalq::stage {
 public:
  explicit differences(std::uint64_t block) : block_(block) {}

  std::string name() const override { return "differences in blocks of " + std::to_string(block_); }
  std::uint64_t grain() const override { return block_; }
  double growth() const override { return 2; }  // x - (-x)

  globalq::segment side_values(globalq::segment part) const override {  // parts begin at blocks
    return {part.first / block_, (part.count + block_ - 1) / block_};
  }

  void enter(globalq::stage_call const& c, globalq::const_vector x, globalq::segment part,
             globalq::mutable_vector to, globalq::mutable_vector sides) const override {
    globalq::with_type(c.type, [&]<class T>(T) {
      for (std::uint64_t i = part.first + part.count; i-- > part.first;) {  // x may be the result
        T const here = static_cast<T const*>(x.data)[i];
        if (i % block_ == 0) static_cast<T*>(sides.data)[i / block_] = here;
        static_cast<T*>(to.data)[i] = here - (i % block_ == 0 ? here : static_cast<T const*>(x.data)[i - 1]);
      }
    });
  }

  bool leave(globalq::stage_call const& c, globalq::mutable_vector mean, globalq::const_vector sides,
             globalq::segment part) const override {
    return globalq::with_type(c.type, [&]<class T>(T) {
      T sum = 0;
      bool beyond = false;
      for (std::uint64_t i = part.first; i < part.first + part.count; ++i) {
        if (i % block_ == 0) sum = static_cast<T const*>(sides.data)[i / block_];
        static_cast<T*>(mean.data)[i] = sum += static_cast<T*>(mean.data)[i];
        beyond = beyond || !globalq::is_finite(sum);
      }
      return beyond;
    });
  }

 private:
  std::uint64_t block_;
};
//! [differences]
