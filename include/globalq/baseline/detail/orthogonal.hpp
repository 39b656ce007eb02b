// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: products and orthonormal columns with the same bits on every instruction set.
///
/// Factors are float32, so their products are exact in double; sums are in double and in a fixed order. So neither
/// fused multiply-add nor the vector width can change a bit. Matrices are row-major.

#include "../../kernel/executor.hpp"
#include "blocks.hpp"

#include <cmath>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::baseline::detail {

/// Rows of one partial sum of a Gram matrix.
inline constexpr std::uint64_t gram_rows = 256;

/// to[j] += sum over rows of p[row][i] p[row][j], for j <= i.
GLOBALQ_LOOP void add_gram(float const* p, std::uint64_t rows, int rank, double* gram) {
  for (std::uint64_t row = 0; row < rows; ++row) {
    float const* const v = p + row * static_cast<std::uint64_t>(rank);
    for (int i = 0; i < rank; ++i)
      for (int j = 0; j <= i; ++j)
        gram[i * rank + j] += static_cast<double>(v[i]) * static_cast<double>(v[j]);
  }
}

/// P^T P, lower triangle: partial sums of gram_rows rows, added in order.
inline void gram_of(float const* p, std::uint64_t rows, int rank, std::vector<double>& gram,
                    std::vector<double>& part) {
  auto const cells = static_cast<std::size_t>(rank * rank);
  gram.assign(cells, 0.0);
  for (std::uint64_t at = 0; at < rows; at += gram_rows) {
    part.assign(cells, 0.0);
    add_gram(p + at * static_cast<std::uint64_t>(rank), std::min(gram_rows, rows - at), rank, part.data());
    for (std::size_t c = 0; c < cells; ++c) gram[c] += part[c];
  }
}

/// @brief Computes L^-1 of the Gram matrix L L^T, so that P L^-T is orthonormal; rows for columns of P that depend on
/// earlier ones, to 2^-40 of their squares, are zeros.
/// @param whitening  two floats for each double, which hold 48 bits of it: first all upper parts, then all lower ones
/// @param factor, inverse, kept  reused memory
inline void whitening_of(std::span<double const> gram, int rank, std::vector<double>& factor,
                         std::vector<double>& inverse, std::vector<char>& kept,
                         std::vector<float>& whitening) {
  auto const n = static_cast<std::size_t>(rank);
  factor.assign(n * n, 0.0);
  inverse.assign(n * n, 0.0);
  kept.assign(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!kept[j]) continue;
      double sum = gram[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= rounded(factor[i * n + k] * factor[j * n + k]);
      factor[i * n + j] = rounded(sum / factor[j * n + j]);
    }
    double left = gram[i * n + i];
    for (std::size_t k = 0; k < i; ++k) left -= rounded(factor[i * n + k] * factor[i * n + k]);
    kept[i] = left > gram[i * n + i] * 0x1p-40 && left > 0;
    factor[i * n + i] = kept[i] ? std::sqrt(left) : 1.0;
  }
  // inverse of the lower triangular factor, row by row
  for (std::size_t i = 0; i < n; ++i) {
    if (!kept[i]) continue;
    inverse[i * n + i] = 1 / factor[i * n + i];
    for (std::size_t j = 0; j < i; ++j) {
      double sum = 0;
      for (std::size_t k = j; k < i; ++k) sum -= rounded(factor[i * n + k] * inverse[k * n + j]);
      inverse[i * n + j] = rounded(sum / factor[i * n + i]);
    }
  }
  whitening.resize(2 * n * n);
  for (std::size_t c = 0; c < n * n; ++c) {
    whitening[c] = static_cast<float>(inverse[c]);
    whitening[n * n + c] = static_cast<float>(inverse[c] - static_cast<double>(whitening[c]));
  }
}

/// p = p L^-T, row by row, in place.
GLOBALQ_LOOP void whiten(float* p, std::uint64_t rows, int rank, float const* whitening) {
  for (std::uint64_t row = 0; row < rows; ++row) {
    float* const v = p + row * static_cast<std::uint64_t>(rank);
    for (int i = rank; i-- > 0;) {  // from the last column, which needs all earlier ones
      double sum = 0;
      for (int k = 0; k <= i; ++k) {
        sum += static_cast<double>(v[k]) * static_cast<double>(whitening[i * rank + k]);
        sum += static_cast<double>(v[k]) * static_cast<double>(whitening[(rank + i) * rank + k]);
      }
      v[i] = static_cast<float>(sum);
    }
  }
}

/// @brief Makes the columns of a matrix orthonormal, like the Gram-Schmidt process; dependent columns become zero.
///
/// Columns are first scaled by powers of two, so that squares neither overflow nor underflow. Applies the Cholesky
/// factor of the Gram matrix in double twice; columns whose condition is above 10^6 count as dependent.
/// @shape p: rows x rank, row-major
/// @determinism the same bits for any instruction set
/// @source Fukaya et al. 2014 (CholeskyQR2)
class orthogonalizer {
 public:
  void operator()(float* p, std::uint64_t rows, int rank) {
    auto const n = static_cast<std::size_t>(rank);
    top_.assign(n, 0);
    for (std::uint64_t row = 0; row < rows; ++row)
      for (std::size_t i = 0; i < n; ++i)
        top_[i] = std::max(top_[i], bits_of(p[row * n + i]) & float_magnitude);
    for (std::size_t i = 0; i < n; ++i) {
      int const e = top_[i] == 0 ? 0 : exponent_of(static_cast<double>(float_of(top_[i])));
      double const share = power_of_two(-e);
      for (std::uint64_t row = 0; row < rows; ++row)
        p[row * n + i] = static_cast<float>(static_cast<double>(p[row * n + i]) * share);
    }
    for (int pass = 0; pass < 2; ++pass) {
      gram_of(p, rows, rank, gram_, part_);
      whitening_of(gram_, rank, factor_, inverse_, kept_, whitening_);
      whiten(p, rows, rank, whitening_.data());
    }
  }

 private:
  std::vector<std::uint32_t> top_;
  std::vector<double> gram_, part_, factor_, inverse_;
  std::vector<char> kept_;
  std::vector<float> whitening_;
};

/// One row of P Q^T: out[j] = sum over k of p[k] qt[k][j] in double, rounded once.
/// @param qt  Q transposed: rank rows of columns values
GLOBALQ_LOOP void product_row(float const* p, float const* qt, std::uint64_t columns, int rank,
                              std::uint64_t first, std::uint64_t count, float* __restrict out) {
  constexpr std::uint64_t width = 256;
  for (std::uint64_t at = 0; at < count; at += width) {
    double sums[width] = {};
    std::uint64_t const here = count - at < width ? count - at : width;
    for (int k = 0; k < rank; ++k) {
      double const scale = static_cast<double>(p[k]);
      float const* const q = qt + static_cast<std::uint64_t>(k) * columns + first + at;
      for (std::uint64_t j = 0; j < here; ++j) sums[j] += scale * static_cast<double>(q[j]);
    }
    for (std::uint64_t j = 0; j < here; ++j) out[at + j] = static_cast<float>(sums[j]);
  }
}

}  // namespace GLOBALQ_ABI::baseline::detail
