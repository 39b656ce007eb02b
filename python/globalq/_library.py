# SPDX-License-Identifier: Apache-2.0
"""Binds libglobalq.so with ctypes: functions and structs of globalq.h; statuses become exceptions."""

import ctypes
import operator
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

INTERFACE = 1


class Error(RuntimeError):
    """Base of all errors of globalq. The text names the operation, the rank, the numbers and a remedy."""


class ConfigurationError(Error):
    """The arguments are invalid; nothing was sent."""


class DisagreementError(Error):
    """The arguments of the workers differ. Every worker raises this in the same call; vectors are unchanged."""


class TransportError(Error):
    """Communication failed: a deadline passed, or a worker died or left. The workers are unusable afterwards."""


class NonFiniteError(Error):
    """The vector of a worker contains NaN or infinity, and the call has non_finite="error"."""


class FrameError(Error):
    """The bytes are corrupt or were not written by globalq."""


STATUSES = {1: ConfigurationError, 2: DisagreementError, 3: TransportError, 4: NonFiniteError, 5: FrameError, 6: MemoryError}


class Sized(ctypes.Structure):
    """Base of structs whose first member is their size."""

    def __init__(self, **members):
        super().__init__(ctypes.sizeof(type(self)), **members)


class Operator(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("title", c_char_p), ("source", c_char_p), ("bound", c_char_p),
                ("schedule", c_char_p), ("parameters", c_char_p)]


SEND = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t, POINTER(c_uint64))
WAIT = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64)
ABANDON = ctypes.CFUNCTYPE(None, c_void_p, c_uint64)
TEXT = ctypes.CFUNCTYPE(c_void_p, c_void_p)
BODY = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)


class Messages(Sized):
    _fields_ = [("size", c_size_t), ("context", c_void_p), ("send", SEND), ("receive", SEND), ("wait", WAIT), ("abandon", ABANDON),
                ("error", TEXT), ("message_bytes", c_size_t)]


class Settings(Sized):
    _fields_ = [("size", c_size_t), ("operator_name", c_char_p), ("schedule", c_char_p), ("seed", c_uint64), ("warm_up", c_uint64),
                ("first_layer", c_uint64), ("model_layers", c_uint64), ("fail_on_non_finite", c_int), ("measure_errors", c_int),
                ("learn_at", c_char_p), ("chunk_values", c_uint64), ("root", c_int)]


class Layer(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_uint64)), ("dimensions", c_size_t), ("type", c_int),
                ("operator_name", c_char_p)]


class Vector(ctypes.Structure):
    _fields_ = [("input", c_void_p), ("output", c_void_p), ("length", c_uint64), ("type", c_int)]


class Bytes(ctypes.Structure):
    _fields_ = [("bytes", c_char_p), ("size", c_size_t)]


class Label(Sized):
    _fields_ = [("size", c_size_t), ("operator_name", c_char_p), ("length", c_uint64), ("type", c_int), ("seed", c_uint64),
                ("step", c_uint64), ("worker", c_uint32), ("workers", c_uint32)]


class Plan(Sized):
    _fields_ = [("size", c_size_t), ("rounding_steps", c_int), ("levels", c_uint32), ("bytes_sent", c_uint64),
                ("bytes_are_most", c_int), ("bits_per_value", c_double), ("theta", c_double), ("iterations_factor", c_double),
                ("workspace_bytes", c_uint64)]


class Report(Sized):
    _fields_ = [("size", c_size_t), ("calls", c_uint64), ("failed", c_uint64), ("non_finite", c_uint64), ("non_finite_rank", c_int),
                ("uncompressed", c_uint64), ("values", c_uint64), ("bytes_sent", c_uint64), ("seconds", c_double),
                ("norm_seconds", c_double), ("opening_seconds", c_double), ("encode_seconds", c_double),
                ("reduce_seconds", c_double), ("decode_seconds", c_double), ("transfer_seconds", c_double),
                ("normalized_error", c_double), ("zero_fraction", c_double)]


class ChooserSettings(Sized):
    _fields_ = [("size", c_size_t), ("rule", c_char_p), ("reference", c_char_p), ("alpha", c_double), ("candidates", c_char_p)]


class AdviceSettings(Sized):
    _fields_ = [("size", c_size_t), ("max_error", c_double), ("max_bound", c_double), ("operators", c_char_p), ("bandwidth", c_double),
                ("latency", c_double), ("count", c_int)]


class Advice(Sized):
    _fields_ = [("size", c_size_t), ("operator_name", c_char_p), ("schedule", c_char_p), ("chunk_values", c_uint64),
                ("seconds", c_double), ("float32_seconds", c_double), ("error", c_double), ("text", c_char_p), ("json", c_char_p)]


