# SPDX-License-Identifier: Apache-2.0
# Fails when one source, compiled with different flags, has a function of globalq in common with itself: a linker would keep one.
string(REPLACE "|" ";" objects "${HEADER_ONLY}|${OTHER_FLAGS}")
list(LENGTH objects expected)
if(expected LESS 2)
  message(FATAL_ERROR "Nothing to compare: ${objects}")
endif()
set(all "")
foreach(object IN LISTS objects)
  execute_process(
    COMMAND ${NM} --defined-only --extern-only ${object}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "_Z[^\n]*7globalq[^\n]*" names "${symbols}")
  list(LENGTH names count)
  if(count LESS 50)
    message(FATAL_ERROR "${count} functions of globalq in ${object}: the test looked at nothing")
  endif()
  list(APPEND all ${names})
endforeach()
list(SORT all)
set(before "")
foreach(name IN LISTS all)
  if(name STREQUAL before)
    message(FATAL_ERROR "with different flags too: ${name}")
  endif()
  set(before ${name})
endforeach()
