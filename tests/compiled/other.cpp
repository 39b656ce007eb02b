// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A source that compiles what it uses.

#include <globalq/transport/threads.hpp>

int other_workers() { return globalq::transport::threads{2}.size(); }
