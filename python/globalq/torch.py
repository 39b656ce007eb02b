# SPDX-License-Identifier: Apache-2.0
"""globalq for PyTorch: gradients and weights of data-parallel training, for a fraction of the bytes.

    model = DistributedDataParallel(net)
    model.register_comm_hook(None, globalq.torch.DDPHook("cgx:4", model))

    fully_shard(model)                       # FSDP2, torch 2.6 and newer
    globalq.torch.shard(model, weights="qsdp", gradients="qsdp")

Uses torch through its public Python interface only, so one package serves every version from 1.13 on.
"""

import contextlib
import ctypes
import datetime
import fnmatch
import inspect
import os
import queue
import sys
import threading
import warnings
import weakref

import torch
import torch.distributed as dist

from ._calls import AllGather, Chooser, Mean, ReduceScatter
from ._library import ConfigurationError, Error, Handle, number
from ._workers import MessageWorkers, NamedMemory, new_name

__all__ = ["CGX_EXCLUDES", "DDPHook", "GroupWorkers", "Sharded", "join", "shard"]

# Biases and normalizations, as CGX has them (Markov 2024, section 3.5); tensors of one dimension are excluded besides.
CGX_EXCLUDES = ("*bias*", "*norm*", "*bn[0-9]*", "*ln_*")

# Where the number of layers is not known, they draw random bits as if there were so many.
MOST_LAYERS = 1 << 16


class GroupWorkers(MessageWorkers):
    """Processes of a group of torch, over dist.isend and dist.irecv. Nothing else may send and receive through the group meanwhile.

    Bytes are copied to and from tensors, which outlive transfers that are given up: torch cannot take them back.
    """

    def __init__(self, group, ranks):
        """ranks: of the members in the world, by their ranks in the group."""
        self._group, self._ranks, self._given_up = group, ranks, []
        super().__init__(dist.get_rank(group), len(ranks))

    def send(self, peer, view):
        bytes_ = torch.frombuffer(view, dtype=torch.uint8).clone() if view.nbytes else torch.zeros(1, dtype=torch.uint8)
        return dist.isend(bytes_, self._ranks[peer], group=self._group), bytes_, None

    def receive(self, peer, view):
        bytes_ = torch.empty(max(1, view.nbytes), dtype=torch.uint8)  # an empty message is a byte that nobody reads
        return dist.irecv(bytes_, self._ranks[peer], group=self._group), bytes_, view

    def wait(self, ticket):
        work, bytes_, view = ticket
        work.wait()
        if view is not None and view.nbytes:
            torch.frombuffer(view, dtype=torch.uint8).copy_(bytes_)

    def abandon(self, ticket):
        if ticket is not None:
            self._given_up.append(ticket[:2])


