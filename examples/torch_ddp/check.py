#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks globalq's communication hook: means, exclusion, changing buckets, unused parameters, errors."""

import hashlib
import math
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import globalq_ddp
import workers


class Net(nn.Module):
    """More than a megabyte, so that there are several buckets; runs in another order than its layers were made in."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(256, 10)
        self.second = nn.Linear(512, 512)
        self.third = nn.Linear(512, 256)
        self.norm = nn.LayerNorm(512)
        self.first = nn.Linear(64, 512)
        self.other_head = nn.Linear(256, 10)

    def forward(self, x, other=False):
        x = torch.relu(self.third(torch.relu(self.norm(self.second(torch.relu(self.first(x)))))))
        return self.other_head(x) if other else self.head(x) + 0 * self.other_head(x)


def make(**settings):
    torch.manual_seed(1)
    model = Net()
    ddp = nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=0.25, find_unused_parameters=settings.pop("find_unused_parameters", False))
    hook = globalq_ddp.Hook(ddp, **settings)
    return model, ddp, hook


def batch(step):
    draw = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(8, 64, generator=draw), torch.randint(10, (8,), generator=draw)


def loss(ddp, step, **how):
    x, y = batch(step)
    return nn.functional.cross_entropy(ddp(x, **how), y)


def gather(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def bits_of(tensors):
    bits = hashlib.sha256()
    for t in tensors:
        bits.update(bytes(t.detach().contiguous().view(-1).view(torch.uint8).tolist()))
    return bits.hexdigest()


def own_gradients(model, step, **how):
    """Gradients of all processes, not averaged: by name, one row a process."""
    names, values = zip(*model.named_parameters())
    grads = torch.autograd.grad(loss(model, step, **how), values, allow_unused=True)
    found = {}
    for name, p, g in zip(names, values, grads):
        rows = [torch.empty_like(p) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, torch.zeros_like(p) if g is None else g.contiguous())
        found[name] = torch.stack(rows)
    return found


def expect_mean(found, rows, quantised, name):
    n = len(rows)
    exact = rows.double().mean(0)
    error = (found.double() - exact).abs()
    # float32: at most n - 1 additions and a division, each rounded by 2^-24 of at most the sum of magnitudes
    rounding = n * 2.0**-23 * rows.double().abs().sum(0) + 1e-37
    if not quantised:
        assert (error <= rounding).all(), f"{name}: {error.max()} off"
        return
    # cgx:4 over sra: what a worker sends is off by less than a level, 1/7 of the largest magnitude m of its bucket, and no
    # larger than m; so is the mean, which is rounded once more, by less than 1/7 of its own largest magnitude.
    largest = rows.abs().max().double()
    assert (error <= 2 / 7 * largest + rounding).all(), f"{name}: {error.max()} off"
    assert (error > rounding).any(), f"{name} was to be quantised, and is the exact mean"


def means_and_exclusion():
    model, ddp, hook = make(operator="cgx:4", exclude=["other_head.*", "second.*"], min_size=3000)
    why = {name: reason for name, _, _, reason in hook.report()}
    assert why["second.weight"] == "its name matches second.*", why
    assert why["head.weight"] == "its 2560 values are fewer than 3000", why
    assert why["norm.weight"].endswith("fewer than 3000") and why["first.bias"], why
    quantised = [name for name, reason in why.items() if not reason]
    assert quantised == ["third.weight", "first.weight"], quantised
    ddp.register_comm_hook(hook, globalq_ddp.average)
    for step in range(3):
        rows = own_gradients(model, step)
        ddp.zero_grad()
        loss(ddp, step).backward()
        for name, p in model.named_parameters():
            expect_mean(p.grad, rows[name], name in quantised, name)
        assert len(set(gather(bits_of(p.grad for p in model.parameters())))) == 1, "gradients differ"
    assert hook.step == 2
    hook.close()


def train(steps, seen=None, **settings):
    model, ddp, hook = make(**settings)

    def average(state, bucket):
        future = state.start(bucket)
        if seen is not None:
            seen.append((state.step, tuple(p.shape for p in bucket.parameters())))
        if dist.get_rank() == 0:
            time.sleep(0.002 * (bucket.index() % 2))  # timing changes no bit
        return future

    ddp.register_comm_hook(hook, average)
    optimiser = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimiser.zero_grad()
        loss(ddp, step).backward()
        optimiser.step()
    found = gather(bits_of(model.parameters()))
    assert len(set(found)) == 1, "replicas differ"
    hook.close()
    return found[0]


def buckets_that_change():
    seen = []
    first = train(6, seen, operator="cgx:4", seed=5)
    by_step = {}
    for step, shapes in seen:
        by_step.setdefault(step, []).append(shapes)
    kinds = {tuple(shapes) for shapes in by_step.values()}
    assert len(kinds) > 1, "the buckets were not built anew: the check checks nothing"
    assert max(len(shapes) for shapes in kinds) > 1, "there is one bucket: the check checks nothing"
    assert train(6, operator="cgx:4", seed=5) == first, "the same settings gave other bits"
    assert train(6, operator="cgx:4", seed=6) != first, "the seed has no effect"
    # the names of operators choose schedules as well
    train(3, operator="qsgd:4,bucket=512")
    train(3, operator="global-uniform", layers={"head.*": "float32", "third.*": "cgx:2"})


def unused_parameters():
    model, ddp, hook = make(operator="cgx:4", find_unused_parameters=True)
    ddp.register_comm_hook(hook, globalq_ddp.average)
    for step in range(4):
        other = step % 2 == 1 and dist.get_rank() == 0  # the heads that are used differ among processes
        rows = own_gradients(model, step, other=other)
        ddp.zero_grad(set_to_none=True)
        loss(ddp, step, other=other).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                expect_mean(p.grad, rows[name], p.dim() > 1 and bool(rows[name].any()), name)
        assert model.head.bias.grad is not None and model.other_head.bias.grad is not None
        assert len(set(gather(bits_of(p.grad for p in model.parameters() if p.grad is not None)))) == 1
    hook.close()


def gradients_added_up():
    model, ddp, hook = make(operator="cgx:4", exclude=["*"])
    ddp.register_comm_hook(hook, globalq_ddp.average)
    rows = {name: a + b for (name, a), b in
            zip(own_gradients(model, 0).items(), own_gradients(model, 1).values())}
    ddp.zero_grad()
    with ddp.no_sync():
        loss(ddp, 0).backward()
    loss(ddp, 1).backward()
    for name, p in model.named_parameters():
        expect_mean(p.grad, rows[name], False, name)
    hook.close()


def infinity():
    """All gradients of a bucket are NaN everywhere; the hook counts it and says it once, and goes on."""
    model, ddp, hook = make(operator="cgx:4")
    ddp.register_comm_hook(hook, globalq_ddp.average)
    for step in range(2):
        ddp.zero_grad()
        (loss(ddp, step) * (math.inf if dist.get_rank() == 1 else 1)).backward()
        assert all(p.grad.isnan().all() for p in model.parameters())
        assert hook.non_finite > step, hook.non_finite
    before = hook.non_finite
    ddp.zero_grad()
    loss(ddp, 2).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters()) and hook.non_finite == before
    hook.close()


def refusals():
    for settings, text in [(dict(operator="cgx:9"), "bits"), (dict(operator="nonsense"), "nonsense"),
                           (dict(operator="alq:3"), "learns levels"),
                           (dict(operator="cgx:4", layers={"heat.*": "float32"}), "heat.*"),
                           (dict(operator="cgx:4", deadline=-1.0), "deadline")]:
        try:
            group = dist.new_group(backend="gloo")
            globalq_ddp.Hook(Net(), group=group, **settings)
        except globalq_ddp.Error as e:
            assert text in str(e), e
        else:
            raise AssertionError(f"{settings} was accepted")

    # one process has another operator: all learn of it, in backward()
    _, ddp, hook = make(operator="cgx:4" if dist.get_rank() == 0 else "cgx:3")
    ddp.register_comm_hook(hook, globalq_ddp.average)
    try:
        loss(ddp, 0).backward()
    except RuntimeError as e:
        assert "globalq: layered_mean" in str(e) and "operator" in str(e), e
    else:
        raise AssertionError("processes with different operators averaged")
    hook.close()


def a_process_that_does_not_come():
    _, ddp, hook = make(operator="cgx:4", deadline=2.0)
    ddp.register_comm_hook(hook, globalq_ddp.average)
    if dist.get_rank() != dist.get_world_size() - 1:
        began = time.monotonic()
        try:
            loss(ddp, 0).backward()
        except RuntimeError as e:
            last = dist.get_world_size() - 1
            assert f"bytes from rank {last}:" in str(e) or f"bytes to rank {last}:" in str(e), e
        else:
            raise AssertionError("averaged without the last process")
        assert time.monotonic() - began < 30
    dist.barrier()
    hook.close()


CHECKS = [means_and_exclusion, buckets_that_change, unused_parameters, gradients_added_up, infinity, refusals,
          a_process_that_does_not_come]


def check():
    for each in CHECKS:
        each()
        if dist.get_rank() == 0:
            print(f"ok: {each.__name__}", flush=True)
        dist.barrier()


if __name__ == "__main__":
    workers.run(int(sys.argv[1]) if len(sys.argv) > 1 else 2, check)
