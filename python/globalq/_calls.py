# SPDX-License-Identifier: Apache-2.0
"""Collective calls on numpy arrays and torch tensors: means, shards, choosing operators."""

import contextlib
import ctypes
import sys
import threading
import warnings
from collections import namedtuple

from . import _library as c
from ._library import check, library
from ._workers import Workers, describe

__all__ = ["AllGather", "AllToAll", "Broadcast", "Mean", "Operator", "Plan", "ReduceScatter", "operators", "plan", "words"]

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}

Operator = namedtuple("Operator", "name title source bound schedule parameters")
Operator.__doc__ = "A named operator: its title, paper, variance bound, schedule and parameters."

Plan = namedtuple("Plan", "rounding_steps levels bytes_sent bytes_are_most bits_per_value theta iterations_factor workspace_bytes")
Plan.__doc__ = """The cost and the error bound of a call.

rounding_steps     largest number of roundings between an input value and the mean
levels             number of levels above zero; 0: not quantized
bytes_sent         bytes that the busiest worker sends
bytes_are_most     true if frames vary in length; bytes_sent is then an upper bound
bits_per_value     bits per value of one worker's frame, with header and scales
theta              E||result - mean||^2 <= theta / n * sum ||x_i||^2; NaN: no bound is known
iterations_factor  1 + n theta: bounds the growth of the number of iterations to a target
workspace_bytes    largest number of bytes that one worker holds in frames
"""


def operators():
    """Returns all named operators."""
    found, entry = [], c.Operator()
    while library.globalq_operator_at(len(found), ctypes.byref(entry)) == 0:
        found.append(Operator(*(getattr(entry, name).decode() for name in Operator._fields)))
    return found


def words():
    """Returns the words of which any operator consists, one a line: "rotate=0: ..". Names such as "cgx:4" are short for some of
    them, and words may follow a name: "cgx:4 rotate=1024"."""
    found = ctypes.c_char_p()
    check(library.globalq_words(ctypes.byref(found)))
    return found.value.decode()


def plan_of(found):
    values = {name: getattr(found, name) for name in Plan._fields}
    values["bytes_are_most"] = bool(values["bytes_are_most"])
    return Plan(**values)


def plan(operator, length, workers, schedule=None, dtype="float32"):
    """Returns the plan of a mean over a number of workers. No workers have to exist."""
    found = c.Plan()
    check(library.globalq_plan_for(c.text("operator", operator), c.text("schedule", schedule), c.number("workers", workers, 0, 2**31 - 1),
                                   c.number("length", length), type_number(dtype), ctypes.byref(found)))
    return plan_of(found)


def type_number(dtype):
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    if name not in TYPES:
        raise c.ConfigurationError(f"globalq: values of type {name}; use float32, float64, float16 or bfloat16")
    return TYPES[name]


def is_tensor(x):
    """Returns whether x is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def bytes_of(tensor):
    """Returns the bytes of a tensor of torch; numpy() would need numpy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""


said: set = set()


def say_once(what):
    if what not in said:
        said.add(what)
        try:
            warnings.warn(f"globalq: {what}", stacklevel=4)
        except Warning:  # warnings may be errors; raising on one worker only would leave the others waiting in a call
            print(f"globalq: {what}", file=sys.stderr)


def overlaps_itself(shape, strides):
    """Returns whether two elements may share memory, as in an expanded tensor."""
    end = 1  # one past the largest offset of the dimensions so far
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride < end:
            return True
        end += stride * (extent - 1)
    return False


