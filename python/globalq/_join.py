# SPDX-License-Identifier: Apache-2.0
"""Workers that are the processes of a group of torch."""

import datetime
import inspect
import os

import torch
import torch.distributed as dist

from ._library import ConfigurationError
from ._workers import MessageWorkers, NamedMemory, new_name

__all__ = ["GroupWorkers", "join"]


class TensorWorkers(MessageWorkers):
    """Workers whose messages travel as tensors of bytes. Subclasses define start_send(bytes, peer) and start_receive(bytes, peer), which
    return a list of Works.

    Bytes are copied to and from tensors. The tensors of an abandoned transfer are kept, because torch cannot cancel it.
    """

    def __init__(self, rank, size):
        self._given_up = []
        super().__init__(rank, size)

    def send(self, peer, view):
        bytes_ = torch.frombuffer(view, dtype=torch.uint8).clone() if view.nbytes else torch.zeros(1, dtype=torch.uint8)
        return self.start_send(bytes_, peer), bytes_, None

    def receive(self, peer, view):
        bytes_ = torch.empty(max(1, view.nbytes), dtype=torch.uint8)  # an empty message is sent as one unused byte
        return self.start_receive(bytes_, peer), bytes_, view

    def wait(self, ticket):
        works, bytes_, view = ticket
        for work in works:
            work.wait()
        if view is not None and view.nbytes:
            torch.frombuffer(view, dtype=torch.uint8).copy_(bytes_)

    def abandon(self, ticket):
        if ticket is not None:
            self._given_up.append(ticket[:2])


class GroupWorkers(TensorWorkers):
    """Workers that are the processes of a torch group, over dist.isend and dist.irecv. Nothing else may use the group meanwhile."""

    def __init__(self, group, ranks, deadline=600.0):
        """ranks: global rank of each member, indexed by its rank in the group; deadline: of groups that duplicate() makes."""
        self._group, self._ranks, self._deadline = group, ranks, deadline
        super().__init__(dist.get_rank(group), len(ranks))

    def start_send(self, bytes_, peer):
        return [dist.isend(bytes_, self._ranks[peer], group=self._group)]

    def start_receive(self, bytes_, peer):
        return [dist.irecv(bytes_, self._ranks[peer], group=self._group)]

    def duplicate(self):
        """Returns workers over another gloo group of the same processes. All of them call it."""
        group = gloo_group(self._ranks, self._deadline)
        if group is None:
            raise ConfigurationError("globalq: torch before 2.1 makes no group in a subset of the processes; make it yourself, on all processes")
        return GroupWorkers(group, self._ranks, self._deadline)


def machine():
    """Returns a value that is equal for processes that share /dev/shm: those of one machine or container."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip(), os.stat("/dev/shm").st_dev
    except OSError:
        return os.uname().nodename, os.getpid()


def needed_memory(processes):
    """Returns an upper bound on the bytes in /dev/shm that a number of processes use."""
    return (34 << 20) + 8192 * processes + 4200 * processes**2


def shared_machine(processes):
    """Returns machine() if a number of processes can exchange messages through /dev/shm, or None."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return None
    allowed = os.environ.get("GLOBALQ_SHARED_MEMORY") != "off"
    return machine() if allowed and room.f_bavail * room.f_frsize >= needed_memory(processes) else None


def gloo_group(ranks, deadline):
    """Returns a new gloo group, which all of its processes make; None in a torch that cannot make it in a subset of all processes."""
    seconds = datetime.timedelta(seconds=deadline)
    if len(ranks) == dist.get_world_size():
        return dist.new_group(backend="gloo", timeout=seconds)
    if "use_local_synchronization" in inspect.signature(dist.new_group).parameters:
        return dist.new_group(ranks=ranks, backend="gloo", timeout=seconds, use_local_synchronization=True)
    return None


def join(group=None, deadline=600.0):
    """Returns workers for the processes of a group (None: all). All members call it.

    On one machine the processes exchange messages through shared memory, unless GLOBALQ_SHARED_MEMORY=off; otherwise through a new gloo
    group. Before 2.1, torch cannot create a group in a subset of the processes: join() then uses the given group, which must be gloo.
    """
    if group is not None and dist.get_rank(group) < 0:
        raise ConfigurationError("globalq: this process is not in the group; join() is called by its members")
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    told = [None] * size
    dist.all_gather_object(told, (shared_machine(size), new_name(), dist.get_rank()), group=group)
    if all(where is not None and where == told[0][0] for where, _, _ in told):
        return NamedMemory(told[0][1], rank, size, deadline)
    ranks = [r for _, _, r in told]
    made = gloo_group(ranks, deadline)
    if made is not None:
        return GroupWorkers(made, ranks, deadline)
    if dist.get_backend(group) != "gloo":
        raise ConfigurationError(f"globalq: processes of several machines in a group of backend {dist.get_backend(group)}; give a group of "
                                 "backend gloo, or use torch 2.1 or newer")
    return GroupWorkers(group, ranks, deadline)
