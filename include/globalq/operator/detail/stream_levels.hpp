// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the levels of a codec on a stream; a table is in device memory.

#include "../../kernel/device/write_table.hpp"
#include "../../kernel/stream.hpp"

namespace GLOBALQ_ABI::detail {

/// Levels that kernels receive as arguments.
template <class Levels, class Space>
class stream_levels {
 public:
  explicit stream_levels(Levels const& levels) : levels_(levels) {}

  Levels const& on_host() const { return levels_; }
  Levels const& on_device(kernel::stream_executor<Space> const&) const { return levels_; }

 private:
  Levels levels_;
};

/// A table, which a launch copies to device memory before the first kernel that needs it, and after each change. Does
/// not wait.
///
/// A graph keeps the levels with which it was captured: memory that one of its launches reads is not written again.
template <class Space>
class stream_levels<levels::detail::level_table, Space> {
 public:
  using table = levels::detail::level_table;

  explicit stream_levels(table const& levels) : levels_(levels) {}

  table& on_host() { return levels_; }
  table const& on_host() const { return levels_; }

  /// Writes changed levels; during the capture of a graph it does not write them.
  void renew(kernel::stream_executor<Space> const& on) {
    written_ = false;
    if (!on.capturing()) write(on);
  }

  /// @throws configuration_error when the levels are not written yet and a graph is being captured
  kernel::device::table_view const& on_device(kernel::stream_executor<Space> const& on) {
    bool const capturing = on.capturing();
    if (!written_) {
      if (capturing)
        throw configuration_error(
            "globalq: set_levels: levels were changed while a graph is being captured; set levels before the "
            "capture, and make a call before it");
      write(on);
    }
    captured_ = captured_ || capturing;
    return view_;
  }

 private:
  void write(kernel::stream_executor<Space> const& on) {
    if (memory_.empty() || captured_) memory_.emplace_back(on.memory());
    captured_ = false;
    kernel::device::write_table const writing(
        levels_, memory_.back().template get_values<kernel::device::table_numbers>(1));
    on.items(writing.count(), writing);
    view_ = writing.view();
    written_ = true;
  }

  table levels_;
  kernel::device::table_view view_;
  bool written_ = false;
  bool captured_ = false;            ///< whether a graph reads the last memory
  std::vector<byte_buffer> memory_;  ///< the last one is in use, graphs read the others
};

}  // namespace GLOBALQ_ABI::detail
