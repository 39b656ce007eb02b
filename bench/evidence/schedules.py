#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Global-QSGD on equal schedules: uniform and exponential levels beside float32, each over a ring, a tree and scatter-reduce-allgather.

usage: schedules.py [--program PROGRAM] [--quick] [--check]

c is that of float32 over the same schedule. Omega is the speed of adding codes over that of adding float32, in bytes: of kernels on one
core, and of whole calls in shared memory. Measuring needs scripts/cluster, that is, root.
"""

import statistics
import sys

import experiment
import replay

NAME, VALUES, ROUNDS, CALLS, FITS = "schedules", "4Mi", 4, 15, 9
SCHEDULES = ("ring", "tree", "sra")
RATIOS = {4: (0.7, 2.0, 4.0, 10.0)}  # number of workers: c
METHODS = ("global-uniform:8", "global-exponential:8", "global-uniform:4", "global-exponential:4")
QUICK = {"VALUES": "1Mi", "ROUNDS": 3, "CALLS": 5, "FITS": 2, "RATIOS": {4: (4.0,)}}
PAPER_OMEGA = "1/79"  # of its exponential reduce on an A100 (Global-QSGD, section 5)
# Speed-ups of Global-QSGD's Figure 1, by network. It does not publish c.
PUBLISHED = {"64 machines, 0.2 to 1.5 Gbit/s": 3.17, "4 GPUs over PCIe": 3.51, "4 GPUs over NVLink": 1.38}


def measured(program, options) -> None:
    del options
    known = experiment.read(NAME)
    if not any(line["what"] == "omega" for line in known):
        experiment.measure(NAME, ["bash", "-c", """set -o pipefail; for i in $(seq "$1"); do "$0" omega; done | awk -F'|' '/^[|] [0-9]/ {
            printf "{\\"what\\": \\"omega\\", \\"values\\": %d, \\"sums\\": %s, \\"exponential\\": %s}\\n", $2, $4, $5}'""",
                                  program.parent / "globalq_model", FITS])
    if not any(line["what"] == "timing" for line in known):
        experiment.measure(NAME, [program, "time", "--transport", "threads", "--workers", 4, "--values", VALUES, "--steps", CALLS,
                                  "--warm-up", 2, "--exchange", *(f"{m}@{s}" for s in SCHEDULES for m in ("float32", *METHODS))])
    for workers, ratios in RATIOS.items():
        for schedule in SCHEDULES:
            base = f"float32@{schedule}"
            if any(line["what"] == "replay" and line["workers"] == workers and line["method"] == base for line in known):
                continue
            count = experiment.measure(NAME, experiment.cluster(
                workers, replay.NETWORK, program, "replay", "--values", VALUES, "--steps", ROUNDS, "--warm-up", 1, "--ratio", *ratios,
                "--exchange", base, *(f"{m}@{schedule}" for m in METHODS)))
            print(f"evidence: {schedule} with {workers} workers: {count} methods", flush=True)


def of(lines: list[dict], workers: int, schedule: str) -> replay.measurement:
    return replay.measurement(lines, workers, base=f"float32@{schedule}")


def compared(m: replay.measurement, schedule: str, bits: int, c: float) -> list[float]:
    """Steps of exponential levels over those of uniform ones, in the same round."""
    uniform, exponential = (m.steps(f"global-{kind}:{bits}@{schedule}", c)["in_turn"] for kind in ("uniform", "exponential"))
    return [e / u for e, u in zip(exponential, uniform)]


def omega_of_calls(lines: list[dict], schedule: str, method: str) -> float:
    """Bytes of codes over bytes of float32 in the same time, of whole calls in shared memory."""
    at = {line["method"]: line for line in lines if line["what"] == "timing"}
    base, mine = at[f"float32@{schedule}"], at[f"{method}@{schedule}"]
    return statistics.median(b / m for b, m in zip(base["exchange"], mine["exchange"])) * mine["bytes_a_step"] / base["bytes_a_step"]


