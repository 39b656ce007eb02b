# SPDX-License-Identifier: Apache-2.0
# Fails when the object COMPILED defines anything of kernels, schedules or calls, which the library has.
execute_process(
  COMMAND ${NM} --demangle --defined-only ${COMPILED}
  OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(found 0)
foreach(symbol IN LISTS symbols)
  string(REGEX REPLACE "^[0-9a-f]* [a-zA-Z] " "" name "${symbol}")
  if(name MATCHES "^main$")
    math(EXPR found "${found} + 1")
  endif()
  # the function's own name: not its arguments, and not what a standard container holds
  string(REGEX REPLACE "^((vtable|typeinfo|typeinfo name|guard variable) for )" "" name "${name}")
  if(name MATCHES "^[a-z_ ]*globalq::(kernel|schedule|detail::(host_call|host_engine|composed_codec|grouped_codec|call_meter|own_policies|resolve|make_plan|operands))"
     OR name MATCHES "globalq::kernel::")
    message(FATAL_ERROR "${COMPILED} compiles what globalq::compiled has: ${symbol}")
  endif()
endforeach()
if(NOT found EQUAL 1)
  message(FATAL_ERROR "No main in ${COMPILED}: the test looked at nothing")
endif()
