// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The entry of libFuzzer; GLOBALQ_FUZZ_TARGET is one of the functions of inputs.hpp.

#include "tests/fuzz/inputs.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::GLOBALQ_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
