# SPDX-License-Identifier: Apache-2.0
"""Calls: means and shards of arrays of numpy and tensors of torch."""

import ctypes
import math
import sys
import warnings
from collections import namedtuple

from . import _library as c
from ._library import check, library

__all__ = ["AllGather", "Mean", "Operator", "Plan", "ReduceScatter", "operators", "plan"]

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}

Operator = namedtuple("Operator", "name title source bound schedule parameters")
Operator.__doc__ = "An operator that has a name: what it does, its paper, a bound on its variance, its schedule and its parameters."

Plan = namedtuple("Plan", "rounding_steps levels bytes_sent bytes_are_most bits_per_value theta iterations_factor workspace_bytes")
Plan.__doc__ = """What a call does and costs.

rounding_steps     roundings on the longest way from a value to the mean
levels             above zero; 0: none
bytes_sent         by the busiest worker
bytes_are_most     frames differ in length: no call sends more
bits_per_value     of one worker's frame, header and scales included
theta              E||result - mean||^2 <= theta / n * sum ||x_i||^2; NaN: no bound
iterations_factor  1 + n theta: growth of the iterations to a target
workspace_bytes    frames held by one worker, at most
"""


def operators():
    """All operators that have names."""
    found, entry = [], c.Operator()
    while library.globalq_operator_at(len(found), ctypes.byref(entry)) == 0:
        found.append(Operator(*(getattr(entry, name).decode() for name in Operator._fields)))
    return found


def plan_of(found):
    values = {name: getattr(found, name) for name in Plan._fields}
    values["bytes_are_most"] = bool(values["bytes_are_most"])
    return Plan(**values)


def plan(operator, length, workers, schedule=None, dtype="float32"):
    """What a mean of vectors of some length among some workers does and costs, asked before there are any."""
    found = c.Plan()
    check(library.globalq_plan_for(c.text(operator), c.text(schedule), workers, length, type_number(dtype), ctypes.byref(found)))
    return plan_of(found)


def type_number(dtype):
    name = str(dtype).removeprefix("torch.")
    if name not in TYPES:
        raise c.ConfigurationError(f"globalq: values of type {name}; use float32, float64, float16 or bfloat16")
    return TYPES[name]


def is_tensor(x):
    """Whether x is a tensor of torch, without importing it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


said = set()


def say_once(what):
    if what not in said:
        said.add(what)
        warnings.warn(f"globalq: {what}", stacklevel=4)


class Values:
    """The memory of an array or a tensor: its address, length and type. One that is not contiguous, or not in host memory, is copied,
    and written back by store()."""

    def __init__(self, x, writes):
        self.given, self.copy = x, None
        if is_tensor(x):
            self._of_tensor(x, writes)
        elif hasattr(x, "__array_interface__") and hasattr(x, "dtype"):
            self._of_array(x, writes)
        else:
            raise c.ConfigurationError(f"globalq: a {type(x).__name__} is no vector; give an array of numpy or a tensor of torch")

    def _of_tensor(self, x, writes):
        if x.requires_grad and writes and x.is_leaf:
            raise c.ConfigurationError("globalq: the tensor requires a gradient; give tensor.data or tensor.grad")
        x = x.detach()
        if x.layout is not sys.modules["torch"].strided:
            raise c.ConfigurationError(f"globalq: a tensor of layout {x.layout}; dense tensors are averaged")
        dense = x
        if x.device.type != "cpu":
            say_once("tensors on a device travel through host memory; nobody has run this on a GPU yet")
            dense = x.cpu()
        if not dense.is_contiguous():
            say_once("a tensor that is not contiguous is copied, twice where it is written")
            dense = dense.contiguous()
        if dense is not x:
            self.copy = dense
        self.dense, self.address = dense, dense.data_ptr()
        self.length, self.type = dense.numel(), type_number(dense.dtype)

    def _of_array(self, x, writes):
        if writes and not x.flags.writeable:
            raise c.ConfigurationError("globalq: the array is read-only; give one to write to")
        if not x.dtype.isnative:
            raise c.ConfigurationError(f"globalq: an array of type {x.dtype} in another byte order; convert it by astype")
        dense = x
        if not x.flags.c_contiguous:
            say_once("an array that is not contiguous is copied, twice where it is written")
            dense = self.copy = x.copy(order="C")
        self.dense, self.address = dense, dense.__array_interface__["data"][0]
        self.length, self.type = dense.size, type_number(dense.dtype)

    def store(self):
        """Writes a copy back."""
        if self.copy is None:
            return
        if is_tensor(self.given):
            self.given.detach().copy_(self.copy)
        else:
            self.given[...] = self.copy


class Call:
    """What means and calls of shards have in common."""

    def __init__(self, workers, kind, operator, schedule, seed, non_finite, measure_errors, layers=(), warm_up=0, first_layer=0,
                 model_layers=0):
        if non_finite not in ("propagate", "error"):
            raise c.ConfigurationError(f'globalq: non_finite is "{non_finite}"; give "propagate" or "error"')
        settings = c.Settings(operator_name=c.text(operator), schedule=c.text(schedule), seed=seed, warm_up=warm_up,
                              first_layer=first_layer, model_layers=model_layers,
                              fail_on_non_finite=non_finite == "error", measure_errors=bool(measure_errors))
        array, keep = (c.Layer * len(layers))(), []
        for k, (name, shape, *rest) in enumerate(layers):
            dtype, op = (*rest, None, None)[:2]
            extents = (ctypes.c_uint64 * len(shape))(*shape)
            keep.append(extents)
            array[k] = c.Layer(c.text(name), extents, len(shape), type_number(dtype or "float32"), c.text(op))
        handle = ctypes.c_void_p()
        check(library.globalq_call_create(workers.handle, kind, ctypes.byref(settings), array, len(layers), ctypes.byref(handle)))
        self._handle, self._workers = handle.value, workers

    @property
    def workers(self):
        return self._workers

    def _run(self, pairs, step):
        """Runs on pairs of (input, output or None for in place, length or None)."""
        if self._handle is None:
            raise c.ConfigurationError("globalq: the call is closed; make another one")
        vectors, outputs = (c.Vector * len(pairs))(), []
        inputs = []
        for k, (x, y, length) in enumerate(pairs):
            given = Values(x, writes=y is None)
            inputs.append(given)
            to = given if y is None else Values(y, writes=True)
            outputs.append(to)
            if y is not None and to.type != given.type:
                raise c.ConfigurationError("globalq: input and output have different types; use one type for both")
            if y is not None and length is None and to.length != given.length:
                raise c.ConfigurationError(f"globalq: {given.length} values into {to.length}; give an output of the same length")
            vectors[k] = c.Vector(given.address, to.address, given.length if length is None else length, given.type)
        check(library.globalq_call_run(self._handle, vectors, len(pairs), step))
        for to in outputs:
            to.store()

    def report(self):
        """What calls did since the last report, as a dict: calls, failed, bytes_sent, seconds of each phase, .."""
        found = c.Report()
        check(library.globalq_call_report(self._handle, ctypes.byref(found)))
        return {name: getattr(found, name) for name, _ in c.Report._fields_ if name != "size"}

    def operator(self, layer=0):
        """The operator (of a layer), with all parameters."""
        name = library.globalq_call_operator(self._handle, layer)
        if not name:
            raise c.ConfigurationError(library.globalq_error().decode())
        return name.decode()

    def close(self):
        """Frees the call's memory."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            library.globalq_call_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


