#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/evidence.md: what the papers claim, and what the experiments found.

usage: claims.py [--check]
"""

import importlib
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
    of = {(paper, verdict): [claim for claim in found if (claim.paper, claim.verdict) == (paper, verdict)] for paper in PAPERS for verdict in experiment.VERDICTS}
    if len(found) != sum(map(len, of.values())):
        raise SystemExit("evidence: a claim has another paper than PAPERS, or another verdict than experiment.VERDICTS")
    text = experiment.table(["verdict", *PAPERS], [[verdict, *(str(len(of[paper, verdict])) for paper in PAPERS)] for verdict in experiment.VERDICTS])
    rows = [[c.paper, c.what, c.c, c.kernels, str(c.published), c.formula, c.here, c.verdict, c.why] for paper in PAPERS for c in found if c.paper == paper]
    text += "\n" + experiment.table(["paper", "claim", "c", "kernels / exchange", "published", "formula", "here", "verdict", "why"], rows, (0, 1, 7, 8))
    return text + ("\nNot measured yet, though the programs are there:\n\n" + "\n".join(open_ones) + "\n" if open_ones else "")


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
