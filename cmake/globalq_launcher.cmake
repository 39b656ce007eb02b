# SPDX-License-Identifier: Apache-2.0
# What tests that start workers by the MPI launcher need, where globalq::mpi is there:
#
#   GLOBALQ_LAUNCHER_FLAGS   more workers than cores
#   GLOBALQ_MPI_ENVIRONMENT  Open MPI as root, and in containers

set(GLOBALQ_LAUNCHER_FLAGS "")
if(TARGET globalq::mpi)
  execute_process(
    COMMAND ${MPIEXEC_EXECUTABLE} --version
    OUTPUT_VARIABLE launcher_version
    ERROR_QUIET)
  if(launcher_version MATCHES "Open MPI|OpenRTE")
    set(GLOBALQ_LAUNCHER_FLAGS --oversubscribe)
  endif()
endif()
set(GLOBALQ_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Containers often forbid the system call behind the single copy; Open MPI then warns in the middle of the output.
    OMPI_MCA_btl_vader_single_copy_mechanism=none)
