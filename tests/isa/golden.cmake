# SPDX-License-Identifier: Apache-2.0
# The golden results of calls with the leaves of a SET.
set(ENV{GLOBALQ_ISA} ${SET})
execute_process(
  COMMAND ${DIGESTS} --chosen
  OUTPUT_VARIABLE chosen
  ERROR_VARIABLE error
  RESULT_VARIABLE result)
if(NOT result EQUAL 0 AND error MATCHES "${SET} \\(not on this processor\\)")
  message(STATUS "skipped: ${error}")
  return()
endif()
if(NOT chosen STREQUAL "${SET}\n")
  message(FATAL_ERROR "GLOBALQ_ISA=${SET} chooses ${chosen}${error}")
endif()
execute_process(COMMAND ${GOLDEN} --gtest_brief=1 COMMAND_ERROR_IS_FATAL ANY)
