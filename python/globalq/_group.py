# SPDX-License-Identifier: Apache-2.0
"""The back end "globalq" of torch.distributed: it sends large sums with an operator, and everything else as gloo or NCCL does."""

import collections
import contextlib
import hashlib
import logging
import os
import threading
import time
import weakref
import zlib
from collections import namedtuple
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from ._calls import AllGather, AllToAll, Mean, plan
from ._join import TensorWorkers, shared_machine
from ._library import ConfigurationError, Error, TransportError, number
from ._report import Counters, Report, Traffic
from ._vectors import operator as words_of
from ._workers import Lane, NamedMemory, new_name

__all__ = ["ProcessGroup", "Traffic", "operator", "report", "uncompressed"]

log = logging.getLogger("globalq")

c10d = torch._C._distributed_c10d
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
STRIPE = 1 << 16  # bytes from which a message travels over all connections
UNCOMPRESSED = "uncompressed()"  # the reason of calls in this context
MEASURED_EVERY = 100  # calls of a kind, of which one measures its error

# A torch that lets Python derive back ends documents their constructor; in others, a process group is one.
BACKEND = getattr(c10d, "Backend", None)
BASE = BACKEND if "rank" in (getattr(getattr(BACKEND, "__init__", None), "__doc__", None) or "") else dist.ProcessGroup

Options = namedtuple("Options", "operator weights min_values schedule connections seed non_finite require_compression")


def options_of(given, keep=True):
    """Returns the Options of pg_options: a dict, the text of an operator, or None: those of the last group that had some. keep: whether
    these count as such."""
    if given is None:
        return defaults[0]
    if isinstance(given, str):
        given = {"operator": given}
    if not isinstance(given, dict):
        raise ConfigurationError(f'globalq: pg_options is a {type(given).__name__}; give a dict, such as {{"operator": "cgx:4"}}')
    unknown = [key for key in given if key not in Options._fields]
    if unknown:
        raise ConfigurationError(f"globalq: pg_options has {unknown[0]!r}; there are {', '.join(Options._fields)}")
    found = PLAIN._replace(**given)
    checked(found.operator, found.schedule)
    if found.weights is not None:
        checked(found.weights)
    number("min_values", found.min_values, 1), number("connections", found.connections, 1, 64), number("seed", found.seed)
    if found.non_finite not in ("propagate", "error"):
        raise ConfigurationError(f'globalq: non_finite is {found.non_finite!r}; give "propagate" or "error"')
    if keep:
        defaults[0] = found
    return found


def checked(text, schedule=None):
    """Returns the text of an operator that a group can use, or raises."""
    if any(word.startswith("feedback") for word in words_of(text).split()):
        raise ConfigurationError(f'globalq: "{text}" keeps residuals, which belong to parameters, and a process group does not know them; use it '
                                 "with globalq.torch.DDPHook or DiLoCo, which know them, or leave feedback out")
    plan(text, 4096, 2, schedule)
    return text


PLAIN = Options("cgx:4", None, 4096, None, 1, 0, "propagate", False)
defaults = [PLAIN]  # of groups without pg_options

overrides = []  # of operator() and uncompressed(), in all threads: backward passes run in threads of torch


@contextlib.contextmanager
def overriding(text):
    overrides.append(text)
    try:
        yield
    finally:
        overrides.remove(text)


def operator(text):
    """Within this context, groups of the back end send with another operator: with globalq.torch.operator("cgx:8"): ..

    It holds for all threads of the process, because torch runs backward passes in threads of its own, and for calls that begin in the
    context. All processes enter it for the same calls; if one does not, all raise DisagreementError.
    """
    return overriding(checked(text))


def uncompressed():
    """Within this context, groups of the back end compress nothing; see operator()."""
    return overriding("")


