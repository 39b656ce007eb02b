#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Communication and computing in a pass over the data with 2, 4 and 8 workers: the bars of QSGD's figure 2.

usage: breakdown.py [--program PROGRAM] [--quick] [--check]

All workers together compute the same batches, so each computes 1 / workers of them; an exchange over a ring grows as
(workers - 1) / workers. Then c grows as workers - 1, and the one number of the paper for a network, c with 2 or 16 GPUs, gives that of
2, 4 and 8 workers. Measuring needs scripts/cluster, that is, root.
"""

import statistics
import sys

import experiment
import replay

NAME, NETWORK, VALUES, ROUNDS, WORKERS = "breakdown", replay.NETWORK, "4Mi", 4, (2, 4, 8)
CODED = "qsgd:4@sra"
METHODS = ("float32", CODED)
NETS = {"AlexNet": (4.0, 16, 4.0), "LSTM": (2.45, 2, 6.8)}  # Alistarh et al. 2017, section 5: c, GPUs, times less communication
SPEED_UPS = [("table 1: AlexNet, 8 GPUs", "AlexNet", 8, 2.05, ""), ("section 5: LSTM, 2 GPUs", "LSTM", 2, 2.7, "table 1 has 2")]
QUICK = {"WORKERS": (2, 4), "VALUES": "1Mi", "ROUNDS": 2}


def ratio(net: str, workers: int) -> float:
    c, there, _ = NETS[net]
    return round(c * (workers - 1) / (there - 1), 4)


def measured(program, options) -> None:
    del options
    have = {line["workers"] for line in experiment.read(NAME)}
    for workers in WORKERS:
        if workers not in have:
            experiment.measure(NAME, experiment.cluster(
                workers, NETWORK, program, "replay", "--values", VALUES, "--steps", ROUNDS, "--warm-up", 1, "--ratio",
                *(ratio(net, workers) for net in NETS), "--exchange", *METHODS, timeout=3600))


class bars:
    """Seconds of computing and of the rest of a step, of which a pass has the same number with any number of workers."""

    def __init__(self, lines: list[dict]):
        experiment.one_source(NAME, lines)
        if {line["workers"] for line in lines} != set(WORKERS):
            raise experiment.Incomplete
        self.of = {n: replay.measurement(lines, n) for n in WORKERS}

    def bar(self, net: str, workers: int, method: str) -> tuple[float, float]:
        step = self.of[workers].steps(method, ratio(net, workers))
        return step["computing"], statistics.median(step["in_turn"]) - step["computing"]

    def share(self, net: str, workers: int, method: str) -> float:
        computing, sending = self.bar(net, workers, method)
        return 100 * sending / (computing + sending)


def rendered(lines: list[dict]) -> str:
    of, rows = bars(lines), []
    for net in NETS:
        for workers in WORKERS:
            (computing, sending), (_, compressed) = (of.bar(net, workers, method) for method in METHODS)
            rows.append([f"{net}, {workers} workers", f"{ratio(net, workers):.2f}", f"{computing:.2f}", f"{sending:.2f}", f"{compressed:.2f}",
                         *(f"{of.share(net, workers, method):.0f}" for method in METHODS),
                         replay.shown(of.of[workers].speed_ups(CODED, ratio(net, workers), "in_turn"))])
    head = ["network", "c", "computing, s", "float32, s", "qsgd:4, s", "float32, %", "qsgd:4, %", "times as fast"]
    return "![A pass over the data: computing and communication](images/evidence-breakdown.svg)\n\n" + experiment.table(head, rows) + (
        f"\nSeconds of computing and of communication in a step, and the share of communication. {VALUES} values, {experiment.NETWORKS[NETWORK]}, "
        f"{ROUNDS} rounds, medians. {experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    of, rows = bars(lines), []
    for what, net, there, published, note in SPEED_UPS:
        if there in WORKERS:
            found, c = of.of[there].speed_ups(CODED, ratio(net, there), "in_turn"), ratio(net, there)
            verdict, why = experiment.near(statistics.median(found), published)
            rows.append(experiment.Claim("QSGD", f"{what}, `qsgd:4`", f"{published:.2f}", f"{replay.shown(found)} ({there} workers)", verdict,
                                         "; ".join(filter(None, (why, note))), c=f"{c:.3g}", kernels=replay.digits(of.of[there].kernels(CODED)),
                                         formula=f"{of.of[there].formula(CODED, c):.2f}"))
    for net, (_, there, published) in NETS.items():
        workers = min(there, max(WORKERS))
        m = of.of[workers]
        found = m.ratio(CODED)
        rows.append(experiment.Claim("QSGD", f"section 5: {net}, {there} GPUs, 4 bits: times less communication", f"{published:g}",
                                     f"{found:.2f}" + (f" ({workers} workers)" if workers != there else ""),
                                     *experiment.near(found, published),
                                     kernels=replay.digits(m.kernels(CODED))))
    return rows


def chart_of(lines: list[dict]) -> tuple[str, str]:
    of, data, plots = bars(lines), [], []
    for net in NETS:
        unit = sum(of.bar(net, WORKERS[0], "float32"))
        rows, at, tics = [], 0.0, []
        for workers in WORKERS:
            for method in METHODS:
                computing, sending = of.bar(net, workers, method)
                rows.append(f"{at:g} {sending / unit:.4g} {(computing + sending) / unit:.4g} {0 if method == 'float32' else 1}")
                at += 1
            tics.append(f"'{workers} workers' {at - 1.5:g}")
            at += 0.7
        data.append(f"${net} << END\n" + "\n".join(rows) + "\nEND")
        plots += [f"set title '{net}'", f"set xtics ({', '.join(tics)}) scale 0",
                  f"plot ${net} using 1:3 with boxes fillcolor '#dddddd' title 'computing', "
                  f"'' using 1:($4 == 0 ? $2 : NaN) with boxes fillcolor '#888888' title 'communication, float32', "
                  f"'' using 1:($4 == 1 ? $2 : NaN) with boxes fillcolor '#e69f00' title 'communication, qsgd:4'", "unset key"]
    return "evidence-breakdown.svg", "\n".join([
        *data, "set terminal svg size 900,360 font 'sans-serif,11' background '#ffffff' name 'breakdown'", "set encoding utf8",
        "set border 3 linecolor '#444444'", "set tics nomirror textcolor '#444444'", "set grid ytics linecolor '#dddddd' linetype 1",
        "set style fill solid noborder", "set boxwidth 0.85", "set yrange [0:1.65]", "set key right top reverse Left samplen 1.5",
        "set multiplot layout 1,2 margins 0.06,0.99,0.1,0.9 spacing 0.06", "set ylabel 'a pass over the data, float32 with 2 workers: 1'", plots[0], plots[1], plots[2],
        plots[3], "unset ylabel", *plots[4:7], "unset multiplot", ""])


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
