// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: the first page of the memory that processes share by a name.

#include "../../core/detail/abi.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace GLOBALQ_ABI::transport::detail {

/// The first page of the memory: state of the join, which processes read first.
struct named_page {
  static constexpr std::size_t bytes = 16384;
  static constexpr int most = 512;

  std::atomic<std::uint32_t> ready{0};  ///< the rest is initialized
  std::uint32_t processes = 0;
  std::uint64_t spaces[most] = {};               ///< namespaces of process ids
  std::atomic<std::uint64_t> joined[most] = {};  ///< process ids; 0: not yet
  std::atomic<std::uint32_t> nameless{0};        ///< a process has removed the name, or is about to
  std::atomic<std::uint32_t> refused{0};         ///< 0: no refusal; 1: the text is being written; 2: complete
  char why[1000] = {};

  /// Reports a refusal to the waiting processes.
  void refuse(std::string const& text) {
    std::uint32_t none = 0;
    if (!refused.compare_exchange_strong(none, 1)) return;
    std::snprintf(why, sizeof why, "%s", text.c_str());
    refused.store(2);
  }
};
static_assert(sizeof(named_page) <= named_page::bytes);

}  // namespace GLOBALQ_ABI::transport::detail
