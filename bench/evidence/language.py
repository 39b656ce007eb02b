#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The language model trained to its end with each operator: differences of the loss from float32, paired by seed, with intervals.

usage: language.py [--program PROGRAM --text FILE...] [--document FILE] [--check]

Seeds set initial values, batches and rounding, so two methods of a seed differ only by the exchange. Losses do not depend on the load.
"""

import statistics
import sys

import experiment
import figures

NAME, STEPS, EVERY, WORKERS, SEEDS = "language", 3000, 50, 4, (1, 2, 3, 4, 5)
METHODS = ["float32", "qsgd:8@sra", "qsgd:4@sra", "cgx:4", "mxfp4@sra", "nvfp4@sra", "eden:4@sra", "cgx:4,rounding=correlated", "cgx:4,feedback",
           "cgx:2", "eden:2@sra", "cgx:2,feedback"]


def measured(program, options) -> None:
    have = {(line["method"], line["seed"]) for line in experiment.read(NAME)}
    for seed in SEEDS:  # a seed of all methods, then the next: a table of fewer seeds is complete
        for method in METHODS:
            if (method, seed) in have:
                continue
            experiment.measure(NAME, [
                program, "train", "--transport", "threads", "--model", "language", "--workers", WORKERS, "--steps", STEPS, "--every", EVERY,
                "--seed", seed, "--exchange", method, "--text", *options.text], waits=False)


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    wrong = [f"{line['method']}, seed {line['seed']}" for line in lines if not line["identical"]]
    if wrong:
        raise SystemExit(f"evidence: workers ended with different parameters: {'; '.join(wrong)}")
    last = {(line["method"], line["seed"]): line["curve"][-1][1] for line in lines}
    sent = {line["method"]: line["bytes_a_step"] for line in lines}
    base = [last["float32", seed] for seed in SEEDS]
    rows = []
    for method in METHODS:
        apart = [last[method, seed] - last["float32", seed] for seed in SEEDS]
        mean, half = experiment.interval(apart)
        shown = "" if method == "float32" else f"{mean:+.4f} ± {half:.4f}"
        verdict = "" if method == "float32" else "no difference" if abs(mean) <= half else "worse" if mean > 0 else "better"
        rows.append([f"`{method}`", f"{sent[method]:,}", f"{sent['float32'] / sent[method]:.2f}",
                     f"{statistics.fmean(last[method, seed] for seed in SEEDS):.4f}", shown, verdict])
    return figures.table(["method", "bytes a step", "times fewer", "loss, nats", "- float32", "95 %"], rows) + (
        f"\n{WORKERS} workers, {STEPS:,} steps, seeds {SEEDS[0]} to {SEEDS[-1]}; float32 ends between {min(base):.4f} and {max(base):.4f}. "
        f"{experiment.origin(lines)}.\n")


if __name__ == "__main__":
    sys.exit(experiment.run(NAME, __doc__.splitlines()[0], document=experiment.ROOT / "docs/evidence-tables.md", rendered=rendered, measured=measured))