class Result(c10d.Work):
    """A call that has begun.

    longest  seconds that wait() waits at most, once those before it have ended or have been given up; None: until it ends by the timeout
             of the group
    failed   called with the exception of the call, if it has one
    before   the call that ends before this one begins, or None
    """

    def __init__(self, what, outputs, longest=None, failed=None, before=None):
        super().__init__()
        self._before = before
        self._what, self._outputs, self._longest, self._failed, self._problem = what, outputs, longest, failed, None
        self.begun, self._done, self._ended, self._lock = threading.Event(), threading.Event(), torch.futures.Future(), threading.Lock()

        def values(ended):  # torch loses the text of an exception that is set on a future
            if problem := ended.value():
                raise Error(problem)
            return outputs

        self._future = self._ended.then(values)

    def run(self, job):
        """Makes the call: job() returns what finish() stores, or raises."""
        problem, stores = None, ()
        self.begun.set()
        try:
            stores = job()
        except BaseException as error:  # raised by wait()
            problem = error
        self.finish(problem, stores)

    def finish(self, problem, stores=()):
        """Ends the call, unless it has been given up. stores: pairs of a tensor and the values to write to it."""
        with self._lock:
            if self._done.is_set():
                return
            if problem is None:
                try:
                    for to, values in stores:
                        if to is not values:
                            to.copy_(values)
                except Exception as error:
                    problem = error
            self._problem = problem
            if problem is not None and self._failed is not None:
                self._failed(problem)
            self._before = None
            self._done.set()
        self._ended.set_result("" if problem is None else str(problem) or type(problem).__name__)

    def wait(self, timeout=None):
        """Returns when the call has ended, or raises its exception. A call that has not ended in time is given up: it writes nothing.

        timeout: the longest time, a timedelta; 0 and None: that of the group.
        """
        seconds = timeout.total_seconds() if timeout else None
        with record_function(f"globalq::wait {self._what}"):
            if seconds is None or seconds < 0:
                seconds = self._longest
                self._follow()
            self._end_in(seconds)
        with contextlib.suppress(Exception):
            self._future.wait()  # so that it is done as well
        if self._problem is not None:
            raise self._problem
        return True

    def _end_in(self, seconds):
        """Returns when the call has ended; gives it up after some seconds."""
        if not self._done.wait(seconds):
            self.finish(TransportError(f"globalq: {self._what} has not ended after {seconds:g} s; a process may be slow, or missing: look at "
                                       "the output of the others"))

    def _follow(self):
        """Returns when the call has begun. If calls have a longest time, those before it are given up like itself, and then it ends as they did."""
        queue, earlier = [], self._before if self._longest is not None else None
        while earlier is not None:
            queue.append(earlier)
            earlier = earlier._before
        for earlier in reversed(queue):
            earlier.begun.wait()
            earlier._end_in(earlier._longest)
            if earlier._problem is not None:
                self.finish(earlier._problem)
                return
        self.begun.wait()

    synchronize = wait

    def is_completed(self):
        return self._done.is_set()

    def is_success(self):
        return self._done.is_set() and self._problem is None

    def exception(self):
        return self._problem

    def result(self):
        self.wait()
        return self._outputs

    def get_future(self):
        return self._future


class ConnectionWorkers(TensorWorkers):
    """Workers whose messages are those of gloo groups, of which large ones use all."""

    def __init__(self, groups, rank, size):
        self._groups = groups
        super().__init__(rank, size)

    def _parts(self, bytes_):
        """Returns the group and the bytes of each part of a message."""
        if bytes_.numel() < STRIPE or len(self._groups) == 1:
            return [(self._groups[0], bytes_)]
        return list(zip(self._groups, bytes_.tensor_split(len(self._groups))))

    def start_send(self, bytes_, peer):
        return [group.send([part], peer, 0) for group, part in self._parts(bytes_)]

    def start_receive(self, bytes_, peer):
        return [group.recv([part], peer, 0) for group, part in self._parts(bytes_)]


