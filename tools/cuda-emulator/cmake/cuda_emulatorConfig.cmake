# SPDX-License-Identifier: Apache-2.0
# find_package(cuda_emulator): cuda_emulator_target, cuda_emulator_add_test, and the targets cuda_emulator::cudart, ::cuda, ::headers and,
# if it was built, ::nccl.
include(${CMAKE_CURRENT_LIST_DIR}/cuda_emulator_targets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/cuda_emulator_functions.cmake)
