#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and charts of scripts/evidence, from the lines in a folder, put between the marks of a document.

usage: report.py --build BUILD --results FOLDER --document FILE [--images FOLDER]
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE)]
import figures  # noqa: E402
import report as benchmarks  # noqa: E402  bench/support/report.py: machine and build

DRAWN = {  # method: colour, in curves
    "float32": "#969696",
    "global-uniform": "#3182bd",
    "global-exponential": "#08519c",
    "qsgd:4": "#74c476",
    "layers:cgx:4": "#e6550d",
    "top-k:1": "#9e9ac8",
    "adaptive-top-k:1": "#54278f",
    "power-sgd:4": "#fdae6b",
}


class results:
    """All lines of a folder."""

    def __init__(self, folder: pathlib.Path):
        lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines() if line]
        self.trainings = [line for line in lines if line["what"] == "training"]
        self.timings = [line for line in lines if line["what"] == "timing"]
        self.sharded = [line for line in lines if line["what"] == "sharded"]
        found = [line["model"] for line in self.trainings + self.timings]
        self.models = [m for m in ("digits", "residual", "language") if m in found]

    def trained(self, model: str) -> list[dict]:
        return [t for t in self.trainings if t["model"] == model]

    def methods(self, model: str) -> list[str]:
        return list(dict.fromkeys(t["method"] for t in self.trained(model) + self.timed(model)))

    def timed(self, model: str, workers: int | None = None, network: str | None = None) -> list[dict]:
        return [t for t in self.timings if t["model"] == model and workers in (None, t["workers"]) and network in (None, t["network"])]

    def timing(self, model: str, workers: int, network: str, method: str) -> dict | None:
        found = [t for t in self.timed(model, workers, network) if t["method"] == method and "step" in t]
        return found[-1] if found else None

    def workers(self, model: str) -> list[int]:
        return sorted({t["workers"] for t in self.timed(model)})

    def networks(self, model: str) -> list[str]:
        return [n for n in figures.NETWORKS if self.timed(model, None, n)]


def accuracy(of: results) -> str:
    parts = []
    for model in of.models:
        lines = of.trained(model)
        if not lines:
            continue
        measure, seeds = lines[0]["measure"], len({t["seed"] for t in lines})
        last = {m: [t["curve"][-1][1] for t in lines if t["method"] == m] for m in of.methods(model)}
        sent = {t["method"]: t["bytes_a_step"] for t in lines}
        target, base = figures.target_of(lines), figures.BASE
        rows = []
        for method, values in last.items():
            if not values:
                continue
            mean, least, most = figures.spread(values)
            gap = "" if method == base or not last.get(base) else (
                f"{100 * (mean - statistics.fmean(last[base])):+.2f}" if measure == "accuracy"
                else f"{100 * (mean / statistics.fmean(last[base]) - 1):+.2f} %")
            steps = figures.steps_of(lines, method, target) if target is not None else None
            shown = figures.final(measure, mean)
            if seeds > 1:
                shown += f" ({figures.final(measure, least)} to {figures.final(measure, most)})"
            own = method.endswith("@native")  # what the transport's own sum sends is not known
            rows.append([f"`{method}`", "" if own else f"{sent[method]:,}", f"{sent[base] / sent[method]:.1f}" if base in sent and not own else "",
                         shown, gap, "not reached" if steps is None else f"{steps:g}"])
        unit = "accuracy, %" if measure == "accuracy" else "loss held out, nats"
        parts.append(f"### {model}: {lines[0]['values']:,} values, {lines[0]['workers']} workers, {lines[0]['steps']} steps, "
                     f"seeds: {seeds}\n\n" +
                     figures.table(["method", "bytes a step and worker", "times fewer", unit, "to float32",
                                    f"steps to {figures.final(measure, target)}" if target is not None else "steps"], rows))
    return "\n".join(parts)


def by_network(of: results, cell, heading: str, only_methods=None) -> str:
    """A table for each model and number of workers; cell(timing, base, model, method) -> text."""
    parts = []
    for model in of.models:
        for workers in of.workers(model):
            networks = of.networks(model)
            rows = []
            for method in of.methods(model):
                cells = []
                for network in networks:
                    timing, base = of.timing(model, workers, network, method), of.timing(model, workers, network, figures.BASE)
                    cells.append(cell(timing, base, model, method) if timing and base else "")
                if any(cells):
                    rows.append([f"`{method}`", *cells])
            if rows:
                parts.append(f"### {model}, {workers} workers{heading}\n\n" +
                             figures.table(["method", *(figures.NETWORKS[n] for n in networks)], rows))
    return "\n".join(parts)


