#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of steps whose computing is replayed as a sleep, beside those of the papers: the chart and the table of docs/evidence.md.

usage: replay.py [--program PROGRAM] [--quick] [--check]

c is the baseline's ratio of communication to computing, r the ratio of the exchange of float32 to that of a method. Computing and sending
in turn, a step is (1 + c) / (1 + c / r) times as fast. Measuring needs scripts/cluster, that is, root.
"""

import pathlib
import statistics
import sys
import typing

import experiment

NAME, NETWORK, VALUES, ROUNDS = "replay", "200mbit", "4Mi", 4
WORKERS = (4, 8)
RATIOS = (0.70, 0.76, 1.95, 2.45, 4.0, 10.0)
BASE, SHARDED_BASE = "float32", "W32G16"  # FSDP sends float32 weights and 16-bit gradients
SHARDED, SHARDED_VALUES, SHARDED_RATIOS = ["W8G8", "W6G6", "W5G5", "W4G4", "W3G3", "W2G2", "W8G4", "W4G8", "W16G16"], 4 << 20, (3.72, 1.43, 1.18)
QUICK = {"WORKERS": (4,), "VALUES": "1Mi", "ROUNDS": 2, "RATIOS": (0.7, 4.0), "SHARDED_VALUES": 1 << 20, "SHARDED_RATIOS": (3.72,),
         "SHARDED": ["W8G8", "W4G4", "W16G16"]}
METHODS = {  # method: title, color
    "cgx:4": ("cgx:4", "#d55e00"), "qsgd:4@sra": ("qsgd:4", "#e69f00"), "qsgd:8@sra": ("qsgd:8", "#009e73"),
    "global-uniform:8": ("global-uniform:8", "#0072b2"), "bfloat16@ring": ("bfloat16", "#888888"), "float32@native": ("MPI_Allreduce", "#cc79a7")}
# Open MPI's default of MPI_Iallreduce takes 2.5 times as long as Rabenseifner's algorithm, 3.
MPI_FLAGS = "--mca coll_libnbc_iallreduce_algorithm 3"

# c is 1 / (share of linear scaling) - 1 of the baseline. Of CGX's, linear scaling is its throughput (tables 3.6, 3.9) by its share of it (table
# 3.7: 90, 87 and 75 %); 16 GPUs have twice that of 8.
CGX, NODES = "8 GPUs (tables 3.6, 3.7)", "4 machines (tables 3.7, 3.9)"
QSDP = "table 2.1, section 5.7, GPT of 1.3 B values"
HALVES = "bfloat16@ring"


class Published(typing.NamedTuple):
    paper: str
    what: str
    gpus: int
    c: float
    speed_up: float
    method: str
    label: str = ""  # in the chart, and its place
    place: str = ""
    base: str = BASE  # what c and the speed-up are relative to


PUBLISHED = [
    Published("CGX", f"{CGX}: ResNet-50", 8, 0.70, 2900 / 1900, "cgx:4", "CGX: ResNet-50, Transformer-XL", "left offset 0.3,-1"),
    Published("CGX", f"{CGX}: Transformer-XL", 8, 0.76, 260 / 170, "cgx:4", base=HALVES),  # gradients of 16 bits: appendix A.1
    Published("CGX", f"{CGX}: BERT", 8, 1.95, 38.7 / 17.5, "cgx:4", "CGX: BERT", "left offset 0.8,-0.4"),
    Published("QSGD", "section 5: LSTM, 2 GPUs", 2, 2.45, 2.7, "qsgd:4@sra", "QSGD: LSTM", "right offset -0.8,0.4"),  # its row is breakdown's
    Published("QSGD", "section 5: AlexNet, 16 GPUs", 16, 4.0, 2.5, "qsgd:4@sra", "QSGD: AlexNet", "left offset 0.8,0"),
    Published("QSDP", f"{QSDP}: 10 Gbit/s", 32, 3.72, 2.25, "W8G8", "QSDP: 10 Gbit/s", "left offset -0.5,-1", SHARDED_BASE),
    Published("QSDP", f"{QSDP}: 100 Gbit/s", 32, 1.18, 1.15, "W8G8", "QSDP: 100 Gbit/s", "left offset 0.8,-0.4", SHARDED_BASE),
    Published("CGX", f"{NODES}: ResNet-50", 16, 2 * 2900 / 0.90 / 564 - 1, 2300 / 564, "cgx:4", "CGX, 4 machines: ResNet-50", "right offset -0.8,0.4"),
    Published("CGX", f"{NODES}: Transformer-XL", 16, 2 * 260 / 0.87 / 32 - 1, 85 / 32, "cgx:4", "Transformer-XL, from 16 bits", "right offset 1.5,-1.5",
              HALVES),
    Published("CGX", f"{NODES}: BERT", 16, 2 * 38.7 / 0.75 / 1.4 - 1, 12 / 1.4, "cgx:4"),
]
WHY = {  # of claims that do not follow from bytes
    f"{QSDP}: 100 Gbit/s": "table C.2 has 1.51 where a quarter of the weights and half of the gradients are sent; the thesis names NCCL's point-to-point calls",
    "section 5: AlexNet, 16 GPUs": "communication falls 4 times there, 7 times here",
    f"{NODES}: ResNet-50": "CGX gains less than its bytes allow", f"{NODES}: Transformer-XL": "CGX gains less than its bytes allow",
    f"{NODES}: BERT": "above the ratio of bytes, 7.5, so no c explains it: its float32 exchange probably took longer than its bytes need",
}


def measured(program: pathlib.Path, options) -> None:
    del options
    for workers in WORKERS:
        if any(line["what"] == "replay" and line["workers"] == workers for line in experiment.read(NAME)):
            continue
        count = experiment.measure(NAME, [
            "env", f"MPIRUN_FLAGS={MPI_FLAGS}", *experiment.cluster(workers, NETWORK, program, "replay", "--values", VALUES, "--steps", ROUNDS,
                                                                    "--warm-up", 1, "--ratio", *RATIOS, "--exchange", BASE, *METHODS)])
        print(f"evidence: replay with {workers} workers: {count} methods", flush=True)
    if not any(line["what"] == "sharded steps" for line in experiment.read(NAME)):
        count = experiment.measure(NAME, experiment.cluster(
            4, NETWORK, program.parents[1] / "examples/language_model/step_times", "--json", "--values", SHARDED_VALUES, "--rounds", ROUNDS,
            "--ratio", *SHARDED_RATIOS, "--precision", *SHARDED))
        print(f"evidence: replay of sharded steps: {count} precisions", flush=True)


class measurement:
    """The lines of one number of workers: replicas, or shards."""

    def __init__(self, lines: list[dict], workers: int, what: str = "replay", base: str = BASE):
        self.lines = {line["method"]: line for line in lines if line["what"] == what and line["workers"] == workers}
        self.base_name, self.base = base, self.lines[base]

    def steps(self, method: str, c: float) -> dict | None:
        return next((s for s in self.lines.get(method, {}).get("steps", []) if s["c"] == c), None)

    def ratio(self, method: str) -> float:
        """r, of exchanges in the same round."""
        return statistics.median(b / m for b, m in zip(self.base["exchange"], self.lines[method]["exchange"]))

    def kernels(self, method: str) -> float | None:
        """Processor time of kernels / exchange; None if the program does not measure it."""
        line = self.lines[method]
        return None if "kernels" not in line else statistics.median(k / e for k, e in zip(line["kernels"], line["exchange"]))

    def speed_ups(self, method: str, c: float, how: str) -> list[float]:
        """Of the rounds."""
        base, mine = self.steps(self.base_name, c), self.steps(method, c)
        return [] if mine is None or how not in mine or how not in base else [b / m for b, m in zip(base[how], mine[how])]

    def formula(self, method: str, c: float) -> float:
        return formula(c, self.ratio(method))


def formula(c: float, r: float) -> float:
    return (1 + c) / (1 + c / r)


def shown(found: list[float]) -> str:
    """The median; a ratio whose quartiles span 1 is none."""
    if not found:
        return ""
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return "no difference" if low < 1 < high else f"{middle:.2f}"


def verdict(what: str, published: float, found: dict[int, float]) -> tuple[str, str]:
    """Of a speed-up with numbers of workers, of which the largest is nearest to the paper's; and why."""
    verdicts = [experiment.near(found[workers], published) for workers in sorted(found)]
    holds, off = verdicts[-1]
    if holds == experiment.FAILS and verdicts[0][0] == experiment.HOLDS:
        return experiment.IN_PART, f"{off} with {max(found)} workers"
    return holds, ": ".join(filter(None, (off, WHY.get(what, "") if holds != experiment.HOLDS else "")))


def digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def both(m: measurement, method: str, c: float) -> str:
    """In turn / at once."""
    return " / ".join(filter(None, (shown(m.speed_ups(method, c, how)) for how in ("in_turn", "at_once"))))


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    of = {n: measurement(lines, n) for n in WORKERS}
    shards = measurement(lines, 4, "sharded steps", SHARDED_BASE)
    every = [[f"`{title}`, {n} workers", f"{of[n].ratio(method):.2f}", digits(of[n].kernels(method)), *(both(of[n], method, c) for c in RATIOS)]
             for method, (title, _) in METHODS.items() for n in WORKERS]
    second = experiment.table(["method", "r", "kernels / exchange", *(f"c = {c:g}" for c in RATIOS)], every)
    third = experiment.table(["precision", "r", "kernels / exchange", "bytes a step", *(f"c = {c:g}" for c in SHARDED_RATIOS)], [
        [f"`{p}`", f"{shards.ratio(p):.2f}", digits(shards.kernels(p)), f"{shards.lines[p]['bytes_a_step']:,}", *(both(shards, p, c) for c in SHARDED_RATIOS)] for p in SHARDED])
    compared = [(of[n], m, c) for n in WORKERS for m in METHODS for c in RATIOS] + [(shards, p, c) for p in SHARDED for c in SHARDED_RATIOS]
    apart: dict = {n: [] for n in WORKERS}
    for m, method, c in compared:
        apart[m.base["workers"]].append(abs(statistics.median(m.speed_ups(method, c, "in_turn")) / m.formula(method, c) - 1))
    within = "; ".join(f"with {n} workers within {100 * max(a):.0f} % in all {len(a)} cases"
                       + (f", within 5 % in {near}" if (near := sum(x <= 0.05 for x in a)) < len(a) else "") for n, a in apart.items())
    foreign = [found for line in lines if (found := line["run"].get("foreign")) is not None]
    return (f"In turn, measured steps agree with the formula: {within}. {experiment.NETWORKS[NETWORK]}, {ROUNDS} rounds, medians. {experiment.origin(lines)}; load before the runs at most "
            f"{max(line['run']['load'] for line in lines):.2f}, other processes at most {100 * max(foreign):.0f} % of the processor time "
            f"beside replicas.\n\nReplicas of {VALUES} values, in turn / at once:\n\n" + second +
            f"\nShards of {SHARDED_VALUES >> 20}Mi values in 12 layers, 4 workers, beside `{SHARDED_BASE}`, in turn / at once:\n\n" + third)


