# SPDX-License-Identifier: Apache-2.0
"""What experiments have in common: lines in results/, which are measured once and drawn again and again.

An experiment measures what its lines lack and adds them, so that it can be stopped and resumed. Its tables and charts follow from the
lines alone. Lines in one table must have one hash of the measured sources: tables do not mix versions of the library.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
NETWORKS = {"200mbit": "0.2 Gbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s", "shared memory": "shared memory"}
# bench/evidence/NAME.py and results/NAME.jsonl; whether it trains with LibTorch
EVERY = {"replay": False, "breakdown": False, "limits": False, "schedules": False, "errors": True, "language": True, "sharded": True,
         "adaptive": True, "glyphs": True, "click": True, "local_steps": True, "trainers": False}
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
sys.path[:0] = [str(HERE.parent / "support"), str(HERE)]
import report as benchmarks  # noqa: E402  bench/support/report.py: commit, machine

MEASURED = [(folder, kind) for folder in ("include", "src", "bench/evidence", "examples/language_model") for kind in ("*.cpp", "*.hpp")]


def source_hash() -> str:
    """Of the sources that an experiment measures; documents, tests and scripts do not change it."""
    whole = hashlib.sha256()
    for folder, names in MEASURED:
        for path in sorted((ROOT / folder).rglob(names)):
            whole.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:12]


def commit() -> str:
    """The current one, with -dirty if one of these sources differs from it."""
    sources = [f"{folder}/{kind}" for folder, kind in MEASURED]
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *sources], cwd=ROOT, check=False).returncode
    return benchmarks.commit().removesuffix("-dirty") + ("-dirty" if changed else "")


def read(name: str) -> list[dict]:
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def busy_seconds() -> float:
    """Processor time of all processes of this machine since it started; that of interrupts belongs to none."""
    user, nice, system = (float(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def settle(most: float = 0.1, seconds: int = 600) -> float:
    """Waits until other processes need hardly any processor. @returns how many processors were busy, in the last 5 s"""
    busy = 0.0
    for _ in range(seconds // 5):
        before = busy_seconds()
        time.sleep(5)
        busy = (busy_seconds() - before) / 5
        if busy <= most:
            break
    return busy


def measure(name: str, command: list, *, waits: bool = True, facts: dict | None = None) -> int:
    """Runs a command that prints lines of JSON, and adds them with the origin of the run.

    waits: for an idle machine; results that are no times do not depend on it. facts: added to each line. Lines may have "processor":
    processor time of the run, to tell it from that of other processes. @returns the number of lines
    """
    load = settle() if waits else os.getloadavg()[0]  # before the run: workers exceed the cores during it
    began, busy = time.monotonic(), busy_seconds()
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    seconds = time.monotonic() - began
    found = [json.loads(line, parse_float=lambda digits: float(f"{float(digits):.6g}")) for line in done.stdout.splitlines() if line.startswith("{")]
    own = [line["processor"] for line in found if "processor" in line]
    foreign = round(max(0.0, busy_seconds() - busy - own[0]) / seconds / len(os.sched_getaffinity(0)), 3) if own else None
    run = {"commit": commit(), "source": source_hash(), "date": benchmarks.today(),
           "machine": re.sub(r", L1 .*?iB(?=, [a-z]|$)", "", benchmarks.machine()), "seconds": round(seconds), "load": round(load, 2)}
    if foreign is not None:
        run["foreign"] = foreign
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in ({**line, **(facts or {}), "run": run} for line in found))
    return len(found)


def lacking(name: str, cells, *fields: str) -> list[tuple]:
    """The cells, tuples of the values of these fields, that no line has, in their order.

    With the seed as the first field, all methods of a seed come before the next seed: a table of fewer seeds is complete.
    """
    have = {tuple(line.get(field) for field in fields) for line in read(name)}
    return [cell for cell in cells if cell not in have]


def training(program, model: str, method: str, seed: int, *, workers: int, steps: int, every: int, more: tuple | list = ()) -> list:
    """The command that trains a model with one method and seed."""
    return [program, "train", "--transport", "threads", "--model", model, "--workers", workers, "--steps", steps, "--every", every,
            "--seed", seed, "--exchange", method, *more]


def cluster(workers: int, rate: str, *command, timeout: int = 7200) -> list:
    """The command that runs another one on hosts whose links have a rate."""
    return ["scripts/cluster", "--workers", workers, "--rate", rate, "--timeout", timeout, "--", *command]


STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # 97.5 % of Student's distribution, for this many values


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean of the differences, and half of its 95 % interval."""
    return statistics.fmean(differences), STUDENT[len(differences)] * statistics.stdev(differences) / math.sqrt(len(differences))


