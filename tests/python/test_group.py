# SPDX-License-Identifier: Apache-2.0
"""The back end "globalq" of torch.distributed, in processes."""

import pytest

torch = pytest.importorskip("torch")

from globalq._report import Counters, Report, Traffic, main

PREAMBLE = """
import logging, os, signal, sys, threading, time
import torch, torch.distributed as dist
import globalq, globalq.torch
from datetime import timedelta

torch.set_num_threads(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def start(options={"operator": "cgx:4"}, seconds=30):
    dist.init_process_group("globalq", init_method=os.environ["INIT"], rank=rank, world_size=size, timeout=timedelta(seconds=seconds),
                            pg_options=options)


def drawn(count, r=rank, dtype=torch.float32):
    return torch.randn(count, generator=torch.Generator().manual_seed(r + 1)).to(dtype)


def total(count, dtype=torch.float32):
    return sum(drawn(count, r, dtype).double() for r in range(size))


def same(x):
    x = x.double()
    rows = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(rows, x)
    return all(row.equal(rows[0]) for row in rows)


def off(x, exact):
    return ((x.double() - exact).norm() / exact.norm()).item()


def trained(model, steps, x, backward=lambda loss, step: loss.backward()):
    # to return x, with clipped gradients; the loss falls
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    for step in range(steps):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        backward(loss, step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


def raised(action):
    try:
        action()
    except Exception as problem:
        return problem
    return None
"""


def test_sums_are_compressed_and_everything_else_is_passed_on(run_processes):
    script = PREAMBLE + """
start()
assert dist.get_backend() == "globalq"
for dtype in torch.float32, torch.float64, torch.float16, torch.bfloat16:
    x = drawn(5000, dtype=dtype)
    dist.all_reduce(x)
    assert same(x) and 0.01 < off(x, total(5000, dtype)) < 0.3, (dtype, off(x, total(5000, dtype)))
first, second = drawn(5000), drawn(5000)
dist.all_reduce(first), dist.all_reduce(second)
assert not first.equal(second)  # other random bits

works = [dist.all_reduce(drawn(5000), async_op=True) for _ in range(3)]
assert all(w.wait() and w.get_future().done() for w in works)

out = torch.empty(2000)
dist.reduce_scatter(out, [part.clone() for part in drawn(2000 * size).view(size, -1)])
exact = total(2000 * size).view(size, -1)[rank]
assert 0.01 < off(out, exact) < 0.3

exactly = [("a few values", drawn(4000), {}), ("integers", torch.arange(5000), {}), ("MAX", drawn(5000), {"op": dist.ReduceOp.MAX})]
for what, x, how in exactly:
    given = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(given, x)
    dist.all_reduce(x, **how)
    expected = torch.stack(given).max(0)[0] if how else torch.stack(given).sum(0)
    assert off(x, expected.double()) < 1e-6, what
x = drawn(5000)
dist.broadcast(x, 0)
assert x.equal(drawn(5000, 0))
dist.barrier()
(dist.send if rank == 0 else dist.recv)(x, 1 - rank) if rank < 2 else None
told = [None] * size
dist.all_gather_object(told, rank)
assert told == list(range(size))

group = dist.new_group(list(range(size)))  # has the options of the first
x = drawn(5000)
dist.all_reduce(x, group=group)
assert 0.01 < off(x, total(5000)) < 0.3

x = drawn(5000)
x[7] = float("nan") if rank == 1 else 0
dist.all_reduce(x)
assert x.isnan().all()

rows = {row[:3]: row for row in globalq.torch.report()}
sums = rows["all_reduce", "cgx:4", ""]
assert sums.calls == 11 and 0 < sums.sent < sums.bytes and 0.01 < sums.error < 0.1 and sums.seconds > 0, sums
assert rows["all_reduce", "gloo", "operation MAX"].bytes == 20000
assert rows["all_reduce", "gloo", "type int64"].values == 5000
assert rows["all_reduce", "gloo", "fewer than 4096 values"].calls == 1
assert rows["broadcast", "gloo", ""].sent is None
assert "cgx:4" in str(globalq.torch.report(group) if size else "")
dist.destroy_process_group()
"""
    run_processes(script, 3)