FUNCTIONS = {
    "globalq_version": (c_char_p,),
    "globalq_interface": (c_int,),
    "globalq_instructions": (c_char_p,),
    "globalq_error": (c_char_p,),
    "globalq_operator_at": (c_int, c_size_t, POINTER(Operator)),
    "globalq_words": (c_int, POINTER(c_char_p)),
    "globalq_operator_words": (c_int, c_char_p, POINTER(c_char_p)),
    "globalq_encode": (c_int, c_char_p, POINTER(Vector), c_uint64, c_uint64, c_uint32, c_uint32, c_void_p, POINTER(c_size_t)),
    "globalq_read_label": (c_int, c_char_p, c_size_t, POINTER(Label)),
    "globalq_decode": (c_int, c_char_p, c_char_p, c_size_t, POINTER(Vector), c_int),
    "globalq_threads_run": (c_int, c_int, c_double, BODY, c_void_p),
    "globalq_named_memory_create": (c_int, c_char_p, c_int, c_int, c_double, POINTER(c_void_p)),
    "globalq_messages_create": (c_int, POINTER(Messages), c_int, c_int, POINTER(c_void_p)),
    "globalq_rank": (c_int, c_void_p),
    "globalq_size": (c_int, c_void_p),
    "globalq_bytes_sent": (c_uint64, c_void_p),
    "globalq_workers_destroy": (None, c_void_p),
    "globalq_workers_duplicate": (c_int, c_void_p, POINTER(c_void_p)),
    "globalq_workers_refuse": (c_int, c_void_p, c_char_p),
    "globalq_call_create": (c_int, c_void_p, c_int, POINTER(Settings), POINTER(Layer), c_size_t, POINTER(c_void_p)),
    "globalq_call_run": (c_int, c_void_p, POINTER(Vector), c_size_t, c_uint64),
    "globalq_call_run_shard": (c_int, c_void_p, c_void_p, c_uint64, c_void_p, c_uint64, c_int, c_uint64),
    "globalq_call_shard": (c_int, c_void_p, c_uint64, c_int, POINTER(c_uint64), POINTER(c_uint64)),
    "globalq_call_plan": (c_int, c_void_p, c_uint64, c_int, POINTER(Plan)),
    "globalq_plan_for": (c_int, c_char_p, c_char_p, c_int, c_uint64, c_int, POINTER(Plan)),
    "globalq_call_operator": (c_char_p, c_void_p, c_size_t),
    "globalq_call_save": (c_int, c_void_p, c_void_p, POINTER(c_size_t)),
    "globalq_call_load": (c_int, c_void_p, POINTER(Bytes), c_size_t),
    "globalq_call_load_own": (c_int, c_void_p, POINTER(Bytes)),
    "globalq_call_report": (c_int, c_void_p, POINTER(Report)),
    "globalq_call_destroy": (None, c_void_p),
    "globalq_chooser_create": (c_int, c_void_p, POINTER(ChooserSettings), POINTER(Layer), c_size_t, POINTER(c_void_p)),
    "globalq_chooser_add": (c_int, c_void_p, c_size_t, POINTER(Vector), c_size_t),
    "globalq_chooser_choose": (c_int, c_void_p, c_uint64, POINTER(c_int)),
    "globalq_chooser_operator": (c_char_p, c_void_p, c_size_t),
    "globalq_chooser_destroy": (None, c_void_p),
    "globalq_advise": (c_int, c_void_p, POINTER(AdviceSettings), POINTER(Layer), c_size_t, POINTER(Vector), POINTER(Advice)),
}


def load():
    """Loads the library that the environment variable GLOBALQ_LIBRARY names, else the one beside this file."""
    path = os.environ.get("GLOBALQ_LIBRARY") or str(Path(__file__).parent / "lib" / "libglobalq.so")
    try:
        library = ctypes.CDLL(path)
    except OSError as problem:
        raise ImportError(f"globalq: {path} could not be loaded: {problem}; install the package again, or let GLOBALQ_LIBRARY name "
                          "a libglobalq.so") from problem
    found = library.globalq_interface()
    if found != INTERFACE:
        raise ImportError(f"globalq: {path} has interface {found}, and this package was made for {INTERFACE}; install both from the "
                          "same version")
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = load()


def check(status):
    """Raises the exception of a status."""
    if status != 0:
        raise STATUSES.get(status, Error)(library.globalq_error().decode(errors="replace"))


class Handle:
    """Base of objects that own memory of the library and therefore cannot be copied."""

    def __reduce_ex__(self, _):
        raise ConfigurationError(f"globalq: a {type(self).__name__} cannot be copied or pickled; make one in each process and thread")


def text(name, given):
    """Encodes a str for C; returns None for None."""
    if given is None:
        return None
    if not isinstance(given, str) or "\0" in given:
        raise ConfigurationError(f"globalq: {name} is {given!r}; give a str without NUL")
    return given.encode(errors="replace")


def number(name, given, low=0, high=2**64 - 1):
    """Returns an integer in [low, high]; ctypes would truncate a larger one silently."""
    try:
        found = operator.index(given)
    except TypeError:
        raise ConfigurationError(f"globalq: {name} is {given!r}; give a whole number") from None
    if not low <= found <= high:
        raise ConfigurationError(f"globalq: {name} is {found}; give a whole number from {low} to {high}")
    return found


def seconds(name, given):
    """Returns seconds as a float for C."""
    try:
        return float(given)
    except (TypeError, ValueError):
        raise ConfigurationError(f"globalq: {name} is {given!r}; give seconds") from None
