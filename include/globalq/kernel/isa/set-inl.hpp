// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: selects one of the sets of leaves of a library.

#include "../../core/error.hpp"
#include "processor.hpp"
#include "set.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#if defined(GLOBALQ_COMPILED)

// GLOBALQ_ISA_LIST(set, more) expands to set(name) for each set of a build, the slowest first, or to more(name, of) for
// one that replaces some leaves of the set `of`.
#if !defined(GLOBALQ_ISA_LIST)
#define GLOBALQ_ISA_LIST(set, more) set(native)
#endif

#define GLOBALQ_DECLARE_SET(set)                  \
  namespace set {                                 \
  extern leaf_set const all;                      \
  inline leaf_set const& leaves() { return all; } \
  }
#define GLOBALQ_DECLARE_MORE(set, of) \
  namespace set {                     \
  void improve(leaf_set& s);          \
  inline leaf_set const& leaves() {   \
    static leaf_set const all = [] {  \
      leaf_set s = of::leaves();      \
      improve(s);                     \
      return s;                       \
    }();                              \
    return all;                       \
  }                                   \
  }
namespace GLOBALQ_ABI::kernel::isa {
GLOBALQ_ISA_LIST(GLOBALQ_DECLARE_SET, GLOBALQ_DECLARE_MORE)
}  // namespace GLOBALQ_ABI::kernel::isa
#undef GLOBALQ_DECLARE_SET
#undef GLOBALQ_DECLARE_MORE

namespace GLOBALQ_ABI::kernel::isa {

std::span<candidate const> candidates() {
#define GLOBALQ_CANDIDATE(set) {#set, set::leaves, runs_##set},
#define GLOBALQ_CANDIDATE_MORE(set, of) GLOBALQ_CANDIDATE(set)
  static constexpr candidate all[] = {GLOBALQ_ISA_LIST(GLOBALQ_CANDIDATE, GLOBALQ_CANDIDATE_MORE)};
#undef GLOBALQ_CANDIDATE
#undef GLOBALQ_CANDIDATE_MORE
  return all;
}

namespace detail {

inline candidate const& choose() {
  char const* const wanted = std::getenv("GLOBALQ_ISA");
  std::string names;
  candidate const* best = nullptr;
  for (candidate const& c : candidates()) {
    names +=
        (names.empty() ? "" : ", ") + std::string(c.name) + (c.runs_here() ? "" : " (not on this processor)");
    if (wanted != nullptr && *wanted != 0 ? std::string_view(wanted) == c.name : c.runs_here()) best = &c;
  }
  if (best == nullptr && (wanted == nullptr || *wanted == 0))
    throw configuration_error("globalq: this processor supports none of the library's instruction sets: " +
                              names + "; build it with baseline in GLOBALQ_ISA_SETS");
  if (best == nullptr || !best->runs_here())
    throw configuration_error("globalq: GLOBALQ_ISA is " + std::string(wanted) + "; use one of " + names +
                              ", or unset it for the fastest");
  return *best;
}

}  // namespace detail

candidate const& chosen() {
  static candidate const& best = detail::choose();
  return best;
}

}  // namespace GLOBALQ_ABI::kernel::isa

#endif
