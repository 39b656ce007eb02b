#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder of the library includes only folders above it, and scalars need no Kokkos.

usage: tests/header_test/folder_order.py INCLUDE_DIR
The order is the road of a vector, as docs/design.md tells it. Folders of one line do not include one another.
"""

import pathlib
import re
import sys

ORDER = """
core
random
levels rounding wire reduce norm
kernel
operator
transport
schedule
plan
telemetry
call
collective
train/learn
train/adapt
baseline model bench
named
"""

# Above the kernels there is none of Kokkos, but for what tells its views from other vectors.
SCALARS = ("core", "random", "levels", "rounding", "wire", "reduce", "norm")
VIEWS = "core/vector.hpp"


def station(header: pathlib.Path, place: dict) -> str:
    """The folder of ORDER that a header is in: its first folder, or its first two."""
    two = "/".join(header.parts[:2])
    return two if two in place else header.parts[0]


def main() -> int:
    place = {folder: k for k, line in enumerate(ORDER.split("\n")) for folder in line.split()}
    root = pathlib.Path(sys.argv[1]).resolve() / "globalq"
    wrong = []
    for header in sorted(root.rglob("*.hpp")):
        folder = station(header.relative_to(root), place)
        if folder == header.name:
            continue  # an umbrella
        if folder not in place:
            wrong.append(f"{folder}/ has no place in the order; give it one in {pathlib.Path(__file__).name}")
            continue
        text, name_here = header.read_text(), str(header.relative_to(root))
        if folder in SCALARS and name_here != VIEWS and "include <Kokkos" in text:
            wrong.append(f"{name_here} includes Kokkos; scalars are compiled for each instruction set, without it")
        for name in re.findall(r'^\s*#include "(.*)"', text, re.MULTILINE):
            other = station((header.parent / name).resolve().relative_to(root), place)
            if other != folder and place.get(other, len(place)) >= place[folder]:
                wrong.append(f"{name_here} includes {name}, and {other}/ is not above {folder}/")
    print("\n".join(dict.fromkeys(wrong)) or f"{len(place)} folders include only folders above them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
