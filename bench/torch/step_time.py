#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the time of a DDP training step with each communication hook of hooks.py, on emulated networks.

For each number of processes and each rate, scripts/cluster starts each process in its own network namespace. Every process trains one
model for each hook; the hooks take steps in turn, in another order in each round, and a step begins at a barrier. For all hooks
gradients travel over TCP: by gloo's collectives, or for globalq by messages that gloo moves. The table shows medians over rounds of
the slowest process's time, and the ratio to the time without a hook; ~ marks medians whose quartiles differ by more than a fifth.
Bytes are those that the busiest process's network device sends in a step, headers included.

Processes share the cores of this machine, so with more processes computing takes longer. Needs root, iproute2 and Open MPI for
scripts/cluster, except with --here. Exits with 1 if a measurement fails or processes end with different parameters.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).parents[2]
WIDTHS = (768,) * 9 + (10,)  # 4,732,426 values
PORT = 29531


def sent_by(device):
    return int(Path(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())


def probed(rank):
    """Megabits per second of gloo from rank 0 to rank 1. Sends blocks for half a second."""
    import torch
    import torch.distributed as dist

    block, count, seconds = torch.zeros(4 << 20, dtype=torch.uint8), 0, 0.0
    again = torch.ones(1)
    while again.item():
        dist.barrier()
        start = time.perf_counter()
        if rank == 0:
            dist.send(block, 1)
        elif rank == 1:
            dist.recv(block, 0)
            seconds += time.perf_counter() - start
            count += 1
            again.fill_(seconds < 0.5)
        dist.broadcast(again, 1)
    rates = torch.tensor([8e-6 * count * block.numel() / seconds if rank == 1 else 0.0])
    dist.broadcast(rates, 1)
    return rates.item()


def worker(asked):
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", 0)))
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1)))
    device = "lo" if asked.here else "eth0"
    # without this gloo would resolve the host name, which all namespaces share
    os.environ.update(GLOO_SOCKET_IFNAME=device, GLOBALQ_SHARED_MEMORY="off")
    import training
    from hooks import HOOKS

    import globalq

    training.join(rank, size, os.environ.get("INIT", f"tcp://10.77.0.1:{PORT}"))
    rate = probed(rank)
    trainings, skipped = {}, {}
    for name in asked.hooks:
        try:
            trainings[name] = training.Training(HOOKS[name], WIDTHS, asked.batch)
        except globalq.ConfigurationError as problem:  # on all processes
            skipped[name] = str(problem)
    for t in trainings.values():
        training.seconds_of(t, asked.warm_up)
    times, sent = {name: [] for name in trainings}, {name: [] for name in trainings}
    for k in range(asked.steps):
        for name in training.shuffled(trainings, k):
            # includes some hundred bytes of the barrier
            before = sent_by(device)
            times[name].append(training.seconds_of(trainings[name], 1)[0])
            sent[name].append(sent_by(device) - before)
    times, sent = training.gathered(times), training.gathered(sent)
    same = {name: t.same_everywhere() for name, t in trainings.items()}
    if rank == 0:
        found = {"workers": size, "probed_mbit": rate, "skipped": skipped, "hooks": {}}
        for name, t in trainings.items():
            slowest = [max(column) for column in zip(*(row[name] for row in times))]
            lo = size if asked.here else 1  # all processes send through the device lo
            busiest = max(statistics.median(row[name]) for row in sent) / lo
            found["hooks"][name] = {"seconds": slowest, "bytes": busiest, "same": same[name]}
            found["values"] = t.values()
        Path(asked.result).write_text(json.dumps(found))
    for t in trainings.values():
        t.close()
    training.leave(0)


