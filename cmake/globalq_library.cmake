# SPDX-License-Identifier: Apache-2.0
# The targets that users link: globalq::globalq or globalq::compiled; globalq::named, which uses the latter; globalq::train,
# globalq::baseline and globalq::model if GLOBALQ_PARTS has them, and globalq::bench, which needs Google Benchmark; and globalq::mpi,
# globalq::nccl and globalq::eigen if they are enabled and found.

set(GLOBALQ_GENERATED_DIR ${PROJECT_BINARY_DIR}/include)
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.hpp.in ${GLOBALQ_GENERATED_DIR}/globalq/version.hpp @ONLY)
file(GLOB_RECURSE GLOBALQ_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/globalq/*.hpp)
foreach(part IN LISTS GLOBALQ_ALL_PARTS)
  if(NOT part IN_LIST GLOBALQ_PARTS)
    list(FILTER GLOBALQ_HEADERS EXCLUDE REGEX "/${globalq_headers_of_${part}}")
  endif()
endforeach()

# Folders with targets of their own, which globalq.hpp does not include.
set(folders_with_targets train baseline model bench)
foreach(folder IN ITEMS baseline model)
  if(NOT folder IN_LIST GLOBALQ_PARTS)
    list(REMOVE_ITEM folders_with_targets ${folder})
  endif()
endforeach()
set(headers ${GLOBALQ_HEADERS})
foreach(folder IN LISTS folders_with_targets ITEMS named)
  set(headers_${folder} ${GLOBALQ_HEADERS})
  list(FILTER headers_${folder} INCLUDE REGEX "/globalq/${folder}[./]")
  list(REMOVE_ITEM headers ${headers_${folder}})
endforeach()

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
            ${headers}
            ${GLOBALQ_GENERATED_DIR}/globalq/version.hpp)
foreach(folder IN LISTS folders_with_targets)
  add_library(globalq_part_${folder} INTERFACE)
  add_library(globalq::${folder} ALIAS globalq_part_${folder})
  set_target_properties(globalq_part_${folder} PROPERTIES EXPORT_NAME ${folder})
  target_link_libraries(globalq_part_${folder} INTERFACE globalq)
  target_sources(globalq_part_${folder} INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${headers_${folder}})
endforeach()

# The same library with all non-template code and the kernels of built-in policies compiled once. Optimized in every build type, so
# that debug builds of users have fast kernels; the preset dev optimizes only the kernels in full.
set(globalq_optimization
    $<$<NOT:$<BOOL:${GLOBALQ_SANITIZER}>>:$<IF:$<CONFIG:Dev>,-O1,-O3>>
    $<$<AND:$<CONFIG:Dev>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>) # gcc 12, of alternatives that a variant does not have
file(GLOB GLOBALQ_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
include(globalq_isa)
add_library(globalq_compiled STATIC ${GLOBALQ_SOURCES} ${GLOBALQ_ISA_SOURCES})
add_library(globalq::compiled ALIAS globalq_compiled)
set_target_properties(globalq_compiled PROPERTIES EXPORT_NAME compiled POSITION_INDEPENDENT_CODE ON)
target_link_libraries(globalq_compiled PUBLIC globalq)
target_compile_definitions(globalq_compiled PUBLIC GLOBALQ_COMPILED)
target_compile_options(globalq_compiled PRIVATE ${globalq_optimization} -ffp-contract=off -fno-fast-math)
# Operators by name: every composition that a name can select, compiled once.
file(GLOB GLOBALQ_NAMED_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/named/*.cpp)
add_library(globalq_named STATIC ${GLOBALQ_NAMED_SOURCES})
add_library(globalq::named ALIAS globalq_named)
set_target_properties(globalq_named PROPERTIES EXPORT_NAME named POSITION_INDEPENDENT_CODE ON)
# Several sources compiled as one take half of the time, but a program would link all of them for a function of one.
if(SKBUILD)
  set_target_properties(globalq_compiled PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
elseif(CMAKE_BUILD_TYPE STREQUAL "Dev" OR GLOBALQ_SANITIZER)
  set_target_properties(globalq_compiled globalq_named PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
  # With the others it takes 77 s under AddressSanitizer, apart 20 s and they 35 s.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/built_in.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
target_link_libraries(globalq_named PUBLIC globalq_compiled globalq_part_train)
target_sources(globalq_named PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${headers_named})
if(advise IN_LIST GLOBALQ_PARTS)
  # Chooses operators for a machine: part of libglobalq.so and of the program globalq_advise.
  file(GLOB GLOBALQ_ADVISE_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/advise/*.cpp)
  add_library(globalq_advisor STATIC EXCLUDE_FROM_ALL ${GLOBALQ_ADVISE_SOURCES})
  set_target_properties(
    globalq_advisor PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON UNITY_BUILD ON)
  target_link_libraries(globalq_advisor PUBLIC globalq_named globalq_part_model)
  target_compile_options(globalq_advisor PRIVATE $<$<NOT:$<BOOL:${GLOBALQ_SANITIZER}>>:-O2> -ffp-contract=off -fno-fast-math)
endif()
if(GLOBALQ_WHOLE)
  # The C interface, libglobalq.so: its users need no Kokkos, and it exports only the functions of globalq.h.
  file(GLOB GLOBALQ_C_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/c/*.cpp)
  add_library(globalq_c SHARED ${GLOBALQ_C_SOURCES})
  add_library(globalq::c ALIAS globalq_c)
  set_target_properties(
    globalq_c
    PROPERTIES EXPORT_NAME c
               OUTPUT_NAME globalq
               VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               UNITY_BUILD ON
               UNITY_BUILD_BATCH_SIZE 4)
  if(SKBUILD) # one source of all that is not a loop; the checksum of frames is one
    target_sources(globalq_c PRIVATE ${GLOBALQ_NAMED_SOURCES} ${GLOBALQ_ADVISE_SOURCES})
    set_target_properties(globalq_c PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
    target_link_libraries(globalq_c PRIVATE globalq_compiled globalq_part_train globalq_part_model)
    set(globalq_control_optimization -O1 -ftree-vectorize)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/c/compressors.cpp PROPERTIES COMPILE_OPTIONS -O3 SKIP_UNITY_BUILD_INCLUSION ON)
  else()
    target_link_libraries(globalq_c PRIVATE globalq_named globalq_advisor)
  endif()
  target_compile_definitions(globalq_c PRIVATE GLOBALQ_BUILDS_C)
  target_compile_options(globalq_c PRIVATE ${globalq_optimization} ${globalq_control_optimization} -ffp-contract=off -fno-fast-math)
  target_link_libraries(globalq_c PRIVATE globalq_part_baseline) # and Eigen, if found, for PowerSGD
  target_sources(globalq_c PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES
                                  ${PROJECT_SOURCE_DIR}/include/globalq/c/globalq.h)
  if(NOT GLOBALQ_BUILD_C)
    set_target_properties(globalq_c PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(SKBUILD) # a wheel cannot contain symbolic links, and has only one version of the library
    set_property(TARGET globalq_c PROPERTY VERSION)
    set_property(TARGET globalq_c PROPERTY SOVERSION)
    # libgcc stays shared: pthread_exit() unwinds with the system's, which cannot pass through frames of a second one. Without
    # --gc-sections unused functions of libstdc++ need a newer glibc.
    target_link_options(globalq_c PRIVATE -static-libstdc++ -Wl,--gc-sections)
    install(TARGETS globalq_c LIBRARY DESTINATION globalq/lib COMPONENT python)
  endif()
  target_link_options(globalq_c PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/c/globalq.map)
  set_target_properties(globalq_c PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/c/globalq.map)
else()
  message(STATUS "globalq: globalq::c is not built: it needs all parts")
endif()
# The parts of globalq::mpi and globalq::nccl are separate objects of the archive. The linker uses them only for programs with these
# transports, so that other programs do not need MPI or NCCL.
function(globalq_compile_transport name)
  add_library(globalq_compiled_${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/src/transport/${name}.cpp)
  set_target_properties(globalq_compiled_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(globalq_compiled_${name} PRIVATE globalq_${name})
  target_compile_definitions(globalq_compiled_${name} PRIVATE GLOBALQ_COMPILED)
  target_compile_options(globalq_compiled_${name} PRIVATE ${globalq_optimization})
  target_sources(globalq_compiled PRIVATE $<TARGET_OBJECTS:globalq_compiled_${name}>)
endfunction()
# Sources compiled for a GPU instantiate their own kernels.
if(NOT GLOBALQ_BUILD_COMPILED
   OR Kokkos_ENABLE_CUDA
   OR GLOBALQ_SANITIZER) # tests that link them build them
  set_target_properties(globalq_compiled globalq_named PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

if(GLOBALQ_ENABLE_MPI AND MPI_CXX_FOUND)
  add_library(globalq_mpi INTERFACE)
  add_library(globalq::mpi ALIAS globalq_mpi)
  set_target_properties(globalq_mpi PROPERTIES EXPORT_NAME mpi)
  target_link_libraries(globalq_mpi INTERFACE globalq MPI::MPI_CXX)
  target_compile_definitions(globalq_mpi INTERFACE GLOBALQ_HAS_MPI OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  globalq_compile_transport(mpi)
endif()

if(GLOBALQ_ENABLE_NCCL AND NCCL_FOUND AND TARGET CUDA::cudart)
  add_library(globalq_nccl INTERFACE)
  add_library(globalq::nccl ALIAS globalq_nccl)
  set_target_properties(globalq_nccl PROPERTIES EXPORT_NAME nccl)
  target_link_libraries(globalq_nccl INTERFACE globalq NCCL::nccl CUDA::cudart)
  target_compile_definitions(globalq_nccl INTERFACE GLOBALQ_HAS_NCCL)
  globalq_compile_transport(nccl)
endif()

if(GLOBALQ_ENABLE_EIGEN
   AND TARGET Eigen3::Eigen
   AND TARGET globalq_part_baseline)
  add_library(globalq_eigen INTERFACE)
  add_library(globalq::eigen ALIAS globalq_eigen)
  set_target_properties(globalq_eigen PROPERTIES EXPORT_NAME eigen)
  target_link_libraries(globalq_eigen INTERFACE globalq_part_baseline Eigen3::Eigen)
  # Kokkos distributes blocks over threads; Eigen must multiply each block on the calling thread.
  target_compile_definitions(globalq_eigen INTERFACE GLOBALQ_HAS_EIGEN EIGEN_DONT_PARALLELIZE)
  if(TARGET globalq_c)
    target_link_libraries(globalq_c PRIVATE globalq_eigen)
    # gcc 12 warns of a register that AVX-512 intrinsics, inlined into Eigen, leave undefined on purpose
    target_compile_options(globalq_c PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>")
  endif()
endif()
