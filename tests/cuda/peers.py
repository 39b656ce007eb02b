#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what others use on the same GPU: copies, casts, and quantizers written in Triton. Writes JSON.

usage: peers.py OUT.json [SECONDS]     needs torch with CUDA and Triton, no network

Each entry: name, n, us (median of a CUDA graph's replays, so without launch overhead), us_eager (calls from Python), bytes a value that
an ideal kernel moves, and `of_copy`: the time of a device-to-device copy of these bytes divided by the time. Written after every entry,
so a run that is cut short leaves what it has.
"""
import json
import statistics
import sys
import time

import torch
import triton
import triton.language as tl

out = sys.argv[1]
until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 90)
device = torch.device("cuda")
result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
          "cuda": torch.version.cuda, "nccl": list(torch.cuda.nccl.version()), "entries": []}


@triton.jit
def absmax_int8(x, scales, codes, seed, BUCKET: tl.constexpr, ROWS: tl.constexpr, STOCHASTIC: tl.constexpr):
    """int8 codes and a float32 scale for each bucket, as blockwise quantizers of optimizers and activations compute them."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None].to(tl.int64) * BUCKET + tl.arange(0, BUCKET)[None, :]
    v = tl.load(x + at).to(tl.float32)
    top = tl.max(tl.abs(v), axis=1)
    gain = tl.where(top > 0, 127.0 / top, 0.0)
    z = v * gain[:, None]
    if STOCHASTIC:
        z = tl.floor(z + tl.rand(seed, at.to(tl.int32)))
    else:
        z = tl.floor(z + 0.5)
    tl.store(codes + at, z.to(tl.int8))
    tl.store(scales + row, top)


@triton.jit
def int8_back(codes, scales, y, BUCKET: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None].to(tl.int64) * BUCKET + tl.arange(0, BUCKET)[None, :]
    v = tl.load(codes + at).to(tl.float32) * (tl.load(scales + row) / 127.0)[:, None]
    if ADD:
        v += tl.load(y + at)
    tl.store(y + at, v)


@triton.jit
def fp8_rows(x, scales, codes, BUCKET: tl.constexpr, ROWS: tl.constexpr):
    """Row-wise fp8, as in quantized allreduces of fault-tolerant trainers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None].to(tl.int64) * BUCKET + tl.arange(0, BUCKET)[None, :]
    v = tl.load(x + at).to(tl.float32)
    top = tl.max(tl.abs(v), axis=1)
    scale = tl.where(top > 0, top / 448.0, 1.0)
    tl.store(codes + at, (v / scale[:, None]).to(tl.float8e4nv))
    tl.store(scales + row, scale)


def timed(f, sets):
    """f(k) for buffers k; the median of graph replays in us, and of eager calls."""
    for k in range(sets):
        f(k)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for k in range(sets):
                f(k)
        graph.replay()
        stream.synchronize()
        us = []
        for _ in range(15):
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            us.append(begin.elapsed_time(end) * 1e3 / sets)
    eager = []
    for _ in range(7):
        begin.record()
        for k in range(sets):
            f(k)
        end.record()
        end.synchronize()
        eager.append(begin.elapsed_time(end) * 1e3 / sets)
    return statistics.median(us), statistics.median(eager)


def add(name, n, bytes_a_value, f, sets, copy_rate=None):
    if time.monotonic() > until:
        return None
    try:
        us, eager = timed(f, sets)
        entry = {"name": name, "n": n, "us": us, "us_eager": eager, "bytes_a_value": bytes_a_value,
                 "bytes_per_second": bytes_a_value * n / us * 1e6}
        if copy_rate:
            entry["of_copy"] = entry["bytes_per_second"] / copy_rate
    except Exception as error:  # another version of Triton may lack one of them
        entry = {"name": name, "n": n, "error": f"{type(error).__name__}: {error}"[:300]}
    result["entries"].append(entry)
    with open(out, "w") as f:
        json.dump(result, f, indent=1)
    print(json.dumps(entry), flush=True)
    return entry


for n in (1 << 28, 1 << 24, 1 << 20):
    sets = max(1, min(32, (1 << 28) // n))  # different buffers in turn: more than the L2 holds
    x = [torch.randn(n, device=device) for _ in range(sets)]
    y = [torch.empty_like(v) for v in x]
    copied = add("copy float32", n, 8, lambda k: y[k].copy_(x[k]), sets)
    rate = copied["bytes_per_second"] if copied and "us" in copied else None
    h = [torch.empty(n, device=device, dtype=torch.bfloat16) for _ in range(sets)]
    add("cast float32 to bfloat16", n, 6, lambda k: h[k].copy_(x[k]), sets, rate)
    add("cast bfloat16 to float32", n, 6, lambda k: y[k].copy_(h[k]), sets, rate)
    del h
    add("amax", n, 4, lambda k: torch.linalg.vector_norm(x[k], float("inf")), sets, rate)
    add("l2 norm", n, 4, lambda k: torch.linalg.vector_norm(x[k]), sets, rate)
    for bucket, rows in ((128, 16), (1024, 4)):
        codes = [torch.empty(n, device=device, dtype=torch.int8) for _ in range(sets)]
        scales = [torch.empty(n // bucket, device=device) for _ in range(sets)]
        grid, each = (n // bucket // rows,), 5 + 4 / bucket
        for stochastic in (False, True):
            add(f"triton int8, bucket {bucket}{', stochastic' if stochastic else ''}", n, each,
                lambda k: absmax_int8[grid](x[k], scales[k], codes[k], 7, bucket, rows, stochastic), sets, rate)
        add(f"triton int8 back, bucket {bucket}", n, each, lambda k: int8_back[grid](codes[k], scales[k], y[k], bucket, rows, False), sets, rate)
        add(f"triton int8 add, bucket {bucket}", n, each + 4, lambda k: int8_back[grid](codes[k], scales[k], y[k], bucket, rows, True), sets, rate)
        del codes
        eight = [torch.empty(n, device=device, dtype=torch.float8_e4m3fn) for _ in range(sets)]
        add(f"triton fp8, bucket {bucket}", n, each, lambda k: fp8_rows[grid](x[k], scales[k], eight[k], bucket, rows), sets, rate)
        del eight, scales
    del x, y
    torch.cuda.empty_cache()
