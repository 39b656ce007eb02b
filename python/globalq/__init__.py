# SPDX-License-Identifier: Apache-2.0
"""Averages vectors over workers and sends a fraction of the bytes: QSGD, Global-QSGD, CGX, QSDP, ALQ and others.

    import globalq, numpy

    def work(workers):
        mean = globalq.Mean(workers, "cgx:4", seed=42)
        return mean(numpy.full(1000, workers.rank, "float32"), step=0)

    globalq.run_threads(4, work)
"""

from ._advise import Advice, advise
from ._calls import AllGather, AllToAll, Broadcast, Mean, Operator, Plan, ReduceScatter, operators, plan, words
from ._library import ConfigurationError, DisagreementError, Error, FrameError, NonFiniteError, TransportError, library
from ._vectors import Label, decode, encode, operator, read_label
from ._workers import MessageWorkers, NamedMemory, Started, Workers, new_name, run_threads

__version__ = library.globalq_version().decode()


def instructions():
    """The instruction set in use, such as "avx512". Results do not depend on it."""
    return library.globalq_instructions().decode()


__all__ = ["Advice", "AllGather", "AllToAll", "Broadcast", "ConfigurationError", "DisagreementError", "Error", "FrameError", "Label", "Mean", "MessageWorkers", "NamedMemory",
           "NonFiniteError", "Operator", "Plan", "ReduceScatter", "Started", "TransportError", "Workers", "advise", "decode", "encode", "instructions",
           "new_name", "operator", "operators", "plan", "read_label", "run_threads", "words"]


def __getattr__(name):
    """Imports globalq.torch, and with it torch, on first access."""
    if name == "torch":
        import importlib

        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'globalq' has no attribute '{name}'")
