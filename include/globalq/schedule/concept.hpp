// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: who sends which frame to whom; written once for every transport and every operator.
///
/// A schedule is a value with
/// - `static constexpr char const* name`,
/// - `facts(workers)`: its height, and what it asks of an operator,
/// - `parts(workers)`: into how many segments a vector is cut,
/// - `additions(workers)`: the additions in order, (into, from); what variance bounds are computed from,
/// - `operator()(transport, codec, layout, frame_pool)`: the collective itself, for any Transport.
/// It sees bytes only. Every worker runs the same code with its own rank; a frame is finished by the worker that
/// combined it and by all others from the same bytes, so all results are bit-identical.

#include "../core/codec.hpp"
#include "../detail/resolve.hpp"
#include "../transport/concept.hpp"

#include <utility>
#include <vector>

namespace globalq {

template <class S>
concept Schedule = requires(S const& schedule, int workers) {
  { schedule.facts(workers) } -> std::same_as<detail::schedule_facts>;
  { schedule.parts(workers) } -> std::same_as<int>;
  { schedule.additions(workers) } -> std::same_as<std::vector<std::pair<int, int>>>;
};

namespace schedule::detail {

/// Nothing is sent for an empty frame; both sides know.
template <Transport T>
typename T::request send(T& t, int to, std::span<std::byte const> frame) {
  return frame.empty() ? typename T::request{} : t.send_async(to, frame);
}
template <Transport T>
typename T::request recv(T& t, int from, std::span<std::byte> frame) {
  return frame.empty() ? typename T::request{} : t.recv_async(from, frame);
}

/// Transfers under way, in memory that the next call reuses. Leaving the scope by an exception gives them up.
template <Transport T>
class transfers {
 public:
  transfers() { list().clear(); }
  ~transfers() { list().clear(); }
  transfers(transfers const&) = delete;
  transfers& operator=(transfers const&) = delete;

  void send(T& t, int to, std::span<std::byte const> frame) { list().push_back(detail::send(t, to, frame)); }
  void recv(T& t, int from, std::span<std::byte> frame) { list().push_back(detail::recv(t, from, frame)); }
  std::size_t size() const { return list().size(); }
  void wait(T& t, std::size_t i) { t.wait(list()[i]); }
  void wait_all(T& t) {
    for (auto& q : list()) t.wait(q);
    list().clear();
  }

 private:
  static std::vector<typename T::request>& list() {
    thread_local std::vector<typename T::request> requests;
    return requests;
  }
};

/// One worker after the other joins the sum.
inline std::vector<std::pair<int, int>> chain(int workers) {
  std::vector<std::pair<int, int>> order;
  for (int r = 1; r < workers; ++r) order.emplace_back(0, r);
  return order;
}

}  // namespace schedule::detail
}  // namespace globalq
