# SPDX-License-Identifier: Apache-2.0
# The golden results of calls with the leaves of a SET, unless golden_test ran with them: it uses those that fit this machine best.
function(choose variable)
  execute_process(
    COMMAND ${DIGESTS} --chosen
    OUTPUT_VARIABLE chosen
    ERROR_VARIABLE error
    RESULT_VARIABLE result)
  set(${variable} "${chosen}" PARENT_SCOPE)
  set(error "${error}" PARENT_SCOPE)
  set(result ${result} PARENT_SCOPE)
endfunction()

choose(usual)
set(ENV{GLOBALQ_ISA} ${SET})
choose(chosen)
if(NOT result EQUAL 0 AND error MATCHES "${SET} \\(not on this processor\\)")
  message(STATUS "skipped: ${error}")
  return()
endif()
if(NOT chosen STREQUAL "${SET}\n")
  message(FATAL_ERROR "GLOBALQ_ISA=${SET} chooses ${chosen}${error}")
endif()
if(chosen STREQUAL usual)
  message(STATUS "golden_test has run with ${SET}")
  return()
endif()
execute_process(COMMAND ${GOLDEN} --gtest_brief=1 COMMAND_ERROR_IS_FATAL ANY)
