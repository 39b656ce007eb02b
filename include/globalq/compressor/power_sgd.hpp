// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: PowerSGD: matrices as products of two thin ones. Needs Eigen: link globalq::eigen.

#include "../random/stream.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/chosen.hpp"
#include "detail/orthogonal.hpp"
#include "state.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <utility>
#include <vector>

namespace globalq::compressor {

/// Parameters of power_sgd; the same on every worker.
struct power_sgd_options {
  int rank = 4;
  /// Of each layer in the order of the layout, instead of one for all; 0: the layer is sent in float32.
  std::vector<int> ranks = {};
};

/// @brief Sends a layer of m x n values as P (m x r) and Q (n x r): one step of the power method, from the Q of the call before.
///
/// P = M Q, averaged, made orthonormal; Q = M^T P, averaged; the mean is P Q^T, and this worker's message stood for
/// P P^T M. Vectors, single values, and matrices that would not become shorter, are averaged in float32. Biased: use it
/// in error_feedback. The mean of matrices of rank r and less is exact, up to float32, from the first call that finds
/// their columns in P (with a random start: the first).
///
/// Two sums of r (m + n) float32 values over the schedule, for all layers together. Products of a worker's own matrix are
/// Eigen's. What all workers must have alike (orthonormal P, P Q^T) is computed by all from the same bytes with
/// products that are exact in double, so it is the same on machines with other instruction sets.
/// @complexity  4 r m n operations for the two products, 4 r m n in double for the mean and the rest
/// @determinism bit-identical on all workers
/// @source      Vogels, Karimireddy, Jaggi 2019, Algorithms 1 and 2. The rest is that of Algorithm 2 (the own message);
///              the authors' code takes the mean off instead, which has the same sum over workers.
template <class Schedule = schedule::scatter_reduce_allgather>
class power_sgd {
 public:
  static constexpr int most_rank = 256;
  /// What may differ by layer.
  using parameter = int;

  /// @throws configuration_error for a rank that is not 1 to 256, ranks that are not one a layer, and layers that are
  ///         not float32
  explicit power_sgd(adapt::layout layers, power_sgd_options const& how = {}, options const& settings = {},
                     Schedule schedule = {})
      : schedule_(std::move(schedule)),
        caller_("power_sgd", std::move(layers), settings, 0, schedule::detail::text_of(schedule_)) {
    plan(how);
    reset();
  }

  /// @brief Gives layers other ranks, from the next call on; on all workers alike.
  ///
  /// The columns of Q that a layer keeps are those it had; others begin at random.
  /// @param ranks  of each layer in the order of the layout, 0: float32; none: the one of the options
  /// @param step   of the training: selects random bits
  /// @throws       configuration_error as the constructor does; nothing has changed then
  void assign(std::span<int const> ranks, std::uint64_t step) {
    power_sgd_options how = how_;
    how.ranks.assign(ranks.begin(), ranks.end());
    std::vector<matrix> const before = matrices_;
    plan(how);
    std::vector<float> const kept = std::exchange(start_, std::vector<float>(q_count_));
    auto old = before.begin();
    for (matrix const& m : matrices_) {
      while (old != before.end() && old->layer < m.layer) ++old;
      int const had = old != before.end() && old->layer == m.layer ? std::min(old->rank, m.rank) : 0;
      if (had != 0)
        std::copy_n(kept.data() + old->q, static_cast<std::uint64_t>(had) * m.columns, start_.data() + m.q);
      for (int k = had; k < m.rank; ++k) draw(m, k, step);
    }
  }

  adapt::layout const& layers() const { return caller_.layers(); }
  /// float32 values that are summed over the workers: those of P, of Q, and of layers that are sent as they are.
  std::uint64_t count() const { return first_count_ + q_count_; }

  /// Begins with random Q again.
  void reset() {
    start_.resize(q_count_);
    for (matrix const& m : matrices_)
      for (int k = 0; k < m.rank; ++k) draw(m, k, 0);
  }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(workers, on, x, mean, rest, step, caller_.largest(on, x),
                        [&](auto const& o, auto left) {
                          return iterate(workers, on, x.data(), mean.data(),
                                         left.empty() ? nullptr : left.data(), o.unit, step);
                        });
  }

  /// Q of each matrix, the same on all workers: the number of workers may change.
  void save(state& s) const {
    for (matrix const& m : matrices_)
      s.put(key(m), std::span(start_).subspan(m.q, m.columns * static_cast<std::uint64_t>(m.rank)));
  }
  /// @throws frame_error when a layer is missing or was saved with another rank or shape; nothing is changed then
  void load(state const& s) {
    std::vector<float> loaded(q_count_);
    for (matrix const& m : matrices_) {
      auto const from = s.get(key(m), m.columns * static_cast<std::uint64_t>(m.rank));
      std::copy(from.begin(), from.end(), loaded.begin() + static_cast<std::ptrdiff_t>(m.q));
    }
    start_ = std::move(loaded);
  }

