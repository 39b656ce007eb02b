#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on a text by local steps (DiLoCo): processes meet only after every so many steps.

usage: python -m torch.distributed.run --standalone --nproc_per_node 4 train.py [options]
"""

import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn

import globalq.torch


class Transformer(nn.Module):
    def __init__(self, width=32, context=64):
        super().__init__()
        self.embed, self.places = nn.Embedding(128, width), nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("ahead", torch.ones(context, context).triu(1).bool(), persistent=False)

    def forward(self, x):
        return self.head(self.layers(self.embed(x) + self.places, self.ahead))


def loss_of(model, data, rows, draw):
    at = torch.randint(len(data) - 65, (rows,), generator=draw)
    x = torch.stack([data[k:k + 65] for k in at])
    return nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
for name, default, text in [("operator", "cgx:2,feedback,second=4", "operator of means"), ("every", 50, "local steps of a mean"),
                            ("fragments", 1, "parts that are averaged one after the other"), ("steps", 1000, "of each process"),
                            ("delay", 0, "steps that go on while a mean travels"), ("seed", 1, "of the model and its data"),
                            ("text", nn.functional.__file__, "file to learn from"), ("rate", 3e-3, "of Adam, the inner optimizer")]:
    parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
given = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(given.seed)
model, draw = Transformer(), torch.Generator().manual_seed(1000 * given.seed + dist.get_rank())
data = torch.tensor([byte & 127 for byte in pathlib.Path(given.text).read_bytes()])
seen, unseen = data.tensor_split([len(data) * 9 // 10])
optimizer = torch.optim.Adam(model.parameters(), given.rate, betas=(0.9, 0.99))
local = globalq.torch.DiLoCo(model, every=given.every, operator=given.operator, fragments=given.fragments, delay=given.delay, seed=given.seed)
for _ in range(given.steps):
    optimizer.zero_grad()
    loss_of(model, seen, 8, draw).backward()
    optimizer.step()
    local.step()

with torch.no_grad():
    loss = loss_of(model, unseen, 256, torch.Generator().manual_seed(0)).item()
if dist.get_rank() == 0:
    print(f"{given.operator}, every {given.every}: loss {loss:.4f}, {local.bytes_sent // max(1, local.means)} bytes a mean")
local.close()
dist.destroy_process_group()
