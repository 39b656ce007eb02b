# SPDX-License-Identifier: Apache-2.0
# Finds Kokkos (required), MPI (for globalq::mpi), CUDA and NCCL (for globalq::nccl) and Eigen (for globalq::eigen).

# The search order: Kokkos_ROOT and CMAKE_PREFIX_PATH, then the copy made by scripts/bootstrap, then the system. If none
# is found, the pinned tag is fetched.
# The Python package contains a Kokkos with the Serial space only, because torch has its own OpenMP.
if(SKBUILD AND NOT Kokkos_ROOT AND NOT DEFINED ENV{Kokkos_ROOT})
  message(STATUS "globalq: preparing a Serial-only Kokkos in .deps/kokkos-serial (downloads 17 MB of source once)")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env GLOBALQ_SKIP_PACKAGES=1 ${PROJECT_SOURCE_DIR}/scripts/bootstrap serial
                          COMMAND_ERROR_IS_FATAL ANY)
  set(Kokkos_ROOT ${PROJECT_SOURCE_DIR}/.deps/kokkos-serial)
endif()
if(NOT TARGET Kokkos::kokkos)
  include(FetchContent)
  set(kokkos_hint ${PROJECT_SOURCE_DIR}/.deps/kokkos)
  FetchContent_Declare(
    Kokkos
    GIT_REPOSITORY https://github.com/kokkos/kokkos.git
    GIT_TAG 4.7.01
    GIT_SHALLOW TRUE
    FIND_PACKAGE_ARGS 4.6 HINTS ${kokkos_hint})
  find_package(Kokkos 4.6 QUIET HINTS ${kokkos_hint})
  if(NOT Kokkos_FOUND)
    message(STATUS "globalq: no Kokkos >= 4.6 found, fetching 4.7.01; to build without a network later, run scripts/bootstrap once")
    option(Kokkos_ENABLE_SERIAL "Kokkos: the Serial space" ON)
  endif()
  FetchContent_MakeAvailable(Kokkos)
endif()

string(TOUPPER "${GLOBALQ_ENABLE_MPI}" enable_mpi)
if(enable_mpi STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS CXX)
elseif(GLOBALQ_ENABLE_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()

set(GLOBALQ_ENABLE_NCCL
    AUTO
    CACHE STRING "Build globalq::nccl: AUTO (when NCCL and the CUDA toolkit are found), ON or OFF")
set_property(CACHE GLOBALQ_ENABLE_NCCL PROPERTY STRINGS AUTO ON OFF)
string(TOUPPER "${GLOBALQ_ENABLE_NCCL}" enable_nccl)
if(enable_nccl STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
  find_package(NCCL 2.14 QUIET)
elseif(GLOBALQ_ENABLE_NCCL)
  find_package(CUDAToolkit REQUIRED)
  find_package(NCCL 2.14 REQUIRED)
endif()

set(GLOBALQ_ENABLE_EIGEN
    AUTO
    CACHE STRING "Build globalq::eigen: AUTO (when Eigen is found), ON or OFF")
set_property(CACHE GLOBALQ_ENABLE_EIGEN PROPERTY STRINGS AUTO ON OFF)
string(TOUPPER "${GLOBALQ_ENABLE_EIGEN}" enable_eigen)
if(enable_eigen STREQUAL "AUTO")
  find_package(Eigen3 3.4 QUIET NO_MODULE)
elseif(GLOBALQ_ENABLE_EIGEN)
  if(NOT baseline IN_LIST GLOBALQ_PARTS)
    message(FATAL_ERROR "globalq: GLOBALQ_ENABLE_EIGEN: only the part baseline uses Eigen; add baseline to GLOBALQ_PARTS, or leave it AUTO")
  endif()
  find_package(Eigen3 3.4 REQUIRED NO_MODULE PATH_SUFFIXES cmeel.prefix/share/eigen3/cmake) # where Python packages install it
endif()