def test_contexts_choose_the_operator_in_all_threads_and_a_process_that_differs_is_told(run_processes):
    script = PREAMBLE + """
start()
errors = {}
for name, context in (("cgx:8", globalq.torch.operator("cgx:8")), ("none", globalq.torch.uncompressed())):
    x = drawn(5000)
    with context:
        thread = threading.Thread(target=dist.all_reduce, args=(x,))
        thread.start()
        thread.join()
    errors[name] = off(x, total(5000))
assert 0.0005 < errors["cgx:8"] < 0.03 and errors["none"] < 1e-6, errors

for context in globalq.torch.operator("cgx:8"), globalq.torch.uncompressed():
    x = drawn(5000)
    if rank == 0:
        with context:
            problem = raised(lambda: dist.all_reduce(x))
    else:
        problem = raised(lambda: dist.all_reduce(x))
    assert isinstance(problem, globalq.DisagreementError), problem
    assert x.equal(drawn(5000))
dist.all_reduce(x)
assert 0.01 < off(x, total(5000)) < 0.3

text = str(raised(lambda: globalq.torch.operator("cgx:2,feedback")))
assert "DDPHook" in text, text
"""
    run_processes(script, 3)


def test_ddp_trains_with_one_line_changed(run_processes):
    script = PREAMBLE + """
start({"operator": "cgx:8"})
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.05)


def backward(loss, step):
    thread = threading.Thread(target=loss.backward) if step % 2 else None
    if thread is None:
        loss.backward()
    else:
        thread.start(), thread.join()


trained(model, 8, drawn(64 * 16).view(16, 64), backward)
assert same(torch.cat([p.detach().view(-1) for p in net.parameters()]))
sums = next(row for row in globalq.torch.report() if row.how == "cgx:8")
assert sums.call == "all_reduce" and sums.calls >= 8, sums
"""
    run_processes(script, 2)


def test_ddp_raises_the_text_of_an_error(run_processes):
    script = PREAMBLE + """
start({"operator": "cgx:8", "non_finite": "error"})
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 256))
x = drawn(64 * 16).view(16, 64)
if rank == 1:
    x[0, 0] = float("inf")
problem = raised(lambda: model(x).square().mean().backward())
assert "input of rank 1 contains NaN" in str(problem), problem
"""
    run_processes(script, 2)


def test_gathers_of_weights_have_the_same_bits_everywhere(run_processes):
    script = PREAMBLE + """
start({"operator": "cgx:4", "weights": "qsdp:8"})
gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
for count in 5000, 8192, 4099:
    out = torch.empty(size * count)
    gather(out, drawn(count))
    exact = torch.cat([drawn(count, r) for r in range(size)])
    assert same(out) and 0 < off(out, exact.double()) < 0.02, (count, off(out, exact.double()))
if torch.__version__ > "2":  # an older gloo has no all_gather into one tensor
    small = torch.empty(size * 10)
    gather(small, drawn(10))
    assert small.equal(torch.cat([drawn(10, r) for r in range(size)]))
rows = {row[:3]: row for row in globalq.torch.report()}
assert rows["all_gather", "qsdp:8", ""].calls == 3, rows
"""
    run_processes(script, 3)


def test_connections_carry_the_same_bits_as_shared_memory(run_processes):
    script = PREAMBLE + """
import hashlib
start({"operator": "cgx:8", "connections": 4})
x = drawn(3_000_000)
dist.all_reduce(x)
assert same(x)
out = torch.empty(5000)
dist.reduce_scatter(out, list(drawn(5000 * size).view(size, -1)))
print(hashlib.sha256(x.numpy().tobytes() + (out.numpy().tobytes() if rank == 0 else b"")).hexdigest() if rank == 0 else "")
"""
    apart = run_processes(script, 2, GLOBALQ_SHARED_MEMORY="off")
    together = run_processes(script, 2)
    assert together[0].splitlines()[-1] == apart[0].splitlines()[-1]  # gloo of torch 2.8 prints, too


