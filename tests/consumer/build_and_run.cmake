# SPDX-License-Identifier: Apache-2.0
# Configures the project SOURCE into the empty folder BINARY, builds it and runs its programs, by LAUNCHER if there is one.

function(run)
  execute_process(
    COMMAND ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
endfunction()

separate_arguments(OPTIONS)
separate_arguments(LAUNCHER)
file(REMOVE_RECURSE ${BINARY})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BINARY} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_BUILD_TYPE=Debug -DKokkos_DIR=${KOKKOS} ${OPTIONS})
run(${CMAKE_COMMAND} --build ${BINARY})
foreach(program IN ITEMS consumer consumer_too header_only)
  if(program STREQUAL "consumer" OR EXISTS ${BINARY}/${program})
    run(${LAUNCHER} ${BINARY}/${program})
  endif()
endforeach()
