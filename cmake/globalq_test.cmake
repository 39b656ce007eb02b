# SPDX-License-Identifier: Apache-2.0
# Test suites: executables with GoogleTest that CTest runs.
#
#   globalq_add_suite(NAME SOURCES file... [HEADER_ONLY] [MPI] [LIBRARIES target...])
#       the executable NAME_test
#       HEADER_ONLY  links globalq::globalq; all others link globalq::compiled
#       MPI          starts it by the MPI launcher with 1, 2, 3, 4, 5 and 8 ranks
#   globalq_add_folders()
#       one suite for each folder, of all *_test.cpp in it that no earlier call has named; *mpi_test.cpp form a separate
#       suite, with MPI
#   Both leave out files that include parts which this build does not have (globalq_parts.cmake), and, unless it has all parts, the folders
#   bench, c and examples.
#   globalq_computing(file...)
#       optimizes files whose tests compute for seconds
#   globalq_compile_apart(suite... file...)
#       files that are compiled alone, and suites of such files; others are compiled four at a time, which takes half of the time
#   globalq_sanitize(address|thread regex... [IN_FULL regex...])
#       the files that the presets asan and tsan build, and those that they also build with GLOBALQ_TESTS_IN_FULL;
#       GLOBALQ_SANITIZER_FILES overrides it
#
# All suites except header-only ones share one precompiled header and one set of flags. They are not optimized, because the
# kernels are in the library, and tests then compile in 60 % of the time.

set(GLOBALQ_SANITIZER_FILES
    ""
    CACHE STRING "Test files that a sanitizer preset builds, as regular expressions; empty: the list of the preset")
set(GLOBALQ_TEST_WORLDS 1 2 3 4 5 8)

find_package(GTest 1.12 REQUIRED)
include(globalq_launcher)

# Each suite writes its counts here for tests/support/totals.py.
set(GLOBALQ_TEST_COUNTS ${PROJECT_BINARY_DIR}/Testing/counts)

set(test_environment
    OMP_PROC_BIND=false
    GLOBALQ_TESTS_IN_FULL=${GLOBALQ_TESTS_IN_FULL} # matrix_test then runs every composition
    ${GLOBALQ_MPI_ENVIRONMENT})
set(test_launcher "")
if(GLOBALQ_SANITIZER STREQUAL "address")
  list(APPEND test_environment UBSAN_OPTIONS=print_stacktrace=1)
