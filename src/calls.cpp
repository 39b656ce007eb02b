// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled: calls of host memory, and what is decided before one is made.

#include <globalq/call/detail/engine-inl.hpp>
#include <globalq/call/detail/setup-inl.hpp>
#include <globalq/core/error-inl.hpp>
#include <globalq/kernel/compiled_for-inl.hpp>
#include <globalq/kernel/executor-inl.hpp>
#include <globalq/operator/detail/facts_of-inl.hpp>
#include <globalq/operator/detail/make_codec-inl.hpp>
#include <globalq/operator/detail/operator_codec-inl.hpp>
#include <globalq/operator/detail/resolve-inl.hpp>
#include <globalq/operator/vector_codec-inl.hpp>
#include <globalq/plan/detail/bounds-inl.hpp>
#include <globalq/plan/plan-inl.hpp>
#include <globalq/schedule/detail/piece_sizes-inl.hpp>
#include <globalq/wire/frame-inl.hpp>
