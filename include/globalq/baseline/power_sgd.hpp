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

#if !__has_include(<Eigen/Core>)
#error \
    "globalq: globalq/baseline/power_sgd.hpp needs Eigen; install it (libeigen3-dev) and link globalq::eigen"
#endif
#include <Eigen/Core>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// Parameters of power_sgd; the same on every worker.
struct power_sgd_options {
  int rank = 4;
  /// The rank of each layer in the order of the layout, instead of one for all; 0: the layer is sent in float32.
  std::vector<int> ranks = {};
};

/// @brief Sends a layer of m x n values as P (m x r) and Q (n x r): one power step that starts from the Q of the
///        previous call.
///
/// P = M Q, averaged, made orthonormal; Q = M^T P, averaged; the mean is P Q^T, and this worker's message represents
/// P P^T M. Vectors, single values, and matrices that would not become shorter, are averaged in float32. Biased: use it
/// in error_feedback. If the matrices of all workers have rank r or less, the mean is exact, up to float32, from the
/// first call whose P spans their columns (with a random start: the first call).
///
/// Sends two sums of r (m + n) float32 values over the schedule, for all layers together. Eigen computes the products
/// of a worker's own matrix. Every worker computes the common results (orthonormal P, P Q^T) from the same bytes, with
/// products that are exact in double, so they have the same bits on machines with other instruction sets.
/// Values of any size are averaged as long as the mean is within float32: large ones are first divided by a power of
/// two. Residuals that would overflow become the largest number. Eigen's products allocate memory in each call.
/// @complexity  4 r m n operations for the two products, 4 r m n in double for the mean and the residual
/// @determinism bit-identical on all workers
/// @source      Vogels, Karimireddy, Jaggi 2019, Algorithms 1 and 2. The residual is that of Algorithm 2 (own message);
///              the authors' code subtracts the mean instead, which has the same sum over workers.
template <class Schedule = schedule::scatter_reduce_allgather>
class power_sgd {
 public:
  static constexpr int most_rank = 256;
  /// The type of a layer's parameter, its rank.
  using parameter = int;

  /// @throws configuration_error for a rank outside 1 to 256, a number of ranks that differs from the layers, and
  ///         layers that are not float32
  explicit power_sgd(adapt::model_layout layers, power_sgd_options const& how = {},
                     options const& settings = {}, Schedule schedule = {})
      : schedule_(std::move(schedule)),
        caller_("power_sgd", std::move(layers), settings, 0, schedule::detail::text_of(schedule_),
                sizeof(float)) {
    places first = plan(how);
    std::vector<float> start = random_start(first);
    take(std::move(first), std::move(start));
  }

  /// @brief Changes the ranks of layers, from the next call on; on all workers alike.
  ///
  /// Columns of Q that remain keep their values; new ones start at random.
  /// @param ranks  of each layer in the order of the layout, 0: float32; empty: the one of the options
  /// @param step   of the training: selects random bits
  /// @throws       configuration_error as the constructor does; nothing is changed then
  void assign(std::span<int const> ranks, std::uint64_t step) {
    power_sgd_options how = at_.how;
    how.ranks.assign(ranks.begin(), ranks.end());
    places next = plan(std::move(how));
    std::vector<float> start(next.q_count);
    auto old = at_.matrices.begin();
    for (matrix const& m : next.matrices) {
      while (old != at_.matrices.end() && old->layer < m.layer) ++old;
      int const had = old != at_.matrices.end() && old->layer == m.layer ? std::min(old->rank, m.rank) : 0;
      if (had != 0)
        std::copy_n(start_.data() + old->q, static_cast<std::uint64_t>(had) * m.columns, start.data() + m.q);
      for (int k = had; k < m.rank; ++k) draw(m, k, step, start);
    }
    take(std::move(next), std::move(start));
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }
  /// The number of float32 values that are summed over the workers: P, Q, and layers sent in float32.
  std::uint64_t count() const { return at_.first_count + at_.q_count; }

  /// Whether a layer is sent in float32.
  bool sends_all(std::size_t layer) const {
    return std::none_of(at_.matrices.begin(), at_.matrices.end(),
                        [&](matrix const& m) { return m.layer == layer; });
  }

  /// Starts again from random Q.
  void reset() { start_ = random_start(at_); }

