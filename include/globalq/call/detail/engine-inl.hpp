// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: definitions of host_engine, for the compiled library.

#include "engine.hpp"
#include "host_call.hpp"

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::detail {

host_engine::host_engine(transport::endpoint& workers, call_setup const& setup, executor const& on,
                         std::unique_ptr<operator_codec> codec)
    : call_(std::make_unique<host_call>(workers, setup, on, std::move(codec))) {}
host_engine::~host_engine() = default;

void host_engine::run(schedule::erased const& schedule, std::span<vector_group::member const> members,
                      bool single_vector, std::uint64_t step, std::uint64_t reported) {
  call_->run(schedule, members, single_vector, step, reported);
}
void host_engine::run(schedule::erased const& schedule, std::span<vector_group::member const> members,
                      group_operators const& ops, std::uint64_t step) {
  call_->run(schedule, members, ops, step);
}
void host_engine::refuse(std::string const& why) { call_->refuse(why); }
void host_engine::start_refusal(call_queue& queue, std::string const& why) {
  call_->start_refusal(queue, why);
}
call_setup const& host_engine::setup() const { return call_->setup(); }
void host_engine::set_levels(levels::detail::level_table const& levels) { call_->set_levels(levels); }
operator_codec* host_engine::codec() { return call_->codec(); }
residuals& host_engine::kept() { return call_->kept(); }
residuals const& host_engine::kept() const { return call_->kept(); }
bool host_engine::only_operators_differ() const { return call_->only_operators_differ(); }

}  // namespace GLOBALQ_ABI::detail
#endif
