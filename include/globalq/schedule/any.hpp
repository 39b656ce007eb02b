// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: one of the schedules, chosen at run time.

#include "../core/error.hpp"
#include "allgather.hpp"
#include "native.hpp"
#include "ring.hpp"
#include "scatter_reduce_allgather.hpp"
#include "tree.hpp"

#include <string>
#include <string_view>
#include <variant>

namespace globalq::schedule {

/// @brief A schedule by its name: ring, tree, sra, allgather or native.
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
    else if (name == scatter_reduce_allgather::name)
      chosen_ = scatter_reduce_allgather{};
    else if (name == allgather::name)
      chosen_ = allgather{};
    else if (name == native::name)
      chosen_ = native{};
    else
      throw configuration_error("globalq: schedule: \"" + std::string(name) +
                                "\" is unknown; use ring, tree, sra, allgather or native");
  }

  globalq::detail::schedule_facts facts(int workers) const {
    return std::visit([&](auto const& s) { return s.facts(workers); }, chosen_);
  }
  int parts(int workers) const {
    return std::visit([&](auto const& s) { return s.parts(workers); }, chosen_);
  }
  std::vector<std::pair<int, int>> additions(int workers) const {
    return std::visit([&](auto const& s) { return s.additions(workers); }, chosen_);
  }

  template <Transport T>
  void operator()(T& t, codec& c, layout const& cut, frame_pool& frames) const {
    std::visit([&](auto const& s) { s(t, c, cut, frames); }, chosen_);
  }

 private:
  std::variant<ring, tree, scatter_reduce_allgather, allgather, native> chosen_;
};

}  // namespace globalq::schedule