class Memory:
    """The elements of an array or a tensor, in the memory where they are."""

    def __init__(self, x):
        if is_tensor(x):
            self.space, address, self.item = str(x.device), x.data_ptr(), x.element_size()
            strides = [s * self.item for s in x.stride()]
        else:
            self.space, address, self.item = "cpu", x.__array_interface__["data"][0], x.itemsize
            strides = x.strides
        self.shape, self.strides = tuple(x.shape), tuple(abs(s) for s in strides)
        self.begin = address + sum(min(0, s * (n - 1)) for s, n in zip(strides, self.shape) if n)
        self.end = self.begin + (0 if 0 in self.shape else self.item + sum(s * (n - 1) for s, n in zip(self.strides, self.shape)))
        self.layout = self.begin, self.shape, tuple(strides), self.item

    def meets(self, other):
        """Returns whether an element is also one of the other's: marks the bytes of both in a map of the memory between them."""
        if max(self.begin, other.begin) >= min(self.end, other.end):
            return False
        first, last = min(self.begin, other.begin), max(self.end, other.end)
        numpy = sys.modules.get("numpy")
        if numpy:
            marks = numpy.zeros(last - first, "uint8")
            a, b = (numpy.lib.stride_tricks.as_strided(marks[m.begin - first:], (*m.shape, m.item), (*m.strides, 1)) for m in (self, other))
        else:
            marks = sys.modules["torch"].zeros(last - first, dtype=sys.modules["torch"].uint8)
            a, b = (marks.as_strided((*m.shape, m.item), (*m.strides, 1), m.begin - first) for m in (self, other))
        a[...] = 1
        return bool(b.any())


def refuse_overlaps(vectors):
    """Raises if a vector is written where it overlaps another. C compares contiguous vectors itself, but sees only copies of others.

    vectors: tuples (index of the vector in the call, Values)
    """
    before = []  # those that may overlap the next
    for k, v, memory in sorted(((k, v, Memory(v.given)) for k, v in vectors), key=lambda entry: (entry[2].space, entry[2].begin)):
        before = [entry for entry in before if entry[2].space == memory.space and entry[2].end > memory.begin]
        for j, other, of_other in before:
            if (v.writes or other.writes) and not (j == k and of_other.layout == memory.layout) and memory.meets(of_other):
                raise c.ConfigurationError(f"globalq: vectors {min(j, k)} and {max(j, k)} overlap where one is written; give each output "
                                           "memory of its own")
        before.append((k, v, memory))


