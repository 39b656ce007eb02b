// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Transport: the compile-time error of an incomplete transport: it names the missing member.

#include "../../core/detail/expect_member.hpp"
#include "../concept.hpp"

#include <utility>

namespace GLOBALQ_ABI::transport::detail {

/// Whether a type may be meant as a transport: it has one of the members that nothing else has.
template <class T>
inline constexpr bool meant_as_transport = (
    Transport<T> ||
    requires(T & t, int peer, std::span<std::byte const> bytes) { t.send_async(peer, bytes); } ||
    requires(T & t, int peer, std::span<std::byte> bytes) { t.recv_async(peer, bytes); });

/// @tparam T  a transport, or a user's incomplete one
template <class T>
struct expect_transport {
  static constexpr bool complete = Transport<T>;
  GLOBALQ_EXPECT_MEMBER(
      "transport", "default constructible and movable type request", complete || requires {
        requires std::default_initializable<typename T::request> && std::movable<typename T::request>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "transport", "int rank() const", complete || requires(T const& t) {
        { t.rank() } -> std::same_as<int>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "transport", "int size() const", complete || requires(T const& t) {
        { t.size() } -> std::same_as<int>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "transport", "request send_async(int peer, std::span<std::byte const>)",
      complete || requires(T & t, int peer, std::span<std::byte const> bytes) {
        { t.send_async(peer, bytes) } -> std::same_as<typename T::request>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "transport", "request recv_async(int peer, std::span<std::byte>)",
      complete || requires(T & t, int peer, std::span<std::byte> bytes) {
        { t.recv_async(peer, bytes) } -> std::same_as<typename T::request>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "transport", "void wait(request&)", complete || requires(T & t) {
        { t.wait(std::declval<typename T::request&>()) } -> std::same_as<void>;
      });
};

}  // namespace GLOBALQ_ABI::transport::detail
