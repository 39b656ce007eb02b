# SPDX-License-Identifier: Apache-2.0
"""Sums between replica groups of torchft; scripts/test-torch installs it."""

import pathlib
import re
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchft")

from torch.distributed import ReduceOp, TCPStore
from torch._C._distributed_c10d import AllreduceOptions

import globalq
import globalq.torchft
from globalq.torchft import Deadline

ROOT = pathlib.Path(__file__).parents[2]


def summed(group, x):
    options = AllreduceOptions()
    options.reduceOp = ReduceOp.SUM
    return group.allreduce([x], options)


@pytest.fixture
def members():
    """Makes groups of members, which configure() together."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def configured(groups, quorum):
        threads = [threading.Thread(target=group.configure, args=(f"localhost:{store.port}/{quorum}", str(rank), rank, len(groups), quorum))
                   for rank, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return groups

    return configured


def test_a_deadline_follows_the_last_calls_between_its_limits():
    deadline = Deadline(2, 60, 10)
    for _ in range(7):
        deadline.add(5)
    assert deadline.seconds() == 60  # too few
    deadline.add(5)
    assert deadline.seconds() == 5
    for k in range(64):
        deadline.add(4 + k / 64)
    assert deadline.seconds() == pytest.approx(4.5 + 10 * 0.8, abs=0.2)
    for _ in range(64):
        deadline.add(0.01)
    assert deadline.seconds() == 2


def test_members_sum_and_a_call_without_all_of_them_is_given_up(members):
    groups = [globalq.torchft.ProcessGroup("cgx:8", timeout=timedelta(seconds=20), least=timedelta(seconds=1)) for _ in range(3)]
    members(groups, 1)
    for count, error in (5000, 0.05), (10, 0):
        xs = [torch.full((count,), rank + 1.0) for rank in range(3)]
        for work in [summed(g, x) for g, x in zip(groups, xs)]:
            work.wait()
        assert all(x.equal(xs[0]) for x in xs) and (xs[0] - 6).abs().max() <= error
    assert [row.how for row in groups[0].report()] == ["cgx:8", "gloo"]
    for _ in range(8):
        for work in [summed(g, torch.ones(5000)) for g in groups]:
            work.wait()

    given, began = torch.ones(5000), time.monotonic()
    late = summed(groups[0], given)
    with pytest.raises(globalq.TransportError, match="has not ended after"):
        late.wait()
    assert 0.9 < time.monotonic() - began < 5
    works = [summed(g, torch.ones(5000)) for g in groups[1:]]  # the call ends late
    for work in works:
        work.wait()
    time.sleep(0.2)
    assert given.equal(torch.ones(5000)) and isinstance(groups[0].errored(), globalq.TransportError)
    with pytest.raises(globalq.TransportError):
        summed(groups[0], given)

    members(groups[:2], 2)
    xs = [torch.full((5000,), rank + 1.0) for rank in range(2)]
    for work in [summed(g, x) for g, x in zip(groups, xs)]:
        work.wait()
    assert groups[0].errored() is None and xs[0].equal(xs[1]) and (xs[0] - 3).abs().max() < 0.05


def test_options_are_refused():
    with pytest.raises(globalq.ConfigurationError, match="DDPHook"):
        globalq.torchft.ProcessGroup("cgx:2,feedback")
    with pytest.raises(globalq.ConfigurationError, match="shorter least"):
        globalq.torchft.ProcessGroup(timeout=timedelta(seconds=1))


def test_replicas_that_are_killed_and_stopped_heal_to_the_same_bits():
    done = subprocess.run([sys.executable, ROOT / "bench/torch/storm.py", "--replicas", "4", "--events", "4", "--steps", "120", "--limit", "150"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert re.search("storm: [1-9] events", done.stdout), done.stdout  # the training may end before the last
