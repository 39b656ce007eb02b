# SPDX-License-Identifier: Apache-2.0
"""QSDP on FSDP2: what travels, and trainings in gloo processes."""

import math

import pytest

torch = pytest.importorskip("torch")

import globalq
import globalq.torch
from globalq import _fsdp


def travel(form, x, add_to=None, key=(1, 2, 0, 1)):
    slot = torch.zeros(form.size(len(x), x.dtype), dtype=torch.uint8)
    form.encode(x, slot, key)
    out = torch.full_like(x, 7) if add_to is None else add_to.clone()
    form.decode(slot, out, x.dtype, add_to is not None)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float16_with_a_power_of_two_neither_overflows_nor_vanishes(dtype):
    for scale in (1.0, 1e30, 1e-30, 3e-38):
        x = torch.linspace(-1, 1, 101, dtype=dtype) * scale
        assert (travel(_fsdp.HALF, x) - x).abs().max() <= 2**-11 * scale
        assert torch.allclose(travel(_fsdp.HALF, x, add_to=x), 2 * x, rtol=0, atol=2**-11 * scale)
    assert not travel(_fsdp.HALF, torch.zeros(3, dtype=dtype)).any()
    assert (travel(_fsdp.HALF, torch.tensor([5e-324, 1e-310], dtype=torch.float64)) < 1e-305).all()
    for bad in (math.nan, math.inf):
        assert travel(_fsdp.HALF, torch.tensor([1.0, bad], dtype=dtype)).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("text", ["qsdp:8", "qsdp:8,scale=min-max", "cgx:8,bucket=1024", "cgx:8,scale=min-max"])
def test_frames_of_every_type(text, dtype):
    x = (torch.randn(2500, generator=torch.Generator().manual_seed(1)) + 5).to(dtype)
    form = _fsdp.Frames(text)
    # the step is 1/127 of the largest magnitude, or half of the range of a bucket; stochastic rounding is off by less than one step
    most = (4 if "min-max" in text else 9) / 127 * 1.05 + (0.04 if dtype == torch.bfloat16 else 0)
    assert (travel(form, x).double() - x.double()).abs().max() < most
    assert (travel(form, x, add_to=x).double() - 2 * x.double()).abs().max() < 1.5 * most
    x[17] = math.inf
    assert travel(form, x).isnan().all()


def test_frames_of_another_operator_are_refused():
    x, (a, b) = torch.ones(100), (_fsdp.Frames(op) for op in ("qsdp:8", "cgx:8"))
    slot = torch.zeros(a.size(100, x.dtype), dtype=torch.uint8)
    a.encode(x, slot, (1, 2, 0, 1))
    with pytest.raises(globalq.FrameError, match="operator"):
        b.decode(slot, x, x.dtype, False)


def test_learned_levels_follow_algorithm_5_1():
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(2500, generator=draw)
    bucket, even = 1024, torch.linspace(0, 1, 8, dtype=torch.float64)
    found, count = _fsdp.learn_levels(x, bucket, even)
    assert count == 2500
    q, rate = even.tolist(), _fsdp.LEARNING_RATE  # the loop of the thesis; values of a batch are assigned to levels at once
    values = [v.item() for row in x.split(bucket) for v in row.abs() / row.abs().max()]
    for first in range(0, 2500, _fsdp.LEARNING_BATCH):
        old = list(q)
        for v in values[first:first + _fsdp.LEARNING_BATCH]:
            k = min(range(8), key=lambda k: abs(old[k] - v))
            if 0 < k < 7:
                q[k] -= rate * (q[k] - v)
    assert torch.allclose(found, torch.tensor(q, dtype=torch.float64), rtol=0, atol=1e-6)
    values = torch.tensor(values, dtype=torch.float64)
    error = [(values[:, None] - levels).abs().amin(1).square().sum() for levels in (even, found)]
    assert error[1] < 0.95 * error[0]
    assert _fsdp.learn_levels(torch.tensor([math.nan, 1.0]), bucket, even)[1] == 0
    assert torch.equal(_fsdp.learn_levels(torch.zeros(50), bucket, even)[0], even)


