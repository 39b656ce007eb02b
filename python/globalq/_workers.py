# SPDX-License-Identifier: Apache-2.0
"""Workers: the participants, and the transports between them."""

import ctypes
import os
import queue
import secrets
import threading

from . import _library as c
from ._library import check, library

__all__ = ["MessageWorkers", "NamedMemory", "Workers", "new_name", "run_threads"]


class Started:
    """A call that runs in another thread."""

    def __init__(self):
        self._ended, self._result, self._problem = threading.Event(), None, None

    def done(self):
        """Returns whether the call has ended."""
        return self._ended.is_set()

    def wait(self):
        """Returns the result of the call when it has ended, or raises its exception."""
        self._ended.wait()
        if self._problem is not None:
            raise self._problem
        return self._result

    def run(self, action):
        try:
            self._result = action()
        except BaseException as problem:  # raised by wait()
            self._problem = problem
        self._ended.set()


class Lane:
    """A thread that runs jobs one after the other, started with the first. A job is a function that does not raise.

    closed, forked  why there is no thread any more, and in a forked process
    at_end          called in the thread after the last job
    """

    def __init__(self, name, closed, forked, at_end=lambda: None):
        self._name, self._why_closed, self._why_forked, self._at_end = name, closed, forked, at_end
        self._jobs, self._thread, self._process, self._closed = queue.SimpleQueue(), None, os.getpid(), False

    def submit(self, job):
        if self._closed:
            raise c.Error(f"globalq: {self._why_closed}")
        if self._process != os.getpid():
            raise c.Error(f"globalq: {self._why_forked}")
        if self._thread is None:
            self._thread = threading.Thread(target=run_jobs, args=(self._jobs, self._at_end), name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self, wait=True):
        """Ends the thread after the jobs that were submitted. wait: until it has ended"""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        if self._thread is None:
            self._at_end()
            return
        self._jobs.put(None)
        if wait and self._thread is not threading.current_thread():
            self._thread.join()


def run_jobs(jobs, at_end):
    """Holds no reference to the owner of the jobs, so that it can be collected."""
    for job in iter(jobs.get, None):
        job()
        del job
    at_end()


class Workers(c.Handle):
    """This worker and its connection to the others.

    Calls of several threads over the same workers run one after the other. All workers must make them in the same order, as with MPI and
    NCCL: two like calls in opposite order mix their results without an error. Give each thread workers of its own: duplicate().
    """

    _handle = _lane = None

    def __init__(self, handle, owned=True):
        self._handle, self._owned, self._raised = handle, owned, threading.local()

    def begin(self, action):
        """Runs action() in a thread of these workers, after those that began before; returns it as a Started."""
        self.handle  # raises if they are closed
        if self._lane is None:
            self._lane = Lane("globalq started", "these workers are closed; make new ones",
                              "the thread of these workers is in the process that this one was forked from; make new ones after fork")
        started = Started()
        self._lane.submit(lambda: started.run(action))
        return started

    @property
    def handle(self):
        if self._handle is None:
            raise c.ConfigurationError("globalq: these workers are closed; make new ones")
        return self._handle

    @property
    def cause(self):
        """The exception that a callback from C raised in this thread."""
        return getattr(self._raised, "problem", None)

    @cause.setter
    def cause(self, problem):
        self._raised.problem = problem

    @property
    def rank(self):
        """Number of this worker, from 0."""
        return library.globalq_rank(self.handle)

    @property
    def size(self):
        """Number of workers."""
        return library.globalq_size(self.handle)

    @property
    def bytes_sent(self):
        """Bytes that this worker has sent."""
        return library.globalq_bytes_sent(self.handle)

    def duplicate(self):
        """Connects the same workers once more, as MPI_Comm_dup does, so that another thread has workers of its own. All workers call it.
        Duplicates in run_threads end with its body."""
        handle = ctypes.c_void_p()
        check(library.globalq_workers_duplicate(self.handle, ctypes.byref(handle)))
        return Workers(handle.value)

    def refuse(self, why):
        """Takes part in the next call of the other workers without making it: they raise DisagreementError with the reason instead of
        waiting. Calls that raise on this worker have done so themselves."""
        check(library.globalq_workers_refuse(self.handle, str(why).replace("\0", "?").encode(errors="replace")))

    def close(self):
        """Closes this worker. It leaves the others when its last call is closed as well."""
        if self._lane is not None:
            self._lane.close(wait=False)
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
    """Returns the text of an exception as bytes, also if its __str__ raises."""
    try:
        said = str(problem)
    except Exception:
        said = "(without a text)"
    return f"{type(problem).__name__}: {said}".encode(errors="replace")


def new_name():
    """Returns a random name for NamedMemory. Call it in one process and send the name to the others."""
    return "py-" + secrets.token_hex(12)


class NamedMemory(Workers):
    """Connects processes on one machine through shared memory; returns when all have joined.

    name      the same in all processes and unique to this job: see new_name()
    rank      rank of this process, in [0, size)
    deadline  longest time in seconds for joining, and for each later wait
    """

    def __init__(self, name, rank, size, deadline=600.0):
        super().__init__(None)
        handle = ctypes.c_void_p()
        check(library.globalq_named_memory_create(c.text("name", name), c.number("rank", rank, 0, 2**31 - 1),
                                                  c.number("size", size, 1, 2**31 - 1), c.seconds("deadline", deadline),
                                                  ctypes.byref(handle)))
        self._handle = handle.value


class MessageWorkers(Workers):
    """Workers whose messages Python moves: subclasses define send, receive and wait.

    send(peer, view) and receive(peer, view) start to transfer the bytes of a memoryview and return a ticket, any object. The bytes stay
    valid until the transfer has ended. wait(ticket) returns when the transfer has ended, or raises, within a deadline of its own.
    Messages from one worker to another arrive in the order in which they were sent. A subclass may define duplicate(), which returns
    workers over other connections.
    """

    def __init__(self, rank, size):
        super().__init__(None)
        self._open, self._next, self._text = {}, 1, None

        def guarded(action):
            def call(*arguments):
                # no exception may leave a callback: ctypes would return an arbitrary value to C
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

    def duplicate(self):
        raise c.ConfigurationError(f"globalq: {type(self).__name__} has no duplicate(); define it to connect the workers once more, or make "
                                   "other workers for each thread")

    def abandon(self, ticket):
        """Cancels a transfer: wait() will not be called, and its bytes are about to be freed. ticket may be None."""


def run_threads(count, body, deadline=600.0):
    """Runs body(workers) on each of count threads of this process; returns a list of the results by rank.

    If a body raises, the calls of the other workers raise TransportError, and run_threads raises the exception of that body. Threads run
    in parallel inside calls of globalq; Python code runs one thread at a time.
    """

    def run(handle, _):
        workers = Workers(handle, owned=False)
        rank = workers.rank
        try:
            results[rank] = body(workers)
            return 0
        except BaseException as problem:  # no exception may leave a callback from C
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
