#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Creates the tables and charts of scripts/evidence from the lines in a folder, and writes them between the marks of a document.

usage: report.py --results FOLDER --document FILE [--quick]
"""

import argparse
import pathlib
import shutil
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import charts  # noqa: E402
import figures  # noqa: E402
import papers  # noqa: E402
from results import MODELS, results  # noqa: E402


def accuracy(of: results) -> str:
    parts = []
    for model in of.models:
        lines = of.trained(model)
        if not lines:
            continue
        measure, seeds = lines[0]["measure"], len({t["seed"] for t in lines})
        target, base = figures.target_of(lines), figures.BASE
        sent = {m: figures.bytes_of(lines, m) for m in of.methods(model)}
        rows = []
        for method in of.methods(model):
            values = figures.last_of(lines, method)
            if not values:
                continue
            mean, least, most = figures.spread(values)
            steps = figures.steps_of(lines, method, target) if target is not None else None
            shown = figures.final(measure, mean)
            if seeds > 1:
                shown += f" ({figures.final(measure, least)} to {figures.final(measure, most)})"
            own = method.endswith("@native")  # the bytes that the transport's own sum sends are unknown
            rows.append([f"`{method}`", "" if own else f"{sent[method]:,.0f}", f"{sent[base] / sent[method]:.1f}" if sent.get(base) and not own else "",
                         shown, "" if method == base else figures.gap(lines, method), "not reached" if steps is None else f"{steps:g}"])
        unit = "accuracy, %" if measure == "accuracy" else "held-out loss, nats"
        parts.append(f"### {model}: {lines[0]['values']:,} values, {lines[0]['workers']} workers, {lines[0]['steps']} steps, "
                     f"seeds: {seeds}\n\n" +
                     figures.table(["method", "bytes per step and worker", "compression", unit, "against float32",
                                    f"steps to {figures.final(measure, target)}" if target is not None else "steps"], rows))
    return "\n".join(parts)


def by_network(of: results, cell, models: dict | None = None, title=lambda model: "") -> str:
    """A table for each model and number of workers, or for those in `models`; cell(timing, base, model) -> text."""
    parts = []
    for model in of.models:
        for workers in of.workers(model) if models is None else models.get(model, []):
            networks, rows = of.networks(model), []
            for method in of.methods(model):
                pairs = [of.pair(model, workers, network, method) for network in networks]
                cells = [cell(*pair, model) if pair else "" for pair in pairs]
                if any(cells):
                    rows.append([f"`{method}`", *cells])
            if rows:
                parts.append(f"### {model}, {workers} workers{title(model)}\n\n" +
                             figures.table(["method", *(figures.NETWORKS[n] for n in networks)], rows))
    return "\n".join(parts)


def trained_by(of: results) -> dict:
    """Numbers of workers of the trainings: with other numbers, batches differ, so the steps to a target are unknown."""
    return {model: sorted({t["workers"] for t in of.trained(model)} & set(of.workers(model))) for model in of.models}


def spread(of: results) -> str:
    rows = []
    for model in of.models:
        for workers in of.workers(model):
            cells = []
            for network in of.networks(model):
                found = [figures.spread_of_steps(t) for t in of.timed(model, workers, network) if len(t.get("step", [])) > 1]
                cells.append(f"{100 * statistics.median(found):.0f} % ({100 * max(found):.0f} %)" if found else "")
            rows.append([f"{model}, {workers} workers", *cells])
    networks = [n for n in figures.NETWORKS if any(n in of.networks(m) for m in of.models)]
    if not rows or any(len(row) != len(networks) + 1 for row in rows):
        return ""
    return ("### Spread of step times\n\nInterquartile range of a method's rounds divided by their median: of the median method, and in parentheses "
            "the largest.\n\n" + figures.table(["", *(figures.NETWORKS[n] for n in networks)], rows))


def speed(of: results) -> str:
    text = by_network(of, lambda t, b, _: f"{figures.seconds(figures.step_seconds(t))} ({figures.speed_up(b, t):.2f})")
    refused = sorted({f"`{t['method']}`: {t['refusal']}" for t in of.timings if "refusal" in t})
    return text + "\n" + spread(of) + ("\nRefused: " + "; ".join(refused) + ".\n" if refused else "")


def own_core(of: results) -> str:
    return by_network(of, lambda t, b, _: f"{figures.seconds(figures.own_core_seconds(t))} ({figures.speed_up(b, t, True):.2f})")


def target(of: results) -> str:
    def cell(timing: dict, _: dict, model: str) -> str:
        lines = of.trained(model)
        goal = figures.target_of(lines)
        if goal is None or not figures.last_of(lines, timing["method"]):
            return ""
        steps = figures.steps_of(lines, timing["method"], goal)
        return "not reached" if steps is None else figures.seconds(figures.seconds_after(timing, steps, lines[0]["steps"]))
    return by_network(of, cell, trained_by(of))


def choosing(of: results) -> str:
    """The time that choosing adds to the mean step of a training."""
    def cell(timing: dict, _: dict, model: str) -> str:
        extra, steps = figures.choosing_seconds(timing), of.trained(model)[0]["steps"]
        if extra is None:
            return ""
        share = extra * len(figures.choosing_steps(timing["method"], steps)) / steps
        return f"{1e3 * extra:+.3g} ms ({100 * share / figures.usual_seconds(timing):+.1f} %)"
    return by_network(of, cell, trained_by(of), lambda model: f", {of.trained(model)[0]['steps']} steps")


def share(of: results) -> str:
    parts = []
    for model in of.models:
        for count in of.workers(model)[:1]:
            rows = []
            for method in of.methods(model):
                found = [of.timing(model, count, n, method) for n in of.networks(model)]
                if not any(found):
                    continue
                some, added = [t for t in found if t], of.added(model, count, method)
                own = statistics.median(statistics.median(t["method_compute"]) for t in some)
                rest = statistics.median(statistics.median(t["compute"]) for t in some)
                rows.append([f"`{method}`", figures.seconds(own), figures.seconds(rest), f"{100 * own / (own + rest):.1f} %",
                             "" if added is None or method == figures.BASE else f"{100 * added:+.1f} %",
                             *(f"{100 * figures.share_of_step(t):.1f} %" if t else "" for t in found)])
            if rows:
                parts.append(f"### {model}, {count} workers\n\n" + figures.table(
                    ["method", "computing in the exchange", "gradient and update", "share of computing", "added to float32's computing",
                     *(f"of the step, {figures.NETWORKS[n]}" for n in of.networks(model))], rows))
    return "\n".join(parts)


def sharded(of: results) -> str:
    if not of.sharded:
        return "Not measured: LibTorch was not found.\n"
    base = statistics.fmean(line["loss"] for line in of.sharded if line["precision"] == figures.BASE)
    rows, seeds = [], len({line["seed"] for line in of.sharded})
    for name in dict.fromkeys(line["precision"] for line in of.sharded):
        lines = [line for line in of.sharded if line["precision"] == name]
        mean, least, most = figures.spread([line["loss"] for line in lines])
        sent = statistics.fmean(line["bytes_a_step"] for line in lines)
        rows.append([name, f"{sent:,.0f}", f"{mean:.4f} ({least:.4f} to {most:.4f})", f"{100 * (mean / base - 1):+.2f} %",
                     f"{100 * (of.perplexity(name) / of.perplexity(figures.BASE) - 1):+.2f} %"])
    return figures.table(["precision", "bytes per step and worker", f"held-out loss, seeds: {seeds}", "loss against float32",
                          "perplexity per byte, against float32"], rows)


def shortfalls(of: results) -> str:
    """Where methods are slower, larger or less accurate than expected, in numbers; a column for each model."""
    def fewer(method: str, over: str):
        def cell(model: str) -> str:
            ratio, lines = of.fewer(model, method, over), of.trained(model)
            return "" if ratio is None else f"{ratio:.2f}; {figures.gap(lines, over) or '0'} to {figures.gap(lines, method)}"
        return cell

    def speeds(method: str, network: str):
        def cell(model: str) -> str:
            found = [(n, of.speed_up(model, n, network, method)) for n in of.workers(model)]
            return ", ".join(f"{value:.2f} ({n})" for n, value in found if value is not None)
        return cell

    def slower(network: str):
        def cell(model: str) -> str:
            shown = []
            for n in of.workers(model):
                found = [of.speed_up(model, n, network, m) for m in of.methods(model) if figures.compresses(m)]
                known = [value for value in found if value is not None]
                if known:
                    shown.append(f"{sum(value < 1 for value in known)} of {len(known)} ({n})")
            return ", ".join(shown)
        return cell

    def missed(model: str) -> str:
        lines = of.trained(model)
        methods = [m for m in of.methods(model) if figures.compresses(m) and figures.last_of(lines, m)]
        goal = figures.target_of(lines) if lines else None
        return "" if goal is None or not methods else f"{sum(figures.steps_of(lines, m, goal) is None for m in methods)} of {len(methods)}"

    asked = [(f"bytes of `{b}` / bytes of `{a}`; quality", fewer(a, b)) for a, b in (
        ("adaptive-cgx", "layers:cgx:4"), ("lgreco:4", "layers:cgx:4"), ("adaptive-power-sgd:4", "power-sgd:4"),
        ("adaptive-power-sgd:4,rule=accordion", "power-sgd:4"), ("adaptive-power-sgd:4,rule=both", "power-sgd:4"), ("adaptive-top-k:1", "top-k:1"))]
    asked += [(f"speed-up of `global-exponential` (tree) over float32 (ring), {figures.NETWORKS[n]} (workers)", speeds("global-exponential", n)) for n in figures.NETWORKS]
    asked += [(f"methods slower than float32, {figures.NETWORKS[n]} (workers)", slower(n)) for n in figures.NETWORKS]
    asked += [("methods that miss the target", missed)]
    rows = [[what, *(cell(model) for model in of.models)] for what, cell in asked]
    return figures.table(["", *of.models], [row for row in rows if any(row[1:])])


def quoted(commit: str) -> str:
    return f"at commit `{commit}`" if " " not in commit else f"with {commit}"


def loads(runs: list[dict]) -> str:
    """Other load of the machine: a description, or the mean number of running threads in the minute before."""
    words = list(dict.fromkeys(run["beside"] for run in runs if run.get("beside")))
    numbers = [float(run["load"]) for run in runs if "load" in run]
    if numbers:
        words.append(f"load in the minute before {min(numbers):g}" + (f" to {max(numbers):g}" if max(numbers) > min(numbers) else ""))
    return ", ".join(words)


def about(of: results, quick: bool) -> str:
    """Commit, date and machine of the numbers: first of most lines of a kind, then of lines measured again."""
    items = ["- A reduced run: `scripts/evidence --quick`."] if quick else []
    found = of.trainings + of.timings + of.sharded
    places = list(dict.fromkeys((line["run"].get("machine", "an unknown machine"), line["run"].get("build", "unknown flags")) for line in found))
    for title, lines, name in (("Trainings", of.trainings, "method"), ("Times", of.timings, "method"), ("Sharded trainings", of.sharded, "precision")):
        groups: dict = {}
        for line in lines:
            groups.setdefault(tuple(line["run"].get(key, "unknown") for key in ("date", "commit", "machine", "build")), []).append(line)
        for k, ((date, commit, machine, build), group) in enumerate(sorted(groups.items(), key=lambda g: -len(g[1]))):
            methods = list(dict.fromkeys(f"`{line[name]}`" for line in group))
            models = [m for m in MODELS if any(line.get("model") == m for line in group)]
            text = f"- {title}{' of ' + ', '.join(models) if models else ''}{': ' + ', '.join(methods) if k else ''}: {date}, {quoted(commit)}"
            beside = loads([line["run"] for line in group])
            items.append(text + (f"; {beside}" if beside else "") + "." + (f" On {machine}, built with {build}." if len(places) > 1 else ""))
    if len(places) == 1:
        items.append(f"- All on {places[0][0]}, built with {places[0][1]}.")
    return "\n".join(items) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--document", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true", help="use reduced runs, whose files begin with quick-")
    options = parser.parse_args()
    of = results(options.results, options.quick)
    if not of.models:
        print(f"evidence: {options.results} has no lines of trainings or timings", file=sys.stderr)
        return 1
    differing = [t for t in of.trainings if not t["identical"]]
    for t in differing:
        print(f"evidence: {t['model']}, {t['method']}, seed {t['seed']}: the workers' parameters differ", file=sys.stderr)

    images = options.document.parent / "images"
    drawn = {"speed": [charts.speed(of, model, options.results) for model in of.models],
             "target": [charts.time(of, model, options.results) for model in of.models],
             "published": [charts.published(of, options.results)]}
    document = options.document.read_text()
    status = 1 if differing else 0
    for name, make in (("about", lambda of: about(of, options.quick)), ("speed", speed), ("own-core", own_core), ("accuracy", accuracy), ("target", target),
                       ("choosing", choosing), ("share", share), ("sharded", sharded), ("published", papers.tables), ("shortfalls", shortfalls)):
        text = make(of) or "Not measured.\n"
        for chart in filter(None, drawn.get(name, [])):
            images.mkdir(parents=True, exist_ok=True)
            if (images / f"{chart}.png").resolve() != (options.results / f"{chart}.png").resolve():
                shutil.copyfile(options.results / f"{chart}.png", images / f"{chart}.png")
            text += f"\n![{chart.split('-')[-1]}](images/{chart}.png)\n"
        document, found = figures.replaced(document, name, text)
        if not found:
            print(f"evidence: {options.document} has no lines `<!-- begin: {name} -->` and `<!-- end: {name} -->`", file=sys.stderr)
            status = 1
    options.document.write_text(document)
    print(f"evidence: the tables are in {options.document}")
    return status


if __name__ == "__main__":
    sys.exit(main())
