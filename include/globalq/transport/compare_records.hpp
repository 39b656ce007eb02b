// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Transport: compares the records that workers exchange before anything else, so that all throw the same error.

#include "../core/error.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace GLOBALQ_ABI::transport {

/// @brief Compares records of all workers, in the order of ranks, with the record of worker 0.
/// @tparam Record  has a member `version`, which is 0 in the records of other operations
template <class Record>
class compare_records {
 public:
  /// @param operation  for errors: "learn::agree"
  /// @throws disagreement_error if versions differ
  compare_records(char const* operation, std::span<Record const> all) : operation_(operation), all_(all) {
    for (std::size_t r = 1; r < all.size(); ++r)
      if (all[r].version != all[0].version)
        throw disagreement_error(
            "globalq: " + operation_ + ": only one of ranks 0 and " + std::to_string(r) +
            " is in this step, one refused its arguments, or versions differ; call it on every worker at the "
            "same steps");
  }

  /// @param what  for errors: "step"
  /// @param get   get(record) -> integer
  /// @throws disagreement_error with both numbers if get() of a record differs from that of worker 0
  template <class Get>
  void operator()(char const* what, Get const& get) const {
    for (std::size_t r = 1; r < all_.size(); ++r)
      if (get(all_[r]) != get(all_[0]))
        throw disagreement_error("globalq: " + operation_ + ": worker 0 has " + std::string(what) + " " +
                                 std::to_string(get(all_[0])) + " and worker " + std::to_string(r) + " has " +
                                 std::to_string(get(all_[r])) + "; all must have the same");
  }

 private:
  std::string operation_;
  std::span<Record const> all_;
};

}  // namespace GLOBALQ_ABI::transport
