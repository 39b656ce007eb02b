# SPDX-License-Identifier: Apache-2.0
"""globalq for PyTorch: sends the gradients and weights of data-parallel training in a fraction of the bytes.

    model = DistributedDataParallel(net)
    model.register_comm_hook(None, globalq.torch.DDPHook("cgx:4", model))

    fully_shard(model)                       # FSDP2, torch 2.9 and newer
    globalq.torch.shard(model)               # QSDP

    dist.init_process_group("globalq", pg_options={"operator": "cgx:4"})   # a back end for all of these

The module uses only the public Python interface of torch, so one package supports every version from 1.13 on. The exceptions are where
parameters begin in the vectors of FSDP2, which torch keeps private (_fsdp.py), and the base class of back ends (_group.py).
"""

import fnmatch
import queue
import sys
import threading
import time
import warnings
import weakref

import torch

from ._calls import Chooser, Mean, bytes_of, informing
from ._diloco import DiLoCo, LocalSGD
from ._fsdp import CGX_EXCLUDES, Sharded, shard
from ._group import ProcessGroup, Traffic, operator, register, report, uncompressed
from ._join import GroupWorkers, join
from ._library import ConfigurationError, Error, Handle, number
from ._report import Counters

__all__ = ["CGX_EXCLUDES", "DDPHook", "DiLoCo", "GroupWorkers", "LocalSGD", "ProcessGroup", "Sharded", "Traffic", "join", "operator", "report",
           "shard", "uncompressed"]

register()

# Number of layers assumed for the random bits if the model is not known.
MOST_LAYERS = 1 << 16


class Layer:
    """A parameter with its index, its name and its operator; why: the reason if it is not quantized."""

    def __init__(self, parameter, number, name):
        self.parameter, self.number = parameter, number  # holding the parameter keeps its id() unique
        self.name = f"parameter.{number}" if name is None else name
        self.operator = self.why = None
        self.chooses = False


class Adapting:
    """Chooses the operators of layers again after every `every` steps, in the thread of the engine."""

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
        """Continues from the given operators; layers without one keep theirs."""
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
    """Returns views of a copy of a buffer at the places of the gradients in the buffer."""
    return [copy.as_strided(g.shape, g.stride(), g.storage_offset() - buffer.storage_offset()) for g in gradients]


