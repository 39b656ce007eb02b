#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a step of FSDP2 with and without overlapping gathers, on the emulated network of scripts/cluster.

    scripts/cluster --workers 2 --rate 200mbit -- python3 bench/torch/overlap.py

Layers compute by sleeping, so that times depend on the network and on the order of collectives, not on the cores.
"""

import argparse
import os
import statistics
import time

# without this gloo would resolve the host name, which all namespaces share
os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import globalq.torch

FLOAT32 = {"weights": "float32", "gradients": "float32", "excluded": "float32"}
# arguments of shard(), and whether gathers wait at once
KINDS = {"FSDP2's collectives": (None, False)}
for title, settings in (("float32", FLOAT32), ("W8G8", {})):
    KINDS[f"{title}, no overlap"] = {**settings, "prefetch": False}, True
    KINDS[f"{title}, prefetch in backward (FSDP2's own)"] = {**settings, "prefetch": False}, False
    KINDS[f"{title}, and in forward"] = settings, False


class Computing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, seconds):
        time.sleep(seconds)
        ctx.save_for_backward(weight)
        ctx.seconds = 2 * seconds
        return x + weight[0, 0]

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, torch.ones_like(ctx.saved_tensors[0]), None


class Layer(nn.Module):
    def __init__(self, width, seconds):
        super().__init__()
        self.weight, self.seconds = nn.Parameter(torch.randn(width, width)), seconds

    def forward(self, x):
        return Computing.apply(x, self.weight, self.seconds)


class Model(nn.Module):
    def __init__(self, layers, width, seconds):
        super().__init__()
        self.layers, self.bias = nn.ModuleList(Layer(width, seconds) for _ in range(layers)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        x = x + self.bias
        for layer in self.layers:
            x = layer(x)
        return x.sum()


class Arrived(dist.Work):
    def wait(self, timeout=None):
        return True


def make(asked, settings, waits):
    model = Model(asked.layers, asked.width, asked.ms / 1000)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    if settings is not None:
        sharded = globalq.torch.shard(model, **settings)
        for unit in sharded._units.values() if waits else ():
            def gather(*arguments, start=unit.gather):
                start(*arguments).wait()
                return Arrived()

            unit.gather = gather
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024, help="a layer has width^2 values (1024)")
    parser.add_argument("--ms", type=float, default=20, help="computing of a layer in the forward pass; twice that in the backward pass (20)")
    parser.add_argument("--steps", type=int, default=7)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", 0)))
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1)))
    dist.init_process_group("gloo", init_method=os.environ.get("INIT", "tcp://10.77.0.1:29555"), rank=rank, world_size=size)
    models, times = {title: make(asked, *kind) for title, kind in KINDS.items()}, {title: [] for title in KINDS}
    for step in range(-2, asked.steps):
        for title, model in models.items():
            dist.barrier()
            start = time.perf_counter()
            result = model(torch.zeros(8))
            middle = time.perf_counter()
            result.backward()
            if step >= 0:
                times[title].append((middle - start, time.perf_counter() - middle))
    everyone = [None] * size
    dist.all_gather_object(everyone, times)
    if rank == 0:
        ms = 1000 * asked.layers * asked.ms / 1000
        print(f"{size} processes, {asked.layers} layers of {asked.width**2:,} values; computing {ms:.0f} + {2 * ms:.0f} ms; load "
              f"{os.getloadavg()[0]:.1f}; medians of {asked.steps} steps\n\n| gathers | forward, ms | backward, ms | step, ms | quartiles |\n"
              "| --- | --: | --: | --: | --: |")
        for title in KINDS:
            forward, backward = ([max(one[title][k][part] for one in everyone) for k in range(asked.steps)] for part in (0, 1))
            low, median, high = statistics.quantiles([1000 * (f + b) for f, b in zip(forward, backward)])
            print(f"| {title} | {1000 * statistics.median(forward):.0f} | {1000 * statistics.median(backward):.0f} | {median:.0f} | "
                  f"{low:.0f} to {high:.0f} |")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
