#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manages the lines of scripts/evidence: adds the run to each line, and replaces older lines.

usage: lines.py about --build BUILD                         facts of a run, as JSON
       lines.py put --about FILE [--fact NAME=VALUE]... [--methods NAME...] --from NEW --into FILE

Each line gets "run": commit, date, machine, build, and the facts of --fact. Each line of a timing gets "base": the times of float32 in
the same run, so that a ratio never mixes two runs. Without --methods the new lines replace the file. With it they replace only the
lines of those methods; lines of float32 are added if the file has none, and are otherwise kept.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE)]
import figures  # noqa: E402
import report as benchmarks  # noqa: E402  bench/support/report.py: machine and build

TIMES = ("step", "exchange", "compute", "method_compute")


def about(build: pathlib.Path) -> dict:
    return {"commit": benchmarks.commit(), "date": benchmarks.today(), "machine": benchmarks.machine(), "build": benchmarks.build_of(build)}


def read(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def place(line: dict) -> tuple:
    """The key that is equal in two lines of a timing measured side by side."""
    return line["model"], line["workers"], line["network"]


def stamped(lines: list[dict], run: dict) -> list[dict]:
    bases = {place(t): {name: t[name] for name in TIMES} for t in lines if t["what"] == "timing" and t["method"] == figures.BASE and "step" in t}
    result = []
    for line in lines:
        line = {**line, "run": run}
        if line["what"] == "timing" and "step" in line and place(line) in bases:
            line["base"] = bases[place(line)]
        result.append(line)
    return result


def merged(old: list[dict], new: list[dict], methods: list[str]) -> list[dict]:
    """The old lines, with those of some methods replaced."""
    def without_seed(line: dict) -> tuple:
        return line["what"], *place(line), line["method"]
    there = {without_seed(line) for line in old}
    added = [line for line in new if line["method"] in methods or (line["method"] == figures.BASE and without_seed(line) not in there)]
    replaced = {without_seed(line) for line in added}
    return [line for line in old if without_seed(line) not in replaced] + added


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("about")
    asked.add_argument("--build", type=pathlib.Path, required=True)
    put = commands.add_parser("put")
    put.add_argument("--about", type=pathlib.Path, required=True)
    put.add_argument("--fact", action="append", default=[])
    put.add_argument("--methods", nargs="*", default=[])
    put.add_argument("--from", dest="source", type=pathlib.Path, required=True)
    put.add_argument("--into", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if options.command == "about":
        print(json.dumps(about(options.build)))
        return 0
    run = json.loads(options.about.read_text())
    for fact in options.fact:
        name, _, value = fact.partition("=")
        run[name] = int(value) if value.isdigit() else value
    new = stamped(read(options.source), run)
    if options.methods:
        new = merged(read(options.into), new, options.methods)
    options.into.write_text("".join(json.dumps(line) + "\n" for line in new))
    options.source.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