MODEL = """
import hashlib, math, os, sys, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
import globalq, globalq.torch

torch.set_num_threads(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers=12, width=32, vocabulary=40):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.embedding(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


def gather(value):
    found = [None] * size
    dist.all_gather_object(found, value)
    return found


def bits_of(tensors):  # copies, because memory that numpy has seen cannot be freed by torch
    return hashlib.sha256(b"".join(t.detach().float().clone().numpy().tobytes() for t in tensors)).hexdigest()


def used_weights(model):
    found = []
    for module in (*model.layers, model):
        module.unshard()
        found.append(bits_of(p for name, p in module.named_parameters() if not name.startswith("layers.")))
        module.reshard()
    return found


def expect_alike(model):
    used = used_weights(model)
    assert all(other == used for other in gather(used)), "replicas of weights differ"
    assert used_weights(model) == used, "another gather of the same weights has other bits"


def sharded_model(settings=None, layers=12, seed=0, divide=None, **fsdp):
    torch.manual_seed(seed)
    model = Transformer(layers)
    for layer in model.layers:
        fully_shard(layer, **fsdp)
    fully_shard(model, **fsdp)
    for module in (*model.layers, model) if divide else ():
        module.set_gradient_divide_factor(divide)
    return model, None if settings is None else globalq.torch.shard(model, seed=seed, **settings)


def train(model, steps=20, rate=3e-3, first=0, seed=0, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), rate)
    total = 0.0
    for step in range(first, first + steps):
        start = torch.randint(40, (8, 1), generator=torch.Generator().manual_seed(10**6 * seed + 1000 * step + rank))
        x = (start + 3 * torch.arange(25)) % 40  # the next token is 3 further
        loss = nn.functional.cross_entropy(model(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / steps
    return sum(gather(total)) / size


def shards_of(model):
    return [p.to_local().detach().clone() for p in model.parameters()]


def close(a, b):
    return all(gather(all(torch.allclose(x, y, rtol=0, atol=1e-4) for x, y in zip(shards_of(a), shards_of(b)))))


def sgd(model, rate=0.2):  # Adam would turn rounding into steps where a gradient is 0, as that of keys' biases is
    return torch.optim.SGD(model.parameters(), rate)


FLOAT32 = dict(weights="float32", gradients="float32", excluded="float32")
"""

TRANSFORMER = MODEL + """
counted = {"gather": 0, "scatter": 0}
gather_into, all_to_all = dist.all_gather_into_tensor, dist.all_to_all_single
def counting_gather(out, own, *arguments, **settings):
    counted["gather"] += own.nbytes * (size - 1)
    return gather_into(out, own, *arguments, **settings)
def counting_exchange(out, own, *arguments, **settings):
    counted["scatter"] += own.nbytes // size * (size - 1)
    return all_to_all(out, own, *arguments, **settings)
dist.all_gather_into_tensor, dist.all_to_all_single = counting_gather, counting_exchange

model, sharded = sharded_model(FLOAT32)
train(model, 2)
float32 = dict(sharded.sent)
padded = sum(-(-p.shape[0] // size) * math.prod(p.shape[1:]) for p in model.parameters())
layers = sum(-(-p.shape[0] // size) * math.prod(p.shape[1:]) for p in model.layers.parameters())
# slots begin at multiples of 8 bytes; two gathers of each layer and one of the root, which FSDP2 does not free after the forward pass
slack = 8 * len(list(model.parameters())) * (size - 1)
assert 0 <= float32["gradients"] - 2 * 4 * padded * (size - 1) <= 2 * slack
assert 0 <= float32["weights"] - 2 * 4 * (padded + layers) * (size - 1) <= 4 * slack
assert counted == {"gather": float32["weights"], "scatter": float32["gradients"]}

plain = {seed: train(sharded_model(seed=seed)[0], seed=seed) for seed in (1, 2, 3)}
for settings, seeds, bound, fraction in ((dict(), (1, 2, 3), 0.01, 0.45),
                                         (dict(weights="qsdp:4", gradients="cgx:4,bucket=1024"), (1,), 0.1, 0.35)):
    for seed in seeds:
        model, sharded = sharded_model(settings, seed=seed)
        loss = train(model, seed=seed)
        assert abs(loss / plain[seed] - 1) < bound, (settings, seed, loss, plain[seed])
        assert sharded.step == 19
        assert sharded.bytes_sent < fraction * 10 * sum(float32.values()), (sharded.sent, float32)
        expect_alike(model)
excluded = {name for name, _, weights, gradients, why in sharded.report() if why}
assert excluded >= {"norm.weight", "layers.3.qkv.bias"} and not excluded & {"head.weight", "layers.11.down.weight"}
"""