class Values:
    """Address, length and type of an array or a tensor. If it is not contiguous, or not in host memory, this is a copy; store() writes the
    copy back."""

    def __init__(self, x, writes):
        self.given, self.copy, self.writes = x, None, writes
        numpy = sys.modules.get("numpy")
        if is_tensor(x):
            self._of_tensor(x)
        elif hasattr(x, "__array_interface__") and hasattr(x, "flags") and not (numpy and isinstance(x, numpy.generic)):
            self._of_array(x)
        else:
            raise c.ConfigurationError(f"globalq: expected an array of numpy or a tensor of torch, got {type(x).__name__}")

    def _of_tensor(self, x):
        if x.requires_grad and self.writes:
            raise c.ConfigurationError("globalq: the tensor requires a gradient, and is written; give tensor.detach() or tensor.grad")
        x = x.detach()
        if x.layout is not sys.modules["torch"].strided:
            raise c.ConfigurationError(f"globalq: a tensor of layout {x.layout}; use dense tensors (strided)")
        if hasattr(x, "to_local"):
            raise c.ConfigurationError(f"globalq: a {type(x).__name__} is distributed over processes; give tensor.to_local()")
        if x.device.type == "meta" or (x.device.type == "cpu" and x.numel() != 0 and x.data_ptr() == 0):
            raise c.ConfigurationError(f"globalq: a {type(x).__name__} on device {x.device} has no values in memory; give a plain tensor")
        if self.writes and overlaps_itself(x.shape, x.stride()):
            raise c.ConfigurationError("globalq: values of the tensor share memory, as those of an expanded one do; give tensor.clone()")
        dense = x.resolve_conj().resolve_neg()
        if dense.device.type != "cpu":
            say_once("tensors on a device travel through host memory; this has not been tested on a GPU yet")
            dense = sys.modules["torch"].empty(dense.shape, dtype=dense.dtype, pin_memory=dense.is_cuda).copy_(dense)
        if not dense.is_contiguous():
            say_once("a tensor that is not contiguous is copied, twice where it is written")
            dense = dense.contiguous()
        if dense is not x:
            self.copy = dense
        self.dense, self.address = dense, dense.data_ptr()
        self.length, self.type = dense.numel(), type_number(dense.dtype)

    def _of_array(self, x):
        if self.writes and not x.flags.writeable:
            raise c.ConfigurationError("globalq: the array is read-only; give one to write to")
        if not x.dtype.isnative:
            raise c.ConfigurationError(f"globalq: an array of type {x.dtype} in another byte order; convert it by astype")
        if self.writes and not x.flags.c_contiguous and overlaps_itself(x.shape, [s // x.itemsize for s in x.strides]):
            raise c.ConfigurationError("globalq: values of the array share memory, as those of a broadcast one do; give array.copy()")
        dense = x
        if not x.flags.c_contiguous:
            say_once("an array that is not contiguous is copied, twice where it is written")
            dense = self.copy = x.copy(order="C")
        self.dense, self.address = dense, dense.__array_interface__["data"][0]
        self.length, self.type = dense.size, type_number(dense.dtype)

    def store(self):
        """Writes a copy back and increments the version of a tensor, so that autograd detects the change."""
        if self.copy is not None:
            if is_tensor(self.given):
                self.given.detach().copy_(self.copy)
            else:
                self.given[...] = self.copy
        elif is_tensor(self.given):
            autograd = sys.modules["torch"].autograd.graph
            if hasattr(autograd, "increment_version"):
                autograd.increment_version(self.given)
            elif self.length:
                self.given.detach().view(-1)[:1].mul_(1)  # a view shares its version with the tensor; multiplying by 1 preserves -0


def layer_array(layers):
    """Converts layers (name, shape[, dtype[, operator]]) for C; returns the array and objects to keep alive while C reads it."""
    array, keep = (c.Layer * len(layers))(), []
    for k, layer in enumerate(layers):
        try:
            name, shape, dtype, op = (*layer, None, None)[:4] if len(layer) <= 4 else layer
            shape = tuple(shape)
        except (TypeError, ValueError):
            raise c.ConfigurationError(f"globalq: layer {k} is {layer!r}; give (name, shape[, dtype[, operator]])") from None
        extents = (ctypes.c_uint64 * len(shape))(*(c.number(f"the shape of {name!r}", n) for n in shape))
        keep.append(extents)
        array[k] = c.Layer(c.text("the name of a layer", name), extents, len(shape), type_number(dtype or "float32"),
                           c.text(f"the operator of {name!r}", op))
    return array, keep


def workers_of(given):
    """Returns workers, and whether they were made here, from a process group of torch."""
    if isinstance(given, Workers):
        return given, False
    dist = sys.modules.get("torch.distributed")
    if dist is not None and isinstance(given, getattr(dist, "ProcessGroup", ())):
        from ._join import join

        return join(given), True
    raise c.ConfigurationError(f"globalq: workers is a {type(given).__name__}; give NamedMemory, MessageWorkers, the workers that run_threads "
                               "passes, or a process group of torch")


@contextlib.contextmanager
def informing(workers):
    """Reports an exception of the block to the other workers, which wait in the call that this one does not make."""
    try:
        yield
    except BaseException as problem:
        with contextlib.suppress(c.Error):
            workers.refuse(str(problem).removeprefix("globalq: ") if isinstance(problem, c.Error) else describe(problem).decode())
        raise


class Used(c.Handle):
    """Base of handles that one thread at a time uses. Subclasses define _destroy(handle)."""

    def __init__(self, workers):
        self._handle, self._inside, self._closes, self._busy = None, False, False, threading.RLock()
        self._workers, self._owns_workers = workers_of(workers)

    @property
    def workers(self):
        return self._workers

    @contextlib.contextmanager
    def _open(self):
        """Yields the handle to one thread at a time and prevents close() meanwhile."""
        if not self._busy.acquire(blocking=False):
            raise c.ConfigurationError("globalq: another thread uses this call; use one at a time")
        try:
            if self._inside:
                raise c.ConfigurationError("globalq: this thread is already in this call; do not use it in a signal handler or in a function "
                                           "that transfers its messages")
            self._inside = True
            try:
                if self._handle is None:
                    raise c.ConfigurationError("globalq: the call is closed; make another one")
                self._workers.handle  # raises if the workers are closed
                yield self._handle
            finally:
                self._inside = False
                if self._closes:
                    self.close()
        finally:
            self._busy.release()

    def close(self):
        """Waits until no other thread is in the call, then frees its memory; in a call, for example in a signal handler, at its end."""
        with self._busy:
            self._closes = True
            if self._inside:
                return
            handle, self._handle = self._handle, None
            if handle is not None:
                self._destroy(handle)
                if self._owns_workers:
                    self._workers.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if hasattr(self, "_owns_workers"):
            self.close()


class Call(Used):
    """Common base of Mean, ReduceScatter, AllGather, Broadcast and AllToAll."""

    _destroy = staticmethod(library.globalq_call_destroy)

    def __init__(self, workers, kind, operator, schedule, seed, non_finite, measure_errors, layers=(), warm_up=0, first_layer=0,
                 model_layers=0, learn_at=None, chunk_values=0, root=0):
        if non_finite not in ("propagate", "error"):
            raise c.ConfigurationError(f'globalq: non_finite is "{non_finite}"; give "propagate" or "error"')
        super().__init__(workers)
        settings = c.Settings(operator_name=c.text("operator", operator), schedule=c.text("schedule", schedule),
                              seed=c.number("seed", seed), warm_up=c.number("warm_up", warm_up),
                              first_layer=c.number("first_layer", first_layer), model_layers=c.number("model_layers", model_layers),
                              fail_on_non_finite=non_finite == "error", measure_errors=bool(measure_errors),
                              learn_at=c.text("learn_at", learn_at), chunk_values=c.number("chunk_values", chunk_values),
                              root=c.number("root", root, -2**31, 2**31 - 1))
        array, keep = layer_array(layers)
        handle = ctypes.c_void_p()
        check(library.globalq_call_create(self._workers.handle, kind, ctypes.byref(settings), array, len(array), ctypes.byref(handle)))
        self._handle = handle.value

    def _run(self, step, vectors):
        """Runs the call.

        vectors()  returns tuples (input, output or None for in place)
        """
        with contextlib.ExitStack() as until_the_end:
            with informing(self._workers):
                step = c.number("step", step)
                pairs = []
                for x, y in vectors():
                    given = Values(x, writes=y is None)
                    to = given if y is None else Values(y, writes=True)
                    if to.type != given.type:
                        raise c.ConfigurationError("globalq: input and output have different types; use one type for both")
                    pairs.append((given, to))
                if any(v.copy is not None for pair in pairs for v in pair):
                    refuse_overlaps([(k, v) for k, pair in enumerate(pairs) for v in dict.fromkeys(pair)])
                handle = until_the_end.enter_context(self._open())
                run = self._function(pairs)
            self._check(run(handle, step))
        for _, to in pairs:
            to.store()

    def _check(self, status):
        """Raises the exception of a status, with the exception of a Python callback as its cause."""
        cause, self._workers.cause = self._workers.cause, None
        if status != 0 and cause is not None and not isinstance(cause, Exception):
            raise cause  # KeyboardInterrupt, SystemExit
        try:
            check(status)
        except c.Error as problem:
            raise problem from cause

    def report(self):
        """Returns totals since the last report as a dict: calls, failed, bytes_sent, seconds of each phase, ..."""
        found = c.Report()
        with self._open() as handle:
            check(library.globalq_call_report(handle, ctypes.byref(found)))
        return {name: getattr(found, name) for name, _ in c.Report._fields_ if name != "size"}

    def operator(self, layer=0):
        """Returns the operator of the call, or of a layer, as a text of its policies. It contains the number of levels, not their values."""
        with self._open() as handle:
            name = library.globalq_call_operator(handle, c.number("layer", layer))
        if not name:
            raise c.ConfigurationError(library.globalq_error().decode())
        return name.decode()


class Mean(Call):
    """Averages vectors over workers. All workers create it once with the same arguments and call it once per step.

        mean = globalq.Mean(workers, "cgx:4", seed=42)
        mean(gradient, step)                    # in place: a numpy array or a torch tensor
        mean([w1, b1], step)                    # several in one call

    workers         NamedMemory, MessageWorkers, the workers that run_threads passes, or a process group of torch (the call then joins it
                    as globalq.torch.join() does, and closes those workers with itself)
    operator        "NAME[:VALUE][,word=value].."; operators() and words() list them
    schedule        ring, tree, sra, allgather or hierarchical:N; None: the schedule of the operator
    seed            selects the random bits, together with the step
    layers          layers of a model, (name, shape[, dtype[, operator]]), each with its own operator; each call then takes one vector
                    per layer. An operator may be a compressor, "top-k:0.01" or "power-sgd:4": each worker keeps the residual that it
                    does not send and adds it to its next vector; see save()
    warm_up         number of first steps that are sent as float32; requires layers
    first_layer, model_layers  if layers are part of a model: the index of the first one, and the number of layers of the model
    non_finite      "propagate": if any input is NaN or infinite, every value of the result is NaN; "error": NonFiniteError
    measure_errors  report() includes the rounding error; costs one more pass over the values
    learn_at        steps at which "alq" and "amq" learn the levels of each layer from the vectors of all workers; None: the steps of the
                    paper, "100,2000,every 10000". A call whose first step is after one of these learns in its first step
    chunk_values    values sent at a time; 0: chosen by globalq
    """

    def __init__(self, workers, operator="float32", *, schedule=None, seed=0, layers=(), warm_up=0, first_layer=0,
                 model_layers=0, non_finite="propagate", measure_errors=False, learn_at=None, chunk_values=0):
        super().__init__(workers, 0, operator, schedule, seed, non_finite, measure_errors, layers, warm_up, first_layer, model_layers,
                         learn_at, chunk_values)

    def __call__(self, x, step, out=None):
        """Averages x, or each vector of a list, in place or into out; returns the result. Use each step once. A list of k vectors without
        layers uses the k steps from step on."""

        def vectors():
            many = isinstance(x, (list, tuple))
            xs = list(x) if many else [x]
            ys = [None] * len(xs) if out is None else (list(out) if many else [out])
            if len(ys) != len(xs):
                raise c.ConfigurationError(f"globalq: {len(xs)} vectors into {len(ys)}; give as many")
            return zip(xs, ys)

        self._run(step, vectors)
        return x if out is None else out

    def start(self, x, step, out=None):
        """Starts a call and returns it as a Started, while this thread goes on. x and out belong to the call until its wait(). Calls over the
        same workers that are started run in the order of start(), in one thread; do not call otherwise meanwhile."""
        return self._workers.begin(lambda: self(x, step, out))

    @staticmethod
    def _function(pairs):
        for given, to in pairs:
            if to.length != given.length:
                raise c.ConfigurationError(f"globalq: {given.length} values into {to.length}; give an output of the same length")
        vectors = (c.Vector * len(pairs))(*(c.Vector(given.address, to.address, given.length, given.type) for given, to in pairs))
        return lambda handle, step: library.globalq_call_run(handle, vectors, len(pairs), step)

    def save(self):
        """Returns the residuals of this worker (of compressors and operators with error feedback) as bytes; b"" if there are none."""
        size = ctypes.c_size_t()
        with self._open() as handle:
            check(library.globalq_call_save(handle, None, ctypes.byref(size)))
            kept = ctypes.create_string_buffer(size.value)
            check(library.globalq_call_save(handle, kept, ctypes.byref(size)))
        return kept.raw

    def load(self, states):
        """Restores saved residuals. All workers call it before the same step. Layers are found by name, so the saving calls may have
        had other layers of the model.

        states: a list with the bytes of this worker; if the number of workers was different, the bytes of all of those workers.
        [] makes a call without compressors forget its residuals.
        """
        if not isinstance(states, (list, tuple)) or not all(isinstance(state, (bytes, bytearray)) for state in states):
            raise c.ConfigurationError("globalq: load() takes a list of states that save() returned as bytes, [state] for one")
        array = (c.Bytes * len(states))(*(c.Bytes(bytes(state), len(state)) for state in states))
        with self._open() as handle:
            check(library.globalq_call_load(handle, array, len(states)))

    def load_own(self, state):
        """Restores the residuals of this worker as they were among other workers: it stays, and some left or joined. Those that join load
        nothing. state: bytes that save() returned, on any rank of any number of workers. Raises ConfigurationError for states that belong
        to all workers, as those of "power-sgd" do."""
        if not isinstance(state, (bytes, bytearray)):
            raise c.ConfigurationError("globalq: load_own() takes a state that save() returned as bytes")
        with self._open() as handle:
            check(library.globalq_call_load_own(handle, ctypes.byref(c.Bytes(bytes(state), len(state)))))

    def average_bucket(self, gradients, step):
        """Averages in place the parts of one buffer, a DDP bucket, that autograd does not track. Returns the number of calls since the
        last report whose result is NaN, and the rank that caused it. It validates only what may differ between DDP buckets, because
        it runs on cores that the backward pass uses."""
        if all(g.is_contiguous() and g.device.type == "cpu" for g in gradients):
            with contextlib.ExitStack() as until_the_end:
                with informing(self._workers):
                    vectors, dtype = (c.Vector * len(gradients))(), type_number(gradients[0].dtype)
                    for vector, g in zip(vectors, gradients):
                        vector.input = vector.output = g.data_ptr()
                        vector.length, vector.type = g.numel(), dtype
                    handle = until_the_end.enter_context(self._open())
                self._check(library.globalq_call_run(handle, vectors, len(gradients), step))
        else:
            self(gradients, step)
        found = c.Report()
        with self._open() as handle:
            check(library.globalq_call_report(handle, ctypes.byref(found)))
        return found.non_finite, found.non_finite_rank

    def plan(self, length=0, dtype="float32"):
        """Returns the plan of a call with vectors of this length; with layers, of all layers together."""
        found = c.Plan()
        with self._open() as handle:
            check(library.globalq_call_plan(handle, c.number("length", length), type_number(dtype), ctypes.byref(found)))
        return plan_of(found)


class Shards(Call):
    """Base of calls in which every worker owns a part of the vector. Arguments are as in Mean."""

    def __init__(self, workers, operator="float32", *, seed=0, non_finite="propagate", measure_errors=False):
        super().__init__(workers, self._kind, operator, None, seed, non_finite, measure_errors)

    def shard(self, length, rank=None):
        """Returns the slice of a vector that a worker owns; by default this worker."""
        first, count = ctypes.c_uint64(), ctypes.c_uint64()
        rank = self._workers.rank if rank is None else c.number("rank", rank, 0, 2**31 - 1)
        with self._open() as handle:
            check(library.globalq_call_shard(handle, c.number("length", length), rank, ctypes.byref(first), ctypes.byref(count)))
        return slice(first.value, first.value + count.value)

    @staticmethod
    def _function(pairs):
        (x, y), = pairs
        return lambda handle, step: library.globalq_call_run_shard(handle, x.address, x.length, y.address, y.length, x.type, step)


class ReduceScatter(Shards):
    """Every worker gets its shard of the mean: scatter(gradient, own, step)."""

    _kind = 1

    def __call__(self, x, own, step):
        """Averages x and writes the values shard(len(x)) of the mean to own; if own is None, to their place in x. own is either that
        part of x, or does not overlap x."""
        self._run(step, lambda: [(x, own)])
        return x if own is None else own


class AllGather(Shards):
    """Every worker gets the shards of all workers: gather(own, weights, step)."""

    _kind = 2

    def __call__(self, own, out, step):
        """Fills out with the decoded shards of all workers, including this one. If own is None, out already contains the own shard at its
        place. own is either that part of out, or does not overlap out."""
        self._run(step, lambda: [(out, None) if own is None else (own, out)])
        return out


class Broadcast(Call):
    """Every worker gets the quantized vector of one, the root: send(weights, step). Arguments are as in Mean.

    root  rank of the worker that has the vector
    """

    def __init__(self, workers, operator="float32", *, root=0, seed=0, non_finite="propagate", measure_errors=False, chunk_values=0):
        super().__init__(workers, 3, operator, None, seed, non_finite, measure_errors, chunk_values=chunk_values, root=root)

    def __call__(self, x, step, out=None):
        """Sends x of the root to all workers, in place or into out; returns the result. x of the other workers is not read. All workers,
        the root too, get the decoded values."""
        self._run(step, lambda: [(x, out)])
        return x if out is None else out

    _function = staticmethod(Mean._function)


class AllToAll(Call):
    """Exchanges parts: of n workers' n equal parts, worker r gets part r of each: exchange(tokens, step). Arguments are as in Mean.

    Each part has its own norm, and buckets begin with it. Part p of the result comes from worker p, this worker's own part too, decoded.
    """

    def __init__(self, workers, operator="float32", *, seed=0, non_finite="propagate", measure_errors=False, chunk_values=0):
        super().__init__(workers, 4, operator, None, seed, non_finite, measure_errors, chunk_values=chunk_values)

    def __call__(self, x, step, out=None):
        """Exchanges the parts of x, in place or into out; returns the result. Use each step once; steps are below 2^48 / n."""
        self._run(step, lambda: [(x, out)])
        return x if out is None else out

    _function = staticmethod(Mean._function)


class Chooser(Used):
    """Chooses operators for layers (name, shape[, dtype[, operator]]) from the gradients of all workers; see globalq.h."""

    _destroy = staticmethod(library.globalq_chooser_destroy)

    def __init__(self, workers, layers, reference, rule, alpha):
        super().__init__(workers)
        if not 0 < alpha < float("inf"):
            raise c.ConfigurationError(f"globalq: alpha is {alpha}; give a number above 0, such as 1.0")
        settings = c.ChooserSettings(rule=c.text("rule", rule), reference=c.text("reference", reference), alpha=alpha)
        array, _ = layer_array(layers)
        handle = ctypes.c_void_p()
        check(library.globalq_chooser_create(self._workers.handle, ctypes.byref(settings), array, len(array), ctypes.byref(handle)))
        self._handle, self._count = handle.value, len(array)

    def add(self, layer, gradient):
        """Adds this worker's gradient of a layer, before it is averaged."""
        x = Values(gradient, writes=False)
        with self._open() as handle:
            check(library.globalq_chooser_add(handle, layer, c.Vector(x.address, None, x.length, x.type), 1))

    def choose(self, step):
        """Returns the operators of the layers from now on. All workers call it."""
        changed = ctypes.c_int()
        with contextlib.ExitStack() as until_the_end:
            with informing(self._workers):
                step = c.number("step", step)
                handle = until_the_end.enter_context(self._open())
            check(library.globalq_chooser_choose(handle, step, changed))
            return [library.globalq_chooser_operator(handle, k).decode() for k in range(self._count)]