def machine():
    """What processes of one machine, or container, have alike: they share /dev/shm."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip(), os.stat("/dev/shm").st_dev
    except OSError:
        return os.uname().nodename, os.getpid()


def needed_memory(processes):
    """Bytes in /dev/shm that so many processes take at most."""
    return (34 << 20) + 8192 * processes + 4200 * processes**2


def join(group=None, deadline=600.0):
    """Workers for the processes of a group (None: all), which call it together.

    On one machine they share memory (GLOBALQ_SHARED_MEMORY=off: they do not); else messages go through a gloo group of their own. For some
    of the processes only, torch before 2.1 cannot make one: then the group that is given has to be one of gloo, and is used itself.
    """
    if group is not None and dist.get_rank(group) < 0:
        raise ConfigurationError("globalq: this process is not in the group; join() is called by its members")
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    told = [None] * size
    try:
        room = os.statvfs("/dev/shm")
        shares = os.environ.get("GLOBALQ_SHARED_MEMORY") != "off" and room.f_bavail * room.f_frsize >= needed_memory(size)
    except OSError:
        shares = False
    dist.all_gather_object(told, (machine() if shares else None, new_name(), dist.get_rank()), group=group)
    if all(where is not None and where == told[0][0] for where, _, _ in told):
        return NamedMemory(told[0][1], rank, size, deadline)
    ranks, seconds = [r for _, _, r in told], datetime.timedelta(seconds=deadline)
    if size == dist.get_world_size():
        return GroupWorkers(dist.new_group(backend="gloo", timeout=seconds), ranks)
    if "use_local_synchronization" in inspect.signature(dist.new_group).parameters:
        return GroupWorkers(dist.new_group(ranks=ranks, backend="gloo", timeout=seconds, use_local_synchronization=True), ranks)
    if dist.get_backend(group) != "gloo":
        raise ConfigurationError(f"globalq: processes of several machines in a group of backend {dist.get_backend(group)}; give a group of "
                                 "backend gloo, or use torch 2.1 or newer")
    return GroupWorkers(group, ranks)


class Layer:
    """A parameter: its number among all, its name, and how its gradient travels."""

    def __init__(self, parameter, number, name):
        self.parameter, self.number = parameter, number  # keeps the parameter, and with it its identity
        self.name = f"parameter.{number}" if name is None else name
        self.operator = self.why = None
        self.chooses = False


class Adapting:
    """Chooses the operators of layers anew at the end of every so many steps, in the thread that averages."""

    def __init__(self, workers, layers, every, *settings):
        self._workers, self._layers, self._settings = workers, layers, settings
        self._every, self._places = number("adapt_every", every, 1), {layer.number: k for k, layer in enumerate(layers)}
        self._chooser = None
        self.load({})

    def add(self, layers, gradients):
        for layer, gradient in zip(layers, gradients):
            if layer.number in self._places:
                self._chooser.add(self._places[layer.number], gradient)

    def choose(self, step):
        if (step + 1) % self._every == 0:
            for layer, op in zip(self._layers, self._chooser.choose(step)):
                layer.operator = op

    def operators(self):
        return {layer.name: layer.operator for layer in self._layers}

    def load(self, operators):
        """Goes on from these operators of layers; from those that they have where there are none."""
        found = [operators.get(layer.name, layer.operator) for layer in self._layers]
        begun = Chooser(self._workers, [(layer.name, layer.parameter.shape, None, op) for layer, op in zip(self._layers, found)],
                        *self._settings)
        self.close()
        self._chooser = begun
        for layer, op in zip(self._layers, found):
            layer.operator = op

    def close(self):
        if self._chooser is not None:
            self._chooser.close()


def views_in(copy, buffer, gradients):
    """The parts of a copy of a buffer that are where gradients are in the buffer."""
    return [copy.as_strided(g.shape, g.stride(), g.storage_offset() - buffer.storage_offset()) for g in gradients]


class InHostMemory:
    """The gradients of a bucket; of one on a GPU, a copy in pinned memory. Has not been run on a GPU yet."""

    def __init__(self, buffer, gradients):
        self.gradients, self._buffer, self._copy, self._copied = gradients, buffer, None, None
        if buffer.device.type != "cpu":
            self._copy = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=buffer.is_cuda)
            self._copy.copy_(buffer, non_blocking=buffer.is_cuda)
            self._copied = torch.cuda.current_stream(buffer.device).record_event() if buffer.is_cuda else None
            self.gradients = views_in(self._copy, buffer, gradients)

    def wait(self):
        if self._copied is not None:
            self._copied.synchronize()

    def store(self):
        if self._copy is not None:
            self._buffer.copy_(self._copy)


class Engine:
    """The thread that averages buckets, in the order in which they come. It does not know the hook, which may go away."""

    def __init__(self, workers, model_layers, adapting=None, **settings):
        self.workers, self._model_layers, self._adapting, self._settings = workers, model_layers, adapting, settings
        self.non_finite = 0
        self._calls, self._jobs = {}, queue.SimpleQueue()
        self._states, self._states_of = [], None  # what calls saved, and the step that takes it up
        self._thread = threading.Thread(target=self._work, name="globalq", daemon=True)
        self._thread.start()

    def start(self, *job):
        if self._thread is None:
            raise Error("globalq: the hook is closed; make another one")
        self._jobs.put(job)

    def close(self):
        """After the buckets that were started."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()
            for mean, _ in self._calls.values():
                mean.close()
            if self._adapting is not None:
                self._adapting.close()
            self.workers.close()

    def _work(self):
        for first, layers, bucket, step, last, done in iter(self._jobs.get, None):
            problem = ""
            try:
                bucket.wait()
                if self._adapting is not None:
                    self._adapting.add(layers, bucket.gradients)
                self._average(first, layers, bucket.gradients, step)
                bucket.store()
                if self._adapting is not None and last:
                    self._adapting.choose(step)
            except BaseException as error:  # goes on in the thread that waits for the future
                problem = str(error) or type(error).__name__
            done.set_result(problem)
            del layers, bucket, done

    def save(self):
        """What this process keeps between steps, by layer; see Mean.save()."""
        if self._states_of is None:  # loaded, and not taken up yet
            return self._states
        return [state for state in (mean.save() for mean, _ in self._calls.values()) if state]

    def load(self, states):
        """Between steps: the next ones take up what was saved."""
        for mean, _ in self._calls.values():
            mean.close()
        # saved again before they were taken up, processes have the same ones
        self._calls, self._states, self._states_of = {}, list(dict.fromkeys(states)), None

    def _average(self, first, layers, gradients, step):
        key = (first, tuple((layer.number, layer.operator) for layer in layers))
        mean, _ = self._calls.get(key, (None, 0))
        if self._states_of is None:
            self._states_of = step
        elif self._states_of < step:
            self._states = []
        if mean is None:
            # buckets are made anew after the first step, and layers get other operators: calls of earlier steps hand on what they keep
            numbers = {layer.number for layer in layers}
            old = {k for k, (_, used) in self._calls.items() if used < step and (used + 1 < step or numbers & {n for n, _ in k[1]})}
            for call in [self._calls.pop(k)[0] for k in old]:
                if state := call.save():
                    self._states.append(state)
                    self._states_of = step
                call.close()
            mean = Mean(self.workers, first_layer=first, model_layers=self._model_layers, **self._settings,
                        layers=[(layer.name, layer.parameter.shape, g.dtype, layer.operator) for layer, g in zip(layers, gradients)])
            if self._states:
                try:
                    mean.load(self._states)
                except Exception:  # damaged, or of another training
                    with contextlib.suppress(Error):
                        mean([], step)  # which is refused here, and the other processes are told
                    raise
        self._calls[key] = mean, step
        non_finite, who = mean.average_bucket(gradients, step)
        if non_finite:
            self.non_finite += 1
            if self.non_finite == 1 and self.workers.rank == 0:
                text = (f"globalq: step {step}: gradients of a bucket are NaN on all processes: "
                        + (f"rank {who} brought NaN or infinity" if who >= 0 else "their mean is beyond the range of their type")
                        + "; later ones are only counted, in DDPHook.non_finite")
                try:
                    warnings.warn(text, stacklevel=1)
                except Warning:  # an error here and not elsewhere would end the training on one process
                    print(text, file=sys.stderr)


