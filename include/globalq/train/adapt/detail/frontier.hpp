// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the cheapest choice within a budget, exactly: searches the sums that no other sum beats, pruned by a
///        bound.
///
/// A dynamic program without a grid keeps for the first k layers the pairs (error, cost) that no other pair beats in
/// both. Most of them cannot lead to the optimum: with a price lambda on error, the remaining layers cost at least
/// sum min_c(cost + lambda error) - lambda (the remaining budget), which takes one number for each layer. The search
/// drops pairs whose bound exceeds the best choice known; few remain. Errors are integers in units of 2^-60 of the
/// budget's power of two, exact if an error is at least 2^-8 of it. Rounded down, every choice within the budget stays
/// within it, so the lower bound holds for the table, but a choice that the search finds may exceed the budget by less
/// than a unit for each layer. Rounded up, every choice found is within the budget, but the bound need not hold.

#include "../choices.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// How errors are rounded to integers.
enum class unit_rounding { down, up };

/// The result of a search, for the rounded errors.
struct frontier_result {
  std::vector<std::uint32_t> choices;  ///< the best found; empty if none is cheaper than the known one
  double lower_bound = 0;              ///< on the cost of any choice
  bool complete = false;               ///< no choice is cheaper by more than the tolerance
  std::uint64_t states = 0;            ///< pairs that were kept
};

/// Searches the pairs of error and cost.
class frontier {
 public:
  /// @param known      the cost of a choice that is known already
  /// @param tolerance  the search ignores choices that are cheaper by less than this share
  frontier(choice_table const& table, double budget, double known, double tolerance, unit_rounding errors)
      : table_(table), known_(known), tolerance_(tolerance) {
    prepare(budget, errors);
  }

  /// The largest cost that makes a choice worth searching for, if another one of @p cost is known.
  double worth(double cost) const { return cost - cost * tolerance_ - margin_; }

  /// @param most  pairs to keep in a pass over the layers; of more, those of the best bounds are kept. 0: only the
  ///              bound
  frontier_result solve(std::uint64_t most) {
    frontier_result r;
    if (room_ < 0) {  // rounding up left no room: the known choice stays
      for (auto const& l : layers_) r.lower_bound += l.options.back().cost;
      return r;
    }
    price();
    // narrow passes first: a good choice prunes more of the next pass
    std::uint64_t const widest = std::max<std::uint64_t>(2, most / std::max<std::size_t>(1, layers_.size()));
    for (std::uint64_t width = std::min<std::uint64_t>(64, widest); most > 0;
         width = std::min(8 * width, widest)) {
      r.complete = search(width, r);
      if (r.complete || width == widest) break;
    }
    r.lower_bound = std::max(0.0, bound_ - margin_);
    if (r.complete) r.lower_bound = std::max(r.lower_bound, worth(known_));
    r.choices = best_;
    return r;
  }

 private:
  struct option {
    double cost;
    std::int64_t error;  // beyond the smallest of the layer
    std::uint32_t number;
    double priced = 0;  // cost + lambda error, beyond the smallest of the layer
  };
  struct choices_of_layer {
    std::size_t layer;
    std::vector<option> options;  // by error, ascending; costs descend
    std::size_t favorite = 0;     // the option that is cheapest at the price
    double second = 0;            // the extra cost of the next option at the price
  };
  struct state {
    double cost;
    std::int64_t error;
    std::uint32_t node;
  };
  struct node {
    std::uint32_t parent, option;
  };

