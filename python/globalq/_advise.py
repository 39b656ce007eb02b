# SPDX-License-Identifier: Apache-2.0
"""Which operator, schedule and chunks to use: advise(), and the command line of python -m globalq advise."""

import argparse
import ctypes
import json
import os
import pathlib
import sys
from collections import namedtuple

from . import _library as c
from ._calls import Values, layer_array
from ._library import check, library

Advice = namedtuple("Advice", "operator schedule chunk_values seconds float32_seconds error text report")
Advice.__doc__ = """What to use for the mean of a gradient.

operator, schedule, chunk_values  for Mean
seconds           predicted time of a step
float32_seconds   predicted time of a step with float32
error             squared error of the mean, relative to the mean squared norm of the gradients, measured
text              report: all operators, why the others were not chosen, lines of C++ and Python
report            the same as a dict
"""


def advise(workers, layers=(), gradient=None, *, max_error=0.05, max_bound=float("inf"), operators=(), bandwidth=None, latency=20e-6):
    """Measures machine and network and chooses operator, schedule and chunks for the mean of all layers in one call.

        globalq.advise(16, [1000000, 4096], bandwidth=10e9 / 8).operator

    workers    of this job: all of them call it and receive the advice of worker 0, whose arguments are used. Or a number: that many
               threads measure this machine, unless a bandwidth is given
    layers     lengths, or pairs (name, length); empty: one layer with the length of the gradient
    gradient   one worker's values of all layers, concatenated, to measure errors on, or those of several workers one after another;
               None: synthetic values with heavy tails and unlike scales
    max_error  largest squared error of the mean, relative to the mean squared norm of the gradients
    max_bound  largest bound on that error, theta of plan()
    operators  to compare; empty: a default list
    bandwidth  of the network to predict for, in bytes per second and worker; None: measure
    latency    with a bandwidth: seconds until a short message arrives
    """
    alone = not hasattr(workers, "handle")
    for name, value in (("max_error", max_error), ("max_bound", max_bound), ("bandwidth", bandwidth), ("latency", latency)):
        if value is not None and c.seconds(name, value) == 0:  # C takes 0 as the default
            raise c.ConfigurationError(f"globalq: advise: {name} is 0; give a number above 0")
    if not isinstance(operators, str):
        operators = " ".join(",".join(each.split()) for each in operators)
    settings = c.AdviceSettings(max_error=c.seconds("max_error", max_error), max_bound=c.seconds("max_bound", max_bound),
                                operators=c.text("operators", operators),
                                count=c.number("workers", workers, 1, 2**31 - 1) if alone else 0,
                                bandwidth=0 if bandwidth is None else c.seconds("bandwidth", bandwidth),
                                latency=c.seconds("latency", latency))
    pairs = [x if isinstance(x, tuple) else (str(k), x) for k, x in enumerate(layers)]
    array, keep = layer_array([(name, (length,)) for name, length in pairs])
    values = None if gradient is None else Values(gradient, writes=False)
    vector = None if values is None else c.Vector(values.address, None, values.length, values.type)
    found = c.Advice()
    check(library.globalq_advise(None if alone else workers.handle, ctypes.byref(settings), array, len(pairs), vector,
                                 ctypes.byref(found)))
    return Advice(found.operator_name.decode(), found.schedule.decode(), found.chunk_values, found.seconds, found.float32_seconds,
                  found.error, found.text.decode(), json.loads(found.json))


def read_layers(text):
    """Reads "1000000,4096", or a file with a line "name length" for each layer."""
    try:
        if not os.path.isfile(text):
            return [int(length) for length in text.split(",")]
        with open(text) as file:
            return [(name, int(length)) for name, length in (line.split() for line in file if line.strip())]
    except (OSError, ValueError) as problem:
        raise c.ConfigurationError(f"globalq: advise: layers {text!r}: {problem}; give lengths with commas between, or a file with "
                                   "a name and a length on each line") from None


def read_gradient(path):
    """Reads an array of numpy, or raw float32."""
    import numpy

    try:
        found = numpy.load(path) if path.endswith(".npy") else numpy.frombuffer(pathlib.Path(path).read_bytes(), "<f4")
    except (EOFError, OSError, ValueError) as problem:
        raise c.ConfigurationError(f"globalq: advise: cannot read {path!r}: {problem}; give a .npy file, or raw float32") from None
    return found.reshape(-1)


def quotient(text):
    """Reads "1.25e9" or "10e9/8"."""
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; give one such as 1.25e9 or 10e9/8") from None


def launched(ask):
    """Calls ask(workers) in a process of torchrun, where only process 0 gets an answer."""
    import torch.distributed as dist

    from ._join import join

    dist.init_process_group("gloo")
    try:
        with join() as workers:
            found = ask(workers)
            return found if workers.rank == 0 else None
    finally:
        dist.destroy_process_group()


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m globalq advise", description="Measures this machine and network, and prints which "
                                     "operator, schedule and chunks to use for a model. torchrun starts it on all workers of a job: "
                                     "torchrun --nproc_per_node 4 -m globalq advise --layers 1000000,4096")
    parser.add_argument("--layers", help='lengths, "1000000,4096", or a file of lines "name length"')
    parser.add_argument("--gradients", help="the gradient of one worker, all layers in their order, or gradients of several "
                        "workers one after another: .npy, or raw float32")
    parser.add_argument("--workers", type=int, help="number of workers; threads of this process unless a bandwidth is given; default: 4")
    parser.add_argument("--bandwidth", type=quotient,
                        help="of the network to predict for: bytes per second and worker, as 10e9/8")
    parser.add_argument("--latency", type=float, default=20e-6, help="with a bandwidth: seconds until a short message arrives")
    parser.add_argument("--max-error", type=float, default=0.05,
                        help="largest squared error of the mean, relative to the mean squared norm of the gradients")
    parser.add_argument("--max-bound", type=float, default=float("inf"), help="largest bound on that error (theta of the plan)")
    parser.add_argument("--operators", default="", help='names to compare, separated by spaces, as "cgx:4 qsgd:8"')
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def ask(workers):
        # only worker 0 reads files: those of other machines may not have them
        reads = getattr(workers, "rank", 0) == 0
        return advise(workers, read_layers(given.layers) if reads and given.layers else (),
                      read_gradient(given.gradients) if reads and given.gradients is not None else None,
                      max_error=given.max_error, max_bound=given.max_bound, operators=given.operators.split(),
                      bandwidth=given.bandwidth, latency=given.latency)

    try:
        given = parser.parse_args(arguments)
        many = int(os.environ.get("WORLD_SIZE", 1)) > 1 and given.workers is None
        found = launched(ask) if many else ask(4 if given.workers is None else given.workers)
    except c.ConfigurationError as problem:
        if os.environ.get("RANK", "0") == "0":
            print(problem, file=sys.stderr)
        return 2
    if found is not None:
        print(json.dumps(found.report) if given.json else found.text.rstrip())
    return 0
