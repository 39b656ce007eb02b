# SPDX-License-Identifier: Apache-2.0
# Fails when the object of SOURCE, one of OBJECTS (between them: |), defines a codec of a composition: `extern template` kept none out then.
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
foreach(object IN LISTS OBJECTS)
  execute_process(
    COMMAND ${NM} --demangle --defined-only ${object}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(FIND "${symbols}" "composed_codec<" found)
  if(object MATCHES "${SOURCE}")
    set(looked ON)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${object} has kernels that another source compiles")
    endif()
  elseif(NOT found EQUAL -1)
    set(elsewhere ON)
  endif()
endforeach()
if(NOT looked OR NOT elsewhere)
  message(FATAL_ERROR "No object of ${SOURCE}, or none with kernels, in ${OBJECTS}")
endif()
