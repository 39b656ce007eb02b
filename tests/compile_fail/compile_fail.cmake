# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE twice with COMPILER and the flags in the file FLAGS and the header COMMON; see CMakeLists.txt.

file(STRINGS ${SOURCE} first LIMIT_COUNT 1)
if(NOT first MATCHES "^// expect-error: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect-error: TEXT`")
endif()
set(expected "${CMAKE_MATCH_1}")
file(READ ${SOURCE} text)
if(NOT text MATCHES "#ifndef GLOBALQ_COMPILE_FAIL_OFF")
  message(FATAL_ERROR "${SOURCE}: the offending line must be inside #ifndef GLOBALQ_COMPILE_FAIL_OFF")
endif()

set(command ${COMPILER} @${FLAGS} -include ${COMMON} -fsyntax-only ${SOURCE})
execute_process(
  COMMAND ${command}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiled; this error was expected: ${expected}")
endif()
# Only the lines of an error or a note count: the source itself, quoted below them, may hold the text too.
string(REGEX MATCHALL "(error|note): [^\n]*" errors "${output}")
string(FIND "${errors}" "${expected}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "${SOURCE} failed to compile, but without this error: ${expected}\n${output}")
endif()

execute_process(
  COMMAND ${command} -DGLOBALQ_COMPILE_FAIL_OFF
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} must compile with -DGLOBALQ_COMPILE_FAIL_OFF:\n${output}")
endif()