class InHostMemory:
    """The gradients of a DDP bucket in host memory; for a GPU, a copy in pinned memory. Not run on a GPU yet."""

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
    """The thread that averages DDP buckets in the order of start(). Holds no reference to the hook, so that it can be collected."""

    def __init__(self, workers, model_layers, adapting=None, **settings):
        self.workers, self._model_layers, self._adapting, self._settings = workers, model_layers, adapting, settings
        self.non_finite, self._counters = 0, Counters()
        self._calls, self._jobs = {}, queue.SimpleQueue()
        self._states, self._states_of = [], None  # saved residuals, and the step that restores them (None: not yet)
        self._thread = threading.Thread(target=self._work, name="globalq", daemon=True)
        self._thread.start()

    def start(self, *job):
        if self._thread is None:
            raise Error("globalq: the hook is closed; make another one")
        if not self._thread.is_alive():
            raise Error("globalq: the thread of the hook is in the process that this one was forked from; make another hook after fork")
        self._jobs.put(job)

    def close(self):
        """Ends the thread after the DDP buckets that were started."""
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
                with informing(self.workers):
                    bucket.wait()
                    if self._adapting is not None:
                        self._adapting.add(layers, bucket.gradients)
                    mean = self._mean_of(first, layers, bucket.gradients, step)
                self._average(mean, bucket.gradients, step)
                bucket.store()
                if self._adapting is not None and last:
                    self._adapting.choose(step)
            except BaseException as error:  # raised again in the thread that waits for the future
                problem = str(error) or type(error).__name__
            done.set_result(problem)
            del layers, bucket, done

    def save(self):
        """Returns the residuals of this process; see Mean.save()."""
        if self._states_of is None:  # loaded, but not restored by a call yet
            return self._states
        return [state for state in (mean.save() for mean, _ in self._calls.values()) if state]

    def load(self, states):
        """Called between steps: calls of the next step restore these residuals."""
        for mean, _ in self._calls.values():
            mean.close()
        # states saved by save() before a call restored them are equal on all processes: keep one of each
        self._calls, self._states, self._states_of = {}, list(dict.fromkeys(states)), None

    def _mean_of(self, first, layers, gradients, step):
        """Returns the call that averages a DDP bucket, with the residuals of its layers."""
        key = (first, tuple((layer.number, layer.operator) for layer in layers))
        mean, _ = self._calls.get(key, (None, 0))
        if self._states_of is None:
            self._states_of = step
        elif self._states_of < step:
            self._states = []
        if mean is None:
            # torch rebuilds DDP buckets after the first step, and adapt changes operators: move the residuals of old calls to new ones
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
                mean.load(self._states)  # raises if they are corrupt or from another training run
        self._calls[key] = mean, step
        return mean

    def _average(self, mean, gradients, step):
        began, sent = time.monotonic(), self.workers.bytes_sent
        non_finite, who = mean.average_bucket(gradients, step)
        self._counters.add("DDPHook", self._settings["operator"], "", gradients, self.workers.bytes_sent - sent, time.monotonic() - began)
        if non_finite:
            self.non_finite += 1
            if self.non_finite == 1 and self.workers.rank == 0:
                text = (f"globalq: step {step}: gradients of a DDP bucket are NaN on all processes: "
                        + (f"the gradient of rank {who} contains NaN or infinity" if who >= 0 else "the mean exceeds the range of its type")
                        + "; later ones are only counted, in DDPHook.non_finite")
                try:
                    warnings.warn(text, stacklevel=1)
                except Warning:  # warnings may be errors; raising on one process only would end its training
                    print(text, file=sys.stderr)


class Counted(Handle):
    """Base that counts steps, which select the random bits together with the seed. Subclasses define workers and _step."""

    @property
    def step(self):
        """Number of the step that began last; -1 before the first."""
        return self._step

    @property
    def bytes_sent(self):
        """Bytes that this process has sent."""
        return self.workers.bytes_sent

    def state_dict(self):
        """Returns the state to save with the model, so that training does not reuse random bits after a restart."""
        return {"step": self._step}

    def load_state_dict(self, state):
        """Continues after the step of a state_dict()."""
        self._step = int(state["step"])


