# SPDX-License-Identifier: Apache-2.0
"""globalq for torchft: sums between replica groups travel with an operator, and survive the loss of members.

    pg = globalq.torchft.ProcessGroup("cgx:4", timeout=timedelta(seconds=30))
    manager = torchft.Manager(pg=pg, ...)
"""

import collections
import statistics
import time
import zlib
from datetime import timedelta

import torch
from torchft.process_group import ProcessGroupWrapper

from . import _group
from ._library import ConfigurationError

__all__ = ["ProcessGroup"]

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

    def _begin(self, what, tensors, outputs, job):
        if self.problem is not None:
            raise self.problem

        def timed(step, text):
            if self.problem is not None:
                raise self.problem
            began = time.monotonic()
            stores = job(step, text)
            self._deadline_of(outputs).add(time.monotonic() - began)
            return stores

        return super()._begin(what, tensors, outputs, timed)

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

    def errored(self):
        """Returns the exception of the first call that failed since configure(), or None."""
        return self._pg.problem if self._pg is not None else None

    def report(self):
        """Returns what the members since configure() have sent, a list of globalq.torch.Traffic whose str() is a table."""
        return self.parent.report()

    def getBackendName(self):
        return "globalq"
