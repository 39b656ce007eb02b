# SPDX-License-Identifier: Apache-2.0
"""The Python that README.md and python/README.md show runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = [(name, block) for name in ("README.md", "python/README.md")
          for block in re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)]

# what a reader brings: a process group, a module or a model, and a step
TORCH = """
import os
import torch
import torch.distributed
from torch import nn

torch.set_num_threads(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.distributed.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
torch.manual_seed(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 300), nn.Linear(300, 10)])

    def forward(self, x):
        return self.layers[1](torch.relu(self.layers[0](x)))


net = model = Net()
"""
STEP = """
model(torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))).square().sum().backward()
found = [None] * size
torch.distributed.all_gather_object(found, [p.grad.tolist() for p in net.parameters()] if net is not model else None)
assert all(f == found[0] for f in found), "gradients differ"
"""


def blocks_with(text):
    found = [pytest.param(block, id=name) for name, block in BLOCKS if text in block]
    assert found, f"no document shows {text}"
    return found


def test_every_block_is_run():
    assert all(sum(text in block for text in ("run_threads", "encode(", "DDPHook", "fully_shard", "pg_options")) == 1 for _, block in BLOCKS)


@pytest.mark.parametrize("block", blocks_with("run_threads"))
def test_arrays(block, capsys):
    exec(block, {})
    assert abs(float(capsys.readouterr().out.rpartition(":")[2]) - 1.5) < 0.5


@pytest.mark.parametrize("block", blocks_with("encode("))
def test_bytes(block, capsys):
    exec(block, {})
    size, error = capsys.readouterr().out.split(" bytes; error below 1/7: ")
    assert 500 < int(size) < 700 and float(error) < 1 / 7


@pytest.mark.parametrize("block", blocks_with("DDPHook"))
def test_a_hook(block, run_processes):
    pytest.importorskip("torch")
    run_processes(TORCH + block + STEP, 2)


@pytest.mark.parametrize("block", blocks_with("pg_options"))
def test_a_back_end(block, run_processes):
    pytest.importorskip("torch")
    start, again = 'init_process_group("gloo", init', 'dist.init_process_group("globalq", '
    assert again in block  # torchrun would tell these arguments
    block = block.replace(again, again + 'init_method=os.environ["INIT"], rank=rank, world_size=size, ')
    before = "\n".join(line for line in TORCH.splitlines() if start not in line)
    run_processes(before + "\n" + block + "\nmodel = nn.parallel.DistributedDataParallel(net)\n" + STEP
                  + "\nassert any(row.how == 'cgx:4' for row in globalq.torch.report())\n", 2)


@pytest.mark.parametrize("block", blocks_with("fully_shard"))
def test_shards(block, needs_fsdp, run_processes):
    run_processes(TORCH + block + STEP, 2)