class Counted(Handle):
    """Counts steps, which with the seed select random bits. Subclasses have workers and _step."""

    @property
    def step(self):
        """Number of the step that began last; -1 before the first."""
        return self._step

    @property
    def bytes_sent(self):
        """Bytes that this process has sent."""
        return self.workers.bytes_sent

    def state_dict(self):
        """What each process saves with the model, so that a resumed training does not draw the random bits of earlier steps again."""
        return {"step": self._step}

    def load_state_dict(self, state):
        """Continues after the step of a state_dict()."""
        self._step = int(state["step"])


class DDPHook(Counted):
    """A communication hook of DistributedDataParallel: model.register_comm_hook(None, hook).

    Gradients are averaged bucket by bucket, each layer by an operator, by a thread of the hook while the backward pass runs. All
    processes make it at the same point with the same arguments, and end each step with the same bits. Ctrl-C takes effect when the
    bucket that is under way has ended.

    operator     of layers that are quantized: "float32" or a named one; globalq.operators() lists them. "top-k:0.01" and "power-sgd:4"
                 keep what they do not send, by layer, and add it to the next gradient; state_dict() has it. They take float32
    model        the DistributedDataParallel, whose process group is used, or the module in it. Without it layers have no names, and
                 exclude and layers cannot be used
    layers       {pattern: operator} for layers whose name matches; the first match counts, before exclude, min_size and min_dims
    exclude      patterns of names; what matches travels as float32
    min_size     layers of fewer values travel as float32
    min_dims     layers of fewer dimensions travel as float32: below 2 are biases and normalizations
    schedule     of all layers; None: that of the operator
    seed         of the rounding
    warm_up      so many first steps travel as float32
    adapt        "lgreco" or "kmeans" (CGX): layers begin with the operator, of 2 to 8 bits, and get more or fewer bits by their gradients,
                 for fewer bytes with the same error. Takes float32 memory as long as the layers; those named in layers keep their operators
    adapt_every  steps after which they do; state_dict() has the operators that were chosen
    adapt_alpha  the squared error may be so many times that of the operator in all layers
    first_step   number of the first step, for a training that is resumed; see load_state_dict()
    learn_at     steps at which layers with operators "alq" or "amq" learn levels, each its own; None: "100,2000,every 10000". Levels
                 are not in state_dict(): a training that is resumed behind one of these steps learns them in its first step
    deadline     seconds that a wait for another process may take
    group        process group; None: that of the model, or all processes
    workers      instead of join(group, deadline)
    """

    def __init__(self, operator="cgx:4", model=None, *, layers=None, exclude=CGX_EXCLUDES, min_size=0, min_dims=2, schedule=None,
                 seed=0, warm_up=0, adapt=None, adapt_every=1000, adapt_alpha=1.0, first_step=0, learn_at=None,
                 deadline=600.0, group=None, workers=None):
        self.__name__ = self.__qualname__ = "DDPHook"  # torch asks for the name of a hook, which is usually a function
        if isinstance(exclude, str):
            raise TypeError('globalq: exclude is a list of patterns, such as ["head.*"]')
        self._operator, self._rules, self._exclude = operator, dict(layers or {}), tuple(exclude)
        self._min_size, self._min_dims = min_size, min_dims
        self._step, self._in_step, self._layers = first_step - 1, 0, {}
        module = model
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            module, group = model.module, model.process_group if group is None else group
        for name, parameter in [] if module is None else module.named_parameters():
            if parameter.requires_grad:
                self._add(parameter, name)
        given = [*self._rules, *(self._exclude if self._exclude != CGX_EXCLUDES else ())]
        if module is None and given:
            raise ConfigurationError("globalq: layers and exclude select layers by name; pass the model as well")
        for pattern in given:
            if not any(fnmatch.fnmatchcase(layer.name, pattern) for layer in self._layers.values()):
                raise ConfigurationError(f'globalq: the pattern "{pattern}" matches none of the {len(self._layers)} layers')
        self._named = module is not None
        workers = join(group, deadline) if workers is None else workers
        # what is unknown is refused here rather than in the backward pass
        asked = {(op, torch.float32) for op in (operator, *self._rules.values())}
        for op, dtype in asked | {(layer.operator, layer.parameter.dtype) for layer in self._layers.values()}:
            Mean(workers, op, schedule=schedule, learn_at=learn_at, layers=[("layer", (1,), dtype)]).close()
        if adapt is not None and module is None:
            raise ConfigurationError("globalq: adapt needs to know the layers; pass the model as well")
        chooses = [layer for layer in self._layers.values() if layer.chooses]
        self._adapting = None if adapt is None else Adapting(workers, chooses, adapt_every, operator, adapt, adapt_alpha)
        self._engine = Engine(workers, len(self._layers) or MOST_LAYERS, self._adapting, operator=operator, schedule=schedule, seed=seed,
                              warm_up=warm_up, learn_at=learn_at)
        # also when Python ends: a thread that completes a future then would end the process by a signal
        self._end = weakref.finalize(self, self._engine.close)

    def _add(self, parameter, name):
        layer = self._layers[id(parameter)] = Layer(parameter, len(self._layers), name)
        rule = next((op for p, op in self._rules.items() if fnmatch.fnmatchcase(layer.name, p)), None)
        pattern = next((p for p in self._exclude if fnmatch.fnmatchcase(layer.name, p)), None)
        if rule is None and pattern is not None:
            layer.why = f"its name matches {pattern}"
        elif rule is None and parameter.numel() < self._min_size:
            layer.why = f"its {parameter.numel()} values are fewer than {self._min_size}"
        elif rule is None and parameter.dim() < self._min_dims:
            layer.why = f"its {parameter.dim()} dimensions are fewer than {self._min_dims}"
        layer.operator = "float32" if layer.why else rule or self._operator
        layer.chooses = rule is None and not layer.why
        return layer

    def _layer_of(self, parameter):
        layer = self._layers.get(id(parameter))
        if layer is None:
            if self._named:
                raise Error("globalq: a bucket has a parameter that the model did not have when the hook was made; make the hook from "
                            "the model that is trained")
            layer = self._add(parameter, None)
        return layer

    def __call__(self, state, bucket):
        """Starts to average a bucket in place; returns a future of its buffer."""
        if isinstance(bucket, tuple):
            raise Error("globalq: compiled autograd gives hooks single parameters instead of buckets; turn it off "
                        "(torch._dynamo.config.compiled_autograd = False). torch.compile without it works")
        if bucket.index() == 0:
            self._step += 1
            self._in_step = 0
        layers = [self._layer_of(p) for p in bucket.parameters()]
        buffer = bucket.buffer()
        done = torch.futures.Future(devices=[] if buffer.device.type == "cpu" else [buffer.device])
        if buffer.layout is not torch.strided:
            raise Error(f"globalq: the gradient of {', '.join(layer.name for layer in layers) or 'a layer'} is of layout {buffer.layout}; use "
                        "dense gradients (nn.Embedding(sparse=False))")
        self._engine.start(self._in_step, layers, InHostMemory(buffer, bucket.gradients()), self._step, bucket.is_last(), done)
        self._in_step += len(layers)

        def averaged(future):
            if future.value():
                raise Error(future.value())
            return buffer

        return done.then(averaged)

    def state_dict(self):
        """What each process saves with the model: the step, what compressors have not sent yet and, with adapt, the operators that were
        chosen. Called between steps."""
        chosen = {} if self._adapting is None else {"operators": self._adapting.operators()}
        kept = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in self._engine.save()]
        return {**super().state_dict(), "compressors": kept, **chosen}

    def load_state_dict(self, state):
        """Continues after the step of a state_dict().

        state: of this process; or, where another number of processes saved theirs, a list of all of them.
        """
        states = [state] if isinstance(state, dict) else list(state)
        kept = [tensor.cpu().contiguous() for s in states for tensor in s.get("compressors", ())]
        step = number("step", states[0]["step"], -1)
        if self._adapting is not None:  # first, since it may refuse them
            self._adapting.load(states[0].get("operators", {}))
        self._engine.load([ctypes.string_at(tensor.data_ptr(), tensor.numel()) for tensor in kept])
        super().load_state_dict({"step": step})

    def report(self):
        """A tuple for each layer: name, values, operator (that it has now), why it is not quantized (or None)."""
        return [(layer.name, layer.parameter.numel(), layer.operator, layer.why) for layer in self._layers.values()]

    @property
    def workers(self):
        return self._engine.workers

    @property
    def non_finite(self):
        """Buckets whose gradients became NaN on all processes; the first is told by a warning on rank 0."""
        return self._engine.non_finite

    def close(self):
        """Ends the thread, after the buckets that were started. The hook cannot be used any more."""
        self._end()