def test_options_are_refused_on_all_processes(run_processes):
    script = PREAMBLE + """
def refused(options):
    problem = raised(lambda: start(options))
    assert isinstance(problem, globalq.ConfigurationError), (options, problem)
    return str(problem)

assert "there are operator, weights" in refused({"operators": "cgx:4"})
assert "nonsense" in refused({"operator": "nonsense"})
assert "DDPHook" in refused({"operator": "cgx:2,feedback"})
assert "min_values" in refused({"min_values": 0})
assert "give a dict" in refused(7)
os.environ["INIT"] += "b"
text = refused({"seed": rank // 2})
assert f"rank 2 of 3 has another seed than rank 0; that of rank {rank} is {rank // 2}" in text, text
"""
    run_processes(script, 3)


def test_require_compression_raises_where_nothing_would_be_compressed(run_processes):
    script = PREAMBLE + """
start({"operator": "cgx:4", "require_compression": True})
problem = raised(lambda: dist.all_reduce(drawn(5000), op=dist.ReduceOp.MAX))
assert isinstance(problem, globalq.ConfigurationError) and "operation MAX" in str(problem) and "uncompressed()" in str(problem), problem
assert f"rank {rank}: all_reduce of 5,000" in str(problem), problem
dist.all_reduce(drawn(5000)), dist.all_reduce(drawn(40)), dist.barrier()
with globalq.torch.uncompressed():
    x = drawn(5000)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    assert x.equal(torch.maximum(drawn(5000, 0), drawn(5000, 1)))
"""
    run_processes(script, 2)


def test_nan_is_reported_once_by_rank_0(run_processes):
    script = PREAMBLE + """
start({"operator": "cgx:4"})
for _ in range(2):
    x = drawn(5000)
    x[7] = float("nan") if rank == 1 else 1
    dist.all_reduce(x)
    assert x.isnan().all()
group = dist.new_group(pg_options={"operator": "cgx:4", "non_finite": "error"})
y = drawn(5000)
y[7] = float("inf") if rank == 0 else 1
assert isinstance(raised(lambda: dist.all_reduce(y, group=group)), globalq.NonFiniteError)
dist.all_reduce(drawn(5000), group=group)
"""
    outputs = run_processes(script, 2)
    assert outputs[0].count("all_reduce of 5,000 values is NaN on all processes: the tensor of rank 1 contains NaN or infinity") == 1, outputs
    assert "NaN" not in outputs[1], outputs


def test_the_others_are_told_when_a_process_dies(run_processes):
    script = PREAMBLE + """
start(seconds=5)
dist.all_reduce(drawn(5000))
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
x, began = drawn(5000), time.monotonic()
problem = raised(lambda: dist.all_reduce(x))
assert isinstance(problem, globalq.TransportError) and time.monotonic() - began < 20, problem
assert isinstance(raised(lambda: dist.all_reduce(x)), globalq.TransportError)
"""
    run_processes(script, 3, expect=[0, -9, 0])
    run_processes(script, 3, expect=[0, -9, 0], GLOBALQ_SHARED_MEMORY="off", timeout=60)


