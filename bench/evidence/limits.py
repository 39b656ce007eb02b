#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What fewer bytes gain, whatever the method: steps that send the first values only (CGX's figure 3.1, QSDP's figure C.1 and table C.2), and all precisions of QSDP.

usage: limits.py [--program PROGRAM] [--quick] [--check]

Computing is a sleep, as in replay.py. Measuring needs scripts/cluster, that is, root.
"""

import statistics
import sys

import experiment
import replay

NAME, NETWORK, ROUNDS = "limits", replay.NETWORK, 4
WORKERS, VALUES, RATIOS, GAMMAS = 8, "4Mi", (0.70, 0.76, 1.95), (2, 4, 8, 16, 32, 64, 128)  # c of CGX's tables 3.6 and 3.7
IDEAL = {0.70: 92, 0.76: 95, 1.95: 88}  # table 3.7: percent of linear scaling where almost nothing is sent
SHARED_VALUES, SHARES, SHARE_RATIOS = 4 << 20, (1, 2, 4, 8), (1.18, 3.72)
BITS, GRID_RATIO = (8, 6, 5, 4, 3, 2), 3.72
C2 = {1: {1: 23.23, 2: 21.36, 4: 20.62, 8: 20.2}, 2: {1: 19.27, 2: 17.17, 4: 16.26, 8: 15.95},  # seconds with shares of weights and gradients
      4: {1: 17.50, 2: 15.35, 4: 14.6, 8: 14.08}, 8: {1: 16.62, 2: 14.52, 4: 13.66, 8: 13.21}}
QUICK = {"WORKERS": 4, "VALUES": "1Mi", "ROUNDS": 2, "RATIOS": (0.70,), "GAMMAS": (4, 32), "SHARED_VALUES": 1 << 20, "SHARES": (1, 8), "BITS": (8, 4),
         "SHARE_RATIOS": (1.18,)}


def share(weights: int, gradients: int) -> str:
    return f"W32/{weights}G32/{gradients}"


def grid() -> list[str]:
    return [f"W{w}G{g}" for w in BITS for g in BITS]


def measured(program, options) -> None:
    del options
    steps = [program.parents[1] / "examples/language_model/step_times", "--json", "--values", SHARED_VALUES, "--rounds", ROUNDS]
    parts = {
        "replicas": (WORKERS, [program, "replay", "--values", VALUES, "--steps", ROUNDS, "--warm-up", 1, "--ratio", *RATIOS, "--exchange", replay.BASE,
                               *(f"send-first:{gamma}" for gamma in GAMMAS)]),
        "shares": (4, [*steps, "--ratio", *SHARE_RATIOS, "--baseline", share(1, 1), "--precision",
                       *(share(w, g) for w in SHARES for g in SHARES if w * g > 1)]),
        "grid": (4, [*steps, "--ratio", GRID_RATIO, "--precision", *grid()]),
    }
    have = {line["part"] for line in experiment.read(NAME)}
    for part, (workers, command) in parts.items():
        if part not in have:
            experiment.measure(NAME, experiment.cluster(workers, NETWORK, *command), facts={"part": part})


class parts:
    def __init__(self, lines: list[dict]):
        experiment.one_source(NAME, lines)
        of = {part: [line for line in lines if line["part"] == part] for part in ("replicas", "shares", "grid")}
        if not all(of.values()):
            raise experiment.Incomplete
        self.replicas = replay.measurement(of["replicas"], WORKERS)
        self.shares = replay.measurement(of["shares"], 4, "sharded steps", share(1, 1))
        self.grid = replay.measurement(of["grid"], 4, "sharded steps", replay.SHARDED_BASE)

    def scaling(self, gamma: int, c: float) -> float:
        """The share of perfect scaling, that is, of steps without communication, in percent."""
        return 100 * statistics.median(self.replicas.speed_ups(f"send-first:{gamma}", c, "in_turn")) / (1 + c)

    def share(self, weights: int, gradients: int, c: float) -> float:
        return statistics.median(self.shares.speed_ups(share(weights, gradients), c, "in_turn"))


def rendered(lines: list[dict]) -> str:
    of = parts(lines)
    first = experiment.table(["gamma", "r", *(f"c = {c:g}" for c in RATIOS)], [["1", "1", *(f"1 ({100 / (1 + c):.0f} %)" for c in RATIOS)]] + [
        [str(gamma), f"{of.replicas.ratio(f'send-first:{gamma}'):.1f}",
         *(f"{statistics.median(of.replicas.speed_ups(f'send-first:{gamma}', c, 'in_turn')):.2f} ({of.scaling(gamma, c):.0f} %)" for c in RATIOS)] for gamma in GAMMAS])

    def times(w: int, g: int) -> str:
        return " / ".join("1" if w == g == 1 else f"{of.share(w, g, c):.2f}" for c in SHARE_RATIOS) + f" ({C2[1][1] / C2[w][g]:.2f})"
    second = experiment.table(["weights / gradients", *map(str, SHARES)], [[str(w), *(times(w, g) for g in SHARES)] for w in SHARES])

    def precision(w: int, g: int) -> str:
        p = f"W{w}G{g}"
        return f"{of.grid.ratio(p):.2f}, {of.grid.kernels(p):.2f}, {statistics.median(of.grid.speed_ups(p, GRID_RATIO, 'in_turn')):.2f}"
    third = experiment.table(["bits", *(f"G{g}" for g in BITS)], [[f"W{w}", *(precision(w, g) for g in BITS)] for w in BITS])
    return (f"Replicas, {WORKERS} workers: of each layer the first 1/gamma is sent. Times as fast as float32, and the share of perfect scaling:\n\n{first}\n"
            f"Shards, 4 workers: of weights (rows) and gradients (columns) the first 1, 1/2, 1/4, 1/8. Times as fast as with all, "
            f"c = {' / '.join(f'{c:g}' for c in SHARE_RATIOS)} (table C.2, 100 Gbit/s):\n\n{second}\n"
            f"Precisions beside `{replay.SHARDED_BASE}`: r, kernels / exchange, times as fast with c = {GRID_RATIO:g}:\n\n{third}\n"
            f"In turn, {experiment.NETWORKS[NETWORK]}, {ROUNDS} rounds, medians. {experiment.origin(lines)}.\n")


def claims(lines: list[dict]) -> list[experiment.Claim]:
    of, (slow, *_), most = parts(lines), SHARE_RATIOS, max(GAMMAS)
    nears = {c: of.scaling(most, c) for c in RATIOS}
    rows = [experiment.Claim("CGX", f"figure 3.1, table 3.7: share of linear scaling as fewer bytes are sent, here {most} times fewer",
                             ", ".join(f"{IDEAL[c]} %" for c in RATIOS), ", ".join(f"{near:.0f} %" for near in nears.values()),
                             experiment.HOLDS if all(near >= IDEAL[c] for c, near in nears.items()) else experiment.IN_PART, c=", ".join(f"{c:g}" for c in RATIOS))]
    both, c2 = of.share(8, 8, slow), C2[1][1] / C2[8][8]
    expected = of.shares.formula(share(8, 8), slow)
    rows.append(experiment.Claim("QSDP", "table C.2: weights and gradients of an eighth of the bytes, 100 Gbit/s", f"{c2:.2f}", f"{both:.2f}",
                                 *experiment.near(both, c2),
                                 c=f"{slow:g}", formula=f"{expected:.2f}"))
    weights, gradients = of.share(8, 1, slow), of.share(1, 8, slow)
    rows.append(experiment.Claim("QSDP", "appendix C.2: an eighth of the weights gains more than an eighth of the gradients",
                                 f"{C2[1][1] / C2[8][1]:.2f}, {C2[1][1] / C2[1][8]:.2f}", f"{weights:.2f}, {gradients:.2f}",
                                 experiment.HOLDS if weights > gradients else experiment.FAILS,
                                 "weights travel five times for each gradient there, twice here", c=f"{slow:g}"))
    return rows


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
