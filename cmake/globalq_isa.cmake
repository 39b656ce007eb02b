# SPDX-License-Identifier: Apache-2.0
# The instruction sets of globalq::compiled. A program uses the best one that its machine runs.
#
# Sets GLOBALQ_ISA_SOURCES: one source for each set, compiled with its own flags.

include(CheckCXXCompilerFlag)

# these follow the flags of the build: the last -march counts
set(globalq_isa_flags_baseline -march=x86-64 -mtune=generic)
set(globalq_isa_flags_avx2 -march=x86-64-v3 -mtune=generic)
set(globalq_isa_flags_avx512 -march=x86-64-v4 -mtune=generic)
set(globalq_isa_flags_avx512vbmi -march=x86-64-v4 -mavx512vbmi -mavx512vbmi2 -mtune=generic)
set(globalq_isa_flags_native "")

set(globalq_isa_default baseline)
# macOS may build for several architectures at once
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$"
   AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang"
   AND NOT MSVC
   AND (NOT CMAKE_OSX_ARCHITECTURES OR CMAKE_OSX_ARCHITECTURES STREQUAL "x86_64"))
  check_cxx_compiler_flag("-march=x86-64-v4 -mavx512vbmi2" GLOBALQ_KNOWS_X86_64_V4)
  if(GLOBALQ_KNOWS_X86_64_V4)
    set(globalq_isa_default baseline avx2 avx512 avx512vbmi)
  endif()
else()
  set(globalq_isa_flags_baseline "")
endif()
set(GLOBALQ_ISA_SETS
    "${globalq_isa_default}"
    CACHE STRING "Instruction sets of globalq::compiled, slowest first: baseline;avx2;avx512;avx512vbmi, or native: the flags of the build")

set(GLOBALQ_ISA_SOURCES ${PROJECT_SOURCE_DIR}/src/isa/candidates.cpp)
set(globalq_isa_list "")
foreach(set IN LISTS GLOBALQ_ISA_SETS)
  if(NOT set IN_LIST globalq_isa_default AND NOT set STREQUAL "native")
    message(FATAL_ERROR "globalq: GLOBALQ_ISA_SETS: '${set}' is not available; use some of ${globalq_isa_default}, or native")
  endif()
  if(globalq_isa_list MATCHES "\\(${set}[,)]")
    message(FATAL_ERROR "globalq: GLOBALQ_ISA_SETS names '${set}' twice")
  endif()
  set(source ${PROJECT_SOURCE_DIR}/src/isa/${set}.cpp)
  set_source_files_properties(
    ${source} PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<BOOL:${GLOBALQ_SANITIZER}>>:-O3>;${globalq_isa_flags_${set}}"
                         SKIP_UNITY_BUILD_INCLUSION ON)
  list(APPEND GLOBALQ_ISA_SOURCES ${source})
  if(set STREQUAL "avx512vbmi")
    if(NOT globalq_isa_list MATCHES "set\\(avx512\\)")
      message(FATAL_ERROR "globalq: GLOBALQ_ISA_SETS: avx512vbmi extends avx512; name avx512 before it")
    endif()
    string(APPEND globalq_isa_list "more(avx512vbmi,avx512)")
  else()
    string(APPEND globalq_isa_list "set(${set})")
  endif()
endforeach()
if(NOT globalq_isa_list)
  message(FATAL_ERROR "globalq: GLOBALQ_ISA_SETS is empty; use at least baseline, or native")
endif()
# an option, because compile definitions cannot be macros with arguments
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/isa/candidates.cpp PROPERTIES COMPILE_OPTIONS
                                                                         "-DGLOBALQ_ISA_LIST(set,more)=${globalq_isa_list}")
