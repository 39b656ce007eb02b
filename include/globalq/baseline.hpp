// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Compressors for comparison, and error feedback: Top-K, PowerSGD, 1-bit SGD, THC. Target globalq::baseline.

#include "baseline/adaptive.hpp"
#include "baseline/concept.hpp"
#include "baseline/density.hpp"
#include "baseline/error_feedback.hpp"
#include "baseline/int_sgd.hpp"
#include "baseline/one_bit.hpp"
#include "baseline/rand_k.hpp"
#include "baseline/selection.hpp"
#include "baseline/send_first.hpp"
#include "baseline/sign_sgd.hpp"
#include "baseline/state.hpp"
#include "baseline/thc.hpp"
#include "baseline/top_k.hpp"
#if defined(GLOBALQ_HAS_EIGEN)
#include "baseline/power_sgd.hpp"
#endif
