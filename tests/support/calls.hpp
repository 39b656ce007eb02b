// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What suites of calls over transport::threads include.

#include "tests/support/compositions.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/schedule/detail/shards.hpp>
#include <globalq/transport/threads.hpp>
