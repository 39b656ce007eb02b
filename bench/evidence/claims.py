#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/evidence.md: what the papers claim, and what the experiments found.

usage: claims.py [--check]
"""

import importlib
import sys

import experiment

NAME, DOCUMENT = "claims", "docs/evidence.md"
HEAD = ["claim", "c", "kernels / exchange", "paper", "formula", "here", "verdict"]


def rendered(_: list[dict]) -> str:
    """Of all experiments that are measured: a module that has claims(lines) gets a row for each."""
    rows, open_ones = [], []
    for name in experiment.EVERY:
        lines, module = experiment.read(name), importlib.import_module(name)
        try:
            if not lines:
                raise experiment.Incomplete
            rows += module.claims(lines) if hasattr(module, "claims") else []
        except experiment.Incomplete:
            open_ones.append(f"- `{name}`: {module.__doc__.splitlines()[0]}")
    text = experiment.table(HEAD, rows).replace("| --: |\n", "| --- |\n", 1)
    return text + ("\nNot measured yet, though the programs are there:\n\n" + "\n".join(open_ones) + "\n" if open_ones else "")


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
