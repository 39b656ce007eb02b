#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer of 12 layers on a text with FSDP2 over gloo, with weights and gradients sent by globalq (QSDP)."""

import argparse
import math
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import globalq.torch

LAYERS, WIDTH, HEADS, CONTEXT, BYTES = 12, 48, 4, 64, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.06 / math.sqrt(2 * LAYERS) if "out" in name or "down" in name else 0.02)

    def forward(self, x):
        h = self.embed(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


def train(rank, given, store):
    torch.set_num_threads(1)  # the processes share the cores of one machine
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=given.workers)
    torch.manual_seed(given.seed)
    data = torch.tensor([byte & 127 for byte in pathlib.Path(given.text).read_bytes()])
    unseen = int(len(data) * 0.9)

    def batch(first, last, count, draw):
        at = torch.randint(first, last - CONTEXT - 1, (count,), generator=draw)
        rows = torch.stack([data[k:k + CONTEXT + 1] for k in at])
        return rows[:, :-1], rows[:, 1:]

    def loss_of(x, y):
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    model = Transformer()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    if given.weights != "none":
        sharded = globalq.torch.shard(model, given.weights, given.gradients, excluded=given.excluded, learn_at=given.learn_at,
                                      node_size=given.node_size, seed=given.seed)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20)
                                             * (0.1 + 0.45 * (1 + math.cos(math.pi * step / given.steps))))
    draw = torch.Generator().manual_seed(1000 * given.seed + rank)
    for _ in range(given.steps):
        loss = loss_of(*batch(0, unseen, given.batch, draw))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()

    sent = "" if given.weights == "none" else ", ".join(f"{kind} {count // given.steps}" for kind, count in sharded.sent.items() if count)
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        loss = sum(loss_of(*batch(unseen, len(data), 32, draw)).item() for _ in range(8)) / 8
    if rank == 0:
        print(f"{given.weights}, {given.gradients}: loss {loss:.4f}; bytes a step: {sent or 'not counted'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="qsdp", help='operator of weights, "float32", or "none" for FSDP2 alone')
    parser.add_argument("--gradients", default="cgx:8,bucket=1024", help="operator of gradients")
    parser.add_argument("--excluded", default="float16", help="how biases and normalizations travel: float16 or float32")
    parser.add_argument("--learn-at", type=int, nargs="*", default=[], metavar="STEP", help="steps at which levels of weights are learned")
    parser.add_argument("--node-size", type=int, help="processes of a node; weights and gradients are quantized between nodes only")
    parser.add_argument("--text", default=nn.functional.__file__, help="file to learn from (default: a source of torch, in Python)")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=4, help="rows of 64 bytes a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4, help="processes; a launcher's number comes first")
    given = parser.parse_args()
    if "RANK" in os.environ:  # started by a launcher
        given.workers = int(os.environ["WORLD_SIZE"])
        train(int(os.environ["RANK"]), given, "env://")
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(train, (given, f"file://{folder}/store"), given.workers, start_method="fork")
