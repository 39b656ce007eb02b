// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the named state that a worker keeps between steps, as bytes for a checkpoint.

#include "arithmetic.hpp"
#include "error.hpp"

#include <algorithm>
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

namespace GLOBALQ_ABI {

/// @brief Named arrays of float32 numbers of one worker, with its rank and the number of workers.
///
/// Bytes: "globalqS", version (4 bytes), workers, rank (4 each), entries (8); an entry is the length of its name (4),
/// the name, its count of numbers (8) and the numbers; a checksum (8) is last. Little endian.
class saved_state {
 public:
  saved_state() = default;
  /// @throws configuration_error if there is no such worker
  saved_state(int workers, int rank) : workers_(workers), rank_(rank) {
    if (workers < 1 || rank < 0 || rank >= workers)
      throw configuration_error("globalq: saved_state: there is no worker " + std::to_string(rank) + " of " +
                                std::to_string(workers) + "; ranks are 0 to n - 1");
  }

  int workers() const { return workers_; }
  int rank() const { return rank_; }
  std::size_t size() const { return entries_.size(); }

  void put(std::string const& key, std::span<float const> numbers) {
    entries_.insert_or_assign(key, std::vector<float>(numbers.begin(), numbers.end()));
  }

  bool contains(std::string const& key) const { return entries_.contains(key); }
  /// @brief The count of numbers of a name; 0 if there is no such entry.
  std::uint64_t count(std::string const& key) const {
    auto const found = entries_.find(key);
    return found == entries_.end() ? 0 : found->second.size();
  }

  /// @brief Returns the numbers of a name.
  /// @throws frame_error if there is no such entry, or it has another count
  std::span<float const> get(std::string const& key, std::uint64_t count) const {
    auto const found = entries_.find(key);
    if (found == entries_.end())
      throw frame_error("globalq: saved_state: entry \"" + key + "\" is missing among " +
                        std::to_string(entries_.size()) + "; load a state saved with the same layers");
    if (found->second.size() != count)
      throw frame_error("globalq: saved_state: entry \"" + key + "\" has " +
                        std::to_string(found->second.size()) + " numbers instead of " +
                        std::to_string(count) + "; load a state saved with the same layers");
    return found->second;
  }

  /// @brief Adds the entries of another state of the same worker, for example of other layers.
  /// @throws configuration_error for another worker's state, or a name that both have; nothing is changed then
  void add(saved_state const& other) {
    if (other.workers_ != workers_ || other.rank_ != rank_)
      throw configuration_error("globalq: saved_state: a state of worker " + std::to_string(other.rank_) +
                                " of " + std::to_string(other.workers_) + " cannot be added to that of " +
                                std::to_string(rank_) + " of " + std::to_string(workers_) +
                                "; add states of one worker");
    for (auto const& [key, numbers] : other.entries_)
      if (entries_.contains(key))
        throw configuration_error("globalq: saved_state: two states have \"" + key +
                                  "\"; add states of different layers");
    auto all = other.entries_;
    all.merge(entries_);
    entries_ = std::move(all);
  }

  /// @brief The state of this worker as another rank of other workers: of one that stays when some leave or join.
  ///
  /// It keeps its own residuals, unlike a checkpoint's of another number of workers, so it needs no state of those that left.
  /// Those that join begin without residuals.
  /// @throws configuration_error if an entry belongs to all workers, such as PowerSGD's matrices, which those that join lack
  saved_state moved(int workers, int rank) const {
    saved_state s(workers, rank);
    for (auto const& [key, numbers] : entries_)
      if (!key.starts_with("residual") && !key.starts_with("error/"))
        throw configuration_error("globalq: saved_state: \"" + key +
                                  "\" belongs to all workers, and those that join lack it; begin without "
                                  "states, or use another compressor");
    s.entries_ = entries_;
    return s;
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
  static saved_state parse(std::span<std::byte const> bytes) {
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
    saved_state s(static_cast<int>(workers), static_cast<int>(rank));
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
    throw frame_error("globalq: saved_state: " + why + "; load all bytes of a state that save() wrote");
  }

  int workers_ = 1, rank_ = 0;
  std::map<std::string, std::vector<float>> entries_;
};

/// @brief The states of one checkpoint, for a worker that continues.
///
/// With as many workers as saved it, each reads its own numbers, bit for bit. With another number every worker reads the
/// mean of all old workers' numbers (added in double in rank order): that keeps the mean of residuals, which is what
/// enters the mean of vectors that all workers contribute to; of all ways to do so it has the least sum of squares, and all
/// new workers are alike.
class checkpoint {
 public:
  /// @param saved      the worker's own state, or the states of all old workers in any order; kept by reference
  /// @param workers    the current number of workers
  /// @param operation  for errors: "allreduce_mean::load"
  /// @throws configuration_error if there is no such worker, or a worker's state is missing or occurs twice
  checkpoint(std::span<saved_state const> saved, int workers, int rank, std::string_view operation) {
    saved_state const self(workers, rank);  // throws if there is no such rank
    std::string const who = "globalq: " + std::string(operation) + ": ";
    if (saved.empty()) throw configuration_error(who + "there is no state; pass a saved one");
    int const before = saved[0].workers();
    for (saved_state const& s :
         saved) {  // the length of the list does not depend on the claimed number of workers
      if (s.workers() != before)
        throw configuration_error(who + "states of " + std::to_string(before) + " and of " +
                                  std::to_string(s.workers()) + " workers; load states of one checkpoint");
      of_.push_back(&s);
    }
    std::sort(of_.begin(), of_.end(),
              [](saved_state const* a, saved_state const* b) { return a->rank() < b->rank(); });
    for (std::size_t k = 1; k < of_.size(); ++k)
      if (of_[k]->rank() == of_[k - 1]->rank())
        throw configuration_error(who + "the state of worker " + std::to_string(of_[k]->rank()) +
                                  " occurs twice; load each state once");
    bool const same = before == workers;
    if (same) std::erase_if(of_, [&](saved_state const* s) { return s->rank() != rank; });
    int const first = same ? rank : 0, end = same ? rank + 1 : before;
    for (int r = first; r < end; ++r) {
      auto const k = static_cast<std::size_t>(r - first);
      if (k == of_.size() || of_[k]->rank() != r)
        throw configuration_error(
            who + "the state of worker " + std::to_string(r) + " of " + std::to_string(before) +
            " is missing; " +
            (same ? "load the state of this rank" : "another number of workers needs all states"));
    }
  }

  /// The worker's own state, or that of the first old worker.
  saved_state const& own() const { return *of_[0]; }
  /// The worker's own state, or those of all old workers in rank order.
  std::span<saved_state const* const> all() const { return of_; }

  /// @throws frame_error if an old worker has no such entry, or it has another count
  void read(std::string const& key, std::span<float> to) const {
    if (of_.size() == 1) {
      auto const from = own().get(key, to.size());
      std::copy(from.begin(), from.end(), to.begin());
      return;
    }
    std::vector<double> sums(to.size());
    for (saved_state const* s : of_) {
      auto const from = s->get(key, to.size());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(from[i]);
    }
    for (std::size_t i = 0; i < sums.size(); ++i)
      to[i] = static_cast<float>(sums[i] / static_cast<double>(of_.size()));
  }

 private:
  std::vector<saved_state const*> of_;  ///< by rank
};

}  // namespace GLOBALQ_ABI
