# SPDX-License-Identifier: Apache-2.0
# Functions for projects that test CUDA programs on the emulated device.

# cuda_emulator_target(TARGET...): compiles targets so that they can run on the emulated device: PTX as text, the shared CUDA runtime.
function(cuda_emulator_target)
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--no-compress>)
  endforeach()
endfunction()

# cuda_emulator_add_test(NAME PROGRAM [ENVIRONMENT variable=value...] [ARGUMENTS argument...] [BY command...]): adds a test that runs a
# program, a target or a path, on the emulated device. BY: another command starts it.
function(cuda_emulator_add_test name program)
  cmake_parse_arguments(PARSE_ARGV 2 given "" "" "ENVIRONMENT;ARGUMENTS;BY")
  if(TARGET ${program})
    foreach(library IN ITEMS cudart cuda nccl)
      if(TARGET cuda_emulator_${library}) # built here, not installed
        add_dependencies(${program} cuda_emulator_${library})
      endif()
    endforeach()
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${name} COMMAND ${given_BY} ${program} ${given_ARGUMENTS})
  # With LD_BIND_NOW a function that a library lacks is an error when the program starts.
  set_tests_properties(
    ${name} PROPERTIES LABELS emulated ENVIRONMENT "LD_BIND_NOW=1;${given_ENVIRONMENT}"
                       ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:$<TARGET_FILE_DIR:cuda_emulator::cudart>")
endfunction()