DETAILS = MODEL + """
# float32 is what FSDP2 does; sums in another order
exact, _ = sharded_model(None, 4)
train(exact, optimizer=sgd(exact))
model, _ = sharded_model(FLOAT32, 4)
train(model, optimizer=sgd(model))
assert close(exact, model), "not the means of float32"

# gradients divided by another number than that of the processes: PREMUL_SUM, which gloo refuses. 1.5 times the mean, or 1.5 the step
model, _ = sharded_model(FLOAT32, 2, divide=size / 1.5)
train(model, optimizer=sgd(model))
right, _ = sharded_model(FLOAT32, 2)
train(right, optimizer=sgd(right, 0.3))
assert close(right, model), "not divided by the factor"

# levels that are learned, saved and restored: the continued training has the same bits
settings = dict(weights="qsdp:4", learn_at=[3])
def saved_run(restart):
    model, sharded = sharded_model(settings, 2)
    train(model, 6, optimizer=sgd(model))
    if restart:
        state, values = sharded.state_dict(), model.state_dict()
        assert state["step"] == 5 and state["levels"]["layers.0.qkv.weight"][0] == 3
        model, sharded = sharded_model(settings, 2, seed=9)
        model.load_state_dict(values)
        sharded._seed = 0
        sharded.load_state_dict(state)
    train(model, 6, first=6, optimizer=sgd(model))
    expect_alike(model)
    return bits_of(shards_of(model))
assert saved_run(False) == saved_run(True), "the restarted training has other bits"

# gradients and weights of 16 bits, and a frozen parameter of another type: FSDP2 gathers bytes then
torch.manual_seed(0)
model = Transformer(2)
model.layers[0].up.to(torch.bfloat16).requires_grad_(False)
model.layers[0].up.forward = lambda x, m=model.layers[0].up: nn.functional.linear(x.bfloat16(), m.weight, m.bias).float()
for module in (*model.layers, model):
    fully_shard(module)
sharded = globalq.torch.shard(model)
before = train(model, 1)
assert train(model, 20, first=1) < before
expect_alike(model)
assert sharded.sent["unquantized"] == 0
model, sharded = sharded_model({}, 2, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
before = train(model, 1)
assert train(model, 20, first=1) < before
expect_alike(model)

# parameters without gradients, which FSDP2 leaves out: what is left keeps its buckets and its exclusions
model, sharded = sharded_model({}, 2)
other, whole = sharded_model({}, 2)
for block in model.layers:
    block.norm1.forward = lambda x: x * 1
    block.up.forward = lambda x: x.repeat(1, 1, 4)
before = train(model, 1)
assert train(model, 20, first=1) < before
assert all(layer.weight.grad is None for block in model.layers for layer in (block.norm1, block.up))
train(other, 21)
sizes = {p.name: -(-p.gradients.size(p.count, torch.float32) // 8) * 8 for u in sharded._units.values() for p in u.parts}
spared = sum(size_of for name, size_of in sizes.items() if ".norm1." in name or ".up." in name)
assert whole.sent["gradients"] - sharded.sent["gradients"] == 21 * (size - 1) * spared
if hasattr(model, "set_reduce_scatter_unused_params"):  # torch 2.15
    for layer in model.layers:
        layer.set_reduce_scatter_unused_params(True)
    train(model, 1)
    assert not model.layers[0].norm1.weight.grad.to_local().any()

# vectors that do not consist of the parameters, as tensors with fsdp_pre_all_gather make them: unquantized, float16, and a warning
model, sharded = sharded_model({}, 2)
sharded._units[id(globalq._fsdp.fsdp_groups(model.layers[0])[0])].parts[0].count += 8
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    before = train(model, 1)
    assert train(model, 20, first=1) < before
assert [w for w in said if "layers.0.norm1.weight" in str(w.message) and "sent unquantized" in str(w.message)] or rank
assert sharded.sent["unquantized"] > 0
expect_alike(model)

# NaN of one process is NaN of all
model, sharded = sharded_model({}, 2)
train(model, 1)
if rank == 0:
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if name == "layers.0.down.weight").to_local()[0, 0] = math.nan
loss = model(torch.zeros(1, 4, dtype=torch.long)).sum()
assert all(map(math.isnan, gather(loss.item())))
loss.backward()
gradient = next(p for name, p in model.named_parameters() if name == "layers.0.down.weight").grad.to_local()
assert gradient.isnan().all()

# the next module is gathered before a module computes
model, sharded = sharded_model({}, 4)
train(model, 2)
order, hooks = [], []
for k, module in enumerate(model.layers):
    unit = sharded._units[id(globalq._fsdp.fsdp_groups(module)[0])]
    unit.gather = lambda *a, k=k, gather=unit.gather: (order.append(("gather", k)), gather(*a))[1]
    module.qkv.register_forward_hook(lambda *_, k=k: order.append(("compute", k)))
train(model, 1)
assert [order.index(("gather", k)) < order.index(("compute", k - 1)) for k in range(1, 4)] == [True] * 3, order

# torch.compile of layers, and of the model
for compiled in (lambda model: model.layers, lambda model: [model]):
    model, sharded = sharded_model({}, 2)
    for module in compiled(model):
        module.compile(backend="aot_eager")
    before = train(model, 1)
    assert train(model, 20, first=1) < before
    expect_alike(model)

def told(build=fully_shard, **settings):
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    build(model)
    try:
        sharded = globalq.torch.shard(model, **settings)
        model(torch.zeros(1, 64)).sum().backward()
    except (globalq.Error, TypeError) as problem:
        return str(problem)
    return ""
assert "fully_shard()" in told(lambda model: None)
assert "is not an operator" in told(weights="nonsense")
assert "no codes); use an operator such as" in told(weights="bfloat16")
assert "vary in length" in told(gradients="cgx:4 code=huffman")
assert "feedback" in told(gradients="cgx:2 feedback")
assert "no levels to learn" in told(weights="float16", learn_at=[1])
assert "matches none of the 4 parameters" in told(exclude=["nobody*"])
assert "is a list of patterns" in told(exclude="0*")
assert "other arguments" in told(seed=rank, weights="cgx:8" if rank else "qsdp")
assert "divides the number" in told(node_size=size + 1)
assert told(exclude=lambda name, parameter: name == "0.weight") == ""
os.environ["GLOBALQ_FORCE_FLOAT32"] = "1"
model, sharded = sharded_model(dict(learn_at=[1]), 2)
assert {form for _, _, weights, gradients, _ in sharded.report() for form in (weights, gradients)} == {"float32"}
del os.environ["GLOBALQ_FORCE_FLOAT32"]
for op, times in ((dist.ReduceOp.AVG, 1 / 4), (dist.ReduceOp.SUM, 1), (dist._make_nccl_premul_sum(0.125), 0.125)):
    assert globalq._fsdp.factor_of(op, 4) == times
for op in (dist.ReduceOp.MAX, dist.ReduceOp.PREMUL_SUM):
    try:
        globalq._fsdp.factor_of(op, 4)
        assert False
    except globalq.Error as problem:
        assert "use AVG, SUM" in str(problem)
"""

