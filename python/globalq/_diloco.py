# SPDX-License-Identifier: Apache-2.0
"""Local steps: each process trains by itself, and from time to time all average how far they came."""

import hashlib
import json

import torch

from ._calls import Broadcast, Mean, bytes_of, informing
from ._join import join
from ._library import ConfigurationError, DisagreementError, number
from ._report import Counters

__all__ = ["DiLoCo", "LocalSGD"]

SETTINGS = 1024  # bytes of the arguments that processes compare


class Nesterov:
    """The outer optimizer of DiLoCo: v <- momentum v + g, w <- w - rate (g + momentum v). Each operation is rounded by itself, so that all
    processors get the same bits; a fused multiply-add would not."""

    def __init__(self, rate, momentum):
        self.rate, self.momentum, self.velocities = rate, momentum, None

    def step(self, weights, ways):
        if self.velocities is None:
            self.velocities = [torch.zeros_like(w) for w in weights]
        for w, g, v in zip(weights, ways, self.velocities):
            v.mul_(self.momentum)
            v.add_(g)
            w.sub_(torch.mul(v, self.momentum).add_(g).mul_(self.rate))

    def state_dict(self):
        return {"velocities": None if self.velocities is None else [v.clone() for v in self.velocities]}

    def load_state_dict(self, state):
        found = state["velocities"]
        self.velocities = None if found is None else [v.clone() for v in found]


class Optimizer:
    """An optimizer of torch as outer optimizer. All processes get the same bits if they have the same processors and versions."""

    def __init__(self, make, weights):
        self._optimizer = make(weights)

    def step(self, weights, ways):
        for w, g in zip(weights, ways):
            w.grad = g
        self._optimizer.step()
        self._optimizer.zero_grad()

    def state_dict(self):
        return self._optimizer.state_dict()

    def load_state_dict(self, state):
        self._optimizer.load_state_dict(state)


class Fragment:
    """Parameters that are averaged together: the common weights, and the mean that is on its way."""

    def __init__(self, names, parameters, mean, offset):
        self.names, self.parameters, self.mean, self.offset = names, parameters, mean, offset
        self.weights = [p.detach().to(torch.float32, copy=True) for p in parameters]
        self.outer = None
        self.round, self.tokens, self.sent, self.ways, self.begun, self.started, self.due = 0, 0, 0, [], None, None, None

    def begin(self, factor, due, carries):
        """Starts to average how far this process came, times a factor."""
        local = [p.detach().float() for p in self.parameters]
        self.ways = [w - p for w, p in zip(self.weights, local)]
        if factor != 1:
            for way in self.ways:
                way.mul_(factor)
        self.begun = [p.clone() for p in local] if carries else None
        self.started, self.due, self.sent = self.mean.start(self.ways, self.round), due, self.tokens
        self.round += 1

    def end(self, mix):
        """Moves the common weights by the mean that has arrived, and the parameters to them."""
        self.outer.step(self.weights, self.ways)
        for k, (p, w) in enumerate(zip(self.parameters, self.weights)):
            if self.begun is None:
                p.copy_(w)
            elif mix is None:
                p.copy_(w + (p.float() - self.begun[k]))
            else:
                p.copy_(w * (1 - mix) + p.float() * mix)
        self.tokens -= self.sent
        self.forget()

    def forget(self):
        self.ways, self.begun = [], None

    def common(self):
        """Returns what all processes have of it."""
        return {"weights": [w.clone() for w in self.weights], "outer": self.outer.state_dict()}

    def load(self, common):
        """Takes what common() returned."""
        for w, value in zip(self.weights, common["weights"]):
            w.copy_(value)
        self.outer.load_state_dict(common["outer"])

    def digest(self):
        """Returns the SHA-256 of the common weights, as numbers."""
        found = hashlib.sha256()
        for w in self.weights:
            found.update(bytes_of(w))
        return torch.tensor(list(found.digest()), dtype=torch.float32)


class GroupMean(Mean):
    """The mean of a fragment over processes that stay the same, which counts what it sends."""

    def __init__(self, processes, settings, **more):
        self._processes, self._text, self._counters = processes, settings["operator"], Counters()
        super().__init__(processes.workers, **settings, **more)

    def __call__(self, x, step, out=None):
        before = self.workers.bytes_sent
        found = super().__call__(x, step, out)
        sent = self.workers.bytes_sent - before
        self._processes.bytes_sent += sent
        self._counters.add("outer step", self._text, "", x, sent)
        return found


