# SPDX-License-Identifier: Apache-2.0
"""Means of arrays: threads, processes, messages; types; what is refused."""

import copy
import os
import pickle
import queue
import subprocess
import sys
import threading

import numpy as np
import pytest

import globalq


def values(length, rank, dtype="float32"):
    return (((np.arange(length) + 77 * rank) * 2654435761 % 2001 - 1000) / 512).astype(dtype)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_mean_without_quantization_is_exact(workers, dtype):
    def work(w):
        x = values(1003, w.rank, dtype)
        return globalq.Mean(w)(x, 0)

    exact = sum(values(1003, r, "float64") for r in range(workers)) / workers
    results = globalq.run_threads(workers, work)
    for y in results:
        assert y.dtype == dtype and (y == results[0]).all()
        # float32: at most workers additions and a product, each rounded by 2^-24; then the type's own rounding
        assert np.abs(y - exact).max() <= (workers + 1) * 2.0**-23 * 2 * workers + (2.0**-10 if dtype == "float16" else 0)


def test_every_operator_gives_all_workers_the_same_bits_near_the_mean():
    exact = sum(values(5000, r, "float64") for r in range(3)) / 3
    for op in globalq.operators():
        if not op.schedule:  # a compressor, which is not unbiased
            continue
        name = {"alq": "alq:3,levels=0:0.1:1", "amq": "amq:3,multiplier=0.5", "qsdp-grid": "qsdp-grid:4", "bounded": "bounded:0.01,range=4"}.get(op.name, op.name)
        reports = []

        def work(w):
            with globalq.Mean(w, name, seed=3, measure_errors=True) as mean:
                y = mean(values(5000, w.rank), 7)
                reports.append(mean.report())
                return y

        results = globalq.run_threads(3, work)
        assert all((y == results[0]).all() for y in results), name
        plan = globalq.plan(name, 5000, 3)
        squares = sum(float((values(5000, r, "float64")**2).sum()) for r in range(3))
        assert reports[0]["calls"] == 1 and reports[0]["values"] == 5000 and reports[0]["bytes_sent"] <= plan.bytes_sent, name
        if plan.theta == plan.theta:  # a bound on the expectation; 30 times it is beyond what chance does
            assert float(((results[0] - exact)**2).sum()) <= 30 * plan.theta / 3 * squares + 1e-6, name


@pytest.mark.parametrize("operator, rounds", [("top-k:0.05", 21), ("power-sgd:1", 30)])
def test_what_a_compressor_has_not_sent_is_the_error_that_it_keeps(operator, rounds):
    shape = (16, 40)
    layers = [("w", shape, "float32", operator), ("b", (16,), "float32", "cgx:8"), ("n", (3, 3), "float64", "float32")]

    def gradient(step, rank):
        return np.random.default_rng(100 * step + rank).standard_normal(shape).astype("float32")

    def work(w):
        with globalq.Mean(w, layers=layers, seed=5) as mean:
            sent, brought = np.zeros(shape), np.zeros(shape)
            for step in range(rounds):
                g = gradient(step, w.rank)
                brought += sum(gradient(step, r).astype("float64") for r in range(w.size)) / w.size
                bias, norm = np.full(16, float(w.rank), "float32"), np.full((3, 3), float(w.rank))
                mean([g, bias, norm], step)
                assert np.abs(bias - (w.size - 1) / 2).max() < 0.2 and (norm == (w.size - 1) / 2).all()
                sent += g
            assert mean.report()["failed"] == 0
            return sent, brought, mean.save()

    results = globalq.run_threads(3, work)
    sent, brought, _ = results[0]
    assert all((sent == s).all() for s, _, _ in results)

    def rest(w):  # the mean of what all keep, sent whole
        whole = {"top-k:0.05": "top-k:1", "power-sgd:1": "power-sgd:16"}[operator]
        with globalq.Mean(w, layers=[("w", shape, "float32", whole)]) as mean:
            mean.load([results[w.rank][2]])
            return mean(np.zeros(shape, "float32"), 0)

    for left in globalq.run_threads(3, rest):
        np.testing.assert_allclose(sent + left, brought, atol=2e-5)
    assert np.linalg.norm(brought - sent) > 1  # something was left
    assert np.linalg.norm(brought - sent) < 0.9 * np.linalg.norm(brought)


