// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: a histogram of normalized magnitudes |x| / norm, in integers, so that parts add up exactly in any
///        order.
///
/// A magnitude r in [0, 1] is counted by the bits of the float y = r + 2^-octaves, which is in [2^-octaves, 1]:
/// exponent and leading fraction bits select the bin; the other fraction bits are added up and give the bin's mean.
/// Bins therefore have equal widths near zero and a constant ratio above, which resolves buckets of 64 values and
/// vectors of 10^9 equally.

#include "../../kernel/executor.hpp"
#include "../../kernel/reduction.hpp"
#include "bins.hpp"

#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace GLOBALQ_ABI::learn {

/// The variance that is minimized.
enum class weighting : std::uint8_t {
  squared_norms,  ///< of the vector: a bucket counts by the square of its norm (ALQ, AMQ)
  equal           ///< of normalized values: all values count alike (ALQ-N, AMQ-N)
};

/// The resolution: octaves << fraction_bits bins.
struct histogram_shape {
  std::uint32_t octaves = 16;       ///< magnitudes below 2^-octaves share the bins of one octave; 2 to 64
  std::uint32_t fraction_bits = 7;  ///< an octave has 2^fraction_bits bins; 6 to 12

  std::size_t bins() const { return std::size_t{octaves} << fraction_bits; }
  friend bool operator==(histogram_shape const&, histogram_shape const&) = default;
};

namespace detail {

/// An unsigned integer of 128 bits.
struct wide {
  std::uint64_t low = 0, high = 0;

  wide& operator+=(std::uint64_t x) {
    low += x;
    high += low < x ? 1 : 0;
    return *this;
  }
  wide& operator+=(wide const& x) {
    *this += x.low;
    high += x.high;
    return *this;
  }
  /// x / 2^n to nearest.
  void shift_down(std::uint32_t n) {
    if (n == 0) return;
    if (n > 127) {
      *this = {};
      return;
    }
    bool const up = n <= 64 ? ((low >> (n - 1)) & 1) != 0 : ((high >> (n - 65)) & 1) != 0;
    if (n < 64)
      *this = {(low >> n) | (high << (64 - n)), high >> n};
    else
      *this = {high >> (n - 64), 0};
    *this += up ? 1U : 0U;
  }
  double value() const { return static_cast<double>(high) * 0x1p64 + static_cast<double>(low); }
  friend bool operator==(wide const&, wide const&) = default;
};

/// Mass and moment of a bin for at most cell_values values.
struct cell {
  std::uint64_t mass, moment;
};
/// With weights up to 2^31 and remainders below 2^17, both sums of that many values stay below 2^64.
inline constexpr std::uint64_t cell_values = std::uint64_t{1} << 16;

}  // namespace detail

/// @brief Histogram of |x| / norm over the buckets of vectors.
///
/// Counts are exact integers: any number of threads gives the same bits, and histograms with equal exponent() add up to
/// the same bits in any order. A bucket's weight is its squared norm in units of a power of two, with 31 bits for the
/// largest norm; if a later vector has a larger norm, the sums so far are rounded once to the larger unit (raise_to()
/// does so early). Buckets of zeros have no magnitudes and are skipped.
class histogram {
 public:
  /// @throws configuration_error for a shape out of range
  explicit histogram(histogram_shape shape = {}, weighting weights = weighting::squared_norms)
      : shape_(shape), weights_(weights) {
    if (shape.octaves < 2 || shape.octaves > 64 || shape.fraction_bits < 6 || shape.fraction_bits > 12)
      throw configuration_error("globalq: learn::histogram: " + std::to_string(shape.octaves) +
                                " octaves of 2^" + std::to_string(shape.fraction_bits) +
                                " bins; use 2 to 64 octaves and 6 to 12 fraction bits");
    sums_.resize(2 * shape.bins());
  }

  histogram_shape shape() const { return shape_; }
  weighting weights() const { return weights_; }
  /// Whether no bucket with values was added yet.
  bool empty() const { return exponent_ == none; }
  /// Whether a bucket contained NaN or infinity; such buckets are skipped.
  bool non_finite() const { return non_finite_; }

  /// @brief Removes everything that was added.
  void clear() {
    std::fill(sums_.begin(), sums_.end(), detail::wide{});
    exponent_ = none;
    non_finite_ = false;
  }

