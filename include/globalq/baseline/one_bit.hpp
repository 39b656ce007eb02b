// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: 1-bit SGD: signs, and for each bucket the means of its values above and below zero.

#include "detail/bit_buckets.hpp"
#include "detail/blocks.hpp"
#include "detail/caller.hpp"
#include "detail/stripe_codec.hpp"
#include "detail/two_means.hpp"
#include "state.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// How 1-bit SGD computes the mean.
enum class one_bit_exchange : std::uint8_t {
  stripes,  ///< as in the paper: the owner of a stripe adds and sends the mean as bits, with a residual of its own
  gather  ///< every worker receives all messages and adds them: no second residual, but n/2 times the bytes
};

/// Parameters of one_bit; the same on every worker.
struct one_bit_options {
  /// Values that share two means; 0: a row of each matrix (the paper uses a column). A bucket does not cross layers.
  std::uint64_t bucket = 512;
  one_bit_exchange exchange = one_bit_exchange::stripes;
};

/// @brief One bit for each value and two float32 for each bucket, the values that the bits represent; in both
///        directions.
///
/// The two numbers are the means of the values at or above zero and of those below: they give the least squared error
/// of all ways to send signs. Biased: use it in error_feedback. Buckets are divided into stripes, one for each worker,
/// of nearly equal bytes. The owner of a stripe receives it from every message, adds its **second residual** to their
/// mean, and sends the result as bits and two means; the residual of that is the second residual of the next call. So
/// the mean of one call is not the mean of the messages, but over many calls, up to rounding:
/// sum of means = sum of the messages' means - last second residual (of the mean, not of the sum over workers).
/// With one worker the message is the mean: it already has two values in each bucket.
///
/// The second residual does not change if the outcome is not a mean or a call throws. It belongs to a number of workers
/// and a rank: a call with others begins with zeros. error_feedback saves and loads it by layer: the same number of
/// workers continues bit for bit; with another number the second residuals are dropped, and so are the parts that are
/// in another worker's stripe if the order of layers changes. error_feedback::reset() and its carry change only the
/// first residual; see reset().
/// @complexity  bytes sent: (d/4 + 16 d/bucket) (n-1)/n; gather: (d/8 + 8 d/bucket) (n-1). Memory of the second
///              residual: 8 d/n
/// @determinism bit-identical on all workers: values are added in rank order, by the owner or by all
/// @source      Seide et al. 2014
class one_bit {
 public:
  /// @throws configuration_error for a layer that is not float32
  explicit one_bit(adapt::model_layout layers, one_bit_options const& how = {}, options const& settings = {})
      : how_(how),
        caller_("one_bit", std::move(layers), detail::without_chunks(settings),
                globalq::detail::hash(how.bucket, static_cast<std::uint64_t>(how.exchange)), {},
                how.exchange == one_bit_exchange::stripes ? 8U : 0U),
        buckets_(caller_.layers(), how.bucket) {}

  adapt::model_layout const& layers() const { return caller_.layers(); }
  /// Bytes of a message of all buckets. A worker sends about 2 (n-1)/n times as many; with gather n-1 times.
  std::size_t frame_bytes() const { return 8 * buckets_.words(); }

  /// Clears the second residual, as in a new object.
  void reset() {
    second_.clear();
    made_for_ = {};
  }

