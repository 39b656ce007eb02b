#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A click model trained with each method: differences of the AUC from float32, paired by seed, beside those of Global-QSGD.

usage: click.py [--program PROGRAM] [--quick] [--check]

Clicks are drawn from a planted model, whose AUC is the best possible one. Seeds set initial values, batches and rounding; the planted
model and the test examples are the same for all.
"""

import statistics
import sys

import experiment

NAME, STEPS, WORKERS, SEEDS = "click", 500, 4, (1, 2, 3, 4, 5)
METHODS = ["float32", "global-uniform:8", "global-exponential:8", "qsgd:8", "power-sgd:4", "cgx:4"]
QUICK = {"STEPS": 20, "SEEDS": (1, 2)}
PUBLISHED = {"float32": 0.676, "global-uniform:8": 0.698, "global-exponential:8": 0.687}  # Global-QSGD, table 3; ± 0.010, 0.003, 0.010


def measured(program, options) -> None:
    del options
    have = {(line["method"], line["seed"]) for line in experiment.read(NAME)}
    for seed in SEEDS:  # a seed of all methods, then the next: a table of fewer seeds is complete
        for method in METHODS:
            if (method, seed) not in have:
                experiment.measure(NAME, [program, "train", "--transport", "threads", "--model", "click", "--workers", WORKERS, "--steps", STEPS,
                                          "--every", STEPS, "--seed", seed, "--exchange", method], waits=False)


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    seeds = experiment.seeds_of(lines, METHODS)
    last = {(line["method"], line["seed"]): line["curve"][-1][1] for line in lines}
    sent, rows = {line["method"]: line["bytes_a_step"] for line in lines}, []
    for method in METHODS:
        mean, half = experiment.interval([last[method, seed] - last["float32", seed] for seed in seeds])
        verdict = "no difference" if abs(mean) <= half else "better" if mean > 0 else "worse"
        published = PUBLISHED.get(method)
        row = [f"`{method}`", f"{sent[method]:,}", f"{sent['float32'] / sent[method]:.2f}", f"{statistics.fmean(last[method, seed] for seed in seeds):.4f}"]
        rows.append(row + (["", "", f"{published:.3f}"] if method == "float32" else [
            f"{mean:+.4f} ± {half:.4f}", verdict, "" if published is None else f"{published:.3f} ({published - PUBLISHED['float32']:+.3f})"]))
    return experiment.table(["method", "bytes a step", "times fewer", "AUC", "- float32", "95 %", "published"], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} workers, {STEPS:,} steps, {len(seeds)} seeds. The planted model's AUC, the best possible one, is "
        f"{lines[0]['best']:.4f}. {experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[list[str]]:
    seeds = experiment.seeds_of(lines, METHODS)
    last = {(line["method"], line["seed"]): line["curve"][-1][1] for line in lines}
    rows = []
    for method, published in list(PUBLISHED.items())[1:]:
        mean, half = experiment.interval([last[method, seed] - last["float32", seed] for seed in seeds])
        rows.append(experiment.claim(f"Global-QSGD (table 3), DeepLight, `{method}`: AUC from float32", f"{published - PUBLISHED['float32']:+.3f}",
                                     f"{mean:+.4f} ± {half:.4f}", f"{'does not hold' if mean < -half else 'holds'}: it loses {-mean:.4f}" if mean < -half else "holds: it loses nothing"))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