class Incomplete(Exception):
    """Lines that are too few for a table."""


def one_source(name: str, lines: list[dict], *facts: str) -> None:
    """Refuses lines of several versions of the sources, or of a fact such as a hash of data; no lines are incomplete."""
    if not lines:
        raise Incomplete
    sources = sorted({line["run"].get("source", "none") for line in lines})
    if len(sources) > 1:
        raise SystemExit(f"evidence: results/{name}.jsonl has lines of {len(sources)} versions of the measured sources ({', '.join(sources)}); "
                         "measure its older lines again, or its table mixes versions")


    for fact in facts:
        if len(found := {line[fact] for line in lines}) > 1:
            raise SystemExit(f"evidence: results/{name}.jsonl has lines of {len(found)} versions of {fact}; measure its older lines again")


def identical(lines: list[dict]) -> None:
    wrong = [f"{line['method']}, seed {line['seed']}" for line in lines if not line["identical"]]
    if wrong:
        raise SystemExit(f"evidence: workers ended with different parameters: {'; '.join(wrong)}")


def seeds_of(lines: list[dict], methods: list[str]) -> list[int]:
    """Seeds for which every method was trained; at least two, or there is no interval."""
    have = {(line["method"], line["seed"]) for line in lines}
    found = [seed for seed in sorted({s for _, s in have}) if all((m, seed) in have for m in methods)]
    if len(found) < 2:
        raise Incomplete
    return found


class trainings:
    """Lines of trainings with the seeds that all methods have, so that they can be paired."""

    def __init__(self, lines: list[dict], methods: list[str]):
        self.seeds = seeds_of(lines, methods)
        self.of = {(line["method"], line["seed"]): line for line in lines}

    def last(self, method: str) -> list[float]:
        """The final evaluation of each seed."""
        return [self.of[method, seed]["curve"][-1][1] for seed in self.seeds]

    def apart(self, method: str, reference: str = "float32") -> tuple[float, float]:
        """From the reference: mean, half of the 95 % interval."""
        return interval([a - b for a, b in zip(self.last(method), self.last(reference))])

    def sent(self, method: str) -> int:
        """Bytes a step; of methods that choose, those of the first seed."""
        return self.of[method, self.seeds[0]]["bytes_a_step"]

    def fewer(self, method: str, reference: str = "float32") -> float:
        """How many times fewer bytes than the reference."""
        return statistics.fmean(self.of[reference, s]["bytes_a_step"] / self.of[method, s]["bytes_a_step"] for s in self.seeds)


def origin(lines: list[dict]) -> str:
    """Dates, sources, a commit that had them, and processors, of lines with the same sources."""
    runs = [line["run"] for line in lines]
    dates = sorted({run["date"] for run in runs})
    commit = next((run["commit"] for run in runs if not run["commit"].endswith("-dirty")), "")
    machines = sorted({run["machine"].split(" threads")[0] + " threads" for run in runs})
    return (" to ".join(dict.fromkeys((dates[0], dates[-1]))) + f", sources `{runs[0].get('source')}`" + (f" (commit `{commit}`)" if commit else "")
            + ", " + "; ".join(machines))


HOLDS, MORE, IN_PART, FAILS, OPEN = VERDICTS = ("holds", "more here", "holds in part", "does not hold", "cannot be told")


class Claim(typing.NamedTuple):
    """A row of the table of docs/evidence.md; published is what the paper has, verdict one of VERDICTS."""
    paper: str
    what: str
    published: str
    here: str
    verdict: str
    why: str = ""
    c: str = ""
    kernels: str = ""  # as a share of an exchange
    formula: str = ""


def near(found: float, published: float) -> tuple[str, str]:
    """Verdict on a ratio that is better if it is larger, and why."""
    off = 100 * (found / published - 1)
    return (HOLDS, "" if abs(off) <= 5 else f"within {abs(off):.0f} %") if abs(off) <= 10 else (MORE if off > 0 else FAILS, f"{off:+.0f} %")


def loss_change(perplexity: float, base: float) -> float:
    """The change of a loss in percent, from its perplexities. It is the same whether a model predicts tokens, as the papers', or bytes, as ours."""
    return 100 * (math.log(perplexity) / math.log(base) - 1)


def changes(own: list[float], base: list[float]) -> tuple[float, float]:
    """Of losses in percent, paired: mean, half of the 95 % interval."""
    return interval([100 * (a / b - 1) for a, b in zip(own, base)])


