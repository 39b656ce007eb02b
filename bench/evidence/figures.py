# SPDX-License-Identifier: Apache-2.0
"""Computes figures from the lines of globalq_evidence: pure functions, tested by tests/scripts/evidence_figures_test.py."""

import statistics

NETWORKS = {"200mbit": "0.2 Gbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s", "shared memory": "shared memory"}
BASE = "float32"


def spread(values: list[float]) -> tuple[float, float, float]:
    """Mean, minimum and maximum."""
    return statistics.fmean(values), min(values), max(values)


def compresses(method: str) -> bool:
    """Whether a method compresses, that is, does not send float32 in some form."""
    return not method.startswith((BASE, "send-first"))


def better(measure: str, a: float, b: float) -> bool:
    """Whether a is at least as good as b."""
    return a >= b if measure == "accuracy" else a <= b


def steps_to(curve: list, target: float, measure: str) -> int | None:
    """The first step of a curve of [step, value] that reaches the target; None if no step does."""
    return next((step for step, value in curve if better(measure, value, target)), None)


def target_of(trainings: list[dict]) -> float | None:
    """The target of a training: the final result of float32, as the mean over its seeds, less a point of accuracy or plus 1 %
    of the loss."""
    last = [t["curve"][-1][1] for t in trainings if t["method"] == BASE]
    if not last:
        return None
    mean = statistics.fmean(last)
    return mean - 0.01 if trainings[0]["measure"] == "accuracy" else mean * 1.01


def steps_of(trainings: list[dict], method: str, target: float) -> float | None:
    """Median over seeds of the steps to the target; None if most seeds do not reach it."""
    found = [steps_to(t["curve"], target, t["measure"]) for t in trainings if t["method"] == method]
    if not found:
        return None
    middle = statistics.median(float("inf") if s is None else s for s in found)
    return None if middle == float("inf") else middle


def step_seconds(timing: dict) -> float:
    return statistics.median(timing["step"])


def own_core_seconds(timing: dict) -> float:
    """The time of a step if every worker computed its gradient on its own core: the computing time of a thread plus the
    measured exchange."""
    return statistics.median(c + e for c, e in zip(timing["compute"], timing["exchange"]))


def speed_up(base: dict, timing: dict, own_core: bool = False) -> float:
    """Speed relative to the base: the median over rounds, in each of which both ran one after the other."""
    def steps(t: dict) -> list[float]:
        return [c + e for c, e in zip(t["compute"], t["exchange"])] if own_core else t["step"]
    return statistics.median(b / t for b, t in zip(steps(base), steps(timing)))


def share_of_computing(timing: dict) -> float:
    """Share of a method in the computing time of a worker's step."""
    return statistics.median(m / (m + c) for m, c in zip(timing["method_compute"], timing["compute"]))


def share_of_step(timing: dict) -> float:
    """Share of a method in the time of a step, if each worker computed its gradient on its own core."""
    return statistics.median(m / (c + e) for m, c, e in zip(timing["method_compute"], timing["compute"], timing["exchange"]))


def spread_of_steps(timing: dict) -> float:
    """The interquartile range of the rounds, divided by their median."""
    first, middle, third = statistics.quantiles(timing["step"], n=4, method="inclusive")
    return (third - first) / middle


def added_computing(timing: dict, base: dict) -> float:
    """Computing time that a method adds to the base's exchange, relative to the computing time of the base's step."""
    mine, other, gradient = (statistics.median(values) for values in (timing["method_compute"], base["method_compute"], base["compute"]))
    return (mine - other) / (gradient + other)


def bytes_of(trainings: list[dict], method: str) -> float | None:
    """Bytes a step and worker, the mean over seeds, because choices of a method differ between seeds."""
    found = [t["bytes_a_step"] for t in trainings if t["method"] == method]
    return statistics.fmean(found) if found else None


def last_of(trainings: list[dict], method: str) -> list[float]:
    """The final result of a method for each seed."""
    return [t["curve"][-1][1] for t in trainings if t["method"] == method]


def gap(trainings: list[dict], method: str) -> str:
    """Final result of a method minus that of float32, as means over seeds: points of accuracy, or percent of the loss."""
    values, base = last_of(trainings, method), last_of(trainings, BASE)
    if not values or not base:
        return ""
    if trainings[0]["measure"] == "accuracy":
        return f"{100 * (statistics.fmean(values) - statistics.fmean(base)):+.2f}"
    return f"{100 * (statistics.fmean(values) / statistics.fmean(base) - 1):+.2f} %"


def choosing_steps(method: str, steps: int) -> list[int]:
    """Steps of a training, from 0, at which a method chooses or learns, as every_of() in exchange.cpp computes them for methods that
    adapt to layers, and learn::schedule_for() for learned levels."""
    name = method.split(":")[0].split(",")[0]
    if name in ("adaptive-cgx", "lgreco", "adaptive-top-k", "adaptive-power-sgd"):
        every = max(steps // 8, 5)
        given = [part.split("=")[1] for part in method.split(",") if part.startswith("every=")]
        every = int(given[-1]) if given and int(given[-1]) > 0 else every
        return [step for step in range(steps) if (step + 1) % every == 0]
    if name in ("alq", "amq"):
        def moment(at: int) -> int:
            return max(1, (at * steps + 40000) // 80000)
        every, once = moment(10000), (moment(100), moment(2000))
        return [step for step in range(1, steps) if step % every == 0 or step in once]
    return []


def choosing_rounds(timing: dict) -> list[int]:
    """Timed rounds in which the method chose or learned; empty if the number of warm-up rounds is unknown."""
    before = timing.get("run", {}).get("warm_up")
    if before is None:
        return []
    return [s - before for s in choosing_steps(timing["method"], len(timing["step"]) + before) if s >= before]


def usual_seconds(timing: dict) -> float:
    """Median time of the steps that do not choose."""
    chosen = choosing_rounds(timing)
    return statistics.median([step for k, step in enumerate(timing["step"]) if k not in chosen] or timing["step"])


def choosing_seconds(timing: dict) -> float | None:
    """Time that a choice adds to a step: the mean of the steps that choose minus the median of the others; None if no step chose."""
    chosen = [timing["step"][k] for k in choosing_rounds(timing)]
    return statistics.fmean(chosen) - usual_seconds(timing) if chosen else None


def seconds_after(timing: dict, steps: float, whole: int) -> float:
    """Time of the first `steps` steps of a training of `whole` steps, including the choices in them."""
    choices = sum(1 for s in choosing_steps(timing["method"], whole) if s < steps)
    return steps * usual_seconds(timing) + choices * (choosing_seconds(timing) or 0)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns except the first are aligned right."""
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] + ["--:"] * (len(header) - 1)) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def seconds(value: float) -> str:
    """Three digits, in s or ms."""
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def final(measure: str, value: float) -> str:
    return f"{100 * value:.2f}" if measure == "accuracy" else f"{value:.4f}"


def replaced(document: str, name: str, text: str) -> tuple[str, bool]:
    """The document with the text between the marks of a name replaced, and whether it has these marks."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    first = document.find(begin)
    last = document.find(end)
    if first < 0 or last < first:
        return document, False
    return document[:first + len(begin)] + text + document[last:], True
