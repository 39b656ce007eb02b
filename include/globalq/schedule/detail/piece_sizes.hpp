// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: counts the bytes of all frames of a call by kinds of pieces instead of piece by piece.
///
/// For plans. A partition has at most four kinds of parts (longer, shorter, truncated, empty), and all chunks of
/// a part except the last are alike. Sums over parts and chunks therefore take a few steps, for any length.

#include "../../core/codec.hpp"
#include "../../core/detail/compiled.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::schedule::detail {

/// a b, saturated.
inline std::uint64_t capped_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  return b != 0 && a > most / b ? most : a * b;
}
/// a + b, saturated.
inline std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) {
  return a + b < a ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

/// Consecutive chunks of a part.
struct chunk_run {
  std::uint64_t rounds = 0;
  std::uint64_t bytes = 0;    ///< of all their frames
  std::uint64_t largest = 0;  ///< of the largest frame
};

/// The sizes of a frame_pool's slots; the first ones, which other exchanges of a call share, individually.
class slot_sizes {
 public:
  static constexpr std::uint64_t shared = 3;

  /// Frames of @p bytes in @p count slots from @p slot on; a slot after the shared ones must be named only once.
  void hold(std::uint64_t slot, std::uint64_t count, std::uint64_t bytes);
  std::uint64_t bytes() const {
    std::uint64_t sum = others_;
    for (std::uint64_t s : first_) sum = capped_sum(sum, s);
    return sum;
  }

 private:
  std::array<std::uint64_t, shared> first_{};
  std::uint64_t others_ = 0;
};

class piece_sizes {
 public:
  /// Consecutive parts whose frames have the same sizes.
  struct part_run {
    int first = 0, count = 0;
    std::uint64_t bytes = 0;  ///< of the frames of one part
    std::vector<chunk_run> chunks;

    /// Bytes of the largest frame among the chunks k, k + period, k + 2 period ...
    std::uint64_t largest(std::uint64_t period, std::uint64_t k) const {
      std::uint64_t most = 0, round = 0;
      for (chunk_run const& c : chunks) {
        if ((k + period - round % period) % period < c.rounds) most = std::max(most, c.largest);
        round += c.rounds;
      }
      return most;
    }
  };

  /// @param by_count  whether the size of a frame depends only on the number of its values
  /// @param frames    frames(piece, rounds): a run of one or more of the next @p rounds chunks, all as long as @p
  ///                  piece, the first
  template <class Frames>
  piece_sizes(partition const& cut, int parts, bool by_count, Frames const& frames)
      : rounds_(cut.rounds()), parts_(parts) {
    std::uint64_t const chunk = cut.piece(0, 0).count;
    for (int p = 0; p < parts;) {
      segment const part = cut.part(p);
      part_run run{p, 1, 0, {}};
      if (by_count || part.empty()) {  // later parts are not longer
        int end = parts;
        for (int from = p + 1; from < end;) {
          int const middle = from + (end - from) / 2;
          if (cut.part(middle).count == part.count)
            from = middle + 1;
          else
            end = middle;
        }
        run.count = end - p;
      }
      for (std::uint64_t at = 0; at < part.count;) {
        segment const piece{part.first + at, std::min(chunk, part.count - at)};
        run.chunks.push_back(frames(piece, (part.count - at) / piece.count));
        run.bytes = capped_sum(run.bytes, run.chunks.back().bytes);
        largest_ = std::max(largest_, run.chunks.back().largest);
        at += run.chunks.back().rounds * piece.count;
      }
      all_ = capped_sum(all_, capped_product(run.bytes, static_cast<std::uint64_t>(run.count)));
      p += run.count;
      runs_.push_back(std::move(run));
    }
  }

  /// For frames whose size depends only on the number of their values.
  /// @param terms  workers in each
  static piece_sizes of(partition const& cut, int parts, codec const& c, int terms = 1) {
    return {cut, parts, true, [&](segment piece, std::uint64_t rounds) {
              std::uint64_t const bytes = c.frame_bytes(piece, terms);
              return chunk_run{rounds, rounds * bytes, bytes};
            }};
  }

  /// The sizes of frames of sums, if they are others.
  void set_sums(piece_sizes sums) { sums_ = std::make_shared<piece_sizes const>(std::move(sums)); }
  piece_sizes const& sums() const { return sums_ == nullptr ? *this : *sums_; }

  std::vector<part_run> const& runs() const { return runs_; }
  int parts() const { return parts_; }
  /// Chunks of the longest part.
  std::uint64_t rounds() const { return rounds_; }
  /// Bytes of all frames.
  std::uint64_t all() const { return all_; }
  /// Bytes of the largest frame.
  std::uint64_t largest() const { return largest_; }
  /// Bytes of the frames of a part.
  std::uint64_t of(int part) const { return run_of(part).bytes; }
  part_run const& run_of(int part) const;

  /// Workers whose slots may be the largest, if each owns a part: all, or, of more than 64, the first ones, the last
  /// one and those of the largest pieces.
  std::vector<int> owners_to_ask(int workers) const;

  /// Upper bound for slots @p first to @p first + @p count if each piece is in at most @p times of them.
  void hold_largest(std::uint64_t first, std::uint64_t count, std::uint64_t times, slot_sizes& slots) const;

 private:
  std::uint64_t rounds_, all_ = 0, largest_ = 0;
  int parts_;
  std::vector<part_run> runs_;
  std::shared_ptr<piece_sizes const> sums_;
};

/// Bytes of a call before its schedule runs, for example of norms of buckets, whose frames are in the shared slots.
struct bytes_before {
  virtual ~bytes_before() = default;
  virtual std::uint64_t sent(int rank) const = 0;
  virtual slot_sizes slots(int rank) const = 0;
};

/// Bytes that the busiest workers send and hold.
struct busiest_worker {
  std::uint64_t sent = 0, held = 0;

  void sends(std::uint64_t bytes) { sent = std::max(sent, bytes); }
  void holds(slot_sizes const& slots) { held = std::max(held, slots.bytes()); }
};

/// A schedule that reports the bytes that a worker sends and holds.
template <class S>
concept SaysBytes = requires(S const& schedule, piece_sizes const& all, slot_sizes& slots) {
  { schedule.sent(all, 2, 0) } -> std::same_as<std::uint64_t>;
  schedule.hold(all, 2, 0, slots);
};
/// A schedule that reports the bytes of the busiest workers.
template <class S>
concept SaysBusiest = requires(S const& schedule, piece_sizes const& all, bytes_before const& before) {
  { schedule.busiest(all, 2, before) } -> std::same_as<busiest_worker>;
};

/// @complexity O(n)
template <class S>
requires SaysBytes<S> || SaysBusiest<S> busiest_worker busiest(S const& schedule, piece_sizes const& all,
                                                               int workers, bytes_before const& before) {
  if constexpr (SaysBusiest<S>) {
    return schedule.busiest(all, workers, before);
  } else {
    busiest_worker most;
    for (int r = 0; r < workers; ++r) most.sends(capped_sum(before.sent(r), schedule.sent(all, workers, r)));
    for (int r : all.owners_to_ask(workers)) {
      slot_sizes slots = before.slots(r);
      schedule.hold(all, workers, r, slots);
      most.holds(slots);
    }
    return most;
  }
}

}  // namespace GLOBALQ_ABI::schedule::detail

#if !defined(GLOBALQ_COMPILED)
#include "piece_sizes-inl.hpp"
#endif