def speed(of: results) -> str:
    return by_network(of, lambda t, b, *_: f"{figures.seconds(figures.step_seconds(t))} ({figures.speed_up(b, t):.2f})", "")


def own_core(of: results) -> str:
    return by_network(of, lambda t, b, *_: f"{figures.seconds(figures.own_core_seconds(t))} ({figures.speed_up(b, t, True):.2f})", "")


def target(of: results) -> str:
    def cell(timing: dict, base: dict, model: str, method: str) -> str:
        lines = of.trained(model)
        goal = figures.target_of(lines) if lines else None
        if goal is None or not any(t["method"] == method for t in lines):
            return ""
        steps = figures.steps_of(lines, method, goal)
        return "not reached" if steps is None else figures.seconds(steps * figures.step_seconds(timing))
    # accuracy was measured with the workers of the trainings; other numbers of workers have other batches
    limited = results.__new__(results)
    limited.__dict__ = dict(of.__dict__)
    trained_by = {(t["model"], t["workers"]) for t in of.trainings}
    limited.timings = [t for t in of.timings if (t["model"], t["workers"]) in trained_by]
    return by_network(limited, cell, "")


def share(of: results) -> str:
    parts = []
    for model in of.models:
        workers = of.workers(model)[:1]
        for count in workers:
            rows = []
            for method in of.methods(model):
                found = [of.timing(model, count, n, method) for n in of.networks(model)]
                if not any(found):
                    continue
                some = [t for t in found if t]
                own = statistics.median(statistics.median(t["method_compute"]) for t in some)
                rest = statistics.median(statistics.median(t["compute"]) for t in some)
                rows.append([f"`{method}`", figures.seconds(own), figures.seconds(rest), f"{100 * own / (own + rest):.1f} %",
                             *(f"{100 * figures.share_of_step(t):.1f} %" if t else "" for t in found)])
            if rows:
                parts.append(f"### {model}, {count} workers\n\n" + figures.table(
                    ["method", "computes in the exchange", "gradient and update", "share of computing",
                     *(f"of the step, {figures.NETWORKS[n]}" for n in of.networks(model))], rows))
    return "\n".join(parts)


def sharded(of: results) -> str:
    if not of.sharded:
        return "Not measured: LibTorch was not found.\n"
    base = statistics.fmean(line["loss"] for line in of.sharded if line["precision"] == "float32")
    rows = []
    for name in dict.fromkeys(line["precision"] for line in of.sharded):
        lines = [line for line in of.sharded if line["precision"] == name]
        mean, least, most = figures.spread([line["loss"] for line in lines])
        rows.append([name, f"{lines[0]['bytes_a_step']:,}", f"{mean:.4f} ({least:.4f} to {most:.4f})", f"{100 * (mean / base - 1):+.2f} %",
                     f"{100 * (2.718281828 ** (mean - base) - 1):+.2f} %"])
    return figures.table(["precision", "bytes a step and worker", f"loss held out, seeds: {len(of.sharded) // len(rows)}", "loss to float32",
                          "perplexity of a byte to float32"], rows)


