# SPDX-License-Identifier: Apache-2.0
# What is said where GLOBALQ_ISA names no set.
set(ENV{GLOBALQ_ISA} sse9)
execute_process(
  COMMAND ${DIGESTS} --chosen
  ERROR_VARIABLE error
  RESULT_VARIABLE result)
if(result EQUAL 0 OR NOT error MATCHES "globalq: GLOBALQ_ISA is sse9. use one of [a-z0-9, ()]+, or unset it for the fastest")
  message(FATAL_ERROR "GLOBALQ_ISA=sse9: ${result}: ${error}")
endif()
set(ENV{GLOBALQ_ISA} "")
execute_process(COMMAND ${DIGESTS} --chosen COMMAND_ERROR_IS_FATAL ANY)
