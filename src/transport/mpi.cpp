// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq::compiled, if MPI is found: transport::mpi and transport::shared_memory.

#include <globalq/transport/mpi-inl.hpp>
