// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: Rand-K: k coordinates chosen at random.

#include "../random/stream.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "density.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"

namespace GLOBALQ_ABI::baseline {

/// Parameters of rand_k; the same on every worker.
struct rand_k_options {
  double density = 0.01;  ///< share of the values that is sent
  baseline::scope scope = scope::layer;
  bool unbiased = true;  ///< multiplies values by d/k; error feedback needs false
  bool shared = true;    ///< all workers send the same coordinates, so that their values can be added
};

namespace detail {

/// @brief Selects k of @p count places, all sets equally likely, ascending: Floyd's algorithm with a bitmap.
///
/// Place j of the loop draws an integer below j + 1 from 64 bits; if count <= 2^32 / k, no set is more than 1 + 2^-31
/// times as likely as another.
/// @param first   number of the first draw; draws are numbered by place
/// @param bitmap  count / 64 words, all zero before and after the call
/// @param out     memory for k places, each plus @p offset
/// @complexity    k draws and count / 64 words read
/// @source        Bentley and Floyd 1987
inline void choose(random::stream const& bits, std::uint64_t first, std::uint64_t count, std::uint64_t k,
                   std::vector<std::uint64_t>& bitmap, std::uint64_t offset, std::uint64_t* out) {
  random::words4 drawn{};
  for (std::uint64_t j = count - k; j < count; ++j) {
    std::uint64_t const draw = first + j;
    if (j == count - k || draw % 2 == 0) drawn = bits.group(draw / 2);  // a group has two draws
    std::uint64_t const word = draw % 2 == 0
                                   ? (static_cast<std::uint64_t>(drawn.word[1]) << 32 | drawn.word[0])
                                   : (static_cast<std::uint64_t>(drawn.word[3]) << 32 | drawn.word[2]);
    // floor(word * (j + 1) / 2^64) without a type of 128 bits
    std::uint64_t const range = j + 1, low = word & 0xffffffffU, high = word >> 32;
    std::uint64_t const rl = range & 0xffffffffU, rh = range >> 32;
    std::uint64_t const middle = high * rl + (low * rl >> 32), middle2 = low * rh + (middle & 0xffffffffU);
    std::uint64_t const t = high * rh + (middle >> 32) + (middle2 >> 32);
    auto& here = bitmap[t / 64];
    if ((here >> (t % 64) & 1) == 0)
      here |= std::uint64_t{1} << (t % 64);
    else
      bitmap[j / 64] |= std::uint64_t{1} << (j % 64);
  }
  for (std::uint64_t w = 0; w < divide_up<std::uint64_t>(count, 64); ++w) {
    std::uint64_t left = bitmap[w];
    if (left == 0) continue;
    bitmap[w] = 0;
    for (; left != 0; left &= left - 1)
      *out++ = offset + 64 * w + static_cast<std::uint64_t>(std::countr_zero(left));
  }
}

}  // namespace detail

/// @brief Sends k coordinates chosen at random, without repetition.
///
/// Coordinates follow from seed, step and, unless they are shared, the worker: no indices are sent. Shared: a sum of k
/// float32 values over the schedule. Not shared: every worker receives the values of all workers (n-1 times k) and
/// computes their coordinates. Unbiased: E mean = mean of the vectors, E ||C(x) - x||^2 = (d/k - 1) ||x||^2 for each d
/// values of which k are selected; errors of independent workers average out, shared ones do not. Not scaled: E ||C(x)
/// - x||^2 = (1 - k/d) ||x||^2.
/// @tparam Schedule  of the sum, if coordinates are shared
/// @determinism      bit-identical on all workers; coordinates are a pure function of (seed, step, worker)
/// @source           Stich et al. 2018 (Rand-K, with error feedback); Wangni et al. 2018 (unbiased)
template <class Schedule = schedule::scatter_reduce_allgather>
class rand_k {
 public:
  /// @throws configuration_error for a density outside (0, 1], a layer that is not float32, and more than 2^40 values
  explicit rand_k(adapt::model_layout layers, rand_k_options const& how = {}, options const& settings = {},
                  Schedule schedule = {})
      : schedule_(std::move(schedule)),
        how_(how),
        caller_("rand_k", std::move(layers), settings,
                globalq::detail::hash(detail::hash_of(0, how.density), static_cast<std::uint64_t>(how.scope) |
                                                                           (how.unbiased ? 2U : 0U) |
                                                                           (how.shared ? 4U : 0U)),
                schedule::detail::text_of(schedule_), how.shared ? sizeof(float) : 0) {
    std::uint64_t total = 0, longest = 0;
    for (adapt::layer const& l : caller_.layers()) {
      total += l.size;
      if (how.scope == scope::layer && l.size != 0)
        pools_.push_back({l.offset, l.size, count_of(how.density, l.size, "rand_k")});
    }
    if (how.scope == scope::whole && total != 0)
      pools_.push_back({0, total, count_of(how.density, total, "rand_k")});
    if (pools_.empty()) static_cast<void>(count_of(how.density, 1, "rand_k"));
    for (pool const& p : pools_) {
      count_ += p.k;
      longest = std::max(longest, p.size);
    }
    bitmap_.resize(divide_up<std::uint64_t>(longest, 64));
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }
  /// The number of values that a worker sends.
  std::uint64_t count() const { return count_; }
  /// Whether E ||x - C(x)||^2 < ||x||^2, as error feedback requires: unscaled, or with d/k < 2 everywhere.
  bool contracts() const {
    return !how_.unbiased ||
           std::all_of(pools_.begin(), pools_.end(), [](pool const& p) { return p.size - p.k < p.k; });
  }

