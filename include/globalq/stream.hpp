// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Calls and codecs for vectors in the memory of a stream, such as a GPU's. The transports over streams include it.

#include "call/detail/stream_call.hpp"
#include "operator/detail/make_stream_codec.hpp"
#include "operator/stream_vector_codec.hpp"