@pytest.mark.parametrize("non_finite", ["propagate", "error"])
@pytest.mark.parametrize("bad", range(4))
def test_nan_in_one_layer_is_nan_in_all_and_nothing_of_that_step_is_kept(bad, non_finite):
    layers = [("a", (30, 30), "float32", "top-k:0.1"), ("b", (64,), "float64", "cgx:4"),
              ("c", (20, 30), "float32", "power-sgd:1"), ("d", (50,), "float32", "top-k:0.2")]

    def gradients(step, rank):
        draw = np.random.default_rng(10 * step + rank)
        return [draw.standard_normal(shape).astype(dtype) for _, shape, dtype, _ in layers]

    def work(w):
        with globalq.Mean(w, layers=layers, non_finite=non_finite) as mean:
            mean(gradients(0, w.rank), 0)
            before = errors_of(mean.save())
            x = gradients(1, w.rank)
            if w.rank == 1:
                x[bad].flat[3] = np.nan
            if non_finite == "error":
                with pytest.raises(globalq.NonFiniteError):
                    mean(x, 1)
            else:
                assert all(np.isnan(y).all() for y in mean(x, 1))
            assert errors_of(mean.save()) == before
            assert all(np.isfinite(y).all() for y in mean(gradients(2, w.rank), 2))
            assert mean.report()["non_finite"] == 1

    def errors_of(state):  # "a" to "d" come before the matrices of "c"
        end = state.find(b"q/c")
        assert end > 0
        return state[:end]

    globalq.run_threads(2, work)


def test_levels_are_learned_and_vectors_clipped():
    def work(w):
        x = values(20000, w.rank, "float64")**5
        found = []
        with globalq.Mean(w, "alq:3", seed=3, learn_at="1,every 7", measure_errors=True) as mean:
            for step in range(3):
                mean(x.copy(), step)
                found.append(mean.report()["normalized_error"])
        with globalq.Mean(w, "terngrad:1.5", seed=3) as clipped:
            found.append(float(np.abs(clipped(x.copy(), 0)).max() / x.std()))
        return found

    for before, learned, later, largest in globalq.run_threads(2, work):
        assert learned < 0.8 * before and later < 0.8 * before
        assert largest <= 1.6  # standard deviations, which differ a little between the workers


def test_steps_and_seeds_select_the_random_bits():
    def work(w):
        mean, other = globalq.Mean(w, "qsgd:4", seed=1), globalq.Mean(w, "qsgd:4", seed=2)
        return [m(values(600, w.rank), s).tobytes() for m, s in ((mean, 0), (mean, 0), (mean, 1), (other, 0))]

    first, again, next_step, other_seed = globalq.run_threads(2, work)[0]
    assert first == again and first != next_step and first != other_seed


def test_reused_steps_are_refused_while_the_variable_is_set(monkeypatch):
    monkeypatch.setenv("GLOBALQ_CHECK_STEPS", "1")

    def work(w):
        x, y = values(1000, w.rank), values(70, w.rank)
        with globalq.Mean(w, "qsgd:4") as mean:
            mean(x, 0)
            mean([x, y], 1)
            for again in (lambda: mean(x, 2), lambda: mean([x, y], 0)):
                with pytest.raises(globalq.ConfigurationError, match="draws random bits of an earlier call"):
                    again()
            mean(x, 3)

    globalq.run_threads(2, work)


