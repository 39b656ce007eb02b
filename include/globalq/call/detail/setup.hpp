// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: configuration that is fixed before a call: settings and operators.

#include "../../core/detail/compiled.hpp"
#include "../../operator/detail/operator_codec.hpp"
#include "../../plan/plan.hpp"
#include "../../schedule/erased.hpp"
#include "../../transport/endpoint.hpp"
#include "../options.hpp"
#include "../vector_group.hpp"
#include "user_norms.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

namespace GLOBALQ_ABI::detail {

/// Configuration of a collective.
struct call_setup {
  options settings;
  operator_facts facts;
  resolution resolved;
  char const* operation = "";       ///< for errors
  std::uint64_t operator_hash = 0;  ///< without the values of its levels
  std::uint64_t schedule_hash = 0;
  std::size_t chunk_bytes = default_chunk_bytes;
  std::unique_ptr<user_scales> (*make_user_scales)() = nullptr;  ///< null: no norm is a user's type
  bool forced = false;  ///< GLOBALQ_FORCE_FLOAT32 replaced the operator by float32

  std::uint64_t chunk_values() const { return chunk_of(facts, resolved, settings.chunk_values, chunk_bytes); }
  std::uint64_t buckets(std::uint64_t length) const { return buckets_of(facts, length); }
  std::uint32_t inner_order() const { return inner_order_of(facts); }

  /// Order of the measured norm.
  static std::uint32_t inner_order_of(operator_facts const& op) { return op.q.value; }
};

/// An operator of a group.
struct group_slot {
  operator_facts const* facts = nullptr;
  operator_codec* codec = nullptr;
};

/// The operators of a group: one for all vectors, or a slot for each vector.
struct group_operators {
  std::span<group_slot const> slots;
  std::span<std::uint32_t const> of;  ///< number of a vector's slot; empty: all have the first
  std::uint64_t hash = 0;             ///< of everything that must agree
  std::uint64_t grain = 1;            ///< vectors begin at multiples of it; a multiple of the random tile
  std::uint64_t chunk_values = 0;
  std::uint64_t grouping = 0;    ///< distinguishes groupings
  std::uint64_t step = unnamed;  ///< step that telemetry reports, if not the one of the random bits
  /// A single vector, not a group of one: frames have the operator's own format, the last segment ends with the vector,
  /// a worker may read or write only a part of it, and the handshake carries its norm.
  bool single_vector = false;
  std::string_view settings = {};  ///< other settings that must agree, as text for errors
  static constexpr std::uint64_t unnamed = ~std::uint64_t{0};

  std::uint64_t reported_step(std::uint64_t random_step) const {
    return step == unnamed ? random_step : step;
  }
  std::size_t slot_of(std::size_t member) const { return of.empty() ? 0 : of[member]; }
  operator_facts const& facts(std::size_t member) const { return *slots[slot_of(member)].facts; }
  /// Whether values of any vector are rounded.
  bool round() const {
    return std::any_of(slots.begin(), slots.end(), [](group_slot const& s) { return s.facts->rounds(); });
  }
};

/// Configures a collective; the same on every worker.
/// @throws configuration_error
GLOBALQ_DECL call_setup set_up(transport::endpoint const& workers, operator_facts const& facts,
                               schedule::erased const& schedule, options const& settings);

/// Execution space of kernels if the caller names none.
template <class Transport>
auto execution_of(Transport& workers) {
  if constexpr (transport::OwnExecution<Transport>)
    return workers.execution();
  else
    return Kokkos::DefaultHostExecutionSpace();
}

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "setup-inl.hpp"
#endif
