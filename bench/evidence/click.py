#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A click model trained with each method: differences of the AUC from float32, paired by seed, beside those of Global-QSGD.

usage: click.py [--program PROGRAM] [--quick] [--check]

Clicks are drawn from a planted model, whose AUC is the best possible one. Seeds set initial values, batches and rounding; the planted
model and the test examples are the same for all.
"""

import itertools
import math
import statistics
import sys

import experiment

NAME, STEPS, WORKERS, SEEDS = "click", 500, 4, (1, 2, 3, 4, 5)
METHODS = ["float32", "global-uniform:8", "global-exponential:8", "qsgd:8", "power-sgd:4", "cgx:4"]
QUICK = {"STEPS": 20, "SEEDS": (1, 2)}
PUBLISHED = {"float32": (0.676, 0.010), "global-uniform:8": (0.698, 0.003), "global-exponential:8": (0.687, 0.010)}  # Global-QSGD, table 3


def measured(program, options) -> None:
    del options
    for seed, method in experiment.lacking(NAME, itertools.product(SEEDS, METHODS), "seed", "method"):
        experiment.measure(NAME, experiment.training(program, "click", method, seed, workers=WORKERS, steps=STEPS, every=STEPS), waits=False)


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    found, rows = experiment.trainings(lines, METHODS), []
    for method in METHODS:
        mean, half = found.apart(method)
        published, _ = PUBLISHED.get(method, (None, None))
        row = [f"`{method}`", f"{found.sent(method):,}", f"{found.fewer(method):.2f}", f"{statistics.fmean(found.last(method)):.4f}"]
        rows.append(row + (["", "", f"{published:.3f}"] if method == "float32" else [
            experiment.plus_minus(mean, half, 4), experiment.compared(-mean, half),
            "" if published is None else f"{published:.3f} ({published - PUBLISHED['float32'][0]:+.3f})"]))
    return experiment.table(["method", "bytes a step", "times fewer", "AUC", "- float32", "95 %", "published"], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} workers, {STEPS:,} steps, {len(found.seeds)} seeds. The planted model's AUC, the best possible one, is "
        f"{lines[0]['best']:.4f}. {experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    found, rows = experiment.trainings(lines, METHODS), []
    base, spread = PUBLISHED["float32"]
    for method, (published, own) in list(PUBLISHED.items())[1:]:
        mean, half = found.apart(method)
        gain, most = published - base, math.hypot(spread, own)
        rows.append(experiment.Claim("Global-QSGD", f"table 3, DeepLight, `{method}`: AUC from float32", experiment.plus_minus(gain, most, 3), experiment.plus_minus(mean, half, 4),
                                     experiment.HOLDS if mean + half >= gain - most else experiment.FAILS, f"it loses {-mean:.4f}" if mean < -half else ""))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
