// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: counts zeros and measures errors of rounded values.

#include "../../core/dtype.hpp"
#include "../../kernel/executor.hpp"
#include "../telemetry.hpp"

#include <algorithm>
#include <mutex>

namespace GLOBALQ_ABI::detail {

/// The sums of a block.
struct block_errors {
  double energy = 0, error = 0;
  std::uint64_t zeros = 0, values = 0;
};

inline void add_errors(block_errors const& e, call_report& to) {
  to.rounded += e.values;
  to.zeros += e.zeros;
  to.energy += e.energy;
  to.error_energy += e.error;
}

/// @tparam Widen  widen(word): the exact value as a double
template <class Widen, class Word>
GLOBALQ_LOOP block_errors errors_of(Word const* x, Word const* rounded, std::uint64_t count) {
  constexpr std::uint64_t lanes = 8;
  double energy[lanes] = {}, error[lanes] = {};
  std::uint64_t zeros[lanes] = {};
  auto const add = [&](std::uint64_t i, std::uint64_t lane) {
    double const v = Widen{}(x[i]), r = Widen{}(rounded[i]), off = r - v;
    energy[lane] += v * v;
    error[lane] += off * off;
    zeros[lane] += r == 0 ? 1U : 0U;
  };
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::uint64_t lane = 0; lane < lanes; ++lane) add(i + lane, lane);
  for (; i < count; ++i) add(i, 0);
  block_errors sum;
  sum.values = count;
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    sum.energy += energy[lane];
    sum.error += error[lane];
    sum.zeros += zeros[lane];
  }
  return sum;
}

struct widen_real {
  template <class Real>
  GLOBALQ_FUNCTION double operator()(Real v) const {
    return v;
  }
};
template <class Half>
struct widen_half {
  GLOBALQ_FUNCTION double operator()(std::uint16_t v) const { return Half::widen(v); }
};

/// Adds the zeros and errors of some values.
inline void add_errors(kernel::host_executor const& on, const_vector x, mutable_vector rounded,
                       std::uint64_t count, call_report& to) {
  constexpr std::uint64_t block = 1U << 14;
  auto const over_blocks = [&](auto widen, auto word) {
    using type = decltype(word);
    std::mutex together;
    on.items(divide_up(count, block), [&](std::uint64_t b) {
      block_errors const e = errors_of<decltype(widen)>(static_cast<type const*>(x.data) + b * block,
                                                        static_cast<type const*>(rounded.data) + b * block,
                                                        std::min(block, count - b * block));
      std::scoped_lock const lock(together);
      add_errors(e, to);
    });
  };
  switch (x.type) {
    case dtype::float64:
      return over_blocks(widen_real{}, double{});
    case dtype::float16:
      return over_blocks(widen_half<float16>{}, std::uint16_t{});
    case dtype::bfloat16:
      return over_blocks(widen_half<bfloat16>{}, std::uint16_t{});
    default:
      return over_blocks(widen_real{}, float{});
  }
}

}  // namespace GLOBALQ_ABI::detail
