// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: the named state that a worker keeps between steps, as bytes for a checkpoint.

#include "../core/arithmetic.hpp"
#include "../core/error.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::baseline {

/// @brief Named arrays of float32 numbers of one worker, with its rank and the number of workers.
///
/// Bytes: "globalqS", version (4 bytes), workers, rank (4 each), entries (8); an entry is the length of its name (4),
/// the name, its count of numbers (8) and the numbers; a checksum (8) is last. Little endian.
class state {
 public:
  state() = default;
  /// @throws configuration_error if there is no such worker
  state(int workers, int rank) : workers_(workers), rank_(rank) {
    if (workers < 1 || rank < 0 || rank >= workers)
      throw configuration_error("globalq: baseline::state: there is no worker " + std::to_string(rank) +
                                " of " + std::to_string(workers) + "; ranks are 0 to n - 1");
  }

  int workers() const { return workers_; }
  int rank() const { return rank_; }
  std::size_t size() const { return entries_.size(); }

  void put(std::string const& key, std::span<float const> numbers) {
    entries_.insert_or_assign(key, std::vector<float>(numbers.begin(), numbers.end()));
  }

  bool contains(std::string const& key) const { return entries_.contains(key); }

  /// @brief Returns the numbers of a name.
  /// @throws frame_error if there is no such entry, or it has another count
  std::span<float const> get(std::string const& key, std::uint64_t count) const {
    auto const found = entries_.find(key);
    if (found == entries_.end())
      throw frame_error("globalq: baseline::state: entry \"" + key + "\" is missing among " +
                        std::to_string(entries_.size()) + "; load a state saved with the same layers");
    if (found->second.size() != count)
      throw frame_error("globalq: baseline::state: entry \"" + key + "\" has " +
                        std::to_string(found->second.size()) + " numbers instead of " +
                        std::to_string(count) + "; load a state saved with the same layers");
    return found->second;
  }

  /// @brief Adds the entries of another state of the same worker, for example of other layers.
  /// @throws configuration_error for another worker's state, or a name that both have; nothing is changed then
  void add(state const& other) {
    if (other.workers_ != workers_ || other.rank_ != rank_)
      throw configuration_error("globalq: baseline::state: a state of worker " + std::to_string(other.rank_) +
                                " of " + std::to_string(other.workers_) + " cannot be added to that of " +
                                std::to_string(rank_) + " of " + std::to_string(workers_) +
                                "; add states of one worker");
    for (auto const& [key, numbers] : other.entries_)
      if (entries_.contains(key))
        throw configuration_error("globalq: baseline::state: two states have \"" + key +
                                  "\"; add states of different layers");
    auto all = other.entries_;
    all.merge(entries_);
    entries_ = std::move(all);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    auto const put_bytes = [&](void const* from, std::size_t n) {
      auto const* const b = static_cast<std::byte const*>(from);
      out.insert(out.end(), b, b + n);
    };
    auto const put_number = [&](auto v) { put_bytes(&v, sizeof v); };
    put_bytes(magic.data(), magic.size());
    put_number(version);
    put_number(static_cast<std::uint32_t>(workers_));
    put_number(static_cast<std::uint32_t>(rank_));
    put_number(static_cast<std::uint64_t>(entries_.size()));
    for (auto const& [key, numbers] : entries_) {
      put_number(static_cast<std::uint32_t>(key.size()));
      put_bytes(key.data(), key.size());
      put_number(static_cast<std::uint64_t>(numbers.size()));
      put_bytes(numbers.data(), numbers.size() * sizeof(float));
    }
    put_number(checksum(out));
    return out;
  }

  /// @brief Parses the output of bytes(). Safe for untrusted bytes: every length is checked before it is used.
  /// @throws frame_error if bytes are corrupt, of another version, or contain NaN or infinity
  static state parse(std::span<std::byte const> bytes) {
    if (bytes.size() < magic.size() + 28 || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
      refuse("the bytes do not begin with the header of a state");
    std::size_t const end = bytes.size() - sizeof(std::uint64_t);
    std::size_t at = magic.size();
    auto const take = [&](void* to, std::uint64_t n, std::size_t limit) {
      if (n > limit - at) refuse("the bytes end too early");
      if (n != 0) std::memcpy(to, bytes.data() + at, n);
      at += n;
    };
    auto const number = [&]<class N>(N v) {
      take(&v, sizeof v, end);
      return v;
    };
    if (number(std::uint32_t{}) != version) refuse("the bytes are of another version");
    std::uint32_t const workers = number(std::uint32_t{}), rank = number(std::uint32_t{});
    std::uint64_t sum = 0;
    std::memcpy(&sum, bytes.data() + end, sizeof sum);
    if (sum != checksum(bytes.first(end))) refuse("the checksum differs, the bytes are corrupt or truncated");
    if (workers == 0 || workers > 0x7fffffffU || rank >= workers)
      refuse("there is no worker " + std::to_string(rank) + " of " + std::to_string(workers));
    state s(static_cast<int>(workers), static_cast<int>(rank));
    for (std::uint64_t left = number(std::uint64_t{}); left != 0; --left) {
      std::uint32_t const length = number(std::uint32_t{});
      if (length > end - at) refuse("a name is longer than the remaining bytes");
      std::string key(length, '\0');
      take(key.data(), length, end);
      std::uint64_t const count = number(std::uint64_t{});
      if (count > (end - at) / sizeof(float)) refuse("\"" + key + "\" has more numbers than bytes remain");
      std::vector<float> numbers(count);
      take(numbers.data(), count * sizeof(float), end);
      for (float v : numbers)
        if (!is_finite(v)) refuse("\"" + key + "\" contains NaN or infinity");
      if (!s.entries_.emplace(std::move(key), std::move(numbers)).second) refuse("a name occurs twice");
    }
    if (at != end) refuse("bytes follow after the last entry");
    return s;
  }

 private:
  static_assert(std::endian::native == std::endian::little, "globalq: states are written in little endian");
  static constexpr std::string_view magic = "globalqS";
  static constexpr std::uint32_t version = 1;

  /// FNV-1a over words of 8 bytes: detects accidental damage, not manipulation.
  static std::uint64_t checksum(std::span<std::byte const> bytes) {
    std::uint64_t h = 0xcbf29ce484222325ULL;
    std::size_t at = 0;
    while (at < bytes.size()) {
      std::uint64_t word = 0;
      std::size_t const n = bytes.size() - at < 8 ? bytes.size() - at : 8;
      std::memcpy(&word, bytes.data() + at, n);
      h = (h ^ word) * 0x100000001b3ULL;
      h ^= h >> 32;
      at += n;
    }
    return h;
  }

  [[noreturn]] static void refuse(std::string const& why) {
    throw frame_error("globalq: baseline::state: " + why + "; load all bytes of a state that save() wrote");
  }

  int workers_ = 1, rank_ = 0;
  std::map<std::string, std::vector<float>> entries_;
};

}  // namespace GLOBALQ_ABI::baseline
