#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Errors of means: every method on the same vectors, without training.

usage: errors.py [--program PROGRAM [--data FILE...]] [--quick] [--check]

With --program (a built globalq_evidence) it first measures what results/errors.jsonl lacks and adds the lines; delete lines to measure
them again. --check writes nothing, and fails if the tables of the document are not those of the lines.
"""

import itertools
import pathlib
import sys

import experiment

NAME, DOCUMENT = "errors", "docs/errors.md"

WORKERS = (2, 4, 8, 16)
SHOWN = (4,)  # have a table of their own
# Vectors, their title, and the options of the program.
VECTORS = {
    "normal": ("normal", []),
    "heavy": ("heavy tails", []),
    "sparse": ("sparse", []),
    "independent-normal": ("normal, independent", []),
    "independent-sparse": ("sparse, independent", []),
    "language": ("`language`", ["--from", "20", "--least-rounds", "4"]),
    "residual": ("`residual`", ["--from", "20", "--least-rounds", "3"]),
}


def top_k(bits: int) -> str:
    """Sends a place and a value, 64 bits, of so many values that they take this number of bits a value."""
    return f"top-k:{100 * bits / 64:g},of=whole,feedback=no"


# Methods for each number of bits a value.
METHODS = {
    1: ["eden:1", "eden:1,rotations=2", "rotated-optimal:1", "sign-sgd", top_k(1)],
    2: ["eden:2", "eden:2,rotations=2", "rotated-optimal:2", "cgx:2", "cgx:2,rounding=correlated", "global-uniform:2,bucket=128",
        "qsgd:2", "terngrad:0,bucket=512", "amq:2", "thc:2,feedback=no", top_k(2)],
    3: ["eden:3", "rotated-optimal:3", "cgx:3", "cgx:3,rounding=correlated", "global-uniform:3,bucket=128", "qsgd:3", "nuqsgd:3", "alq:3",
        "amq:3", top_k(3)],
    4: ["eden:4", "rotated-optimal:4", "cgx:4", "cgx:4,rounding=correlated", "cgx:4,rounding=nearest", "global-uniform:4,bucket=128",
        "global-exponential:4", "qsgd:4", "nuqsgd:4", "alq:4", "amq:4", "mxfp4", "mxfp4,rounding=nearest", "nvfp4", "thc:4,feedback=no",
        top_k(4)],
    8: ["cgx:8", "cgx:8,rounding=correlated", "global-uniform:8", "global-exponential:8", "natural-compression", "qsgd:8", "qsdp:8",
        "mxfp8", "thc:8,feedback=no", top_k(8)],
    16: ["bfloat16"],
}
COMPARATORS = ("top-k", "thc", "sign-sgd")  # have schedules of their own
QUICK = {"WORKERS": (4,), "VECTORS": {"normal": ("normal", []), "sparse": ("sparse", [])}}
WIDER = 0.6  # methods that send so many bits more than their group count as wider, and do not win


def name_of(method: str) -> str:
    return method.split(":")[0].split(",")[0]


def on(schedule: str, method: str) -> str:
    return method if name_of(method) in COMPARATORS else f"{method}@{schedule}"


def cells() -> list[tuple]:
    """All measured cells: vectors, workers, method with its schedule."""
    methods = [m for group in METHODS.values() for m in group]
    own = [m for m in methods if name_of(m) not in COMPARATORS]
    found = [(v, n, on("allgather", m)) for v in VECTORS for n in WORKERS for m in methods]
    return found + [(v, WORKERS[-1], on("sra", m)) for v in VECTORS for m in own]


def by_cell(lines: list[dict]) -> dict:
    """The last of equal ones."""
    return {(line["model"], line["workers"], line["method"]): line for line in lines}


def measured(program: pathlib.Path, options) -> None:
    ordered = sorted(cells(), key=lambda c: (list(VECTORS).index(c[0]), c[1]))
    for (vectors, workers), group in itertools.groupby(ordered, key=lambda c: c[:2]):
        known = by_cell(experiment.read(NAME))
        missing = [cell[2] for cell in group if cell not in known]
        if not missing:
            continue
        more = VECTORS[vectors][1] + (["--text", *options.data] if vectors == "language" and options.data else [])
        count = experiment.measure(NAME, [program, "errors", "--transport", "threads", "--model", vectors, "--workers", workers, *more,
                                          "--exchange", *missing], waits=False)
        print(f"evidence: errors of {vectors} with {workers} workers: {count} methods", flush=True)


def bits(line: dict) -> float:
    """Bits of a value in one message: a worker sends n - 1 frames over allgather, and 2 (n - 1) / n vectors otherwise."""
    n = line["workers"]
    gathers = line["method"].endswith("@allgather") or name_of(line["method"]) == "top-k"
    return 8 * line["bytes"] / line["values"] / ((n - 1) if gathers else 2 * (n - 1) / n)


def range_of(numbers: list[float]) -> str:
    least, most = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return least if max(numbers) - min(numbers) < 0.1 else f"{least} to {most}"


def number(value: float) -> str:
    """Three digits."""
    if value < 1e-12:
        return "0"
    return f"{value:#.3g}".rstrip(".") if value >= 1e-3 else f"{value:.2e}".replace("e-0", "e-")


def best_of(lines: list[dict], group: int) -> list[str]:
    """The methods of least error that send at most WIDER bits more than the group; several if two standard errors do not separate them."""
    fit = [line for line in lines if line and bits(line) <= group + WIDER]
    if not fit:
        return []
    least = min(fit, key=lambda line: line["error"])
    margin = [1 + 2 * (line["spread"] ** 2 + least["spread"] ** 2) ** 0.5 for line in fit]
    return [line["method"] for line, m in zip(fit, margin) if line["error"] <= least["error"] * m + 1e-12]


def plain(method: str) -> str:
    """A method without its schedule and without what all comparators have here."""
    return method.split("@")[0].replace(",feedback=no", "").replace(",of=whole", "")


def table_of(lines: dict, workers: int) -> str:
    """Over allgather."""
    rows = []
    for group, methods in METHODS.items():
        known = {(m, v): lines.get((v, workers, on("allgather", m))) for m in methods for v in VECTORS}
        known = {key: line if line and "error" in line else None for key, line in known.items()}
        best = {v: best_of([known[m, v] for m in methods], group) if len(methods) > 1 else [] for v in VECTORS}
        for method in methods:
            found = [known[method, v] for v in VECTORS]
            if any(found):
                rows.append([f"`{plain(method)}`", range_of([bits(line) for line in found if line]),
                             *("" if line is None else f"**{number(line['error'])}**" if line["method"] in best[v] else number(line["error"])
                               for v, line in zip(VECTORS, found))])
    return f"## {workers} workers {{#evidence_errors_{workers}}}\n\n" + experiment.table(["method", "bits", *(title for title, _ in VECTORS.values())], rows)


def winners(lines: dict) -> str:
    """Where the same methods win for several numbers of workers, these are named once."""
    rows = []
    for vectors, (title, _) in VECTORS.items():
        row = [title]
        for group, methods in METHODS.items():
            if len(methods) == 1:
                continue
            parts: dict = {}
            for n in WORKERS:
                found = [lines.get((vectors, n, on("allgather", m))) for m in methods]
                best = best_of([line for line in found if line and "error" in line], group)
                parts.setdefault(", ".join(f"`{plain(m)}`" for m in best), []).append(str(n))
            row.append("; ".join(names + (f" ({', '.join(at)})" if len(parts) > 1 else "") for names, at in parts.items()))
        rows.append(row)
    groups = [f"{group} bit{'s' if group > 1 else ''}" for group, methods in METHODS.items() if len(methods) > 1]
    text = experiment.table(["vectors", *groups], rows)
    return text.replace("| --- |" + " --: |" * len(groups), "| --- |" + " --- |" * len(groups))


def rendered(every: list[dict]) -> str:
    wanted = set(cells())
    lines = {cell: line for cell, line in by_cell(every).items() if cell in wanted}
    experiment.one_source(NAME, list(lines.values()))
    spreads = [line["spread"] for line in lines.values() if "spread" in line]
    refused = sorted({f"`{plain(line['method'])}`" for line in lines.values() if "refusal" in line})
    wide = [s for s in spreads if s > 0.02]
    text = (f"{len(lines):,} cells. The relative standard error is at most 2 %" +
            (f", except in {len(wide)} cells, where it is at most {100 * max(wide):.1f} %." if wide else ".") +
            (f" Refused: {', '.join(refused)}." if refused else "") + f" {experiment.origin(list(lines.values()))}.\n\n")
    return text + winners(lines) + "\n" + "\n".join(table_of(lines, workers) for workers in SHOWN)


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