class DDPHook(Counted):
    """A communication hook of DistributedDataParallel: model.register_comm_hook(None, hook).

    A thread of the hook averages the gradients of each DDP bucket while the backward pass runs, each layer with its operator. All processes
    create the hook at the same point with the same arguments, and end each step with the same bits. Ctrl-C takes effect after the
    current DDP bucket.

    operator     operator of quantized layers: "float32" or a name from globalq.operators(). "top-k:0.01" and "power-sgd:4" require float32
                 gradients; they keep the residual of each layer and add it to the next gradient. state_dict() includes the residuals
    model        the DistributedDataParallel (the hook uses its process group) or the module inside it. Without a model, layers have no
                 names, and exclude and layers cannot be used
    layers       {pattern: operator} for layers whose name matches. The first match applies, before exclude, min_size and min_dims
    exclude      name patterns of layers that are sent as float32
    min_size     layers with fewer values are sent as float32
    min_dims     layers with fewer dimensions are sent as float32; biases and normalizations have fewer than 2
    schedule     schedule of all layers; None: the schedule of the operator
    seed         selects the random bits of rounding, together with the step
    warm_up      number of first steps that are sent as float32
    adapt        "lgreco" or "kmeans" (CGX): layers begin with the operator, of 2 to 8 bits, and get more or fewer bits depending on their
                 gradients; fewer bytes at the same error. "lgreco" also chooses the densities of "top-k:D", from D / 10 to 10 D, and the
                 ranks of "power-sgd:R", from R / 2 to 2 R. Allocates float32 memory of their size. Layers named in layers are excepted
    adapt_every  number of steps between choices; state_dict() includes the chosen operators
    adapt_alpha  the squared error may be this factor times the error of the operator in all layers
    first_step   number of the first step, to resume training; see load_state_dict()
    learn_at     steps at which layers with operators "alq" or "amq" learn their levels; None: "100,2000,every 10000". state_dict() does not
                 include levels: training that resumes after one of these steps learns them in its first step
    deadline     longest time in seconds to wait for another process
    group        process group; None: the group of the model, or all processes
    workers      used instead of join(group, deadline)
    """

    def __init__(self, operator="cgx:4", model=None, *, layers=None, exclude=CGX_EXCLUDES, min_size=0, min_dims=2, schedule=None,
                 seed=0, warm_up=0, adapt=None, adapt_every=1000, adapt_alpha=1.0, first_step=0, learn_at=None,
                 deadline=600.0, group=None, workers=None):
        self.__name__ = self.__qualname__ = "DDPHook"  # torch reads the name of a hook, which is usually a function
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
        # refuse unknown operators here rather than in the backward pass
        asked = {(op, torch.float32) for op in (operator, *self._rules.values())}
        for op, dtype in asked | {(layer.operator, layer.parameter.dtype) for layer in self._layers.values()}:
            Mean(workers, op, schedule=schedule, learn_at=learn_at, layers=[("layer", (1,), dtype)]).close()
        if adapt is not None and module is None:
            raise ConfigurationError("globalq: adapt needs to know the layers; pass the model as well")
        chooses = [layer for layer in self._layers.values() if layer.chooses]
        self._adapting = None if adapt is None else Adapting(workers, chooses, adapt_every, operator, adapt, adapt_alpha)
        self._engine = Engine(workers, len(self._layers) or MOST_LAYERS, self._adapting, operator=operator, schedule=schedule, seed=seed,
                              warm_up=warm_up, learn_at=learn_at)
        # also at exit of Python: a thread that completes a future during shutdown would crash the process
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
                raise Error("globalq: a DDP bucket has a parameter that the model did not have when the hook was made; make the hook from "
                            "the model that is trained")
            layer = self._add(parameter, None)
        return layer

    def __call__(self, state, bucket):
        """Starts to average a DDP bucket in place; returns a future of the buffer."""
        if isinstance(bucket, tuple):
            raise Error("globalq: compiled autograd gives hooks single parameters instead of DDP buckets; turn it off "
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
        """Returns the state that each process saves with the model: the step, the residuals of compressors and, with adapt, the chosen
        operators. Call it between steps."""
        chosen = {} if self._adapting is None else {"operators": self._adapting.operators()}
        kept = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in self._engine.save()]
        return {**super().state_dict(), "compressors": kept, **chosen}

    def load_state_dict(self, state):
        """Continues after the step of a state_dict().

        state: the state of this process; if the number of processes was different, the list of all saved states.
        """
        states = [state] if isinstance(state, dict) else list(state)
        kept = [bytes_of(tensor) for s in states for tensor in s.get("compressors", ())]
        step = number("step", states[0]["step"], -1)
        if self._adapting is not None:  # first, because it may raise
            self._adapting.load(states[0].get("operators", {}))
        self._engine.load(kept)
        super().load_state_dict({"step": step})

    def report(self):
        """Returns a tuple for each layer: name, number of values, current operator, reason if it is not quantized (or None)."""
        return [(layer.name, layer.parameter.numel(), layer.operator, layer.why) for layer in self._layers.values()]

    @property
    def workers(self):
        return self._engine.workers

    @property
    def non_finite(self):
        """Number of DDP buckets whose gradients became NaN on all processes. Rank 0 warns of the first one."""
        return self._engine.non_finite

    def close(self):
        """Ends the thread after the DDP buckets that were started. The hook is unusable afterwards."""
        self._end()
