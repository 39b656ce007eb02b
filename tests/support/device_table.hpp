// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Levels as kernels of a device take them, written by a host.

#include <globalq/kernel/device/write_table.hpp>

#include <memory>
#include <vector>

namespace support {

/// Levels themselves, or a table in memory that the host and kernels reach.
/// @tparam Allocator  of any type, for that memory
template <class Levels, template <class> class Allocator = std::allocator>
class device_levels {
 public:
  explicit device_levels(Levels const& levels) : levels_(levels) {}
  Levels const& operator()() const { return levels_; }

 private:
  Levels levels_;
};

template <template <class> class Allocator>
class device_levels<globalq::levels::detail::level_table, Allocator> {
 public:
  explicit device_levels(globalq::levels::detail::level_table const& levels) : memory_(1) {
    globalq::kernel::device::write_table const writing(levels, memory_.data());
    for (std::uint64_t i = 0; i < writing.count(); ++i) writing(i);
    view_ = writing.view();
    cells_ = writing.cells;
  }
  globalq::kernel::device::table_view const& operator()() const { return view_; }
  globalq::kernel::device::table_cells const& cells() const { return cells_; }

 private:
  using numbers = globalq::kernel::device::table_numbers;
  std::vector<numbers, Allocator<numbers>> memory_;
  globalq::kernel::device::table_view view_;
  globalq::kernel::device::table_cells cells_;
};

}  // namespace support