def measure(asked, workers, rate, folder):
    """Runs all hooks once. Returns the results of rank 0, or None if the run failed."""
    from training import run_here

    result = folder / f"{workers}-{rate}.json"
    hooks = [word for name in asked.hooks for word in ("--hooks", name)]
    command = [sys.executable, str(Path(__file__).resolve()), "--result", str(result), "--steps", str(asked.steps), "--warm-up",
               str(asked.warm_up), "--batch", str(asked.batch), *hooks, *(["--here"] if asked.here else [])]
    if asked.here:
        code = run_here(workers, command, asked.timeout)
    else:
        cluster = [str(ROOT / "scripts" / "cluster"), "--workers", str(workers), "--rate", f"{round(1000 * rate)}mbit", "--timeout",
                   str(asked.timeout)]
        code = subprocess.run([*cluster, "--", *command]).returncode
    if code != 0 or not result.exists():
        print(f"step_time: {workers} processes, {rate}: FAILED with status {code}", file=sys.stderr)
        return None
    return json.loads(result.read_text())


def cell(entry, base):
    seconds = entry["seconds"]
    median = statistics.median(seconds)
    low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else (median,) * 3
    mark = "~" if high > 1.2 * low else ""
    ratio = f" ({median / statistics.median(base['seconds']):.2f})" if base else ""
    return f"{mark}{1e3 * median:.1f}{ratio}" + ("" if entry["same"] else " DIFFERS")


def table(asked, workers, columns):
    """columns: {rate: found}"""
    some = next(iter(columns.values()))
    print(f"\nStep time in ms, {workers} processes (ratio to no hook); {some['values']:,} values, batch {asked.batch}, medians of "
          f"{asked.steps} steps, {os.cpu_count()} cores:\n")
    print("| hook | MB sent a step | " + " | ".join("this machine" if r is None else f"{r:g} Gbit/s" for r in columns) + " |")
    print("| --- | ---: |" + " ---: |" * len(columns))
    for name in asked.hooks:
        entries = [found["hooks"].get(name) for found in columns.values()]
        if not any(entries):
            continue
        sent = max(e["bytes"] for e in entries if e) / 1e6
        print(f"| {name} | {sent:.2f} | "
              + " | ".join(cell(e, found["hooks"].get("none")) if e else "" for e, found in zip(entries, columns.values())) + " |")
    print("| a link as probed, Gbit/s | | " + " | ".join(f"{found['probed_mbit'] / 1e3:.2f}" for found in columns.values()) + " |")
    for name, why in some["skipped"].items():
        print(f"\nNot measured: {name}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="processes (2 4)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.2, 1, 10], help="rates of the links, in Gbit/s (0.2 1 10)")
    parser.add_argument("--steps", type=int, default=21, help="timed rounds (21)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the timed ones; torch's PowerSGD compresses from the third on (5)")
    parser.add_argument("--batch", type=int, default=16, help="samples of each process in a step (16)")
    parser.add_argument("--hooks", action="append", metavar="NAME", help="a hook of hooks.py; repeat for several (all)")
    parser.add_argument("--here", action="store_true", help="use the loopback device of this machine instead of namespaces")
    parser.add_argument("--timeout", type=int, default=900, help="time limit of a run of all hooks, in seconds (900)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times to this file")
    parser.add_argument("--result", help=argparse.SUPPRESS)  # set only for processes that scripts/cluster starts
    asked = parser.parse_args()
    if asked.result:
        worker(asked)

    from hooks import HOOKS

    for name in asked.hooks or ():
        if name not in HOOKS:
            parser.error(f'unknown hook "{name}"; use one of: {", ".join(HOOKS)}')
    asked.hooks = asked.hooks or list(HOOKS)
    every, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for workers in asked.workers:
            columns = {}
            for rate in [None] if asked.here else asked.rates:
                start = time.monotonic()
                found = measure(asked, workers, rate, Path(folder))
                if found is None:
                    failed = True
                    continue
                print(f"step_time: {workers} processes, {'here' if rate is None else f'{rate:g} Gbit/s'}: {time.monotonic() - start:.0f} s",
                      file=sys.stderr)
                columns[rate] = found
                every.append({"rate_gbit": rate, **found})
                failed |= not all(entry["same"] for entry in found["hooks"].values())
            if columns:
                table(asked, workers, columns)
    if asked.json:
        asked.json.write_text(json.dumps(every, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