 private:
  using rows_first = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using view = Eigen::Map<rows_first const, Eigen::Unaligned, Eigen::OuterStride<>>;
  using mutable_view = Eigen::Map<rows_first, Eigen::Unaligned, Eigen::OuterStride<>>;

  struct matrix {
    std::size_t layer;
    std::uint64_t offset, rows, columns;
    int rank;
    std::uint64_t p, q;  ///< where P (rows x rank) and Q transposed (rank x columns) begin
  };
  /// Rows or columns of a matrix that one thread treats.
  struct work {
    std::size_t matrix;
    std::uint64_t first, count;
  };

  static std::uint64_t hash_of(power_sgd_options const& how) {
    std::uint64_t h = globalq::detail::hash(0, static_cast<std::uint64_t>(how.rank));
    for (int r : how.ranks) h = globalq::detail::hash(h, static_cast<std::uint64_t>(r));
    return h;
  }
  std::string key(matrix const& m) const { return "q/" + layers()[m.layer].name; }
  static Eigen::Index index(std::uint64_t i) { return static_cast<Eigen::Index>(i); }
  static view view_of(float const* at, std::uint64_t rows, std::uint64_t columns, std::uint64_t stride) {
    return view(at, index(rows), index(columns), Eigen::OuterStride<>(index(stride)));
  }
  static mutable_view view_of(float* at, std::uint64_t rows, std::uint64_t columns, std::uint64_t stride) {
    return mutable_view(at, index(rows), index(columns), Eigen::OuterStride<>(index(stride)));
  }

  /// Which layers are matrices of which rank, and where their P and Q lie.
  void plan(power_sgd_options const& how) {
    auto const& layers = caller_.layers();
    bool const by_layer = !how.ranks.empty();
    if (by_layer && how.ranks.size() != layers.size())
      throw configuration_error("globalq: power_sgd: " + std::to_string(how.ranks.size()) + " ranks for " +
                                std::to_string(layers.size()) + " layers; give one for each, or none");
    std::vector<matrix> matrices;
    std::vector<detail::run> dense;
    std::uint64_t p_count = 0, q_count = 0, dense_count = 0;
    for (std::size_t k = 0; k < layers.size(); ++k) {
      adapt::layer const& l = layers[k];
      int const rank = by_layer ? how.ranks[k] : how.rank;
      if (rank < (by_layer ? 0 : 1) || rank > most_rank)
        throw configuration_error("globalq: power_sgd: a rank of " + std::to_string(rank) + "; use 1 to 256");
      if (l.size == 0) continue;
      std::uint64_t const rows = l.rows(), columns = l.columns();
      std::uint64_t const r = std::min({static_cast<std::uint64_t>(rank), rows, columns});
      if (r == 0 || l.shape.size() < 2 || r * (rows + columns) >= l.size) {
        dense.push_back({l.offset, l.size});
        dense_count += l.size;
        continue;
      }
      matrices.push_back({k, l.offset, rows, columns, static_cast<int>(r), p_count, q_count});
      p_count += r * rows;
      q_count += r * columns;
    }
    matrices_ = std::move(matrices);
    dense_ = std::move(dense);
    p_count_ = p_count;
    q_count_ = q_count;
    first_count_ = p_count + dense_count;
    cut_work();
    how_ = how;
    caller_.set_parameters(hash_of(how));
  }

  void cut_work() {
    constexpr std::uint64_t values = std::uint64_t{1} << 15;
    by_rows_.clear();
    by_columns_.clear();
    for (std::size_t k = 0; k < matrices_.size(); ++k) {
      matrix const& m = matrices_[k];
      auto const cut = [&](std::uint64_t length, std::uint64_t other, std::vector<work>& list) {
        std::uint64_t const each = std::max<std::uint64_t>(16, values / other);
        for (std::uint64_t at = 0; at < length; at += each)
          list.push_back({k, at, std::min(each, length - at)});
      };
      cut(m.rows, m.columns, by_rows_);
      cut(m.columns, m.rows, by_columns_);
    }
  }

  /// A random row of Q^T: sums of four even numbers, which a float holds, instead of normal ones: no library's logarithm.
  void draw(matrix const& m, int k, std::uint64_t step) {
    random::stream const bits{caller_.settings().seed, step, 0, random::purpose::start};
    std::uint64_t const first = m.q + static_cast<std::uint64_t>(k) * m.columns;
    for (std::uint64_t j = 0; j < m.columns; ++j) {
      random::words4 const w = bits.group(first + j);
      std::int32_t sum = -(1 << 25);
      for (std::uint32_t word : w.word) sum += static_cast<std::int32_t>(word >> 8);
      start_[first + j] = static_cast<float>(sum) * 0x1p-24F;
    }
  }