  /// @brief Adds the magnitudes of a vector.
  /// @param on      executor for blocks of 2^16 values, with any number of threads
  /// @param bucket  values that share a norm; 0: all
  /// @param norms   of the buckets, in order
  /// @shape         x: count values; norms: ceil(count / bucket)
  /// @throws        configuration_error if the number of norms differs
  /// @complexity    one pass over x; 1 to 2 ns a value on one thread
  /// @determinism   the same bits for any number of threads
  void add(kernel::host_executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
           std::span<double const> norms) {
    if (count == 0) return;
    std::uint64_t const width = bucket == 0 ? count : bucket, buckets = divide_up(count, width);
    if (norms.size() != buckets)
      throw configuration_error("globalq: learn::histogram::add: " + std::to_string(norms.size()) +
                                " norms for " + std::to_string(buckets) + " buckets; give one for each");
    double largest = 0;
    for (double n : norms) {
      if (!(bits_of(n) < double_infinity)) {
        non_finite_ = true;
        continue;
      }
      largest = largest < n ? n : largest;
    }
    if (largest == 0) return;
    raise_to(weights_ == weighting::equal ? 0 : exponent_of(largest) + 1);
    std::mutex mutex;
    std::vector<std::unique_ptr<std::vector<detail::cell>>> idle;
    on.items(divide_up(count, block), [&](std::uint64_t i) {
      std::unique_ptr<std::vector<detail::cell>> cells;
      {
        std::lock_guard const lock(mutex);
        if (!idle.empty()) {
          cells = std::move(idle.back());
          idle.pop_back();
        }
      }
      if (!cells) cells = std::make_unique<std::vector<detail::cell>>(shape_.bins());
      count_block(x, i * block, std::min(count, (i + 1) * block), width, norms, cells->data());
      std::lock_guard const lock(mutex);
      std::size_t const n = shape_.bins();
      for (std::size_t k = 0; k < n; ++k) {
        sums_[k] += (*cells)[k].mass;
        sums_[n + k] += (*cells)[k].moment;
      }
      std::memset(cells->data(), 0, n * sizeof(detail::cell));
      idle.push_back(std::move(cells));
    });
  }

  /// @brief Adds the magnitudes of a vector, each bucket normalized by its own l_q norm.
  /// @param q  order of the norm: 1 to 64, or globalq::infinity
  void add(kernel::host_executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
           std::uint32_t q) {
    if (count == 0) return;
    std::vector<norm::statistic> found(divide_up(count, bucket == 0 ? count : bucket)), parts;
    norm::bucket_statistics(on, count, bucket, q, norm::input_block{x, q}, std::span(found), parts);
    std::vector<double> norms(found.size());
    for (std::size_t b = 0; b < found.size(); ++b)
      norms[b] = found[b].finite() ? norm::local_scale(found[b], q, x.type, 0) : double_of(double_nan);
    add(on, x, count, bucket, norms);
  }

  /// @brief Adds the counts of another histogram.
  /// @throws configuration_error if the shape or weighting differs
  histogram& operator+=(histogram const& other) {
    if (!(shape_ == other.shape_) || weights_ != other.weights_)
      throw configuration_error(
          "globalq: learn::histogram: histograms of different shapes or weightings cannot be added; use the "
          "same shape and weighting");
    non_finite_ = non_finite_ || other.non_finite_;
    if (other.empty()) return *this;
    histogram rest = other;
    raise_to(other.exponent_);
    rest.raise_to(exponent_);
    for (std::size_t k = 0; k < sums_.size(); ++k) sums_[k] += rest.sums_[k];
    return *this;
  }

  /// Edges of the bins, from 0 to 1.
  std::vector<double> edges() const {
    std::size_t const n = shape_.bins();
    std::vector<double> e(n + 1);
    for (std::size_t k = 0; k < n; ++k) e[k] = start(k) - start(0);
    e[n] = 1;
    return e;
  }

