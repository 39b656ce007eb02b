// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Text as training data: bytes of a file, the last tenth held out.

#include <torch/torch.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace language_model {

/// A batch of pieces of text: the input, and the byte that follows each.
/// @shape both: batch x context
struct batch {
  torch::Tensor input, next;
};

/// @brief Symbols of a text to draw pieces from; the last tenth is held out.
template <class Symbol>
class sequence {
 public:
  /// @param unit  of a symbol, for messages
  sequence(std::vector<Symbol> symbols, std::string unit)
      : symbols_(std::move(symbols)),
        unit_(std::move(unit)),
        held_out_(symbols_.size() - symbols_.size() / 10) {}

  std::size_t size() const { return symbols_.size(); }

  /// @brief Pieces from the first nine tenths; the same for the same seed.
  batch draw(std::uint64_t seed, std::int64_t count, std::int64_t context) const {
    return pieces(seed, count, context, 0, held_out_);
  }
  /// @brief Pieces from the last tenth.
  batch draw_held_out(std::uint64_t seed, std::int64_t count, std::int64_t context) const {
    return pieces(seed, count, context, held_out_, symbols_.size());
  }

 private:
  batch pieces(std::uint64_t seed, std::int64_t count, std::int64_t context, std::size_t from,
               std::size_t to) const {
    auto const need = static_cast<std::size_t>(context) + 1;
    if (to - from < need)
      throw std::runtime_error{"language_model: the text has " + std::to_string(symbols_.size()) + " " +
                               unit_ + ", too few for a context of " + std::to_string(context) +
                               "; give more by --text"};
    std::mt19937_64 draw{seed};
    batch b{torch::empty({count, context}, torch::kLong), torch::empty({count, context}, torch::kLong)};
    auto input = b.input.accessor<std::int64_t, 2>(), next = b.next.accessor<std::int64_t, 2>();
    for (std::int64_t k = 0; k < count; ++k) {
      std::size_t const at = from + draw() % (to - from - need + 1);
      for (std::int64_t i = 0; i < context; ++i) {
        input[k][i] = symbols_[at + static_cast<std::size_t>(i)];
        next[k][i] = symbols_[at + static_cast<std::size_t>(i) + 1];
      }
    }
    return b;
  }

  std::vector<Symbol> symbols_;
  std::string unit_;
  std::size_t held_out_;
};

inline std::string contents_of(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw std::runtime_error{"language_model: cannot read " + path + "; give a text by --text"};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// @brief The bytes of files.
class text : public sequence<std::uint8_t> {
 public:
  static constexpr std::int64_t symbols = 128;  ///< bytes above 127 become '?'

  explicit text(std::vector<std::string> const& paths) : sequence(bytes_of(paths), "bytes") {}

 private:
  static std::vector<std::uint8_t> bytes_of(std::vector<std::string> const& paths) {
    std::vector<std::uint8_t> bytes;
    for (std::string const& path : paths)
      for (char const c : contents_of(path)) {
        auto const byte = static_cast<unsigned char>(c);
        bytes.push_back(byte < symbols ? byte : '?');
      }
    return bytes;
  }
};

}  // namespace language_model
