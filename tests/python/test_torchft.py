# SPDX-License-Identifier: Apache-2.0
"""Sums between replica groups of torchft; scripts/test-torch installs it."""

import os
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
    late, later = summed(groups[0], given), summed(groups[0], torch.ones(10))
    for work in later, late:  # the later one does not wait for the other longer than that may take
        with pytest.raises(globalq.TransportError, match="has not ended after"):
            work.wait()
    assert 0.9 < time.monotonic() - began < 5
    works = [summed(g, torch.ones(5000)) for g in groups[1:]]  # the call ends late
    for work in works:
        work.wait()
    time.sleep(0.2)
    assert given.equal(torch.ones(5000)) and isinstance(groups[0].errored(), globalq.TransportError)
    with pytest.raises(globalq.TransportError):
        summed(groups[0], given)

    members(groups[:2], 2)
    memory = [f"/dev/shm/globalq-{g.members()._wire.memory}" for g in groups[:2]]
    pathlib.Path(memory[0]).touch()  # as rank 0 does that is killed before another one joins
    members(groups[:2], 3)
    assert memory[0] == memory[1] and not os.path.exists(memory[0])
    xs = [torch.full((5000,), rank + 1.0) for rank in range(2)]
    for work in [summed(g, x) for g, x in zip(groups, xs)]:
        work.wait()
    assert groups[0].errored() is None and xs[0].equal(xs[1]) and (xs[0] - 3).abs().max() < 0.05


class Script:
    """A manager without a lighthouse: configure(manager, attempt) makes its members, commits(attempt) tells whether a step counts."""

    _use_async_quorum = False

    def __init__(self, group, configure, commits=lambda attempt: True):
        self._pg, self._configure, self._commits, self._step, self._attempt, self._problem, self._fns = group, configure, commits, 0, 0, None, None

    def register_state_dict_fn(self, key, load, save):
        assert key == "globalq.DiLoCo"
        self._fns = load, save

    def start_quorum(self):
        self._problem = None
        self._configure(self, self._attempt)

    def errored(self):
        return self._problem

    def report_error(self, problem):
        self._problem = problem

    def is_participating(self):
        return True

    def current_step(self):
        return self._step

    def should_commit(self):
        self._attempt += 1
        counts = self._commits(self._attempt - 1) and self._problem is None and self._pg.errored() is None
        self._step += counts
        return counts


def replicas(plan, work, commits=lambda attempt: True, timeout=20, **settings):
    """Runs work(replica, model, local, manager) in threads. plan: for each attempt, the replicas that take part in it; one that joins, or is
    not the first of the first attempt, heals from the first."""
    made, state, lock, results, problems = {}, {}, threading.Lock(), {}, []
    saved = [threading.Event() for _ in plan]

    def configure(replica):
        def at(manager, attempt):
            row = plan[attempt]
            if attempt > 0 and plan[attempt - 1] == row:
                return
            if replica == row[0]:
                state[attempt] = manager._fns[1](), manager._step
                saved[attempt].set()
            elif attempt == 0 or replica not in plan[attempt - 1]:
                assert saved[attempt].wait(60)
                manager._fns[0](state[attempt][0])
                manager._step = state[attempt][1]
            made[replica].configure(f"localhost:{store.port}/{attempt}", str(replica), row.index(replica), len(row), attempt)

        return at

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def run(replica):
        try:
            first = next(k for k, row in enumerate(plan) if replica in row)
            with lock:
                torch.manual_seed(replica)
                model = torch.nn.Linear(40, 60)
            made[replica] = globalq.torchft.ProcessGroup("cgx:4", timeout=timedelta(seconds=timeout))
            manager = Script(made[replica], configure(replica), commits)
            manager._attempt = first
            with globalq.torch.DiLoCo(model, manager=manager, **settings) as local:
                results[replica] = work(replica, model, local, manager)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=run, args=(k,)) for k in sorted({k for row in plan for k in row})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    return results


def moved(model, replica, attempt):
    """Local steps: returns what they add to the parameters."""
    draw = torch.Generator().manual_seed(100 * attempt + replica)
    moves = [torch.randn(p.shape, generator=draw) * torch.rand(1, generator=draw) for p in model.parameters()]
    with torch.no_grad():
        for p, move in zip(model.parameters(), moves):
            p.add_(move)
    return torch.cat([m.view(-1) for m in moves]).double()


