#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program globalq_advise: a network that is not here, threads, MPI; files; exit codes.

usage: tests/advise/program_test.py PROGRAM [LAUNCHER...]
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROGRAM, LAUNCHER = sys.argv[1], sys.argv[2:]
SLOW = ("--workers", "16", "--bandwidth", "1e9/8", "--operators", "cgx:4 global-uniform:8")
FOLDER = pathlib.Path(tempfile.mkdtemp())


def run(*arguments, launcher=(), code=0):
    result = subprocess.run([*launcher, PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    if result.returncode != code:
        raise runner.Failed(f"{arguments} ended with {result.returncode} instead of {code}:\n{result.stdout}\n{result.stderr}")
    return result.stdout if code == 0 else result.stderr


def expect(condition, text):
    if not condition:
        raise runner.Failed(text)


def given_network():
    report = json.loads(run(*SLOW, "--layers", "1000000,4096", "--json"))
    expect(report["compress"] and report["workers"] == 16 and report["values"] == 1004096 and report["layers"] == 2, report)
    expect(not report["network"]["measured"] and report["network"]["bandwidth"] == 1.25e8, report)
    expect([r["operator"] for r in report["rows"]][0] == "cgx:4" and len(report["rows"]) == 3, report)
    many = ",".join(["1000"] * 200)  # longer than the name of a file can be
    expect(json.loads(run(*SLOW, "--layers", many, "--json"))["layers"] == 200, many)
    text = run(*SLOW, "--layers", "1000000")
    expect("Use cgx:4 on schedule " in text and "\nWhy not\n" in text and "\nPython\n  import globalq\n" in text, text)


def threads():
    report = json.loads(run("--layers", "100000", "--workers", "2", "--json"))
    expect(report["network"]["measured"] and report["workers"] == 2 and len(report["rows"]) > 10, report)


def write_npy(name, values, count, fortran=False):
    header = f"{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': ({count},), }}".encode()
    (FOLDER / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117) + b"\n" + values)


def files():
    (FOLDER / "layers.txt").write_text("conv1.weight 60000\n\nconv1.bias 40000\n")
    values = struct.pack("<100000f", *((i % 128 == 0) + 0.01 for i in range(100000)))
    (FOLDER / "g.f32").write_bytes(values)
    write_npy("g.npy", values, 100000)
    normal = json.loads(run(*SLOW, "--layers", FOLDER / "layers.txt", "--json"))
    raw = json.loads(run(*SLOW, "--gradients", FOLDER / "g.f32", "--max-error", 10, "--json"))
    npy = json.loads(run(*SLOW, "--gradients", FOLDER / "g.npy", "--layers", FOLDER / "layers.txt", "--max-error", 10, "--json"))
    error = [next(r["error"] for r in report["rows"] if r["operator"] == "cgx:4") for report in (normal, raw, npy)]
    expect(normal["layers"] == npy["layers"] == 2 and raw["values"] == npy["values"] == 100000, npy)
    expect(error[1] > 3 * error[0] and 0.5 < error[1] / error[2] < 2, error)


def refusals():
    for arguments, text in ((["--bogus"], "--bogus"), ([], "there are no layers"), (["--layers", "4,x"], '"x"'),
                            (["--layers", "4", "--operators", "nothing"], "nothing"), (["--layers", "4", "--workers", "1"], "1 threads"),
                            (["--layers", "4", "--bandwidth", "1"], "give --workers"), (["--gradients", "nowhere"], "no such file"),
                            ([*SLOW, "--layers", "4", "--latency", "1/0"], "not a positive number")):
        message = run(*arguments, code=2)
        expect(text in message, f"{arguments}: {message}")
    for name, count, order, text in (("short.npy", 100001, False, "its shape is of 100001 values"), ("f.npy", 100000, True, "Fortran order")):
        write_npy(name, bytes(400000), count, order)
        expect(text in run(*SLOW, "--gradients", FOLDER / name, code=2), name)
    expect("mpirun -n 4 globalq_advise" in run("--help"), "help")


def mpi():
    if not LAUNCHER:
        raise runner.Skipped
    report = json.loads(run("--layers", "100000", "--operators", "cgx:4", "--json", launcher=[*LAUNCHER, "2"]))
    expect(report["network"]["measured"] and report["workers"] == 2, report)
    both = ["--layers", "4", ":", LAUNCHER[-1], "1", PROGRAM, "--bogus"]  # arguments of one process only
    expect("rank 1 of 2" in run(*both, launcher=[*LAUNCHER, "1"], code=2), both)
    expect("leave out --workers" in run("--layers", "4", "--workers", "3", launcher=[*LAUNCHER, "2"], code=2), "workers")


sys.exit(runner.run("advise_program", [(f.__name__, f) for f in (given_network, threads, files, refusals, mpi)]))
