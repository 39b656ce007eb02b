#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each script prints its usage for --help and does nothing else.

usage: help_test.py FOLDER_OF_SCRIPTS

The scripts are run from a copy of the folder with nothing beside it: one that builds, or needs anything, fails there.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position


def check(script):
    """Runs the copy of one script."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "scripts"
        shutil.copytree(script.parent, copy)
        before = sorted(pathlib.Path(folder).rglob("*"))
        ran = subprocess.run([copy / script.name, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=20, check=False)
        if ran.returncode != 0:
            raise runner.Failed(f"exit status {ran.returncode}: {ran.stderr}")
        if f"scripts/{script.name}" not in ran.stdout and not ran.stdout.startswith(f"usage: {script.name}"):
            raise runner.Failed(f"no usage in: {ran.stdout}")
        if "#!" in ran.stdout or "set -" in ran.stdout:
            raise runner.Failed(f"code in: {ran.stdout}")
        if made := set(pathlib.Path(folder).rglob("*")) - set(before):
            raise runner.Failed(f"it made {', '.join(map(str, made))}")


scripts = sorted(path for path in pathlib.Path(sys.argv[1]).resolve().iterdir() if path.is_file())
sys.exit(runner.run("scripts_help", [(script.name, lambda script=script: check(script)) for script in scripts]))
