// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: validates the configuration of a call.

#include "float32_forced.hpp"
#include "setup.hpp"

namespace GLOBALQ_ABI::detail {

/// float32 with the operator's segments, so that shards do not change.
GLOBALQ_DECL operator_facts float32_instead_of(operator_facts const& op) {
  operator_facts f = prepared(facts_of(uncompressed{}), op.before);
  f.grain = grain_of(op);
  return f;
}

GLOBALQ_DECL call_setup set_up(transport::endpoint const& workers, operator_facts const& facts,
                               schedule::erased const& schedule, options const& settings) {
  int const n = workers.size();
  schedule_facts const s = schedule.facts(n);
  auto const refuse = [&](std::initializer_list<text_part> why) {
    throw configuration_error(worker_message(s.operation, workers.rank(), n, joined(why)));
  };
  if (!Kokkos::is_initialized())
    refuse(
        {"Kokkos is not initialized; create a Kokkos::ScopeGuard in main() before the first call of "
         "globalq"});
  if (s.native && !workers.adds())
    refuse(
        {"schedule native needs a transport that adds integers itself (allreduce_sum); use schedule ring, "
         "tree, sra or allgather with this one"});
  if (s.chunks_wait && !workers.host_driven() && settings.chunk_values != 0 && n > 1)
    refuse({"chunk_values is ", settings.chunk_values, ", which deadlocks schedule ", s.name,
            " on a stream; set it to 0 or use ring or sra"});
  call_setup setup;
  setup.settings = settings;
  setup.facts = facts;
  setup.forced = facts.rounds() && float32_forced();
  if (setup.forced) setup.facts = float32_instead_of(facts);
  setup.resolved = resolve(setup.facts, s, n);
  if (!setup.resolved.fits()) throw configuration_error(setup.resolved.refusal);
  setup.operation = s.operation;
  // 2^48 bytes: whole segments
  setup.chunk_bytes =
      workers.host_driven() || s.chunks_overlap ? workers.chunk_bytes() : std::size_t{1} << 48;
  setup.operator_hash = fingerprint(setup.facts, setup.resolved);
  setup.schedule_hash = schedule_fingerprint(schedule, n);
  return setup;
}

}  // namespace GLOBALQ_ABI::detail
