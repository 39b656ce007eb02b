# SPDX-License-Identifier: Apache-2.0
# Doxygen's input filter for pages: a link to a section of another page, [text](page.md#page_section), becomes a reference to the
# section, which Doxygen does not resolve by itself. GitHub follows such a link to the page.
{
  while (match($0, /\]\([a-z_.\/-]+\.md#[a-z]+_[a-z_]+\)/)) {
    link = substr($0, RSTART, RLENGTH)
    sub(/.*#/, "](@ref ", link)
    $0 = substr($0, 1, RSTART - 1) link substr($0, RSTART + RLENGTH)
  }
  print
}
