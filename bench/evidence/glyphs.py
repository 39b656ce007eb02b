#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy on noisy letters beside tables 1 and 2 of ALQ and AMQ, table 1 of QSGD, and CGX's tolerance: differences from float32.

usage: glyphs.py [--program PROGRAM] [--quick] [--check]

Seeds set initial values, pictures and rounding, so two methods of a seed differ only by the exchange. All numbers of workers train on the
same pictures, 128 a step. Accuracies do not depend on the load.
"""

import hashlib
import re
import statistics
import subprocess
import sys

import experiment

NAME, STEPS, EVERY, SEEDS, WORKERS = "glyphs", 600, 300, (1, 2, 3, 4, 5), (4, 16, 32)
PICTURES = experiment.ROOT / "build/evidence/glyphs.bin"
TOLERANCE = 0.01  # of CGX, relative to the accuracy of float32
TOLERATED = {"rejected": experiment.HOLDS, "possible": experiment.OPEN, "exceeded": experiment.FAILS}

# Faghri et al. 2020, tables 1 and 2: 3 bits, TRN (TernGrad) 2. Columns: workers, bucket, network, accuracy of float32 and of each method in %.
ADAPTIVE = {"NUQSGD": "nuqsgd:3", "QSGDinf": "qsgd:3,q=inf", "TRN": "terngrad:0", "ALQ": "alq:3", "ALQ-N": "alq:3,normalized=yes",
            "AMQ": "amq:3", "AMQ-N": "amq:3,normalized=yes"}
COLUMNS = [
    (4, 8192, "ResNet-32", 92.26, (83.73, 89.95, 89.65, 91.30, 91.96, 91.10, 91.03)),
    (4, 16384, "ResNet-110", 93.86, (84.60, 91.52, 90.72, 93.24, 93.14, 92.82, 92.88)),
    (16, 16384, "ResNet-32", 92.17, (85.82, 89.61, 88.68, 91.91, 92.07, 91.58, 91.41)),
    (32, 16384, "ResNet-32", 92.19, (86.36, 89.81, 90.22, 91.89, 91.83, 91.38, 91.40)),
]
# Alistarh et al. 2017, table 1 and section 5; Markov 2024, table 3.5; Xin et al., table 3: differences from float32 in points, 8, 8, 4 GPUs.
OTHERS = [
    ("QSGD", "8 bits, 512", "qsgd:8,bucket=512,q=inf", "-0.26 (ResNet-152)"),
    ("QSGD", "4 bits, 512", "qsgd:4,bucket=512,q=inf", "+0.55 (AlexNet), +0.08 (ResNet-50), +0.33 (ResNet-110)"),
    ("QSGD", "4 bits, 8192", "qsgd:4,bucket=8192,q=inf", "-0.68 (AlexNet)"),
    ("QSGD", "2 bits, 64", "qsgd:2,bucket=64,q=inf", "-1.73 (AlexNet)"),
    ("CGX", "4 bits, 1024", "layers:cgx:4,bucket=1024", "+0.1 (ResNet-50), -0.2 (VGG16), -0.6 (ViT, 128)"),
    ("Global-QSGD", "8 bits, uniform", "global-uniform:8", "-0.41 (ResNet-50)"),
    ("Global-QSGD", "8 bits, exponential", "global-exponential:8", "-0.32 (ResNet-50)"),
]

QUICK = {"STEPS": 60, "EVERY": 60, "SEEDS": (1, 2), "COLUMNS": COLUMNS[:1], "WORKERS": (4,)}


def in_buckets(method: str, bucket: int) -> str:
    return f"{method},bucket={bucket}"


def methods_of(workers: int) -> list[str]:
    adaptive = [in_buckets(method, bucket) for n, bucket, *_ in COLUMNS if n == workers for method in ADAPTIVE.values()]
    return ["float32", *adaptive, *(method for _, _, method, _ in OTHERS if workers == 4)]


def measured(program, options) -> None:
    if not PICTURES.exists():
        subprocess.run(["/usr/bin/python3", experiment.HERE / "glyph_pictures.py", PICTURES], check=True)  # of Debian, which has its Pillow
    pictures = hashlib.sha256(PICTURES.read_bytes()).hexdigest()[:12]
    cells = [(seed, workers, method) for workers in WORKERS for seed in SEEDS for method in methods_of(workers)]  # 32 workers take longest
    for seed, workers, method in experiment.lacking(NAME, cells, "seed", "workers", "method"):
        experiment.measure(NAME, experiment.training(program, "glyphs", method, seed, workers=workers, steps=STEPS, every=EVERY,
                                                     more=["--pictures", PICTURES]), waits=False, facts={"pictures": pictures})


class accuracies:
    """Final accuracies in %, of the seeds that all methods with this number of workers have."""

    def __init__(self, lines: list[dict], workers: int):
        self.lines = [line for line in lines if line["workers"] == workers]
        found = {(line["method"], line["seed"]): 100 * line["curve"][-1][1] for line in self.lines}
        self.seeds = [seed for seed in SEEDS if all((method, seed) in found for method in methods_of(workers))]
        self.of = {method: [found[method, seed] for seed in self.seeds] for method in methods_of(workers)}
        self.base = statistics.fmean(self.of["float32"]) if self.seeds else 0

    def difference(self, method: str, reference: str = "float32") -> tuple[float, float]:
        """From the reference, paired by seed: its mean, and half of its 95 % interval."""
        return experiment.interval([own - base for own, base in zip(self.of[method], self.of[reference])])

    def shown(self, method: str) -> str:
        return experiment.difference(*self.difference(method), 2)

    def bits(self, method: str) -> str:
        """Of a value: each worker sends its frame to all others, or codes and means of all segments but one."""
        line = next(line for line in self.lines if line["method"] == method)
        messages = 2 * (line["workers"] - 1) / line["workers"] if re.search("cgx|global", method) else line["workers"] - 1
        return f"{8 * line['bytes_a_step'] / line['values'] / messages:.2f}"

    def of_tolerance(self, method: str) -> str:
        """Whether a loss of the tolerance lies in the interval."""
        mean, half = self.difference(method)
        loss = -TOLERANCE * self.base
        return "rejected" if mean - half > loss else "exceeded" if mean + half < loss else "possible"


def by_number(lines: list[dict]) -> dict[int, accuracies]:
    """By number of workers, where there are intervals; 4 workers have all methods and must be there."""
    of = {n: found for n in WORKERS if len((found := accuracies(lines, n)).seeds) > 1}
    if 4 not in of:
        raise experiment.Incomplete
    return of


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines, "pictures")
    experiment.identical(lines)
    by_workers = by_number(lines)
    columns, four = [column for column in COLUMNS if column[0] in by_workers], by_workers[4]
    heads, float32 = ["method", "bits"], ["float32, %", "32"]
    for workers, bucket, network, base, _ in columns:
        heads += [f"published, {network}, {workers}, {bucket}", "here"]
        float32 += [f"{base:.2f}", f"{by_workers[workers].base:.2f}"]
    rows = [float32]
    for k, (name, method) in enumerate(ADAPTIVE.items()):
        row = [name, four.bits(in_buckets(method, 8192))]
        for workers, bucket, _, base, published in columns:
            row += [f"{published[k] - base:+.2f}", by_workers[workers].shown(in_buckets(method, bucket))]
        rows.append(row)
    others = [[f"{paper}, {name}", four.bits(method), published, four.shown(method), four.of_tolerance(method)] for paper, name, method, published in OTHERS]
    seeds = ", ".join(f"{len(of.seeds)} with {n} workers" for n, of in by_workers.items())
    return (experiment.table(heads, rows) + "\n" + experiment.table(["method, bits, bucket", "bits", "published", "here", "a loss of 1 %"], others)
            + f"\nSeeds: {seeds}. {lines[0]['values']:,} values, {STEPS} steps. {experiment.origin(lines)}.\n")


def loses(published: list[float], here: list[tuple[float, float]]) -> tuple[str, str]:
    """Verdict on differences from float32 in points, and why: they hold if each may be as large as published."""
    return (experiment.HOLDS, "") if all(mean + half >= p for p, (mean, half) in zip(published, here)) else (experiment.FAILS, "it loses more")


def gains(here: list[tuple[float, float]]) -> tuple[str, str]:
    """Verdict on differences from another method that are published as better, and why."""
    better = [mean > half for mean, half in here]
    return ((experiment.HOLDS, "it is better") if all(better) else (experiment.IN_PART, f"better in {sum(better)} of {len(better)}") if any(better)
            else (experiment.FAILS, "it is not better"))


def claims(lines: list[dict]) -> list[experiment.Claim]:
    rows, by_workers = [], by_number(lines)
    columns = [column for column in COLUMNS if column[0] in by_workers]
    counts = ", ".join(str(workers) for workers, *_ in columns)
    for other in ("float32", "QSGDinf", "NUQSGD"):
        published, here = [], []
        for workers, bucket, _, base, found in columns:
            of_paper = dict(zip(ADAPTIVE, found), float32=base)
            published.append(round(of_paper["ALQ"] - of_paper[other], 2))
            here.append(by_workers[workers].difference(in_buckets(ADAPTIVE["ALQ"], bucket), in_buckets(ADAPTIVE[other], bucket) if other in ADAPTIVE else other))
        rows.append(experiment.Claim("ALQ", f"tables 1 and 2, CIFAR-10, {counts} workers, 3 bits: accuracy from that of {other}, points",
                                     ", ".join(f"{p:+.1f}" for p in published), ", ".join(experiment.plus_minus(*found, 1) for found in here),
                                     *(loses(published, here) if other == "float32" else gains(here))))
    four = by_workers[4]
    for paper, _, method, published in OTHERS:
        mean, half = four.difference(method)
        if paper == "CGX":
            what, tolerance = "within 1 % of", four.of_tolerance(method)
            found, why = TOLERATED[tolerance], f"a loss of 1 % is {tolerance}"
        else:
            what, least = "from", min(map(float, re.findall(r"[+-][\d.]+", published)))
            found, _ = loses([least], [(mean, half)])
            why = f"{least - mean:.1f} points more" if found == experiment.FAILS else ""
        rows.append(experiment.Claim(paper, f"`{method}`: accuracy {what} that of float32, points", published, experiment.plus_minus(mean, half, 2), found, why))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
