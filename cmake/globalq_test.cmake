# SPDX-License-Identifier: Apache-2.0
# globalq_add_test: registers a test with CTest.
#
#   globalq_add_test(levels/uniform_test.cpp)
#       an executable of its own, levels_uniform_test
#   globalq_add_test(NAME levels SOURCES levels/uniform_test.cpp levels/table_test.cpp)
#       several files in one executable, levels_test, compiled as one: fewer links, fewer template instantiations
#   globalq_add_test(schedule/mpi_test.cpp RANKS 1 2 4)
#       links globalq::mpi; one CTest test for each world size, all cases in one launch
#
# Options:
#   RANKS n...              world sizes; the executable is started by the MPI launcher
#   THREADS n...            values of OMP_NUM_THREADS; one CTest test each (default: 2, with RANKS: 1)
#   LIBRARIES target...     what to link besides globalq and GoogleTest
#   DEFINITIONS name...     preprocessor definitions
#   LABELS label...         labels for ctest -L; the folder of the first file is always one
#   SANITIZE address thread the sanitizer presets that build this suite too (see GLOBALQ_SANITIZER_SUITES)
#   TIMEOUT seconds         default: 300
#   KERNELS                 a suite of kernels that it compiles itself: optimised as the preset says
#   COMPUTES                a suite that computes for seconds itself: -O1; all others get -O0

set(GLOBALQ_SANITIZER_SUITES
    ""
    CACHE STRING "Suites that a sanitizer build has, by name; empty: those that say SANITIZE")
option(GLOBALQ_REQUIRE_REGISTERED_TESTS "Configuring fails when a *_test.cpp is not registered" ON)

find_package(GTest 1.12 REQUIRED)
include(globalq_launcher)

# What every suite includes.
set(GLOBALQ_TEST_HEADERS <gtest/gtest.h> <gmock/gmock.h> <Kokkos_Core.hpp>)
add_library(globalq_test_main OBJECT support/main.cpp)
target_precompile_headers(globalq_test_main PRIVATE ${GLOBALQ_TEST_HEADERS})
target_link_libraries(globalq_test_main PUBLIC globalq::globalq globalq_dev GTest::gtest)
if(NOT GLOBALQ_SANITIZER) # the same, precompiled for suites without optimisation
  add_library(globalq_test_plain OBJECT EXCLUDE_FROM_ALL support/main.cpp)
  target_precompile_headers(globalq_test_plain PRIVATE ${GLOBALQ_TEST_HEADERS})
  target_link_libraries(globalq_test_plain PRIVATE globalq_test_main)
  target_compile_options(globalq_test_plain PRIVATE -O0)
endif()
if(TARGET globalq::mpi)
  add_library(globalq_test_mpi_main OBJECT support/mpi_main.cpp)
  target_link_libraries(globalq_test_mpi_main PUBLIC globalq::mpi globalq_dev GTest::gtest)
endif()

# Where each suite leaves its counts, for tests/support/totals.py.
set(GLOBALQ_TEST_COUNTS ${PROJECT_BINARY_DIR}/Testing/counts)

set(test_environment
    OMP_PROC_BIND=false
    ${GLOBALQ_MPI_ENVIRONMENT})
set(test_launcher "")
if(GLOBALQ_SANITIZER STREQUAL "address")
  # MPI and its launcher leak on purpose; the library's own suites without MPI are checked for leaks.
  list(APPEND test_environment UBSAN_OPTIONS=print_stacktrace=1)
elseif(GLOBALQ_SANITIZER STREQUAL "thread")
  list(APPEND test_environment TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
  # The sanitizer of clang 14 cannot live with the widest address randomisation of newer kernels.
  find_program(GLOBALQ_SETARCH setarch)
  if(GLOBALQ_SETARCH)
    execute_process(COMMAND ${GLOBALQ_SETARCH} -R true RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
    if(setarch_result EQUAL 0)
      set(test_launcher ${GLOBALQ_SETARCH} -R)
    endif()
  endif()
endif()

# One CTest test that runs the executable `name`; `suffix` tells variants apart.
function(_globalq_add_run name suffix)
  cmake_parse_arguments(RUN "" "THREADS;RANKS;TIMEOUT" "LABELS" ${ARGN})
  set(test ${name}${suffix})
  set(command ${test_launcher} $<TARGET_FILE:${name}> --gtest_brief=1)
  set(processors ${RUN_THREADS})
  set(environment ${test_environment})
  if(RUN_RANKS)
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${RUN_RANKS} ${GLOBALQ_LAUNCHER_FLAGS} ${MPIEXEC_PREFLAGS}
                ${command} ${MPIEXEC_POSTFLAGS})
    math(EXPR processors "${RUN_THREADS} * ${RUN_RANKS}")
    list(APPEND environment ASAN_OPTIONS=detect_leaks=0)
  endif()
  add_test(NAME ${test} COMMAND ${command})
  list(APPEND environment OMP_NUM_THREADS=${RUN_THREADS} GTEST_OUTPUT=json:${GLOBALQ_TEST_COUNTS}/${test}.json)
  set_tests_properties(
    ${test}
    PROPERTIES ENVIRONMENT "${environment}"
               PROCESSORS ${processors}
               TIMEOUT ${RUN_TIMEOUT}
               LABELS "${RUN_LABELS}")
endfunction()

# What keeps the build short. The files of a suite are compiled as one, so that the library's templates are instantiated once a
# suite (the nine files of adapt: 38 s instead of 102 s); a file that is no test stays apart, as its suite is about that. What
# most suites include is precompiled. Only suites of kernels, and globalq_compositions for all others, get the preset's
# optimisation; the code around kernels runs for moments, and compiles in 60 % of the time without any.
function(_globalq_compile_fast name kernels computes sources libraries)
  set(precompiled globalq_test_main)
  if(GLOBALQ_SANITIZER OR NOT (kernels OR computes))
    if(globalq_compositions IN_LIST libraries)
      set(precompiled globalq_test_calls)
    elseif(NOT GLOBALQ_SANITIZER)
      set(precompiled globalq_test_plain)
    endif()
  endif()
  target_precompile_headers(${name} REUSE_FROM ${precompiled})
  if(NOT GLOBALQ_SANITIZER AND NOT kernels)
    target_compile_options(${name} PRIVATE $<IF:$<BOOL:${computes}>,-O1,-O0>)
  endif()
  # A suite whose flags differ (LibTorch's) reads the headers themselves, which is no reason for a warning.
  set_target_properties(${name} PROPERTIES PCH_WARN_INVALID OFF)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 warns of the inside of std::string where <string> is precompiled (its bugs 105329 and 105651).
    target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
                                           -Wno-stringop-overread)
  endif()
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  if(NOT sources)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

