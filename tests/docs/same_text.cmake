# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=... -DFILE=... -DREMEDY=... -P same_text.cmake: FILE holds what PROGRAM prints.

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed: ${result}")
endif()
file(READ ${FILE} kept)
if(NOT printed STREQUAL kept)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/printed.txt "${printed}")
  execute_process(COMMAND diff ${FILE} ${CMAKE_CURRENT_BINARY_DIR}/printed.txt)
  message(FATAL_ERROR "${FILE} is not what ${PROGRAM} prints; ${REMEDY}")
endif()
