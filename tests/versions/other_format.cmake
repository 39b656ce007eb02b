# SPDX-License-Identifier: Apache-2.0
# Copies the headers of INCLUDE and SOURCE to OUTPUT, with another format version in wire/frame.hpp.

file(REMOVE_RECURSE ${OUTPUT})
file(COPY ${INCLUDE}/globalq DESTINATION ${OUTPUT})
set(header ${OUTPUT}/globalq/wire/frame.hpp)
file(READ ${header} text)
if(NOT text MATCHES "format_version = ([0-9]+);")
  message(FATAL_ERROR "wire/frame.hpp does not define format_version as a number any more; say here how to change it")
endif()
math(EXPR other "${CMAKE_MATCH_1} + 1")
string(REPLACE "${CMAKE_MATCH_0}" "format_version = ${other};" text "${text}")
file(WRITE ${header} "${text}")
file(COPY ${SOURCE} DESTINATION ${OUTPUT})
get_filename_component(name ${SOURCE} NAME)
file(TOUCH ${OUTPUT}/${name}) # newer than the headers
