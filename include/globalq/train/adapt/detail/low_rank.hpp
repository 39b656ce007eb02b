// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the approximation error of a matrix for each rank, by subspace iteration and eigenvalues.

#include "../../../core/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// Eigenvalues of a symmetric n x n matrix, descending: cyclic Jacobi rotations.
inline std::vector<double> eigenvalues(std::vector<double> a, std::size_t n) {
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0, on = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) (i == j ? on : off) += a[i * n + j] * a[i * n + j];
    if (!(off > 1e-30 * on)) break;
    for (std::size_t p = 0; p + 1 < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        double const apq = a[p * n + q];
        if (apq == 0) continue;
        double const half = (a[q * n + q] - a[p * n + p]) / (2 * apq);
        double const t = (half >= 0 ? 1.0 : -1.0) / (std::fabs(half) + std::sqrt(half * half + 1));
        double const c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          double const x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y;
          a[k * n + q] = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          double const x = a[p * n + k], y = a[q * n + k];
          a[p * n + k] = c * x - s * y;
          a[q * n + k] = s * x + c * y;
        }
      }
  }
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = a[i * n + i];
  std::sort(values.rbegin(), values.rend());
  return values;
}

/// Makes the r columns of a (n x r, by rows) orthonormal, or zero if they depend on earlier ones; two passes, for
/// accuracy.
inline void orthonormalize(std::vector<double>& a, std::size_t n, std::size_t r) {
  for (std::size_t c = 0; c < r; ++c) {
    double before = 0;
    for (std::size_t i = 0; i < n; ++i) before += a[i * r + c] * a[i * r + c];
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t k = 0; k < c; ++k) {
        double dot = 0;
        for (std::size_t i = 0; i < n; ++i) dot += a[i * r + k] * a[i * r + c];
        for (std::size_t i = 0; i < n; ++i) a[i * r + c] -= dot * a[i * r + k];
      }
    double after = 0;
    for (std::size_t i = 0; i < n; ++i) after += a[i * r + c] * a[i * r + c];
    double const scale = after > 1e-24 * before && after > 0 ? 1 / std::sqrt(after) : 0;
    for (std::size_t i = 0; i < n; ++i) a[i * r + c] *= scale;
  }
}

/// out (n x r) += m (n x k) * b (k x r); with transposed: out (k x r) += m^T * b (n x r).
inline void multiply(float const* m, std::size_t n, std::size_t k, double factor, double const* b,
                     std::size_t r, double* out, bool transposed) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < k; ++j) {
      double const x = static_cast<double>(m[i * k + j]) * factor;
      double const* from = b + (transposed ? i : j) * r;
      double* to = out + (transposed ? j : i) * r;
      for (std::size_t c = 0; c < r; ++c) to[c] += x * from[c];
    }
}

/// @brief min ||M - X||^2 over matrices X of rank k, for k = 0 .. rank, as found by five power steps from fixed
///        directions.
/// @param m  rows x columns, by rows
/// @returns  rank + 1 numbers that do not rise
inline std::vector<double> low_rank_errors(std::span<float const> m, std::size_t rows, std::size_t columns,
                                           std::size_t rank) {
  std::vector<double> errors(rank + 1, 0.0);
  double largest = 0, sum = 0;
  for (float x : m) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  if (largest == 0) return errors;
  double const factor =
      power_of_two(-exponent_of(largest));  // so that squares neither overflow nor underflow
  for (float x : m) sum += static_cast<double>(x) * factor * (static_cast<double>(x) * factor);
  std::size_t const r = std::min({rank, rows, columns});
  std::vector<double> q(columns * r), p, gram(r * r, 0.0);
  std::mt19937 draw(1);
  for (double& x : q) x = static_cast<double>(static_cast<std::int32_t>(draw())) * 0x1p-31;
  for (int step = 0; step < 5 && r > 0; ++step) {
    orthonormalize(q, columns, r);
    p.assign(rows * r, 0.0);
    multiply(m.data(), rows, columns, factor, q.data(), r, p.data(), false);
    orthonormalize(p, rows, r);
    q.assign(columns * r, 0.0);
    multiply(m.data(), rows, columns, factor, p.data(), r, q.data(), true);
  }
  // P has orthonormal columns and Q = M^T P: the squared singular values of P P^T M are the eigenvalues of Q^T Q
  for (std::size_t j = 0; j < columns && r > 0; ++j)
    for (std::size_t a = 0; a < r; ++a)
      for (std::size_t b = 0; b < r; ++b) gram[a * r + b] += q[j * r + a] * q[j * r + b];
  std::vector<double> const found = eigenvalues(std::move(gram), r);
  double rest = sum;
  for (std::size_t k = 0; k <= rank; ++k) {
    errors[k] = (k < std::min(rows, columns) ? std::max(rest, 0.0) : 0.0) / factor / factor;
    if (k < r) rest -= std::max(found[k], 0.0);
  }
  return errors;
}

}  // namespace GLOBALQ_ABI::adapt::detail