def ours(of: results, wanted: dict) -> str:
    """Our number beside a published one; a dash where it was not measured."""
    dash = "–"
    if "sharded" in wanted:
        found = [line["loss"] for line in of.sharded if line["precision"] == wanted["sharded"]]
        base = [line["loss"] for line in of.sharded if line["precision"] == "float32"]
        return f"{100 * (2.718281828 ** (statistics.fmean(found) - statistics.fmean(base)) - 1):+.1f} %" if found and base else dash
    if "methods" in wanted:
        lines = of.trained(wanted["model"])
        shown = []
        for method in wanted["methods"]:
            values = [t["curve"][-1][1] for t in lines if t["method"] == method]
            if not values:
                shown.append(dash)
                continue
            mean, least, most = figures.spread(values)
            half = (most - least) / 2
            shown.append(f"{100 * mean:.2f} ± {100 * half:.2f}" if lines[0]["measure"] == "accuracy" else f"{mean:.4f} ± {half:.4f}")
        if all(text == dash for text in shown):
            return dash
        return f"{', '.join(shown)} {'% of digits' if wanted['model'] == 'digits' else 'nats'}"
    shown = []
    for model in of.models:
        if "over" in wanted and "network" not in wanted:
            sent = {t["method"]: t["bytes_a_step"] for t in of.trained(model)}
            if wanted["method"] in sent and wanted["over"] in sent:
                shown.append(f"{sent[wanted['over']] / sent[wanted['method']]:.2f} ({model})")
            continue
        for workers in of.workers(model):
            network = wanted.get("network") or next(iter(of.networks(model)), None)
            timing = of.timing(model, workers, network, wanted["method"])
            base = of.timing(model, workers, network, wanted.get("over", figures.BASE))
            if not timing or not base:
                continue
            if "network" in wanted:
                shown.append(f"{figures.speed_up(base, timing):.2f} ({model}, {workers})")
            elif workers == of.workers(model)[0]:
                shown.append(f"{100 * figures.share_of_computing(timing):.0f} % ({model})")
    return ", ".join(shown) or dash


def published(of: results) -> str:
    titles = {"speed": "Speed", "bytes": "Bytes", "share": "What quantising costs", "accuracy": "Accuracy"}
    rows = json.loads((HERE / "published.json").read_text())["rows"]
    parts = []
    for kind, title in titles.items():
        lines = [[row["what"], row["source"], f"{row['number']} {row['unit']}", ours(of, row["ours"]), row["differs"]] for row in rows if row["of"] == kind]
        text = figures.table(["what", "source", "published", "here", "what differs"], lines)
        parts.append(f"### {title}\n\n" + text.replace("| --: |", "| --- |").replace("--:", "---"))
    return "\n".join(parts)


HEAD = """set encoding utf8
set border 3 linewidth 1.2 linecolor '#444444'
set tics nomirror textcolor '#444444'
set grid ytics linecolor '#b0b0b0' linewidth 1 dashtype 2
"""


def draw(script: str, name: str, folder: pathlib.Path) -> bool:
    (folder / f"{name}.gp").write_text(script)
    if shutil.which("gnuplot") is None:
        return False
    subprocess.run(["gnuplot", str(folder / f"{name}.gp")], check=True)
    return True


def quoted(method: str) -> str:
    return method.replace("_", "\\\\_").replace("@", "\\\\@")


def speed_chart(of: results, model: str, folder: pathlib.Path) -> str:
    """Speed-ups as bars, a panel for each number of workers."""
    name, networks, panels, data = f"evidence-speed-{model}", of.networks(model), [], []
    colours = ["#08306b", "#2171b5", "#6baed6", "#fdae6b"]
    for workers in of.workers(model):
        rows = []
        for method in of.methods(model):
            cells = []
            for network in networks:
                timing, base = of.timing(model, workers, network, method), of.timing(model, workers, network, figures.BASE)
                cells.append(f"{figures.speed_up(base, timing):.4g}" if timing and base else "NaN")
            rows.append(f'"{quoted(method)}" ' + " ".join(cells))
        data.append(f"$w{workers} << END\n" + "\n".join(rows) + "\nEND")
        panels.append(f"set title '{model}, {workers} workers' font ',13'\nplot " + ", ".join(
            f"$w{workers} using {i + 2}:xtic(1) title '{figures.NETWORKS[n]}' linecolor '{colours[i]}'" for i, n in enumerate(networks)))
    if not panels:
        return ""
    script = "\n".join([*data, f"set terminal pngcairo size 1400,{500 * len(panels)} enhanced font 'DejaVu Sans,10' background '#ffffff'",
                        f"set output '{folder / name}.png'", HEAD, "set style data histogram", "set style histogram clustered gap 1",
                        "set style fill solid 1 noborder", "set logscale y 2", "set ylabel 'times as fast as float32, whole steps'",
                        "set xtics rotate by -45", "set key top left horizontal samplen 1.5 font ',9'", "set yrange [*:*]",
                        "set arrow from graph 0, first 1 to graph 1, first 1 nohead linecolor '#444444' linewidth 1.2",
                        f"set multiplot layout {len(panels)},1", *panels, "unset multiplot", ""])
    return name if draw(script, name, folder) else ""


