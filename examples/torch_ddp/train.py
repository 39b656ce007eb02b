#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on digits with DistributedDataParallel over gloo, with the gradients averaged by globalq."""

import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn

import globalq.torch

DATA = pathlib.Path(__file__).parents[1] / "digits" / "digits.csv"  # 1,797 rows of 8 x 8 pixels and their digit


def train(rank, given, store):
    torch.set_num_threads(1)  # the processes share the cores of one machine
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=given.workers)
    torch.manual_seed(given.seed)
    rows = torch.tensor([[float(value) for value in line.split(",")] for line in DATA.read_text().split()])
    pictures, digits = rows[:, :64].reshape(-1, 1, 8, 8) / 8 - 1, rows[:, 64].long()
    unseen, known = torch.randperm(len(digits)).split([599, 1198])
    batches = known[torch.randint(len(known), (given.steps, given.workers, 16))]
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
                        nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    model = nn.parallel.DistributedDataParallel(net)
    if given.operator != "none":
        hook = globalq.torch.DDPHook(given.operator, model, seed=given.seed)
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches[:, rank]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures[batch]), digits[batch])
        loss.backward()
        optimizer.step()

    with torch.no_grad():
        logits, answers = net(pictures[unseen]), digits[unseen]
    if rank == 0:
        print(f"{given.operator}: accuracy {100 * (logits.argmax(1) == answers).float().mean():.1f} %, "
              f"loss {nn.functional.cross_entropy(logits, answers):.4f}, "
              f"{'bytes are not counted' if given.operator == 'none' else f'{hook.bytes_sent // given.steps} bytes a step'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", default="cgx:4", help='one of globalq.operators(), or "none" for no hook')
    parser.add_argument("--steps", type=int, default=150, help="of 16 pictures a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4, help="processes; a launcher's number comes first")
    given = parser.parse_args()
    if "RANK" in os.environ:  # started by a launcher
        given.workers = int(os.environ["WORLD_SIZE"])
        train(int(os.environ["RANK"]), given, "env://")
    else:
        with tempfile.TemporaryDirectory() as folder:
            # "fork", because a child of "spawn" with torch 1.13 aborts now and then when its Python ends
            torch.multiprocessing.start_processes(train, (given, f"file://{folder}/store"), given.workers, start_method="fork")
