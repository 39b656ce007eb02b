# SPDX-License-Identifier: Apache-2.0
# Fails where a function of PROGRAM that is not of a set of leaves has vectors of more than 16 bytes.
execute_process(
  COMMAND ${OBJDUMP} --disassemble --no-show-raw-insn --demangle ${PROGRAM}
  OUTPUT_VARIABLE code
  COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," code "${code}")
string(REGEX REPLACE "\n\n" ";" functions "${code}")
set(wide 0)
set(plain 0)
foreach(function IN LISTS functions)
  string(REGEX MATCH "<[^\n]*>:" name "${function}")
  if(name MATCHES "globalq::kernel::isa::avx")
    if(function MATCHES "%zmm")
      math(EXPR wide "${wide} + 1")
    endif()
  elseif(name MATCHES "globalq::")
    math(EXPR plain "${plain} + 1")
    if(function MATCHES "%[yz]mm")
      message(FATAL_ERROR "${name} has instructions that not every processor has")
    endif()
  endif()
endforeach()
message(STATUS "${plain} functions for every processor, ${wide} with AVX-512")
if(wide LESS 50 OR plain LESS 50)
  message(FATAL_ERROR "${wide} functions with AVX-512, ${plain} without: the test looked at nothing")
endif()
