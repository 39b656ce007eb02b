// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the host-memory engine of the collectives: host_call, or a proxy for the host_call in the compiled
/// library.

#if !defined(GLOBALQ_COMPILED)
#include "host_call.hpp"

namespace GLOBALQ_ABI::detail {
using host_engine = host_call;
}  // namespace GLOBALQ_ABI::detail

#else
#include "../../operator/detail/residual.hpp"
#include "../../schedule/erased.hpp"
#include "../../transport/endpoint.hpp"
#include "../call_queue.hpp"
#include "setup.hpp"

#include <memory>
#include <span>
#include <string>

namespace GLOBALQ_ABI::detail {

class host_call;

/// Proxy for host_call, which documents the members.
class host_engine {
 public:
  using executor = kernel::host_executor;

  host_engine(transport::endpoint& workers, call_setup const& setup, executor const& on,
              std::unique_ptr<operator_codec> codec);
  ~host_engine();

  void run(schedule::erased const& schedule, std::span<vector_group::member const> members,
           bool single_vector, std::uint64_t step, std::uint64_t reported = group_operators::unnamed);
  void run(schedule::erased const& schedule, std::span<vector_group::member const> members,
           group_operators const& ops, std::uint64_t step);
  [[noreturn]] void refuse(std::string const& why);
  [[noreturn]] void start_refusal(call_queue& queue, std::string const& why);
  call_setup const& setup() const;
  void set_levels(levels::detail::level_table const& levels);
  operator_codec* codec();
  residuals& kept();
  residuals const& kept() const;
  bool only_operators_differ() const;

 private:
  std::unique_ptr<host_call> call_;
};

}  // namespace GLOBALQ_ABI::detail
#endif

namespace GLOBALQ_ABI::detail {

/// The engine for vectors in a place. stream_call.hpp has that of streams.
template <class Place>
struct engine_at {
  static_assert(std::is_void_v<Place>,
                "globalq: a call over a stream transport needs #include <globalq/stream.hpp>, which "
                "transport/nccl.hpp and transport/staged.hpp include");
};
template <>
struct engine_at<Kokkos::HostSpace> {
  using type = host_engine;
};

}  // namespace GLOBALQ_ABI::detail