def omega_of_kernels(lines: list[dict]) -> dict[int, tuple[float, ...]]:
    """By number of values, of sums and of the exponential reduce: medians, because the program fits the time of adding and is sometimes far off."""
    of: dict = {}
    for line in lines:
        if line["what"] == "omega":
            of.setdefault(line["values"], []).append((line["sums"], line["exponential"]))
    return {values: tuple(map(statistics.median, zip(*found))) for values, found in of.items()}


def rendered(lines: list[dict]) -> str:
    experiment.one_source(NAME, lines)
    rows, calls = [], []
    for workers, ratios in RATIOS.items():
        for schedule in SCHEDULES:
            m = of(lines, workers, schedule)
            for method in METHODS:
                name = f"{method}@{schedule}"
                rows.append([f"{workers}, {schedule}, `{method}`", f"{m.ratio(name):.2f}", f"{m.kernels(name):.2f}",
                             *(replay.both(m, name, c) if c in ratios else "" for c in RATIOS[4])])
    for method in METHODS:
        calls.append([f"`{method}`", *(f"{omega_of_calls(lines, schedule, method):.3f}" for schedule in SCHEDULES)])
    kernels = [[f"{values:,}", f"{sums:.2f}", f"{exponential:.2f}"] for values, (sums, exponential) in omega_of_kernels(lines).items()]
    load = max(line["run"]["load"] for line in lines)
    return (experiment.table(["workers, schedule, method", "r", "kernels / exchange", *(f"c = {c:g}" for c in RATIOS[4])], rows) +
            f"\nTimes as fast as float32 over the same schedule, in turn / at once. {experiment.NETWORKS[replay.NETWORK]}, {VALUES} values, "
            f"{ROUNDS} rounds, medians. {experiment.origin(lines)}; load before the runs at most {load:.2f}.\n\n"
            f"Omega of kernels, int8, one core, medians of {FITS} runs; that of the paper's exponential reduce is {PAPER_OMEGA}:\n\n" +
            experiment.table(["values", "sums", "exponential reduce"], kernels) +
            f"\nOmega of whole calls, encoding and decoding included, 4 workers in shared memory, {VALUES} values:\n\n" +
            experiment.table(["method", *SCHEDULES], calls))


def claims(lines: list[dict]) -> list[experiment.Claim]:
    def range_of(bits: int) -> str:
        medians = [statistics.median(compared(of(lines, n, s), s, bits, c)) for n, ratios in RATIOS.items() for s in SCHEDULES for c in ratios]
        return f"{min(medians):.2f} to {max(medians):.2f}"
    r = of(lines, 4, "tree").ratio("global-uniform:8@tree")  # the paper's schedule
    omega = [exponential for _, exponential in omega_of_kernels(lines).values()]
    calls = {line["method"]: line["exchange"] for line in lines if line["what"] == "timing"}
    slower = [statistics.median(e / u for e, u in zip(calls[f"global-exponential:8@{s}"], calls[f"global-uniform:8@{s}"])) for s in SCHEDULES]
    rows = [experiment.Claim("Global-QSGD", f"figure 1, 8 bits, {where}: times as fast", f"{published:g}", f"up to {r:.2f}", experiment.OPEN,
                             f"possible with c of {(published - 1) / (1 - published / r):.2g} or more where kernels cost nothing; the paper does not state c")
            for where, published in PUBLISHED.items()]
    return [*rows, experiment.Claim(
        "Global-QSGD", "section 7: exponential levels are slightly slower than uniform ones", "yes, with an omega of " + PAPER_OMEGA,
        f"steps {range_of(8)} times as long with 8 bits, {range_of(4)} with 4; calls in shared memory {min(slower):.2f} to {max(slower):.2f}",
        experiment.IN_PART, f"on slow links no difference: our exponential reduce has an omega of {min(omega):.2f} to {max(omega):.2f}")]


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
