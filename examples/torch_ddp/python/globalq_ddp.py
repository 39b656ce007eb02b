# SPDX-License-Identifier: Apache-2.0
"""globalq as a communication hook of torch's DistributedDataParallel.

    ddp = DistributedDataParallel(model)
    hook = globalq_ddp.Hook(ddp, operator="cgx:4", exclude=["head.*"], min_size=512)
    ddp.register_comm_hook(hook, globalq_ddp.average)

Gradients are then averaged by globalq, bucket by bucket, while the backward pass still runs. All processes end with the
same bits.
"""

import datetime

import torch
import torch.distributed as dist

from _globalq_ddp import Averager, Error, operators_help

__all__ = ["CGX_EXCLUDES", "Error", "Hook", "average", "operators_help"]

# Biases and normalisations, as CGX has them (Markov 2024, section 3.5); tensors of one dimension are excluded besides.
CGX_EXCLUDES = ("*bias*", "*norm*", "*bn[0-9]*", "*ln_*")


class Hook:
    """What average() needs to know. All processes make it at the same point, with the same settings.

    model        the DistributedDataParallel, or the module in it
    operator     of layers that are quantised: "float32" or a named operator; operators_help() lists them
    layers       {pattern: operator} for layers whose name matches; the first that does counts
    exclude      patterns of names; what matches travels as float32
    min_size     layers of fewer values travel as float32
    min_dims     layers of fewer dimensions travel as float32: below 2 are biases and normalisations
    seed         of the rounding
    warm_up      so many first steps travel as float32
    first_step   number of the first step, for a training that goes on: no step should have the random bits of another
    deadline     seconds that a wait for another process may take
    group        process group in host memory, which nothing else sends and receives through; None: a gloo group of its own
    """

    def __init__(self, model, operator="cgx:4", *, layers=None, exclude=CGX_EXCLUDES, min_size=0, min_dims=2, seed=0,
                 warm_up=0, first_step=0, deadline=600.0, group=None):
        if isinstance(exclude, str):
            raise TypeError('globalq_ddp: exclude is a list of patterns, such as ["head.*"]')
        module = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if group is None:
            group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=deadline))
        self._parameters = [p for _, p in named]  # keeps them, and with them their identities
        self._number = {id(p): k for k, p in enumerate(self._parameters)}
        self._group = group
        self._averager = Averager(group=group, model=[(name, list(p.shape)) for name, p in named],
                                  operator=operator, layers=list((layers or {}).items()), exclude=list(exclude),
                                  min_size=min_size, min_dimensions=min_dims, seed=seed, warm_up=warm_up,
                                  first_step=first_step, deadline=deadline)

    def start(self, bucket):
        """Starts to average a GradBucket in place; returns a future of its buffer."""
        try:
            layers = [self._number[id(p)] for p in bucket.parameters()]
        except KeyError:
            raise Error("globalq_ddp: a bucket has a parameter that the model did not have when the hook was made; "
                        "make the hook from the model that is trained") from None
        buffer, done = bucket.buffer(), torch.futures.Future()

        def averaged(future):
            if future.value():
                raise Error(future.value())
            return buffer

        self._averager.start(bucket.index(), layers, bucket.gradients(), done.set_result)
        return done.then(averaged)

    def report(self):
        """A tuple for each layer: name, values, operator with all parameters, why it is not quantised (or "")."""
        return self._averager.report()

    @property
    def step(self):
        """Number of the step that began last."""
        return self._averager.step

    @property
    def bytes_sent(self):
        """Bytes that this process has sent."""
        return self._averager.bytes_sent

    @property
    def non_finite(self):
        """Buckets whose gradients became NaN on all processes; the first is told on stderr of rank 0."""
        return self._averager.non_finite

    def close(self):
        """Ends the thread that averages; the hook cannot be used any more."""
        self._averager.close()


def average(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: register_comm_hook(Hook(..), average)."""
    return state.start(bucket)