elseif(GLOBALQ_SANITIZER STREQUAL "thread")
  list(APPEND test_environment TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
  # The sanitizer of clang 14 fails with the wide address randomization of newer kernels.
  find_program(GLOBALQ_SETARCH setarch)
  if(GLOBALQ_SETARCH)
    execute_process(COMMAND ${GLOBALQ_SETARCH} -R true RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
    if(setarch_result EQUAL 0)
      set(test_launcher ${GLOBALQ_SETARCH} -R)
    endif()
  endif()
endif()

# Every suite links this.
add_library(globalq_test_base INTERFACE)
target_include_directories(globalq_test_base INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(
  globalq_test_base INTERFACE "GLOBALQ_FUZZ_CORPUS=\"${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus\""
                              "GLOBALQ_DIGITS_CSV=\"${PROJECT_SOURCE_DIR}/examples/digits/digits.csv\"")
target_link_libraries(globalq_test_base INTERFACE globalq_dev GTest::gtest GTest::gmock)
foreach(library IN ITEMS globalq::mpi globalq::eigen)
  if(TARGET ${library})
    target_link_libraries(globalq_test_base INTERFACE ${library})
  endif()
endforeach()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 gives false warnings for a precompiled <string> (its bugs 105329 and 105651), and for its own header of AVX-512
  # intrinsics when inlined into Eigen.
  target_compile_options(globalq_test_base INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread
                                                     -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
add_library(globalq_test_main OBJECT support/main.cpp support/allocations.cpp)
target_link_libraries(globalq_test_main PRIVATE globalq_test_base globalq::globalq)
if(TARGET globalq::mpi)
  add_library(globalq_test_mpi_main OBJECT support/mpi_main.cpp support/allocations.cpp)
  target_link_libraries(globalq_test_mpi_main PRIVATE globalq_test_base globalq::globalq)
endif()

# Suites whose files share translation units also link this: names of one file may hide those of another.
add_library(globalq_test_units INTERFACE)
target_compile_options(globalq_test_units INTERFACE -Wno-shadow)

# Suites that are not header-only also link this: the library, operators by name, and compositions on streams that many suites use.
add_library(globalq_test_compiled INTERFACE)
target_link_libraries(globalq_test_compiled INTERFACE globalq_test_base)
if(GLOBALQ_SANITIZER STREQUAL "thread")
  target_link_libraries(globalq_test_compiled INTERFACE globalq::globalq) # header-only, by clang, as users may compile it
else()
  add_library(globalq_test_streams STATIC EXCLUDE_FROM_ALL support/streams_of_integers.cpp support/streams_of_nearest.cpp
                                                           support/streams_of_levels.cpp support/streams_of_packed.cpp)
  target_include_directories(globalq_test_streams PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(globalq_test_streams PUBLIC GLOBALQ_TEST_STREAMS_COMPILED)
  target_link_libraries(globalq_test_streams PUBLIC globalq::compiled PRIVATE globalq_dev)
  if(NOT GLOBALQ_SANITIZER)
    target_compile_options(globalq_test_streams PRIVATE -O1)
  endif()
  target_link_libraries(globalq_test_compiled INTERFACE globalq::named globalq::compiled)
  if(NOT GLOBALQ_SANITIZER OR GLOBALQ_TESTS_IN_FULL) # else no suite needs them, and the emulated device checks their accesses
    target_link_libraries(globalq_test_compiled INTERFACE globalq_test_streams)
  endif()
  if(NOT GLOBALQ_SANITIZER)
    target_compile_options(globalq_test_compiled INTERFACE -O0)
  endif()
endif()
add_library(globalq_test_precompiled OBJECT support/precompiled.cpp)
target_link_libraries(globalq_test_precompiled PRIVATE globalq_test_compiled)
target_precompile_headers(globalq_test_precompiled PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/precompiled.hpp)

# _globalq_add_run(TEST EXECUTABLE PROCESSORS ENVIRONMENT... COMMAND...): one CTest test
function(_globalq_add_run test executable)
  cmake_parse_arguments(RUN "" "PROCESSORS" "ENVIRONMENT;LAUNCHER" ${ARGN})
  add_test(NAME ${test} COMMAND ${RUN_LAUNCHER} ${test_launcher} $<TARGET_FILE:${executable}> --gtest_brief=1)
  string(REGEX REPLACE "_test$" "" label ${executable})
  set_tests_properties(
    ${test}
    PROPERTIES ENVIRONMENT "${test_environment};${RUN_ENVIRONMENT};GTEST_OUTPUT=json:${GLOBALQ_TEST_COUNTS}/${test}.json"
               PROCESSORS ${RUN_PROCESSORS} LABELS ${label} TIMEOUT 900)
endfunction()

function(globalq_add_suite name)
  cmake_parse_arguments(SUITE "HEADER_ONLY;MPI" "" "SOURCES;LIBRARIES" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY GLOBALQ_NAMED_TESTS ${SUITE_SOURCES})
  set(tests ${SUITE_SOURCES})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  _globalq_filter_for_parts(tests)
  _globalq_filter_for_sanitizer(tests)
  if(NOT tests)
    return()
  endif()
  if(SUITE_MPI AND NOT TARGET globalq::mpi)
    message(STATUS "globalq: ${name}_test is not built: globalq::mpi is not available")
    return()
  endif()
  set(executable ${name}_test)
  add_executable(${executable} ${SUITE_SOURCES})
  target_link_libraries(${executable} PRIVATE ${SUITE_LIBRARIES})
  if(SUITE_HEADER_ONLY)
    target_link_libraries(${executable} PRIVATE globalq_test_base globalq::globalq)
    if(NOT GLOBALQ_SANITIZER)
      target_compile_options(${executable} PRIVATE -O0) # the test fast_math compiles with optimization
    endif()
  else()
    target_link_libraries(${executable} PRIVATE globalq_test_compiled)
    target_precompile_headers(${executable} REUSE_FROM globalq_test_precompiled)
  endif()
  get_property(apart GLOBAL PROPERTY GLOBALQ_COMPILED_APART)
  if(NOT name IN_LIST apart)
    set_target_properties(${executable} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
    target_link_libraries(${executable} PRIVATE globalq_test_units) # last: its options come after those of the others
  endif()
  if(SUITE_MPI)
    target_link_libraries(${executable} PRIVATE globalq_test_mpi_main)
    foreach(ranks IN LISTS GLOBALQ_TEST_WORLDS)
      # MPI and its launcher leak on purpose
      _globalq_add_run(
        ${executable}.ranks_${ranks} ${executable} PROCESSORS ${ranks} ENVIRONMENT OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
        LAUNCHER ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${GLOBALQ_LAUNCHER_FLAGS} ${MPIEXEC_PREFLAGS})
    endforeach()
    return()
  endif()
  target_link_libraries(${executable} PRIVATE globalq_test_main)
  # Large suites run in several parts, which can run at the same time.
  list(LENGTH tests files)
  math(EXPR parts "(${files} + 3) / 4")
  if(parts EQUAL 1)
    _globalq_add_run(${executable} ${executable} PROCESSORS 2 ENVIRONMENT OMP_NUM_THREADS=2)
    return()
  endif()
  math(EXPR last "${parts} - 1")
  foreach(part RANGE ${last})
    _globalq_add_run(${executable}.part_${part} ${executable} PROCESSORS 2 ENVIRONMENT OMP_NUM_THREADS=2
                     GTEST_TOTAL_SHARDS=${parts} GTEST_SHARD_INDEX=${part})
  endforeach()
endfunction()

# _globalq_filter_for_sanitizer(VARIABLE): removes files that this preset does not build
function(_globalq_filter_for_sanitizer variable)
  set(files ${${variable}})
  if(GLOBALQ_SANITIZER)
    set(expressions ${GLOBALQ_SANITIZER_FILES})
    if(NOT expressions)
      get_property(expressions GLOBAL PROPERTY GLOBALQ_FILES_FOR_${GLOBALQ_SANITIZER})
    endif()
    list(JOIN expressions "|" expression)
    list(FILTER files INCLUDE REGEX "${expression}")
  endif()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# _globalq_filter_for_parts(VARIABLE): removes files that test parts which this build does not have
function(_globalq_filter_for_parts variable)
  set(files ${${variable}})
  if(NOT GLOBALQ_WHOLE)
    list(FILTER files EXCLUDE REGEX "^(bench|c|examples)/")
    globalq_keep_configured(files)
  endif()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

function(globalq_computing)
  if(NOT GLOBALQ_SANITIZER)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

function(globalq_compile_apart)
  set_property(GLOBAL PROPERTY GLOBALQ_COMPILED_APART ${ARGN})
  set(files ${ARGN})
  list(FILTER files INCLUDE REGEX "\\.cpp$")
  set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(globalq_sanitize sanitizer)
  cmake_parse_arguments(SANITIZE "" "" "IN_FULL" ${ARGN})
  set(files ${SANITIZE_UNPARSED_ARGUMENTS})
  if(GLOBALQ_TESTS_IN_FULL)
    list(APPEND files ${SANITIZE_IN_FULL})
  endif()
  set_property(GLOBAL PROPERTY GLOBALQ_FILES_FOR_${sanitizer} ${files})
endfunction()

function(globalq_add_folders)
  file(
    GLOB_RECURSE files
    RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
    CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  list(FILTER files EXCLUDE REGEX "^cuda/")  # built by the preset cuda
  get_property(named GLOBAL PROPERTY GLOBALQ_NAMED_TESTS)
  list(REMOVE_ITEM files ${named})
  _globalq_filter_for_parts(files)
  _globalq_filter_for_sanitizer(files)
  set(suites "")
  foreach(file IN LISTS files)
    get_filename_component(folder ${file} DIRECTORY)
    string(REPLACE "/" "_" suite ${folder})
    if(file MATCHES "mpi_test\\.cpp$")
      string(APPEND suite _mpi)
    endif()
    list(APPEND suites ${suite})
    list(APPEND sources_${suite} ${file})
  endforeach()
  list(REMOVE_DUPLICATES suites)
  foreach(suite IN LISTS suites)
    if(suite MATCHES "_mpi$")
      globalq_add_suite(${suite} MPI SOURCES ${sources_${suite}})
    else()
      globalq_add_suite(${suite} SOURCES ${sources_${suite}})
    endif()
  endforeach()
endfunction()
