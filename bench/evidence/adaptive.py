#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes at equal error: parameters chosen for each layer beside the same ones everywhere, on a model whose layers are unlike.

usage: adaptive.py [--program PROGRAM --data FILE...] [--quick] [--check]

The model has a vocabulary of words, so that its embedding and its head hold nine tenths of the values. A choice keeps the error of the
reference; bytes are means over a whole training.
"""

import itertools
import statistics
import sys

import experiment

NAME, STEPS, EVERY, WORKERS, SEEDS = "adaptive", 600, 100, 4, (1, 2, 3, 4, 5)
TOLERANCE = 1  # of the loss, in % (thesis, section 4.6.1, of accuracies)
# Reference; then paper (none of a comparator, whose row claims nothing), claim, method, how many times fewer bytes than the reference in the thesis.
CHOICES = {
    "layers:cgx:4": [
        ("CGX", "k-means over 4 bits (table 3.8)", "adaptive-cgx", "1.47"), ("CGX", "Bayes over 4 bits (table 3.8)", "adaptive-cgx,rule=bayes", "1.34"),
        ("CGX", "a linear rule over 4 bits (table 3.8)", "adaptive-cgx,rule=linear", "1.15"),
        ("L-GreCo", "over 4 bits (tables 4.2, 4.3)", "lgreco:4", "1.10 to 1.41")],
    "top-k:1": [("L-GreCo", "over Top-K of 1 % (table 4.2)", "adaptive-top-k:1,range=10", "2.67, 3.78")],
    "top-k:10": [("L-GreCo", "over Top-K of 10 % (table 4.3)", "adaptive-top-k:10,range=10", "2.61, 5.2")],
    "power-sgd:4": [("L-GreCo", "over PowerSGD of rank 4 (table 4.2)", "adaptive-power-sgd:4", "1.44, 1.85")],
    "power-sgd:16": [("L-GreCo", "over PowerSGD of rank 16 (table 4.3: 32)", "adaptive-power-sgd:16", "1.48, 1.76"),
                     ("", "Accordion, a comparator, over PowerSGD of rank 16 (table 4.5: 32)", "adaptive-power-sgd:16,rule=accordion", "1.70"),
                     ("L-GreCo", "with Accordion, over PowerSGD of rank 16 (table 4.5: 32)", "adaptive-power-sgd:16,rule=both", "2.62")],
}
QUICK = {"STEPS": 16, "EVERY": 8, "SEEDS": (1, 2), "CHOICES": {"layers:cgx:4": CHOICES["layers:cgx:4"]}}


def methods() -> list[str]:
    return ["float32", *(m for reference, rows in CHOICES.items() for m in (reference, *(row[2] for row in rows)))]


def measured(program, options) -> None:
    for seed, method in experiment.lacking(NAME, itertools.product(SEEDS, methods()), "seed", "method"):
        experiment.measure(NAME, experiment.training(program, "words", method, seed, workers=WORKERS, steps=STEPS, every=EVERY,
                                                     more=["--text", *options.data]), waits=False)


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    found = experiment.trainings(lines, methods())

    def loss(method: str, reference: str) -> str:
        return experiment.plus_minus(*found.apart(method, reference), 3)

    rows = []
    for reference, choices in CHOICES.items():
        rows.append([f"`{reference}`", f"{found.fewer(reference):.1f}", loss(reference, "float32"), "", "", ""])
        rows += [[f"`{method}`", f"{found.fewer(method):.1f}", loss(method, "float32"), f"{found.fewer(method, reference):.2f}",
                  loss(method, reference), published] for *_, method, published in choices]
    return experiment.table(["method", "times fewer bytes than float32", "loss - float32", "than the reference", "loss - reference", "thesis"], rows) + (
        f"\n{WORKERS} workers, {STEPS} steps, {len(found.seeds)} seeds; float32 ends at {statistics.fmean(found.last('float32')):.3f} nats a word. "
        f"{experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    found, rows = experiment.trainings(lines, methods()), []
    for reference, choices in CHOICES.items():
        for paper, claim, method, published in choices:
            if not paper:
                continue
            fewer, (mean, half) = found.fewer(method, reference), experiment.changes(found.last(method), found.last(reference))
            least = min(float(x) for x in published.replace(" to ", ",").split(","))
            verdict = (experiment.FAILS if fewer - 1 < (least - 1) / 2 else
                       experiment.HOLDS if fewer >= 0.95 * least and mean + half < TOLERANCE else experiment.IN_PART)
            rows.append(experiment.Claim(paper, f"{claim}: times fewer bytes", published, f"{fewer:.2f}", verdict,
                                         f"loss {experiment.plus_minus(mean, half, 2)} %"))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
