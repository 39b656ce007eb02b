// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: Top-K: sends the k values of largest magnitude, with their places.

#include "density.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/few_bit_frame.hpp"
#include "selection.hpp"

#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// Parameters of top_k; the same on every worker.
struct top_k_options {
  double density = 0.01;                 ///< share of the values that is sent
  baseline::scope scope = scope::layer;  ///< the largest of each layer, or of all layers together
  /// The density of each layer in the order of the layout, instead of one for all.
  std::vector<double> densities = {};
  int bits = 32;  ///< of a value that is sent: 32, float32 with a place of 32 bits; or 2 to 8
};

/// @brief Sends the k values of largest magnitude as (place, value), and averages those of all workers.
///
/// Biased: use it in error_feedback. ||x - C(x)||^2 <= (1 - k/d) ||x||^2 for each d values of which k are selected. Of
/// equal magnitudes it takes the lower places.
///
/// With `bits` of 2 to 8 a value is sent as its sign and one of 2^(bits-1) magnitudes of 128 neighbors (detail/few_bit_frame.hpp),
/// and what that leaves out is part of the rest; a place takes 2 + log2(d/k) bits instead of 32.
/// @complexity  bytes sent: 8 k (n-1), with few bits k (bits + 2.5 + log2(d/k)) (n-1) / 8; one read of x to select, and one write
///              of the mean
/// @determinism bit-identical on all workers: values are added in rank order
/// @source      Aji and Heafield 2017; Stich et al. 2018; Alistarh et al. 2018 (Top-K); few bits: Sarfi et al. 2025 (SparseLoCo)
class top_k {
 public:
  /// The type of a layer's parameter, its density.
  using parameter = double;

  /// @throws configuration_error for a density outside (0, 1], a number of densities that differs from the layers,
  ///         densities of layers with scope::whole, a layer that is not float32, and 2^32 values or more, because
  ///         places have 32 bits
  explicit top_k(adapt::model_layout layers, top_k_options const& how = {}, options const& settings = {})
      : caller_("top_k", detail::within_limit("top_k", std::move(layers), selection::most - 1), settings, 0) {
    plan(how);
  }

