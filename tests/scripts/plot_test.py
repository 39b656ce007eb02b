#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of scripts/plot: what it reads, what it draws at which places, and what it refuses.

usage: plot_test.py PROJECT
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROJECT = pathlib.Path(sys.argv[1]).resolve()
GOOGLE = {"context": {}, "benchmarks": [
    {"name": f"{what}/n:{n}/manual_time", "run_name": f"{what}/n:{n}/manual_time", "run_type": "iteration", "real_time": time}
    for what, each in (("encode", 2), ("decode", 3)) for n in (4096, 65536) for time in (n * each, n * each + 2, n * each + 7)]}
HISTORY = {"format": "globalq-gpu-history", "results": {"norm/linf/1024": [9.5, 0.4, 0.01], "norm/linf/2048": [19.5, 0.5, 0.01]}}
LINES = "\n".join(json.dumps({"method": m, "workers": w, "model": model, "error": [1 / w, 2 / w, 4 / w], "note": "x"})
                  for m in ("a", "b") for w in (2, 4, 8) for model in ("one", "two"))


def run(document, *arguments, expect: int = 0) -> tuple[str, str]:
    """What was printed, and the script that gnuplot received: another program stands in its place."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "data.json").write_text(document if isinstance(document, str) else json.dumps(document))
        (folder / "gnuplot").write_text(f"#!/bin/sh\ncat > {folder}/received\n")
        (folder / "gnuplot").chmod(0o755)
        ran = subprocess.run([sys.executable, PROJECT / "scripts/plot", folder / "data.json", "--output", folder / "chart.svg", *arguments],
                             capture_output=True, text=True, timeout=60, check=False,
                             env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        if ran.returncode != expect:
            raise runner.Failed(f"exit status {ran.returncode} instead of {expect}: {ran.stdout}{ran.stderr}")
        received = folder / "received"
        return ran.stdout + ran.stderr, received.read_text() if received.exists() else ""


def data_of(script: str) -> dict:
    """title of a series -> its places"""
    blocks = dict(re.findall(r"(\$\w+) << END\n(.*?)\nEND", script, re.DOTALL))
    return {title: [tuple(map(float, line.split())) for line in blocks[block].splitlines()]
            for block, title in re.findall(r"(\$\w+) with .*? title '(.*?)'", script)}


def equal(found, expected):
    if found != expected:
        raise runner.Failed(f"{found} instead of {expected}")


def refuses(text: str, document, *arguments):
    told, _ = run(document, *arguments, expect=1 if text.startswith("neither") or text.startswith("has no") else 2)
    if text not in told:
        raise runner.Failed(f"the message lacks {text}: {told}")


def google_benchmarks_are_medians_of_repetitions():
    _, script = run(GOOGLE, "--y", "real_time")
    equal(data_of(script), {"encode": [(4096, 8194), (65536, 131074)], "decode": [(4096, 12290), (65536, 196610)]})
    equal("'4 Ki' 4096" in script and "set logscale x 2" in script, True)


def history_has_the_length_in_its_names():
    _, script = run(HISTORY)
    equal(data_of(script), {"norm/linf": [(1024, 0.4), (2048, 0.5)]})


def lines_are_filtered_and_divided_into_panels():
    _, script = run(LINES, "--filter", "method=^a$", "--panel", "model", "--linear")
    equal(script.count("\nplot "), 2)
    equal(data_of(script), {"a": [(2, 1), (4, 0.5), (8, 0.25)]})
    equal("logscale" in script, False)
    told, _ = run(LINES, "--fields")
    equal("workers: 2, 4, 8\n" in told, True)


def what_cannot_be_drawn_is_refused():
    refuses("neither JSON nor lines", "text")
    refuses("has no records", {"a": 1})
    refuses("no record is left", LINES, "--filter", "method=c")
    refuses("no record has numbers in workers and note", LINES, "--y", "note")
    refuses("give --x and --y", {"rows": [{"a": 1}]})
    refuses("too many to tell apart", "\n".join(json.dumps({"method": str(k), "workers": 1, "error": 1}) for k in range(41)))
    refuses("ends with .svg or .png", LINES, "--output", "chart.pdf")


cases = [google_benchmarks_are_medians_of_repetitions, history_has_the_length_in_its_names, lines_are_filtered_and_divided_into_panels,
         what_cannot_be_drawn_is_refused]
sys.exit(runner.run("scripts_plot", [(case.__name__, case) for case in cases]))
