# SPDX-License-Identifier: Apache-2.0
"""Workers: who takes part, and what moves bytes between them."""

import ctypes
import secrets

from . import _library as c
from ._library import check, library

__all__ = ["MessageWorkers", "NamedMemory", "Workers", "new_name", "run_threads"]


class Workers(c.Handle):
    """This worker among all. One thread at a time uses it."""

    _handle = None

    def __init__(self, handle, owned=True):
        self._handle, self._owned = handle, owned
        self.cause = None  # the exception of a function that C called

    @property
    def handle(self):
        if self._handle is None:
            raise c.ConfigurationError("globalq: these workers are closed; make new ones")
        return self._handle

    @property
    def rank(self):
        """Number of this worker, from 0."""
        return library.globalq_rank(self.handle)

    @property
    def size(self):
        """How many workers there are."""
        return library.globalq_size(self.handle)

    @property
    def bytes_sent(self):
        """Bytes that this worker has sent."""
        return library.globalq_bytes_sent(self.handle)

    def close(self):
        """Leaves the others once the calls over these workers are closed too."""
        handle, self._handle = self._handle, None
        if handle is not None and self._owned:
            library.globalq_workers_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def __repr__(self):
        return f"<{type(self).__name__} closed>" if self._handle is None else f"<{type(self).__name__} {self.rank} of {self.size}>"


def describe(problem):
    """The text of an exception, whatever it holds, as bytes."""
    try:
        said = str(problem)
    except Exception:
        said = "(without a text)"
    return f"{type(problem).__name__}: {said}".encode(errors="replace")


def new_name():
    """A name for NamedMemory that nobody has used; one process draws it and tells the others."""
    return "py-" + secrets.token_hex(12)


class NamedMemory(Workers):
    """Processes of one machine, joined through memory that they share; returns when all have come.

    name      the same in all processes, of no other job: see new_name()
    rank      of this process, in [0, size)
    deadline  seconds that joining, and each later wait, may take
    """

    def __init__(self, name, rank, size, deadline=600.0):
        super().__init__(None)
        handle = ctypes.c_void_p()
        check(library.globalq_named_memory_create(c.text("name", name), c.number("rank", rank, 0, 2**31 - 1),
                                                  c.number("size", size, 1, 2**31 - 1), c.seconds("deadline", deadline),
                                                  ctypes.byref(handle)))
        self._handle = handle.value


class MessageWorkers(Workers):
    """Workers whose messages Python moves: subclasses have send, receive and wait.

    send(peer, view) and receive(peer, view) start a transfer of the bytes of a memoryview, which stay where they are until it has
    ended, and return a ticket of any kind; wait(ticket) returns when it has, or raises, by a deadline of its own. From one worker to
    another messages arrive in the order in which they were sent.
    """

    def __init__(self, rank, size):
        super().__init__(None)
        self._open, self._next, self._text = {}, 1, None

        def guarded(action):
            def call(*arguments):
                # nothing may leave a function that C calls: ctypes would return whatever lies in a register
                try:
                    try:
                        action(*arguments)
                        return 0
                    except BaseException as problem:
                        self.cause = problem
                        self._text = ctypes.create_string_buffer(describe(problem))
                except BaseException:
                    pass
                return 1

            return call

        def start(begin):
            def call(_, peer, address, count, ticket):
                ticket[0] = self._next
                self._next += 1
                view = memoryview((ctypes.c_char * count).from_address(address)).cast("B") if count else memoryview(b"")
                self._open[ticket[0]] = begin(peer, view)

            return call

        self._functions = c.Messages(
            send=c.SEND(guarded(start(lambda peer, view: self.send(peer, view)))),
            receive=c.SEND(guarded(start(lambda peer, view: self.receive(peer, view)))),
            wait=c.WAIT(guarded(lambda _, ticket: self.wait(self._open.pop(ticket)))),
            abandon=c.ABANDON(guarded(lambda _, ticket: self.abandon(self._open.pop(ticket, None)))),
            error=c.TEXT(lambda _: ctypes.addressof(self._text) if self._text is not None else None),
        )
        handle = ctypes.c_void_p()
        check(library.globalq_messages_create(ctypes.byref(self._functions), c.number("rank", rank, 0, 2**31 - 1),
                                              c.number("size", size, 1, 2**31 - 1), ctypes.byref(handle)))
        self._handle = handle.value

    def abandon(self, ticket):
        """Nobody will wait for a transfer (ticket may be None), and its bytes are about to be freed."""


def run_threads(count, body, deadline=600.0):
    """Runs body(workers) on each of count threads of this process; returns what they returned, by rank.

    A body that raises ends the calls of the others by TransportError; its own exception is raised here. The threads take turns in
    Python, and run side by side inside of calls.
    """

    def run(handle, _):
        workers = Workers(handle, owned=False)
        rank = workers.rank
        try:
            results[rank] = body(workers)
            return 0
        except BaseException as problem:  # nothing may leave a function that C calls
            problems[rank] = problem
            return 3 if isinstance(problem, c.TransportError) else 7
        finally:
            workers.close()

    count, deadline = c.number("count", count, 1, 2**31 - 1), c.seconds("deadline", deadline)
    results, problems = [None] * count, [None] * count
    status = library.globalq_threads_run(count, deadline, c.BODY(run), None)
    own = [p for p in problems if p is not None and not isinstance(p, c.TransportError)] or [p for p in problems if p is not None]
    if own:
        raise own[0]
    check(status)
    return results
