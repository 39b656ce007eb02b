#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer by one of torch's trainers on an emulated network, and prints a line of JSON: seconds, bytes and losses.

    scripts/cluster --workers 4 --rate 200mbit -- unshare --uts python3 bench/torch/trainers.py --trainer DDP --operator cgx:4

The operator "gloo" is the trainer without globalq. Seconds are those between two evaluations, from barrier to barrier; bytes are those that
the network device sends meanwhile, of all processes. bench/evidence/trainers.py runs all trainers. Needs torch 2.9, and torchft.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import socket
import sys
import time
from datetime import timedelta

from step_time import sent_by

ROOT = pathlib.Path(__file__).parents[2]
FIRST, PORT, SECONDS = "10.77.0.1", 29541, timedelta(seconds=120)


def manager_of(group, rank, size, here):
    """A Manager of torchft with one process in each replica group; rank 0 has the lighthouse."""
    import torch.distributed as dist
    import torchft
    from torchft.coordination import LighthouseServer

    kept = [LighthouseServer(bind=f"0.0.0.0:{PORT + 1}", min_replicas=size, join_timeout_ms=10000)] if rank == 0 else []
    kept.append(dist.TCPStore(here, 0, is_master=True, wait_for_workers=False))
    dist.barrier()
    manager = torchft.Manager(
        pg=group, min_replica_size=size, use_async_quorum=False, replica_id=f"replica_{rank}", rank=0, world_size=1, store_addr=here,
        store_port=kept[-1].port, lighthouse_addr=f"http://{FIRST}:{PORT + 1}", hostname=here, init_sync=False, timeout=SECONDS,
        quorum_timeout=SECONDS, connect_timeout=SECONDS, load_state_dict=lambda _: None, state_dict=dict)
    return manager, kept


class Trainer:
    """A model, its optimizer, and what a trainer makes of them. step() is called after the backward pass."""

    def __init__(self, asked, model, rank, size, here):
        import torch
        import torchft
        from torch.distributed.fsdp import fully_shard
        from torch.nn.parallel import DistributedDataParallel
        from torchft.local_sgd import DiLoCo

        import globalq.torch
        import globalq.torchft

        self.model, self.around, self.then, plain = model, contextlib.nullcontext(), lambda: None, asked.operator == "gloo"

        def replicas():
            group = torchft.ProcessGroupGloo(SECONDS) if plain else globalq.torchft.ProcessGroup(asked.operator, timeout=SECONDS)
            self._manager, self._kept = manager_of(group, rank, size, here)
            return self._manager

        if asked.trainer == "FSDP2":
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), 2e-3, betas=(0.9, 0.95), weight_decay=0.1)
        self.rate = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1, (step + 1) / 20)
                                                      * (0.1 + 0.45 * (1 + math.cos(math.pi * step / asked.steps))))
        if asked.trainer == "DDP":
            self.model = DistributedDataParallel(model)
        elif asked.trainer == "torchft":
            self.model = torchft.DistributedDataParallel(replicas(), model)
            self.optimizer = torchft.Optimizer(self._manager, self.optimizer)
        elif asked.trainer == "torchft's DiLoCo":
            outer = torch.optim.SGD(model.parameters(), 0.7, momentum=0.9, nesterov=True)
            self.around = DiLoCo(replicas(), [model], self.optimizer, outer, sync_every=asked.local, use_bucketization=True)
        elif asked.trainer == "globalq's DiLoCo":
            self.then = globalq.torch.DiLoCo(model, every=asked.local, operator=asked.operator).step

    def step(self, loss_of):
        self.optimizer.zero_grad()
        loss_of(self.model).backward()
        self.optimizer.step()
        self.then()
        self.rate.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--trainer", default="DDP", choices=["DDP", "FSDP2", "torchft", "torchft's DiLoCo", "globalq's DiLoCo"], help="whose steps")
    parser.add_argument("--operator", default="cgx:4", help='of sums, or "gloo"')
    parser.add_argument("--weights", help="operator of FSDP2's gathers")
    parser.add_argument("--local", type=int, default=25, help="local steps of DiLoCo")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=25, help="steps between two evaluations")
    parser.add_argument("--batch", type=int, default=4, help="rows of 64 bytes a process")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()

    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    here = f"10.77.0.{rank + 1}"
    socket.sethostname(here)  # of this process: torchft tells it to the others
    os.environ.update(GLOO_SOCKET_IFNAME="eth0", GLOBALQ_SHARED_MEMORY="off", RUST_LOG="error")  # hosts are of one machine
    import torch
    import torch.distributed as dist

    sys.path.append(str(ROOT / "examples/torch_fsdp"))
    import train
    from training import gathered

    train.LAYERS, train.WIDTH = 6, 128  # fewer and wider layers than in the example
    torch.set_num_threads(1)
    by_name = asked.trainer in ("DDP", "FSDP2") and asked.operator != "gloo"
    options = {"operator": asked.operator, **({"weights": asked.weights} if asked.weights else {})}
    dist.init_process_group("globalq" if by_name else "gloo", init_method=f"tcp://{FIRST}:{PORT}", rank=rank, world_size=size, timeout=SECONDS,
                            pg_options=options if by_name else None)
    torch.manual_seed(asked.seed)
    data = torch.tensor([byte & 127 for byte in pathlib.Path(torch.nn.functional.__file__).read_bytes()])
    first, last = 0, int(len(data) * 0.9)

    def loss_on(begin, end, rows, draw):
        def loss(model):
            at = torch.randint(begin, end - train.CONTEXT - 1, (rows,), generator=draw)
            x = torch.stack([data[k:k + train.CONTEXT + 1] for k in at])
            return torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        return loss

    model = train.Transformer()
    values = sum(p.numel() for p in model.parameters())
    trainer = Trainer(asked, model, rank, size, here)
    draw, seconds, bytes_sent, curve, same = torch.Generator().manual_seed(1000 * asked.seed + rank), [], 0, [], True
    with trainer.around:
        for _ in range(0, asked.steps, asked.every):
            dist.barrier()
            began, before = time.perf_counter(), sent_by("eth0")
            for _ in range(asked.every):
                trainer.step(loss_on(first, last, asked.batch, draw))
            dist.barrier()
            seconds.append(time.perf_counter() - began)
            bytes_sent += sent_by("eth0") - before
            with torch.no_grad():
                loss = loss_on(last, len(data), 128, torch.Generator().manual_seed(7))(model).item()
            found = gathered((loss, bytes_sent))
            same = same and len({x for x, _ in found}) == 1
            curve.append([sum(seconds), loss])
    if rank == 0:
        print(json.dumps({"what": "trainer", "trainer": asked.trainer, "method": asked.operator, "seed": asked.seed, "workers": size,
                          "network": os.environ.get("GLOBALQ_CLUSTER_RATE"), "values": values, "steps": asked.steps,
                          "seconds_a_step": [x / asked.every for x in seconds],
                          "bytes_a_step": round(sum(x for _, x in found) / size / asked.steps), "identical": same, "curve": curve,
                          "torch": torch.__version__.split("+")[0]}), flush=True)
    dist.barrier()
    os._exit(0)  # torchft's threads would go on


if __name__ == "__main__":
    main()
