# SPDX-License-Identifier: Apache-2.0
# The targets that users link: globalq::globalq, and where they are enabled and found globalq::mpi, globalq::nccl and
# globalq::eigen.

set(GLOBALQ_GENERATED_DIR ${PROJECT_BINARY_DIR}/include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.hpp.in ${GLOBALQ_GENERATED_DIR}/globalq/version.hpp @ONLY)
file(GLOB_RECURSE GLOBALQ_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/globalq/*.hpp)

add_library(globalq INTERFACE)
add_library(globalq::globalq ALIAS globalq)
target_compile_features(globalq INTERFACE cxx_std_20)
target_link_libraries(globalq INTERFACE Kokkos::kokkos)
target_sources(
  globalq
  INTERFACE FILE_SET
            HEADERS
            BASE_DIRS
            ${PROJECT_SOURCE_DIR}/include
            ${GLOBALQ_GENERATED_DIR}
            FILES
            ${GLOBALQ_HEADERS}
            ${GLOBALQ_GENERATED_DIR}/globalq/version.hpp)

if(GLOBALQ_ENABLE_MPI AND MPI_CXX_FOUND)
  add_library(globalq_mpi INTERFACE)
  add_library(globalq::mpi ALIAS globalq_mpi)
  set_target_properties(globalq_mpi PROPERTIES EXPORT_NAME mpi)
  target_link_libraries(globalq_mpi INTERFACE globalq MPI::MPI_CXX)
  target_compile_definitions(globalq_mpi INTERFACE GLOBALQ_HAS_MPI OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()

if(GLOBALQ_ENABLE_NCCL AND NCCL_FOUND AND TARGET CUDA::cudart)
  add_library(globalq_nccl INTERFACE)
  add_library(globalq::nccl ALIAS globalq_nccl)
  set_target_properties(globalq_nccl PROPERTIES EXPORT_NAME nccl)
  target_link_libraries(globalq_nccl INTERFACE globalq NCCL::nccl CUDA::cudart)
  target_compile_definitions(globalq_nccl INTERFACE GLOBALQ_HAS_NCCL)
endif()

if(GLOBALQ_ENABLE_EIGEN AND TARGET Eigen3::Eigen)
  add_library(globalq_eigen INTERFACE)
  add_library(globalq::eigen ALIAS globalq_eigen)
  set_target_properties(globalq_eigen PROPERTIES EXPORT_NAME eigen)
  target_link_libraries(globalq_eigen INTERFACE globalq Eigen3::Eigen)
  # Kokkos shares blocks out to threads; Eigen multiplies each on the thread that asks.
  target_compile_definitions(globalq_eigen INTERFACE GLOBALQ_HAS_EIGEN EIGEN_DONT_PARALLELIZE)
endif()