  /// See Compressor.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(
        workers, on, x, mean, rest, step, caller_.largest(on, x), [&](auto const& o, auto left) {
          return iterate(workers, on, x.data(), mean.data(), left.empty() ? nullptr : left.data(), o, step);
        });
  }

  /// Saves Q of each matrix. It is the same on all workers, so the number of workers may change.
  void save(state& s) const {
    for (matrix const& m : at_.matrices)
      s.put(key(m), std::span(start_).subspan(m.q, m.columns * static_cast<std::uint64_t>(m.rank)));
  }
  /// Columns that were saved continue; others, of a layer with a larger rank than before, start at random.
  /// @throws frame_error if a layer was saved with another shape; nothing is changed then
  void load(state const& s) {
    std::vector<float> loaded = random_start(at_);
    for (matrix const& m : at_.matrices) {
      if (!s.contains(key(m))) continue;  // it was sent as float32
      std::uint64_t const had = s.count(key(m)) / m.columns;
      auto const from = s.get(key(m), had * m.columns);
      std::uint64_t const kept = std::min(had, static_cast<std::uint64_t>(m.rank)) * m.columns;
      std::copy_n(from.begin(), kept, loaded.begin() + static_cast<std::ptrdiff_t>(m.q));
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
  /// Rows or columns of a matrix that one thread processes.
  struct work {
    std::size_t matrix;
    std::uint64_t first, count;
  };
  /// Everything that depends on the ranks; it is replaced as a whole.
  struct places {
    power_sgd_options how;
    std::vector<matrix> matrices;
    std::vector<detail::run> dense;
    std::vector<work> by_rows, by_columns;
    std::uint64_t p_count = 0, q_count = 0, first_count = 0;
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

  /// Decides which layers are matrices of which rank, and the places of their P and Q.
  places plan(power_sgd_options how) const {
    auto const& layers = caller_.layers();
    bool const by_layer = !how.ranks.empty();
    if (by_layer && how.ranks.size() != layers.size())
      throw configuration_error("globalq: power_sgd: " + std::to_string(how.ranks.size()) + " ranks for " +
                                std::to_string(layers.size()) +
                                " layers; give one for each layer, or an empty list");
    places to;
    std::uint64_t dense_count = 0;
    for (std::size_t k = 0; k < layers.size(); ++k) {
      adapt::layer const& l = layers[k];
      int const rank = by_layer ? how.ranks[k] : how.rank;
      if (rank < (by_layer ? 0 : 1) || rank > most_rank)
        throw configuration_error("globalq: power_sgd: a rank of " + std::to_string(rank) +
                                  "; use 1 to 256 (in `ranks` also 0, for float32)");
      if (l.size == 0) continue;
      std::uint64_t const rows = l.rows(), columns = l.columns();
      std::uint64_t const r = std::min({static_cast<std::uint64_t>(rank), rows, columns});
      if (r == 0 || l.shape.size() < 2 || r * (rows + columns) >= l.size) {
        to.dense.push_back({l.offset, l.size});
        dense_count += l.size;
        continue;
      }
      to.matrices.push_back({k, l.offset, rows, columns, static_cast<int>(r), to.p_count, to.q_count});
      to.p_count += r * rows;
      to.q_count += r * columns;
    }
    to.first_count = to.p_count + dense_count;
    cut_work(to);
    to.how = std::move(how);
    return to;
  }

  void take(places next, std::vector<float> start) {
    caller_.set_parameters(hash_of(next.how));
    at_ = std::move(next);
    start_ = std::move(start);
  }

  static void cut_work(places& to) {
    constexpr std::uint64_t values = std::uint64_t{1} << 15;
    for (std::size_t k = 0; k < to.matrices.size(); ++k) {
      matrix const& m = to.matrices[k];
      auto const cut = [&](std::uint64_t length, std::uint64_t other, std::vector<work>& list) {
        std::uint64_t const each = std::max<std::uint64_t>(16, values / other);
        for (std::uint64_t at = 0; at < length; at += each)
          list.push_back({k, at, std::min(each, length - at)});
      };
      cut(m.rows, m.columns, to.by_rows);
      cut(m.columns, m.rows, to.by_columns);
    }
  }

  /// A random row of Q^T, the same bits on all workers: sums of four uniform numbers instead of normal ones, which need
  /// a logarithm.
  void draw(matrix const& m, int k, std::uint64_t step, std::vector<float>& start) const {
    float_environment const exact;
    random::stream const bits{caller_.settings().seed, step, 0, random::purpose::start};
    std::uint64_t const first = m.q + static_cast<std::uint64_t>(k) * m.columns;
    for (std::uint64_t j = 0; j < m.columns; ++j) {
      random::words4 const w = bits.group(first + j);
      std::int32_t sum = -(1 << 25);
      for (std::uint32_t word : w.word) sum += static_cast<std::int32_t>(word >> 8);
      start[first + j] = static_cast<float>(sum) * 0x1p-24F;
    }
  }
  std::vector<float> random_start(places const& of) const {
    std::vector<float> start(of.q_count);
    for (matrix const& m : of.matrices)
      for (int k = 0; k < m.rank; ++k) draw(m, k, 0, start);
    return start;
  }

  template <Transport T>
  outcome iterate(T& workers, kernel::host_executor const& on, float const* x, float* mean, float* rest,
                  detail::caller::opened const& o, std::uint64_t step) {
    double const n = workers.size(), divisor = o.divisor;
    float const share = static_cast<float>(1 / divisor);
    first_.resize(at_.first_count);
    own_.resize(at_.q_count);
    // large matrices are divided by a power of two: products overflow float32 long before the mean does
    double const wide = o.top < 0x1p64 ? 1.0 : power_of_two(exponent_of(o.top));
    float const* from = x;
    if (wide != 1) {
      scaled_.resize(layers().length());
      detail::for_blocks(on, caller_.blocks(), [&](std::uint64_t first, std::uint64_t count) {
        float const part = static_cast<float>(1 / wide);
        for (std::uint64_t i = first; i < first + count; ++i) scaled_[i] = x[i] * part;
      });
      from = scaled_.data();
    }

    // P = M Q, and layers sent in float32
    on.items(at_.by_rows.size(), [&](std::uint64_t i) {
      work const& w = at_.by_rows[i];
      matrix const& m = at_.matrices[w.matrix];
      auto const r = static_cast<std::uint64_t>(m.rank);
      view_of(first_.data() + m.p + w.first * r, w.count, r, r).noalias() =
          view_of(from + m.offset + w.first * m.columns, w.count, m.columns, m.columns) *
          view_of(start_.data() + m.q, r, m.columns, m.columns).transpose();
    });
    std::uint64_t at = at_.p_count;
    for (detail::run const& d : at_.dense)
      for (std::uint64_t i = 0; i < d.count; ++i) first_[at++] = x[d.first + i] * share;
    caller_.sum(workers, schedule_, on, std::span(first_));
    if (!detail::scale(on, std::span(first_).subspan(at_.p_count), divisor / n)) return outcome::not_finite;
    if (detail::largest_bits(first_.data(), at_.p_count) >= float_infinity) return outcome::not_finite;

    orthogonal_.resize(std::min<std::size_t>(at_.matrices.size(), static_cast<std::size_t>(on.threads())));
    on.items(orthogonal_.size(), [&](std::uint64_t i) {
      for (std::size_t k = i; k < at_.matrices.size(); k += orthogonal_.size())
        orthogonal_[i](first_.data() + at_.matrices[k].p, at_.matrices[k].rows, at_.matrices[k].rank);
    });

    // Q^T = P^T M
    on.items(at_.by_columns.size(), [&](std::uint64_t i) {
      work const& w = at_.by_columns[i];
      matrix const& m = at_.matrices[w.matrix];
      auto const r = static_cast<std::uint64_t>(m.rank);
      view_of(own_.data() + m.q + w.first, r, w.count, m.columns).noalias() =
          view_of(first_.data() + m.p, m.rows, r, r).transpose() *
          view_of(from + m.offset + w.first, m.rows, w.count, m.columns);
    });
    sum_.assign(own_.begin(), own_.end());
    caller_.sum(workers, schedule_, on, std::span(sum_));
    auto const timed = caller_.enter(phase::decode);
    if (!detail::scale(on, sum_, 1 / n)) return outcome::not_finite;
    if (!mean_fits(on, wide)) return outcome::not_finite;

    at = at_.p_count;
    for (detail::run const& d : at_.dense) {
      if (rest != nullptr) std::fill_n(rest + d.first, d.count, 0.0F);
      std::copy_n(first_.data() + at, d.count, mean + d.first);
      at += d.count;
    }
    each_piece(on, [&](matrix const& m, std::uint64_t row, std::uint64_t j, std::uint64_t count) {
      constexpr float most = std::numeric_limits<float>::max();
      std::uint64_t const here = m.offset + row * m.columns + j;
      float product[piece];
      if (rest != nullptr) {
        multiply(m, own_, row, j, count, wide, product);
        for (std::uint64_t c = 0; c < count; ++c)
          rest[here + c] = std::clamp(x[here + c] - product[c], -most, most);
      }
      multiply(m, sum_, row, j, count, wide, mean + here);
    });
    keep_start(step);
    return outcome::mean;
  }

  static constexpr std::uint64_t piece = 256;

  /// f(matrix, row, first column, count) for pieces of rows.
  template <class F>
  void each_piece(kernel::host_executor const& on, F const& f) const {
    on.items(at_.by_rows.size(), [&](std::uint64_t i) {
      work const& w = at_.by_rows[i];
      matrix const& m = at_.matrices[w.matrix];
      for (std::uint64_t row = w.first; row < w.first + w.count; ++row)
        for (std::uint64_t j = 0; j < m.columns; j += piece) f(m, row, j, std::min(piece, m.columns - j));
    });
  }

  /// A piece of a row of P Q^T, times a power of two.
  void multiply(matrix const& m, std::vector<float> const& q, std::uint64_t row, std::uint64_t j,
                std::uint64_t count, double wide, float* to) const {
    detail::product_row(first_.data() + m.p + row * static_cast<std::uint64_t>(m.rank), q.data() + m.q,
                        m.columns, m.rank, j, count, to);
    if (wide != 1)
      for (std::uint64_t c = 0; c < count; ++c) to[c] *= static_cast<float>(wide);
  }

  /// Whether the whole mean is within float32; the same on all workers.
  bool mean_fits(kernel::host_executor const& on, double wide) const {
    if (wide == 1) {  // factors are finite, but their product may overflow; so its bound is checked
      for (matrix const& m : at_.matrices) {
        double const top =
            float_of(detail::largest_bits(sum_.data() + m.q, m.columns * static_cast<std::uint64_t>(m.rank)));
        if (top * m.rank >= 0x1p127) return false;
      }
      return true;
    }
    std::atomic<bool> fits{true};
    each_piece(on, [&](matrix const& m, std::uint64_t row, std::uint64_t j, std::uint64_t count) {
      float product[piece];
      multiply(m, sum_, row, j, count, wide, product);
      if (detail::largest_bits(product, count) >= float_infinity) fits = false;
    });
    return fits;
  }

  /// Sets the start of the next call to the Q of this one, each column scaled by a power of two. Without scaling, which
  /// changes no direction, Q would shrink with the squares of the gradients. A column of zeros starts again at random.
  void keep_start(std::uint64_t step) {
    std::swap(start_, sum_);
    for (matrix const& m : at_.matrices)
      for (int k = 0; k < m.rank; ++k) {
        float* const q = start_.data() + m.q + static_cast<std::uint64_t>(k) * m.columns;
        std::uint32_t const top = detail::largest_bits(q, m.columns);
        if (top == 0) {
          draw(m, k, step, start_);
          continue;
        }
        double const share = power_of_two(-exponent_of(static_cast<double>(float_of(top))));
        for (std::uint64_t j = 0; j < m.columns; ++j)
          q[j] = static_cast<float>(static_cast<double>(q[j]) * share);
      }
  }

  Schedule schedule_;
  detail::caller caller_;
  places at_;
  std::vector<float> start_;  ///< Q transposed of each matrix
  std::vector<float> first_;  ///< P of each matrix, then layers sent in float32
  std::vector<float> own_;    ///< Q transposed of this worker
  std::vector<float> sum_;    ///< of all workers
  std::vector<float> scaled_;
  std::vector<detail::orthogonalizer> orthogonal_;  ///< one for each thread
};

}  // namespace GLOBALQ_ABI::baseline
