#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Local steps (DiLoCo): the loss of the language model with each operator, paired by seed, and the time of a mean on slow links.

usage: local_steps.py [--program PROGRAM --data FILE...] [--quick] [--check]

Each worker makes some steps of Adam by itself; then all average how far they came. Losses do not depend on the load, times do. An operator is
METHOD@SCHEDULE, or METHOD@SCHEDULE@mean where the outer step takes the mean as it is (rate 1, no momentum), as SparseLoCo does.
"""

import statistics
import sys

import experiment

NAME, DOCUMENT, WORKERS, STEPS, RATE = "local_steps", "docs/local-steps.md", 4, 3000, 0.003
VALUES, ROUNDS, COMPUTING = "1Mi", 5, 0.1  # of a mean on slow links; COMPUTING: of a local step, s
BASE, FEEDBACK, LARGEST = "float32@ring", "cgx:2,feedback", "top-k:0.03,bits=2@allgather@mean"
OPERATORS = [  # "A+B" averages shards by A and gathers the means by B
    BASE, "cgx:8@sra", "cgx:4@sra", "global-uniform:4@sra", "cgx:2@sra", "cgx:2@allgather", f"{FEEDBACK}@allgather", "cgx:4,feedback@allgather",
    "cgx:4,feedback@sra", f"{FEEDBACK}+cgx:2,rounding=nearest@sra", f"{FEEDBACK}@sra", f"{FEEDBACK}+cgx:4@sra", f"{FEEDBACK},second=4@sra", LARGEST,
    LARGEST.removesuffix("@mean")]
FEW = {BASE: "float32", "cgx:8@sra": "8 bits", "cgx:4,feedback@sra": "4 bits", f"{FEEDBACK},second=4@sra": "2 bits", LARGEST: "top-k 3 %"}
EVERY = {50: OPERATORS, 250: list(FEW), 10: list(FEW)}  # local steps of each mean
SEEDS = (1, 2, 3, 4, 5)
QUICK = {"STEPS": 100, "SEEDS": (1, 2), "EVERY": {50: list(FEW), 10: list(FEW)}, "VALUES": "64Ki", "ROUNDS": 2}
LINKS = ["20mbit", "200mbit"]
MEANS = ["float32", "bfloat16", "cgx:4", f"{FEEDBACK}@allgather", f"{FEEDBACK},second=4", FEEDBACK]


def parts(operator: str) -> tuple[str, str, str | None]:
    """Method, schedule, and "mean" or None."""
    method, schedule, *outer = operator.split("@")
    return method, schedule, outer[0] if outer else None


def trained(program, options) -> None:
    cells = [(seed, local, *parts(text)) for seed in SEEDS for local, operators in EVERY.items() for text in operators]
    for seed, local, operator, schedule, outer in experiment.lacking(NAME, cells, "seed", "local", "method", "schedule", "outer"):
        experiment.measure(NAME, [
            program.parents[1] / "examples/language_model/local_steps", "--json", "--workers", WORKERS, "--local", local, "--rounds",
            STEPS // local, "--rate", RATE, "--seed", seed, "--operator", operator, "--schedule", schedule,
            *(["--outer-rate", 1, "--momentum", 0] if outer else []), "--text", *options.data], waits=False, facts={"outer": outer} if outer else None)


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
    return line["local"], "@".join([line["method"], line["schedule"], *([line["outer"]] if "outer" in line else [])]), line["seed"]


class trained_losses:
    """The losses of trainings, paired by seed, for the seeds that all operators of a number of local steps have."""

    def __init__(self, lines: list[dict]):
        self.of = {key(line): line for line in lines}
        self.seeds = {local: [seed for seed in SEEDS if all((local, operator, seed) in self.of for operator in operators)]
                      for local, operators in EVERY.items()}
        if any(len(seeds) < 2 for seeds in self.seeds.values()):
            raise experiment.Incomplete

    def mean(self, operator: str, local: int) -> float:
        return statistics.fmean(self.of[local, operator, seed]["loss"] for seed in self.seeds[local])

    def apart(self, operator: str, local: int) -> tuple[float, float]:
        """From float32: mean, half of the 95 % interval."""
        return experiment.interval([self.of[local, operator, seed]["loss"] - self.of[local, BASE, seed]["loss"] for seed in self.seeds[local]])

    def sent(self, operator: str) -> int:
        """Bytes of a mean."""
        return self.of[50, operator, self.seeds[50][0]]["bytes_a_round"]


def losses(lines: list[dict]) -> str:
    found = trained_losses(lines)

    def cell(operator: str, local: int) -> str:
        if operator not in EVERY[local]:
            return ""
        if operator == BASE:
            return f"{found.mean(BASE, local):.3f}"
        return experiment.difference(*found.apart(operator, local))

    def named(operator: str) -> str:
        method, schedule, outer = parts(operator)
        return f"`{method}`" + ("" if schedule in ("sra", "ring") else f" over {schedule}") + (", no momentum" if outer else "")

    rows = [[named(operator), f"{found.sent(operator):,}", f"{found.sent(BASE) / found.sent(operator):.1f}",
             *(cell(operator, local) for local in sorted(EVERY))] for operator in EVERY[50]]
    counts = {local: len(found.seeds[local]) for local in sorted(EVERY)}
    seeds = ", ".join(f"{count} seeds at H = {local}" for local, count in counts.items()) if len(set(counts.values())) > 1 else f"{counts[50]} seeds"
    return experiment.table(["operator", "bytes a mean", "times fewer", *(f"H = {local}" for local in sorted(EVERY))], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} workers, {STEPS:,} local steps of each at the rate {RATE}; {seeds}. "
        f"{experiment.origin(lines)}.\n")


def chart_of(lines: list[dict]) -> tuple[str, str]:
    """Loss against the bytes that a worker sends for a local step, with a line for each number of local steps."""
    found = trained_losses([line for line in lines if line["what"] == "local steps"])
    top = found.mean(BASE, max(EVERY)) + 0.2  # losses above it are numbers at the edge
    data, plots = [], []
    for k, local in enumerate(sorted(EVERY)):
        points = sorted((found.sent(operator) / local, found.mean(operator, local), FEW[operator]) for operator in FEW)
        data.append(f"$h{k} << EOD\n" + "".join(f'{x:.6g} {y:.6g} "{name}"\n' for x, y, name in points if y <= top) + "EOD\n")
        plots.append(f"$h{k} using 1:2 with linespoints linetype {k + 1} pointtype 7 pointsize .6 title 'H = {local}'")
        for first, offset in enumerate((-.9, -1.8) if k == 0 else (.8, .8)):  # neighbors below the lowest line are close
            plots.append(f"$h{k} every 2::{first} using 1:2:3 with labels offset 0,{offset} font ',9' textcolor linetype {k + 1} notitle")
        if above := [(x, y, name) for x, y, name in points if y > top]:
            data.append(f"$above{k} << EOD\n" + "".join(f'{x:.6g} {top:.6g} "{name}: {y:.2f}"\n' for x, y, name in above) + "EOD\n")
            plots.append(f"$above{k} using 1:2 with points linetype {k + 1} pointtype 9 notitle, "
                         f"$above{k} using 1:2:3 with labels offset 0,-.9 font ',9' textcolor linetype {k + 1} notitle")
    return "local-steps.svg", (
        "set terminal svg size 760,420 font 'sans-serif,11' background '#ffffff' name 'local_steps'\nset encoding utf8\nset logscale x\n"
        "set format x '%.0f'\nset xlabel 'bytes a worker sends for each local step'\nset ylabel 'loss on unseen text, nats a byte'\n"
        f"set yrange [{found.mean(BASE, min(EVERY)) - 0.04:.6g}:{top:.6g}]\nset offsets graph .08, graph .08, 0, graph .05\nset key bottom left\nset grid\n"
        + "".join(data) + "plot " + ", ".join(plots) + "\n")


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
    steps, slow = ([line for line in lines if line["what"] == what] for what in ("local steps", "timing"))
    experiment.one_source(NAME, steps)
    experiment.identical(steps)
    if not slow:
        return losses(steps)
    experiment.one_source(NAME, slow)  # another table, which may have another one
    return losses(steps) + "\n" + times(slow)


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
