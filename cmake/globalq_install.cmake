# SPDX-License-Identifier: Apache-2.0
# Install rules, export and version file. globalq::compiled, globalq::mpi, globalq::nccl and globalq::eigen have separate export
# files, so that users without MPI, NCCL or Eigen can use an installation that was made with them.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/globalq)

list(TRANSFORM folders_with_targets PREPEND globalq_part_ OUTPUT_VARIABLE header_targets)
install(TARGETS globalq ${header_targets} EXPORT globalqTargets FILE_SET HEADERS)
install(EXPORT globalqTargets NAMESPACE globalq:: DESTINATION ${config_dir})
set(GLOBALQ_WITH_COMPILED OFF)
set(any_machine ARCH_INDEPENDENT)
if(GLOBALQ_BUILD_COMPILED AND NOT Kokkos_ENABLE_CUDA)
  set(GLOBALQ_WITH_COMPILED ON)
  set(any_machine "")
  install(TARGETS globalq_compiled globalq_named EXPORT globalqCompiledTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                                                               FILE_SET HEADERS)
  install(EXPORT globalqCompiledTargets NAMESPACE globalq:: DESTINATION ${config_dir})
endif()
set(GLOBALQ_WITH_C OFF)
if(GLOBALQ_BUILD_C)
  set(GLOBALQ_WITH_C ON)
  set(any_machine "")
  install(TARGETS globalq_c EXPORT globalqCTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS)
  install(EXPORT globalqCTargets NAMESPACE globalq:: DESTINATION ${config_dir})
endif()
set(GLOBALQ_WITH_MPI OFF)
if(TARGET globalq_mpi)
  set(GLOBALQ_WITH_MPI ON)
  install(TARGETS globalq_mpi EXPORT globalqMpiTargets)
  install(EXPORT globalqMpiTargets NAMESPACE globalq:: DESTINATION ${config_dir})
endif()
set(GLOBALQ_WITH_NCCL OFF)
if(TARGET globalq_nccl)
  set(GLOBALQ_WITH_NCCL ON)
  install(TARGETS globalq_nccl EXPORT globalqNcclTargets)
  install(EXPORT globalqNcclTargets NAMESPACE globalq:: DESTINATION ${config_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake DESTINATION ${config_dir})
endif()
set(GLOBALQ_WITH_EIGEN OFF)
if(TARGET globalq_eigen)
  set(GLOBALQ_WITH_EIGEN ON)
  install(TARGETS globalq_eigen EXPORT globalqEigenTargets)
  install(EXPORT globalqEigenTargets NAMESPACE globalq:: DESTINATION ${config_dir})
endif()

# advise is a program.
set(GLOBALQ_PARTS_WITH_HEADERS ${GLOBALQ_PARTS})
list(FILTER GLOBALQ_PARTS_WITH_HEADERS EXCLUDE REGEX "^advise$")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/globalqConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/globalqConfig.cmake INSTALL_DESTINATION ${config_dir})
# Before 1.0 the second number rises with breaking changes.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/globalqConfigVersion.cmake COMPATIBILITY SameMinorVersion
                                 ${any_machine})
install(FILES ${PROJECT_BINARY_DIR}/globalqConfig.cmake ${PROJECT_BINARY_DIR}/globalqConfigVersion.cmake
        DESTINATION ${config_dir})
