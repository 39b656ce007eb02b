// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: definitions for the compiled library other than levels, lanes, codes, schedules and transports.

#include "../../core/detail/joined-inl.hpp"
#include "../../core/error-inl.hpp"
#include "../../kernel/compiled_for-inl.hpp"
#include "../../kernel/executor-inl.hpp"
#include "../../operator/detail/facts_of-inl.hpp"
#include "../../operator/detail/make_codec-inl.hpp"
#include "../../operator/detail/operator_codec-inl.hpp"
#include "../../operator/detail/resolve-inl.hpp"
#include "../../operator/vector_codec-inl.hpp"
#include "../../plan/detail/bounds-inl.hpp"
#include "../../plan/plan-inl.hpp"
#include "../../schedule/detail/piece_sizes-inl.hpp"
#include "../../wire/frame-inl.hpp"
#include "engine-inl.hpp"
#include "setup-inl.hpp"
#include "user_norms-inl.hpp"