  /// @brief The coordinates that a worker sends at a step: ascending within each layer.
  std::span<std::uint64_t const> coordinates(std::uint64_t step, int rank) {
    random::stream const bits{caller_.settings().seed, step,
                              how_.shared ? 0U : static_cast<std::uint32_t>(rank), random::purpose::select};
    places_.resize(count_);
    std::uint64_t* out = places_.data();
    for (pool const& p : pools_) {
      detail::choose(bits, p.first, p.size, p.k, bitmap_, p.first, out);
      if (how_.scope == scope::whole) place_in_layers({out, p.k});
      out += p.k;
    }
    return places_;
  }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(workers, on, x, mean, rest, step, caller_.largest(on, x),
                        [&](auto const& o, auto left) {
                          return how_.shared ? sum(workers, on, x, mean, left, step, o.divisor)
                                             : gather(workers, on, x, mean, left, step, o.divisor);
                        });
  }

 private:
  struct pool {
    std::uint64_t first, size, k;
  };

  /// Converts places among all values of layers to places in the vector.
  void place_in_layers(std::span<std::uint64_t> places) const {
    auto r = caller_.runs().begin();
    std::uint64_t before = 0;  // values of the runs before this one
    for (std::uint64_t& p : places) {
      while (p - before >= r->count) before += (r++)->count;
      p = r->first + (p - before);
    }
  }

  /// f(place, count, factor) for each pool, with the factor d/k if unbiased; pools are consecutive in places_.
  template <class F>
  void each_pool(F const& f) const {
    std::uint64_t at = 0;
    for (pool const& p : pools_) {
      f(at, p.k, how_.unbiased ? static_cast<double>(p.size) / static_cast<double>(p.k) : 1.0);
      at += p.k;
    }
  }

  /// Computes the residual: x minus the sent values, at the places of places_.
  void keep_rest(kernel::host_executor const& on, float const* x, float* rest) const {
    detail::copy(on, caller_.blocks(), x, rest);
    each_pool([&](std::uint64_t at, std::uint64_t k, double factor) {
      detail::for_places(on, k, [&](std::uint64_t first, std::uint64_t end) {
        for (std::uint64_t i = at + first; i < at + end; ++i) {
          float const v = rest[places_[i]];
          rest[places_[i]] = v - static_cast<float>(static_cast<double>(v) * factor);
        }
      });
    });
  }

  template <Transport T>
  outcome sum(T& workers, kernel::host_executor const& on, std::span<float const> x, std::span<float> mean,
              std::span<float> rest, std::uint64_t step, double divisor) {
    auto const places = coordinates(step, 0);
    values_.resize(count_);
    detail::take(on, x.data(), places, divisor, values_.data());
    caller_.sum(workers, schedule_, on, std::span(values_));
    auto const timed = caller_.enter(phase::decode);
    bool finite = true;
    each_pool([&](std::uint64_t at, std::uint64_t k, double factor) {
      finite =
          detail::scale(on, std::span(values_).subspan(at, k), factor * divisor / workers.size()) && finite;
    });
    if (!finite) return outcome::not_finite;
    if (!rest.empty()) keep_rest(on, x.data(), rest.data());
    detail::fill(on, caller_.blocks(), mean.data(), 0.0F);
    detail::put(on, places, values_.data(), mean.data());
    return outcome::mean;
  }

  template <Transport T>
  outcome gather(T& workers, kernel::host_executor const& on, std::span<float const> x, std::span<float> mean,
                 std::span<float> rest, std::uint64_t step, double divisor) {
    auto const n = static_cast<std::uint64_t>(workers.size());
    auto& memory = caller_.memory();
    float* const mine = memory.mine.get_values<float>(count_);
    float* const all = memory.all.get_values<float>(n * count_);
    coordinates(step, workers.rank());
    detail::take(on, x.data(), std::span<std::uint64_t const>(places_), divisor, mine);
    caller_.allgather(workers, std::span<float const>(mine, count_), std::span(all, n * count_));
    auto const timed = caller_.enter(phase::decode);
    sums_.assign(x.size(), 0.0F);
    for (std::uint64_t r = 0; r < n; ++r) {
      auto const places = coordinates(step, static_cast<int>(r));
      float const* const values = all + r * count_;
      each_pool([&](std::uint64_t at, std::uint64_t k, double factor) {
        double const share = factor * divisor / static_cast<double>(n);
        detail::for_places(on, k, [&](std::uint64_t first, std::uint64_t end) {
          for (std::uint64_t i = at + first; i < at + end; ++i)
            sums_[places[i]] += static_cast<float>(static_cast<double>(values[i]) * share);
        });
      });
    }
    if (detail::largest_bits(on, caller_.blocks(), sums_.data()) >= float_infinity)
      return outcome::not_finite;
    if (!rest.empty()) {
      coordinates(step, workers.rank());
      keep_rest(on, x.data(), rest.data());
    }
    detail::copy(on, caller_.blocks(), sums_.data(), mean.data());
    return outcome::mean;
  }

  Schedule schedule_;
  rand_k_options how_;
  detail::caller caller_;
  std::vector<pool> pools_;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> bitmap_, places_;
  std::vector<float> values_, sums_;
};

}  // namespace GLOBALQ_ABI::baseline
