#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/evidence.md: what the papers claim, and what the experiments found.

usage: claims.py [--check]
"""

import collections
import importlib
import itertools
import sys

import experiment

NAME, DOCUMENT = "claims", "docs/evidence.md"
PAPERS = ("Global-QSGD", "QSGD", "ALQ", "CGX", "L-GreCo", "QSDP")


def rendered(_: list[dict]) -> str:
    """Of all experiments that are measured: the rows of modules that have claims(lines), by paper, below how many have each verdict."""
    found: list[experiment.Claim] = []
    open_ones = []
    for name in experiment.EVERY:
        lines, module = experiment.read(name), importlib.import_module(name)
        try:
            if not lines:
                raise experiment.Incomplete
            found += module.claims(lines) if hasattr(module, "claims") else []
        except experiment.Incomplete:
            open_ones.append(f"- `{name}`: {module.__doc__.splitlines()[0]}")
    counts = collections.Counter((claim.paper, claim.verdict) for claim in found)
    if unknown := set(counts) - set(itertools.product(PAPERS, experiment.VERDICTS)):
        raise SystemExit(f"evidence: claims of {sorted(unknown)}; add the paper to PAPERS, or the verdict to experiment.VERDICTS")
    text = experiment.table(["verdict", *PAPERS], [[verdict, *(str(counts[paper, verdict]) for paper in PAPERS)] for verdict in experiment.VERDICTS])
    rows = [[c.paper, c.what, c.c, c.kernels, c.published, c.formula, c.here, c.verdict, c.why] for c in sorted(found, key=lambda c: PAPERS.index(c.paper))]
    text += "\n" + experiment.table(["paper", "claim", "c", "kernels / exchange", "published", "formula", "here", "verdict", "why"], rows, (0, 1, 7, 8))
    return text + ("\nNot measured yet, though the programs are there:\n\n" + "\n".join(open_ones) + "\n" if open_ones else "")


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
