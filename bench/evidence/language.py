#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The language model trained to its end with each operator: differences of the loss from float32, paired by seed, with intervals.

usage: language.py [--program PROGRAM --data FILE...] [--quick] [--check]

Seeds set initial values, batches and rounding, so two methods of a seed differ only by the exchange. Losses do not depend on the load.
"""

import itertools
import statistics
import sys

import experiment

NAME, STEPS, EVERY, WORKERS, SEEDS = "language", 3000, 50, 4, (1, 2, 3, 4, 5)
METHODS = ["float32", "qsgd:8@sra", "qsgd:4@sra", "cgx:4", "mxfp4@sra", "nvfp4@sra", "eden:4@sra", "cgx:4,rounding=correlated", "cgx:4,feedback",
           "cgx:2", "eden:2@sra", "cgx:2,feedback", "global-uniform:8", "global-exponential:8"]

CLAIMS = [  # paper, claim, method, reference, perplexities there
    ("CGX", "table 3.5, Transformer-XL and GPT-2, 4 bits", "cgx:4", "float32", ((22.9, 22.81), (13.9, 14.1))),
    ("Global-QSGD", "table 3, Transformer-XL, `global-exponential:8`", "global-exponential:8", "float32", ((24.35, 23.75),)),
    ("Global-QSGD", "table 3, Transformer-XL, 8 bits, from uniform to exponential levels", "global-exponential:8", "global-uniform:8",
     ((24.35, 33.12),)),
]
QUICK = {"STEPS": 100, "SEEDS": (1, 2), "METHODS": ["float32", "qsgd:4@sra", "cgx:4", "cgx:2", "cgx:2,feedback"]}


def measured(program, options) -> None:
    for seed, method in experiment.lacking(NAME, itertools.product(SEEDS, METHODS), "seed", "method"):
        experiment.measure(NAME, experiment.training(program, "language", method, seed, workers=WORKERS, steps=STEPS, every=EVERY,
                                                     more=["--text", *options.data]), waits=False)


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    found, rows = experiment.trainings(lines, METHODS), []
    for method in METHODS:
        mean, half = found.apart(method)
        shown, verdict = ("", "") if method == "float32" else (experiment.plus_minus(mean, half, 4), experiment.compared(mean, half))
        rows.append([f"`{method}`", f"{found.sent(method):,}", f"{found.fewer(method):.2f}", f"{statistics.fmean(found.last(method)):.4f}", shown, verdict])
    base = found.last("float32")
    return experiment.table(["method", "bytes a step", "times fewer", "loss, nats", "- float32", "95 %"], rows) + (
        f"\n{WORKERS} workers, {STEPS:,} steps, {len(found.seeds)} seeds; float32 ends between {min(base):.4f} and {max(base):.4f}. "
        f"{experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    found, rows = experiment.trainings(lines, METHODS), []
    for paper, what, method, reference, perplexities in CLAIMS:
        rows.append(experiment.loss_claim(paper, what, perplexities, experiment.changes(found.last(method), found.last(reference)),
                                          f"{found.fewer(method):.1f} times fewer bytes than float32"))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
