# SPDX-License-Identifier: Apache-2.0
"""Operators in words, and single vectors as bytes."""

import ctypes
import secrets
from collections import namedtuple

from . import _library as c
from ._calls import TYPES, Values
from ._library import check, library

__all__ = ["Label", "decode", "encode", "operator", "read_label"]

FLAGS = ("eden", "centered", "normalized")  # words whose value is yes or no

Label = namedtuple("Label", "operator dtype length seed step worker workers")
Label.__doc__ = "What the bytes of encode() say about the vector: its operator in words, the name of its type, its length, and its random bits."


def operator(name=None, /, **words):
    """Composes an operator and returns its text, for every argument named operator; words() lists the words and their values.

        globalq.operator("cgx:4", rotate=1024)
        globalq.operator(norm="l:3,inf", bucket=256, levels=[0, 0.25, 1], wire="packed:3", code="huffman", feedback=True)

    A list of levels is a table, and True is the word alone. The text contains no name, so it means the same in later versions, whatever
    the defaults of names are then.

    Raises ConfigurationError if words are unknown, or do not fit together.
    """
    parts = [] if name is None else [_string("the name of an operator", name)]
    parts += [_word(word, value) for word, value in words.items()]
    found = ctypes.c_char_p()
    check(library.globalq_operator_words(c.text("operator", " ".join(parts) or "norm=linf"), ctypes.byref(found)))
    return found.value.decode()


def _string(what, given):
    if not isinstance(given, str) or not given.strip():
        raise c.ConfigurationError(f"globalq: {what} is {given!r}; give a str such as \"cgx:4\"")
    return given


def _word(word, value):
    """Returns a word with its value as text."""
    if value is True:
        return word
    if value is False:
        return f"{word}={'no' if word in FLAGS else 0}"
    if isinstance(value, str):
        return f"{word}={value}"
    try:
        if word == "levels" and not isinstance(value, (int, float)):
            return "levels=table:" + ",".join(_number(level) for level in value)
        return f"{word}={_number(value)}"
    except (TypeError, ValueError, OverflowError):
        raise c.ConfigurationError(f"globalq: {word} is {value!r}; give a str, a number or a bool") from None


def _number(value):
    return str(int(value)) if int(value) == value else repr(float(value))


def encode(x, operator, *, seed=None, step=0, worker=0, workers=1):
    """Encodes an array or a tensor as bytes, without workers: for files, object stores, federated learning.

    The bytes contain all that decode() needs, and a checksum. Vectors are unbiased: decode(encode(x)) has the mean x.

    seed, step, worker  select the random bits; seed None: drawn at random. Give them for reproducible bytes, and then different ones to
                        vectors that are averaged, or their errors do not cancel
    workers             with "rounding=correlated": the number of vectors that are averaged, with one seed and step, and the workers 0 to
                        workers - 1. Their errors partly cancel
    Raises ConfigurationError for operators without codes ("float32") and those that need a call (with residuals, learning or clipping);
    NonFiniteError for NaN and infinity.
    """
    given = Values(x, writes=False)
    vector = c.Vector(given.address, None, given.length, given.type)
    name, seed = c.text("operator", _string("operator", operator)), secrets.randbits(64) if seed is None else c.number("seed", seed)
    key = seed, c.number("step", step), c.number("worker", worker, 0, 2**31 - 1), c.number("workers", workers, 1, 2**31 - 1)
    size = ctypes.c_size_t()
    check(library.globalq_encode(name, vector, *key, None, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    check(library.globalq_encode(name, vector, *key, room, ctypes.byref(size)))
    return ctypes.string_at(room, size.value)


def read_label(data):
    """Returns the Label of bytes that encode() made. Raises FrameError if they are damaged."""
    return _label(_bytes(data))


def _bytes(data):
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise c.ConfigurationError(f"globalq: expected the bytes that encode() returned, got {type(data).__name__}")
    return bytes(data)


def _label(data):
    found = c.Label()
    check(library.globalq_read_label(data, len(data), ctypes.byref(found)))
    return Label(found.operator_name.decode(), next(name for name, number in TYPES.items() if number == found.type), found.length,
                 found.seed, found.step, found.worker, found.workers)


def decode(data, out=None, *, add=False, operator=None, most=None):
    """Decodes bytes that encode() made; returns out, or a new array of numpy.

    out       an array or a tensor of as many values. float64 needs float64; others may be decoded into each other. None: a flat
              array of the type that was encoded (bfloat16: float32, as numpy has no such type)
    add       adds to out
    operator  what the bytes must have been made by, if given
    most      the most values to accept, if given. Bytes of strangers may claim a length that does not fit into memory

    Raises FrameError for damaged bytes and for other lengths, types and operators; out is unchanged then.
    NonFiniteError if a value is beyond the range of the type; out then contains infinity there.
    """
    data = _bytes(data)
    label = _label(data) if out is None or most is not None else None
    if most is not None and label.length > c.number("most", most):
        raise c.FrameError(f"globalq: decode: the bytes contain {label.length} values, and at most {most} are accepted; refuse their sender, or "
                           "accept more")
    if out is None:
        if add:
            raise c.ConfigurationError("globalq: decode: there is nothing to add to; give out")
        import numpy

        out = numpy.empty(label.length, "float32" if label.dtype == "bfloat16" else label.dtype)
    to = Values(out, writes=True)
    expected = None if operator is None else c.text("operator", _string("operator", operator))
    check(library.globalq_decode(expected, data, len(data), c.Vector(None, to.address, to.length, to.type), bool(add)))
    to.store()
    return out
