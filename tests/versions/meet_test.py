#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of one format version average their vectors; workers of two get the same error, which names both versions.

usage: meet_test.py PROJECT PROGRAM OTHER_PROGRAM
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROJECT, THIS, OTHER = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
VERSION = int(re.search(r"format_version = (\d+);", (PROJECT / "include/globalq/wire/frame.hpp").read_text())[1])


def meet(first: str, second: str) -> list:
    """What both workers print."""
    name = f"versions-{os.getpid()}-{os.urandom(4).hex()}"
    workers = [subprocess.Popen([program, name, str(rank)], stdout=subprocess.PIPE, text=True)
               for rank, program in enumerate((first, second))]
    try:
        return [worker.communicate(timeout=50)[0].strip() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()


def expect_refusal(first: str, second: str, versions: tuple) -> None:
    said = meet(first, second)
    for text in said:
        if not text.startswith("disagreement, the vector is unchanged: globalq: allreduce_mean: rank 1 differs"):
            raise runner.Failed(f"no refusal: {said}")
        for rank, version in enumerate(versions):
            if not re.search(rf"rank {rank}: [^,]+, frames of version {version}\b", text):
                raise runner.Failed(f"version {version} of rank {rank} is not named: {said}")
    if said[0] != said[1]:
        raise runner.Failed(f"different errors: {said}")


def one_version_meets() -> None:
    for program in (THIS, OTHER):
        if (said := meet(program, program)) != ["mean 0.5"] * 2:
            raise runner.Failed(f"no mean: {said}")


def two_versions_are_refused() -> None:
    expect_refusal(THIS, OTHER, (VERSION, VERSION + 1))
    expect_refusal(OTHER, THIS, (VERSION + 1, VERSION))


sys.exit(runner.run("versions_meet", [(case.__name__, case) for case in (one_version_meets, two_versions_are_refused)]))
