#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the time of a DDP training step with globalq's float32 hook and without a hook.

Processes on this machine train two models in turn: one without a hook, whose gradients gloo averages, and one with
globalq.torch.DDPHook("float32") over shared memory. A pair is one block of steps of each; the order within a pair alternates. Prints
the median over pairs of the relative difference, with an interval that assumes nothing about its distribution. Exits with 1 if the
median is above the limit, and with 2 if processes end with different parameters.
"""

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

WIDTHS = (256, 512, 512, 448, 10)  # 628,554 values


def interval(samples, coverage=0.95):
    """(low, high, coverage) of the median, from order statistics, as in the sign test; the coverage is at least the requested one.
    None if there are too few samples."""
    n, below, k = len(samples), 0.0, 0  # below: probability of fewer than k + 1 of n fair coins
    while below + math.comb(n, k) / 2**n <= (1 - coverage) / 2:
        below += math.comb(n, k) / 2**n
        k += 1
    return None if k == 0 else (sorted(samples)[k - 1], sorted(samples)[n - k], 1 - 2 * below)


def worker(asked):
    import training
    from hooks import HOOKS

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    training.join(rank, size, os.environ["INIT"])
    base = training.Training(HOOKS["none"], WIDTHS, asked.batch)
    own = training.Training(HOOKS[asked.hook], WIDTHS, asked.batch)
    for t in (base, own):
        training.seconds_of(t, asked.steps)
    mine = []
    for k in range(asked.pairs):
        found = {t: training.seconds_of(t, asked.steps) for t in ((base, own), (own, base))[k % 2]}
        mine.append((*found[base], *found[own]))
    # the slowest process, because all others wait for it
    pairs = [[max(column) / asked.steps for column in zip(*rows)] for rows in zip(*training.gathered(mine))]
    same = base.same_everywhere() and own.same_everywhere()
    if rank == 0:
        report(asked, size, base.values(), pairs)
        if not same:
            print("parameters DIFFER between processes")
    own.close()
    median = statistics.median(own / base - 1 for base, _, own, _ in pairs)
    training.leave(2 if not same else 1 if 100 * median > asked.limit else 0)


def report(asked, size, values, pairs):
    relative = [100 * (own / base - 1) for base, _, own, _ in pairs]
    median, found = statistics.median(relative), interval(relative)
    base, base_used, own, own_used = (1e3 * statistics.median(column) for column in zip(*pairs))
    bounds = "too few pairs" if found is None else f"{found[0]:+.1f} to {found[1]:+.1f} ({100 * found[2]:.0f} %)"
    print("| hook | processes | values | batch | pairs of blocks | step without hook, ms (of a core) | with hook, ms (of a core) "
          "| median difference, % | interval, % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    print(f"| {asked.hook} | {size} | {values:,} | {asked.batch} | {asked.pairs} of {asked.steps} | {base:.2f} ({base_used:.2f}) "
          f"| {own:.2f} ({own_used:.2f}) | {median:+.1f} | {bounds} |")
    print(f"\nat most {asked.limit:g} %: {'pass' if median <= asked.limit else 'FAIL'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of blocks (20)")
    parser.add_argument("--steps", type=int, default=50, help="steps of a block (50)")
    parser.add_argument("--batch", type=int, default=64, help="samples of each process in a step (64)")
    parser.add_argument("--limit", type=float, default=3, help="largest allowed median, in percent of a step (3)")
    parser.add_argument("--hook", default="globalq float32", help='a hook of hooks.py ("globalq float32")')
    asked = parser.parse_args()
    if "RANK" in os.environ:
        worker(asked)
    from training import run_here

    sys.exit(run_here(asked.workers, [sys.executable, *sys.argv], 60 + asked.pairs * asked.steps))


if __name__ == "__main__":
    main()