  /// @brief Changes the densities of layers, from the next call on; on all workers alike.
  /// @param densities  of each layer in the order of the layout; empty: the one of the options
  /// @throws           configuration_error as the constructor does; nothing is changed then
  void assign(std::span<double const> densities) {
    top_k_options how = how_;
    how.densities.assign(densities.begin(), densities.end());
    plan(how);
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }
  /// The number of values that a worker sends.
  std::uint64_t count() const { return count_; }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    // NaN and infinity are larger than all finite values, so they are among the selected ones
    auto const measure = [&] {
      select(on, x);
      std::uint32_t top = 0;
      for (std::uint32_t p : places_) top = std::max(top, bits_of(x[p]) & float_magnitude);
      return std::pair(top, 0.0);
    };
    return caller_.call(workers, on, x, mean, rest, step, measure, [&](auto const& o, auto left) {
      return exchange(workers, on, x, mean, left, o.divisor);
    });
  }

 private:
  struct pool {
    std::uint64_t first, size, k;
  };

  static std::uint64_t hash_of(top_k_options const& how) {
    std::uint64_t h =
        globalq::detail::hash(detail::hash_of(0, how.density), static_cast<std::uint64_t>(how.scope));
    for (double d : how.densities) h = detail::hash_of(h, d);
    return how.bits == 32 ? h : globalq::detail::hash(h, static_cast<std::uint64_t>(how.bits));
  }
  /// Computes the sets from which values are selected.
  void plan(top_k_options const& how) {
    auto const& layers = caller_.layers();
    bool const by_layer = !how.densities.empty();
    if (how.bits != 32 && (how.bits < 2 || how.bits > 8))
      throw configuration_error("globalq: top_k: " + std::to_string(how.bits) +
                                " bits of a value; use 2 to 8, or 32");
    if (by_layer && how.densities.size() != layers.size())
      throw configuration_error("globalq: top_k: " + std::to_string(how.densities.size()) +
                                " densities for " + std::to_string(layers.size()) +
                                " layers; give one for each layer, or an empty list");
    if (by_layer && how.scope == scope::whole)
      throw configuration_error(
          "globalq: top_k: scope::whole selects from all layers together and takes no densities of layers; "
          "use scope::layer");
    std::vector<pool> pools;
    std::uint64_t total = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::uint64_t const size = layers[l].size,
                          k = count_of(by_layer ? how.densities[l] : how.density, size, "top_k");
      total += size;
      if (how.scope == scope::layer && k != 0) pools.push_back({layers[l].offset, size, k});
    }
    std::uint64_t const k = count_of(how.density, total, "top_k");
    if (how.scope == scope::whole && k != 0) {
      // values between layers must not be selected: if there are any, layers are first copied side by side
      side_by_side_ = caller_.runs().size() > 1;
      pools.push_back({side_by_side_ ? 0 : caller_.runs()[0].first, total, k});
    }
    std::sort(pools.begin(), pools.end(), [](pool const& a, pool const& b) { return a.first < b.first; });
    top_k_options changed = how;
    caller_.set_parameters(hash_of(how));  // from here on nothing throws
    pools_ = std::move(pools);
    count_ = 0;
    for (pool const& p : pools_) count_ += p.k;
    frame_ =
        how.bits == 32 ? detail::few_bit_frame() : detail::few_bit_frame(layers.length(), count_, how.bits);
    how_ = std::move(changed);
  }

  /// Fills places_, ascending.
  void select(kernel::host_executor const& on, std::span<float const> x) {
    places_.clear();
    if (side_by_side_) {
      beside_.clear();
      for (detail::run const& r : caller_.runs())
        beside_.insert(beside_.end(), x.begin() + static_cast<std::ptrdiff_t>(r.first),
                       x.begin() + static_cast<std::ptrdiff_t>(r.first + r.count));
      x = beside_;
    }
    for (pool const& p : pools_)
      for (std::uint32_t place : selection_.largest(on, x.subspan(p.first, p.size), p.k))
        places_.push_back(static_cast<std::uint32_t>(p.first + place));
    if (!side_by_side_) return;
    auto r = caller_.runs().begin();
    std::uint64_t before = 0;
    for (std::uint32_t& place : places_) {
      while (place - before >= r->count) before += (r++)->count;
      place = static_cast<std::uint32_t>(r->first + (place - before));
    }
  }

  /// What all workers send: of each its places, then its values.
  template <Transport T>
  std::uint32_t const* gathered(T& workers, kernel::host_executor const& on, std::span<float const> x,
                                double divisor) {
    auto const n = static_cast<std::uint64_t>(workers.size());
    auto& memory = caller_.memory();
    std::uint64_t const words = 2 * count_;
    auto* const mine = memory.mine.get_values<std::uint32_t>(words + frame_.words());
    auto* const all = memory.all.get_values<std::uint32_t>((words + frame_.words()) * n);
    auto* const values = reinterpret_cast<float*>(mine + count_);
    detail::take(on, x.data(), std::span<std::uint32_t const>(places_), divisor, values);
    if (how_.bits == 32) {
      std::copy(places_.begin(), places_.end(), mine);
      caller_.allgather(workers, std::span<std::uint32_t const>(mine, words), std::span(all, words * n));
      return all;
    }
    std::uint32_t* const frame = mine + words;
    frame_.write(on, places_.data(), values, frame);
    auto* const frames = all + words * n;
    caller_.allgather(workers, std::span<std::uint32_t const>(frame, frame_.words()),
                      std::span(frames, frame_.words() * n));
    auto const timed = caller_.enter(phase::decode);
    on.items(n, [&](std::uint64_t r) {
      std::uint32_t* const places = all + words * r;
      if (!frame_.read(frames + frame_.words() * r, places, reinterpret_cast<float*>(places + count_)))
        places[count_ - 1] = ~0U;  // check() refuses it
    });
    return all;
  }

  template <Transport T>
  outcome exchange(T& workers, kernel::host_executor const& on, std::span<float const> x,
                   std::span<float> mean, std::span<float> rest, double divisor) {
    auto const n = static_cast<std::uint64_t>(workers.size());
    std::uint32_t const* const all = gathered(workers, on, x, divisor);
    auto const timed = caller_.enter(phase::decode);
    for (std::uint64_t r = 0; r < n; ++r) check(all + 2 * count_ * r, r, x.size());

    // sums overflow float32 only if divisor is not 1; this is checked before anything is written
    float const share = static_cast<float>(1 / static_cast<double>(n));
    if (divisor != 1 && !mean_fits(all, n, divisor)) return outcome::not_finite;
    if (!rest.empty()) {
      detail::copy(on, caller_.blocks(), x.data(), rest.data());
      auto const* const sent = reinterpret_cast<float const*>(
          all + 2 * count_ * static_cast<std::uint64_t>(workers.rank()) + count_);
      float const scale = static_cast<float>(divisor);
      detail::for_places(on, count_, [&](std::uint64_t first, std::uint64_t end) {
        for (std::uint64_t k = first; k < end; ++k) {
          float& left = rest[places_[k]];
          left = how_.bits == 32 ? 0.0F : left - multiply(sent[k], scale);
        }
      });
    }
    // each block of the mean is cleared, receives the values of the workers in rank order, and is scaled while it is in
    // cache
    detail::for_blocks(on, caller_.blocks(), [&](std::uint64_t first, std::uint64_t count) {
      std::fill_n(mean.data() + first, count, 0.0F);
      for_each_in(all, n, first, count, [&](std::uint32_t place, float v) { mean[place] += v; });
      if (divisor == 1 && (n & (n - 1)) == 0) {  // the product is exact, so the bits are the same
        for (std::uint64_t i = first; i < first + count; ++i) mean[i] *= share;
      } else {
        double const factor = divisor / static_cast<double>(n);
        for (std::uint64_t i = first; i < first + count; ++i)
          mean[i] = static_cast<float>(static_cast<double>(mean[i]) * factor);
      }
    });
    return outcome::mean;
  }

  /// f(place, value) for the places in [first, first + count), worker after worker.
  template <class F>
  void for_each_in(std::uint32_t const* all, std::uint64_t n, std::uint64_t first, std::uint64_t count,
                   F const& f) const {
    for (std::uint64_t r = 0; r < n; ++r) {
      std::uint32_t const* const places = all + 2 * count_ * r;
      auto const* const values = reinterpret_cast<float const*>(places + count_);
      auto k = static_cast<std::uint64_t>(std::lower_bound(places, places + count_, first) - places);
      for (; k < count_ && places[k] < first + count; ++k) f(places[k], values[k]);
    }
  }

  bool mean_fits(std::uint32_t const* all, std::uint64_t n, double divisor) {
    sums_.assign(caller_.layers().length(), 0.0F);
    bool fits = true;
    for_each_in(all, n, 0, sums_.size(), [&](std::uint32_t place, float v) { sums_[place] += v; });
    for (float v : sums_)
      fits = fits && is_finite(static_cast<float>(static_cast<double>(v) * divisor / static_cast<double>(n)));
    return fits;
  }

  /// @throws frame_error, on all workers alike, because all have the same bytes
  void check(std::uint32_t const* places, std::uint64_t worker, std::uint64_t length) const {
    bool bad = count_ != 0 && places[count_ - 1] >= length;
    for (std::uint64_t k = 1; k < count_; ++k) bad = bad || places[k] <= places[k - 1];
    if (bad)
      throw frame_error("globalq: top_k: the places that worker " + std::to_string(worker) +
                        " sent are not ascending within " + std::to_string(length) +
                        " values; the bytes are corrupt, and the output is unspecified");
  }

  top_k_options how_;
  detail::caller caller_;
  std::vector<pool> pools_;
  std::uint64_t count_ = 0;
  detail::few_bit_frame frame_;
  bool side_by_side_ = false;
  selection selection_;
  std::vector<std::uint32_t> places_;
  std::vector<float> beside_, sums_;
};

}  // namespace GLOBALQ_ABI::baseline
