// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One thread a worker for LibTorch and its BLAS, because workers share the cores.

#include <torch/torch.h>

extern "C" void openblas_set_num_threads(int) __attribute__((weak));  // null with another BLAS

namespace examples {

/// torch::set_num_threads does not reach an OpenBLAS with threads of its own, such as Debian's libopenblas0-pthread.
inline void use_one_thread() {
  torch::set_num_threads(1);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

}  // namespace examples