  /// See Compressor; but the mean equals that of the messages only over many calls, see above.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(workers, on, x, mean, rest, step, caller_.largest(on, x),
                        [&](auto const& o, auto left) {
                          return exchange(workers, on, x.data(), mean.data(),
                                          left.empty() ? nullptr : left.data(), o.divisor);
                        });
  }

  /// @brief Saves the second residual, with zeros outside of this worker's stripe; a layer of zeros is saved empty.
  ///
  /// All are zeros if the last call had another number of workers or another rank than @p s.
  void save(state& s) const {
    if (how_.exchange != one_bit_exchange::stripes) return;
    std::vector<float> all(layers().length());
    if (made_for_ == place{s.workers(), s.rank()})
      each_kept(made_for_, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
        std::copy_n(second_.data() + at, count, all.data() + first);
      });
    for (adapt::layer const& l : layers()) {
      auto const errors = std::span<float const>(all).subspan(l.offset, l.size);
      bool const none = std::all_of(errors.begin(), errors.end(), [](float v) { return v == 0; });
      s.put(key(l), none ? std::span<float const>{} : errors);
    }
  }
  /// @brief Restores the second residual; the next call uses it if number of workers and rank are those of @p s.
  /// @throws frame_error if a layer is missing or has another size; nothing is changed then
  void load(state const& s) {
    if (how_.exchange != one_bit_exchange::stripes) return;
    std::vector<float> all(layers().length());
    for (adapt::layer const& l : layers()) {
      auto const errors = saved(s, l);
      std::copy(errors.begin(), errors.end(), all.begin() + static_cast<std::ptrdiff_t>(l.offset));
    }
    place const of{s.workers(), s.rank()};
    std::vector<float> second(buckets_.stripe(of.workers, of.rank).values);
    each_kept(of, [&](std::uint64_t first, std::uint64_t at, std::uint64_t count) {
      std::copy_n(all.data() + first, count, second.data() + at);
    });
    second_ = std::move(second);
    made_for_ = of;
  }

 private:
  /// The owner of a stripe.
  struct place {
    int workers = 0, rank = 0;
    bool operator==(place const&) const = default;
  };

  static std::string key(adapt::layer const& l) { return "second_error/" + l.name; }
  static std::span<float const> saved(state const& s, adapt::layer const& l) {
    try {
      return s.get(key(l), 0);
    } catch (frame_error const&) {
      return s.get(key(l), l.size);
    }
  }

  /// f(position in the vector, position in the second residual, count) for the buckets of a stripe.
  template <class F>
  void each_kept(place of, F const& f) const {
    auto const stripe = buckets_.stripe(of.workers, of.rank);
    for (detail::bit_bucket const& b : stripe.buckets) f(b.first, b.before - stripe.value, b.count);
  }

  template <Transport T>
  outcome exchange(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                   double divisor) {
    int const n = workers.size();
    bool const stripes = how_.exchange == one_bit_exchange::stripes && n > 1;
    std::uint64_t const messages = stripes ? 1 : static_cast<std::uint64_t>(n), words = buckets_.words();
    auto const buckets = buckets_.all().buckets;
    auto& memory = caller_.memory();
    auto* const mine = memory.mine.get_values<std::uint64_t>(words);
    auto* const all = memory.all.get_values<std::uint64_t>(words * messages);
    float const share = static_cast<float>(1 / divisor);
    detail::each_bucket(on, buckets, [&](detail::bit_bucket const& b) {
      detail::write_bucket(x + b.first, b.count, share, mine + b.word);
    });
    if (stripes) {
      if (!mean_by_stripes(workers, on, mine, all, divisor)) return outcome::not_finite;
    } else {
      caller_.allgather(workers, std::span<std::uint64_t const>(mine, words),
                        std::span(all, words * messages));
    }
    auto const timed = caller_.enter(phase::decode);
    if (!stripes)
      for (int r = 0; r < n; ++r)
        detail::check_means(buckets_.all(), all + static_cast<std::uint64_t>(r) * words, r, false);
    double const factor = stripes ? 1.0 : divisor / n;
    auto const add = [&](detail::bit_bucket const& b, float* sums) {
      std::fill_n(sums, b.count, 0.0F);
      for (std::uint64_t m = 0; m < messages; ++m)
        detail::add_bucket(all + m * words + b.word, b.count, sums);
      if (factor != 1) detail::scale_sums(sums, b.count, factor);
    };
    // a mean of means is at most the largest of them, up to rounding, so only large values (divisor != 1) are checked
    // first
    if (divisor != 1 && !stripes) {
      std::atomic<bool> finite{true};
      sums_.resize(caller_.layers().length());
      detail::each_bucket(on, buckets, [&](detail::bit_bucket const& b) {
        add(b, sums_.data() + b.first);
        if (detail::largest_bits(sums_.data() + b.first, b.count) >= float_infinity) finite = false;
      });
      if (!finite) return outcome::not_finite;
    }
    detail::each_bucket(on, buckets, [&](detail::bit_bucket const& b) {
      if (rest != nullptr) {
        auto const m = detail::means_in(mine + b.word);
        detail::leave_over(
            x + b.first, b.count,
            {static_cast<float>(m.positive * divisor), static_cast<float>(m.negative * divisor)},
            rest + b.first);
      }
      add(b, mean + b.first);
    });
    if (stripes) {
      std::swap(second_, next_);
      made_for_ = {n, workers.rank()};
    }
    return outcome::mean;
  }

  /// Computes the message of the mean, and the new second residual.
  /// @returns whether the mean did not overflow float32
  template <Transport T>
  bool mean_by_stripes(T& workers, kernel::host_executor const& on, std::uint64_t const* mine,
                       std::uint64_t* all, double divisor) {
    int const n = workers.size(), r = workers.rank();
    next_.resize(buckets_.stripe(n, r).values);
    second_.reserve(next_.size());  // the two are swapped
    bool const goes_on = made_for_ == place{n, r};
    detail::stripe_codec frames(on, buckets_, n, r, divisor, mine, all, goes_on ? second_.data() : nullptr,
                                next_.data(), from_);
    schedule::scatter_reduce_allgather const sum;
    caller_.exchange(workers, sum, frames,
                     globalq::partition(buckets_.words(), sum.parts(n), 1, caller_.chunk_values(workers, 8)));
    return frames.within();
  }

  one_bit_options how_;
  detail::caller caller_;
  detail::bit_buckets buckets_;
  /// Second residual of this worker's stripe, and that after the call in progress.
  std::vector<float> second_, next_;
  place made_for_;  ///< of the second residual
  std::vector<float> sums_;
  std::vector<std::uint64_t const*> from_;
};

}  // namespace GLOBALQ_ABI::baseline