def test_outputs_groups_and_layers():
    def work(w):
        mean = globalq.Mean(w, "cgx:8", seed=5)
        x, y = values(300, w.rank), np.zeros(300, "float32")
        before = x.copy()
        assert mean(x, 0, out=y) is y and (x == before).all()
        a, b = values(100, w.rank), values(7, w.rank, "float64")
        mean([a, b], 1)
        layered = globalq.Mean(w, "cgx:4", layers=[("w", (10, 30), "float32"), ("b", (30,), "float32", "float32")], warm_up=1)
        assert layered.operator(1) == "float32" and "packed:4" in layered.operator(0)
        p, q = values(300, w.rank).reshape(10, 30), values(30, w.rank)
        layered([p, q], 0)
        exact = p.copy()
        layered([p, q], 1)
        return y, a, b, exact, p, q, layered.plan().bytes_sent

    results = globalq.run_threads(3, work)
    for k in range(6):
        assert all((r[k] == results[0][k]).all() for r in results), k
    exact = sum(values(300, r, "float64") for r in range(3)) / 3
    assert np.abs(results[0][3].ravel() - exact).max() < 1e-5, "the warm-up is not quantized"
    assert results[0][6] > 0


def test_shards():
    def work(w):
        scatter, gather = globalq.ReduceScatter(w, "qsdp", seed=1), globalq.AllGather(w, "qsdp", seed=1)
        s = scatter.shard(3000)
        own = np.zeros(s.stop - s.start, "float32")
        scatter(values(3000, w.rank), own, 0)
        whole = np.zeros(3000, "float32")
        gather(own, whole, 1)
        with pytest.raises(globalq.ConfigurationError, match="but that of a vector of"):
            gather(whole, whole.copy(), 2)
        return whole

    results = globalq.run_threads(3, work)
    exact = sum(values(3000, r, "float64") for r in range(3)) / 3
    assert all((y == results[0]).all() for y in results)
    assert np.abs(results[0] - exact).max() < 0.1


def test_broadcast():
    def work(w):
        send = globalq.Broadcast(w, "cgx:8", root=1, seed=1)
        x = values(3000, w.rank)
        y = send(x, 0, np.zeros(3000, "float32"))
        send(x, 0)
        assert (x == y).all()
        with pytest.raises(globalq.ConfigurationError, match="pass a root from 0 to 2"):
            globalq.Broadcast(w, root=3)
        return y

    results = globalq.run_threads(3, work)
    assert all((y == results[0]).all() for y in results)
    assert np.abs(results[0] - values(3000, 1)).max() < 0.1


def test_all_to_all():
    def work(w):
        exchange = globalq.AllToAll(w, "cgx:8", seed=1)
        x = np.concatenate([values(1000, 10 * w.rank + p) for p in range(3)])
        y = exchange(x, 0, np.zeros(3000, "float32"))
        exchange(x, 0)
        assert (x == y).all()
        with pytest.raises(globalq.Error, match="pass a multiple of 3"):
            exchange(np.zeros(1000, "float32"), 1)
        return y

    for r, y in enumerate(globalq.run_threads(3, work)):
        exact = np.concatenate([values(1000, 10 * p + r) for p in range(3)])
        assert np.abs(y - exact).max() < 0.1


def test_arrays_that_are_not_contiguous_are_copied_and_that_is_said_once():
    def work(w):
        x = np.zeros((20, 30), "float32")
        x[:, ::3] = values(200, w.rank).reshape(20, 10)
        globalq.Mean(w)(x[:, ::3], 0)
        return x

    globalq._calls.said.clear()
    with pytest.warns(UserWarning, match="not contiguous") as seen:
        results = globalq.run_threads(2, work)
    assert len(seen) == 1
    exact = (values(200, 0) + values(200, 1)) / 2
    assert (results[0][:, ::3].ravel() == exact).all() and results[0][0, 1] == 0


def test_nan_is_counted_or_an_error():
    def work(w):
        x = values(100, w.rank)
        if w.rank == 1:
            x[5] = np.nan
        mean = globalq.Mean(w, "cgx:4")
        y = mean(x.copy(), 0)
        assert np.isnan(y).all()
        report = mean.report()
        assert report["non_finite"] == 1 and report["non_finite_rank"] == 1
        with pytest.raises(globalq.NonFiniteError, match="rank 1"):
            globalq.Mean(w, "cgx:4", non_finite="error")(x, 1)

    globalq.run_threads(3, work)