  /// @brief The counts as bins, with masses that add up to 1.
  /// @throws configuration_error if nothing was added
  bins result() const {
    if (empty())
      throw configuration_error(
          "globalq: learn::histogram: all added values are zero, so there is nothing to learn from; add a "
          "vector with other values");
    std::size_t const n = shape_.bins();
    bins b;
    b.edge = edges();
    b.mass.resize(n);
    b.mean.resize(n);
    double total = 0;
    for (std::size_t k = 0; k < n; ++k) total += sums_[k].value();
    for (std::size_t k = 0; k < n; ++k) {
      double const mass = sums_[k].value();
      b.mass[k] = mass / total;
      double const rest = mass > 0 ? sums_[n + k].value() / mass : 0;
      double const mean = b.edge[k] + rest * power_of_two(octave(k) - 23);
      b.mean[k] = mean < b.edge[k + 1] ? mean : b.edge[k + 1];
    }
    return b;
  }

  // agree() exchanges these: integers that can be added once all workers have the same exponent.

  /// The exponent of the unit of weights; lowest() if empty.
  int exponent() const { return exponent_; }
  static constexpr int lowest() { return none; }
  /// @brief Converts weights to a larger unit.
  /// @param exponent  at least exponent(); smaller ones are ignored
  void raise_to(int exponent) {
    if (exponent <= exponent_) return;
    if (exponent_ != none) {
      std::uint32_t const down = static_cast<std::uint32_t>(std::min(2 * (exponent - exponent_), 128));
      for (detail::wide& s : sums_) s.shift_down(down);
    }
    exponent_ = exponent;
  }
  std::span<detail::wide const> sums() const { return sums_; }
  std::span<detail::wide> sums() { return sums_; }

 private:
  static constexpr int none = -5000;
  static constexpr std::uint64_t block = detail::cell_values;

  int octave(std::size_t k) const {
    return static_cast<int>(k >> shape_.fraction_bits) - static_cast<int>(shape_.octaves);
  }
  /// The smallest y of a bin.
  double start(std::size_t k) const {
    std::size_t const in_octave = k & ((std::size_t{1} << shape_.fraction_bits) - 1);
    return power_of_two(octave(k)) *
           (1 + static_cast<double>(in_octave) * power_of_two(-static_cast<int>(shape_.fraction_bits)));
  }

  std::uint64_t weight_of(double norm) const {
    if (weights_ == weighting::equal) return 1;
    double const share = norm * power_of_two(-std::max(exponent_, -1000)) *
                         (exponent_ < -1000 ? power_of_two(-1000 - exponent_) : 1.0);  // below 1
    return static_cast<std::uint64_t>(share * share * 0x1p31 + 0.5);
  }

  void count_block(const_vector x, std::uint64_t first, std::uint64_t last, std::uint64_t width,
                   std::span<double const> norms, detail::cell* cells) const {
    constexpr int step = kernel::piece_values;
    kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
    float buffer[step];
    std::uint32_t place[step];
    int const octaves = static_cast<int>(shape_.octaves);
    std::uint32_t const base = static_cast<std::uint32_t>(127 - octaves) << 23,
                        shift = 23 - shape_.fraction_bits;
    std::uint32_t const mask = (1U << shift) - 1;
    float const floor = power_of_two_float(-octaves);
    while (first < last) {
      std::uint64_t const b = first / width, end = std::min(last, (b + 1) * width);
      double const scale = norms[b];
      std::uint64_t const w = bits_of(scale) < double_infinity && scale > 0 ? weight_of(scale) : 0;
      if (w == 0) {
        first = end;
        continue;
      }
      // float32 is read in place, unless the norm is near the ends of its range
      int const e = exponent_of(scale);
      bool const plain = x.type == dtype::float32 && e > -100 && e < 100;
      int const loaded = plain ? 0 : norm::load_exponent(x.type, e);
      float const gain = static_cast<float>(1 / (scale * power_of_two(loaded)));
      for (; first < end; first += step) {
        int const m = static_cast<int>(std::min<std::uint64_t>(step, end - first));
        leaf.places(leaf.load(x, first, m, loaded, buffer), m, gain, floor, base, place);
        for (int i = 0; i < m; ++i) {
          detail::cell& c = cells[place[i] >> shift];
          c.mass += w;
          c.moment += w * (place[i] & mask);
        }
      }
      first = end;
    }
  }

  histogram_shape shape_;
  weighting weights_;
  std::vector<detail::wide> sums_;  // masses, then moments
  // weights are in units of 2^(2 exponent - 31); all squared norms are below 2^(2 exponent)
  int exponent_ = none;
  bool non_finite_ = false;
};

}  // namespace GLOBALQ_ABI::learn
