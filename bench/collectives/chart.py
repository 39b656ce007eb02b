#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the speed-up of the whole mean as a function of the length, one panel for each run. Does nothing without gnuplot.

usage: bench/collectives/chart.py RUNS.json CHART.png
"""

import json
import pathlib
import shutil
import subprocess
import sys

DRAWN = {  # operator: color
    "float32/ring": "#969696",
    "uniform/int8/ring": "#3182bd",
    "exponential/int8/ring": "#08519c",
    "exponential/packed4/ring": "#e6550d",
    "uniform/packed4/bucket128/sra": "#fdae6b",
}


def title(run: dict) -> str:
    rate = run["rate_bits_per_second"]
    where = f"{rate / 1e9:g} Gbit/s links" if rate else run["transport"].replace(" on one node", ", shared memory")
    return f"{run['workers']} workers, {where}"


def panel(index: int, run: dict) -> tuple[str, str]:
    """The data of a run, and the command to draw it."""
    sizes = sorted({row["values"] for row in run["rows"]})
    by = {(row["operator"], row["values"]): row["speed_up"] for row in run["rows"]}
    operators = [name for name in DRAWN if any((name, n) in by for n in sizes)]
    data = "\n".join(f"{n} " + " ".join(str(by.get((name, n), "NaN")) for name in operators) for n in sizes)
    lines = ", ".join(
        f"$run{index} using 1:{i + 2} title '{name}' with linespoints pointtype 7 pointsize 0.8 linewidth 2 "
        f"linecolor '{DRAWN[name]}'" for i, name in enumerate(operators))
    settings = f"set title '{title(run)}' font ',13'\n" \
               f"set ylabel 'times as fast as {run['baseline'].replace('_', ' ')} of float32'\n" \
               f"set xrange [{sizes[0] * 0.7}:{sizes[-1] * 1.4}]"
    return f"$run{index} << END\n{data}\nEND", f"{settings}\nplot {lines}"


def main() -> int:
    source, image = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    runs = [run for run in json.loads(source.read_text())["runs"] if run["rows"]]
    if not runs or shutil.which("gnuplot") is None:
        return 0
    panels = [panel(i, run) for i, run in enumerate(runs)]
    columns = len(runs) if len(runs) < 4 else 2
    rows = -(-len(runs) // columns)
    script = "\n".join([
        *(data for data, _ in panels),
        f"set terminal pngcairo size {(900 if columns == 2 else 1200) // columns * columns},{360 * rows} enhanced font 'DejaVu Sans,10' background '#ffffff'",
        f"set output '{image}'", "set border 3 linewidth 1.2 linecolor '#444444'",
        "set tics nomirror textcolor '#444444'", "set grid ytics linecolor '#b0b0b0' linewidth 1 dashtype 2",
        "set logscale x 2", "set logscale y 2", "set yrange [0.125:*]",
        "set xtics ('4 Ki' 4096, '64 Ki' 65536, '1 Mi' 1048576, '4 Mi' 4194304, '16 Mi' 16777216)",
        "set xlabel 'values in the vector'",
        "set key bottom right samplen 1.5 font ',9' Left reverse",
        "set arrow from graph 0, first 1 to graph 1, first 1 nohead linecolor '#444444' linewidth 1.2",
        f"set multiplot layout {rows},{columns}",
        *(command for _, command in panels), "unset multiplot", ""])
    image.with_suffix(".gp").write_text(script)
    subprocess.run(["gnuplot", str(image.with_suffix(".gp"))], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