def claims(lines: list[dict]) -> list[experiment.Claim]:
    """In turn, with 4 / 8 workers; shards with 4. QSDP's baseline has float32 weights; the last row is beside 16-bit ones."""
    shards, rows = measurement(lines, 4, "sharded steps", SHARDED_BASE), []
    for row in PUBLISHED:
        if row.gpus < min(WORKERS):
            continue  # breakdown has it
        of = {4: shards} if row.method in shards.lines else {n: measurement(lines, n) for n in WORKERS}
        expected = {n: formula(row.c, m.ratio(row.method) / m.ratio(row.base)) for n, m in of.items()}
        here = {n: found for n, m in of.items() if row.base == m.base_name and (found := m.speed_ups(row.method, row.c, "in_turn"))}
        found, why = verdict(row.what, row.speed_up, {n: statistics.median(x) for n, x in here.items()} or expected)
        beside = f"beside {METHODS[HALVES][0]}, as gradients had 16 bits" if row.base == HALVES else ""
        title = METHODS[row.method][0] if row.method in METHODS else row.method
        rows.append(experiment.Claim(
            row.paper, f"{row.what}, `{title}`", f"{row.speed_up:.2f}", " / ".join(shown(x) for x in here.values()), found,
            "; ".join(filter(None, ("" if here else "by the formula", beside, why))), c=f"{row.c:.3g}",
            kernels=" / ".join(digits(m.kernels(row.method)) for m in of.values()), formula=" / ".join(f"{x:.2f}" for x in expected.values())))
    slow, fast = (shards.steps("W8G8", c) for c in (SHARDED_RATIOS[0], SHARDED_RATIOS[-1]))
    longer = statistics.median(slow["in_turn"]) / slow["computing"] / (statistics.median(fast["in_turn"]) / fast["computing"])
    rows.append(experiment.Claim(
        "QSDP", "figure 5.3, `W8G8`: a step with 10 Gbit/s takes as long as with 100", "1", f"{longer:.2f}",
        experiment.HOLDS if longer < 1.1 else experiment.FAILS,
        f"c falls from {slow['c']:g} to {fast['c']:g}, which fewer bytes do not hide; the thesis' table 2.1 and speed-ups give "
        f"{51 / 2.25 / (23.5 / 1.15):.2f}", kernels=digits(shards.kernels("W8G8")),
        formula=f"{(1 + slow['c'] / shards.ratio('W8G8')) / (1 + fast['c'] / shards.ratio('W8G8')):.2f}"))
    half, c = shards.ratio("W16G16"), SHARDED_RATIOS[0]
    fair = [b / m for b, m in zip(shards.steps("W16G16", c)["in_turn"], shards.steps("W8G8", c)["in_turn"])]
    rows.append(experiment.Claim(
        "QSDP", f"{QSDP}: 10 Gbit/s, `W8G8` beside 16-bit weights and gradients", "", shown(fair), experiment.OPEN,
        f"the thesis compares with float32 weights; 16-bit ones alone are {shown(shards.speed_ups('W16G16', c, 'in_turn'))} times as fast",
        c=f"{c / half:.3g}", kernels=digits(shards.kernels("W8G8")), formula=f"{formula(c / half, shards.ratio('W8G8') / half):.2f}"))
    return rows


