#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DDPHook with the model on a GPU: the same bits as on the CPU, and the time of a step. Two processes share one GPU, over gloo.

usage: ddp_gpu.py OUT.json [VALUES]       needs torch and the wheel of globalq (pip wheel . here; carry it, install with --target)

The gradient of sum(w * c) is c, exactly, on every device, so the averages must have equal bits.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Weighted(torch.nn.Module):
    def __init__(self, rank, device, layers, width):
        super().__init__()
        self.w = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(width, 1024, device=device)) for _ in range(layers))
        made = torch.Generator().manual_seed(rank)
        self.c = [torch.randn(width, 1024, generator=made).to(device) for _ in range(layers)]

    def forward(self):
        return sum((w * c).sum() for w, c in zip(self.w, self.c))


def average(rank, device, operator, width, steps):
    import globalq.torch
    model = Weighted(rank, device, 4, width)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25)
    if operator:
        ddp.register_comm_hook(None, globalq.torch.DDPHook(operator, ddp, seed=3))
    times = []
    for _ in range(steps):
        ddp.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        ddp().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return [w.grad.cpu().clone() for w in model.w], sorted(times[2:])[len(times[2:]) // 2]


def work(rank, out, values):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    width, result = max(1, values // 4096), {"values": values, "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    for operator in ("", "float32", "cgx:4", "qsgd:8"):
        on_gpu, seconds = average(rank, "cuda", operator, width, 6)
        entry = {"ms_a_step_cuda": seconds * 1e3}
        if operator:
            on_cpu, seconds = average(rank, "cpu", operator, width, 6)
            entry.update(ms_a_step_cpu=seconds * 1e3, same_bits=all(torch.equal(a, b) for a, b in zip(on_gpu, on_cpu)))
        result[operator or "gloo"] = entry
        if rank == 0:
            print(operator or "gloo", entry, flush=True)
            with open(out, "w") as f:
                json.dump(result, f, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 24), nprocs=2)