def test_disagreement_is_an_error_of_all_and_changes_nothing():
    def work(w):
        x = values(100, 0)
        with pytest.raises(globalq.DisagreementError, match="seed"):
            globalq.Mean(w, "cgx:4", seed=w.rank // 2)(x, 0)
        assert (x == values(100, 0)).all()

    globalq.run_threads(3, work)


@pytest.mark.parametrize("call, text", [
    (lambda w: globalq.Mean(w, "nonsense"), "is not an operator"),
    (lambda w: globalq.Mean(w, "cgx:4", schedule="nowhere"), "unknown"),
    (lambda w: globalq.Mean(w, "cgx:4", non_finite="maybe"), "propagate"),
    (lambda w: globalq.Mean(w, "top-k:0.01"), "use it for a layer of a mean"),
    (lambda w: globalq.Mean(w, "top-k:1.01", layers=[("w", (3,))]), "above 0 and at most 1"),
    (lambda w: globalq.Mean(w, "top-k:1", layers=[("w", (3,), "float64")]), "compressors take float32"),
    (lambda w: globalq.ReduceScatter(w, "terngrad:2.5"), "clips"),
    (lambda w: globalq.Mean(w, "alq:3", learn_at="now"), 'learn_at: "now"'),
    (lambda w: globalq.Mean(w)([1.0, 2.0], 0), "expected an array"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "int32"), 0), "int32"),
    (lambda w: globalq.Mean(w)(np.zeros(3, ">f4"), 0), "byte order"),
    (lambda w: globalq.Mean(w)(np.frombuffer(bytes(12), "float32"), 0), "read-only"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "float32"), 0, out=np.zeros(4, "float32")), "3 values into 4"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "float32"), 0, out=np.zeros(3)), "different types"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "float32"), 2**48), "step"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "float32"), 2**64), "step is 18446744073709551616"),
    (lambda w: globalq.Mean(w)(np.zeros(3, "float32"), 1.5), "give a whole number"),
    (lambda w: globalq.Mean(w, seed=-1), "seed is -1"),
    (lambda w: globalq.Mean(w, "cgx:4\0"), "without NUL"),
    (lambda w: globalq.Mean(w)(np.float32(3), 0), "expected an array"),
    (lambda w: globalq.Mean(w)(np.lib.stride_tricks.as_strided(np.zeros(3, "float32"), (3, 3), (4, 4)), 0), "share memory"),
    (lambda w: globalq.Mean(w)([(x := np.zeros(9, "float32")), x], 0), "overlap"),
    (lambda w: globalq.Mean(w)([(x := np.zeros(9, "float32"))[:5], x[4:]], 0), "overlap"),
    (lambda w: copy.deepcopy(w), "cannot be copied"),
    (lambda w: pickle.dumps(globalq.Mean(w)), "cannot be copied"),
])
def test_refusals(call, text):
    with pytest.raises(globalq.ConfigurationError, match=text):
        globalq.run_threads(1, call)


def test_a_body_that_raises_ends_the_others_and_is_raised():
    ended = []

    def work(w):
        if w.rank == 1:
            raise KeyError("mine")
        try:
            globalq.Mean(w)(np.zeros(10, "float32"), 0)
        except globalq.TransportError as problem:
            ended.append(str(problem))
            raise

    with pytest.raises(KeyError, match="mine"):
        globalq.run_threads(3, work)
    assert len(ended) == 2


def test_handles_are_closed_in_any_order():
    w = globalq.NamedMemory(globalq.new_name(), 0, 1)
    mean = globalq.Mean(w)
    mean.close()
    mean.close()
    with pytest.raises(globalq.ConfigurationError, match="closed"):
        mean(np.zeros(3, "float32"), 0)
    w.close()
    with pytest.raises(globalq.ConfigurationError, match="closed"):
        w.rank
    assert "closed" in repr(w)


def test_calls_end_with_their_workers():
    kept = []
    globalq.run_threads(1, lambda w: kept.append(globalq.Mean(w)))
    with globalq.NamedMemory(globalq.new_name(), 0, 1) as w:
        kept.append(globalq.Mean(w))
    for mean in kept:
        with pytest.raises(globalq.ConfigurationError, match="closed"):
            mean(np.zeros(3, "float32"), 0)
        mean.close()


