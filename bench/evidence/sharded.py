#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""QSDP's trainings: weights and gradients of sharded workers with few bits each; perplexities beside those of the thesis' tables.

usage: sharded.py [--program PROGRAM --data FILE...] [--quick] [--check]

The baseline has float32 weights and gradients of 16 bits, as in the thesis. Perplexities are per byte here and per word there.
"""

import itertools
import statistics
import sys

import experiment

NAME, STEPS, SEEDS, BASE = "sharded", 2000, (1, 2, 3), "W32G16"
PAPER = 35.81  # perplexity of the baseline; the others: tables 5.1, 5.2, 5.3 and C.3, GPT of 125 M values
EVEN = {"W8G8": 35.58, "W6G6": 35.74, "W6G5": 36.08, "W6G4": 35.84, "W5G6": 36.01, "W5G5": 35.94, "W5G4": 36.36, "W4G6": 37.11, "W4G5": 37.38,
        "W4G4": 37.61, "W4G32": 37.11, "W3G32": 45.53, "W2G32": 57.92, "W8G3": 39.91, "W8G2": 44.79}
LEARNED = {"W6G4": 35.75, "W5G4": 36.01, "W4G4": 36.94, "W4G32": 36.55, "W3G32": 42.31, "W2G32": 56.54, "W8G3": 37.72, "W8G2": 44.65}
ROUNDED = ("W4G4", "W4G32", "W3G32", "W2G32")  # have a row with even levels and rounding to nearest, which separates levels from rounding
QUICK = {"STEPS": 30, "SEEDS": (1, 2), "EVEN": {p: EVEN[p] for p in ("W8G8", "W4G4")}, "LEARNED": {"W4G4": LEARNED["W4G4"]}, "ROUNDED": ("W4G4",)}


def methods() -> list[str]:
    return [BASE, *EVEN, *(f"{p} descent" for p in LEARNED), *(f"{p} nearest" for p in ROUNDED)]


def measured(program, options) -> None:
    for seed, method in experiment.lacking(NAME, itertools.product(SEEDS, methods()), "seed", "method"):
        experiment.measure(NAME, [
            program.parents[1] / "examples/language_model/language_model", "--json", "--falls", "--steps", STEPS, "--seed", seed,
            "--precision", method, "--text", *options.data], waits=False)


def changes(lines: list[dict]):
    """method, reference -> experiment.changes() of the loss."""
    loss = {(line["method"], line["seed"]): line["loss"] for line in lines}
    seeds = experiment.seeds_of(lines, methods())

    def change(method: str, reference: str = BASE) -> tuple[float, float]:
        return experiment.changes(*([loss[m, s] for s in seeds] for m in (method, reference)))
    return change


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    change, sent = changes(lines), {line["method"]: line["bytes_a_step"] for line in lines}

    def cell(method: str) -> str:
        return experiment.plus_minus(*change(method), 1)

    rows = [[f"`{p}`", f"{sent[p]:,}", cell(p), cell(f"{p} nearest") if p in ROUNDED else "", cell(f"{p} descent") if p in LEARNED else "",
             f"{experiment.loss_change(EVEN[p], PAPER):+.1f}", f"{experiment.loss_change(LEARNED[p], PAPER):+.1f}" if p in LEARNED else ""] for p in EVEN]
    last = [line["loss"] for line in lines if line["method"] == BASE]
    return experiment.table(["precision", "bytes a step", "random shift, %", "nearest, %", "learned, %", "thesis: even, %", "thesis: learned, %"], rows) + (
        f"\n`{BASE}` sends {sent[BASE]:,} bytes a step and ends at {statistics.fmean(last):.3f} nats a byte. "
        f"{len(experiment.seeds_of(lines, methods()))} seeds, {STEPS:,} steps. {experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    change = changes(lines)

    def claim(table: str, title: str, method: str, *perplexities: tuple[float, float]) -> experiment.Claim:
        row = experiment.loss_claim("QSDP", f"table {table}, {title}", perplexities, change(method))
        times = change(method)[0] / max(experiment.loss_change(*pair) for pair in perplexities)
        return row._replace(why=f"{times:.1f} times as much") if row.verdict == experiment.FAILS else row

    rounded = experiment.plus_minus(*change("W4G4 nearest", "W4G4"), 1)
    return [
        claim("5.1", "`W8G8`", "W8G8", (35.58, PAPER), (23.95, 23.94), (18.34, 18.00)), claim("5.3", "`W4G4`, even levels", "W4G4", (EVEN["W4G4"], PAPER)),
        claim("5.3", "`W4G4`, learned levels", "W4G4 descent", (LEARNED["W4G4"], PAPER)),
        experiment.loss_claim("QSDP", "table 5.3, `W4G4`, from even to learned levels", [(LEARNED["W4G4"], EVEN["W4G4"])], change("W4G4 descent", "W4G4"),
                              f"even levels rounded to the nearest have {rounded} %")]


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
