// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled, if NCCL is found: transport::nccl.

#include <globalq/transport/nccl-inl.hpp>