def test_a_call_is_used_by_one_thread_at_a_time():
    entered, go = threading.Event(), threading.Event()

    class Slow(globalq.MessageWorkers):
        def send(self, peer, view):
            return None

        def receive(self, peer, view):
            return None

        def wait(self, ticket):
            entered.set()
            go.wait(10)
            raise OSError("late")

    w = Slow(0, 2)
    mean, told = globalq.Mean(w), []

    def run():
        try:
            mean(np.zeros(10, "float32"), 0)
        except globalq.TransportError as problem:
            told.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    with pytest.raises(globalq.ConfigurationError, match="another thread"):
        mean.report()
    go.set()
    w.close()
    mean.close()
    thread.join()
    assert isinstance(told[0].__cause__, OSError)


class Unprintable(OSError):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize("problem, expected", [(Unprintable(), globalq.TransportError), (OSError("\udce9"), globalq.TransportError),
                                               (KeyboardInterrupt(), KeyboardInterrupt)])
def test_what_a_function_of_messages_raises_is_told(problem, expected):
    class Broken(globalq.MessageWorkers):
        def send(self, peer, view):
            raise problem

        receive = wait = send

    with pytest.raises(expected) as found:
        globalq.Mean(Broken(0, 2))(np.zeros(10, "float32"), 0)
    assert found.value is problem or found.value.__cause__ is problem


FORKS = """
import os, sys
import numpy as np
import globalq
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
w = globalq.NamedMemory(sys.argv[1], rank, size, deadline=30)
mean = globalq.Mean(w, seed=1)
child = os.fork() if rank == 0 else None
if child == 0:
    try:
        mean(np.zeros(10, "float32"), 0)
    except globalq.TransportError as problem:
        sys.exit(0 if "was forked from" in str(problem) else 1)
    sys.exit(2)
if child is not None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
y = mean(np.full(10, rank, "float32"), 0)
assert (y == 0.5).all(), y
"""


def test_a_forked_process_leaves_the_job_alone(run_processes):
    run_processes(FORKS, 2, globalq.new_name())


FORKED_KERNELS = """
import os, signal, sys
import numpy as np
import globalq

def mean_of(name, rank=0, size=1):
    x = ((np.arange(1 << 20) + 7 * rank) % 2001 - 1000).astype("float32")
    with globalq.NamedMemory(name, rank, size, deadline=60) as w, globalq.Mean(w, "cgx:4", seed=1) as mean:
        return mean(x, 0)

own, pair = globalq.new_name(), globalq.new_name()
before = mean_of(globalq.new_name())  # the threads of the kernels exist now
children = []
for rank in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(90)
        right = (mean_of(own + str(rank)) == before).all() and np.isfinite(mean_of(pair, rank, 2)).all()
        os._exit(0 if right else 1)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
"""


