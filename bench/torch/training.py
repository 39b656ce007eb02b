# SPDX-License-Identifier: Apache-2.0
"""A training with DistributedDataParallel whose steps are timed, and the processes that run it."""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def perceptron(widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Training:
    """A perceptron with its own hook. All processes must construct it together."""

    def __init__(self, hook, widths, batch):
        torch.manual_seed(1)
        self._ddp = nn.parallel.DistributedDataParallel(perceptron(widths))
        self.hook = hook(self._ddp)
        self._optimizer = torch.optim.SGD(self._ddp.parameters(), lr=1e-3, momentum=0.9)
        draw = torch.Generator().manual_seed(dist.get_rank())
        # several batches, because the gradients of a single memorized batch would vanish
        self._batches = [(torch.randn(batch, widths[0], generator=draw), torch.randint(widths[-1], (batch,), generator=draw))
                         for _ in range(8)]
        self._steps = 0

    def step(self):
        x, y = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self._ddp(x), y).backward()
        self._optimizer.step()

    def values(self):
        return sum(p.numel() for p in self._ddp.parameters())

    def same_everywhere(self):
        """Whether all processes have the same, finite parameters."""
        parameters = [p.detach() for p in self._ddp.parameters()]
        bits = hashlib.sha256(b"".join(p.numpy().tobytes() for p in parameters)).hexdigest()
        return all(p.isfinite().all() for p in parameters) and len(set(gathered(bits))) == 1

    def close(self):
        if self.hook is not None:
            self.hook.close()


def gathered(value):
    """The values of all processes, by rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def seconds_of(training, steps):
    """Elapsed time and processor time (of all threads) of this process for a number of steps after a barrier."""
    dist.barrier()
    start, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        training.step()
    return time.perf_counter() - start, time.process_time() - used


def shuffled(items, seed):
    """The items in an order that depends on the seed and is the same on all processes."""
    items = list(items)
    random.Random(seed).shuffle(items)
    return items


def join(rank, size, init):
    # OMP_NUM_THREADS threads, because processes share the cores of the machine
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=size)


def run_here(processes, command, timeout, **environment):
    """Runs a command in processes on this machine with RANK, WORLD_SIZE and INIT set. Returns the exit status of the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, WORLD_SIZE=str(processes), INIT=f"file://{folder}/init", **environment)
        env.setdefault("OMP_NUM_THREADS", "1")
        crew = [subprocess.Popen(command, env=dict(env, RANK=str(r))) for r in range(processes)]
        try:
            end = time.monotonic() + timeout
            return next((code for code in [p.wait(max(0, end - time.monotonic())) for p in crew] if code != 0), 0)
        except subprocess.TimeoutExpired:
            print(f"{Path(sys.argv[0]).name}: ended after {timeout} s", file=sys.stderr)
            return 124
        finally:
            for p in crew:
                if p.poll() is None:
                    p.kill()


def leave(status):
    """Ends the process without torch's exit handlers, which abort one in 30 processes with DDP of torch 1.13."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
