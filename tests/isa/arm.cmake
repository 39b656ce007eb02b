# SPDX-License-Identifier: Apache-2.0
# The leaves compiled for ARM and run in an emulator: the bits of this machine's. Compilers are looked for when the test runs.
find_program(CROSS aarch64-linux-gnu-g++)
find_program(EMULATOR qemu-aarch64)
if(NOT CROSS OR NOT EMULATOR)
  message(STATUS "skipped: needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user)")
  return()
endif()
set(program ${OUTPUT}/leaf_digests_arm)
execute_process(
  COMMAND
    ${CROSS} -std=c++20 -O2 -static -ffp-contract=off -DGLOBALQ_COMPILED -DLEAF_DIGESTS_ALONE
    "-DGLOBALQ_ISA_LIST(set,more)=set(baseline)" -I${SOURCE}/include ${SOURCE}/tests/isa/leaf_digests.cpp
    ${SOURCE}/src/isa/candidates.cpp ${SOURCE}/src/isa/baseline.cpp -o ${program} COMMAND_ERROR_IS_FATAL ANY)
foreach(machine IN ITEMS here arm)
  set(command ${DIGESTS})
  if(machine STREQUAL "arm")
    set(command ${EMULATOR} ${program})
  endif()
  execute_process(
    COMMAND ${command} baseline
    OUTPUT_VARIABLE ${machine}
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(NOT here STREQUAL arm OR NOT here MATCHES "int8.uniform127.encode.stochastic [0-9a-f]+\n")
  file(WRITE ${OUTPUT}/here.txt "${here}")
  file(WRITE ${OUTPUT}/arm.txt "${arm}")
  message(FATAL_ERROR "Leaves give other bits on ARM: compare here.txt and arm.txt in ${OUTPUT}")
endif()