  template <Transport T>
  outcome iterate(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                  double unit, std::uint64_t step) {
    double const n = workers.size();
    first_.resize(first_count_);
    own_.resize(q_count_);

    // P = M Q, and what is sent as it is
    on.items(by_rows_.size(), [&](std::uint64_t i) {
      work const& w = by_rows_[i];
      matrix const& m = matrices_[w.matrix];
      auto const r = static_cast<std::uint64_t>(m.rank);
      view_of(first_.data() + m.p + w.first * r, w.count, r, r).noalias() =
          view_of(x + m.offset + w.first * m.columns, w.count, m.columns, m.columns) *
          view_of(start_.data() + m.q, r, m.columns, m.columns).transpose();
    });
    float const share = static_cast<float>(1 / unit);
    std::uint64_t at = p_count_;
    for (detail::run const& d : dense_)
      for (std::uint64_t i = 0; i < d.count; ++i) first_[at++] = x[d.first + i] * share;
    caller_.sum(workers, schedule_, on, std::span(first_));
    if (!detail::scale(on, std::span(first_).subspan(p_count_), unit / n)) return outcome::not_finite;
    if (detail::largest_bits(first_.data(), p_count_) >= float_infinity) return outcome::not_finite;

    on.items(matrices_.size(), [&](std::uint64_t k) {
      matrix const& m = matrices_[k];
      detail::orthogonaliser{}(first_.data() + m.p, m.rows, m.rank);
    });

    // Q^T = P^T M
    on.items(by_columns_.size(), [&](std::uint64_t i) {
      work const& w = by_columns_[i];
      matrix const& m = matrices_[w.matrix];
      auto const r = static_cast<std::uint64_t>(m.rank);
      view_of(own_.data() + m.q + w.first, r, w.count, m.columns).noalias() =
          view_of(first_.data() + m.p, m.rows, r, r).transpose() *
          view_of(x + m.offset + w.first, m.rows, w.count, m.columns);
    });
    sum_.assign(own_.begin(), own_.end());
    caller_.sum(workers, schedule_, on, std::span(sum_));
    auto const timed = caller_.enter(phase::decode);
    if (!detail::scale(on, sum_, 1 / n)) return outcome::not_finite;
    // a product of finite factors that leaves float32 shows in none of them; its bound does
    for (matrix const& m : matrices_) {
      double const top =
          float_of(detail::largest_bits(sum_.data() + m.q, m.columns * static_cast<std::uint64_t>(m.rank)));
      if (top * m.rank >= 0x1p127) return outcome::not_finite;
    }

    at = p_count_;
    for (detail::run const& d : dense_) {
      if (rest != nullptr) std::fill_n(rest + d.first, d.count, 0.0F);
      std::copy_n(first_.data() + at, d.count, mean + d.first);
      at += d.count;
    }
    on.items(by_rows_.size(), [&](std::uint64_t i) {
      work const& w = by_rows_[i];
      matrix const& m = matrices_[w.matrix];
      for (std::uint64_t row = w.first; row < w.first + w.count; ++row) {
        float const* const p = first_.data() + m.p + row * static_cast<std::uint64_t>(m.rank);
        std::uint64_t const here = m.offset + row * m.columns;
        if (rest != nullptr) {
          float own[256];
          for (std::uint64_t j = 0; j < m.columns; j += 256) {
            std::uint64_t const count = std::min<std::uint64_t>(256, m.columns - j);
            detail::product_row(p, own_.data() + m.q, m.columns, m.rank, j, count, own);
            for (std::uint64_t c = 0; c < count; ++c) rest[here + j + c] = x[here + j + c] - own[c];
          }
        }
        detail::product_row(p, sum_.data() + m.q, m.columns, m.rank, 0, m.columns, mean + here);
      }
    });
    keep_start(step);
    return outcome::mean;
  }

  /// The next call starts from the Q of this one, each column scaled by a power of two, which changes no direction: else it would
  /// shrink with the gradients' squares. A column without any value begins anew.
  void keep_start(std::uint64_t step) {
    std::swap(start_, sum_);
    for (matrix const& m : matrices_)
      for (int k = 0; k < m.rank; ++k) {
        float* const q = start_.data() + m.q + static_cast<std::uint64_t>(k) * m.columns;
        std::uint32_t const top = detail::largest_bits(q, m.columns);
        if (top == 0) {
          draw(m, k, step);
          continue;
        }
        double const share = power_of_two(-exponent_of(static_cast<double>(float_of(top))));
        for (std::uint64_t j = 0; j < m.columns; ++j)
          q[j] = static_cast<float>(static_cast<double>(q[j]) * share);
      }
  }

  Schedule schedule_;
  detail::caller caller_;
  power_sgd_options how_;
  std::vector<matrix> matrices_;
  std::vector<detail::run> dense_;
  std::vector<work> by_rows_, by_columns_;
  std::uint64_t p_count_ = 0, q_count_ = 0, first_count_ = 0;
  std::vector<float> start_;  ///< Q transposed of each matrix
  std::vector<float> first_;  ///< P of each matrix, then layers that are sent as they are
  std::vector<float> own_;    ///< Q transposed of this worker
  std::vector<float> sum_;    ///< of all workers
};

}  // namespace globalq::compressor
