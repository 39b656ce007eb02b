# SPDX-License-Identifier: Apache-2.0
"""Reads the lines that scripts/evidence wrote, and computes the results of methods. Tested by tests/scripts/evidence_report_test.py."""

import json
import math
import pathlib
import statistics

import figures

KINDS = ("training", "timing", "sharded")
MODELS = ("digits", "residual", "language")


def family(method: str) -> str:
    """A name without its value, parameters and schedule."""
    return method.replace("@", ":").replace(",", ":").split(":")[0]


class results:
    """All lines of a folder, either of full runs or of reduced ones."""

    def __init__(self, folder: pathlib.Path, quick: bool = False):
        lines = []
        for kind in KINDS:
            for path in sorted(folder.glob(f"{'quick-' if quick else ''}{kind}*.jsonl")):
                # lines of old runs have no "run": it is in a file beside them, or in one file for all of a kind
                notes = [folder / f"{path.stem}.run.json", folder / f"{kind}.run.json"]
                note = next((json.loads(n.read_text()) for n in notes if n.exists()), {})
                lines += [{"run": note, **json.loads(line)} for line in path.read_text().splitlines() if line]
        self.trainings = [line for line in lines if line["what"] == "training"]
        self.timings = [line for line in lines if line["what"] == "timing"]
        self.sharded = [line for line in lines if line["what"] == "sharded"]
        found = [line["model"] for line in self.trainings + self.timings]
        self.models = [m for m in MODELS if m in found]
        self.floats = {(t["model"], t["workers"], t["network"]): t for t in self.timings if t["method"] == figures.BASE and "step" in t}

    def trained(self, model: str) -> list[dict]:
        return [t for t in self.trainings if t["model"] == model]

    def methods(self, model: str) -> list[str]:
        """Methods in the order of the lines, but those of one family together."""
        found = list(dict.fromkeys(t["method"] for t in self.trained(model) + self.timed(model)))
        families = list(dict.fromkeys(family(m) for m in found))
        return sorted(found, key=lambda m: families.index(family(m)))

    def timed(self, model: str, workers: int | None = None, network: str | None = None) -> list[dict]:
        return [t for t in self.timings if t["model"] == model and workers in (None, t["workers"]) and network in (None, t["network"])]

    def timing(self, model: str, workers: int, network: str, method: str) -> dict | None:
        found = [t for t in self.timed(model, workers, network) if t["method"] == method and "step" in t]
        return found[-1] if found else None

    def base(self, timing: dict) -> dict | None:
        """Float32 of the same run."""
        return timing.get("base") or self.floats.get((timing["model"], timing["workers"], timing["network"]))

    def pair(self, model: str, workers: int, network: str, method: str) -> tuple[dict, dict] | None:
        timing = self.timing(model, workers, network, method)
        base = self.base(timing) if timing else None
        return (timing, base) if timing and base else None

    def speed_up(self, model: str, workers: int, network: str, method: str, over: str = figures.BASE) -> float | None:
        """Relative speed; if the timings are from two runs, the ratio of the speed-ups over the float32 of each run."""
        mine, other = self.pair(model, workers, network, method), self.pair(model, workers, network, over)
        if not mine or (over != figures.BASE and not other):
            return None
        if over == figures.BASE:
            return figures.speed_up(mine[1], mine[0])
        if mine[1]["step"] == other[1]["step"]:
            return figures.speed_up(other[0], mine[0])
        return figures.speed_up(mine[1], mine[0]) / figures.speed_up(other[1], other[0])

    def fewer(self, model: str, method: str, over: str) -> float | None:
        """Factor by which a method sends fewer bytes."""
        mine, other = figures.bytes_of(self.trained(model), method), figures.bytes_of(self.trained(model), over)
        return other / mine if mine and other else None

    def added(self, model: str, workers: int, method: str) -> float | None:
        """Relative computing time that a method adds: the median over the networks."""
        pairs = [self.pair(model, workers, n, method) for n in self.networks(model)]
        found = [figures.added_computing(*p) for p in pairs if p]
        return statistics.median(found) if found else None

    def perplexity(self, precision: str) -> float | None:
        found = [line["loss"] for line in self.sharded if line["precision"] == precision]
        return math.exp(statistics.fmean(found)) if found else None

    def workers(self, model: str) -> list[int]:
        return sorted({t["workers"] for t in self.timed(model)})

    def networks(self, model: str) -> list[str]:
        return [n for n in figures.NETWORKS if self.timed(model, None, n)]