class Wire:
    """The connections of a group, and its calls; only for the thread of the lane. memory: name of the shared memory that it will have, or None"""

    def __init__(self, connect, settings, schedule, memory):
        self.memory, self._connect, self._settings, self._schedule, self._workers, self._calls, self._made = memory, connect, settings, schedule, None, {}, []

    def workers(self):
        if self._workers is None:
            self._workers = self._connect()
        return self._workers

    def call(self, kind, text):
        """Returns the call object of a kind with an operator."""
        count, objects = self._calls.get((kind, text), (0, {}))
        self._calls[kind, text] = count + 1, objects
        measures = count % MEASURED_EVERY == 0
        if measures not in objects:
            more = {"schedule": self._schedule} if kind is Mean else {}
            objects[measures] = kind(self.workers(), text, measure_errors=measures, **self._settings, **more)
        return objects[measures]

    def make(self, kind, seed, **settings):
        """Returns a new call object, which is closed with the connections."""
        self._made.append(kind(self.workers(), **settings, **{**self._settings, "seed": (self._settings["seed"] + seed) % 2**64}))
        return self._made[-1]

    def sent(self):
        return 0 if self._workers is None else self._workers.bytes_sent

    def close(self):
        for _, objects in self._calls.values():
            for each in objects.values():
                each.close()
        for each in self._made:
            each.close()
        if self._workers is not None:
            self._workers.close()
        elif self.memory is not None:  # rank 0 may have made it, and been killed before another one opened it
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm/globalq-{self.memory}")


def end(wire, counters, rank):
    """Ends a group."""
    wire.close()
    if path := os.environ.get("GLOBALQ_REPORT"):
        with contextlib.suppress(OSError):
            counters.save(path, rank)


