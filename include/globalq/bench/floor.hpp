// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: the floor of a function from bytes to bytes: a copy of them, which no function that reads and writes them beats.

#include "../core/detail/abi.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace GLOBALQ_ABI::bench {

/// @brief Reads all bytes of an input and writes all bytes of an output, by memcpy.
///
/// Works in pieces that fit L1, so that bytes which are read or written once more are there: where the output is smaller, a piece
/// goes through a buffer; where it is larger, it repeats. memcpy is fast whatever flags a program is compiled with.
class copy_floor {
 public:
  /// @param in   bytes to read; any number
  /// @param out  bytes to write; any number, not overlapping with @p in
  copy_floor(std::span<std::byte const> in, std::span<std::byte> out)
      : in_(in),
        out_(out),
        pieces_(std::max<std::uint64_t>(1, (std::max(in.size(), out.size()) + piece - 1) / piece)) {}

  /// Number of pieces, which may be copied by different threads.
  std::uint64_t pieces() const { return pieces_; }

  /// Copies a piece.
  void operator()(std::uint64_t index) const {
    auto const from = in_.subspan(begin(in_.size(), index), count(in_.size(), index));
    auto const to = out_.subspan(begin(out_.size(), index), count(out_.size(), index));
    if (from.size() > to.size()) {
      std::byte through[piece];
      std::memcpy(through, from.data(), from.size());
      std::memcpy(to.data(), through, to.size());
      return;
    }
    if (from.empty()) {
      std::memset(to.data(), 0, to.size());
      return;
    }
    for (std::size_t done = 0; done < to.size();) {  // after the first time from what is in L1
      std::size_t const some = std::min(done == 0 ? from.size() : done, to.size() - done);
      std::memcpy(to.data() + done, done == 0 ? from.data() : to.data(), some);
      done += some;
    }
  }

 private:
  static constexpr std::size_t piece = 16384;

  std::size_t begin(std::size_t bytes, std::uint64_t index) const {
    return bytes / pieces_ * index + std::min<std::uint64_t>(index, bytes % pieces_);
  }
  std::size_t count(std::size_t bytes, std::uint64_t index) const {
    return begin(bytes, index + 1) - begin(bytes, index);
  }

  std::span<std::byte const> in_;
  std::span<std::byte> out_;
  std::uint64_t pieces_;
};

}  // namespace GLOBALQ_ABI::bench
