// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: one of the schedules, chosen at run time.

#include "../core/error.hpp"
#include "allgather.hpp"
#include "hierarchical.hpp"
#include "native.hpp"
#include "ring.hpp"
#include "scatter_reduce_allgather.hpp"
#include "tree.hpp"

#include <charconv>
#include <string>
#include <string_view>
#include <variant>

namespace GLOBALQ_ABI::schedule {

/// @brief A schedule by its name: ring, tree, sra or scatter_reduce_allgather, allgather, native, or hierarchical with
/// the workers per node: "hierarchical:4" (the last node may have fewer) or "hierarchical:4+2+4".
class any {
 public:
  template <class S>
  requires(!std::is_same_v<std::remove_cvref_t<S>, any> && Schedule<std::remove_cvref_t<S>>) any(S schedule)
      : chosen_(schedule) {}

  /// @throws configuration_error for an unknown name
  explicit any(std::string_view name) {
    if (name == ring::name)
      chosen_ = ring{};
    else if (name == tree::name)
      chosen_ = tree{};
    else if (name == scatter_reduce_allgather::name || name == scatter_reduce_allgather::long_name)
      chosen_ = scatter_reduce_allgather{};
    else if (name == allgather::name)
      chosen_ = allgather{};
    else if (name == native::name)
      chosen_ = native{};
    else if (auto const nodes = nodes_in(name); !nodes.empty())
      chosen_ = name.find('+') == name.npos ? hierarchical<>(nodes[0]) : hierarchical<>(nodes);
    else
      throw configuration_error(
          "globalq: schedule: \"" + std::string(name) +
          "\" is unknown; use ring, tree, sra (or scatter_reduce_allgather), allgather or native, or "
          "hierarchical:4 with nodes of 4 workers, or hierarchical:4+2+4");
  }

  /// The name that constructs it.
  std::string_view text() const {
    return std::visit([](auto const& s) { return detail::text_of(s); }, chosen_);
  }

  globalq::detail::schedule_facts facts(int workers) const {
    return std::visit([&](auto const& s) { return s.facts(workers); }, chosen_);
  }
  int parts(int workers) const {
    return std::visit([&](auto const& s) { return s.parts(workers); }, chosen_);
  }
  void leaves(partition const& cut, int workers, int rank, codec const& c, frame_pool& frames,
              std::vector<unsent>& all) const {
    std::visit([&](auto const& s) { globalq::detail::add_leaves(s, cut, workers, rank, c, frames, all); },
               chosen_);
  }
  std::vector<std::pair<int, int>> additions(int workers) const {
    return std::visit([&](auto const& s) { return s.additions(workers); }, chosen_);
  }

  /// For plans.
  detail::busiest_worker busiest(detail::piece_sizes const& all, int workers,
                                 detail::bytes_before const& before) const {
    return std::visit([&](auto const& s) { return detail::busiest(s, all, workers, before); }, chosen_);
  }

  /// @throws configuration_error for native over a transport that does not add integers itself
  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    std::visit(
        [&]<class S>(S const& s) {
          if constexpr (std::is_same_v<S, native> && !transport::OwnAllreduceSum<T, std::int8_t>)
            throw configuration_error(
                "globalq: schedule native needs a transport that adds integers itself (allreduce_sum); use "
                "schedule ring, tree, sra or allgather with this one");
          else
            s(t, c, cut, frames);
        },
        chosen_);
  }

 private:
  /// The numbers of "hierarchical:4+2+4"; empty for any other text.
  static std::vector<int> nodes_in(std::string_view name) {
    constexpr std::string_view start = "hierarchical:";
    std::vector<int> sizes;
    if (!name.starts_with(start)) return sizes;
    char const *at = name.data() + start.size(), *const end = name.data() + name.size();
    while (at != end) {
      int size = 0;
      auto const [after, error] = std::from_chars(at, end, size);
      if (error != std::errc{} || (after != end && (*after != '+' || after + 1 == end))) return {};
      sizes.push_back(size);
      at = after == end ? end : after + 1;
    }
    return sizes;
  }

  std::variant<ring, tree, scatter_reduce_allgather, allgather, native, hierarchical<>> chosen_;
};

}  // namespace GLOBALQ_ABI::schedule