function(globalq_add_test)
  cmake_parse_arguments(TEST "KERNELS;COMPUTES" "NAME;TIMEOUT" "SOURCES;RANKS;THREADS;LIBRARIES;DEFINITIONS;LABELS;SANITIZE" ${ARGN})
  list(APPEND TEST_SOURCES ${TEST_UNPARSED_ARGUMENTS})
  foreach(source IN LISTS TEST_SOURCES)
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
      message(FATAL_ERROR "globalq_add_test: there is no file tests/${source}")
    endif()
    set_property(GLOBAL APPEND PROPERTY GLOBALQ_REGISTERED_TESTS ${source})
  endforeach()
  list(GET TEST_SOURCES 0 first)
  if(NOT TEST_NAME)
    string(REGEX REPLACE "(_test)?\\.cpp$" "" TEST_NAME ${first})
    string(REPLACE "/" "_" TEST_NAME ${TEST_NAME})
  endif()
  set(name ${TEST_NAME}_test)

  if(GLOBALQ_SANITIZER)
    if(GLOBALQ_SANITIZER_SUITES)
      if(NOT TEST_NAME IN_LIST GLOBALQ_SANITIZER_SUITES)
        return()
      endif()
    elseif(NOT GLOBALQ_SANITIZER IN_LIST TEST_SANITIZE)
      return()
    endif()
  endif()
  if(TEST_RANKS AND NOT TARGET globalq::mpi)
    message(STATUS "globalq: ${name} is left out, as globalq::mpi is")
    return()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  get_filename_component(folder ${first} DIRECTORY)
  list(APPEND TEST_LABELS ${folder})

  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINITIONS})
  if(TEST_RANKS)
    target_link_libraries(${name} PRIVATE globalq_test_mpi_main)
  else()
    target_link_libraries(${name} PRIVATE globalq_test_main)
  endif()
  target_link_libraries(${name} PRIVATE GTest::gmock ${TEST_LIBRARIES})
  _globalq_compile_fast(${name} "${TEST_KERNELS}" "${TEST_COMPUTES}" "${TEST_SOURCES}" "${TEST_LIBRARIES}")

  if(NOT TEST_RANKS)
    set(TEST_RANKS 0)
    if(NOT TEST_THREADS)
      set(TEST_THREADS 2)
    endif()
  elseif(NOT TEST_THREADS)
    set(TEST_THREADS 1)
  endif()
  list(LENGTH TEST_THREADS variants)
  foreach(ranks IN LISTS TEST_RANKS)
    foreach(threads IN LISTS TEST_THREADS)
      set(suffix "")
      if(ranks)
        string(APPEND suffix ".ranks_${ranks}")
      endif()
      if(variants GREATER 1)
        string(APPEND suffix ".threads_${threads}")
      endif()
      _globalq_add_run(
        ${name} "${suffix}"
        THREADS ${threads}
        RANKS ${ranks}
        TIMEOUT ${TEST_TIMEOUT}
        LABELS ${TEST_LABELS})
    endforeach()
  endforeach()
endfunction()

# Called once, after all tests are registered.
function(globalq_check_registered_tests)
  file(
    GLOB_RECURSE files
    RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
    CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  get_property(registered GLOBAL PROPERTY GLOBALQ_REGISTERED_TESTS)
  if(registered)
    list(REMOVE_ITEM files ${registered})
  endif()
  if(files)
    list(JOIN files ", " names)
    set(severity WARNING)
    if(GLOBALQ_REQUIRE_REGISTERED_TESTS)
      set(severity SEND_ERROR)
    endif()
    message(${severity} "globalq: not registered by globalq_add_test in tests/CMakeLists.txt: ${names}")
  endif()
endfunction()