@pytest.mark.parametrize("schedule", ["allgather", "sra"])
def test_replicas_owe_what_their_means_left_out_whoever_leaves_or_joins(schedule):
    plan, discarded = [(0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 2), (0, 2), (0, 2, 3), (0, 2, 3)], {1, 4}

    def common(local):
        return torch.cat([w.view(-1) for w in local.fragments[0].weights]).double()

    def work(replica, model, local, manager):
        attempts = [k for k, row in enumerate(plan) if replica in row]
        way, steps, rounds = 0, 0, {}
        for attempt in attempts:
            way, steps, before = way - moved(model, replica, attempt), steps + 1, common(local)
            if attempt == attempts[0] and replica != 0:  # it heals
                way, steps, before = 0, 0, None
            assert local.step() == (attempt not in discarded)
            if attempt not in discarded:
                assert common(local).equal(torch.cat([p.detach().view(-1) for p in model.parameters()]).double())
                rounds[attempt] = steps, way, before, common(local)
                way, steps = 0, 0
        return rounds, local.fragments[0].mean.save()

    found = replicas(plan, work, lambda attempt: attempt not in discarded, every=1, schedule=schedule, operator="cgx:2,feedback",
                     outer=lambda w: torch.optim.SGD(w, 1.0), check_every=1, min_size=1)
    sent, ways = 0, 0
    for attempt, row in enumerate(plan):
        if attempt in discarded:
            continue
        rounds = [found[replica][0][attempt] for replica in row]
        weights = sum(steps for steps, *_ in rounds) / len(row)
        ways = ways + sum(steps / weights * way for steps, way, *_ in rounds)
        sent = sent + len(row) * (rounds[0][2] - rounds[0][3])
        assert all(after.equal(rounds[0][3]) for *_, after in rounds)
    owed = sum(residual_of(state) for _, state in found.values())
    assert owed.abs().max() > 0.1 and (ways - sent - owed).abs().max() < 1e-4


def test_a_replica_with_other_bits_is_refused_when_members_have_changed():
    plan = [(0, 1), (0, 1), (0, 1, 2)]

    def work(replica, model, local, manager):
        seen = []
        for attempt in (k for k, row in enumerate(plan) if replica in row):
            if (replica, attempt) == (1, 2):
                local.fragments[0].weights[0][0, 0] += 1  # it has committed a step alone
            try:
                seen.append(local.step())
            except globalq.DisagreementError as problem:
                seen.append("of rank 1 differ from those of rank 0" in str(problem))
        return seen

    found = replicas(plan, work, every=1, operator="cgx:4", min_size=1, timeout=3, check_every=1000)
    assert found == {0: [True, True, False], 1: [True, True, True], 2: [True]}  # the last one has healed


def test_a_call_that_fails_has_its_step_discarded():
    def work(replica, model, local, manager):
        seen = []
        for attempt in range(3):
            moved(model, replica, attempt)
            if attempt == 1:
                manager._pg.members().problem = globalq.TransportError("a member is lost")
            before, kept = [w.clone() for w in local.fragments[0].weights], local.fragments[0].mean.save()
            seen.append(local.step())
            manager._pg.members().problem = None
            if attempt == 1:
                assert all(a.equal(b) for a, b in zip(before, local.fragments[0].weights)) and kept == local.fragments[0].mean.save()
        return seen

    assert replicas([(0,), (0,), (0,)], work, every=1, operator="cgx:2,feedback", min_size=1) == {0: [True, False, True]}


def test_what_every_mean_would_refuse_is_refused_at_once():
    def refused(**settings):
        group = globalq.torchft.ProcessGroup()
        with pytest.raises(globalq.ConfigurationError) as problem:
            globalq.torch.DiLoCo(torch.nn.Linear(40, 60), manager=Script(group, None), **settings)
        return str(problem.value)

    assert "bits" in refused(operator="cgx:99")
    assert "nonsense" in refused(schedule="nonsense")
    assert "power" in refused(operator="power-sgd:2").lower()
    assert "multiple of fragments" in refused(every=5, fragments=2)
    assert "delay below" in refused(every=4, fragments=2, delay=2)
    with pytest.raises(globalq.ConfigurationError, match="globalq's"):
        globalq.torch.DiLoCo(torch.nn.Linear(2, 2), manager=Script(None, None))


def residual_of(state):
    """The residuals of a Linear(40, 60) in a state."""
    values = []
    for name, size in (("weight", 2400), ("bias", 60)):
        at = state.index(b"residual/" + name.encode()) + len("residual/" + name)
        assert int.from_bytes(state[at:at + 8], "little") == size
        values.append(torch.frombuffer(bytearray(state[at + 8:at + 8 + 4 * size]), dtype=torch.float32))
    return torch.cat(values).double()


def test_options_are_refused():
    with pytest.raises(globalq.ConfigurationError, match="DDPHook"):
        globalq.torchft.ProcessGroup("cgx:2,feedback")
    with pytest.raises(globalq.ConfigurationError, match="shorter least"):
        globalq.torchft.ProcessGroup(timeout=timedelta(seconds=1))


@pytest.mark.parametrize("trainer", [("torchft", "cgx:4"), ("globalq", "cgx:2,feedback,second=4")])
def test_replicas_that_are_killed_and_stopped_heal_to_the_same_bits(trainer):
    done = subprocess.run([sys.executable, ROOT / "bench/torch/storm.py", "--replicas", "4", "--events", "4", "--steps", "120", "--limit", "150",
                           "--trainer", trainer[0], "--operator", trainer[1]],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert re.search("storm: [1-9] events", done.stdout), done.stdout  # the training may end before the last
