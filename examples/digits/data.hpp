// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Data: images of digits from a CSV file to standardized batches, the same on every worker.

#include <Eigen/Dense>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace digits {

inline constexpr int num_pixels = 64;
inline constexpr int num_classes = 10;

/// @brief Images, one per column, and the digit that each shows.
/// @shape pixels: num_pixels x count; labels: count
struct pictures {
  Eigen::MatrixXf pixels;
  std::vector<int> labels;

  [[nodiscard]] Eigen::Index count() const noexcept { return pixels.cols(); }
};

/// @brief The images for training and those for evaluation; they are disjoint.
struct dataset {
  pictures train;
  pictures test;
};

/// @brief A permutation of 0 .. count-1, drawn with std::mt19937_64: the same with every standard library.
/// @complexity   O(count)
/// @determinism  a pure function of its arguments
inline std::vector<std::size_t> permutation(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 bits{seed};
  for (std::size_t left = count; left > 1; --left) std::swap(order[left - 1], order[bits() % left]);
  return order;
}

/// @brief The chosen columns, in the order of their indices.
inline pictures select(pictures const& from, std::vector<std::size_t> const& indices) {
  pictures chosen;
  chosen.pixels.resize(from.pixels.rows(), static_cast<Eigen::Index>(indices.size()));
  chosen.labels.reserve(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    chosen.pixels.col(static_cast<Eigen::Index>(i)) = from.pixels.col(static_cast<Eigen::Index>(indices[i]));
    chosen.labels.push_back(from.labels[indices[i]]);
  }
  return chosen;
}

/// @brief Reads lines of 64 pixels (0 .. 16) and a digit (0 .. 9), separated by commas.
/// @throws std::runtime_error  names the file and the line that cannot be read
inline pictures read_pictures(std::string const& path) {
  std::ifstream file{path};
  if (!file) throw std::runtime_error{"digits: cannot open " + path + "; name the data file with --data"};

  std::vector<float> pixels;
  pictures result;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    auto const fail = [&] {
      throw std::runtime_error{"digits: " + path + ", line " + std::to_string(number) +
                               ": expected 64 pixels from 0 to 16 and a digit, separated by commas"};
    };
    char const* at = line.data();
    char const* const end = at + line.size();
    for (int field = 0; field <= num_pixels; ++field) {
      int value = -1;
      auto const [next, status] = std::from_chars(at, end, value);
      if (status != std::errc{} || value < 0 || value > (field < num_pixels ? 16 : num_classes - 1)) fail();
      if (field < num_pixels) {
        if (next == end || *next != ',') fail();
        pixels.push_back(static_cast<float>(value));
        at = next + 1;
      } else {
        result.labels.push_back(value);
      }
    }
  }
  if (result.labels.empty()) throw std::runtime_error{"digits: " + path + " holds no pictures"};
  result.pixels = Eigen::Map<Eigen::MatrixXf const>(pixels.data(), num_pixels,
                                                    static_cast<Eigen::Index>(result.labels.size()));
  return result;
}

/// @brief Splits into train and test, with the same share of every digit in both, then centers and scales the pixels.
///
/// Each pixel is centered by its own mean; one standard deviation scales them all, so that pixels that are rarely lit
/// stay unimportant. Mean and deviation are those of the training images.
/// @param all         every picture
/// @param test_share  share of each digit that goes to test; dimensionless, in (0, 1)
/// @param seed        of the shuffle before the split
/// @determinism       a pure function of its arguments
inline dataset split_and_standardize(pictures const& all, double test_share, std::uint64_t seed) {
  std::array<std::vector<std::size_t>, num_classes> by_digit;
  for (std::size_t i : permutation(all.labels.size(), seed))
    by_digit[static_cast<std::size_t>(all.labels[i])].push_back(i);

  std::vector<std::size_t> train, test;
  for (auto const& members : by_digit) {
    auto const cut =
        static_cast<std::ptrdiff_t>(std::lround(test_share * static_cast<double>(members.size())));
    test.insert(test.end(), members.begin(), members.begin() + cut);
    train.insert(train.end(), members.begin() + cut, members.end());
  }

  dataset result{select(all, train), select(all, test)};
  Eigen::VectorXf const mean = result.train.pixels.rowwise().mean();
  result.train.pixels.colwise() -= mean;
  result.test.pixels.colwise() -= mean;
  float const deviation = std::sqrt(result.train.pixels.array().square().mean());
  if (deviation > 0.0F) {
    result.train.pixels /= deviation;
    result.test.pixels /= deviation;
  }
  return result;
}

/// @brief Deals batches: the training images in a new random order each epoch, without a gap between epochs.
///
/// In a step the workers take adjacent pieces of `batch` images each, so together they process the same images as one
/// worker with a batch of workers * batch.
class batch_dealer {
 public:
  /// @pre train has at least one picture, and outlives the dealer; batch >= 1
  batch_dealer(pictures const& train, std::size_t batch, int worker, int num_workers, std::uint64_t seed)
      : train_{&train},
        batch_{batch},
        worker_{static_cast<std::uint64_t>(worker)},
        num_workers_{static_cast<std::uint64_t>(num_workers)},
        seed_{seed} {}

  /// @brief This worker's images of a step.
  /// @determinism a pure function of the constructor's arguments and the step
  pictures deal(std::uint64_t step) {
    auto const count = static_cast<std::uint64_t>(train_->count());
    std::uint64_t const first = (step * num_workers_ + worker_) * batch_;
    std::vector<std::size_t> indices(batch_);
    for (std::size_t i = 0; i < batch_; ++i) {
      std::uint64_t const epoch = (first + i) / count;
      if (order_.empty() || epoch != epoch_) {
        order_ = permutation(count, seed_ + 0x9e3779b97f4a7c15U * (epoch + 1));
        epoch_ = epoch;
      }
      indices[i] = order_[(first + i) % count];
    }
    return select(*train_, indices);
  }

 private:
  pictures const* train_;
  std::size_t batch_;
  std::uint64_t worker_, num_workers_, seed_;
  std::uint64_t epoch_ = 0;
  std::vector<std::size_t> order_;
};

}  // namespace digits
