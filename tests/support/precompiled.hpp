// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What all suites that link globalq::compiled include, precompiled. Each still includes what it uses.

#include "tests/support/compositions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <globalq/globalq.hpp>
