# SPDX-License-Identifier: Apache-2.0
"""Numbers of the papers (published.json) beside ours."""

import json
import pathlib

import figures
from results import results

ROWS = json.loads((pathlib.Path(__file__).resolve().parent / "published.json").read_text())["rows"]
TITLES = {"speed": "Speed", "bytes": "Bytes", "share": "Cost of quantizing", "accuracy": "Accuracy"}
NONE = "not measured"


def values(of: results, row: dict, method: str) -> list[tuple[str, float]]:
    """Pairs of place and our number, for rows of speed, bytes and shares."""
    wanted, found = row["ours"], []
    for model in of.models:
        if row["of"] == "bytes":
            found.append((model, of.fewer(model, method, wanted["over"])))
        elif row["of"] == "share":
            found.append((model, of.added(model, of.workers(model)[0], method) if of.workers(model) else None))
        else:
            found += [(f"{model}, {n}", of.speed_up(model, n, wanted["network"], method, wanted.get("over", figures.BASE))) for n in of.workers(model)]
    return [(where, value) for where, value in found if value is not None]


def several(of: results, row: dict) -> dict[str, list[tuple[str, float]]]:
    return {method: values(of, row, method) for method in row["ours"]["methods"]}


def quality(of: results, row: dict) -> str:
    """Quality of the method and of its comparison relative to float32, which shows what the saved bytes cost."""
    shown = []
    for method in row["ours"]["methods"] if row["ours"] else []:
        for model in of.models:
            mine, other = (figures.gap(of.trained(model), m) for m in (method, row["ours"]["over"]))
            if mine and other:
                shown.append(f"{other} to {mine} ({model})")
    return ", ".join(shown)


def trained(of: results, wanted: dict) -> str:
    lines, shown = of.trained(wanted["model"]), []
    for method in wanted["methods"]:
        found = figures.last_of(lines, method)
        if not found:
            shown.append(NONE)
            continue
        mean, least, most = figures.spread(found)
        half = (most - least) / 2
        shown.append(f"{100 * mean:.2f} ± {100 * half:.2f}" if lines[0]["measure"] == "accuracy" else f"{mean:.4f} ± {half:.4f}")
    if all(text == NONE for text in shown):
        return NONE
    return f"{', '.join(shown)} {'% of digits' if wanted['model'] == 'digits' else 'nats'}"


def ours(of: results, row: dict) -> str:
    """Our number beside a published one."""
    wanted = row["ours"]
    if wanted is None:
        return NONE
    if "sharded" in wanted:
        base, mine = of.perplexity(figures.BASE), of.perplexity(wanted["sharded"])
        return f"{base:.2f} to {mine:.2f} ({100 * (mine / base - 1):+.1f} %), per byte" if base and mine else NONE
    if row["of"] == "accuracy":
        return trained(of, wanted)
    text = "{:.1f} % ({})" if row["of"] == "share" else "{:.2f} ({})"
    scale = 100 if row["of"] == "share" else 1
    parts = []
    for method, found in several(of, row).items():
        shown = ", ".join(text.format(scale * value, where) for where, value in found) or NONE
        parts.append(shown if len(wanted["methods"]) == 1 else f"`{method}`: {shown}")
    all_values = [value for found in several(of, row).values() for _, value in found]
    most = f"up to {max(all_values):.2f}; " if row["unit"].startswith("up to") and all_values else ""
    return most + "; ".join(parts)


def tables(of: results) -> str:
    parts = []
    for kind, title in TITLES.items():
        header = ["claim", "source", "published", "here", *(["published quality", "quality here, against float32"] if kind == "bytes" else []), "differences"]
        lines = [[row["what"], row["source"], f"{row['number']} {row['unit'].removeprefix('up to ')}", ours(of, row),
                  *([row["quality"], quality(of, row)] if kind == "bytes" else []), row["differs"]] for row in ROWS if row["of"] == kind]
        parts.append(f"### {title}\n\n" + figures.table(header, lines).replace("--:", "---"))
    return "\n".join(parts)
