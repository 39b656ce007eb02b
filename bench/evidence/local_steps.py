#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Local steps (DiLoCo): the loss of the language model with each operator, paired by seed, and the time of a mean on slow links.

usage: local_steps.py [--program PROGRAM --data FILE...] [--quick] [--check]

Each worker makes some steps of Adam by itself; then all average how far they came. Losses do not depend on the load, times do.
"""

import statistics
import sys

import experiment

NAME, WORKERS, STEPS, RATE, SEEDS = "local_steps", 4, 3000, 0.003, (1, 2, 3, 4, 5)
VALUES, ROUNDS, COMPUTING = "1Mi", 5, 0.1  # of a mean on slow links; COMPUTING: of a local step, s
BASE, FEEDBACK = "float32@ring", "cgx:2,feedback"
OPERATORS = {  # "A+B" averages shards by A and gathers the means by B; difference of a prototype with H = 50
    BASE: "", "cgx:8@sra": "+0.001", "cgx:4@sra": "+0.008", "global-uniform:4@sra": "+0.043", "cgx:2@sra": "+0.228", "cgx:2@allgather": "+0.083",
    f"{FEEDBACK}@allgather": "+0.010", "cgx:4,feedback@allgather": "+0.001", f"{FEEDBACK}+cgx:2,rounding=nearest@sra": "+0.174",
    f"{FEEDBACK}@sra": "+0.018", f"{FEEDBACK}+cgx:4@sra": "+0.011", f"{FEEDBACK},second=4@sra": "+0.006", f"{FEEDBACK}+cgx:8@sra": "+0.007"}
FEW = [BASE, "cgx:4@sra", "cgx:2@sra", f"{FEEDBACK}@allgather"]
EVERY = {50: list(OPERATORS), 250: FEW, 10: FEW}  # local steps of each mean
QUICK = {"STEPS": 100, "SEEDS": (1, 2), "EVERY": {50: list(OPERATORS), 10: FEW}, "VALUES": "64Ki", "ROUNDS": 2}
LINKS = ["20mbit", "200mbit"]
MEANS = ["float32", "bfloat16", "cgx:4", f"{FEEDBACK}@allgather", f"{FEEDBACK},second=4", FEEDBACK]


def trained(program, options) -> None:
    cells = [(seed, local, *text.split("@")) for seed in SEEDS for local, operators in EVERY.items() for text in operators]
    for seed, local, operator, schedule in experiment.lacking(NAME, cells, "seed", "local", "method", "schedule"):
        experiment.measure(NAME, [
            program.parents[1] / "examples/language_model/local_steps", "--json", "--workers", WORKERS, "--local", local, "--rounds",
            STEPS // local, "--rate", RATE, "--seed", seed, "--operator", operator, "--schedule", schedule, "--text", *options.data], waits=False)


def timed(program) -> None:
    have = {line["network"] for line in experiment.read(NAME) if line["what"] == "timing"}
    for rate in LINKS:
        if rate not in have:
            experiment.measure(NAME, experiment.cluster(WORKERS, rate, program, "time", "--values", VALUES, "--steps", ROUNDS, "--warm-up", 1,
                                                        "--exchange", *MEANS, timeout=3600))


def measured(program, options) -> None:
    trained(program, options)
    timed(program)


def key(line: dict) -> tuple:
    return line["local"], f"{line['method']}@{line['schedule']}", line["seed"]


def losses(lines: list[dict]) -> str:
    of = {key(line): line for line in lines}
    seeds = [seed for seed in SEEDS if all((local, operator, seed) in of for local, operators in EVERY.items() for operator in operators)]
    if len(seeds) < 2:
        raise experiment.Incomplete

    def cell(operator: str, local: int) -> str:
        if operator not in EVERY[local]:
            return ""
        mine, base = ([of[local, which, seed]["loss"] for seed in seeds] for which in (operator, BASE))
        mean, half = experiment.interval([m - b for m, b in zip(mine, base)])
        return f"{statistics.fmean(mine):.3f}" if operator == BASE else f"({mean:+.3f} ± {half:.3f})" if abs(mean) <= half else f"{mean:+.3f} ± {half:.3f}"

    shown = {operator: next(line for line in lines if key(line)[1] == operator) for operator in EVERY[50]}
    rows = [[f"`{operator.removesuffix('@sra').removesuffix('@ring')}`", f"{line['bytes_a_round']:,}",
             f"{shown[BASE]['bytes_a_round'] / line['bytes_a_round']:.1f}", *(cell(operator, local) for local in sorted(EVERY)), OPERATORS[operator]]
            for operator, line in shown.items()]
    return experiment.table(["operator", "bytes a round", "times fewer", *(f"H = {local}" for local in sorted(EVERY)), "prototype, H = 50"], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} workers, {STEPS:,} local steps of each at the rate {RATE}, {len(seeds)} seeds. "
        f"{experiment.origin(lines)}.\n")


def times(lines: list[dict]) -> str:
    rows = []
    for method in MEANS:
        row = []
        for rate in LINKS:
            mean = statistics.median(next(line for line in lines if line["network"] == rate and line["method"] == method)["exchange"])
            row += [f"{mean:.3g}", " / ".join(f"{100 * mean / (mean + local * COMPUTING):.0f}" for local in sorted(EVERY))]
        rows.append([f"`{method}`", f"{next(line for line in lines if line['method'] == method)['bytes_a_step']:,}", *row])
    head = [cell for rate in LINKS for cell in (f"{rate[:-4]} Mbit/s: s", "share, %")]
    return experiment.table(["operator", "bytes", *head], rows) + (
        f"\nA mean of {lines[0]['values']:,} values by {WORKERS} workers, and its share of the time with a local step of "
        f"{COMPUTING} s and H = {' / '.join(map(str, sorted(EVERY)))}. Medians of {len(lines[0]['exchange'])}. {experiment.origin(lines)}.\n")


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    steps, slow = ([line for line in lines if line["what"] == what] for what in ("local steps", "timing"))
    experiment.identical(steps)
    return losses(steps) + ("\n" + times(slow) if slow else "")


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
