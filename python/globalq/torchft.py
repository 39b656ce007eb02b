# SPDX-License-Identifier: Apache-2.0
"""globalq for torchft: sums between replica groups travel with an operator, and survive the loss of members.

    pg = globalq.torchft.ProcessGroup("cgx:4", timeout=timedelta(seconds=30))
    manager = torchft.Manager(pg=pg, ...)
"""

import collections
import contextlib
import logging
import statistics
import time
import zlib
from datetime import timedelta

import torch
from torchft.process_group import ProcessGroupWrapper

from . import _group
from ._calls import Broadcast, Mean
from ._library import ConfigurationError
from ._workers import run_threads

__all__ = ["ProcessGroup"]

log = logging.getLogger("globalq")

FIXED = 8  # calls after a change of members whose deadline is the longest one


class Deadline:
    """The seconds that a call may take: the median of the last calls plus a multiple of their spread, between two limits."""

    def __init__(self, least, most, spreads):
        self._least, self._most, self._spreads, self._seconds = least, most, spreads, collections.deque(maxlen=64)

    def add(self, seconds):
        self._seconds.append(seconds)

    def seconds(self):
        if len(self._seconds) < FIXED:
            return self._most
        found = sorted(self._seconds)
        spread = found[len(found) * 9 // 10] - found[len(found) // 10]
        return min(self._most, max(self._least, statistics.median(found) + self._spreads * spread))


class Members(_group.ProcessGroup):
    """The members between two changes. Sums are computed in memory of their own and written to tensors on success only."""

    def __init__(self, store, rank, size, timeout, options, limits):
        self.problem, self._limits, self._deadlines = None, limits, {}
        self.means, self.sent = {}, 0  # of fragments (Replicas), and their bytes
        super().__init__(store, rank, size, timeout, options)

    def _deadline_of(self, tensors):
        """Returns the Deadline of calls of about this length, within a factor of two."""
        return self._deadlines.setdefault(sum(x.numel() for x in tensors).bit_length(), Deadline(*self._limits))

    def _rooms(self, tensors):
        return [torch.empty_like(x) for x in tensors]

    def _longest(self, tensors):
        return self._deadline_of(tensors).seconds()

    def _failed(self, problem):
        self.problem = self.problem or problem

    def _begin(self, what, tensors, outputs, job, text=None):
        if self.problem is not None:
            raise self.problem

        def timed(step, text):
            if self.problem is not None:
                raise self.problem
            began = time.monotonic()
            stores = job(step, text)
            self._deadline_of(outputs).add(time.monotonic() - began)
            return stores

        return super()._begin(what, tensors, outputs, timed, text)

    def start(self, what, operator, x, job):
        """Starts job(wire, step, rooms) in the thread of the calls, which fills rooms like the tensors x and returns the call object; returns a
        Work that writes them to x."""

        def run(step, text):
            began, sent, rooms = time.monotonic(), self._wire.sent(), self._rooms(x)
            self._count(what, text, x, job(self._wire, step, rooms), sent, began)
            self.sent = self._wire.sent()
            return list(zip(x, rooms))

        return self._begin(what, x, x, run, operator)

    def _pass(self, call, reason, tensors, begin):
        """As for all groups; sums of gloo are computed in memory of their own, too."""
        if call != "all_reduce":
            return super()._pass(call, reason, tensors, begin)
        copies = [x.detach().clone() for x in tensors]
        work = super()._pass(call, reason, tensors, lambda inner, _: begin(inner, copies))

        def job(step, _):
            work.wait()
            return list(zip((x.detach() for x in tensors), copies))

        return self._begin(f"{call} by {self._inner(tensors)[1]}", [], tensors, job)


class ProcessGroup(ProcessGroupWrapper):
    """A process group of torchft whose sums travel with an operator.

    operator  of sums of float types from min_values values on; smaller ones are summed by gloo. Operators with residuals are refused:
              residuals belong to parameters, which a group does not know
    timeout   the longest time of a call, a timedelta. A call is given up sooner if it takes much longer than the last 64 did: after their
              median and `spreads` times their spread (from the tenth to the ninetieth percentile), but not before `least`. Calls of other
              lengths, by a factor of two, count apart
    least     the shortest deadline, a timedelta
    options   those of globalq.torch.ProcessGroup: schedule, weights, min_values, connections, seed, non_finite, require_compression

    If a call fails, tensors are unchanged on every process that raises, and a call that was given up never writes. errored() then has the
    exception until configure(), and further calls raise it. Random bits follow from the quorum and the number of calls since
    configure(), so that a member that joins needs no state.
    """

    def __init__(self, operator="cgx:4", *, timeout=timedelta(seconds=60), least=timedelta(seconds=2), spreads=10.0, **options):
        super().__init__(timeout=timeout)
        if not timedelta(0) < least <= timeout:
            raise ConfigurationError(f"globalq: least is {least.total_seconds():g} s and timeout {timeout.total_seconds():g} s; give a shorter least")
        self._asked = _group.options_of({"operator": operator, **options}, keep=False)
        self._limits = least.total_seconds(), timeout.total_seconds(), float(spreads)

    def _create_pg(self, store, rank, world_size):
        quorum = zlib.crc32(f"{self._quorum_id} {self._global_ranks}".encode())
        options = self._asked._replace(seed=(self._asked.seed + quorum) % 2**64)
        return Members(store, rank, world_size, self._timeout, options, self._limits)

    def members(self):
        """Returns the members since configure(), or None."""
        return self._pg

    def errored(self):
        """Returns the exception of the first call that failed since configure(), or None."""
        return self._pg.problem if self._pg is not None else None

    def report(self):
        """Returns what the members since configure() have sent, a list of globalq.torch.Traffic whose str() is a table."""
        return self.parent.report()

    def getBackendName(self):
        return "globalq"


class Replicas:
    """The members of a Manager, for DiLoCo: what its Processes are where members come and go. One mean travels at a time.

    A call that fails is reported to the manager, which then discards the step.
    """

    def __init__(self, manager, seed):
        if not isinstance(getattr(manager, "_pg", None), ProcessGroup):
            raise ConfigurationError("globalq: DiLoCo needs a manager whose group is globalq's: torchft.Manager(pg=globalq.torchft.ProcessGroup(..), ..)")
        if manager._use_async_quorum:
            raise ConfigurationError("globalq: the quorum of the manager is asynchronous; make it with use_async_quorum=False")
        self._manager, self._seed, self._last = manager, seed, 0
        self.members, self._sent, self._met = None, 0, set()

    def informs(self):
        """Returns a context: a replica that raises leaves, and the others notice that it is missing."""
        return contextlib.nullcontext()

    def agree(self, settings):
        """Takes the local steps of a mean. Replicas may differ in them: each weighs what it has trained. Means and bits are compared later."""
        every, fragments, delay = settings["every"], settings["fragments"], settings["delay"]
        if every % fragments or delay >= every // fragments:
            raise ConfigurationError(f"globalq: {fragments} fragments in {every} local steps with delay {delay}; over a manager one mean travels at "
                                     "a time: give a multiple of fragments as every, and a delay below every / fragments")
        self._every, self._delay = every // fragments, delay

    def mean(self, k, **settings):
        def alone(workers):
            with Mean(workers, **settings) as mean:
                if any(mean.operator(layer).startswith("power-sgd") for layer in range(len(settings["layers"]))):
                    raise ConfigurationError("globalq: PowerSGD's matrices belong to all replicas, and one that joins lacks them; use another operator")

        run_threads(1, alone)  # refuses what every mean would refuse
        return FragmentMean(self, self._seed + k, settings)

    def meet(self, local):
        def heal(common):
            local.heal(common)
            for f in local.fragments:
                f.mean.healed()

        try:
            self._manager.register_state_dict_fn("globalq.DiLoCo", heal, local.common)
        except AssertionError:
            raise ConfigurationError("globalq: the manager has a DiLoCo already; make a manager for each, or one DiLoCo with fragments") from None

    def due(self, local):
        if local.steps - self._last < self._every - self._delay or any(f.started for f in local.fragments):
            return []
        self._manager.start_quorum()  # may heal this replica
        members = self._manager._pg.members()
        if members is not self.members:
            self._sent, self.members, self._met = self.bytes_sent, members, set()
        return [local.fragments[self._manager.current_step() % len(local.fragments)]]

    def met(self, fragment):
        met = fragment in self._met
        self._met.add(fragment)
        return met

    def start(self, what, operator, x, job):
        """Starts a call, unless one before has failed."""
        if self._manager.errored() is None:
            try:
                return Reported(self, what, self.members.start(what, operator, x, job))
            except Exception as problem:
                self.failed(what, problem)
        return Reported(self, what, None)

    def failed(self, what, problem):
        """Has the step discarded. An error of the caller, which would come again, is raised."""
        log.warning("%s failed, and its step is discarded: %s", what, problem)
        self._manager.report_error(problem)
        if isinstance(problem, ConfigurationError):
            raise problem

    def _small(self, what, kind, x):
        """Returns what a call makes of a small tensor; None if it fails."""
        x = x.clone()

        def job(wire, step, rooms):
            call = wire.call(kind, "float32")
            call(x, step, rooms[0])
            return call

        return x if self.start(what, "float32", [x], job).wait() else None

    def average(self, x):
        return self._small("mean of weights", Mean, x)

    def first(self, x):
        theirs = self._small("comparison of bits", Broadcast, x)
        return x if theirs is None else theirs

    def weight(self, tokens, given):
        return tokens if self._manager.is_participating() else 0

    def commits(self, fragment, started):
        started.wait()
        counts = self._manager.should_commit()
        fragment.mean.end(counts)
        self._last += self._every
        return counts

    def settle(self, fragment):
        raise ConfigurationError("globalq: state_dict() while a mean travels, which a manager commits or not; save after a step() that has moved the "
                                 "common weights")

    def state(self):
        return {"last": self._last}

    def load(self, state):
        self._last = state["last"]

    @property
    def rank(self):
        return self.members.rank()

    @property
    def bytes_sent(self):
        return self._sent + (self.members.sent if self.members is not None else 0)

    def close(self):
        """The manager stays the caller's."""


class Reported:
    """A call whose exception goes to the manager; work None: it has."""

    def __init__(self, replicas, what, work):
        self._replicas, self._what, self._work = replicas, what, work

    def wait(self):
        """Returns whether the call has succeeded."""
        work, self._work = self._work, None
        if work is None:
            return False
        try:
            return work.wait()
        except Exception as problem:
            self._replicas.failed(self._what, problem)
            return False


class FragmentMean:
    """The mean of a fragment, whose residuals follow this replica from members to members, and count with the step."""

    def __init__(self, replicas, seed, settings):
        self._replicas, self._seed, self._settings, self._kept, self._discarded = replicas, seed, settings, b"", False

    def start(self, ways, _):
        members, kept = self._replicas.members, self._kept

        def job(wire, step, rooms):
            mean = members.means.get(self)
            if mean is None:
                mean = wire.make(Mean, self._seed, **self._settings)
                mean.load_own(kept)
                members.means[self] = mean
            mean(ways, step, rooms)
            return mean

        return self._replicas.start("outer step", self._settings["operator"], ways, job)

    def _means(self):
        return {} if self._replicas.members is None else self._replicas.members.means

    def end(self, counts):
        """Keeps the residuals of the last call, or those before it."""
        self._discarded = not counts
        if not counts:
            self._forget()
        elif (mean := self._means().get(self)) is not None:
            self._kept = mean.save()

    def healed(self):
        """The replica has the weights of another one, which may have counted what this one discarded."""
        if self._discarded:
            self._kept = b""

    def _forget(self):
        self._means().pop(self, None)  # closed with its connections

    def save(self):
        return self._kept

    def load(self, states):
        self._kept = b"".join(states)
        self._forget()

    def close(self):
        self._forget()
