#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures all_reduce of torch's back ends gloo and globalq over long links: one connection, and several at once.

For each delay and loss, scripts/cluster starts each process in its own network namespace (as root). The back ends take calls in turn; the
table shows medians of the slowest process's seconds. Exits with 1 if a measurement fails.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]


def worker(asked):
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.update(GLOO_SOCKET_IFNAME="eth0", GLOBALQ_SHARED_MEMORY="off")  # namespaces are of one machine
    import torch
    import torch.distributed as dist

    import globalq.torch  # noqa: F401  the back end

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=asked.init, rank=rank, world_size=size, timeout=timedelta(seconds=300))
    groups = {"gloo": None}
    for operator in asked.operators:
        for count in asked.connections:
            options = {"operator": operator, "connections": count}
            groups[f"{operator}, {count}"] = dist.new_group(backend="globalq", pg_options=options)
    vector, seconds = torch.randn(asked.values), {name: [] for name in groups}
    for k in range(asked.rounds + 1):
        for name, group in groups.items():
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(vector, group=group)
            slowest = torch.tensor([time.perf_counter() - began])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            vector.div_(size)
            if k > 0:  # the first opens connections
                seconds[name].append(slowest.item())
    if rank == 0:
        print(json.dumps({name: statistics.median(found) for name, found in seconds.items()}), flush=True)
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--links", nargs="+", default=["0ms", "20ms", "100ms", "20ms,1%"], help="delay from one host to another, and loss")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--operators", nargs="+", default=["cgx:4"])
    parser.add_argument("--values", type=int, default=4 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--init", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.init:
        return worker(asked)
    found = {}
    for link in asked.links:
        delay, _, loss = link.partition(",")
        with tempfile.TemporaryDirectory() as folder:
            command = [ROOT / "scripts/cluster", "--workers", asked.workers, "--rate", asked.rate, "--timeout", 900,
                       *(["--delay", delay] if float(delay.rstrip("mus")) else []), *(["--loss", loss] if loss else []), "--",
                       sys.executable, __file__, "--init", f"file://{folder}/init", "--values", asked.values, "--rounds", asked.rounds,
                       "--connections", *asked.connections, "--operators", *asked.operators]
            done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or not lines:
            print(f"the measurement with {link} failed with {done.returncode}", file=sys.stderr)
            return 1
        found[link] = json.loads(lines[0])
    print(f"{asked.workers} workers, {asked.rate}, {asked.values:,} values, seconds\n")
    print("| back end, connections | " + " | ".join(found) + " |\n| --- |" + " --: |" * len(found))
    for name in next(iter(found.values())):
        print(f"| {name} | " + " | ".join(f"{times[name]:.2f}" for times in found.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
