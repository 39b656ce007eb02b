// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Performance model of calls: calibrate a machine, predict, simulate, choose. Target globalq::model.

#include "model/bypass.hpp"
#include "model/calibrate.hpp"
#include "model/costs.hpp"
#include "model/errors.hpp"
#include "model/formulas.hpp"
#include "model/measured.hpp"
#include "model/predict.hpp"
#include "model/recorder.hpp"
#include "model/simulation.hpp"
