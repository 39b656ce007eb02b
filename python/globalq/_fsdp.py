# SPDX-License-Identifier: Apache-2.0
"""QSDP on FSDP2: quantized gathers of weights and quantized reduce-scatters of gradients, parameter by parameter."""

import ctypes
import fnmatch
import math
import os
import warnings

import torch
import torch.distributed as dist

from . import _library as c
from ._calls import plan, type_number
from ._group import factor_of, uncompressed
from ._library import ConfigurationError, Error, NonFiniteError, check, library, number
from ._report import Counters
from ._vectors import operator

__all__ = ["CGX_EXCLUDES", "Sharded", "shard"]

# Biases and normalizations, as in CGX (Markov 2024, section 3.5). min_dims=2 also excludes tensors of one dimension.
CGX_EXCLUDES = ("*bias*", "*norm*", "*bn[0-9]*", "*ln_*")

# Algorithm 5.1: the learning rate, and the values that are assigned to levels at once (Markov 2024, appendix C.3).
LEARNING_RATE, LEARNING_BATCH = 0.01, 1024

NOT_FINITE = 255  # first byte of a slot without a frame, because a value was NaN or infinite; frames begin with "g"


def width(dtype):
    """Returns the bytes of a value; torch before 2.1 has no dtype.itemsize."""
    return torch.empty((), dtype=dtype).element_size()


class Exact:
    """Sends values as they are."""

    text = "float32"

    def size(self, count, dtype):
        return count * width(dtype)

    def encode(self, x, slot, key):
        slot.copy_(x.view(torch.uint8))

    def decode(self, slot, out, dtype, add):
        values = slot.view(dtype)
        out.add_(values) if add else out.copy_(values)


class Half:
    """Sends float16, multiplied by a power of two that brings the largest magnitude into [2^14, 2^15)."""

    text = "float16"

    def size(self, count, dtype):
        return 8 + 2 * count

    def encode(self, x, slot, key):
        largest = x.abs().max().item()
        factor = math.ldexp(1, min(15 - math.frexp(largest)[1], 1000)) if math.isfinite(largest) else math.nan
        slot[:8].view(torch.float64).fill_(factor)
        slot[8:].view(torch.float16).copy_(x.double() * factor)

    def decode(self, slot, out, dtype, add):
        values = slot[8:].view(torch.float16).double().div_(slot[:8].view(torch.float64))
        out.add_(values) if add else out.copy_(values)