def loss_claim(paper: str, what: str, perplexities, found: tuple[float, float], why: str = "") -> Claim:
    """perplexities: pairs of the paper, own and base; found: changes(). A loss holds if its interval reaches the largest published one, a gain if it
    is one."""
    published, (mean, half) = [loss_change(*pair) for pair in perplexities], found
    holds = mean + half < 0 if max(published) < 0 else mean - half <= max(published)
    return Claim(paper, f"{what}: change of the loss", ", ".join(f"{p:+.1f}" for p in published) + " %", plus_minus(mean, half, 1) + " %",
                 HOLDS if holds else FAILS, why)


def plus_minus(mean: float, half: float, digits: int) -> str:
    """A difference and half of its interval."""
    return f"{mean:+.{digits}f} ± {half:.{digits}f}"


def difference(mean: float, half: float, digits: int = 3) -> str:
    """In parentheses if the interval contains 0."""
    text = plus_minus(mean, half, digits)
    return f"({text})" if abs(mean) <= half else text


def compared(mean: float, half: float) -> str:
    """Of a loss, or another number that is better if it is less."""
    return "no difference" if abs(mean) <= half else "worse" if mean > 0 else "better"


def table(header: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """A table in Markdown; columns are aligned right, except those of left."""
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" if k in left else "--:" for k in range(len(header))) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def replaced(document: str, name: str, text: str) -> tuple[str, bool]:
    """The document with the text between the marks of a name replaced, and whether it has these marks."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    first, last = document.find(begin), document.find(end)
    if first < 0 or last < first:
        return document, False
    return document[:first + len(begin)] + text + document[last:], True


def chart(script: str) -> str | None:
    """The SVG that gnuplot draws; None without gnuplot."""
    if shutil.which("gnuplot") is None:
        return None
    done = subprocess.run(["gnuplot"], input=script, stdout=subprocess.PIPE, text=True, check=True)
    return re.sub(r"[ \t]+\n", "\n", done.stdout)


def drawn_by(svg: str) -> str:
    found = re.search(r"Produced by (GNUPLOT [\w. ]*\w)", svg)
    return found[1] if found else ""


def run(module) -> int:
    """The program of an experiment, a module with these names:

    NAME; measured(program, options), which calls measure() for what is missing; rendered(lines), the table between the marks of DOCUMENT
    (docs/evidence-tables.md unless it is given); chart_of(lines) -> (file name, script of gnuplot) for a chart beside it; QUICK, the
    settings of --quick.
    """
    global RESULTS
    name, document = module.NAME, ROOT / getattr(module, "DOCUMENT", "docs/evidence-tables.md")
    parser = argparse.ArgumentParser(description=module.__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, help="measure what is missing with this globalq_evidence")
    parser.add_argument("--data", nargs="*", default=[], help="text files of the language model")
    parser.add_argument("--quick", action="store_true", help="few and short measurements, whose lines and page are in build/evidence")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the document or the chart does not show the lines")
    options = parser.parse_args()
    if options.quick:
        vars(module).update(module.QUICK)
        RESULTS = ROOT / "build/evidence"
        RESULTS.mkdir(parents=True, exist_ok=True)
        copy = RESULTS / document.name
        if not copy.exists():
            shutil.copy(document, copy)
        document = copy
    if options.program:
        module.measured(options.program.resolve(), options)
    lines = read(name)
    before = document.read_text()
    complete = True
    try:
        text = module.rendered(lines)
    except Incomplete:
        complete, text = False, f"Not measured yet; `scripts/evidence --only {name}` does.\n"
    except KeyError as missing:
        raise SystemExit(f"evidence: results/{name}.jsonl has no lines of {missing}; scripts/evidence --only {name} measures them") from missing
    after, found = replaced(before, name, text)
    if not found:
        print(f"evidence: {document} has no lines `<!-- begin: {name} -->` and `<!-- end: {name} -->`", file=sys.stderr)
        return 1
    wrong = [str(document)] if after != before else []
    if not options.check:
        document.write_text(after)
    if complete and hasattr(module, "chart_of"):
        file, script = module.chart_of(lines)
        path = document.parent / "images" / file
        old, new = path.read_text() if path.exists() else "", chart(script)
        if new is not None and old != new and (not options.check or drawn_by(old) in ("", drawn_by(new))):
            wrong.append(str(path))
            if not options.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(new)
    if options.check and wrong:
        print(f"evidence: {' and '.join(wrong)}: not what results/{name}.jsonl shows; run scripts/evidence --render", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    for experiment, trains in EVERY.items():
        print(experiment, "trains" if trains else "")
