# SPDX-License-Identifier: Apache-2.0
"""Charts of scripts/evidence, drawn by gnuplot if it is found. Each function returns the name of its chart, or an empty string."""

import pathlib
import re
import shutil
import statistics
import subprocess

import figures
import papers
from results import MODELS, results

DRAWN = {  # method: color and dashes, in curves
    "float32": ("#000000", 1), "global-uniform": ("#0072b2", 1), "global-exponential": ("#0072b2", 2), "qsgd:4": ("#009e73", 1),
    "layers:cgx:4": ("#d55e00", 1), "lgreco:4": ("#d55e00", 2), "top-k:1": ("#cc79a7", 1), "adaptive-top-k:1": ("#cc79a7", 2),
    "power-sgd:4": ("#e69f00", 1), "adaptive-power-sgd:4": ("#e69f00", 2)}
BARS = {"200mbit": "#08306b", "1gbit": "#4292c6", "10gbit": "#9ecae1", "shared memory": "#fdae6b"}
MARKS = {"digits": ("#0072b2", 7), "residual": ("#009e73", 5), "language": ("#d55e00", 9)}  # color and shape
HEAD = """set encoding utf8
set border 3 linewidth 1.2 linecolor '#444444'
set tics nomirror textcolor '#444444'
"""


def draw(script: str, name: str, folder: pathlib.Path) -> str:
    (folder / f"{name}.gp").write_text(script)
    if shutil.which("gnuplot") is None:
        return ""
    subprocess.run(["gnuplot", str(folder / f"{name}.gp")], check=True)
    return name


def start(folder: pathlib.Path, name: str, width: int, height: int) -> str:
    return (f"set terminal pngcairo size {width},{height} enhanced font 'DejaVu Sans,10' background '#ffffff'\n"
            f"set output '{folder / name}.png'\n{HEAD}")


def plain(text: str) -> str:
    """The text with gnuplot's markup characters escaped."""
    return re.sub(r"([_@^{}&~])", r"\\\1", text)


def speed(of: results, model: str, folder: pathlib.Path) -> str:
    """Speed-ups as bars from 1, to the right if a method is faster than float32; one panel for each number of workers."""
    name, networks = f"evidence-speed-{model}", of.networks(model)
    methods = [m for m in of.methods(model) if m != figures.BASE and any(
        of.speed_up(model, w, n, m) for w in of.workers(model) for n in networks)]
    if not methods:
        return ""
    data, panels, found = [], [], [1.0]
    for k, workers in enumerate(of.workers(model)):
        plots = []
        for i, network in enumerate(networks):
            rows = []
            for place, method in enumerate(methods):
                value = of.speed_up(model, workers, network, method)
                if value is not None:
                    found.append(value)
                    top = place - 0.4 + 0.8 * i / len(networks)
                    low, high = min(1.0, value), max(1.0, value)
                    rows.append(f"{value:.4g} {top + 0.4 / len(networks):.3f} {low:.4g} {high:.4g} {top:.3f} {top + 0.8 / len(networks):.3f}")
            if rows:
                data.append(f"$d{k}_{i} << END\n" + "\n".join(rows) + "\nEND")
                plots.append(f"$d{k}_{i} using 1:2:3:4:5:6 with boxxyerror title '{figures.NETWORKS[network]}' linecolor '{BARS[network]}'")
        tics = ", ".join(f"'{plain(m) if k == 0 else ''}' {place}" for place, m in enumerate(methods))
        panels.append(f"set title '{model}, {workers} workers' font ',13'\nset ytics ({tics})\nplot " + ", ".join(plots))
    height = 145 + 24 * len(methods)
    left, right, count = 0.2, 0.99, len(panels)
    least, most = min(found) / 1.1, max(found) * 1.1
    return draw("\n".join([
        *data, start(folder, name, 1400, height), "set style fill solid 1 noborder", "set logscale x 2", f"set xrange [{least:.4g}:{most:.4g}]",
        f"set yrange [{len(methods) - 0.4}:-0.6]", "set grid xtics linecolor '#b0b0b0' linewidth 1 dashtype 2",
        "set xtics (" + ", ".join(f"'{tic:g}' {tic:g}" for tic in (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8, 11, 16)) + ")",
        "set xlabel 'times as fast as float32, whole steps'", "set key horizontal center bottom outside samplen 1.5 font ',10'",
        "set arrow from 1, graph 0 to 1, graph 1 nohead front linecolor '#444444' linewidth 1.2",
        f"set multiplot layout 1,{count} margins {left},{right},{95 / height:.3f},{1 - 50 / height:.3f} spacing 0.02", *panels, "unset multiplot", ""]),
        name, folder)