def time_chart(of: results, model: str, folder: pathlib.Path) -> str:
    """What a training of one seed came to over time, a panel for each network."""
    name, lines = f"evidence-time-{model}", of.trained(model)
    if not lines:
        return ""
    measure, workers, seed = lines[0]["measure"], lines[0]["workers"], min(t["seed"] for t in lines)
    data, panels = [], []
    for p, network in enumerate(of.networks(model)):
        plots = []
        for k, (method, colour) in enumerate(DRAWN.items()):
            timing = of.timing(model, workers, network, method)
            curve = next((t["curve"] for t in lines if t["method"] == method and t["seed"] == seed), None)
            if not timing or not curve:
                continue
            step = figures.step_seconds(timing)
            scale = 100 if measure == "accuracy" else 1
            data.append(f"$d{p}_{k} << END\n" + "\n".join(f"{s * step:.6g} {scale * v:.6g}" for s, v in curve) + "\nEND")
            plots.append(f"$d{p}_{k} using 1:2 title '{quoted(method)}' with lines linewidth 2 linecolor '{colour}'")
        if plots:
            panels.append(f"set title '{model}, {workers} workers, {figures.NETWORKS[network]}' font ',13'\nplot " + ", ".join(plots))
    if not panels:
        return ""
    bounds = "set yrange [60:100]\nset key bottom right samplen 1.5 font ',9'" if measure == "accuracy" else "set key top right samplen 1.5 font ',9'"
    script = "\n".join([*data, f"set terminal pngcairo size 1200,{380 * -(-len(panels) // 2)} enhanced font 'DejaVu Sans,10' background '#ffffff'",
                        f"set output '{folder / name}.png'", HEAD, bounds, "set xlabel 'seconds: steps times the median step'",
                        f"set ylabel '{'accuracy, %' if measure == 'accuracy' else 'loss held out, nats'}'",
                        f"set multiplot layout {-(-len(panels) // 2)},2", *panels, "unset multiplot", ""])
    return name if draw(script, name, folder) else ""


def about(options) -> str:
    text = benchmarks.provenance(options.build)
    for name, label in (("load", "Load of the machine"), ("quick", "A reduced run")):
        note = options.results / f"{name}.txt"
        if note.exists():
            text += f"{label}: {note.read_text().strip()}.\n"
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--document", type=pathlib.Path, required=True)
    options = parser.parse_args()
    of = results(options.results)
    if not of.models:
        print(f"evidence: {options.results} has no lines of trainings or timings", file=sys.stderr)
        return 1
    differing = [t for t in of.trainings if not t["identical"]]
    for t in differing:
        print(f"evidence: {t['model']}, {t['method']}, seed {t['seed']}: the workers' parameters differ", file=sys.stderr)

    measured = about(options)  # before this program changes a file of the repository: the commit would seem changed
    images = options.document.parent / "images"
    charts = {}
    for kind, make in (("speed", speed_chart), ("target", time_chart)):
        for model in of.models:
            name = make(of, model, options.results)
            if name:
                images.mkdir(parents=True, exist_ok=True)
                if (images / f"{name}.png").resolve() != (options.results / f"{name}.png").resolve():
                    shutil.copyfile(options.results / f"{name}.png", images / f"{name}.png")
                charts.setdefault(kind, []).append(f"![{model}](images/{name}.png)\n")

    document = options.document.read_text()
    status = 1 if differing else 0
    refused = sorted({f"`{t['method']}`: {t['refusal']}" for t in of.timings if "refusal" in t})
    for name, make in (("speed", speed), ("own-core", own_core), ("target", target), ("share", share), ("accuracy", accuracy),
                       ("published", published), ("sharded", sharded), ("about", lambda _: measured)):
        text = make(of) or "Not measured.\n"
        text += "".join("\n" + chart for chart in charts.get(name, []))
        if name == "speed" and refused:
            text += "\nRefused: " + "; ".join(refused) + ".\n"
        document, found = figures.replaced(document, name, text)
        if not found:
            print(f"evidence: {options.document} has no lines `<!-- begin: {name} -->` and `<!-- end: {name} -->`", file=sys.stderr)
            status = 1
    options.document.write_text(document)
    print(f"evidence: the tables are in {options.document}")
    return status


if __name__ == "__main__":
    sys.exit(main())
