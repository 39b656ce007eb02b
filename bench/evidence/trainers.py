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
QUICK = {"STEPS": 100, "SEEDS": (1, 2)}
PAIRS = [  # trainer, operator, that of weights, its row, lines that are added or changed
    ("DDP", "gloo", "", "DDP", ""), ("DDP", "cgx:4", "", "back end `cgx:4`", "2"),
    ("FSDP2", "gloo", "", "FSDP2", ""), ("FSDP2", "cgx:4", "qsdp:8", "back end `cgx:4`, weights `qsdp:8`", "2"),
    ("torchft", "gloo", "", "torchft's DDP", ""), ("torchft", "cgx:4", "", "group `cgx:4`", "2"),
    ("torchft's DiLoCo", "gloo", "", "torchft's DiLoCo", ""), ("torchft's DiLoCo", "cgx:4", "", "group `cgx:4`", "2"),
    ("globalq's DiLoCo", "cgx:2,feedback,second=4", "", "`globalq.torch.DiLoCo`, `cgx:2,feedback,second=4`", "3"),
]
BASE = {trainer: next(t for t, operator, *_ in PAIRS if operator == "gloo" and t.split()[-1] == trainer.split()[-1]) for trainer, *_ in PAIRS}
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
    cells = [(seed, trainer, operator) for seed in SEEDS for trainer, operator, *_ in PAIRS]
    for seed, trainer, operator in experiment.lacking(NAME, cells, "seed", "trainer", "method"):
        weights = next(w for t, o, w, *_ in PAIRS if (t, o) == (trainer, operator))
        experiment.measure(NAME, experiment.cluster(
            WORKERS, NETWORK, "unshare", "--uts", python, "bench/torch/trainers.py", "--trainer", trainer, "--operator", operator,
            *(["--weights", weights] if weights else []), "--seed", seed, "--steps", STEPS, "--local", LOCAL, "--every", LOCAL, timeout=900),
            facts={"package": package()})


def found_in(lines: list[dict]) -> tuple[list[int], dict]:
    """Seeds that every row has, and the lines of a row by seed."""
    of = {(line["trainer"], line["method"], line["seed"]): line for line in lines}
    seeds = [seed for seed in SEEDS if all((trainer, operator, seed) in of for trainer, operator, *_ in PAIRS)]
    if len(seeds) < 2:
        raise experiment.Incomplete
    return seeds, of


def seconds(line: dict) -> float:
    """Of a step: the median between evaluations; the first ones open connections."""
    return statistics.median(line["seconds_a_step"][1:])


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    experiment.identical(lines)
    if len(packages := {line["package"] for line in lines}) > 1:
        raise SystemExit(f"evidence: results/{NAME}.jsonl has lines of {len(packages)} versions of the package; measure its older lines again")
    seeds, of = found_in(lines)
    rows = []
    for trainer, operator, _, title, changed in PAIRS:
        own, base = ([of[t, o, seed] for seed in seeds] for t, o in ((trainer, operator), (BASE[trainer], "gloo")))
        last = [line["curve"][-1][1] for line in own]
        ratio, fewer = statistics.median(seconds(b) / seconds(a) for a, b in zip(own, base)), base[0]["bytes_a_step"] / own[0]["bytes_a_step"]
        apart, half = experiment.interval([a - b["curve"][-1][1] for a, b in zip(last, base)])
        plain = operator == "gloo"
        shown = f"{apart:+.3f} ± {half:.3f}"
        rows.append([title, changed, f"{1000 * statistics.median(map(seconds, own)):.0f}", "" if plain else f"{ratio:.2f}",
                     f"{statistics.median(line['bytes_a_step'] for line in own) / 1e3:,.0f}", "" if plain else f"{fewer:.1f}",
                     f"{statistics.fmean(last):.3f}" if plain else f"({shown})" if abs(apart) <= half else shown])
    return experiment.table(["trainer", "lines", "ms a step", "times as fast", "kB a step", "times fewer", "loss"], rows) + (
        f"\n{lines[0]['values']:,} values, {WORKERS} processes, {experiment.NETWORKS[NETWORK]}, {STEPS} steps, DiLoCo with H = {LOCAL}; {len(seeds)} seeds, "
        f"torch {lines[0]['torch']}. {experiment.origin(lines)}.\n")


def chart_of(lines: list[dict]) -> tuple[str, str]:
    """Loss against seconds, means and medians over seeds."""
    seeds, of = found_in(lines)
    data, plots = [], []
    for k, (trainer, operator, *_) in enumerate(PAIRS):
        curves = [of[trainer, operator, seed]["curve"] for seed in seeds]
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
