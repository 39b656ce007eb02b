# SPDX-License-Identifier: Apache-2.0
"""The communication hooks to time, one line each in the table HOOKS."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import globalq.torch


def none(ddp):
    """No hook: DistributedDataParallel's own allreduce."""


def torch_allreduce(ddp):
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)


def torch_fp16(ddp):
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)


def torch_power_sgd(ddp):
    # Defaults of torch (warm start and error feedback are on), except that it starts at the earliest possible step.
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    last = []

    # The hook starts allreduces in callbacks, which gloo runs in two threads. With two buckets in progress, processes would start
    # them in different orders, and gloo ends the processes. Therefore each bucket waits for the previous one.
    def one_by_one(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if last:
            last.pop().wait()
        last.append(powerSGD_hook.powerSGD_hook(state, bucket))
        return last[0]

    ddp.register_comm_hook(state, one_by_one)


def by_globalq(operator):
    def register(ddp):
        hook = globalq.torch.DDPHook(operator, ddp)
        ddp.register_comm_hook(None, hook)
        return hook

    return register


HOOKS = {
    "none": none,
    "torch allreduce": torch_allreduce,
    "torch fp16": torch_fp16,
    "torch powerSGD, rank 4": torch_power_sgd,
    "globalq float32": by_globalq("float32"),
    "globalq global-uniform:8": by_globalq("global-uniform:8"),
    "globalq global-exponential:8": by_globalq("global-exponential:8"),
    "globalq cgx:4": by_globalq("cgx:4"),
    "globalq top-k:0.01": by_globalq("top-k:0.01"),
    "globalq power-sgd:4": by_globalq("power-sgd:4"),
}
