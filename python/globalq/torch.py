# SPDX-License-Identifier: Apache-2.0
"""globalq for PyTorch: gradients of DistributedDataParallel, averaged for a fraction of the bytes.

    model = DistributedDataParallel(net)
    model.register_comm_hook(None, globalq.torch.DDPHook("cgx:4", model))

Uses torch through its public Python interface only, so one package serves every version from 1.13 on.
"""

import atexit
import datetime
import fnmatch
import os
import queue
import threading
import warnings

import torch
import torch.distributed as dist

from ._calls import Mean
from ._library import ConfigurationError, Error
from ._workers import MessageWorkers, NamedMemory, new_name

__all__ = ["CGX_EXCLUDES", "DDPHook", "GroupWorkers", "join"]

# Biases and normalisations, as CGX has them (Markov 2024, section 3.5); tensors of one dimension are excluded besides.
CGX_EXCLUDES = ("*bias*", "*norm*", "*bn[0-9]*", "*ln_*")

# Layers of a model whose number is not known draw random bits as if it had so many.
MOST_LAYERS = 1 << 16


class GroupWorkers(MessageWorkers):
    """Processes of a group of torch, over dist.isend and dist.irecv. Nothing else may send and receive through the group meanwhile.

    Bytes are copied to and from tensors, which outlive transfers that are given up: torch cannot take them back.
    """

    def __init__(self, group):
        self._group, self._given_up = group, []
        ranks = [None] * dist.get_world_size(group)
        dist.all_gather_object(ranks, dist.get_rank(), group=group)
        self._ranks = ranks  # isend counts in the world
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


def join(group=None, deadline=600.0):
    """Workers for the processes of a group (None: all), which call it together.

    On one machine they share memory (GLOBALQ_SHARED_MEMORY=off: they do not); else messages go through a gloo group of their own.
    """
    seconds = datetime.timedelta(seconds=deadline)
    ranks = None
    if group is not None:
        ranks = [None] * dist.get_world_size(group)
        dist.all_gather_object(ranks, dist.get_rank(), group=group)
    own = dist.new_group(ranks=ranks, backend="gloo", timeout=seconds)
    told = [None] * dist.get_world_size(own)
    mine = machine() if os.environ.get("GLOBALQ_SHARED_MEMORY") != "off" else (os.uname().nodename, os.getpid())
    dist.all_gather_object(told, (mine, new_name()), group=own)
    if all(where == mine for where, _ in told):
        return NamedMemory(told[0][1], dist.get_rank(own), len(told), deadline)
    return GroupWorkers(own)


class Layer:
    """A parameter: its number among all, its name, and how its gradient travels."""

    def __init__(self, parameter, number, name):
        self.parameter, self.number, self.name = parameter, number, name  # keeps the parameter, and with it its identity
        self.operator = self.why = None