class Frames:
    """Sends frames of globalq.encode(). With "centered" the midpoints of buckets are subtracted first, and sent as float32."""

    def __init__(self, text):
        words = operator(text).split()
        self.bucket = next((int(w[7:]) for w in words if w.startswith("bucket=")), 0)
        self.centered = any(w.startswith("centered") for w in words)
        if self.centered and self.bucket == 0:
            raise ConfigurationError(f'globalq: "{text}" subtracts midpoints of whole vectors; shard() needs buckets, such as bucket=1024')
        self._name = c.text("operator", " ".join(w for w in words if not w.startswith(("centered", "schedule="))))
        facts = plan(self._name.decode(), 1024, 2)
        if facts.bytes_are_most:
            raise ConfigurationError(f'globalq: frames of "{text}" vary in length, and shard() exchanges equal lengths; use an operator with '
                                     "code=fixed")
        self.text, self.levels = text, facts.levels
        try:
            self.size(1, torch.float32)
        except ConfigurationError as error:  # operators that need a call
            reason = str(error).removeprefix("globalq: ").rpartition(";")[0]  # without its remedy
            raise ConfigurationError(f'globalq: shard() sends frames of globalq.encode(), which "{text}" does not have ({reason}); use an '
                                     'operator such as "qsdp:8" or "cgx:8", "float16" or "float32"') from error

    def _front(self, count):
        return -(-count // self.bucket) * 4 if self.centered else 0

    def size(self, count, dtype):
        if self.centered and width(dtype) < 4:
            dtype = torch.float32
        size = ctypes.c_size_t()
        check(library.globalq_encode(self._name, c.Vector(None, None, count, type_number(dtype)), 0, 0, 0, 1, None, ctypes.byref(size)))
        return self._front(count) + size.value

    def encode(self, x, slot, key):
        if self.centered:
            x, middle = without_midpoints(x, self.bucket)
            front = self._front(len(x))
            slot[:front].view(torch.float32).copy_(middle)
            slot = slot[front:]
        used = ctypes.c_size_t(len(slot))
        try:
            check(library.globalq_encode(self._name, c.Vector(x.data_ptr(), None, len(x), type_number(x.dtype)), *key, slot.data_ptr(),
                                         ctypes.byref(used)))
        except NonFiniteError:
            slot.fill_(NOT_FINITE)
            return
        if used.value != len(slot):
            raise Error(f'globalq: a frame of "{self.text}" has {used.value} bytes instead of {len(slot)}')

    def decode(self, slot, out, dtype, add):
        front = self._front(len(out))
        frame, direct = slot[front:], not (self.centered and out.element_size() < 4)
        if frame[0] == NOT_FINITE:
            out.fill_(math.nan)
            return
        to = out if direct else torch.empty(out.shape, dtype=torch.float32)
        try:
            # the label must name this operator, or the processes have been set up differently
            check(library.globalq_decode(self._name, ctypes.c_char_p(frame.data_ptr()), len(frame),
                                         c.Vector(None, to.data_ptr(), len(to), type_number(to.dtype)), int(add and direct)))
        except NonFiniteError:
            pass  # a value is beyond the range of its type: infinity, as in an uncompressed sum
        if front:
            whole = len(to) // self.bucket * self.bucket
            middle = slot[:front].view(torch.float32)
            to[:whole].view(-1, self.bucket).add_(middle[:whole // self.bucket, None])
            to[whole:].add_(middle[whole // self.bucket:])
        if not direct:
            out.add_(to) if add else out.copy_(to)


def buckets_of(x, bucket):
    """Returns the values in rows of a bucket; the last row is padded with the last value."""
    bucket = bucket or len(x)
    return torch.nn.functional.pad(x[None], (0, -len(x) % bucket), mode="replicate").view(-1, bucket)


def without_midpoints(x, bucket):
    """Returns the values minus the midpoint of their bucket, and the midpoints."""
    rows = buckets_of(x.float() if x.element_size() < 4 else x, bucket)
    low, high = rows.aminmax(dim=1)
    middle = (low / 2 + high / 2).float()
    return (rows - middle[:, None]).view(-1)[:len(x)], middle


def learn_levels(x, bucket, levels):
    """Algorithm 5.1: moves each level toward the values next to it; the levels 0 and 1 stay.

    x       values
    levels  levels to begin with, ascending from 0 to 1
    returns the levels, and the number of values that they were learned from
    Source: Markov 2024 (thesis), section 5.6.2; the result is that of learn::weight_levels up to rounding.
    """
    if not x.isfinite().all():
        return levels, 0
    rows = buckets_of(x.float(), bucket).abs()
    norms = rows.amax(dim=1, keepdim=True)
    values = (rows / norms).view(-1)[:len(x)][(norms > 0).expand_as(rows).reshape(-1)[:len(x)]].double()
    levels = levels.clone()
    for batch in values.split(LEARNING_BATCH):
        near = torch.bucketize(batch, (levels[1:] + levels[:-1]) / 2)[:, None] == torch.arange(len(levels))
        later = near.flip(0).cumsum(0).flip(0) - 1  # values of the batch that move the level afterwards
        pull = torch.where(near, LEARNING_RATE * (1 - LEARNING_RATE) ** later.double(), 0.0)
        moved = levels * (1 - LEARNING_RATE) ** near.sum(0).double() + batch @ pull
        levels[1:-1] = moved[1:-1]
    return levels, len(values)


class Part:
    """A parameter in the vectors of its FSDP module. count: values of a shard, with padding; why: the reason if it is not quantized."""

    def __init__(self, number, name, parameter, count):
        self.number, self.name, self.parameter, self.count = number, name, parameter, count
        self.why = self.weights = self.gradients = self.levels = None
        self.learned = -1  # step in which the levels were learned
        self.leaf, self.marked = None, False  # the whole parameter, and whether it got a gradient since the last reduce-scatter

    def mark(self, _):
        self.marked = True

    def set_levels(self, levels, text):
        self.levels = levels
        self.weights = Frames(operator(text, levels=[round(float(level), 7) for level in levels], rounding="nearest"))

    def form(self, what, dtype):
        """Returns how the part travels as values of a type."""
        form = getattr(self, what)
        if not dtype.is_floating_point or width(dtype) < 2 or (isinstance(form, Half) and width(dtype) == 2):
            return EXACT
        return form


EXACT, HALF = Exact(), Half()


class Layout:
    """The parts of a flat vector, each with its type, its bytes in the vector, and its slot in what travels."""

    def __init__(self, what, parts, dtypes):
        self.entries, at, slot = [], 0, 0
        for part, dtype in zip(parts, dtypes):
            form, size = part.form(what, dtype), part.count * width(dtype)
            travels = form.size(part.count, dtype)
            self.entries.append((part, form, dtype, slice(at, at + size), slice(slot, slot + travels)))
            at, slot = at + size, slot + -(-travels // 8) * 8
        self.vector_bytes, self.row_bytes = at, slot


def typed(bytes_, dtype):
    """Returns bytes as values of a type, and whether they are a copy, because they are not aligned."""
    if bytes_.storage_offset() % width(dtype):
        return bytes_.clone().view(dtype), True
    return bytes_.view(dtype), False


class Decoding(getattr(dist, "Work", object)):
    """A gather that has been started; wait() decodes it."""

    def __init__(self, work, decode):
        super().__init__()
        self._work, self._decode = work, decode

    def wait(self, timeout=None):
        decode, self._decode = self._decode, None
        if decode is not None:
            self._work.wait()
            decode()
        return True


class Collective:
    """A collective as FSDP2 requires it: allocate() and __call__()."""

    def __init__(self, unit):
        self._unit = unit

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)


class GatherWeights(Collective):
    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        return self._unit.gather(output_tensor, input_tensor, group)


class ScatterGradients(Collective):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        return self._unit.scatter(output_tensor, input_tensor, group, op)


def fsdp_groups(module):
    """Returns torch's groups of parameters of an FSDP module. Private in torch: nothing public tells where parameters begin."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    return [g for g in ([state._fsdp_param_group] if groups is None else groups) if g is not None]


class Unit:
    """The parameters that FSDP2 gathers together."""

    def __init__(self, sharded, module, group, parts):
        self.sharded, self.module, self._group, self.parts = sharded, module, group, parts
        self.step, self._size, self._layouts = -1, None, {}

    def watch(self, *_):
        """Finds out which parameters get gradients, because FSDP2 leaves out the others and does not say which."""
        for part, p in zip(self.parts, self._group.fsdp_params):
            leaf = getattr(p, "_unsharded_param", None)
            if leaf is not None and leaf is not part.leaf and leaf.requires_grad:
                part.leaf = leaf
                leaf.register_post_accumulate_grad_hook(part.mark)

    def _layout(self, what, parts, dtypes, flat, count):
        """Returns the Layout of a flat vector, or None if it does not consist of these parts."""
        key = what, tuple(p.number for p in parts), tuple(dtypes)
        if key not in self._layouts:
            self._layouts[key] = Layout(what, parts, dtypes)
        return self._layouts[key] if self._layouts[key].vector_bytes == count * flat.element_size() else None

    def _layout_of_weights(self, flat):
        dtypes = [getattr(p, "param_dtype", None) or p.sharded_param.dtype for p in self._group.fsdp_params]
        return self._layout("weights", self.parts, dtypes, flat, flat.numel())

    def _layout_of_gradients(self, flat, count):
        params = self._group.fsdp_params
        order = getattr(self._group, "_reduce_scatter_param_indices", None) or range(len(params))
        trained = [self.parts[k] for k in order if params[k].sharded_param.requires_grad]
        marked = [part for part in trained if part.marked]
        for part in trained:
            part.marked = False
        for parts in (marked, trained):  # all of them after set_reduce_scatter_unused_params(True)
            if (found := self._layout("gradients", parts, [flat.dtype] * len(parts), flat, count)) is not None:
                return found
        return None

    def gather(self, output, own, group):
        """Starts to fill output with the decoded shards of all processes; returns a Work."""
        sharded, size = self.sharded, group.size()
        self._size = self._size or size
        if size == self._size:
            sharded.begin(self, group)
            layout = self._layout_of_weights(own)
            if layout is None:  # tensors that define fsdp_pre_all_gather
                sharded.say(self, f"gathers of {own.numel()} {own.dtype} are not of its parameters, and are sent unquantized")
        if size != self._size or layout is None:  # shards of reshard_after_forward=int consist of decoded weights
            sharded.count("unquantized", "all_gather", own, own.nbytes * (size - 1))
            with uncompressed():
                return dist.all_gather_into_tensor(output, own, group=group, async_op=True)
        step = self.step + 1  # gathers of forward and backward pass have the same bits, as the weights have
        if step in sharded.learn_at:
            self._learn(layout, own, group, step)
            layout = self._layout_of_weights(own)
        across, node = sharded.nodes_of(group)
        rank, bytes_ = group.rank(), own.detach().view(-1).cpu().view(torch.uint8)
        row = torch.empty(layout.row_bytes, dtype=torch.uint8)
        for part, form, dtype, place, slot in layout.entries:
            if part.count:
                form.encode(typed(bytes_[place], dtype)[0], row[slot], (*sharded.key(part, 0, step * (size + 1)), rank, 1))
        sharded.count("weights", "all_gather", own, layout.row_bytes * (across.size() - 1), sharded.weights)
        row = row.to(own.device)
        rows = torch.empty(across.size() * layout.row_bytes, dtype=torch.uint8, device=own.device)
        work = dist.all_gather_into_tensor(rows, row, group=across, async_op=True)

        def decode():
            at_home = output.device.type == "cpu" and node is None
            received = rows.cpu().view(across.size(), -1)
            to = output.view(-1) if at_home else torch.empty(across.size() * own.numel(), dtype=output.dtype)
            for source, values in zip(received, to.view(torch.uint8).view(across.size(), -1)):
                for part, form, dtype, place, slot in layout.entries:
                    if part.count:
                        out, copied = typed(values[place], dtype)
                        form.decode(source[slot], out, dtype, False)
                        if copied:
                            values[place].copy_(out.view(torch.uint8))
            if node is not None:
                column = to.to(output.device)
                columns = torch.empty(node.size() * column.numel(), dtype=column.dtype, device=column.device)
                with uncompressed():
                    dist.all_gather_into_tensor(columns, column, group=node)
                sharded.count("within nodes", "all_gather", column, column.nbytes * (node.size() - 1))
                # process i of node j has the shard i + j * node.size()
                output.view(across.size(), node.size(), -1).copy_(columns.view(node.size(), across.size(), -1).transpose(0, 1))
            elif not at_home:
                output.view(-1).copy_(to)

        return Decoding(work, decode)

    def _learn(self, layout, own, group, step):
        """Learns levels from the shards, averages them over the processes, and rounds to the nearest of them from now on."""
        bytes_, learned = own.detach().view(-1).cpu().view(torch.uint8), []
        for part, form, dtype, place, _ in layout.entries:
            if part.levels is not None and isinstance(form, Frames) and part.learned != step:
                x = typed(bytes_[place], dtype)[0]
                x = without_midpoints(x, form.bucket)[0] if form.centered else x
                learned.append((part, *learn_levels(x, form.bucket, part.levels)))
        if not learned:
            return
        found = torch.cat([torch.cat([levels * count, torch.tensor([float(count)])]) for _, levels, count in learned]).to(own.device)
        with uncompressed():
            dist.all_reduce(found, group=group)
        for (part, levels, _), sums in zip(learned, found.cpu().split([len(levels) + 1 for _, levels, _ in learned])):
            part.learned = step
            if sums[-1] > 0:
                part.set_levels(sums[:-1] / sums[-1], self.sharded.weights)
        self._layouts = {key: found for key, found in self._layouts.items() if key[0] != "weights"}

    def scatter(self, output, given, group, op):
        """Writes this process's shard of the sum over all processes, times the factor of op, to output."""
        sharded, size, count = self.sharded, group.size(), output.numel()
        sharded.begin(self, group)
        self.step += 1
        factor = factor_of(op, size)
        across, node = sharded.nodes_of(group)
        rows = given.view(across.size(), -1, count)  # node, place in the node
        if node is not None:
            rows = rows.transpose(0, 1).contiguous()
            sums = torch.empty(across.size() * count, dtype=given.dtype, device=given.device)
            with uncompressed():
                dist.reduce_scatter_tensor(sums, rows.view(-1), op=dist.ReduceOp.SUM, group=node)
            sharded.count("within nodes", "reduce_scatter", given, sums.nbytes * (node.size() - 1))
            rows = sums
        rows, own = rows.reshape(across.size(), count).cpu(), across.rank()
        layout, how = self._layout_of_gradients(given, count), sharded.gradients
        if layout is None:
            how = HALF.text
            sharded.say(self, f"{count} values of gradients are not of its parameters, and are sent as float16")
            whole = Part(0, "", None, count)
            whole.gradients = HALF
            layout = Layout("gradients", [whole], [given.dtype])
        travels = torch.empty(across.size(), layout.row_bytes, dtype=torch.uint8)
        for to in range(across.size()):
            bytes_ = rows[to].view(torch.uint8)
            for part, form, dtype, place, slot in layout.entries if to != own else ():
                if part.count:
                    form.encode(bytes_[place].view(dtype), travels[to, slot],
                                (*sharded.key(part, 1, self.step * (size + 1) + to), own, across.size()))
        sharded.count("gradients", "reduce_scatter", given, layout.row_bytes * (across.size() - 1), how)
        travels = travels.to(given.device)
        received = torch.empty_like(travels)
        dist.all_to_all_single(received.view(-1), travels.view(-1), group=across)
        received = received.cpu()
        total = torch.zeros(count, dtype=torch.float64 if given.dtype == torch.float64 else torch.float32)
        for source in range(across.size()):
            if source == own:
                total.add_(rows[own])  # nobody else needs this shard, so its own part needs no rounding
                continue
            for part, form, dtype, place, slot in layout.entries:
                if part.count:
                    form.decode(received[source, slot], total[place.start // width(dtype):place.stop // width(dtype)], dtype, True)
        output.view(-1).copy_(total.mul_(factor))


class Sharded:
    """Replaces the collectives of the FSDP modules of a model; see shard()."""

    def __init__(self, model, weights, gradients, excluded, excludes, node_size, learn_at, prefetch, seed):
        self._seed, self._node_size = number("seed", seed), None if node_size is None else number("node_size", node_size, 1)
        self.weights, self.gradients, self.learn_at = weights, gradients, frozenset(number("a step of learn_at", step) for step in learn_at)
        self._counters = Counters()
        self.sent = {"weights": 0, "gradients": 0, "within nodes": 0, "unquantized": 0}
        self._groups, self._said, self._order = {}, set(), [] if prefetch else None
        forms = {text: form_of(text) for text in (weights, gradients, excluded)}
        if forced_float32():
            self.learn_at = frozenset()
        if self.learn_at and not (isinstance(forms[weights], Frames) and 1 < forms[weights].levels < 128):
            raise ConfigurationError(f'globalq: "{weights}" has no levels to learn; use learn_at with weights such as "qsdp:4"')
        modules = [m for m in model.modules() if hasattr(m, "set_custom_all_gather") and hasattr(m, "set_custom_reduce_scatter")]
        if not modules:
            raise ConfigurationError("globalq: the model has no FSDP modules that take collectives; call fully_shard() of torch 2.9 or "
                                     "newer before shard()")
        for module in modules:
            module.reshard()  # so that parameters are shards, whose names the model knows
        names = {id(p): name for name, p in model.named_parameters()}
        self._units, self._parts = {}, []
        for module in modules:
            for group in fsdp_groups(module):
                if id(group) in self._units:
                    module.register_forward_pre_hook(torch.compiler.disable(self._units[id(group)].watch))
                    continue
                parts = []
                for p in group.fsdp_params:
                    part = Part(len(self._parts), names.get(id(p.sharded_param), f"parameter.{len(self._parts)}"), p.sharded_param,
                                p.padded_sharded_param_size.numel())
                    part.why = excludes(part.name, part.parameter)
                    part.weights, part.gradients = (forms[excluded if part.why else text] for text in (weights, gradients))
                    for what in ("weights", "gradients"):
                        form = getattr(part, what)
                        if isinstance(form, Frames) and form.size(part.count, torch.float32) >= forms[excluded].size(part.count, torch.float32):
                            part.why = f"a shard of {part.count} values is as short in {excluded}"
                    if part.why:
                        part.weights = part.gradients = forms[excluded]
                    elif self.learn_at:
                        part.levels = torch.linspace(0, 1, part.weights.levels + 1, dtype=torch.float64)
                    parts.append(part)
                    self._parts.append(part)
                unit = self._units[id(group)] = Unit(self, module, group, parts)
                module.register_forward_pre_hook(torch.compiler.disable(unit.watch))
                module.set_custom_all_gather(GatherWeights(unit))
                module.set_custom_reduce_scatter(ScatterGradients(unit))
        self._settings = (weights, gradients, excluded, self._node_size, sorted(self.learn_at), prefetch, forced_float32(),
                          [(p.name, p.count, p.why) for p in self._parts])

    def begin(self, unit, group):
        """Called before a collective of a unit. Compares settings at the first one in a group, and finds the order of forward passes."""
        if group not in self._groups:
            found = [None] * group.size()
            dist.all_gather_object(found, self._settings, group=group)
            for rank, other in enumerate(found):
                if other != found[0]:
                    raise ConfigurationError(f"globalq: shard() has other arguments or another model on rank {rank} than on rank 0: "
                                             f"{other[:-1]} and {found[0][:-1]}; use the same everywhere")
            self._groups[group] = group, None
            if self._node_size is not None:
                self._groups[group] = self._make_nodes(group)
        if self._order is not None:
            if unit.module not in self._order:
                self._order.append(unit.module)
            else:
                order, self._order = self._order, None
                for module, following in zip(order, order[1:]):
                    if not getattr(module._get_fsdp_state(), "_states_to_forward_prefetch", None):
                        module.set_modules_to_forward_prefetch([following])

    def _make_nodes(self, group):
        """Returns groups of the processes at this place of each node, and of this node."""
        ranks, each, rank = dist.get_process_group_ranks(group), self._node_size, group.rank()
        if len(ranks) % each:
            raise ConfigurationError(f"globalq: {len(ranks)} processes in nodes of {each}; node_size divides the number of processes")
        first = rank // each * each
        made = [dist.new_group(chosen, backend=dist.get_backend(group), use_local_synchronization=True)
                for chosen in (ranks[first:first + each], ranks[rank % each::each])]
        return made[1], made[0]

    def nodes_of(self, group):
        """Returns the group over which quantized values travel, and the group of this node, or None."""
        return self._groups[group]

    def key(self, part, kind, step):
        """Returns the seed and step of the random bits of a part: of weights (0) or gradients (1)."""
        return (self._seed + (2 * part.number + kind) * 0x9E3779B97F4A7C15) % 2**64, step

    def say(self, unit, what):
        if dist.get_rank() == 0 and id(unit) not in self._said:
            self._said.add(id(unit))
            warnings.warn(f"globalq: {', '.join(p.name for p in unit.parts[:3])}, ..: {what}", stacklevel=2)

    def count(self, kind, call, x, sent, how="exact"):
        """Counts what a collective has sent for the tensor x, in `sent` and for globalq.torch.report()."""
        self.sent[kind] += sent
        quantized = kind in ("weights", "gradients")
        self._counters.add(f"shard: {call}", "float32" if quantized and forced_float32() else how, "" if quantized else kind, [x], sent)

    @property
    def step(self):
        """Number of the last step whose gradients were sent; -1 before the first."""
        return max((unit.step for unit in self._units.values()), default=-1)

    @property
    def bytes_sent(self):
        """Bytes that this process has sent to others. `sent` has them by kind: "weights", "gradients", "within nodes", "unquantized"."""
        return sum(self.sent.values())

    def report(self):
        """Returns a tuple for each parameter: name, number of values, operators of weights and gradients, reason if excluded (or None)."""
        return [(p.name, p.parameter.numel(), p.weights.text, p.gradients.text, p.why) for p in self._parts]

    def state_dict(self):
        """Returns the state to save with the model: the step, so that training does not reuse random bits, and learned levels."""
        return {"step": self.step, "levels": {p.name: (p.learned, p.levels) for p in self._parts if p.learned >= 0}}

    def load_state_dict(self, state):
        """Continues after the step of a state_dict()."""
        for unit in self._units.values():
            unit.step, unit._layouts = number("step", state["step"], -1), {}
        for p in self._parts:
            if p.name in state.get("levels", {}):
                p.learned, levels = state["levels"][p.name]
                p.set_levels(levels, self.weights)


def forced_float32():
    """Returns whether collectives send float32, as those of the library do while this variable is set."""
    return os.environ.get("GLOBALQ_FORCE_FLOAT32", "0") not in ("", "0")


def form_of(text):
    form = EXACT if text == "float32" else HALF if text == "float16" else Frames(text)
    return EXACT if forced_float32() else form


def shard(model, weights="qsdp", gradients="cgx:8,bucket=1024", *, exclude=CGX_EXCLUDES, min_dims=2, excluded="float16", node_size=None,
          learn_at=(), prefetch=True, seed=0):
    """Makes the FSDP modules of a model send weights and gradients with operators, as in QSDP. Call fully_shard() first.

    Each parameter is quantized by itself: its shards have their own buckets and random bits. The owner of a shard decodes its weights as
    well, so all replicas of a layer are equal while the layer is used; the exact weights stay in the shards. The gathers of forward and
    backward pass have the same bits. Gathers overlap with computation; reduce-scatters do not, because FSDP2 waits for each.

    weights, gradients  operators; "float32": as they are
    exclude      name patterns of parameters that are not quantized, or a function of name and parameter that returns whether
    min_dims     parameters with fewer dimensions are not quantized either, unless exclude is a function
    excluded     how these travel: "float16", with a scale of their own so that nothing overflows, or "float32": as they are
    node_size    number of processes of a node, whose ranks in the mesh are consecutive. Shards are quantized between nodes only; in a node
                 gradients are added and weights gathered as they are
    learn_at     steps at which the levels of each weight are learned (Algorithm 5.1); from then on weights are rounded to the nearest level
    prefetch     gathers the next FSDP module during the forward pass of one, in the order of the first pass; False: only
                 what set_modules_to_forward_prefetch() says. The backward pass always does
    seed         selects the random bits, together with the step
    returns      a Sharded: step, bytes_sent, sent, report(), state_dict()
    Source: Markov 2024 (thesis), sections 5.6.1 and 5.6.2, Algorithms 5.1 and C.1 (QSDP).
    """
    if isinstance(exclude, str):
        raise TypeError('globalq: exclude is a list of patterns, such as ["head.*"], or a function')
    if callable(exclude):
        def excludes(name, parameter):
            return "exclude() says so" if exclude(name, parameter) else None
    else:
        def excludes(name, parameter):
            pattern = next((p for p in exclude if fnmatch.fnmatchcase(name, p)), None)
            if pattern is not None:
                return f"its name matches {pattern}"
            return f"its {parameter.dim()} dimensions are fewer than {min_dims}" if parameter.dim() < min_dims else None

        names = [name for name, _ in model.named_parameters()]
        for pattern in exclude if exclude is not CGX_EXCLUDES else ():
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise ConfigurationError(f'globalq: the pattern "{pattern}" matches none of the {len(names)} parameters')
    return Sharded(model, weights, gradients, excluded, excludes, node_size, learn_at, prefetch, seed)
