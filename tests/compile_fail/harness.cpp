// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The harness itself: a refusal with a known sentence.

#ifdef CASE_KNOWN_SENTENCE  // expect-error: globalq: the harness shows this sentence
static_assert(GLOBALQ_VERSION_MAJOR < 0, "globalq: the harness shows this sentence");
#endif
