# SPDX-License-Identifier: Apache-2.0
"""Local steps, with threads as workers."""

import math
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import globalq
import globalq.torch
from globalq._diloco import Nesterov, cut

WORKERS = 3


SEEDING = threading.Lock()  # threads share torch's generator


def net(seed=1):
    with SEEDING:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))


def trained(make, steps=40, saves=None, loads=None, tokens=None, rate=0.05):
    """Trains on threads with a teacher; returns for each worker the parameters, the loss at the end, and the DiLoCo's numbers."""
    torch.set_num_threads(1)
    teacher = net(9)

    def work(workers):
        model = net(1 + workers.rank)
        inner = torch.optim.SGD(model.parameters(), rate)
        draw = torch.Generator().manual_seed(workers.rank)
        with make(model, workers) as local:
            first = 0
            if loads is not None:
                state = loads[workers.rank]
                model.load_state_dict(state["model"]), local.load_state_dict(state["local"])
                draw.set_state(state["draw"])
                first = local.state_dict()["step"]
            for step in range(first, steps):
                x = torch.randn(8, 16, generator=draw)
                inner.zero_grad()
                (model(x) - teacher(x).detach()).square().mean().backward()
                inner.step()
                local.step(None if tokens is None else tokens[workers.rank])
                if saves is not None and step + 1 == saves:
                    return {"model": model.state_dict(), "local": local.state_dict(), "draw": draw.get_state()}
            x = torch.randn(256, 16, generator=torch.Generator().manual_seed(5))
            loss = (model(x) - teacher(x)).square().mean().item()
            return torch.cat([p.detach().view(-1) for p in model.parameters()]), loss, local.means, local.bytes_sent

    return globalq.run_threads(WORKERS, work)


def diloco(**settings):
    return lambda model, workers: globalq.torch.DiLoCo(model, workers=workers, **{"every": 10, "operator": "float32", **settings})


def same(found):
    return all(x.equal(found[0][0]) for x, *_ in found)


def test_all_begin_as_rank_0_and_have_the_same_bits_after_each_mean():
    for operator in "float32", "cgx:4", "cgx:2,feedback,second=4":
        found = trained(diloco(operator=operator, check_every=1))
        assert same(found) and found[0][2] == 4, operator
        assert found[0][1] < 0.5 * trained(diloco(operator=operator), steps=0)[0][1], operator


def test_the_mean_is_that_of_the_ways_and_the_outer_step_is_nesterovs():
    inside = []

    def work(workers):
        model = torch.nn.Linear(4, 2, bias=False)
        with globalq.torch.DiLoCo(model, workers=workers, every=1, operator="float32") as local:
            w, v = model.weight.detach().double().clone(), torch.zeros(2, 4, dtype=torch.float64)
            for step in range(3):
                with torch.no_grad():
                    model.weight.add_(float(workers.rank + step))
                assert local.step()
                way = torch.full((2, 4), -(step + 1.0), dtype=torch.float64)  # the mean of -(rank + step), ranks 0, 1, 2
                v = 0.9 * v + way
                w = w - 0.7 * (way + 0.9 * v)
                inside.append((model.weight.detach().double() - w).abs().max().item())

    globalq.run_threads(WORKERS, work)
    assert max(inside) < 1e-5


def test_tokens_weigh_the_ways():
    def work(workers):
        model = torch.nn.Linear(4, 2, bias=False)
        with globalq.torch.LocalSGD(model, workers=workers, every=2, operator="float32") as local:
            begin = model.weight.detach().clone()
            for _ in range(2):
                with torch.no_grad():
                    model.weight.add_(float(workers.rank))
                local.step(tokens=workers.rank + 1)
            return (model.weight - begin).mean().item()

    # ways of 0, 2, 4, weights of 1, 2, 3
    assert globalq.run_threads(WORKERS, work) == pytest.approx([(0 * 1 + 2 * 2 + 4 * 3) / 6] * 3, abs=1e-5)


def test_local_sgd_averages_parameters():
    def work(workers):
        model = torch.nn.Linear(4, 2, bias=False)
        with globalq.torch.LocalSGD(model, workers=workers, every=1, operator="float32") as local:
            with torch.no_grad():
                model.weight.fill_(float(workers.rank))
            local.step()
            return model.weight.mean().item()

    assert globalq.run_threads(WORKERS, work) == pytest.approx([1, 1, 1], abs=1e-6)


@pytest.mark.parametrize("mix", [None, 0.5])
def test_fragments_travel_one_after_the_other_while_steps_go_on(mix):
    found = trained(diloco(fragments=2, delay=3, mix=mix, operator="cgx:4"), steps=43)
    assert found[0][2] == 8
    assert found[0][1] < 0.5 * trained(diloco(), steps=0)[0][1]
    weights = []

    def work(workers):
        model = net()
        with globalq.torch.DiLoCo(model, workers=workers, every=4, fragments=2, delay=1, operator="cgx:4") as local:
            moved = []
            for _ in range(9):
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(0.01 * workers.rank)
                moved.append(local.step())
            weights.append([w for f in local.fragments for w in f.weights])
            return moved

    assert globalq.run_threads(WORKERS, work) == [[False, False, True, False, True, False, True, False, True]] * 3
    assert all(a.equal(b) for other in weights for a, b in zip(other, weights[0]))


@pytest.mark.parametrize("delay", [0, 4])
def test_a_training_continues_with_the_same_bits(delay):
    make = diloco(operator="cgx:2,feedback,second=4", delay=delay)
    whole = trained(make, steps=40)
    begun = trained(make, saves=22)
    assert [x.equal(y) for (x, *_), (y, *_) in zip(trained(make, loads=begun), whole)] == [True] * WORKERS


