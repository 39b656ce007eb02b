// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief c: the steps of operators before a vector is averaged: clipping, and learning levels.

#include <globalq/call/detail/opening.hpp>
#include <globalq/kernel/executor.hpp>
#include <globalq/named/learn_at.hpp>
#include <globalq/named/level_learning.hpp>
#include <globalq/operator/clip.hpp>
#include <globalq/transport/endpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace globalq_c {

/// The operator of a mean whose vectors are prepared: workers compare the steps at which levels are learned.
inline globalq::any_quantizer prepared_operator(globalq::any_quantizer const& op,
                                                globalq::named::named_operator const& of,
                                                globalq::learn::update_schedule const& when) {
  return of.learns ? op.after("at steps " + globalq::named::text_of(when)) : op;
}

/// Prepares one vector in every step; does nothing for operators that only quantize.
class preparation {
 public:
  preparation(globalq::named::named_operator const& of, globalq::learn::update_schedule const& when,
              globalq::kernel::host_executor const& on)
      : clip_(of.clip), bucket_(of.words.bucket), learning_(of.words, of.learns, when), on_(on) {}

  /// @brief Returns the vector to average instead of @p x: itself, or a clipped copy that is valid until the next call.
  ///
  /// All workers must call it in the same way; they get new levels in the same steps.
  /// @param mean  has set_levels
  template <class T, class Mean>
  std::span<T const> operator()(globalq::transport::endpoint& workers, std::span<T const> x,
                                std::uint64_t step, Mean&& mean) {
    globalq::detail::informing(workers, [&] {  // the vectors before this one may have sent messages already
      if (clip_ > 0) {
        auto const bytes = std::as_bytes(x);
        copy_.assign(bytes.begin(), bytes.end());  // heap memory, aligned for every type
        T* const clipped = reinterpret_cast<T*>(copy_.data());
        globalq::detail::clip(on_, clipped, x.size(), clip_, bucket_, parts_);
        x = {clipped, x.size()};
      }
      // a vector that is only a short bucket in float32 would otherwise try to learn in each step
      if (learning_.taught_by(x.size()) != 0) learning_.update(workers, x, step, mean, on_);
    });
    return x;
  }

 private:
  double clip_;
  std::uint64_t bucket_;
  globalq::named::level_learning learning_;
  globalq::kernel::host_executor on_;
  std::vector<std::byte> copy_;
  std::vector<double> parts_;
};

}  // namespace globalq_c