class ProcessGroup(BASE):
    """Processes whose large sums travel with an operator; dist.init_process_group("globalq", pg_options={"operator": "cgx:4"}) makes it.

    Compressed are all_reduce and reduce_scatter of float types from min_values values on, and all_gather if weights= names an operator. A
    gloo group does the rest, for tensors of CUDA an NCCL group. pg_options has, all equal on all processes:

    operator     of sums: "NAME[:VALUE][,word=value].."; default "cgx:4". Each call rounds anew, so operators with residuals are refused:
                 residuals belong to parameters, which a group does not know; see DDPHook and DiLoCo
    weights      of all_gather, such as "qsdp:8"; None: not compressed
    min_values   tensors of fewer values are not compressed; default 4,096
    schedule     of all_reduce; None: that of the operator
    connections  gloo groups over which large messages travel at once; one machine uses shared memory instead
    seed         selects the random bits, together with the processes and the number of calls
    non_finite   "propagate": if any input is NaN or infinite, every value of the result is NaN; "error": NonFiniteError
    require_compression  raises where a call of float tensors of min_values values would not be compressed

    Groups made without pg_options have those of the last group that had some.
    """

    def __init__(self, store, rank, size, timeout, options, ranks=()):
        super().__init__(rank, size)
        self._rank, self._size, self._timeout, self._options = rank, size, timeout, options
        self._store = store
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("globalq/gloo", store), rank, size, timeout=timeout)
        self._nccl, self._step, self._counters, self._lock, self._lost = None, 0, Counters(), threading.Lock(), False
        self._last = lambda: None  # reference to the result of the last call, which the lane has until the call has ended
        self._kept = collections.deque(maxlen=64 if BASE is not BACKEND else 0)  # an older torch does not keep a Work of Python for C++
        memory, seconds = self._meet(), max(1.0, timeout.total_seconds())
        made = [] if memory else [dist.ProcessGroupGloo(dist.PrefixStore(f"globalq/connection/{k}", store), rank, size, timeout=timeout)
                                  for k in range(options.connections)]

        def connect():
            try:
                return NamedMemory(memory, rank, size, seconds) if memory else ConnectionWorkers(made, rank, size)
            except TransportError as problem:
                raise TransportError(f"{problem}. This is the first compressed call of a process group; its deadline is the timeout of the group") from None

        self._wire = Wire(connect,
                          {"seed": (options.seed + zlib.crc32(repr(list(ranks)).encode())) % 2**64, "non_finite": options.non_finite},
                          options.schedule, memory)
        wire, counters = self._wire, self._counters
        self._lane = Lane("globalq group", "the process group is destroyed", "the process group belongs to the process that this one was forked "
                          "from; call init_process_group() after fork", lambda: end(wire, counters, rank))
        self._end = weakref.finalize(self, self._lane.close)
        log.info("rank %d of %d: sums of %d and more values travel as %s, gathers %s, over %s", rank, size, options.min_values, options.operator,
                 f"as {options.weights}" if options.weights else "as they are",
                 "shared memory" if memory else f"{options.connections} connection{'s' * (options.connections > 1)} of gloo")

    def _meet(self):
        """Compares the options of all processes; returns the name of their shared memory, or None if they have none."""
        name, where = new_name(), shared_machine(self._size)
        compared = *map(repr, self._options), name if where is None else repr(where)  # a name is equal to that of no other process
        row = torch.tensor(list(b"".join(hashlib.sha256(text.encode()).digest() for text in compared) + name.encode()), dtype=torch.uint8)
        rows = [torch.empty_like(row) for _ in range(self._size)]
        self._gloo.allgather([rows], [row]).wait()

        def differs(k):
            return next((r for r, other in enumerate(rows) if not other[32 * k:32 * k + 32].equal(rows[0][32 * k:32 * k + 32])), None)

        for k, (field, value) in enumerate(self._options._asdict().items()):
            if (wrong := differs(k)) is not None:
                raise ConfigurationError(f"globalq: rank {wrong} of {self._size} has another {field} than rank 0; that of rank {self._rank} is "
                                         f"{value!r}; give all processes the same options")
        return None if differs(len(self._options)) is not None else bytes(rows[0][32 * len(compared):].tolist()).decode()

    # How a call travels

    def _chosen(self):
        """Returns the operator of sums; "" compresses nothing."""
        return overrides[-1] if overrides else self._options.operator

    def _why_not(self, call, x, op=None):
        """Returns why a tensor is not compressed, and whether that is as intended; ("", True) if it is compressed."""
        if x.dtype not in FLOATS:
            return f"type {str(x.dtype).removeprefix('torch.')}", True
        if x.numel() < self._options.min_values:
            return f"fewer than {self._options.min_values} values", True
        if call == "all_gather" and not self._options.weights:
            return "no operator for weights", True
        if self._chosen() == "":
            return UNCOMPRESSED, True
        if x.layout is not torch.strided:
            return f"layout {str(x.layout).removeprefix('torch.')}", False
        if op is not None and self._factor(op) is None:
            return f"operation {operation(op)}", False
        return "", True

    def _verdict(self, found):
        """Returns the reason for several tensors, and whether it is as intended: what is not, and what a context says, come first."""
        reasons = sorted((entry for entry in found if entry[0]), key=lambda entry: (entry[1], entry[0] != UNCOMPRESSED))
        return reasons[0] if reasons else ("", True)

    def _factor(self, op):
        """Returns what the mean is multiplied by; None if the operation is no sum."""
        with contextlib.suppress(ConfigurationError):
            return factor_of(op, self._size) * self._size
        return None

    def _inner(self, tensors):
        """Returns the group for calls that are passed on."""
        if not any(x.is_cuda for x in tensors):
            return self._gloo, "gloo"
        if self._nccl is None:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            self._nccl = dist.ProcessGroupNCCL(dist.PrefixStore("globalq/nccl", self._store), self._rank, self._size, options)
        return self._nccl, "nccl"

    def _pass(self, call, reason, tensors, begin):
        """Passes a call on. reason: of _why_not(); begin: function of the group and the tensors that starts it."""
        why, intended = reason
        if self._options.require_compression and not intended:
            raise ConfigurationError(f"globalq: rank {self._rank}: {call} of {sum(x.numel() for x in tensors):,} values would not be compressed "
                                     f"({why}), and require_compression is set; use it in globalq.torch.uncompressed(), or leave "
                                     "require_compression out")
        inner, name = self._inner(tensors)
        if self._counters.add(call, name, why, tensors) and why:
            log.info("rank %d: %s is passed to %s: %s", self._rank, call, name, why)
        if why == UNCOMPRESSED:  # raises on all processes if another one compresses this call
            def agree(step, _):
                self._wire.call(Mean, "float32")(torch.zeros(1), step)
                return ()

            self._begin(f"{call} {why}", tensors[:1], [], agree).wait()
        return begin(inner, tensors)

    def _begin(self, what, tensors, outputs, job, text=None):
        """Runs job(step, operator) in the lane; returns a Work. A step is used once for each of the tensors. job returns pairs of a tensor
        and the values that it gets. text: the operator, None: that of sums."""
        text = self._chosen() if text is None else text
        with self._lock:  # steps and the order of calls belong together
            step, self._step = self._step, self._step + len(tensors)
            what = f"{what} {text}".rstrip() if tensors else what
            result = Result(what, outputs, self._longest(outputs), self._failed, self._last())
            self._last = weakref.ref(result)
            ready = [torch.cuda.current_stream(x.device).record_event() for x in tensors if x.is_cuda]

            def run():
                for event in ready:
                    event.synchronize()
                with torch.no_grad():
                    return job(step, text)

            with record_function(f"globalq::{what}"):
                self._lane.submit(lambda: result.run(run))
        self._kept.append(result)
        return result

    def _count(self, what, text, tensors, call, sent, began):
        found = call.report()
        error = found["normalized_error"]
        if found["non_finite"] and not self._lost and self._options.non_finite == "propagate":
            self._lost = True
            if self._rank == 0:
                who = found["non_finite_rank"]
                log.warning("globalq: %s of %s values is NaN on all processes: %s; later ones are not reported", what,
                            f"{sum(x.numel() for x in tensors):,}", f"the tensor of rank {who} contains NaN or infinity" if who >= 0 else
                            "the sum exceeds the range of its type")
        self._counters.add(what, text, "", tensors, self._wire.sent() - sent, time.monotonic() - began, error if error == error else None)

    # What a group that survives failures does in another way (torchft.py)

    def _rooms(self, tensors):
        """Returns where sums are computed: in place."""
        return tensors

    def _longest(self, tensors):
        """Returns the seconds that a call with these outputs may take; None: its messages have the timeout of the group."""
        return None

    _failed = None  # called with the exception of a call

    # Sums

    def _sums(self, tensors, op, begin):
        """all_reduce of tensors. begin: function of a group and tensors that passes them on."""
        found = [self._why_not("all_reduce", x, op) for x in tensors]
        chosen = [x for x, (why, _) in zip(tensors, found) if not why]
        rest = [x for x, (why, _) in zip(tensors, found) if why]
        others, factor = None, self._factor(op)
        if rest:
            others = self._pass("all_reduce", self._verdict(found), rest, begin)
        if not chosen:
            return others

        def job(step, text):
            began, sent, mean = time.monotonic(), self._wire.sent(), self._wire.call(Mean, text)
            values = [x.detach() for x in chosen]
            sums = self._rooms(values)
            mean(values, step, sums)
            if factor != 1:
                for x in sums:
                    x.mul_(factor)
            self._count("all_reduce", text, chosen, mean, sent, began)
            if others is not None:
                others.wait()
            return list(zip(values, sums))

        return self._begin("all_reduce", chosen, tensors, job)

    def allreduce(self, tensors, opts=None):
        opts = opts if opts is not None else c10d.AllreduceOptions()
        return self._sums(tensors, opts if not hasattr(opts, "reduceOp") else opts.reduceOp, lambda inner, xs: inner.allreduce(xs, opts))

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts if opts is not None else c10d.AllreduceCoalescedOptions()
        return self._sums(tensors, opts.reduceOp, lambda inner, xs: inner.allreduce_coalesced(xs, opts))

    # Shards of sums

    def _shards(self, pairs, op, begin):
        """reduce_scatter of pairs (output, input), where input has the parts of all processes. begin: passes them on."""
        inputs, outputs = [given for _, given in pairs], [out for out, _ in pairs]
        found = [self._why_not("reduce_scatter", given, op) for given in inputs]
        if any(why for why, _ in found):
            return self._pass("reduce_scatter", self._verdict(found), inputs, begin)
        factor = self._factor(op) / self._size

        def job(step, text):
            # a sum that stays here is not encoded again
            first = " ".join(word for word in words_of(text).split() if not word.startswith("second"))
            began, sent, exchange = time.monotonic(), self._wire.sent(), self._wire.call(AllToAll, first)
            stores = []
            for k, (out, given) in enumerate(pairs):
                parts = given.detach().contiguous().view(self._size, -1)
                received = torch.empty_like(parts)
                exchange(parts.view(-1), step + k, received.view(-1))
                received[self._rank].copy_(parts[self._rank])  # nobody else needs this part, so the own one needs no rounding
                total = received.to(torch.promote_types(given.dtype, torch.float32)).sum(0).mul_(factor)
                stores.append((out, total.view(out.shape)))
            self._count("reduce_scatter", text, inputs, exchange, sent, began)
            return stores

        return self._begin("reduce_scatter", inputs, outputs, job)

    def reduce_scatter_single(self, output, given, opts=None):
        opts = opts if opts is not None else c10d.ReduceScatterOptions()
        return self._shards([(output, given)], opts.reduceOp, lambda inner, _: inner._reduce_scatter_base(output, given, opts))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts if opts is not None else c10d.ReduceScatterOptions()
        return self._shards(list(zip(outputs, inputs)), opts.reduceOp, lambda inner, _: called(
            inner, ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"), outputs, inputs, opts))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs, inputs, opts=None):
        opts = opts if opts is not None else c10d.ReduceScatterOptions()
        if any(x.shape != out.shape for out, parts in zip(outputs, inputs) for x in parts):
            return self._pass("reduce_scatter", ("parts of different shapes", False), [x for parts in inputs for x in parts],
                              lambda inner, _: inner.reduce_scatter(outputs, inputs, opts))
        pairs = [(out, torch.cat([x.reshape(-1) for x in parts])) for out, parts in zip(outputs, inputs)]
        return self._shards(pairs, opts.reduceOp, lambda inner, _: inner.reduce_scatter(outputs, inputs, opts))

    # Gathers of weights

    def _gathers(self, pairs, begin):
        """all_gather of pairs (output, input), where output has the tensors of all processes. begin: passes them on."""
        inputs, outputs = [given for _, given in pairs], [out for out, _ in pairs]
        found = [self._why_not("all_gather", given) for given in inputs]
        if any(why for why, _ in found):
            return self._pass("all_gather", self._verdict(found), inputs, begin)
        text = self._options.weights

        def job(step, _):
            began, sent, gather = time.monotonic(), self._wire.sent(), self._wire.call(AllGather, text)
            stores = []
            for k, (out, given) in enumerate(pairs):
                count = padded(gather, given.numel(), self._size)
                own = torch.nn.functional.pad(given.detach().contiguous().view(-1), (0, count - given.numel()))
                found = torch.empty(self._size * count, dtype=out.dtype, device=out.device)
                gather(own, found, step + k)
                stores.append((out, found.view(self._size, -1)[:, :given.numel()].reshape(out.shape)))
            self._count("all_gather", text, inputs, gather, sent, began)
            return stores

        return self._begin("all_gather", inputs, outputs, job)

    def all_gather_single(self, output, given, opts=None):
        opts = opts if opts is not None else c10d.AllgatherOptions()
        return self._gathers([(output, given)], lambda inner, _: inner._allgather_base(output, given, opts))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts if opts is not None else c10d.AllgatherOptions()
        return self._gathers(list(zip(outputs, inputs)), lambda inner, _: called(
            inner, ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"), outputs, inputs, opts))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    # What else a back end has. Those of the base search Python for their own names without end.

    options = None
    supports_coalescing = supports_reconfigure = supports_shrinking = supports_splitting = supports_window = _supports_time_estimate = False

    def monitored_barrier(self, options=None, wait_all_ranks=False):
        seconds = getattr(options, "timeout", options)
        return self._gloo.monitored_barrier(seconds if isinstance(seconds, timedelta) and seconds > timedelta(0) else self._timeout, wait_all_ranks)

    def getBackendName(self):
        return "globalq"

    _get_backend_name = name = getBackendName

    def abort(self):
        """Begins no more calls; those that began end by their deadlines."""
        self._lane.close(wait=False)

    def shutdown(self):
        """Ends the thread after the calls that began."""
        self._end()

    def report(self):
        """Returns a list of Traffic, whose str() is a table."""
        return Report(self._counters.rows())


def factor_of(op, size):
    """Returns the factor that turns the sum over `size` processes into the result of a ReduceOp."""
    if op == dist.ReduceOp.AVG:
        return 1 / size
    if op == dist.ReduceOp.SUM:
        return 1
    if op == getattr(dist.ReduceOp, "PREMUL_SUM", None):  # FSDP2 uses it after set_gradient_divide_factor()
        state = op.__getstate__()  # the state for pickle, in every torch that has it: (operation, factor)
        if isinstance(state, tuple):
            return state[1]
    raise ConfigurationError(f"globalq: reduce_scatter by {op}; use AVG, SUM, or a PREMUL_SUM that has a factor")


def called(inner, names, *arguments):
    """Calls the function of a group that has one of these names."""
    return getattr(inner, next(name for name in names if hasattr(inner, name)))(*arguments)


def padded(gather, count, size):
    """Returns the least number of values, not below count, for which the operator cuts a vector of all processes into equal shards."""
    for unit in (1, *(2**k for k in range(3, 17))):
        each = -(-count // unit) * unit
        if all(gather.shard(each * size, rank).start == each * rank for rank in range(size)):
            return each
    raise ConfigurationError(f"globalq: \"{gather.operator()}\" does not cut vectors into equal shards; use an operator with buckets as weights")


def operation(op):
    """Returns the name of a ReduceOp."""
    return next((name for name in ("MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR") if op == getattr(dist.ReduceOp, name)), str(op))


def passed(name):
    """Returns the method of a collective that is never compressed."""

    def method(self, *arguments, **named):
        return self._pass(name, ("", True), list(flat(arguments)), lambda inner, _: getattr(inner, name)(*arguments, **named))

    method.__name__ = name
    return method


def flat(given):
    for x in given:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from flat(x)


NEVER = ("all_to_all_single", "allgather", "allgather_coalesced", "allreduce_sparse", "alltoall", "alltoall_base", "barrier", "broadcast", "gather",
         "gather_into_tensor", "gather_single", "recv", "recv_anysource", "reduce", "scatter", "send")
for each in NEVER:
    if hasattr(dist.ProcessGroupGloo, each):
        setattr(ProcessGroup, each, passed(each))


def report(group=None):
    """Returns what a group has sent, and how, as a list of Traffic, whose str() is a table. group None: all groups of the back end, hooks,
    sharded models and DiLoCos of this process, added up."""
    if group is not None:
        found = group if isinstance(group, ProcessGroup) else None
        if found is None and hasattr(group, "_get_backend"):
            found = group._get_backend(torch.device("cpu"))
        if not isinstance(found, ProcessGroup):
            raise ConfigurationError('globalq: the group is not of the back end "globalq"; use dist.init_process_group("globalq")')
        return found.report()
    return Report(Counters.whole.rows())


def create(how, options):
    """Makes a group for torch.distributed; how: its DistributedBackendOptions."""
    return ProcessGroup(how.store, how.group_rank, how.group_size, how.timeout, options_of(options), getattr(how, "global_ranks_in_group", ()))


def register():
    if hasattr(dist.Backend, "GLOBALQ"):
        return
    try:
        dist.Backend.register_backend("globalq", create, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # torch before 2.0 has no devices
        dist.Backend.register_backend("globalq", create, extended_api=True)
