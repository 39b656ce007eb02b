#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the time of this library's encoders with the alternatives that users have, in turn, and writes a table.

usage: peers.py --program build/release/bench/globalq_peers [--sizes 64Ki,16Mi] [--rounds 11]
                [--markdown FILE] [--json FILE]

Peers: the published algorithms in C++ (always); operators of PyTorch, pypiquant and FBGEMM, each if this Python can
import it: pip install torch pypiquant fbgemm-gpu-cpu. Exits with 1 if a result is wrong.

The C++ peers run in a separate process, globalq_peers, so that no two OpenMP runtimes share a process. Each round times
every peer once, after one call that wakes its threads; the report has medians over the rounds.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

SHORTEST_SAMPLE = 2e-3  # seconds; shorter calls are repeated
PAUSE = 3e-3  # seconds until the idle threads of the previous peer sleep


class Program:
    """The process of the C++ peers, which answers each command with one line."""

    def __init__(self, path):
        self.process = subprocess.Popen([str(path), "--kokkos-disable-warnings"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().rstrip("\n")
        except OSError:
            answer = ""
        if not answer or answer.startswith("error: "):
            raise RuntimeError(f"globalq_peers: {command}: {answer or 'the process ended'}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Peer:
    """A peer in this process: `call()` does the work, `error()` returns the error of its result."""

    def __init__(self, name, call, error, bound):
        self.name, self.call, self.error, self.bound = name, call, error, bound

    def seconds(self, calls):
        call = self.call
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start


class ProgramPeer:
    """A peer in the process of the C++ peers."""

    def __init__(self, program, index, name):
        self.program, self.index, self.name = program, index, name
        self.bound = 0.25 if "exponential" in name else 0.01

    def seconds(self, calls):
        return float(self.program.ask(f"time {self.index} {calls}"))

    def error(self):
        return float(self.program.ask(f"error {self.index}"))


# ---- Peers in Python -------------------------------------------------------------------------------------------------


def gradient(torch, n):
    """Normal values whose standard deviations vary by a factor of 32, as in the C++ peers."""
    generator = torch.Generator().manual_seed(1)
    tail = torch.rand(n, generator=generator).log2_().neg_().floor_().clamp_(0, 5)
    return torch.randn(n, generator=generator).mul_(0.01).mul_(tail.exp2_())


def relative_error(x, y):
    return float(((y.double() - x.double()) ** 2).sum() / (x.double() ** 2).sum())


def torch_peers(torch, n, threads):
    x = gradient(torch, n)
    norm = float(x.abs().max())
    half = torch.empty(n, dtype=torch.bfloat16)
    u, t = torch.empty(n), torch.empty(n)
    codes, powers = torch.empty(n, dtype=torch.int8), torch.empty(n, dtype=torch.int8)

    def cast():
        half.copy_(x)

    yield Peer("PyTorch: cast to bfloat16", cast, lambda: relative_error(x, half.float()), 1e-4)

    quantized, made = [None], [None]

    def cast_anew():
        made[0] = x.to(torch.bfloat16)

    yield Peer("PyTorch: cast to bfloat16, a new vector", cast_anew, lambda: relative_error(x, made[0].float()), 1e-4)

    def nearest():
        quantized[0] = torch.quantize_per_tensor(x, norm / 127, 0, torch.qint8)

    yield Peer("PyTorch: quantize_per_tensor, nearest", nearest,
               lambda: relative_error(x, quantized[0].dequantize()), 0.01)

    def uniform():
        torch.rand(n, out=u)
        torch.mul(x, 127 / norm, out=t)
        codes.copy_(t.add_(u).floor_())

    yield Peer("PyTorch operators: encode uniform int8, stochastic", uniform,
               lambda: relative_error(x, codes.float() * (norm / 127)), 0.01)

    def exponential():
        torch.rand(n, out=u)
        magnitude = torch.abs(x).div_(norm)
        lower = magnitude.log2().floor_().clamp_(min=-126)
        power = lower.exp2()
        up = u < magnitude.div_(power).sub_(1)
        torch.sub(1, lower, out=t).sub_(up.float())
        powers.copy_(t.mul_(torch.sign(x)))

    def decoded():
        magnitude = (1 - powers.float().abs()).exp2() * norm
        return torch.where(powers == 0, torch.zeros(()), magnitude * powers.sign())

    yield Peer("PyTorch operators: encode exponential int8, stochastic", exponential,
               lambda: relative_error(x, decoded()), 0.25)


def piquant_peers(torch, piquant, n, threads):
    x = gradient(torch, n)
    context = piquant.Context(threads)
    codes, y = torch.empty(n, dtype=torch.uint8), torch.empty(n)
    f32, u8 = piquant.DataType.F32, piquant.DataType.UINT8
    scale, zero = context.compute_quant_params_ptr_float32(x.data_ptr(), u8, n)

    def error():
        context.dequantize_ptr(codes.data_ptr(), u8, y.data_ptr(), f32, n, scale, zero, piquant.ReduceOp.SET)
        return relative_error(x, y)

    for mode in (piquant.RoundMode.NEAREST, piquant.RoundMode.STOCHASTIC):
        def quantize(mode=mode):
            context.quantize_ptr(x.data_ptr(), f32, codes.data_ptr(), u8, n, scale, zero, mode)

        yield Peer(f"pypiquant: encode 8 bits, {mode.name.lower()}", quantize, error, 0.01)


def fbgemm_peers(torch, n, threads):
    columns = math.gcd(n, 128)
    x = gradient(torch, n).view(-1, columns)
    made = [None]

    def quantize():
        made[0] = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(x)

    yield Peer(f"FBGEMM: encode 8 bits, nearest, rows of {columns} with their norms", quantize,
               lambda: relative_error(x, torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(made[0])), 0.01)


def imported(name):
    """The module and None, or None and the reason why it cannot be imported."""
    try:
        return __import__(name), None
    except Exception as problem:  # pylint: disable=broad-except  # treats a broken module as not installed
        return None, f"{type(problem).__name__}: {problem}".splitlines()[0]


class Installed:
    """The Python peers that are installed."""

    def __init__(self):
        self.torch, why_torch = imported("torch")
        self.piquant, why_piquant = imported("piquant")
        self.fbgemm, why_fbgemm = imported("fbgemm_gpu")
        if self.torch is None:  # it creates the vectors of the other peers
            self.piquant = self.fbgemm = None
        self.missing = [f"{name} ({why or 'needs PyTorch here'})" for name, module, why in
                        (("PyTorch", self.torch, why_torch), ("pypiquant", self.piquant, why_piquant),
                         ("FBGEMM", self.fbgemm, why_fbgemm)) if module is None]
        self.versions = [f"{name} {getattr(module, '__version__', '')}".strip() for name, module in
                         (("PyTorch", self.torch), ("pypiquant", self.piquant), ("FBGEMM", self.fbgemm)) if module]

    def peers(self, n, threads):
        if self.torch is None:
            return []
        self.torch.set_num_threads(threads)
        found = list(torch_peers(self.torch, n, threads))
        if self.piquant is not None:
            found += piquant_peers(self.torch, self.piquant, n, threads)
        if self.fbgemm is not None:
            found += fbgemm_peers(self.torch, n, threads)
        return found


# ---- Measuring -------------------------------------------------------------------------------------------------------


def measure(peers, rounds):
    """Median over the rounds of the seconds of a call, for each peer."""
    calls = []
    for peer in peers:
        peer.seconds(1)
        calls.append(max(1, math.ceil(SHORTEST_SAMPLE / peer.seconds(1))))
    samples = [[] for _ in peers]
    for _ in range(rounds):
        for peer, count, list_of in zip(peers, calls, samples):
            time.sleep(PAUSE)
            peer.seconds(1)
            list_of.append(peer.seconds(count) / count)
    return [statistics.median(each) for each in samples]


def number_of(text):
    units = {"Ki": 1 << 10, "Mi": 1 << 20}
    unit = units.get(text[-2:], 1)
    number = int(text[:-2] if unit > 1 else text) * unit
    if not 1 <= number <= 1 << 32:
        raise ValueError
    return number


def size_text(n):
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if n % unit == 0:
            return f"{n // unit} {name}"
    return str(n)


def head(point):
    n, threads = point
    return f"{size_text(n)}, {threads} thread{'s' if threads > 1 else ''}"


def markdown(rows, points, installed, targets):
    text = ("Nanoseconds a value; in parentheses, multiples of `globalq: encode uniform int8`. The error is the\n"
            "squared error relative to the vector's squared norm.\n\n")
    text += "| peer | " + " | ".join(map(head, points)) + " | error |\n| --- |" + " ---: |" * (len(points) + 1) + "\n"
    base = rows[0]
    for row in rows:
        cells = []
        for point in points:
            ns = row["ns_per_value"][point]
            cells.append(f"{ns:.3g} ({ns / base['ns_per_value'][point]:.2g})")
        wrong = "" if row["right"] else " WRONG"
        text += f"| {row['name']} | " + " | ".join(cells) + f" | {row['error']:.2g}{wrong} |\n"
    for line in targets:
        text += f"\n{line}\n"
    if installed.versions:
        text += f"\nWith {', '.join(installed.versions)}.\n"
    if installed.missing:
        text += f"\nNot measured, because not installed: {'; '.join(installed.missing)}.\n"
    return text


def targets_of(rows, points):
    """Speed of the encoders relative to the peers that they should beat."""
    def time_of(name, point):
        for row in rows:
            if row["name"] == name:
                return row["ns_per_value"][point]
        return None

    lines = []
    for kind in ("uniform", "exponential"):
        for name, wanted in (("pypiquant: encode 8 bits, stochastic", 5), ("PyTorch: cast to bfloat16", 1),
                             ("PyTorch: cast to bfloat16, a new vector", 1)):
            ratios = [f"{time_of(name, p) / time_of(f'globalq: encode {kind} int8', p):.2g} ({head(p)})"
                      for p in points if time_of(name, p)]
            if ratios:
                lines.append(f"Stochastic {kind} encode compared with `{name}`, times as fast (goal: {wanted}): "
                             f"{'; '.join(ratios)}.")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", type=pathlib.Path, required=True, help="globalq_peers")
    parser.add_argument("--sizes", default="64Ki,16Mi", help="lengths of vectors (%(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each peer (%(default)s)")
    parser.add_argument("--markdown", type=pathlib.Path, help="also write the table to this file")
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers to this file")
    options = parser.parse_args()
    try:
        sizes = [number_of(text) for text in options.sizes.split(",")]
    except ValueError:
        parser.error(f"--sizes takes numbers of values such as 64Ki,16Mi, not '{options.sizes}'")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")

    installed = Installed()
    try:
        program = Program(options.program)
    except OSError as problem:
        parser.error(f"{options.program} cannot be started ({problem.strerror}); build the target globalq_peers")
    names = program.ask("peers").split("\t")
    threads = int(program.ask("threads"))
    points = [(n, t) for n in sizes for t in sorted({1, threads})]
    rows = []
    for n, t in points:
        program.ask(f"prepare {n} {t}")
        peers = [ProgramPeer(program, i, name) for i, name in enumerate(names)] + installed.peers(n, t)
        seconds = measure(peers, options.rounds)
        for i, (peer, each) in enumerate(zip(peers, seconds)):
            if i == len(rows):
                rows.append({"name": peer.name, "ns_per_value": {}, "error": 0.0, "right": True})
            rows[i]["ns_per_value"][n, t] = 1e9 * each / n
            error = peer.error()
            rows[i]["error"] = max(rows[i]["error"], error)
            rows[i]["right"] = rows[i]["right"] and error <= peer.bound
    program.close()

    text = markdown(rows, points, installed, targets_of(rows, points))
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        for row in rows:
            row["ns_per_value"] = [{"values": n, "threads": t, "ns": ns}
                                   for (n, t), ns in row["ns_per_value"].items()]
        numbers = {"benchmark": "peers", "versions": installed.versions, "missing": installed.missing, "rows": rows}
        options.json.write_text(json.dumps(numbers, indent=2) + "\n")
    bad = [row["name"] for row in rows if not row["right"]]
    for name in bad:
        print(f"peers: {name}: the result is wrong", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as failure:
        sys.exit(f"peers: {failure}")
