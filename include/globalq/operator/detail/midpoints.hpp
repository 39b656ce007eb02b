// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the stage of centered: subtracts the midpoints of buckets, which travel as side values.
///
/// mean(x) = mean(x - m) + mean(m).

#include "../../kernel/executor.hpp"
#include "../../kernel/loops.hpp"
#include "../stage.hpp"

#include <algorithm>
#include <type_traits>

namespace GLOBALQ_ABI::detail {

/// (min + max) / 2 of finite values, with the digits of float32, in which it travels.
template <class T>
GLOBALQ_LOOP T midpoint(T const* x, std::uint64_t count) {
  constexpr std::uint64_t lanes = 16;
  T low[lanes], high[lanes];
  for (std::uint64_t k = 0; k < lanes; ++k) low[k] = high[k] = x[0];
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::uint64_t k = 0; k < lanes; ++k) {
      T const v = x[i + k];
      low[k] = v < low[k] ? v : low[k];
      high[k] = high[k] < v ? v : high[k];
    }
  for (; i < count; ++i) {
    low[0] = x[i] < low[0] ? x[i] : low[0];
    high[0] = high[0] < x[i] ? x[i] : high[0];
  }
  T least = low[0], most = high[0];
  for (std::uint64_t k = 1; k < lanes; ++k) {
    least = low[k] < least ? low[k] : least;
    most = most < high[k] ? high[k] : most;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (least == most) return least;  // exact, even if half of it is not representable
    return static_cast<float>((static_cast<double>(least) + static_cast<double>(most)) / 2);
  } else {
    constexpr std::uint64_t beyond_float32 = (std::uint64_t{1} << 29) - 1;
    return double_of(bits_of(least / 2 + most / 2) & ~beyond_float32);
  }
}

class midpoints final : public stage {
 public:
  /// @param bucket      values that share a midpoint; 0: the whole vector
  /// @param name        with the bucket, if it is not the operator's
  /// @param keeps_tail  whether a last bucket with fewer values has midpoint 0: it travels as float32
  midpoints(std::uint64_t bucket, std::string name, bool keeps_tail)
      : bucket_(bucket), name_(std::move(name)), keeps_tail_(keeps_tail) {}

  std::string name() const override { return name_; }
  std::uint64_t grain() const override { return bucket_; }
  segment side_values(segment part) const override {
    if (part.empty()) return {};
    return bucket_ == 0 ? segment{0, 1}
                        : segment{part.first / bucket_,
                                  divide_up(part.first + part.count, bucket_) - part.first / bucket_};
  }

  void enter(stage_call const& c, const_vector x, segment part, mutable_vector to,
             mutable_vector sides) const override {
    with_type(c.type, [&]<class T>(T) {
      auto const* const values = static_cast<T const*>(x.data);
      auto* const out = static_cast<T*>(to.data);
      auto* const middles = static_cast<T*>(sides.data);
      each_bucket(c.on, part, [=, this](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
        T const m = keeps_tail_ && end - first < bucket_ ? T{0} : midpoint(values + first, end - first);
        middles[b] = m;
        for (std::uint64_t i = first; i < end; ++i) out[i] = values[i] - m;
      });
    });
  }

  bool leave(stage_call const& c, mutable_vector mean, const_vector sides, segment part) const override {
    std::uint32_t any = 0;
    with_type(c.type, [&]<class T>(T) {
      auto* const values = static_cast<T*>(mean.data);
      auto const* const middles = static_cast<T const*>(sides.data);
      each_bucket(c.on, part, [=, &any](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
        bool beyond = false;
        for (std::uint64_t i = first; i < end; ++i) {
          values[i] += middles[b];
          beyond = beyond || !is_finite(values[i]);
        }
        if (beyond) Kokkos::atomic_or(&any, 1U);
      });
    });
    return any != 0;
  }

 private:
  /// Calls f(bucket, its first value, its end) for all buckets of a part, on all threads.
  template <class F>
  void each_bucket(kernel::host_executor const& on, segment part, F const& f) const {
    if (part.empty()) return;
    std::uint64_t const width = bucket_ == 0 ? part.count : bucket_, end = part.first + part.count;
    std::uint64_t const first_bucket = bucket_ == 0 ? 0 : part.first / bucket_;
    // buckets per item: enough values to occupy a thread
    std::uint64_t const buckets = divide_up(part.count, width),
                        group = std::max<std::uint64_t>(1, 4096 / width);
    on.items(divide_up(buckets, group), [&](std::uint64_t item) {
      for (std::uint64_t b = item * group, last = std::min(b + group, buckets); b < last; ++b)
        f(first_bucket + b, part.first + b * width, std::min(part.first + (b + 1) * width, end));
    });
  }

  std::uint64_t bucket_;
  std::string name_;
  bool keeps_tail_;
};

}  // namespace GLOBALQ_ABI::detail
