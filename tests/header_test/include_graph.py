#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups the headers of the library so that few translation units show that each of them compiles alone.

usage: tests/header_test/include_graph.py INCLUDE_DIR HEADER...
Prints a line `kokkos HEADER...` or `plain HEADER...` for each chain: the names of headers of which each includes the one before,
directly or through others. The first word says whether they include Kokkos_Core.hpp. The last line, `all HEADER...`, has every
header, those that reach the fewest others first.

A chain A, B, C in one translation unit shows of each header what a translation unit of its own would show. When B is read, the
headers read before it are A and those that A includes; B includes all of these itself. So B finds nothing declared that it
does not include, and an #include that is missing in B is an error.
"""

import functools
import pathlib
import re
import sys


def main() -> int:
    root, *headers = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])

    @functools.cache
    def reached(header: pathlib.Path) -> frozenset:
        """Headers that this one includes whatever is defined, directly or through others, and itself."""
        found, depth = {header}, 0
        for directive, name in re.findall(r'^#(if|endif|include [<"](.*)[>"])', header.read_text(), re.MULTILINE):
            depth += (directive == "if") - (directive == "endif")
            if depth or not name:
                continue
            other = root / name if name.startswith("globalq/") else (header.parent / name).resolve()
            if other.exists():
                found |= reached(other)
            elif "Kokkos_Core" in name:
                found.add(name)
        return frozenset(found)

    def chains(group: list) -> list:
        """As few chains as possible, in which the largest headers come last: a matching of each header with the next."""
        before = {}  # the header in front of another

        def extend(header: pathlib.Path, tried: set) -> bool:
            for larger in group:
                if larger != header and header in reached(larger) and larger not in tried:
                    tried.add(larger)
                    if larger not in before or extend(before[larger], tried):
                        before[larger] = header
                        return True
            return False

        ends = [header for header in reversed(group) if not extend(header, set())]
        for end in reversed(ends):
            chain = [end]
            while chain[-1] in before:
                chain.append(before[chain[-1]])
            yield chain[::-1]

    ordered = sorted(headers, key=lambda h: (len(reached(h)), h))
    kinds = {"kokkos": [], "plain": []}
    for header in ordered:
        kinds["kokkos" if "Kokkos_Core.hpp" in reached(header) else "plain"].append(header)
    for kind, group in kinds.items():
        for chain in chains(group):
            print(kind, *(header.relative_to(root) for header in chain))
    print("all", *(header.relative_to(root) for header in ordered))
    return 0


if __name__ == "__main__":
    sys.exit(main())
