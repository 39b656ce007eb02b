#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the ten slowest compile steps of a Ninja build, and fails when one of them takes too long.

usage: slow_steps.py BUILD_FOLDER LIMIT_SECONDS

Ninja logs the wall time of a step among other steps, which may be half as long again as alone. The slowest three above that are run once
more, alone, and that time counts. On a machine that takes longer than the one that the limit was set on for headers of the standard
library, the limit is longer too.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HEADERS = "".join(f"#include <{name}>\n" for name in ("algorithm", "functional", "iostream", "map", "ranges", "regex", "thread"))
HEADERS_SECONDS = 0.8  # where Kokkos_Core.hpp alone takes 1.6 s


def slowness() -> float:
    """How many times longer than the machine of the limit this one takes; at least 1."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "headers.cpp"
        source.write_text(HEADERS)
        taken = []
        for _ in range(3):
            start = time.monotonic()
            subprocess.run(["c++", "-std=c++20", "-fsyntax-only", str(source)], check=True)
            taken.append(time.monotonic() - start)
    return max(1.0, statistics.median(taken) / HEADERS_SECONDS)


def main() -> int:
    build, limit = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    listed = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, capture_output=True, text=True)
    targets = {line.rpartition(": ")[0] for line in listed.stdout.splitlines()}
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        # the log also has the outputs of sources that were removed or renamed since
        if output.endswith((".o", ".gch", ".pch")) and output in targets:
            seconds[output] = (int(end) - int(start)) / 1000
    slowest = sorted(seconds, key=seconds.get, reverse=True)
    limit *= slowness()
    print(f"{build}: {len(seconds)} compile steps, {sum(seconds.values()):.0f} s one after the other; the slowest:")
    slow = 0
    for rank, output in enumerate(slowest):
        alone = None
        if seconds[output] > 1.5 * limit and rank < 3:
            # the command of a target stands behind those of what it needs
            commands = subprocess.run(["ninja", "-C", build, "-t", "commands", output], check=True, capture_output=True, text=True)
            start = time.monotonic()
            subprocess.run(commands.stdout.splitlines()[-1], shell=True, check=True, cwd=build)
            alone = time.monotonic() - start
            slow += alone > limit
        if rank < 10 or alone is not None:
            print(f"{seconds[output]:6.1f} s  {output}" + (f" (alone {alone:.1f} s)" if alone is not None else ""))
    if slow:
        print(f"{slow} steps take more than {limit:g} s alone; split these sources, or let them instantiate less")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
