# SPDX-License-Identifier: Apache-2.0
# Fails where the object of a set of leaves has a symbol that another source may have too: a linker would keep one of them, and
# the program might have instructions of this set where it must not. And where it needs more than the C library's memory functions.
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
string(REPLACE "|" ";" SETS "${SETS}")
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/isa/(baseline|avx2|avx512|avx512vbmi|native)\\.cpp\\.o(bj)?$")
    continue()
  endif()
  set(set ${CMAKE_MATCH_1})
  string(LENGTH ${set} length)
  execute_process(
    COMMAND ${NM} ${object}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" symbols "${symbols}")
  set(own 0)
  foreach(symbol IN LISTS symbols)
    if(symbol MATCHES " [a-tv-z] ")  # local
      continue()
    elseif(symbol MATCHES " U (.*)$")
      if(NOT CMAKE_MATCH_1 MATCHES "^(mem(cpy|set|move|cmp)|__popcountdi2|_Unwind_Resume|__gxx_personality_v0|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|globalq_header_only_and_compiled_sources_in_one_program)$")
        message(FATAL_ERROR "${object} needs ${CMAKE_MATCH_1}")
      endif()
    elseif(symbol MATCHES "6kernel3isa${length}${set}")
      math(EXPR own "${own} + 1")
    elseif(NOT symbol MATCHES " DW\\.ref\\.|^$")
      message(FATAL_ERROR "${object} has a symbol that other sources may have: ${symbol}")
    endif()
  endforeach()
  if(own LESS 1)
    message(FATAL_ERROR "No symbol of ${set} in ${object}: the test looked at nothing")
  endif()
  list(REMOVE_ITEM SETS ${set})
  message(STATUS "${set}: ${own} symbols, all its own")
endforeach()
if(SETS)
  message(FATAL_ERROR "No object of ${SETS} among ${OBJECTS}")
endif()
