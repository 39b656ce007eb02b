# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a training, unless a launcher such as torchrun has."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _work(rank, workers, store, body, arguments):
    torch.set_num_threads(1)  # processes on one machine share its cores
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=workers)
    body(*arguments)
    dist.barrier()
    dist.destroy_process_group()


def run(workers, body, *arguments):
    """Calls body(*arguments) in as many processes, which form a gloo group; raises what one of them raised."""
    if "RANK" in os.environ:  # of a launcher, which says how many there are
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        body(*arguments)
        dist.barrier()
        dist.destroy_process_group()
        return
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_work, (workers, os.path.join(folder, "store"), body, arguments), nprocs=workers)