class Processes:
    """Processes that stay the same, and the calls over them. torchft.Replicas has the same functions."""

    def __init__(self, workers, group, deadline, seed):
        self._owns = workers is None
        self.workers = join(group, deadline) if workers is None else workers
        self._seed, self._calls = seed, 0
        self.bytes_sent = 0  # of these calls since meet(); only their thread adds to it
        self._sum, self._root = Mean(self.workers, "float32", seed=seed), Broadcast(self.workers, "float32", seed=seed)

    def mean(self, k, **settings):
        """Returns what averages fragment k."""
        return GroupMean(self, settings, seed=self._seed + k)

    def informs(self):
        """Returns a context without calls, in which an exception reaches the other processes."""
        return informing(self.workers)

    def agree(self, settings):
        """Raises on all processes if they differ. settings: numbers, texts and None by names"""
        text = json.dumps(settings).encode()
        theirs = self.first(torch.tensor(list(text.ljust(SETTINGS)), dtype=torch.float32))
        other = json.loads(bytes(int(x) for x in theirs.tolist()))
        if wrong := [f"{name} is {value!r} on rank {self.rank} and {other[name]!r} on rank 0" for name, value in settings.items() if other[name] != value]:
            with self.informs():
                raise DisagreementError(f"globalq: DiLoCo: {', '.join(wrong)}; give all processes the same arguments")

    def meet(self, local):
        """All begin as rank 0 does."""
        for f in local.fragments:
            for p, w in zip(f.parameters, f.weights):
                w.copy_(self.first(w.cpu().view(-1)).view(w.shape))
                p.copy_(w)
        self.bytes_sent = 0

    def due(self, local):
        """Returns the fragments whose means begin after this local step."""
        return [f for f in local.fragments if local.steps % local.every == f.offset]

    def met(self, fragment):
        """Returns whether the common weights of a fragment have been compared since members came or went; they are compared then."""
        return True

    def average(self, x):
        """Returns the mean of a tensor over the processes; over a manager None if it fails."""
        return self._in_order(self._sum, x)

    def first(self, x):
        """Returns the tensor of rank 0."""
        return self._in_order(self._root, x)

    def _in_order(self, call, x):
        """Makes a call after those that have begun."""
        x, number_of_call = x.clone(), self._calls
        self._calls += 1

        def run():
            before = self.workers.bytes_sent
            call(x, number_of_call)
            self.bytes_sent += self.workers.bytes_sent - before

        self.workers.begin(run).wait()
        return x

    def weight(self, tokens, given):
        """Returns what this process weighs in the next mean, or None: as much as all others. given: whether step() has tokens"""
        return tokens if given else None

    def commits(self, fragment, started):
        """Waits for the mean of a fragment; returns whether it counts."""
        started.wait()
        return True

    def settle(self, fragment):
        """Waits for the mean of a fragment, whose state is saved."""
        fragment.started.wait()

    def state(self):
        return {"calls": self._calls}

    def load(self, state):
        self._calls = state["calls"]

    @property
    def rank(self):
        return self.workers.rank

    def close(self):
        self._sum.close()
        self._root.close()
        if self._owns:
            self.workers.close()