def test_an_optimizer_of_torch_moves_the_common_weights():
    def sgd(weights):
        return torch.optim.SGD(weights, lr=0.7, momentum=0.9, nesterov=True)

    own, torchs = trained(diloco()), trained(diloco(outer=sgd))
    assert same(torchs) and (own[0][0] - torchs[0][0]).abs().max() < 1e-4


def test_other_bits_are_told():
    def work(workers):
        model = net()
        local = globalq.torch.DiLoCo(model, workers=workers, every=1, operator="float32", check_every=1)
        if workers.rank == 1:
            local.fragments[0].weights[0].add_(1.0)
        local.step()
        local.step()

    with pytest.raises(globalq.Error, match="rank 1 differ from those of rank 0"):
        globalq.run_threads(2, work)


def test_fragments_that_overlap_keep_one_order_of_calls():
    def work(workers):
        model = net()
        with globalq.torch.DiLoCo(model, workers=workers, every=8, fragments=4, delay=6, operator="cgx:4", min_size=1, check_every=1) as local:
            for step in range(40):
                time.sleep(0.004 * ((step + workers.rank) % 3))
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(0.1 * (workers.rank + 1))
                local.step(tokens=1 + workers.rank)
            return local.means

    assert set(globalq.run_threads(WORKERS, work)) == {17}


def test_close_frees_after_a_mean_that_failed():
    def work(workers):
        local = globalq.torch.DiLoCo(net(), workers=workers, every=2, delay=1, operator="cgx:4")
        local.step()
        if workers.rank == 0:
            local.fragments[0].parameters[0].data.fill_(1)
            workers.refuse("no more")
        local.step()
        with pytest.raises(globalq.Error):
            local.step()
        local.close()
        with pytest.raises(globalq.ConfigurationError, match="closed"):
            local.fragments[0].mean.save()

    globalq.run_threads(2, work)


def refusals(settings_of):
    """What each worker is told by a DiLoCo with the settings of its rank, when none leaves before all have been told."""
    told, all_told = [None] * WORKERS, threading.Barrier(WORKERS, timeout=15)

    def work(workers):
        try:
            diloco(**settings_of(workers.rank))(net(), workers)
        except globalq.Error as problem:
            told[workers.rank] = str(problem)
        all_told.wait()

    globalq.run_threads(WORKERS, work)
    return told


def test_arguments_that_differ_are_refused_on_all_workers():
    differ = {"every": (10, 3), "fragments": (1, 2), "delay": (0, 1), "mix": (None, 0.5), "min_size": (1000000, 1000001), "check_every": (10, 0)}
    for name, (most, odd) in differ.items():
        for rank in range(WORKERS):
            told = refusals(lambda r: {name: odd if r == rank else most})
            assert all(text and f"{name} is " in text and repr(odd) in text and repr(most) in text for text in told), told
    assert all("outer optimizer" in text for text in refusals(lambda r: {"outer": (lambda w: torch.optim.SGD(w, 1.0)) if r == 1 else None}))


def test_arguments_that_one_worker_refuses_reach_all():
    for wrong in {"every": 0}, {"operator": "nonsense"}, {"min_size": -1}, {"delay": 10}:
        told = refusals(lambda r: wrong if r == 1 else {})
        assert all(told), (wrong, told)
    assert all("every" in text for text in refusals(lambda r: {"every": 0}))


def test_what_was_sent_is_reported():
    all_means = [(means, sent) for _, _, means, sent in trained(diloco(operator="cgx:6", fragments=2, check_every=0))]
    row, = [row for row in globalq.torch.report() if row.how == "cgx:6"]
    assert row.call == "outer step" and row.calls == sum(means for means, _ in all_means) == WORKERS * 8, (row, all_means)
    assert row.sent == sum(sent for _, sent in all_means) > 0, (row, all_means)


def test_arguments_are_refused():
    def refused(**settings):
        with pytest.raises(globalq.ConfigurationError) as problem:
            globalq.run_threads(1, lambda workers: globalq.torch.DiLoCo(net(), workers=workers, **settings))
        return str(problem.value)

    assert "shorter delay" in refused(every=5, delay=5)
    assert "at most one for each step" in refused(every=2, fragments=3)
    assert "at most one for each" in refused(fragments=5)
    assert "mix is 2" in refused(delay=1, mix=2)
    assert "nonsense" in refused(operator="nonsense")


def test_started_means_run_in_order():
    def work(workers):
        with globalq.Mean(workers, "float32") as mean:
            xs = [torch.full((100,), float(workers.rank + k)) for k in range(5)]
            started = [mean.start(x, k) for k, x in enumerate(xs)]
            assert all(s.wait() is x and s.done() for s, x in zip(started, xs))
            return [x.mean().item() for x in xs]

    assert globalq.run_threads(WORKERS, work) == [pytest.approx([1, 2, 3, 4, 5])] * WORKERS


def test_parts_have_about_the_same_size():
    named = [(str(k), torch.zeros(size)) for k, size in enumerate([10, 10, 10, 100, 10, 10, 50])]
    parts = cut(named, 3)
    assert [n for part in parts for n, _ in part] == [n for n, _ in named] and all(parts)
    assert max(sum(p.numel() for _, p in part) for part in parts) <= 110


def test_nesterov_rounds_each_operation():
    w, g, rate = torch.randn(1000), torch.randn(1000), 0.7
    outer, moved = Nesterov(rate, 0.9), w.clone()
    outer.step([moved], [g])
    momentum = torch.tensor(0.9)
    expected = w - ((g * momentum) + g) * torch.tensor(rate)
    assert moved.equal(expected) and math.isfinite(moved.sum().item())
