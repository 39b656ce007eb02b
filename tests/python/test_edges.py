# SPDX-License-Identifier: Apache-2.0
"""Arguments that one worker refuses, several threads, signals, overlapping arrays."""

import os
import queue
import signal
import threading

import numpy as np
import pytest

import globalq


def values(length, rank):
    return (((np.arange(length) + 77 * rank) * 2654435761 % 2001 - 1000) / 512).astype("float32")


class Interrupted:
    """Looks like an array and is interrupted when it is read."""

    flags = None

    @property
    def __array_interface__(self):
        raise KeyboardInterrupt



WRONG = {
    "an int": (lambda mean: mean(3, 0), "expected an array"),
    "read-only": (lambda mean: mean(np.frombuffer(bytes(400), "float32"), 0), "read-only"),
    "of another type": (lambda mean: mean(np.zeros(100, "int32"), 0), "int32"),
    "broadcast": (lambda mean: mean(np.lib.stride_tricks.as_strided(np.zeros(1, "float32"), (100,), (0,)), 0), "share memory"),
    "twice": (lambda mean: mean([(x := np.zeros(100, "float32")), x], 0), "overlap"),
    "strided twice": (lambda mean: mean([(x := np.zeros(100, "float32")), x[::2]], 0), "overlap"),
    "too many outputs": (lambda mean: mean([np.zeros(100, "float32")], 0, out=[np.zeros(100, "float32")] * 2), "1 vectors into"),
    "another length": (lambda mean: mean(np.zeros(100, "float32"), 0, out=np.zeros(99, "float32")), "100 values into 99"),
    "a step of another type": (lambda mean: mean(np.zeros(100, "float32"), "first"), "give a whole number"),
    "a closed call": (lambda mean: (mean.close(), mean(np.zeros(100, "float32"), 0)), "closed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_one_worker_refuses_reaches_the_others_and_the_next_call_works(name):
    wrong, text = WRONG[name]

    def work(w):
        mean = globalq.Mean(w, "cgx:4", seed=4)
        if w.rank == 1:
            with pytest.raises(globalq.ConfigurationError, match=text):
                wrong(mean)
            if name == "a closed call":
                mean = globalq.Mean(w, "cgx:4", seed=4)
        else:
            with pytest.raises(globalq.DisagreementError, match=rf"rank 1 refused its arguments \(.*{text}"):
                mean(values(100, w.rank), 0)
        return [mean(values(100, w.rank), step) for step in (1, 2)]

    results = globalq.run_threads(3, work, deadline=20)
    assert all((a == b).all() for r in results for a, b in zip(r, results[0]))


def test_an_interrupt_while_arguments_are_read_reaches_the_others():
    def work(w):
        mean = globalq.Mean(w)
        if w.rank == 0:
            with pytest.raises(KeyboardInterrupt):
                mean(Interrupted(), 0)
        else:
            with pytest.raises(globalq.DisagreementError, match="KeyboardInterrupt"):
                mean(values(10, 0), 0)
        mean(values(10, 0), 1)

    globalq.run_threads(2, work, deadline=20)


def test_a_worker_can_refuse_the_next_call():
    def work(w):
        mean = globalq.Mean(w, "qsgd:4")
        if w.rank == 2:
            w.refuse("the loader has\nno batch")
        else:
            with pytest.raises(globalq.DisagreementError, match=r"rank 2 refused its arguments \(the loader has.no batch\)"):
                mean(values(10, 0), 0)
        return mean(values(10, 0), 1)

    globalq.run_threads(3, work, deadline=20)


def test_shards_are_at_their_place_or_apart():
    def work(w):
        scatter, gather = globalq.ReduceScatter(w, "cgx:4", seed=1), globalq.AllGather(w, "cgx:4", seed=1)
        own = scatter.shard(1000)
        apart, placed = values(1000, w.rank), values(1000, w.rank)
        part = scatter(apart, np.zeros(own.stop - own.start, "float32"), 0)
        scatter(placed, placed[own], 0)
        assert (placed[own] == part).all() and (apart == values(1000, w.rank)).all()
        whole = gather(part, np.zeros(1000, "float32"), 1)
        assert (gather(placed[own], placed, 1) == whole).all()
        for step, wrong in enumerate((lambda x: scatter(x, x[:own.stop - own.start], 2), lambda x: gather(x[:own.stop - own.start], x, 3),
                                      lambda x: scatter(x, x[5:5 + own.stop - own.start], 4),
                                      lambda x: scatter(x, x[::2][:own.stop - own.start], 5))):
            x = values(1000, w.rank)
            kept = x.copy()
            if w.rank == 0 and step < 2:  # this is the place of the first shard
                with pytest.raises(globalq.DisagreementError, match="not at its place"):
                    wrong(x)
            else:
                with pytest.raises(globalq.ConfigurationError, match="not at its place|overlap"):
                    wrong(x)
            assert (x == kept).all()

    globalq.run_threads(2, work, deadline=20)


@pytest.mark.parametrize("a, b, overlap", [
    (lambda x: x, lambda x: x[::2], True),
    (lambda x: x[::2], lambda x: x[1::2], False),
    (lambda x: x[::-1], lambda x: x[::2], True),
    (lambda x: x[:50][::-1], lambda x: x[50:][::-1], False),
    (lambda x: x.reshape(10, 10)[:, :5], lambda x: x.reshape(10, 10)[:, 5:], False),
    (lambda x: x.reshape(10, 10)[:, :5], lambda x: x.reshape(10, 10)[:, 4:], True),
    (lambda x: x.reshape(10, 10).T, lambda x: x.reshape(10, 10)[3], True),
    (lambda x: x[:0], lambda x: x[::2], False),
])
def test_strided_arrays_overlap_where_they_share_an_element(a, b, overlap):
    def work(w):
        x = values(100, 0)
        mean = globalq.Mean(w)
        if not overlap:
            mean([a(x), b(x)], 0)
            mean(a(x), 2, out=np.zeros(a(x).shape, "float32"))
            return
        with pytest.raises(globalq.ConfigurationError, match="overlap"):
            mean([a(x), b(x)], 0)
        mean([a(x), b(x)], 4, out=[np.zeros(a(x).shape, "float32"), np.zeros(b(x).shape, "float32")])  # only read

    globalq.run_threads(1, work)


def test_threads_share_workers_or_have_duplicates():
    def work(w):
        problems = []

        def average(over, seed):
            try:
                with globalq.Mean(over, "global-uniform:8", seed=seed) as mean:
                    return [mean(values(2000, w.rank), step) for step in range(30)]
            except Exception as problem:
                problems.append(problem)

        other = w.duplicate()
        assert (other.rank, other.size) == (w.rank, w.size)
        thread = threading.Thread(target=average, args=(other, 1))
        thread.start()
        mine = average(w, 0)
        thread.join()
        assert not problems
        other.close()
        return mine

    results = globalq.run_threads(2, work, deadline=60)
    assert all((a == b).all() for a, b in zip(*results))
    with pytest.raises(globalq.ConfigurationError, match="has no duplicate"):
        globalq.MessageWorkers(0, 1).duplicate()


def test_processes_duplicate_named_memory(run_processes):
    script = """
import numpy, os, threading, globalq
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
w = globalq.NamedMemory(os.environ["NAME"], rank, size, 60)
second = w.duplicate()
found = {}
def average(name, over):
    mean = globalq.Mean(over, "cgx:4", seed=2)
    found[name] = [mean(numpy.full(500, rank + 1, "float32"), s) for s in range(20)]
threads = [threading.Thread(target=average, args=a) for a in (("a", w), ("b", second))]
[t.start() for t in threads], [t.join() for t in threads]
assert all((a == b).all() for a, b in zip(found["a"], found["b"]))
assert second.bytes_sent > 0
"""
    run_processes(script, 3, NAME=globalq.new_name())


class Closing(globalq.MessageWorkers):
    """Calls a function while it sends."""

    def __init__(self, rank, boxes, meanwhile):
        self.boxes, self.mine, self.meanwhile = boxes, boxes[rank], meanwhile
        super().__init__(rank, 2)

    def send(self, peer, view):
        self.meanwhile()
        self.boxes[peer].put(bytes(view))

    def receive(self, peer, view):
        return view

    def wait(self, ticket):
        if ticket is not None:
            ticket[:] = self.mine.get(timeout=20)


@pytest.mark.parametrize("what", ["the call", "the workers", "a chooser"])
def test_closing_inside_a_call_waits_for_its_end(what):
    boxes, results = [queue.Queue(), queue.Queue()], [None, None]

    def work(rank):
        def meanwhile():
            {"the call": lambda: mean.close(), "the workers": lambda: w.close(), "a chooser": lambda: chooser.close()}[what]()

        w = Closing(rank, boxes, lambda: None)
        from globalq._calls import Chooser

        chooser = Chooser(w, [("a", (100,))], "cgx:4", "lgreco", 1.0)
        mean = globalq.Mean(w, "cgx:4")
        w.meanwhile = meanwhile
        if what == "a chooser":
            chooser.add(0, values(100, rank))
            chooser.choose(0)
        else:
            results[rank] = mean(values(100, rank), 0)
        w.meanwhile = lambda: None
        with pytest.raises(globalq.ConfigurationError, match="closed"):
            chooser.choose(1) if what == "a chooser" else mean(values(100, rank), 1)

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(2)]
    [t.start() for t in threads]
    [t.join(30) for t in threads]
    assert not any(t.is_alive() for t in threads)
    if what != "a chooser":
        assert (results[0] == results[1]).all()


def test_closing_in_a_signal_handler_does_not_wait_for_itself(run_processes):
    script = """
import os, queue, signal, threading, numpy, globalq
w = None
class Alone(globalq.MessageWorkers):
    def send(self, peer, view):
        os.kill(os.getpid(), signal.SIGUSR1)  # the handler runs before the next line
        raise OSError("the peer is not there")
    def receive(self, peer, view):
        return None
    def wait(self, ticket):
        raise OSError("nothing comes")
w = Alone(0, 2)
mean = globalq.Mean(w, "cgx:4")
closed = []
signal.signal(signal.SIGUSR1, lambda *_: (mean.close(), closed.append(1)))
try:
    mean(numpy.zeros(10, "float32"), 0)
except globalq.TransportError:
    pass
assert closed
mean.close()
"""
    run_processes(script, 1, timeout=60)


def test_layers_and_states_of_wrong_types_are_refused_with_a_sentence():
    def work(w):
        for layers, text in (([("a",)], r"layer 0 is \('a',\); give"), ([("a", 3)], "layer 0"), ([("a", (1,), None, None, 1)], "layer 0"), ([3], "layer 0")):
            with pytest.raises(globalq.ConfigurationError, match=text):
                globalq.Mean(w, layers=layers)
        with pytest.raises(globalq.ConfigurationError) as problem:
            globalq.Mean(w, "cgx:4", layers=[("a\x1b[31m\nb", (3,)), ("a\x1b[31m\nb", (3,))])
        assert "a?[31m?b" in str(problem.value)
        mean = globalq.Mean(w, "top-k:0.1", layers=[("a", (3,))])
        for states in (3, b"abc", ["abc"], [3], None):
            with pytest.raises(globalq.ConfigurationError, match="list of states"):
                mean.load(states)

    globalq.run_threads(1, work)
    for workers in (None, 3, "memory"):
        with pytest.raises(globalq.ConfigurationError, match="workers is a"):
            globalq.Mean(workers)


def test_tensors_without_values_in_memory_are_refused():
    torch = pytest.importorskip("torch")

    class Distributed(torch.Tensor):
        def to_local(self):
            return self

    def work(w):
        mean = globalq.Mean(w)
        with pytest.raises(globalq.ConfigurationError, match="to_local"):
            mean(torch.zeros(8).as_subclass(Distributed), 0)
        with pytest.raises(globalq.ConfigurationError, match="on device meta"):
            mean(torch.zeros(8, device="meta"), 0)
        with pytest.raises(globalq.ConfigurationError, match="overlap"):
            mean([(x := torch.zeros(8)), x[::2]], 0)
        mean([(x := torch.zeros(8))[::2], x[1::2]], 2)

    globalq.run_threads(1, work)


def test_a_process_group_is_accepted(run_processes):
    pytest.importorskip("torch")
    script = """
import os, torch, torch.distributed as dist, globalq
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=int(os.environ["RANK"]), world_size=2)
with globalq.Mean(dist.group.WORLD, "cgx:4") as mean:
    x = mean(torch.full((100,), float(dist.get_rank())), 0)
    assert mean.workers.size == 2
seen = [torch.zeros(100) for _ in range(2)]
dist.all_gather(seen, x)
assert (seen[0] == seen[1]).all()
"""
    run_processes(script, 2)