class DDPHook:
    """A communication hook of DistributedDataParallel: model.register_comm_hook(None, hook).

    Gradients are averaged bucket by bucket, each layer by an operator, by a thread of the hook while the backward pass goes on. All
    processes make it at the same point with the same arguments, and end each step with the same bits.

    operator     of layers that are quantised: "float32" or a named one; globalq.operators() lists them
    model        the DistributedDataParallel or the module in it: layers have names then. Without it, exclude and layers do nothing
    layers       {pattern: operator} for layers whose name matches; the first that does counts
    exclude      patterns of names; what matches travels as float32
    min_size     layers of fewer values travel as float32
    min_dims     layers of fewer dimensions travel as float32: below 2 are biases and normalisations
    schedule     of all layers; None: that of the operator
    seed         of the rounding
    warm_up      so many first steps travel as float32
    first_step   number of the first step, for a training that goes on; see load_state_dict()
    deadline     seconds that a wait for another process may take
    workers      None: join(), when the hook is made
    """

    def __init__(self, operator="cgx:4", model=None, *, layers=None, exclude=CGX_EXCLUDES, min_size=0, min_dims=2, schedule=None,
                 seed=0, warm_up=0, first_step=0, deadline=600.0, workers=None):
        self.__name__ = self.__qualname__ = "DDPHook"  # torch asks for the name of a hook, which is usually a function
        if isinstance(exclude, str):
            raise TypeError('globalq: exclude is a list of patterns, such as ["head.*"]')
        self._operator, self._rules, self._exclude = operator, dict(layers or {}), tuple(exclude)
        self._min_size, self._min_dims, self._schedule = min_size, min_dims, schedule
        self._seed, self._warm_up, self._step = seed, warm_up, first_step - 1
        self._layers, self._calls, self._in_step = {}, {}, 0
        self.non_finite = 0  # buckets whose gradients became NaN on all processes
        if model is not None:
            module = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    self._add(parameter, name)
            for pattern in self._rules:
                if not any(fnmatch.fnmatchcase(layer.name, pattern) for layer in self._layers.values()):
                    raise ConfigurationError(f'globalq: no layer is called "{pattern}" among {len(self._layers)}, which has an operator')
        elif self._rules:
            raise ConfigurationError("globalq: layers have operators, and no names without a model; give the model")
        self._model_layers = len(self._layers) or MOST_LAYERS
        self._named = model is not None
        self.workers = join(deadline=deadline) if workers is None else workers
        # what is unknown is refused here rather than in the backward pass
        for op in {operator, *self._rules.values()}:
            Mean(self.workers, op, schedule=schedule).close()
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="globalq", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that still completes a future when Python ends would end the process by a signal

    def _add(self, parameter, name):
        layer = self._layers[id(parameter)] = Layer(parameter, len(self._layers), name)
        pattern = next((p for p in self._exclude if self._matches(name, p)), None)
        if pattern is not None:
            layer.why = f"its name matches {pattern}"
        elif parameter.numel() < self._min_size:
            layer.why = f"its {parameter.numel()} values are fewer than {self._min_size}"
        elif parameter.dim() < self._min_dims:
            layer.why = f"its {parameter.dim()} dimensions are fewer than {self._min_dims}"
        rule = next((op for p, op in self._rules.items() if self._matches(name, p)), self._operator)
        layer.operator = "float32" if layer.why else rule
        return layer

    @staticmethod
    def _matches(name, pattern):
        return name is not None and fnmatch.fnmatchcase(name, pattern)

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
        if self._thread is None:
            raise Error("globalq: the hook is closed; make another one")
        if bucket.index() == 0:
            self._step += 1
            self._in_step = 0
        layers = [self._layer_of(p) for p in bucket.parameters()]
        buffer, done = bucket.buffer(), torch.futures.Future()
        self._jobs.put((self._in_step, layers, bucket.gradients(), self._step, done))
        self._in_step += len(layers)

        def averaged(future):
            if future.value():
                raise Error(future.value())
            return buffer

        return done.then(averaged)

    def _work(self):
        for first, layers, gradients, step, done in iter(self._jobs.get, None):
            problem = ""
            try:
                self._average(first, layers, gradients, step)
            except BaseException as error:  # goes on in the thread that waits for the future
                problem = str(error) or type(error).__name__
            done.set_result(problem)

    def _average(self, first, layers, gradients, step):
        key = (first, tuple(layer.number for layer in layers))
        mean, _ = self._calls.get(key, (None, 0))
        if mean is None:
            # buckets are made anew after the first step: calls that the last step did not use are dropped
            for old in [k for k, (_, used) in self._calls.items() if used + 1 < step]:
                self._calls.pop(old)[0].close()
            mean = Mean(self.workers, self._operator, schedule=self._schedule, seed=self._seed, warm_up=self._warm_up, first_layer=first,
                        model_layers=self._model_layers,
                        layers=[(layer.name or f"parameter.{layer.number}", layer.parameter.shape, g.dtype, layer.operator)
                                for layer, g in zip(layers, gradients)])
        self._calls[key] = mean, step
        mean(gradients, step)
        seen = mean.report()
        if seen["non_finite"]:
            self.non_finite += 1
            if self.non_finite == 1 and self.workers.rank == 0:
                who = seen["non_finite_rank"]
                warnings.warn(f"globalq: step {step}: gradients of a bucket are NaN on all processes: "
                              + (f"rank {who} brought NaN or infinity" if who >= 0 else "their mean is beyond the range of their type")
                              + "; later ones are counted in DDPHook.non_finite only", stacklevel=1)

    def report(self):
        """A tuple for each layer: name, values, operator, why it is not quantised (or None)."""
        return [(layer.name or f"parameter.{layer.number}", layer.parameter.numel(), layer.operator, layer.why)
                for layer in self._layers.values()]

    @property
    def step(self):
        """Number of the step that began last; -1 before the first."""
        return self._step

    @property
    def bytes_sent(self):
        """Bytes that this process has sent."""
        return self.workers.bytes_sent

    def state_dict(self):
        """What a training that goes on needs: no step may have the random bits of another."""
        return {"step": self._step}

    def load_state_dict(self, state):
        """Goes on behind the step of a state_dict()."""
        self._step = int(state["step"])

    def close(self):
        """Ends the thread, after the buckets that were started. The hook cannot be used any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.close)
            self._jobs.put(None)
            thread.join()
            for mean, _ in self._calls.values():
                mean.close()
            self._calls.clear()
            self.workers.close()