NODES = MODEL + """
from torch.distributed.device_mesh import init_device_mesh

plain = train(sharded_model(None, 4)[0])
model, flat = sharded_model({}, 4)
train(model)
model, sharded = sharded_model(dict(node_size=2), 4)
assert abs(train(model) / plain - 1) < 0.01
# each process sends its shard to one other node instead of to three processes, and gradients for two processes of one node
for what in ("weights", "gradients"):
    assert 3 * sharded.sent[what] == flat.sent[what] > 0, (what, sharded.sent, flat.sent)
assert sharded.sent["within nodes"] > 0
expect_alike(model)

# gradients of a node are added before they are rounded: with float32 between nodes the mean is that of all
model, sharded = sharded_model(dict(FLOAT32, node_size=2), 2)
train(model, optimizer=sgd(model))
exact, _ = sharded_model(None, 2)
train(exact, optimizer=sgd(exact))
assert close(exact, model)

# weights stay in shards of a node after the forward pass: the backward pass gathers decoded weights as they are
model, sharded = sharded_model({}, 2, reshard_after_forward=2)
assert train(model) < 1.2 * train(sharded_model(None, 2)[0])
assert sharded.sent["unquantized"] > 0
expect_alike(model)

# two replicas of two shards each
model, sharded = sharded_model({}, 2, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
assert train(model) < 1.2 * train(sharded_model(None, 2)[0])
expect_alike(model)
"""


def test_a_transformer_of_12_layers_trains_as_without(needs_fsdp, run_processes):
    run_processes(TRANSFORMER, 3, timeout=600)


@pytest.mark.parametrize("size", [2, 3])
def test_what_trainings_need(needs_fsdp, run_processes, size):
    run_processes(DETAILS, size, timeout=400)


def test_nodes_and_meshes(needs_fsdp, run_processes):
    run_processes(NODES, 4, timeout=400)
