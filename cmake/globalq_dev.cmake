# SPDX-License-Identifier: Apache-2.0
# Warnings and sanitizers for the programs of this project. Users of globalq::globalq do not inherit them.

option(GLOBALQ_WARNINGS_AS_ERRORS "Warnings fail the build of tests, examples and benchmarks" OFF)
set(GLOBALQ_SANITIZER
    ""
    CACHE STRING "Sanitizer of tests and examples: empty, address (with undefined behavior) or thread")
set_property(CACHE GLOBALQ_SANITIZER PROPERTY STRINGS "" address thread)

# Uses ccache if it is installed.
find_program(GLOBALQ_CCACHE ccache)
mark_as_advanced(GLOBALQ_CCACHE)
if(GLOBALQ_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${GLOBALQ_CCACHE})
endif()

add_library(globalq_dev INTERFACE)
target_compile_options(globalq_dev INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>")
if(GLOBALQ_WARNINGS_AS_ERRORS)
  target_compile_options(globalq_dev INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()

if(GLOBALQ_SANITIZER STREQUAL "address")
  set(sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(GLOBALQ_SANITIZER STREQUAL "thread")
  set(sanitizer_flags -fsanitize=thread)
elseif(GLOBALQ_SANITIZER)
  message(FATAL_ERROR "GLOBALQ_SANITIZER is '${GLOBALQ_SANITIZER}'; set it to address or thread, or leave it empty")
endif()
if(GLOBALQ_SANITIZER)
  target_compile_options(globalq_dev INTERFACE ${sanitizer_flags} -fno-omit-frame-pointer -g1)
  target_link_options(globalq_dev INTERFACE ${sanitizer_flags})
  # Large suites then build only one representative of each policy.
  target_compile_definitions(globalq_dev INTERFACE GLOBALQ_TEST_REPRESENTATIVES)
endif()
