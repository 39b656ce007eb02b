#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells which headers of the library reach Kokkos_Core.hpp through others, in the order of how many headers each reaches.

usage: tests/header_test/include_graph.py INCLUDE_DIR HEADER...
Prints a line `kokkos HEADER` or `plain HEADER` for each, those that stand alone first.
"""

import functools
import pathlib
import re
import sys


def main() -> int:
    root, *headers = map(pathlib.Path, sys.argv[1:])

    @functools.cache
    def reached(header: pathlib.Path) -> frozenset:
        found = {header}
        for name in re.findall(r'^#include [<"](.*)[>"]', header.read_text(), re.MULTILINE):
            other = root / name if name.startswith("globalq/") else (header.parent / name).resolve()
            if other.exists():
                found |= reached(other)
            elif "Kokkos_Core" in name:
                found.add(name)
        return frozenset(found)

    for header in sorted((h.resolve() for h in headers), key=lambda h: (len(reached(h)), h)):
        print("kokkos" if "Kokkos_Core.hpp" in reached(header) else "plain", header)
    return 0


if __name__ == "__main__":
    sys.exit(main())
