# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAMS, separated by commas, and fails unless all print what the first one prints.

string(REPLACE "," ";" programs "${PROGRAMS}")
set(expected "")
set(different FALSE)
foreach(program IN LISTS programs)
  execute_process(
    COMMAND ${program}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${program} failed: ${result}\n${errors}")
  endif()
  if(NOT output MATCHES "[0-9a-f]")
    message(FATAL_ERROR "${program} printed nothing")
  endif()
  if(expected STREQUAL "")
    set(expected "${output}")
    set(first ${program})
  elseif(NOT output STREQUAL expected)
    set(different TRUE)
    message("${program}\n${output}differs from\n${first}\n${expected}")
  endif()
endforeach()
if(different)
  message(FATAL_ERROR "the same input gave other bits with other compiler flags")
endif()