  void prepare(double budget, unit_rounding errors) {
    int const e = budget == 0 ? 0 : exponent_of(budget);
    // 2^60 steps in the budget's power of two: the budget itself is an integer number of them
    auto const units = [&](double error) {
      double const scaled = std::ldexp(error, -e);
      double const count = std::ldexp(scaled, 60);
      if (errors == unit_rounding::down) return static_cast<std::int64_t>(std::floor(count));
      return error > 0 ? std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(count)), 1) : 0;
    };
    room_ = units(budget);
    double largest = 0;
    for (std::size_t l = 0; l < table_.size(); ++l) {
      choices_of_layer here;
      here.layer = l;
      for (std::uint32_t c = 0; c < table_[l].size(); ++c) {
        if (!(table_[l][c].error <= budget)) continue;
        here.options.push_back({table_[l][c].cost, units(table_[l][c].error), c});
      }
      if (here.options.empty()) {
        room_ = -1;
        here.options.push_back({0, 0, 0});
      }
      std::sort(here.options.begin(), here.options.end(), [&](option const& a, option const& b) {
        if (a.error != b.error) return a.error < b.error;
        if (a.cost != b.cost) return a.cost < b.cost;
        return table_[l][a.number].error < table_[l][b.number].error;  // before rounding
      });
      std::size_t kept = 1;
      for (std::size_t k = 1; k < here.options.size(); ++k)
        if (here.options[k].cost < here.options[kept - 1].cost) here.options[kept++] = here.options[k];
      here.options.resize(kept);
      largest += here.options.front().cost;
      std::int64_t const least = here.options.front().error;
      if (room_ >= 0) room_ = room_ >= least ? room_ - least : -1;
      for (option& o : here.options) o.error -= least;
      layers_.push_back(std::move(here));
    }
    margin_ = largest * 1e-12;
  }

  /// The price of error at which layers, each chosen separately, just fill the budget; and the choice that follows.
  void price() {
    struct step {
      std::size_t layer, from, to;
      double slope;
    };
    std::vector<step> steps;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      auto const& o = layers_[i].options;
      for (std::size_t from = 0; from + 1 < o.size();) {  // the lower convex hull
        std::size_t to = from + 1;
        double steepest = slope(o[from], o[to]);
        for (std::size_t k = to + 1; k < o.size(); ++k)
          if (double const s = slope(o[from], o[k]); s >= steepest) steepest = s, to = k;
        steps.push_back({i, from, to, steepest});
        from = to;
      }
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](step const& a, step const& b) { return a.slope > b.slope; });
    std::vector<std::size_t> at(layers_.size(), 0);
    std::int64_t left = room_;
    lambda_ = 0;
    bool full = false;
    for (step const& s : steps) {
      if (at[s.layer] != s.from) continue;  // an earlier step of this layer did not fit
      std::int64_t const more = layers_[s.layer].options[s.to].error - layers_[s.layer].options[s.from].error;
      if (more > left) {
        if (!full) lambda_ = s.slope;
        full = true;
        continue;
      }
      left -= more;
      at[s.layer] = s.to;
    }
    std::vector<std::uint32_t> greedy(table_.size());
    for (std::size_t i = 0; i < layers_.size(); ++i)
      greedy[layers_[i].layer] = layers_[i].options[at[i]].number;
    offer(greedy, table_.cost(greedy));

    bound_ = -lambda_ * static_cast<double>(room_);
    for (choices_of_layer& l : layers_) {
      double least = std::numeric_limits<double>::max(), second = least;
      for (std::size_t k = 0; k < l.options.size(); ++k) {
        option& o = l.options[k];
        o.priced = o.cost + lambda_ * static_cast<double>(o.error);
        if (o.priced < least) {
          second = least;
          least = o.priced;
          l.favorite = k;
        } else {
          second = std::min(second, o.priced);
        }
      }
      for (option& o : l.options) o.priced -= least;
      l.second = second - least;
      bound_ += least;
    }
    // nearly decided layers first, so that the search is narrow until the last ones
    std::stable_sort(layers_.begin(), layers_.end(),
                     [](auto const& a, auto const& b) { return a.second > b.second; });
  }

  static double slope(option const& a, option const& b) {
    return (a.cost - b.cost) / static_cast<double>(b.error - a.error);
  }

  void offer(std::vector<std::uint32_t> const& choices, double cost) {
    if (!(cost < known_)) return;
    known_ = cost;
    best_ = choices;
  }

  /// One pass over the layers.
  /// @returns whether no pair was dropped for lack of room
  bool search(std::uint64_t width, frontier_result& r) {
    std::size_t const n = layers_.size();
    bool complete = true;
    // cost of the remaining layers at the price, and cost and error of their favorites
    std::vector<double> rest(n + 1, 0.0), favorite_cost(n + 1, 0.0);
    std::vector<std::int64_t> favorite_error(n + 1, 0);
    for (std::size_t i = n; i-- > 0;) {
      option const& f = layers_[i].options[layers_[i].favorite];
      rest[i] = rest[i + 1] + f.cost + lambda_ * static_cast<double>(f.error);
      favorite_cost[i] = favorite_cost[i + 1] + f.cost;
      // above the room all values are equivalent; an unlimited sum could overflow 64 bits
      favorite_error[i] = std::min(favorite_error[i + 1] + f.error, room_ + 1);
    }
    double const budget_worth = lambda_ * static_cast<double>(room_);
    std::vector<std::vector<node>> history(1);
    std::vector<state> now{state{0, 0, 0}}, next;
    struct completion {
      std::size_t after = 0;  // layers of history
      std::uint32_t node = 0;
      double cost = 0;
    } best{0, 0, known_};

    for (std::size_t i = 0; i < n; ++i) {
      auto const& options = layers_[i].options;
      std::vector<std::size_t> head(options.size(), 0);
      next.clear();
      history.emplace_back();
      std::vector<node>& nodes = history.back();
      for (;;) {
        std::size_t least = options.size();
        std::int64_t error = std::numeric_limits<std::int64_t>::max();
        double cost = 0;
        for (std::size_t k = 0; k < options.size(); ++k) {
          if (head[k] == now.size()) continue;
          state const& s = now[head[k]];
          std::int64_t const e = s.error + options[k].error;
          double const c = s.cost + options[k].cost;
          if (e < error || (e == error && c < cost)) least = k, error = e, cost = c;
        }
        if (least == options.size() || error > room_) break;
        std::uint32_t const parent = now[head[least]++].node;
        if (!next.empty() && cost >= next.back().cost) continue;
        double const bound = cost + lambda_ * static_cast<double>(error) + rest[i + 1] - budget_worth;
        if (bound >= worth(best.cost)) continue;
        std::uint32_t const here = static_cast<std::uint32_t>(nodes.size());
        nodes.push_back({parent, static_cast<std::uint32_t>(least)});
        next.push_back({cost, error, here});
        if (error + favorite_error[i + 1] <= room_ && cost + favorite_cost[i + 1] < best.cost)
          best = {i + 1, here, cost + favorite_cost[i + 1]};
      }
      r.states += next.size();
      if (next.size() > width) {
        complete = false;
        cut(next, width);
      }
      std::swap(now, next);
      if (best.after != 0 && best.after == i + 1) keep(best.node, i + 1, history);
      if (now.empty()) break;
    }
    return complete;
  }

  /// Keeps the states of the best bounds, in order; of equal bounds some of small errors and some of large ones.
  void cut(std::vector<state>& states, std::uint64_t width) {
    auto const priced = [&](state const& s) { return s.cost + lambda_ * static_cast<double>(s.error); };
    priced_.clear();
    for (state const& s : states) priced_.push_back(priced(s));
    auto const last = priced_.begin() + static_cast<std::ptrdiff_t>(width);
    std::nth_element(priced_.begin(), last, priced_.end());
    double const limit = *last;
    std::uint64_t better = 0, equal = 0, seen = 0;
    for (double const p : priced_) better += p < limit, equal += p == limit;
    std::uint64_t const room = width - better;
    std::erase_if(states, [&](state const& s) {
      double const p = priced(s);
      if (p != limit) return p > limit;
      seen += 1;
      return seen * room / equal == (seen - 1) * room / equal;
    });
  }

  /// Records the choice of a state after layer @p end, completed by favorites.
  void keep(std::uint32_t at, std::size_t end, std::vector<std::vector<node>> const& history) {
    std::vector<std::uint32_t> choices(table_.size());
    for (choices_of_layer const& l : layers_) choices[l.layer] = l.options[l.favorite].number;
    for (std::size_t i = end; i-- > 0;) {
      node const& here = history[i + 1][at];
      choices[layers_[i].layer] = layers_[i].options[here.option].number;
      at = here.parent;
    }
    offer(choices, table_.cost(choices));
  }

  choice_table const& table_;
  double known_, tolerance_;
  std::vector<std::uint32_t> best_;
  std::vector<choices_of_layer> layers_;
  std::vector<double> priced_;
  std::int64_t room_ = 0;
  double lambda_ = 0, bound_ = 0, margin_ = 0;
};

}  // namespace GLOBALQ_ABI::adapt::detail
