// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The three programs of this folder and their options.

#include <cstdint>

namespace convex {

struct qsvrg_options {
  int workers = 4;
  long values = 1024;
  long samples = 2048;
  double ridge = 0.05;
  int epochs = 22;
  int seeds = 4;            ///< runs whose mean is compared with the expected value
  double step_factor = 1;   ///< factor on the step of the theory
  std::uint64_t seed = 42;  ///< of the problem and of the first run
};

struct gradient_descent_options {
  int workers = 4;
  long values = 1024;
  long samples = 1024;
  double ridge = 0.02;
  double accuracy = 1e-8;  ///< gap, relative to that at the start, at which a run ends
  long most_steps = 20000;
  double step_factor = 1;
  std::uint64_t seed = 42;
};

struct iterates_options {
  int workers = 4;
  long values = 1024;
  double condition = 8;
  double coarse_step = 0.25;  ///< of the grid whose best point is the mark
  double excess = 0.1;        ///< epsilon, as a share of the gap of that point
  int seeds = 2;
  long average = 200;  ///< iterations times step and beta over which gaps are averaged at the end
  double step_factor = 1;
  std::uint64_t seed = 42;
};

/// @name Each runs, prints tables, and returns the exit status: 1 when theory and measurement disagree
/// @{
int qsvrg(qsvrg_options const&);
int gradient_descent(gradient_descent_options const&);
int iterates(iterates_options const&);
/// @}

}  // namespace convex