class Padded:
    """Equal shares of a vector, as FSDP2 has them, for calls whose shards are cut at multiples of a number of values."""

    def __init__(self, call):
        self.call, size = call, call.workers.size
        # a vector that the first worker has all of is one unit, or less
        self._unit = 256
        while size > 1 and call.shard(self._unit, 0).stop == self._unit:
            self._unit *= 2
        if size > 1:
            self._unit = call.shard(self._unit, 0).stop

    def share(self, count):
        """What each worker brings for shares of so many values: as many, rounded up."""
        return -(-count // self._unit) * self._unit


def times_of(op, size):
    """By what the mean of so many processes is multiplied to be what a ReduceOp asks for."""
    if op == dist.ReduceOp.AVG:
        return 1
    if op == dist.ReduceOp.SUM:
        return size
    if op == getattr(dist.ReduceOp, "PREMUL_SUM", None):  # of FSDP2 where set_gradient_divide_factor() was called
        state = op.__getstate__()  # for pickle, in every torch that has it: the operation, the factor
        if isinstance(state, tuple):
            return size * state[1]
    raise ConfigurationError(f"globalq: reduce_scatter by {op}; use AVG, SUM, or a PREMUL_SUM that has a factor")


class Sharded(Counted):
    """What FSDP2 calls instead of its own collectives, each of which is a step: see shard()."""

    def __init__(self, workers, weights, gradients, seed):
        self.workers = workers
        self._gather, self._scatter = Padded(AllGather(workers, weights, seed=seed)), Padded(ReduceScatter(workers, gradients, seed=seed))
        self._step = -1

    def _next(self):
        self._step += 1
        return self._step

    def close(self):
        for padded in (self._gather, self._scatter):
            padded.call.close()
        self.workers.close()

    def gather(self, output, own):
        """output: the shares of all, of which own is this process's, perhaps in its place."""
        gather, size, rank, count = self._gather, self.workers.size, self.workers.rank, own.numel()
        share, step = gather.share(count), self._next()
        if share == count:
            place = output.view(-1)[rank * count:(rank + 1) * count]
            if place.data_ptr() != own.data_ptr():
                place.copy_(own.view(-1))
            gather.call(None, output.view(-1), step)
            return
        padded = output.new_zeros(size, share)
        padded[rank, :count] = own.view(-1)
        gather.call(None, padded.view(-1), step)
        output.view(size, count).copy_(padded[:, :count])

    def scatter(self, output, given, op):
        """output: this process's share of the mean, or of the sum, of what all bring."""
        scatter, size, count = self._scatter, self.workers.size, output.numel()
        times = times_of(op, size)
        share, step = scatter.share(count), self._next()
        if share == count:
            scatter.call(given.view(-1), output.view(-1), step)
        else:
            padded = given.new_zeros(size, share)
            padded[:, :count] = given.view(size, count)
            own = given.new_empty(share)
            scatter.call(padded.view(-1), own, step)
            output.view(-1).copy_(own[:count])
        output.mul_(times)


class Collective:
    """A collective of FSDP2, which asks for two members: allocate() and a call."""

    def __init__(self, sharded):
        self._sharded = sharded

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


class GatherWeights(Collective):
    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        if not output_tensor.is_floating_point() or output_tensor.element_size() < 2:
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        return self._sharded.gather(output_tensor, input_tensor)


class ScatterGradients(Collective):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        return self._sharded.scatter(output_tensor, input_tensor, op)


def shard(model, weights="qsdp", gradients="qsdp", *, seed=0, deadline=600.0, group=None, workers=None):
    """Lets all modules of a model that fully_shard() made FSDP modules send their weights and gradients by operators, as QSDP does.

    Weights are decoded by their owner too, so replicas of a layer agree while it is used; the exact weights stay in the shards. Buffers of
    bytes travel as they are. Collectives return when they have ended: they do not overlap with computing.

    weights, gradients  operators; "float32" for none
    group               of the modules' mesh; None: all processes
    returns             a Sharded: bytes_sent, state_dict(), close()
    Source: Markov 2024 (thesis), chapter 5 (QSDP).
    """
    modules = [m for m in model.modules() if hasattr(m, "set_custom_all_gather") and hasattr(m, "set_custom_reduce_scatter")]
    if not modules:
        raise ConfigurationError("globalq: the model has no FSDP modules that take collectives; call fully_shard() of torch 2.8 or newer "
                                 "before shard()")
    sharded = Sharded(join(group, deadline) if workers is None else workers, weights, gradients, seed)
    for module in modules:
        module.set_custom_all_gather(GatherWeights(sharded))
        module.set_custom_reduce_scatter(ScatterGradients(sharded))
    return sharded
