#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainers of PyTorch on an emulated network, without globalq and with it: seconds and bytes of a step, and loss against time.

usage: trainers.py [--program PROGRAM] [--quick] [--check]

Needs root, and a Python with torch 2.9 or newer and torchft, which scripts/test-torch installs; GLOBALQ_PYTHON names another one. It measures
the package in build/python.
"""

import hashlib
import os
import statistics
import subprocess
import sys

import experiment

NAME, DOCUMENT, WORKERS, NETWORK, STEPS, LOCAL, SEEDS = "trainers", "docs/torch.md", 4, "200mbit", 200, 25, (1, 2, 3)
ROWS = {  # trainer and operator: title, lines that are added or changed
    ("DDP", "gloo"): ("DDP", ""), ("DDP", "cgx:4"): ("back end `cgx:4`", "2"),
    ("FSDP2", "gloo"): ("FSDP2", ""), ("FSDP2", "cgx:4"): ("back end `cgx:4`, weights `qsdp:8`", "2"),
    ("torchft", "gloo"): ("torchft's DDP", ""), ("torchft", "cgx:4"): ("group `cgx:4`", "2"),
    ("torchft's DiLoCo", "gloo"): ("torchft's DiLoCo", ""), ("torchft's DiLoCo", "cgx:4"): ("group `cgx:4`", "2"),
    ("globalq's DiLoCo", "cgx:2,feedback,second=4"): ("`globalq.torch.DiLoCo`, `cgx:2,feedback,second=4`", "3"),
}
QUICK = {"STEPS": 50, "SEEDS": (1, 2), "ROWS": {row: title for row, title in ROWS.items() if row[0] in ("DDP", "globalq's DiLoCo") or row == ("torchft's DiLoCo", "gloo")}}
WEIGHTS = {"FSDP2": "qsdp:8"}
BASE = {"globalq's DiLoCo": "torchft's DiLoCo"}  # whose row without globalq one is beside, if not its own
COLORS = {"DDP": "#0072b2", "FSDP2": "#009e73", "torchft": "#e69f00", "torchft's DiLoCo": "#d55e00", "globalq's DiLoCo": "#cc79a7"}


def package() -> str:
    """Of the package and the measuring program, which the hash of the measured sources does not contain."""
    files = sorted((experiment.ROOT / "python/globalq").glob("*.py")) + [experiment.ROOT / "bench/torch/trainers.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def measured(program, options) -> None:
    del program, options
    own = experiment.ROOT / "build/torch/bin/python"
    python = os.environ.get("GLOBALQ_PYTHON", own if own.exists() else "python3")
    os.environ["PYTHONPATH"] = str(experiment.ROOT / "build/python")
    if subprocess.run([python, "-c", "import torchft, globalq.torch"], stderr=subprocess.PIPE, check=False).returncode != 0:
        print(f"evidence: {NAME} is left out: {python} has no torchft, or build/python no globalq; scripts/test-torch installs both", file=sys.stderr)
        return
    cells = [(seed, *row) for seed in SEEDS for row in ROWS]
    for seed, trainer, operator in experiment.lacking(NAME, cells, "seed", "trainer", "method"):
        experiment.measure(NAME, experiment.cluster(
            WORKERS, NETWORK, "unshare", "--uts", python, "bench/torch/trainers.py", "--trainer", trainer, "--operator", operator,
            *(["--weights", WEIGHTS[trainer]] if trainer in WEIGHTS else []), "--seed", seed, "--steps", STEPS, "--local", LOCAL, "--every", LOCAL,
            timeout=900), facts={"package": package()})


def found_in(lines: list[dict]) -> experiment.trainings:
    """The trainings of each row."""
    return experiment.trainings([{**line, "method": (line["trainer"], line["method"])} for line in lines], list(ROWS))


def seconds(line: dict) -> float:
    """Of a step: the median between evaluations; the first ones open connections."""
    return statistics.median(line["seconds_a_step"][1:])


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines, "package")
    experiment.identical(lines)
    found, rows = found_in(lines), []
    for row, (title, changed) in ROWS.items():
        base, own = (BASE.get(row[0], row[0]), "gloo"), [found.of[row, seed] for seed in found.seeds]
        beside = ["", "", f"{statistics.fmean(found.last(row)):.3f}"] if row == base else [
            f"{statistics.median(seconds(found.of[base, line['seed']]) / seconds(line) for line in own):.2f}", f"{found.fewer(row, base):.1f}",
            experiment.difference(*found.apart(row, base))]
        rows.append([title, changed, f"{1000 * statistics.median(map(seconds, own)):.0f}", beside[0],
                     f"{statistics.median(line['bytes_a_step'] for line in own) / 1e3:,.0f}", *beside[1:]])
    return experiment.table(["trainer", "lines", "ms a step", "times as fast", "kB a step", "times fewer", "loss"], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} processes, {experiment.NETWORKS[NETWORK]}, {STEPS} steps, DiLoCo with H = {LOCAL}; {len(found.seeds)} seeds, "
        f"torch {lines[0]['torch']}. {experiment.origin(lines)}.\n")


def chart_of(lines: list[dict]) -> tuple[str, str]:
    """Loss against seconds, means and medians over seeds."""
    found, data, plots = found_in(lines), [], []
    for k, (trainer, operator) in enumerate(ROWS):
        curves = [found.of[(trainer, operator), seed]["curve"] for seed in found.seeds]
        points = [(statistics.median(x[0] for x in at), statistics.fmean(x[1] for x in at)) for at in zip(*curves)]
        data.append(f"$d{k} << EOD\n" + "".join(f"{x:.5g} {y:.5g}\n" for x, y in points) + "EOD\n")
        plain = operator == "gloo"
        plots.append(f"$d{k} using 1:2 with linespoints pointsize .6 linewidth 1.5 linecolor '{COLORS[trainer]}' "
                     f"{'dashtype 2 pointtype 6' if plain else 'pointtype 7'} title \"{trainer}, {'float32' if plain else operator.split(',')[0]}\"")
    return "torch-trainers.svg", (
        "set terminal svg size 760,440 font 'sans-serif,11' background '#ffffff' name 'torch_trainers'\nset encoding utf8\nset logscale x\n"
        "set xlabel 'seconds of training'\nset ylabel 'loss on unseen text, nats a byte'\nset xrange [2:200]\nset key outside below maxrows 3 samplen 3 font ',10'\nset grid\n"
        + "".join(data) + "plot " + ", ".join(plots) + "\n")


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
