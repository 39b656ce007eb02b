#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on digits with DistributedDataParallel, without a hook and with globalq's."""

import argparse
import csv
import hashlib
import os
import statistics
import sys
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn

import globalq_ddp
import workers

HERE = os.path.dirname(os.path.abspath(__file__))


def make_model(seed):
    # Groups of channels are normalised, not batches: replicas have no running statistics, which would differ.
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, 16, 3, padding=1), norm1=nn.GroupNorm(4, 16), relu1=nn.ReLU(),
        conv2=nn.Conv2d(16, 32, 3, stride=2, padding=1), norm2=nn.GroupNorm(4, 32), relu2=nn.ReLU(),
        flatten=nn.Flatten(), hidden=nn.Linear(512, 512), relu3=nn.ReLU(), head=nn.Linear(512, 10)))


def read_digits(path, seed):
    """Pictures and digits to learn from, and a third of all to judge by."""
    with open(path, newline="") as file:
        rows = torch.tensor([[int(value) for value in row] for row in csv.reader(file)])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    pictures = rows[:, :64].float().reshape(-1, 1, 8, 8)
    held_out = len(rows) // 3
    known = pictures[held_out:]
    pictures = (pictures - known.mean()) / known.std()
    digits = rows[:, 64].long()
    return (pictures[held_out:], digits[held_out:]), (pictures[:held_out], digits[:held_out])


def same_everywhere(model):
    """Whether the parameters and buffers of all processes have the same bits."""
    bits = hashlib.sha256()
    for value in model.state_dict().values():
        bits.update(bytes(value.detach().contiguous().view(-1).view(torch.uint8).tolist()))
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, bits.hexdigest())
    return len(set(found)) == 1


def train(operator, given):
    """Returns accuracy, milliseconds and bytes a step, and whether all replicas are the same."""
    (pictures, digits), (unseen, answers) = read_digits(given.data, given.seed)
    model = make_model(given.seed)
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=given.bucket_mb)
    hook = None
    if operator is not None:
        hook = globalq_ddp.Hook(ddp, operator, exclude=[*globalq_ddp.CGX_EXCLUDES, *given.exclude],
                                min_size=given.min_size, seed=given.seed, deadline=given.deadline)
        ddp.register_comm_hook(hook, globalq_ddp.average)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=given.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / given.steps)
    draw = torch.Generator().manual_seed(given.seed)
    rank, count = dist.get_rank(), dist.get_world_size()
    milliseconds = []
    for _ in range(given.steps):
        chosen = torch.randint(len(digits), (count, given.batch), generator=draw)[rank]
        began = time.perf_counter()
        optimiser.zero_grad()
        nn.functional.cross_entropy(ddp(pictures[chosen]), digits[chosen]).backward()
        optimiser.step()
        schedule.step()
        milliseconds.append(1e3 * (time.perf_counter() - began))
    with torch.no_grad():
        accuracy = (model(unseen).argmax(1) == answers).float().mean().item()
    same = same_everywhere(model)
    sent = hook.bytes_sent // given.steps if hook else None
    if hook and given.report and rank == 0:
        for name, size, how, why in hook.report():
            print(f"  {name:<14} {size:>8}  {how}{': ' + why if why else ''}")
    if hook:
        hook.close()
    return accuracy, statistics.median(milliseconds), sent, same


def compare(given):
    speaks = dist.get_rank() == 0
    if speaks:
        print(f"{dist.get_world_size()} processes, {given.steps} steps of {given.batch} pictures each\n\n"
              f"{'hook':<24} {'bytes a step':>13} {'ms a step':>10} {'accuracy':>9}  replicas", flush=True)
    plain, good = None, True
    for operator in [None, *given.operator]:
        accuracy, milliseconds, sent, same = train(operator, given)
        plain = accuracy if plain is None else plain
        near = given.gap is None or 100 * (plain - accuracy) <= given.gap
        good = good and same and near
        if speaks:
            print(f"{operator or '(none)':<24} {sent if sent is not None else '':>13} {milliseconds:>10.2f} "
                  f"{100 * accuracy:>7.1f} %  {'identical' if same else 'DIFFER'}"
                  f"{'' if near else f', more than {given.gap} points below no hook'}", flush=True)
    if not good:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="processes; a launcher decides for itself")
    parser.add_argument("--operator", action="append", help="may be repeated; help lists them")
    parser.add_argument("--exclude", action="append", default=[], help="pattern of layers that travel as float32, "
                        "besides biases and normalisations; may be repeated")
    parser.add_argument("--min-size", type=int, default=0, help="layers of fewer values travel as float32")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="pictures a process and step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate of the first step; it falls to 0")
    parser.add_argument("--bucket-mb", type=float, default=0.25, help="of DistributedDataParallel's buckets")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds to wait for another process")
    parser.add_argument("--gap", type=float, help="points of accuracy that an operator may lose")
    parser.add_argument("--report", action="store_true", help="print what each layer was given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=os.path.join(HERE, "..", "digits", "digits.csv"))
    given = parser.parse_args()
    given.operator = given.operator or ["float32", "cgx:4", "global-uniform"]
    if "help" in given.operator:
        print(globalq_ddp.operators_help())
        return
    workers.run(given.workers, compare, given)


if __name__ == "__main__":
    main()
