// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule of broadcast: one worker sends each part to another worker, which forwards it to all.

#include "frames.hpp"

namespace GLOBALQ_ABI::schedule::detail {

/// @brief The root sends every part once, to its owner; owners forward their parts. All decode the same bytes, the root too.
/// @complexity bytes sent: S by the root, S (n-2)/(n-1) by each other worker; 2 messages on the longest path; height 0
/// @source Thakur, Rabenseifner, Gropp 2005: scatter and allgather for long messages
class spread {
 public:
  static constexpr bool averages = false;

  explicit spread(int root) : root_(root), name_("broadcast:" + std::to_string(root)) {}

  std::string_view text() const { return name_; }
  /// @throws configuration_error if there is no such root
  globalq::detail::schedule_facts facts(int workers) const {
    if (root_ < 0 || root_ >= workers)
      globalq::detail::fail<configuration_error>({"globalq: broadcast: there is no worker ", root_,
                                                  " whose vector could be sent; pass a root from 0 to ",
                                                  workers - 1});
    globalq::detail::schedule_facts f{name_.c_str(), 0, false, false, false, 0, true, "broadcast"};
    f.chunks_overlap = true;
    return f;
  }
  static int parts(int workers) { return workers > 1 ? workers - 1 : 1; }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }
  segment reads(partition const& cut, int rank) const {
    return rank == root_ ? segment{0, cut.length()} : segment{};
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    int const n = t.size(), r = t.rank(), others = parts(n);
    auto const owner = [&](int part) { return part < root_ ? part : part + 1; };
    auto const frame = [&](std::uint64_t round, int part) {
      return frames.get(static_cast<std::size_t>(part + others * static_cast<int>(round % 2)),
                        c.frame_bytes(cut.piece(part, round), 1));
    };
    bool const batches = c.batches() && c.head_bytes() == 0;
    /// Decodes the parts of a round for which wanted(part).
    auto const finish = [&](std::uint64_t round, auto const& wanted) {
      auto const source_of = [&](int part) {
        return source{used(c, frame(round, part), root_), 1, root_, root_};
      };
      if (batches) {
        std::vector<arrived>& all = frames.arrived_frames(static_cast<std::size_t>(others));
        for (int part = 0; part < others; ++part)
          if (wanted(part)) all.push_back({cut.piece(part, round), source_of(part)});
        return c.finish_all(all);
      }
      for (int part = 0; part < others; ++part) {
        if (!wanted(part)) continue;
        source const one = source_of(part);
        c.finish(cut.piece(part, round), {&one, 1});
      }
    };
    transfers<T> under_way;
    auto const sent = [](std::uint64_t round) { return static_cast<int>(round % 2); };
    if (r == root_) {
      for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
        under_way.wait_all(t, sent(round));
        if (batches) {
          std::vector<unsent>& all = frames.unsent_frames(static_cast<std::size_t>(others));
          for (int part = 0; part < others; ++part)
            all.push_back({cut.piece(part, round), frame(round, part)});
          c.encode_all(all);
        }
        for (int part = 0; part < others; ++part) {
          if (!batches) c.combine(cut.piece(part, round), true, {}, frame(round, part));
          if (n > 1) send_frame(under_way, t, c, owner(part), frame(round, part), sent(round));
        }
        if (c.batches())
          under_way.wait_all(t, sent(round));  // on a stream a wait starts the transfers and blocks nobody
        finish(round, [](int) { return true; });
      }
    } else {
      forward(t, c, cut, r < root_ ? r : r - 1, owner, frame, finish, under_way);
    }
    under_way.wait_all(t, sent(0));
    under_way.wait_all(t, sent(1));
  }

 private:
  /// The rounds of a worker that owns part @p mine.
  template <Transport T, class Owner, class Frame, class Finish>
  void forward(T& t, codec& c, partition const& cut, int mine, Owner const& owner, Frame const& frame,
               Finish const& finish, transfers<T>& under_way) const {
    std::size_t const head = c.head_bytes();
    int const others = parts(t.size()), own = 2, all = 3, rests = 4;
    auto const sent = [](std::uint64_t round) { return static_cast<int>(round % 2); };
    auto const expect = [&](int from, std::span<std::byte> room, int set) {
      under_way.recv(t, from, head == 0 ? room : head_of(room, head), set);
    };
    auto const expect_own = [&](std::uint64_t round) {
      if (round >= cut.rounds()) return;
      under_way.wait_all(t, sent(round));  // of the round before the last, from the same memory
      expect(root_, frame(round, mine), own);
    };
    auto const rest = [&](std::uint64_t round, int part, int from) {
      if (head != 0) recv_rest(under_way, t, c, from, frame(round, part), rests);
    };
    expect_own(0);
    for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
      under_way.wait_all(t, own);
      rest(round, mine, root_);
      under_way.wait_all(t, rests);
      expect_own(round + 1);
      for (int part = 0; part < others; ++part)
        if (part != mine) expect(owner(part), frame(round, part), all);
      for (int k = 1; k < others; ++k) {
        int const to = (mine + k) % others;
        send_frame(under_way, t, c, owner(to), frame(round, mine), sent(round));
      }
      finish(round, [&](int part) { return part == mine; });
      under_way.wait_all(t, all);
      for (int part = 0; part < others; ++part)
        if (part != mine) rest(round, part, owner(part));
      under_way.wait_all(t, rests);
      finish(round, [&](int part) { return part != mine; });
    }
  }

  int root_;
  std::string name_;
};

}  // namespace GLOBALQ_ABI::schedule::detail