class DiLoCo:
    """Averages how far processes came in their local steps, and moves the common weights by the mean (DiLoCo).

        local = globalq.torch.DiLoCo(model, every=50, operator="cgx:2,feedback,second=4")
        for batch in batches:
            ...
            optimizer.step()
            local.step()

    All processes make it at the same point with the same arguments, and train the same number of steps. Their parameters become those of
    rank 0, and have the same bits after each mean (with delay: the common weights do).

    model      its parameters that require a gradient are averaged, as float32
    every      local steps of a mean
    operator   how the mean travels. Residuals of operators with feedback belong to the parameters of a fragment
    outer      the outer optimizer: None: Nesterov's method, rate 0.7, momentum 0.9; or a function that makes an optimizer of torch from
               a list of tensors, as lambda w: torch.optim.SGD(w, 1.0)
    fragments  the parameters are cut into so many parts, in order, which are averaged one after the other, every / fragments steps apart
               (Streaming DiLoCo): a part of the bytes at a time
    delay      local steps that go on while a mean travels
    mix        with delay: None: the parameters become the common weights and what they moved meanwhile; a number a: a of their own
               value and 1 - a of the common weights, as in Streaming DiLoCo
    min_size   parameters with fewer values travel as float32
    group, workers, manager  processes: a group of torch (None: all); or workers, which stay the caller's; or a torchft.Manager, see below
    seed       selects the random bits, together with the number of the mean
    check_every  means after which the bits of all processes are compared, before the next one, over a manager also when members have come or
                 gone; 0: never. Costs a message of 128 bytes
    deadline   longest time in seconds of a message; a manager's group has its own

    Over torchft's Manager, whose group is a globalq.torchft.ProcessGroup and whose quorum is not asynchronous, replicas may come and go:

        local = globalq.torch.DiLoCo(model, every=50, manager=manager)

    A mean counts if the manager commits its step. Otherwise common weights, outer optimizer and residuals stay as they were, local steps
    go on, and the next mean of the same fragment has them all. A replica that joins gets the common weights and the outer optimizer of
    another one at its first mean; the residuals of those that stay are kept, its own begin with zeros. Each weighs the steps (or tokens)
    that it has trained since the common weights, so one that has just joined, or a spare, weighs nothing. Failed calls are logged by the
    logger "globalq". A replica that has discarded a mean and then gets the weights of another one forgets its residuals, which the others
    may have counted. state_dict() is for checkpoints on a disk.

    Source: Douillard et al. 2023 (DiLoCo), Algorithm 1; Douillard et al. 2025 (Streaming DiLoCo), Algorithm 2.
    """

    _rate, _momentum = 0.7, 0.9

    def __init__(self, model, *, every=50, operator="cgx:2,feedback,second=4", outer=None, fragments=1, delay=0, mix=None, min_size=256,
                 schedule=None, group=None, workers=None, manager=None, seed=0, check_every=10, deadline=600.0):
        if manager is None:
            self._processes = Processes(workers, group, deadline, seed)
        elif workers is not None or group is not None:
            raise ConfigurationError("globalq: manager and a group or workers are given; give one of them")
        else:
            from .torchft import Replicas

            self._processes = Replicas(manager, seed)
        with self._processes.informs():
            self.every, self._delay = number("every", every, 1), number("delay", delay)
            count, self._check_every = number("fragments", fragments, 1), number("check_every", check_every)
            least = number("min_size", min_size)
            if self.every < count:
                raise ConfigurationError(f"globalq: {count} fragments in {self.every} local steps; give at most one for each step")
            if self._delay >= self.every:
                raise ConfigurationError(f"globalq: delay is {self._delay} steps, and a fragment is averaged after every {self.every}; give a shorter "
                                         "delay")
            if mix is not None and not 0 <= mix <= 1:
                raise ConfigurationError(f"globalq: mix is {mix}; give a number from 0 to 1, or None")
            self._mix, self.steps, self._means = None if mix is None else float(mix), 0, 0
            named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
            if len(named) < count:
                raise ConfigurationError(f"globalq: {count} fragments of {len(named)} parameters; give at most one for each")
            self.fragments = []
            for k, part in enumerate(cut(named, count)):
                layers = [(name, tuple(p.shape), torch.float32, "float32" if p.numel() < least else operator) for name, p in part]
                mean = self._processes.mean(k, operator=operator, schedule=schedule, layers=layers)
                f = Fragment([name for name, _ in part], [p for _, p in part], mean, (k + 1) * self.every // count % self.every)
                f.outer = Nesterov(self._rate, self._momentum) if outer is None else Optimizer(outer, f.weights)
                self.fragments.append(f)
        self._processes.agree({"every": self.every, "fragments": count, "delay": self._delay, "mix": self._mix, "check_every": self._check_every,
                               "min_size": least,
                               "the outer optimizer": f"Nesterov {self._rate} {self._momentum}" if outer is None else "of torch"})
        with torch.no_grad():
            self._processes.meet(self)

    @torch.no_grad()
    def step(self, tokens=None):
        """Counts a local step; call it after that of the inner optimizer. Returns whether common weights have moved.

        tokens: what the way of this process weighs from its last mean on, such as the number of its tokens; None: all weigh the same.
        Give it at each step, or never: the numbers are added up.
        """
        self.steps += 1
        before = self._means
        for f in self.fragments:
            f.tokens += 1 if tokens is None else tokens
            if f.started is not None and self.steps >= f.due:
                self._end(f)
        for f in self._processes.due(self):
            if self._check_every and (not self._processes.met(f) or self._means and self._means % self._check_every == 0):
                self._check(f)
            f.begin(self._factor(self._processes.weight(f.tokens, tokens is not None)), self.steps + self._delay, self._delay > 0)
            if self._delay == 0:
                self._end(f)
        return self._means > before

    def _factor(self, weight):
        """Returns the weight of this process / the mean of all; None: 1."""
        if weight is None:
            return 1.0
        own = torch.tensor([float(weight)], dtype=torch.float64)
        mean = self._processes.average(own)
        if mean is None:  # the step will be discarded
            return 1.0
        if not mean.item() > 0:
            raise ConfigurationError("globalq: no process has tokens since the last mean; give positive numbers to step()")
        return own.item() / mean.item()

    def _end(self, fragment):
        started, fragment.started = fragment.started, None
        if self._processes.commits(fragment, started):
            fragment.end(self._mix)
            self._means += 1
        else:
            fragment.forget()

    def _check(self, fragment):
        """Compares the bits of the common weights with those of rank 0."""
        own = fragment.digest()
        if not self._processes.first(own).equal(own):
            with self._processes.informs():
                raise DisagreementError(f"globalq: the common weights of {fragment.names[0]}, .. of rank {self._processes.rank} differ from those of "
                                        "rank 0; use the outer optimizer that DiLoCo has, or equal processors and versions of torch")

    @property
    def bytes_sent(self):
        """Bytes that the calls of this DiLoCo have sent on this process since all have the parameters of rank 0."""
        return self._processes.bytes_sent

    @property
    def means(self):
        """Number of means that have ended, and counted."""
        return self._means

    def common(self):
        """Returns what all processes have: the number of means, the common weights and the outer optimizer."""
        return {"means": self._means, "fragments": [f.common() for f in self.fragments]}

    @torch.no_grad()
    def heal(self, common):
        """Takes what common() returned on another process. The parameters become the common weights, and local steps count from now on."""
        self._means = common["means"]
        for f, saved in zip(self.fragments, common["fragments"]):
            f.load(saved)
            for p, w in zip(f.parameters, f.weights):
                p.copy_(w)
            f.tokens = 0

    def state_dict(self):
        """Returns what each process saves with the model and its optimizer: the steps, the common weights, the outer optimizer and the
        residuals of this process. Waits for means that travel."""
        with torch.no_grad():
            for f in self.fragments:
                if f.started is not None:
                    self._processes.settle(f)
        found = self.common()
        for f, saved in zip(self.fragments, found["fragments"]):
            saved.update(round=f.round, due=f.due, travels=f.started is not None, ways=[w.clone() for w in f.ways], begun=f.begun, tokens=f.tokens,
                         sent=f.sent, residuals=[torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in [f.mean.save()] if state])
        return {"step": self.steps, "every": self.every, "processes": self._processes.state(), **found}

    def load_state_dict(self, state):
        """Continues after a state_dict() of this process. All processes load theirs before the same step."""
        if len(state["fragments"]) != len(self.fragments):
            raise ConfigurationError(f"globalq: the state has {len(state['fragments'])} fragments, and this has {len(self.fragments)}; make it with as many")
        if state["processes"].keys() != self._processes.state().keys():
            raise ConfigurationError("globalq: the state is of a DiLoCo over a manager, and this has none, or the other way round; make it as it was saved")
        if state["every"] != self.every:
            raise ConfigurationError(f"globalq: the state is of means after every {state['every']} local steps, and this has {self.every}; give every as before")
        self.steps, self._means = state["step"], state["means"]
        self._processes.load(state["processes"])
        for f, saved in zip(self.fragments, state["fragments"]):
            f.load(saved)
            f.round, f.due, f.tokens, f.sent = saved["round"], saved["due"], saved["tokens"], saved["sent"]
            f.ways, f.begun = [w.clone() for w in saved["ways"]], saved["begun"]
            f.started = Arrived() if saved["travels"] else None
            f.mean.load([bytes_of(tensor) for tensor in saved["residuals"]])

    def close(self):
        """Waits for means that travel and frees the calls."""
        try:
            for f in self.fragments:
                started, f.started = f.started, None
                if started is not None:
                    started.wait()
        finally:
            for f in self.fragments:
                f.mean.close()
            self._processes.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Arrived:
    """A mean that had arrived when it was saved."""

    def wait(self):
        return True


class LocalSGD(DiLoCo):
    """Averages parameters after local steps: DiLoCo whose outer optimizer takes the mean as it is. Arguments are those of DiLoCo, without outer.

    Source: Stich 2019 (Local SGD), Algorithm 1.
    """

    _rate, _momentum = 1.0, 0.0

    def __init__(self, model, *, every=10, operator="cgx:4", **settings):
        if "outer" in settings:
            raise ConfigurationError("globalq: LocalSGD has no outer optimizer; use DiLoCo")
        super().__init__(model, every=every, operator=operator, **settings)


def cut(named, count):
    """Returns parameters in so many parts, in order, of about the same number of values."""
    parts, left, rest = [], list(named), sum(p.numel() for _, p in named)
    for k in range(count, 0, -1):
        part, size = [], 0
        while left and len(left) >= k and (not part or (k > 1 and size + left[0][1].numel() / 2 <= rest / k) or k == 1):
            part.append(left.pop(0))
            size += part[-1][1].numel()
        parts.append(part)
        rest -= size
    return parts
