# SPDX-License-Identifier: Apache-2.0
# Settings for tests that start workers by the MPI launcher, if globalq::mpi exists:
#
#   GLOBALQ_LAUNCHER_FLAGS   allow more workers than cores
#   GLOBALQ_LAUNCHER         the command before a number of workers and a program, for tests that start several; empty without MPI
#   GLOBALQ_MPI_ENVIRONMENT  allows Open MPI to run as root and in containers

set(GLOBALQ_LAUNCHER "")
set(GLOBALQ_LAUNCHER_FLAGS "")
if(TARGET globalq::mpi)
  # Several folders include this file; a global property lasts for one configuration, so a new launcher is noticed.
  get_property(launcher_version GLOBAL PROPERTY GLOBALQ_LAUNCHER_VERSION)
  if(NOT launcher_version)
    execute_process(
      COMMAND ${MPIEXEC_EXECUTABLE} --version
      OUTPUT_VARIABLE launcher_version
      ERROR_QUIET)
    set_property(GLOBAL PROPERTY GLOBALQ_LAUNCHER_VERSION "${launcher_version}")
  endif()
  if(launcher_version MATCHES "Open MPI|OpenRTE")
    set(GLOBALQ_LAUNCHER_FLAGS --oversubscribe)
  endif()
  set(GLOBALQ_LAUNCHER ${MPIEXEC_EXECUTABLE} ${GLOBALQ_LAUNCHER_FLAGS} ${MPIEXEC_NUMPROC_FLAG})
endif()
set(GLOBALQ_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Containers often forbid the system call that single copy uses; Open MPI would then print a warning into the output.
    OMPI_MCA_btl_vader_single_copy_mechanism=none)
