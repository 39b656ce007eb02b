// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// QSVRG: stochastic gradient descent with variance reduction and quantized updates.

#include "regression.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/schedule/allgather.hpp>
#include <globalq/transport/collectives.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace convex {

/// @brief Step and length of an epoch after which the expected gap is at most `contraction` times that before.
struct qsvrg_plan {
  double step = 0;
  std::uint64_t iterations = 0;  ///< of an epoch
  double contraction = 0;
};

/// @brief The theory of QSVRG on f with strong convexity l whose f_j are L-smooth.
///
/// An update u is the mean of K workers' quantized u_i with E u = grad f(x) and E||Q(v)||^2 <= B ||v||^2, so with the gaps
/// g(x) = f(x) - f*: E||u||^2 <= 2 L (1 - 1/K) g(x) + (B/K) 4 L (g(x) + g(y)), where the last factor is that of SVRG
/// (Johnson and Zhang 2013). Summed over the T steps of an epoch that starts at y,
/// E g(next y) <= (2 / (l T) + step^2 L q) / (2 step - step^2 L r) g(y), q = 4 B / K, r = q + 2 (1 - 1/K).
class qsvrg_theory {
 public:
  /// @param blow_up  B
  qsvrg_theory(double convexity, double smoothness, int workers, double blow_up)
      : convexity_(convexity),
        smoothness_(smoothness),
        q_(4 * blow_up / workers),
        r_(q_ + 2 * (1 - 1.0 / workers)) {}

  double contraction(double step, std::uint64_t iterations) const {
    double const gain = 2 * step - step * step * smoothness_ * r_;
    if (gain <= 0) return INFINITY;
    return (2 / (convexity_ * static_cast<double>(iterations)) + step * step * smoothness_ * q_) / gain;
  }

  /// The fewest iterations, and the step, for a contraction in (0, 1): the published one is 0.9.
  qsvrg_plan plan(double wanted) const {
    qsvrg_plan p;
    double const s = wanted * r_ + q_;
    p.step = wanted / (s * smoothness_);
    p.iterations =
        static_cast<std::uint64_t>(std::ceil(2 * smoothness_ / convexity_ * s / (wanted * wanted)));
    p.contraction = contraction(p.step, p.iterations);
    return p;
  }

 private:
  double convexity_, smoothness_, q_, r_;
};

/// @brief Bits that a worker broadcasts in an epoch of T iterations on n values, with floats of F bits.
struct qsvrg_bits {
  /// (F + 2.8 n)(T + 1) + F n, as published.
  static double published(double n, double iterations, double float_bits) {
    return (float_bits + 2.8 * n) * (iterations + 1) + float_bits * n;
  }
  /// The same with the proved expected length, 37/12 n (docs/theory.md, Length of Elias codes), and the largest
  /// overhead of blocks of 4,096 values.
  static double proved(double n, double iterations, double float_bits) {
    double const blocks = std::ceil(n / 4096);
    return (float_bits + 37.0 / 12 * n + 172 * blocks) * iterations + float_bits * n;
  }
  /// The overhead of a message besides codes and one float: the handshake of the call, the header of the frame, and the
  /// place of the scale, less the float.
  static double overhead(double float_bits) {
    return 8.0 * (globalq::detail::record_bytes + globalq::wire::long_header_bytes + 16) - float_bits;
  }
};

/// @brief Levels for which a quantized vector of n values has at most 5/4 of the squared norm, on average.
inline std::uint32_t levels_of(Index values) {
  return static_cast<std::uint32_t>(std::ceil(std::sqrt(static_cast<double>(values))));
}

/// @brief QSGD's quantizer with sqrt(n) levels and its Elias code.
inline auto dense_qsgd(Index values) {
  return globalq::operators::qsgd<8, 2, globalq::wire::elias<>>(0, levels_of(values));
}

/// @brief The result of an epoch.
struct epoch {
  double gap = 0;           ///< after it
  std::uint64_t bytes = 0;  ///< handed to the transport by this worker
};

/// @brief How an update is computed from a sample.
enum class update {
  plain,            ///< grad f_j(x)
  variance_reduced  ///< grad f_j(x) - grad f_j(y) + grad f(y), y the point at which the epoch began
};

/// @brief Runs epochs on one worker; all workers call it with the same arguments and compute the same points.
///
/// Each epoch ends at the mean of its points, and the next one begins there. A worker draws from its own samples (the paper
/// draws from all, which a worker does not have); the workers' shares are equal, and the bound is the same.
/// @tparam Float    type of the sent values: float or double; points are kept in double
/// @param transport  this worker's endpoint
/// @param op         operator for updates
/// @returns          the start, then each epoch
/// @source Alistarh et al. 2017 (QSGD), section 3.3
template <class Float, class Transport, class Operator>
std::vector<epoch> run_epochs(Transport& transport, regression const& f, Operator const& op, update how,
                              qsvrg_plan const& plan, int epochs, std::uint64_t seed) {
  auto const size = static_cast<std::size_t>(f.values());
  auto const workers = static_cast<std::size_t>(transport.size());
  share const own(f.samples(), transport.rank(), transport.size());
  globalq::allreduce_mean mean{transport, op, globalq::schedule::allgather{}, {.seed = seed}};
  std::seed_seq seeds{seed, static_cast<std::uint64_t>(transport.rank())};
  std::mt19937_64 draw(seeds);

  std::vector<Float> message(size), messages(size * workers);
  auto const broadcast_mean = [&](VectorXd const& mine) {  // unquantized; added in rank order
    for (std::size_t k = 0; k < size; ++k) message[k] = static_cast<Float>(mine(static_cast<Index>(k)));
    globalq::transport::allgather(transport, std::as_bytes(std::span(message)),
                                  std::as_writable_bytes(std::span(messages)));
    VectorXd sum = VectorXd::Zero(f.values());
    for (std::size_t r = 0; r < workers; ++r)
      for (std::size_t k = 0; k < size; ++k)
        sum(static_cast<Index>(k)) += static_cast<double>(messages[r * size + k]);
    return VectorXd(sum / static_cast<double>(workers));
  };

  VectorXd y = VectorXd::Zero(f.values()), at_y = y;
  std::uint64_t number = 0;  // of the call
  std::vector<epoch> done{{f.gap(y), 0}};
  for (int p = 0; p < epochs; ++p) {
    std::uint64_t const before = transport.bytes_sent();
    if (how == update::variance_reduced) at_y = broadcast_mean(f.gradient(y, own.first, own.count));
    VectorXd x = y, sum = VectorXd::Zero(f.values());
    for (std::uint64_t t = 0; t < plan.iterations; ++t) {
      Index const j = own.first + static_cast<Index>(draw() % static_cast<std::uint64_t>(own.count));
      VectorXd u = f.gradient_of(j, x);
      if (how == update::variance_reduced) u += at_y - f.gradient_of(j, y);
      for (std::size_t k = 0; k < size; ++k) message[k] = static_cast<Float>(u(static_cast<Index>(k)));
      mean(std::span(message), number++);
      sum += x;
      for (std::size_t k = 0; k < size; ++k)
        x(static_cast<Index>(k)) -= plan.step * static_cast<double>(message[k]);
    }
    y = sum / static_cast<double>(plan.iterations);
    done.push_back({transport.rank() == 0 ? f.gap(y) : 0, transport.bytes_sent() - before});
  }
  return done;
}

}  // namespace convex