def test_a_destroyed_group_saves_its_report_for_the_table(run_processes, tmp_path, capsys):
    path = tmp_path / "report.json"
    script = PREAMBLE + """
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
start()
x = drawn(5000)
with torch.profiler.profile() as seen:
    dist.all_reduce(x)
assert any(event.key == "globalq::all_reduce cgx:4" for event in seen.key_averages())
dist.all_reduce(x[:7])
group = dist.group.WORLD
end = getattr(group, "shutdown", None)
end() if end else dist.destroy_process_group()
"""
    outputs = run_processes(script, 2, GLOBALQ_REPORT=path)
    assert "rank 0 of 2: sums of 4096 and more values travel as cgx:4" in outputs[0] and "is passed to gloo: fewer than 4096" in outputs[0]
    assert main([str(path)]) == 0
    table = capsys.readouterr().out
    assert "cgx:4" in table and "fewer than 4096 values" in table and len(path.read_text().splitlines()) == 2
    assert main([str(tmp_path / "none")]) == 1 and "GLOBALQ_REPORT" in capsys.readouterr().err


def test_rows_of_a_kind_are_added_up():
    class Tensor:
        def numel(self):
            return 10

        def element_size(self):
            return 4

    counters = Counters()
    assert counters.add("all_reduce", "cgx:4", "", [Tensor()], 7, 0.5, 0.25)
    assert not counters.add("all_reduce", "cgx:4", "", [Tensor()], 7, 0.5)
    assert counters.rows() == [Traffic("all_reduce", "cgx:4", "", 2, 20, 80, 14, 1.0, 0.25)]
    both = Report(counters.rows() * 2 + [Traffic("barrier", "gloo", "", 1, 0, 0, None, None, None)])
    assert both == [Traffic("all_reduce", "cgx:4", "", 4, 40, 160, 28, 2.0, 0.25), Traffic("barrier", "gloo", "", 1, 0, 0, None, None, None)]
    assert str(both).splitlines()[1].split() == ["all_reduce", "cgx:4", "4", "0.00", "0.00", "2.00", "0.25"]


def test_fsdp_meshes_functional_collectives_and_checkpoints_work(run_processes, needs_fsdp, tmp_path):
    script = PREAMBLE + """
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

start({"operator": "cgx:8"})
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Linear(256, 128))
for layer in net:
    fully_shard(layer)
fully_shard(net)
trained(net, 4, drawn(128 * 8).view(8, 128))
assert any(row.call == "reduce_scatter" and row.how == "cgx:8" for row in globalq.torch.report())

nodes = torch.nn.Linear(128, 256)  # shard() adds gradients within nodes as they are
fully_shard(nodes)
globalq.torch.shard(nodes, node_size=size)
nodes(drawn(128 * 8).view(8, 128)).square().mean().backward()
assert any(row.call == "reduce_scatter" and row.why == "uncompressed()" for row in globalq.torch.report())

world = dist.group.WORLD
assert 0 < off(functional.all_reduce(drawn(5000), "sum", world).wait(), total(5000)) < 0.03
halves = functional.reduce_scatter_tensor(drawn(10000), "sum", 0, world).wait()
assert 0 < off(halves, total(10000).view(size, -1)[rank]) < 0.03
for x in functional.all_reduce_coalesced([drawn(5000), drawn(40)], "sum", world):
    assert off(x, total(x.numel())) < 0.03
with dist._coalescing_manager():
    xs = [drawn(5000), drawn(6000)]
    for x in xs:
        dist.all_reduce(x)
assert all(off(x, total(x.numel())) < 0.03 for x in xs)

mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("replicas", "shards"))
x = drawn(5000)
dist.all_reduce(x, group=mesh["shards"].get_group())
assert 0 < off(x, total(5000)) < 0.03
placed = distribute_tensor(torch.ones(4, 4), mesh["shards"], [Shard(0)])
assert placed.sum().full_tensor() == 16
[w.wait() for w in dist.batch_isend_irecv([dist.P2POp(dist.isend if rank == 0 else dist.irecv, drawn(5), 1 - rank)])]
dist.monitored_barrier()
norm = torch.nn.SyncBatchNorm(4)
plain = torch.nn.Linear(128, 128)
checkpoint.save({"net": plain.state_dict()}, checkpoint_id=sys.argv[1])
checkpoint.load({"net": plain.state_dict()}, checkpoint_id=sys.argv[1])
"""
    run_processes(script, 2, tmp_path / "checkpoint")
