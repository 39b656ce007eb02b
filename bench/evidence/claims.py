#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/evidence.md: what the papers claim, and what the experiments found.

usage: claims.py [--check]
"""

import importlib
import sys

import experiment

NAME, DOCUMENT, QUICK = "claims", "docs/evidence.md", {}
HEAD = ["claim", "c", "kernels / exchange", "paper", "formula", "here", "verdict"]


def rendered(_: list[dict]) -> str:
    """Of all experiments that are measured: a module that has claims(lines) gets a row for each."""
    rows = []
    for name in experiment.EVERY:
        lines, found = experiment.read(name), getattr(importlib.import_module(name), "claims", None)
        rows += found(lines) if lines and found else []
    return experiment.table(HEAD, rows).replace("| --: |\n", "| --- |\n", 1)


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
