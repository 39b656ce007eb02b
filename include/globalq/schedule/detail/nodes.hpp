// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: which workers form a node.

#include "../../core/error.hpp"
#include "../../transport/concept.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::schedule::detail {

/// The nodes of a number of workers: consecutive ranks, of which the first leads.
struct node_map {
  std::vector<int> leaders;  ///< rank of the leader of each node
  std::vector<int> sizes;    ///< workers of each node
  std::vector<int> most;     ///< workers of the k largest nodes together

  /// @param node_size  of all nodes (the last may have fewer); 0: sizes as listed
  /// @returns false if the listed sizes do not add up to @p workers; the map is then invalid
  bool cut(int workers, int node_size, std::vector<int> const& listed) {
    leaders.clear();
    sizes.clear();
    int first = 0;
    for (std::size_t v = 0; first < workers && (node_size != 0 || v < listed.size()); ++v) {
      int const size = node_size != 0 ? std::min(node_size, workers - first) : listed[v];
      leaders.push_back(first);
      sizes.push_back(size);
      first += size;
    }
    if (first != workers || (node_size == 0 && sizes.size() != listed.size())) return false;
    most.assign(sizes.begin(), sizes.end());
    std::sort(most.rbegin(), most.rend());
    std::partial_sum(most.begin(), most.end(), most.begin());
    most.insert(most.begin(), 0);
    return true;
  }

  int count() const { return static_cast<int>(leaders.size()); }
  int size(int node) const { return sizes[static_cast<std::size_t>(node)]; }
  int leader(int node) const { return leaders[static_cast<std::size_t>(node)]; }
  int workers() const { return most.back(); }
  int largest() const { return most[1]; }
  int node_of(int rank) const {
    return static_cast<int>(std::upper_bound(leaders.begin(), leaders.end(), rank) - leaders.begin()) - 1;
  }
};

/// Nodes as a user specifies them: one size for all, or the size of each.
class node_split {
 public:
  /// All workers are one node.
  node_split() = default;

  /// @param node_size  workers per node; the last node may have fewer
  /// @throws configuration_error if it is below 1
  explicit node_split(int node_size) : size_(node_size), text_(std::to_string(node_size)) {
    if (node_size < 1) refuse(text_ + " workers of a node; use 1 or more");
  }

  /// @param node_sizes  workers of each node
  /// @throws configuration_error if the list is empty, or a size is below 1
  explicit node_split(std::vector<int> node_sizes) : size_(0), listed_(std::move(node_sizes)) {
    if (listed_.empty()) refuse("no nodes; give the number of workers of each");
    for (int size : listed_) {
      if (size < 1) refuse("a node of " + std::to_string(size) + " workers; use 1 or more");
      if (!text_.empty()) text_ += '+';
      text_ += std::to_string(size);
    }
  }

  /// "4", or "4+2+4"; empty if all workers are one node.
  std::string const& text() const { return text_; }

  /// @param nodes  out: the nodes of @p workers workers
  /// @throws configuration_error if the sizes of the nodes do not add up to @p workers
  void cut(int workers, node_map& nodes) const {
    if (!nodes.cut(workers, size_, listed_))
      refuse("nodes of " + text_ + " workers, and there are " + std::to_string(workers) +
             "; give as many, or one size for all nodes");
  }

  /// @throws configuration_error over a transport whose messages are groups on a stream
  template <Transport T>
  static void expect_single_messages(T const& t, char const* remedy) {
    if (!transport::host_driven(t))
      refuse(
          std::string("transports whose messages are groups on a stream, such as nccl, are not supported; ") +
          remedy);
  }

  [[noreturn]] static void refuse(std::string const& what) {
    throw configuration_error("globalq: schedule::hierarchical: " + what);
  }

 private:
  int size_ = std::numeric_limits<int>::max();  ///< 0: listed_
  std::vector<int> listed_;
  std::string text_;
};

}  // namespace GLOBALQ_ABI::schedule::detail