class Mean(Call):
    """Averages vectors over workers; made once by all of them with the same arguments, then called once a step.

        mean = globalq.Mean(workers, "cgx:4", seed=42)
        mean(gradient, step)                    # in place: an array of numpy or a tensor of torch
        mean([w1, b1], step)                    # several in one call

    workers         NamedMemory, MessageWorkers or those that run_threads gives
    operator        "NAME[:VALUE][,parameter=value].."; operators() lists them
    schedule        ring, tree, sra, allgather or hierarchical:N; None: that of the operator
    seed            of the random bits, with the step
    layers          of a model, each averaged by an operator of its own: (name, shape[, dtype[, operator]]); then each call brings
                    one vector a layer
    warm_up         so many first steps travel as float32; with layers
    first_layer, model_layers  where the layers are some of a model's: the number of the first, and how many the model has
    non_finite      "propagate": where a worker brings NaN or infinity, all of the result is NaN; or "error"
    measure_errors  whether report() says what rounding changed; costs a pass
    """

    def __init__(self, workers, operator="float32", *, schedule=None, seed=0, layers=(), warm_up=0, first_layer=0,
                 model_layers=0, non_finite="propagate", measure_errors=False):
        super().__init__(workers, 0, operator, schedule, seed, non_finite, measure_errors, layers, warm_up, first_layer, model_layers)

    def __call__(self, x, step, out=None):
        """Averages x (or each of a list) in place, or into out; returns the result. Use each step once; a list of k vectors without
        layers uses k steps."""
        many = isinstance(x, (list, tuple))
        xs = list(x) if many else [x]
        ys = [None] * len(xs) if out is None else (list(out) if many else [out])
        if len(ys) != len(xs):
            raise c.ConfigurationError(f"globalq: {len(xs)} vectors into {len(ys)}; give as many")
        self._run([(a, b, None) for a, b in zip(xs, ys)], step)
        return x if out is None else out

    def plan(self, length=0, dtype="float32"):
        """What a call with vectors of this length does and costs; with layers, all of them."""
        found = c.Plan()
        check(library.globalq_call_plan(self._handle, length, type_number(dtype), ctypes.byref(found)))
        return plan_of(found)


class Shards(Call):
    def shard(self, length, rank=None):
        """The values [first, last) of a vector that are a worker's."""
        first, count = ctypes.c_uint64(), ctypes.c_uint64()
        check(library.globalq_call_shard(self._handle, length, self._workers.rank if rank is None else rank, ctypes.byref(first),
                                         ctypes.byref(count)))
        return slice(first.value, first.value + count.value)


class ReduceScatter(Shards):
    """Every worker gets its shard of the mean: scatter(gradient, own, step). Arguments are those of Mean."""

    def __init__(self, workers, operator="float32", *, seed=0, non_finite="propagate", measure_errors=False):
        super().__init__(workers, 1, operator, None, seed, non_finite, measure_errors)

    def __call__(self, x, own, step):
        """Averages x; own becomes the values shard(len(x)) of the mean."""
        length = Values(x, writes=False).length
        s = self.shard(length)
        if math.prod(own.shape) != s.stop - s.start:
            raise c.ConfigurationError(f"globalq: {math.prod(own.shape)} values for a shard of {s.stop - s.start}; ask shard({length})")
        self._run([(x, own, length)], step)
        return own


class AllGather(Shards):
    """Every worker gets the shards of all: gather(own, weights, step). Arguments are those of Mean."""

    def __init__(self, workers, operator="float32", *, seed=0, non_finite="propagate", measure_errors=False):
        super().__init__(workers, 2, operator, None, seed, non_finite, measure_errors)

    def __call__(self, own, out, step):
        """out becomes what the workers' shards decode to, the own one too."""
        length = Values(out, writes=True).length
        s = self.shard(length)
        if math.prod(own.shape) != s.stop - s.start:
            raise c.ConfigurationError(f"globalq: {math.prod(own.shape)} values for a shard of {s.stop - s.start}; ask shard({length})")
        self._run([(own, out, length)], step)
        return out
