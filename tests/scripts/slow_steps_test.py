#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tests/support/slow_steps.py on build folders with a log that the test writes.

usage: slow_steps_test.py PROJECT
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROJECT = pathlib.Path(sys.argv[1]).resolve()
LIMIT = 1.5  # seconds


def run(commands: dict, logged: dict, *, expect: int) -> str:
    """Runs the script on a build with these commands, whose log has these seconds; returns what it printed."""
    if shutil.which("ninja") is None:
        raise runner.Skipped("there is no ninja")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rules = [f"rule r{k}\n  command = {command}\nbuild {output}: r{k}\n" for k, (output, command) in enumerate(commands.items())]
        (folder / "build.ninja").write_text("".join(rules))
        lines = [f"0\t{round(1000 * seconds)}\t0\t{output}\tabc\n" for output, seconds in logged.items()]
        (folder / ".ninja_log").write_text("# ninja log v5\n" + "".join(lines))
        (folder / "c++").write_text("#!/bin/sh\n")  # compiles in no time, so the limit is not extended
        (folder / "c++").chmod(0o755)
        ran = subprocess.run([sys.executable, PROJECT / "tests/support/slow_steps.py", folder, str(LIMIT)], capture_output=True, text=True,
                             timeout=60, check=False, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    if ran.returncode != expect:
        raise runner.Failed(f"exit status {ran.returncode} instead of {expect}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def outputs_of_removed_targets_do_not_count() -> None:
    output = run({"a.o": "true", "b.txt": "true"}, {"a.o": 1, "removed.o": 100, "b.txt": 100}, expect=0)
    if "1 compile steps, 1 s" not in output or "removed.o" in output:
        raise runner.Failed(output)


def a_step_that_was_slow_among_others_is_run_alone() -> None:
    output = run({"a.o": "true", "b.o": "true"}, {"a.o": 100, "b.o": 1}, expect=0)
    if not re.search(r"a\.o \(alone \d", output) or "b.o (alone" in output:
        raise runner.Failed(output)


def a_step_that_is_slow_alone_fails() -> None:
    output = run({"a.o": "sleep 2", "b.o": "true"}, {"a.o": 100, "b.o": 1}, expect=1)
    if "1 steps take more than 1.5 s alone" not in output:
        raise runner.Failed(output)


cases = [outputs_of_removed_targets_do_not_count, a_step_that_was_slow_among_others_is_run_alone, a_step_that_is_slow_alone_fails]
sys.exit(runner.run("scripts_slow_steps", [(case.__name__, case) for case in cases]))