def time(of: results, model: str, folder: pathlib.Path) -> str:
    """Accuracy or loss over time near the target, the mean of the seeds; one panel for each network."""
    name, lines = f"evidence-time-{model}", of.trained(model)
    if not lines:
        return ""
    measure, workers, whole, goal = lines[0]["measure"], lines[0]["workers"], lines[0]["steps"], figures.target_of(lines)
    scale, seeds = 100 if measure == "accuracy" else 1, sorted({t["seed"] for t in lines})
    data, panels, reached, times = [], [], [], []
    for p, network in enumerate(of.networks(model)):
        plots = []
        for k, (method, (color, dashes)) in enumerate(DRAWN.items()):
            timing, curves = of.timing(model, workers, network, method), [t["curve"] for t in lines if t["method"] == method]
            if not timing or not curves:
                continue
            points = [(figures.seconds_after(timing, at[0][0], whole), scale * statistics.fmean(v for _, v in at)) for at in zip(*curves)]
            times += [t for t, _ in points]
            reached += [v for _, v in points]
            data.append(f"$d{p}_{k} << END\n" + "\n".join(f"{t:.6g} {v:.6g}" for t, v in points) + "\nEND")
            plots.append(f"$d{p}_{k} using 1:2 title '{plain(method)}' with lines linewidth 2 dashtype {dashes} linecolor '{color}'")
        if plots:
            if goal is not None:
                plots.append(f"{scale * goal:.6g} title 'target' with lines linewidth 1.5 dashtype 3 linecolor '#666666'")
            panels.append(f"set title '{model}, {workers} workers, {figures.NETWORKS[network]}' font ',13'\nplot " + ", ".join(plots))
    if not panels or goal is None:
        return ""
    # only the last few points of accuracy, or the last sixth of the loss: before, all methods look the same
    low, high = (scale * goal - 7, max(reached) + 0.5) if measure == "accuracy" else (min(reached) * 0.99, goal * 1.17)
    times = [t for t, v in zip(times, reached) if low <= v <= high]
    rows = -(-len(panels) // 2)
    keys = ["set key at screen 0.995, screen 0.97 right top vertical samplen 4 font ',10'", *["unset key"] * (len(panels) - 1)]
    return draw("\n".join([
        *data, start(folder, name, 1400, 400 * rows), "set grid linecolor '#b0b0b0' linewidth 1 dashtype 2", "set logscale x",
        f"set xrange [{min(times) / 1.05:.4g}:{max(times) * 1.05:.4g}]", f"set yrange [{low:.4g}:{high:.4g}]",
        "set xtics (" + ", ".join(f"'{tic:g}' {tic:g}" for tic in (b * 10.0 ** e for e in range(-3, 4) for b in (1, 2, 5))) + ")",
        "set xlabel 'seconds: steps times the median step, plus the choices'",
        f"set ylabel '{'accuracy, %' if measure == 'accuracy' else 'loss held out, nats'}; mean of seeds {', '.join(map(str, seeds))}'",
        f"set multiplot layout {rows},2 margins 0.06,0.83,{0.14 / rows:.3f},{1 - 0.1 / rows:.3f} spacing 0.06,{0.25 / rows:.3f}",
        *(line for both in zip(keys, panels) for line in both), "unset multiplot", ""]), name, folder)


def published(of: results, folder: pathlib.Path) -> str:
    """The papers' ratios beside ours: a line for each row of published.json, one panel for speed and one for bytes."""
    name, data, panels, widths = "evidence-published", [], [], []
    models = [m for m in MODELS if m in of.models]
    for kind in ("speed", "bytes"):
        theirs, ours, labels, every = [], {m: [] for m in models}, [], []
        for row in papers.ROWS:
            if row["of"] != kind or row["ours"] is None:
                continue
            found = papers.several(of, row)
            numbers = [float(x) for x in re.findall(r"\d+\.?\d*", row["number"])]
            alone = len(numbers) == len(found) and len(found) > 1  # one number for each method, else several numbers of one method
            for k, (method, own) in enumerate(found.items()):
                if not own:
                    continue
                shown = [numbers[k]] if alone else numbers
                place = len(labels)
                labels.append(f"{method}{' / ' + row['ours']['over'] if 'over' in row['ours'] else ''}"
                              f"{', ' + figures.NETWORKS[row['ours']['network']] if kind == 'speed' else ''}"
                              f" ({row['source'].split(', ')[-1]})")
                theirs += [f"{value} {place - 0.15}" for value in shown]
                every += shown + [value for _, value in own]
                for where, value in own:
                    ours[where.split(",")[0]].append(f"{value:.4g} {place + 0.15}")
        if not labels:
            return ""
        data.append(f"$p_{kind} << END\n" + "\n".join(theirs) + "\nEND")
        plots = [f"$p_{kind} using 1:2 with points pointtype 6 pointsize 1.6 linewidth 1.8 linecolor '#000000' title 'published'"]
        for model in models:
            if ours[model]:
                data.append(f"$o_{kind}_{model} << END\n" + "\n".join(ours[model]) + "\nEND")
                color, shape = MARKS[model]
                plots.append(f"$o_{kind}_{model} using 1:2 with points pointtype {shape} pointsize 1.3 linecolor '{color}' title 'here, {model}'")
        tics = ", ".join(f"'{plain(label)}' {place}" for place, label in enumerate(labels))
        title = "throughput, times the base" if kind == "speed" else "times fewer bytes"
        panels.append((len(labels), "\n".join([
            f"set title '{title}' font ',13'", f"set ytics ({tics})", f"set yrange [{len(labels) - 0.5}:-0.5]",
            f"set xrange [{min(every) / 1.1:.4g}:{max(every) * 1.1:.4g}]", "plot " + ", ".join(plots)])))
        widths.append(len(labels))
    height, script, at = 24 * sum(widths) + 240, [], 45.0
    for lines, text in panels:
        bottom = at + 24 * lines
        script += [f"set tmargin at screen {1 - at / height:.4f}\nset bmargin at screen {1 - bottom / height:.4f}", text]
        at = bottom + 95
    return draw("\n".join([
        *data, start(folder, name, 1400, height), "set logscale x 2", "set grid linecolor '#b0b0b0' linewidth 1 dashtype 2",
        "set lmargin at screen 0.43\nset rmargin at screen 0.98", "set key horizontal center bottom outside font ',10'",
        "set arrow from 1, graph 0 to 1, graph 1 nohead linecolor '#444444' linewidth 1.2", "set multiplot", *script, "unset multiplot", ""]), name, folder)