def run_alone(script, **environment):
    return subprocess.run([sys.executable, "-c", script], env=dict(os.environ, **environment), timeout=120, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_forked_processes_compute_the_same_bits_with_new_handles():
    ended = run_alone(FORKED_KERNELS, OMP_NUM_THREADS="4")
    assert ended.returncode == 0, ended.stdout


DAEMONS = """
import threading, time
import numpy as np
import globalq

started = threading.Event()

def endless(w):
    mean = globalq.Mean(w, seed=1)
    for step in range(10**9):
        mean(np.zeros(1000, "float32"), step)
        started.set()

class Stuck(globalq.MessageWorkers):
    def send(self, peer, view):
        pass

    receive = send

    def wait(self, ticket):
        started.set()
        while True:
            time.sleep(0.001)

threading.Thread(target=run, daemon=True).start()
started.wait(60)
time.sleep(0.1)
"""


@pytest.mark.parametrize("run", ["lambda: globalq.run_threads(3, endless)", "lambda: endless(Stuck(0, 2))"])
def test_the_interpreter_ends_while_a_daemon_thread_is_in_a_call(run):
    ended = run_alone(DAEMONS.replace("target=run", f"target={run}"), OMP_NUM_THREADS="1")
    assert (ended.returncode, ended.stdout) == (0, "")


class Post(globalq.MessageWorkers):
    """Messages through queues; broken after a number of them."""

    def __init__(self, boxes, rank, size, breaks=10**9):
        self.boxes, self.me, self.left = boxes, rank, breaks
        super().__init__(rank, size)

    def send(self, peer, view):
        self.left -= 1
        if self.left < 0:
            raise OSError("the cable is out")
        self.boxes[self.me, peer].put(bytes(view))
        return None

    def receive(self, peer, view):
        return peer, view

    def wait(self, ticket):
        if ticket is not None:
            peer, view = ticket
            view[:] = self.boxes[peer, self.me].get(timeout=5)


def over_messages(size, body, breaks=None):
    boxes = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
    results = [None] * size

    def run(rank):
        try:
            with Post(boxes, rank, size, (breaks or {}).get(rank, 10**9)) as w:
                results[rank] = body(w)
        except Exception as problem:
            results[rank] = problem

    crew = [threading.Thread(target=run, args=(r,)) for r in range(size)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    return results


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_messages_of_python_give_the_same_bits(size):
    def work(w):
        return globalq.Mean(w, "cgx:4", seed=1)(values(2000, w.rank), 0)

    for y, expected in zip(over_messages(size, work), globalq.run_threads(size, work)):
        assert (y == expected).all()


def test_messages_that_fail_are_errors_with_their_text():
    found = over_messages(2, lambda w: globalq.Mean(w, "cgx:4")(values(2000, w.rank), 0), breaks={0: 1})
    assert isinstance(found[0], globalq.TransportError) and "OSError: the cable is out" in str(found[0])
    assert isinstance(found[1], globalq.TransportError)


PROCESSES = """
import os, signal, sys
import numpy as np
import globalq
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with globalq.NamedMemory(sys.argv[1], rank, size, deadline=30) as w:
    mean = globalq.Mean(w, "cgx:4", seed=1)
    x = ((np.arange(3000) + 77 * rank) * 2654435761 % 2001 - 1000).astype("float32") / 512
    mean(x, 0)
    print(hash(x.tobytes()), flush=True)
    if sys.argv[2] == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        mean(x, 1)
    except globalq.TransportError as problem:
        print(problem)
        sys.exit(3)
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_processes_that_share_memory(run_processes, size):
    outputs = run_processes(PROCESSES, size, globalq.new_name(), "all", PYTHONHASHSEED="0")
    assert len(set(outputs)) == 1
    assert not [f for f in os.listdir("/dev/shm") if f.startswith("globalq-py")]


def test_a_killed_process_is_an_error_of_the_others(run_processes):
    outputs = run_processes(PROCESSES, 3, globalq.new_name(), "kill", expect=[3, -9, 3])
    assert "rank 1 died" in outputs[0] and ("rank 1 died" in outputs[2] or "rank 0 failed" in outputs[2])


def test_operators_are_listed_with_their_parameters():
    names = [op.name for op in globalq.operators()]
    assert "qsgd" in names and "float32" in names and len(names) == len(set(names))
    cgx = globalq.operators()[names.index("cgx")]
    assert cgx.schedule == "sra" and "bits=4: " in cgx.parameters and "Markov" in cgx.source
    assert "rotate=0: " in globalq.words()
    words = "norm=local:inf bucket=128 wire=packed:4 schedule=sra"
    assert globalq.plan(words, 1 << 20, 8) == globalq.plan("cgx:4", 1 << 20, 8)
    assert globalq.plan(words + " rotate=1024", 1 << 20, 8) == globalq.plan("cgx:4,rotate=1024", 1 << 20, 8)
    with pytest.raises(globalq.ConfigurationError, match="rotation"):
        globalq.plan("cgx:4 rotation=1024", 10, 2)
    assert globalq.plan("cgx:4", 1 << 20, 8).bits_per_value == pytest.approx(4.25, abs=0.01)
    with pytest.raises(globalq.ConfigurationError):
        globalq.plan("cgx:4", 10, 0)