def chart_of(lines: list[dict]) -> tuple[str, str]:
    of = {n: measurement(lines, n) for n in WORKERS}
    data, turn, once = [], [], []
    for k, (method, (title, color)) in enumerate(METHODS.items()):
        if method == "float32@native":
            continue
        r = of[4].ratio(method)
        turn.append(f"(1 + x) / (1 + x / {r:.4g}) with lines linewidth 1.5 linecolor '{color}' title '{title}, r = {r:.1f}'")
        once.append(f"max(1, x) / max(1, x / {r:.4g}) with lines linewidth 1.5 dashtype 2 linecolor '{color}' notitle")
        for plots, how in ((turn, "in_turn"), (once, "at_once")):
            for n, shape in zip(WORKERS, (7, 6)):
                points = [(c, statistics.median(x)) for c in RATIOS if (x := of[n].speed_ups(method, c, how))]
                data.append(f"$d{k}_{n}_{how} << END\n" + "\n".join(f"{c:g} {y:.4g}" for c, y in points) + "\nEND")
                plots.append(f"$d{k}_{n}_{how} using 1:2 with points pointtype {shape} pointsize 0.7 linewidth 1.5 linecolor '{color}' notitle")
    papers = [(row.c, row.speed_up, row.label, row.place) for row in PUBLISHED if row.c <= 20]
    data.append("$papers << END\n" + "\n".join(f"{c:.4g} {y:.4g}" for c, y, *_ in papers) + "\nEND")
    turn.append("$papers using 1:2 with points pointtype 2 pointsize 1 linewidth 2 linecolor '#000000' title 'published'")
    labels = [f"set label '{label}' at {c:.4g},{y:.4g} {place} font ',9' front" for c, y, label, place in papers if label]
    once += ["NaN with points pointtype 7 linecolor '#444444' title '4 workers'", "NaN with points pointtype 6 linecolor '#444444' title '8 workers'",
             "NaN with lines dashtype 2 linewidth 1.5 linecolor '#444444' title 'perfect overlap: max(1, c) / max(1, c / r)'"]
    return "evidence-replay.svg", "\n".join([
        *data, "set terminal svg size 1100,480 font 'sans-serif,11' background '#ffffff' name 'replay'", "set encoding utf8",
        "set border 3 linecolor '#444444'", "set tics nomirror textcolor '#444444'", "set grid linecolor '#dddddd' linetype 1",
        "max(a, b) = a > b ? a : b", "set logscale xy", "set xrange [0.3:20]", "set yrange [0.9:9]", "set samples 60",
        "set xtics (0.35, 0.7, 1, 2, 4, 10, 20)", "set ytics (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)", "set xlabel 'c: communication of float32 / computing'",
        "set key left top reverse Left samplen 2", "set multiplot layout 1,2 margins 0.05,0.99,0.12,0.92 spacing 0.05",
        "set title 'times as fast as float32: computing and sending in turn'", *labels, "plot " + ", ".join(turn), "unset label",
        "set title 'at once: layers travel during both passes'", "plot " + ", ".join(once), "unset multiplot", ""])


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
