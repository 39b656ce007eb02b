#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes at equal error: parameters chosen for each layer beside the same ones everywhere, on a model whose layers are unlike.

usage: adaptive.py [--program PROGRAM --data FILE...] [--quick] [--check]

The model has a vocabulary of words, so that its embedding and its head hold nine tenths of the values. A choice keeps the error of the
reference; bytes are means over a whole training.
"""

import statistics
import sys

import experiment

NAME, STEPS, EVERY, WORKERS, SEEDS = "adaptive", 600, 100, 4, (1, 2, 3)
QUICK = {"STEPS": 40, "EVERY": 20, "SEEDS": (1, 2)}
# Reference; then claim, method, how many times fewer bytes than the reference in the thesis.
CHOICES = {
    "layers:cgx:4": [
        ("CGX's k-means over 4 bits (table 3.8)", "adaptive-cgx", "1.47"), ("CGX's Bayes over 4 bits (table 3.8)", "adaptive-cgx,rule=bayes", "1.34"),
        ("CGX's linear rule over 4 bits (table 3.8)", "adaptive-cgx,rule=linear", "1.15"),
        ("L-GreCo over 4 bits (tables 4.2, 4.3)", "lgreco:4", "1.10 to 1.41")],
    "top-k:1": [("L-GreCo over Top-K of 1 % (table 4.2)", "adaptive-top-k:1,range=10", "2.67, 3.78")],
    "top-k:10": [("L-GreCo over Top-K of 10 % (table 4.3)", "adaptive-top-k:10,range=10", "2.61, 5.2")],
    "power-sgd:4": [("L-GreCo over PowerSGD of rank 4 (table 4.2)", "adaptive-power-sgd:4", "1.44, 1.85")],
    "power-sgd:16": [("L-GreCo over PowerSGD of rank 16 (table 4.3: 32)", "adaptive-power-sgd:16", "1.48, 1.76"),
                     ("Accordion over PowerSGD of rank 16 (table 4.5: 32)", "adaptive-power-sgd:16,rule=accordion", "1.70"),
                     ("L-GreCo with Accordion over PowerSGD of rank 16 (table 4.5: 32)", "adaptive-power-sgd:16,rule=both", "2.62")],
}


def methods() -> list[str]:
    return ["float32", *(m for reference, rows in CHOICES.items() for m in (reference, *(row[1] for row in rows)))]


def measured(program, options) -> None:
    have = {(line["method"], line["seed"]) for line in experiment.read(NAME)}
    for seed in SEEDS:
        for method in methods():
            if (method, seed) not in have:
                experiment.measure(NAME, [
                    program, "train", "--transport", "threads", "--model", "words", "--workers", WORKERS, "--steps", STEPS, "--every", EVERY,
                    "--seed", seed, "--exchange", method, "--text", *options.data], waits=False)


class results:
    def __init__(self, lines: list[dict]):
        self.of = {(line["method"], line["seed"]): line for line in lines}
        self.seeds = experiment.seeds_of(lines, methods())

    def fewer(self, reference: str, method: str) -> float:
        return statistics.fmean(self.of[reference, s]["bytes_a_step"] / self.of[method, s]["bytes_a_step"] for s in self.seeds)

    def apart(self, method: str, reference: str) -> tuple[float, float]:
        """Of the loss: mean, half of the interval."""
        return experiment.interval([self.of[method, s]["curve"][-1][1] - self.of[reference, s]["curve"][-1][1] for s in self.seeds])


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    found = results(lines)

    def loss(method: str, reference: str) -> str:
        mean, half = found.apart(method, reference)
        return f"{mean:+.3f} ± {half:.3f}"

    rows = []
    for reference, choices in CHOICES.items():
        rows.append([f"`{reference}`", f"{found.fewer('float32', reference):.1f}", loss(reference, "float32"), "", "", ""])
        rows += [[f"`{method}`", f"{found.fewer('float32', method):.1f}", loss(method, "float32"), f"{found.fewer(reference, method):.2f}",
                  loss(method, reference), published] for _, method, published in choices]
    base = [found.of["float32", s]["curve"][-1][1] for s in found.seeds]
    return experiment.table(["method", "times fewer bytes than float32", "loss - float32", "than the reference", "loss - reference", "thesis"], rows) + (
        f"\n{WORKERS} workers, {STEPS} steps, {len(found.seeds)} seeds; float32 ends at {statistics.fmean(base):.3f} nats a word. "
        f"{experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[list[str]]:
    found, rows = results(lines), []
    for reference, choices in CHOICES.items():
        for claim, method, published in choices:
            fewer, (mean, half) = found.fewer(reference, method), found.apart(method, reference)
            least = min(float(x) for x in published.replace(" to ", ",").split(","))
            cost = "no difference in loss" if abs(mean) <= half else f"loss {mean:+.3f} ± {half:.3f}"
            rows.append(experiment.claim(f"{claim}: times fewer bytes", published, f"{fewer:.2f}",
                                         f"{'holds' if fewer >= 0.95 * least else 'holds in part' if fewer > 1.05 else 'does not hold'}; {cost}"))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
