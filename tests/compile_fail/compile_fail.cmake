# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE with COMPILER, the flags in the file FLAGS and in MORE and the header COMMON, once without a case and once for each of
# its cases; see CMakeLists.txt.

set(command ${COMPILER} @${FLAGS} ${MORE} -include ${COMMON} -fsyntax-only -Wfatal-errors ${SOURCE})
set(wrong "")

execute_process(
  COMMAND ${command}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  string(APPEND wrong "without a case it must compile:\n${output}\n")
endif()

file(STRINGS ${SOURCE} lines REGEX "CASE_|expect-error")
set(cases 0)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^#if(def CASE_[A-Z0-9_]+|ndef CASE_[A-Z0-9_]+)  // expect-error: (globalq: .+)$")
    string(APPEND wrong "not `#ifdef CASE_NAME  // expect-error: globalq: TEXT`, nor #ifndef: ${line}\n")
    continue()
  endif()
  set(expected "${CMAKE_MATCH_2}")
  string(REGEX MATCH "CASE_[A-Z0-9_]+" name "${line}")
  math(EXPR cases "${cases} + 1")
  execute_process(
    COMMAND ${command} -D${name}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  # What a compiler says first is what people read; the source quoted below it may hold the text too.
  string(REGEX MATCH "error: [^\n]*" first "${output}")
  string(FIND "${first}" "${expected}" position)
  if(result EQUAL 0)
    string(APPEND wrong "${name} compiled; its first error should be: ${expected}\n")
  elseif(position EQUAL -1)
    string(APPEND wrong "${name}: the first error should be: ${expected}\n${output}\n")
  endif()
endforeach()

if(cases EQUAL 0)
  string(APPEND wrong "no cases in it\n")
endif()
if(NOT wrong STREQUAL "")
  message(FATAL_ERROR "${SOURCE} with ${COMPILER}:\n${wrong}")
endif()
