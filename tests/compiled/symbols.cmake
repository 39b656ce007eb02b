# SPDX-License-Identifier: Apache-2.0
# Fails when an object of CONSUMERS defines anything of kernels, schedules, calls or transports, which the library has, or calls of
# MPI what only the transport does.
string(REPLACE "|" ";" consumers "${CONSUMERS}")
foreach(object IN LISTS consumers)
  execute_process(
    COMMAND ${NM} --demangle ${object}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REPLACE "\n" ";" symbols "${symbols}")
  set(found 0)
  foreach(symbol IN LISTS symbols)
    if(symbol MATCHES "^ +U ")
      if(symbol MATCHES " P?MPI_" AND NOT symbol MATCHES " MPI_(Init|Finalize)$")
        message(FATAL_ERROR "${object} calls MPI where globalq::compiled does: ${symbol}")
      endif()
      continue()
    endif()
    string(REGEX REPLACE "^[0-9a-f]* [a-zA-Z] " "" name "${symbol}")
    if(name MATCHES "^main$")
      math(EXPR found "${found} + 1")
    endif()
    # the function's own name: not its arguments, and not what a standard container holds
    string(REGEX REPLACE "^((vtable|typeinfo|typeinfo name|guard variable) for )" "" name "${name}")
    if(name MATCHES "^[a-z_ ]*globalq::(kernel|schedule|transport::detail|detail::(host_call|host_engine|composed_codec|grouped_codec|call_meter|typed_policies|resolve|make_plan|operands))"
       OR name MATCHES "globalq::kernel::")
      message(FATAL_ERROR "${object} compiles what globalq::compiled has: ${symbol}")
    endif()
  endforeach()
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "No main in ${object}: the test looked at nothing")
  endif()
endforeach()
