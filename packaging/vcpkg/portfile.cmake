# SPDX-License-Identifier: Apache-2.0
# An overlay port that builds the clone it lies in. Kokkos must be 4.6 or newer, which CMake checks.

get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_check_features(
  OUT_FEATURE_OPTIONS
  FEATURE_OPTIONS
  FEATURES
  c
  GLOBALQ_BUILD_C
  eigen
  GLOBALQ_ENABLE_EIGEN
  mpi
  GLOBALQ_ENABLE_MPI)

vcpkg_cmake_configure(
  SOURCE_PATH
  "${SOURCE_PATH}"
  OPTIONS
  ${FEATURE_OPTIONS}
  -DGLOBALQ_BUILD_COMPILED=ON
  -DGLOBALQ_BUILD_TESTS=OFF
  -DGLOBALQ_BUILD_BENCH=OFF
  -DGLOBALQ_BUILD_EXAMPLES=OFF
  -DGLOBALQ_BUILD_DOCS=OFF
  -DGLOBALQ_BUILD_ADVISE=OFF
  -DGLOBALQ_ENABLE_NCCL=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/globalq)

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
