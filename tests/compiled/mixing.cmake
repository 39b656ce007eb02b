# SPDX-License-Identifier: Apache-2.0
# Links what must not be linked, and asks whether the linker's error has a name that a reader finds in the documentation.
function(link result_of output_of linker)
  set(flags "")
  if(NOT linker STREQUAL "default")
    set(flags -fuse-ld=${linker})
  endif()
  execute_process(
    COMMAND ${COMPILER} ${flags} ${ARGN} ${KOKKOS} -fopenmp -ldl -o ${OUTPUT}/mixed
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  set(${result_of} ${result} PARENT_SCOPE)
  set(${output_of} "${output}" PARENT_SCOPE)
endfunction()

set(mixed globalq_header_only_and_compiled_sources_in_one_program)
foreach(linker IN LISTS LINKERS)
  link(result output ${linker} ${COMPILED} ${LIBRARY})
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${linker}: the compiled source alone does not link:\n${output}")
  endif()
  foreach(order IN ITEMS "${COMPILED};${HEADER_ONLY}" "${HEADER_ONLY};${COMPILED}")
    link(result output ${linker} ${order} ${LIBRARY})
    if(result EQUAL 0 OR NOT output MATCHES ${mixed})
      message(FATAL_ERROR "${linker}: sources of both kinds (${order}): ${result}\n${output}")
    endif()
  endforeach()

  # a source that asks for another Kokkos
  execute_process(
    COMMAND ${NM} ${COMPILED}
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "(globalq_[0-9_]*_for_kokkos_)([0-9]+)([a-z0-9_]*)")
    message(FATAL_ERROR "${COMPILED} does not say what it was compiled for")
  endif()
  set(other ${CMAKE_MATCH_1}40100${CMAKE_MATCH_3})
  execute_process(COMMAND ${OBJCOPY} --redefine-sym ${CMAKE_MATCH_0}=${other} ${COMPILED} ${OUTPUT}/other.o
                          COMMAND_ERROR_IS_FATAL ANY)
  link(result output ${linker} ${OUTPUT}/other.o ${LIBRARY})
  if(result EQUAL 0 OR NOT output MATCHES ${other})
    message(FATAL_ERROR "${linker}: a library for another Kokkos: ${result}\n${output}")
  endif()
endforeach()
