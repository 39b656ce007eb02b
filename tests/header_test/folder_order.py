#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder of the library includes only folders above it.

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
learn
adapt
compressor model
"""


def main() -> int:
    place = {folder: k for k, line in enumerate(ORDER.split("\n")) for folder in line.split()}
    root = pathlib.Path(sys.argv[1]).resolve() / "globalq"
    wrong = []
    for header in sorted(root.rglob("*.hpp")):
        folder = header.relative_to(root).parts[0]
        if folder == header.name:
            continue  # what includes everything
        if folder not in place:
            wrong.append(f"{folder}/ has no place in the order; give it one in {pathlib.Path(__file__).name}")
            continue
        for name in re.findall(r'^\s*#include "(.*)"', header.read_text(), re.MULTILINE):
            other = (header.parent / name).resolve().relative_to(root).parts[0]
            if other != folder and place.get(other, len(place)) >= place[folder]:
                wrong.append(f"{header.relative_to(root)} includes {name}, and {other}/ is not above {folder}/")
    print("\n".join(dict.fromkeys(wrong)) or f"{len(place)} folders include only folders above them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
