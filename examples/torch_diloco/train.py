#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on a text by local steps (DiLoCo): processes meet only after every so many steps."""

import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn

import globalq.torch

LAYERS, WIDTH, HEADS, CONTEXT, BYTES = 2, 32, 4, 64, 128


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(BYTES, WIDTH), nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
                                    for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)
        self.register_buffer("ahead", torch.ones(CONTEXT, CONTEXT).triu(1).bool(), persistent=False)

    def forward(self, x):
        h = self.embed(x) + self.places
        for layer in self.layers:
            h = layer(h, self.ahead)
        return self.head(self.norm(h))


def train(rank, given, store):
    torch.set_num_threads(1)  # the processes share the cores of one machine
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=given.workers)
    torch.manual_seed(given.seed)
    data = torch.tensor([byte & 127 for byte in pathlib.Path(given.text).read_bytes()])
    unseen, draw = int(len(data) * 0.9), torch.Generator().manual_seed(1000 * given.seed + rank)

    def loss_of(first, last, count, draw):
        at = torch.randint(first, last - CONTEXT - 1, (count,), generator=draw)
        rows = torch.stack([data[k:k + CONTEXT + 1] for k in at])
        return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    model = Transformer()
    local = globalq.torch.DiLoCo(model, every=given.every, operator=given.operator, fragments=given.fragments, delay=given.delay, seed=given.seed)
    begun = local.bytes_sent
    optimizer = torch.optim.Adam(model.parameters(), given.rate, betas=(0.9, 0.99))
    for _ in range(given.steps):
        optimizer.zero_grad()
        loss_of(0, unseen, given.batch, draw).backward()
        optimizer.step()
        local.step()

    with torch.no_grad():
        loss = sum(loss_of(unseen, len(data), 32, torch.Generator().manual_seed(k)).item() for k in range(8)) / 8
    if rank == 0:
        print(f"{given.operator}, every {given.every}: loss {loss:.4f}, {(local.bytes_sent - begun) // max(1, local.means)} bytes a mean", flush=True)
    local.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", default="cgx:2,feedback,second=4", help="operator of means")
    parser.add_argument("--every", type=int, default=50, help="local steps of a mean")
    parser.add_argument("--fragments", type=int, default=1, help="parts that are averaged one after the other")
    parser.add_argument("--delay", type=int, default=0, help="steps that go on while a mean travels")
    parser.add_argument("--text", default=nn.functional.__file__, help="file to learn from (default: a source of torch, in Python)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8, help="rows of 64 bytes a process")
    parser.add_argument("--rate", type=float, default=3e-3, help="rate of Adam, the inner optimizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4, help="processes; a launcher's number comes first")
    given = parser.parse_args()
    if "RANK" in os.environ:  # started by a launcher
        given.workers = int(os.environ["WORLD_SIZE"])
        train(int(os.environ["RANK"]), given, "env://")
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(train, (given, f"file://{folder}/store"), given.workers, start_method="fork")
