#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of examples/mean_of_files.

usage: mean_of_files_test.py PROGRAM [LAUNCHER ARGUMENT... NUMPROC_FLAG]

The launcher is an MPI launcher, whose last argument is followed by the number of processes; without it the cases of
MPI are skipped. With GTEST_OUTPUT=json:FILE in the environment the counts are left where tests/support/totals.py
looks for them. The exit status is 1 when a case failed.
"""

import array
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROGRAM = [os.path.abspath(sys.argv[1])]
LAUNCHER = sys.argv[2:]
KEYS = ["workers", "length", "bytes_sent", "bits_per_value", "seconds", "identical", "non_finite", "nmse",
        "theta_bound"]
LEARNED = ("alq", "amq")  # whose levels are learned unless they are given
LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MPI_LOCALNRANKS")
# Containers run as root and often forbid the system call behind the single copy.
LAUNCHER_SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                     "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMP_PROC_BIND": "false"}

cases = []


def case(function):
    cases.append((function.__name__, function))
    return function


def mpi_case(function):
    return case(function) if LAUNCHER else function


def expect(condition, *what):
    if not condition:
        raise runner.Failed(" ".join(str(each) for each in what))


def equal(found, wanted, *what):
    expect(found == wanted, *what, f"found {found!r} instead of {wanted!r}")


def write(path, values):
    data = array.array("f", values)
    pathlib.Path(path).write_bytes(data.tobytes())


def read(path):
    data = array.array("f")
    data.frombytes(pathlib.Path(path).read_bytes())
    return data


class Result:
    def __init__(self, done, files):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.files = files

    @property
    def report(self):
        return json.loads(self.out)


class Folder:
    """A folder with the inputs of some workers, where the program runs."""

    def __init__(self, *vectors):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="mean_of_files."))
        self.vectors = []
        for rank, values in enumerate(vectors):
            write(self.path / f"in.{rank}.f32", values)
            self.vectors.append(read(self.path / f"in.{rank}.f32"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def raw(self, command, timeout=60):
        environment = {**LAUNCHER_SETTINGS, **os.environ}
        for variable in LAUNCHER_VARIABLES:
            environment.pop(variable, None)
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)
        return Result(done, sorted(self.path.glob("out.*")))

    def run(self, *arguments, workers=None, mpi=False, code=0):
        """Runs with the usual file names and --json, one worker for each input unless told."""
        for old in self.path.glob("out.*"):
            old.unlink()
        count = len(self.vectors) if workers is None else workers
        common = [*PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32", "--json"]
        if mpi:
            command = [*LAUNCHER, str(count), *common, *arguments]
        else:
            command = [*common, "--workers", str(count), *arguments]
        result = self.raw(command)
        expect(result.code == code, "exit code", result.code, "instead of", code, arguments, result.err[-400:])
        if code == 0:
            self.check(result, count, arguments)
        else:
            check_failure(result)
        return result

    def check(self, result, count, arguments):
        """What holds for every run that ends well."""
        equal([p.name for p in result.files], sorted(f"out.{r}.f32" for r in range(count)))
        contents = [p.read_bytes() for p in result.files]
        expect(len(set(contents)) == 1, "all outputs are the same", arguments)
        result.bits = contents[0]
        result.values = array.array("f")
        result.values.frombytes(contents[0])
        report = result.report
        equal([k for k in report if k not in ("bytes_modeled", "levels", "non_finite_rank")], KEYS)
        equal(report["non_finite"], any(map(math.isnan, result.values)))
        equal(result.err.count("mean_of_files: warning: "), 1 if report["non_finite"] else 0, result.err)
        expect(report["non_finite"] or not result.err, "nothing on stderr:", result.err)
        equal("levels" in report, any(name.startswith(LEARNED) and "levels=" not in name and "multiplier=" not in name
                                      for name in arguments))
        equal(report.get("bytes_modeled"), True if "native" in arguments else None)
        equal(report["workers"], count)
        equal(report["length"], len(self.vectors[0]))
        equal(len(result.values), len(self.vectors[0]))
        equal(report["identical"], True)
        expect(report["seconds"] > 0, "seconds", report["seconds"])
        wanted = self.nmse(result.values)
        if wanted is None:
            equal(report["nmse"], None)
        else:
            expect(math.isclose(report["nmse"], wanted, rel_tol=1e-6, abs_tol=1e-17), "nmse", report["nmse"], wanted)

    def nmse(self, values):
        n = len(self.vectors)
        power = sum(x * x for v in self.vectors for x in v)
        if not power > 0 or not math.isfinite(power) or any(math.isnan(y) for y in values):
            return None
        return sum((y - m) ** 2 for y, m in zip(values, self.mean())) * n / power

    def mean(self):
        return [sum(each) / len(self.vectors) for each in zip(*self.vectors)]


def check_failure(result):
    expect(not result.out, "nothing on stdout:", result.out)
    equal(result.files, [], "no output file, not even a part of one;")
    expect("mean_of_files: " in result.err, "a message on stderr:", result.err)
    equal(result.err.count("mean_of_files: "), 1, "rank 0 alone speaks;")


def gaussian(n, d, seed=1):
    source = random.Random(seed)
    return [[source.gauss(0, 1) for _ in range(d)] for _ in range(n)]


def frame_bits(d, bits, local_scales=0):
    """Of a frame: a header of 16 bytes, the scales of local norms padded to 16 bytes, and the codes."""
    return 8 * (16 + (4 * local_scales + 15) // 16 * 16 + (d * bits + 7) // 8)


# Arguments, and the bits that a code has.
COMPOSITIONS = [
    ([], 8),
    (["--levels", "uniform"], 8),
    (["--levels", "uniform:20"], 8),
    (["--levels", "uniform:5000", "--wire", "int16"], 16),
    (["--levels", "uniform:1000000", "--wire", "int32", "--norm", "l:2,2"], 32),
    (["--levels", "uniform:3", "--wire", "packed:3"], 3),
    (["--levels", "uniform:1", "--bucket", "50"], 8),
    (["--wire", "packed:4", "--bucket", "64", "--schedule", "sra"], 4),
    (["--wire", "packed:5", "--bucket", "100", "--norm", "l:1,3", "--schedule", "tree"], 5),
    (["--schedule", "tree"], 8),
    (["--schedule", "sra", "--wire", "int16"], 16),
    (["--schedule", "allgather", "--levels", "uniform:127"], 8),
    (["--schedule", "native", "--levels", "uniform:25"], 8),
    (["--schedule", "native", "--wire", "int32", "--in-place"], 32),
    (["--levels", "exponential"], 8),
    (["--levels", "exponential:10", "--schedule", "tree", "--reduce", "exponential"], 8),
    (["--levels", "exponential:7", "--wire", "packed:4", "--reduce", "requantize"], 4),
    (["--levels", "exponential:7:2", "--wire", "packed:4", "--schedule", "allgather"], 4),
    (["--levels", "exponential:12:1.5", "--wire", "packed:5", "--schedule", "sra"], 5),
    (["--levels", "table:0,0.1,0.3,1", "--wire", "packed:3", "--schedule", "sra"], 3),
    (["--levels", "table:0,2e-2,.2,1.0", "--rounding", "random-shift-unshifted"], 8),
    (["--levels", "symmetric:0.1,0.3,0.6,1", "--wire", "packed:3", "--schedule", "tree"], 3),
    (["--levels", "symmetric:1", "--wire", "packed:1", "--schedule", "allgather"], 1),
    (["--rounding", "random-shift", "--levels", "uniform:20"], 8),
    (["--rounding", "random-shift", "--wire", "packed:6", "--bucket", "32", "--reduce", "requantize"], 6),
    (["--rounding", "random-shift-unshifted", "--levels", "exponential", "--reduce", "requantize"], 8),
    (["--rounding", "nearest", "--levels", "uniform:25"], 8),
    (["--reduce", "sum", "--levels", "uniform:3", "--wire", "packed:6"], 6),
    (["--norm", "local:2", "--wire", "packed:4", "--schedule", "allgather"], 4),
    (["--norm", "local:inf", "--bucket", "50", "--schedule", "sra"], 8),
    (["--norm", "local:1", "--bucket", "10", "--wire", "int16"], 16),
    (["--norm", "l:2,inf", "--bucket", "7", "--seed", "18446744073709551615", "--step", "281474976710655"], 8),
    (["--dtype", "f64", "--in-place"], 8),
    (["--dtype", "f16", "--levels", "exponential"], 8),
    (["--dtype", "bf16", "--schedule", "tree", "--in-place"], 8),
    (["--chunk-values", "100", "--levels", "uniform:7", "--wire", "packed:4", "--reduce", "requantize"], 4),
    (["--execution", "openmp", "--repeat", "2"], 8),
    (["--norm", "l:1,3", "--levels", "e2m3", "--wire", "packed:6", "--bucket", "100"], 6),
    (["--levels", "none"], 32),
    (["--levels", "none", "--schedule", "tree", "--dtype", "f64"], 32),
    (["--levels", "none", "--schedule", "allgather", "--dtype", "bf16"], 32),
    (["--levels", "none", "--schedule", "native", "--dtype", "f16"], 32),
]


def try_composition(folder, arguments, bits, mpi=False):
    result = folder.run(*arguments, mpi=mpi)
    report = result.report
    d = len(folder.vectors[0])
    scales = 0
    if any(word.startswith("local:") for word in arguments):
        bucket = int(arguments[arguments.index("--bucket") + 1]) if "--bucket" in arguments else d
        scales = -(-d // bucket)
    if "f64" not in arguments:  # whose local scales are doubles
        wanted = frame_bits(d, bits, scales) / d
        expect(math.isclose(report["bits_per_value"], wanted), "bits_per_value", report["bits_per_value"], wanted)
    if "none" in arguments or "nearest" in arguments:
        equal(report["theta_bound"], None)
    else:
        bound = report["theta_bound"]
        slack = 1e-4 if "bf16" in arguments else 1e-9
        # One draw of d coordinates; few shifts make it wide.
        expect(report["nmse"] <= 3 * bound + slack, "nmse", report["nmse"], "above the bound", bound)
    if "none" in arguments:
        limit = {"bf16": 1e-4, "f16": 1e-6}.get(arguments[-1], 1e-13)
        expect(report["nmse"] <= limit, "nmse of float32", report["nmse"])


def matrix_on_threads(n):
    def test():
        problems = []
        with Folder(*gaussian(n, 700)) as folder:
            for arguments, bits in COMPOSITIONS:
                try:
                    try_composition(folder, arguments, bits)
                except Exception as problem:
                    problems.append(f"{' '.join(arguments)}: {problem}")
        expect(not problems, "\n  ".join([f"{len(problems)} of {len(COMPOSITIONS)}", *problems]))

    test.__name__ = f"compositions_on_{n}_threads"
    return case(test)


for number in range(1, 6):
    matrix_on_threads(number)


def matrix_on_mpi(n, every):
    def test():
        with Folder(*gaussian(n, 700)) as folder:
            for arguments, bits in COMPOSITIONS[n % every :: every]:
                try_composition(folder, arguments, bits, mpi=True)

    test.__name__ = f"compositions_on_{n}_ranks"
    return mpi_case(test)


for number, share in ((1, 14), (2, 8), (3, 8)):
    matrix_on_mpi(number, share)


@case
def bytes_of_the_ring():
    """2 (n-1) frames of a segment of 256 values each, and 64 bytes to each of the others at the opening."""
    for n in (2, 3, 4):
        with Folder(*gaussian(n, 256 * n)) as folder:
            for arguments, bits in (["--levels", "uniform:7"], 8), (["--wire", "packed:4"], 4), (["--levels", "none"], 32):
                report = folder.run(*arguments).report
                equal(report["bytes_sent"], 2 * (n - 1) * frame_bits(256, bits) // 8 + 64 * (n - 1), n, arguments)


@case
def bytes_of_native_are_modeled():
    """2 S (n-1)/n, the opening exchange apart."""
    with Folder(*gaussian(4, 1000)) as folder:
        report = folder.run("--schedule", "native", "--wire", "int16").report
        equal(report["bytes_sent"], 2000 * 2 * 3 // 4 + 64 * 3)


@case
def the_mean_is_unbiased():
    """The error of an average of K calls is a K-th of that of one call; a bias would not fall."""
    calls = 150
    with Folder(*gaussian(3, 600)) as folder:
        for arguments in (
            ["--levels", "uniform:5"],
            ["--levels", "uniform:1", "--wire", "packed:2", "--bucket", "40", "--schedule", "sra"],
            ["--levels", "exponential:6"],
            ["--levels", "exponential:6", "--schedule", "tree", "--dtype", "f64"],
            ["--levels", "exponential:5:3", "--schedule", "allgather"],
            ["--levels", "table:0,0.2,0.5,1", "--schedule", "tree"],
            ["--levels", "symmetric:0.3,1", "--wire", "packed:2"],
            ["--levels", "uniform:3", "--rounding", "random-shift", "--bucket", "12"],
            ["--levels", "exponential:4", "--rounding", "random-shift-unshifted", "--bucket", "12", "--reduce", "requantize"],
            ["--norm", "local:2", "--levels", "uniform:7", "--bucket", "60"],
            ["--norm", "l:2,2", "--levels", "uniform:7", "--schedule", "native"],
        ):
            single = [folder.run(*arguments, "--step", str(1000 + k)).report["nmse"] for k in range(4)]
            average = folder.run(*arguments, "--repeat", str(calls)).report["nmse"]
            ratio = average * calls / (sum(single) / len(single))
            expect(0.6 < ratio < 1.5, arguments, "ratio to what independent errors give:", ratio)


@case
def repeat_averages_in_double():
    with Folder(*gaussian(2, 300)) as folder:
        arguments = ["--levels", "uniform:9", "--seed", "5"]
        each = [folder.run(*arguments, "--step", str(40 + k)).values for k in range(7)]
        wanted = array.array("f", [sum(float(x) for x in column) / 7 for column in zip(*each)])
        found = folder.run(*arguments, "--step", "40", "--repeat", "7").values
        equal(list(found), list(wanted))


@case
def float32_is_exact_to_rounding():
    for n in range(1, 6):
        with Folder(*gaussian(n, 500, seed=n)) as folder:
            for schedule in ("ring", "tree", "sra", "allgather", "native"):
                values = folder.run("--levels", "none", "--schedule", schedule).values
                for i, (found, wanted) in enumerate(zip(values, folder.mean())):
                    size = sum(abs(v[i]) for v in folder.vectors) / n
                    expect(abs(found - wanted) <= (n + 1) * 2.0**-24 * size, schedule, n, found, wanted)


@case
def the_same_bits_however_it_runs():
    with Folder(*gaussian(3, 5000)) as folder:
        for arguments in (["--levels", "exponential"], ["--wire", "packed:4", "--bucket", "100", "--schedule", "sra"]):
            usual = folder.run(*arguments).bits
            for other in (["--in-place"], ["--execution", "openmp"], ["--execution", "serial"], ["--chunk-values", "300"],
                          ["--chunk-values", "1"], ["--chunk-values", "18446744073709551615"], ["--transport", "threads"]):
                equal(folder.run(*arguments, *other).bits == usual, True, arguments, other)
            for other in (["--seed", "1"], ["--step", "1"]):
                equal(folder.run(*arguments, *other).bits == usual, False, arguments, other)


@mpi_case
def the_same_bits_on_mpi_and_threads():
    with Folder(*gaussian(3, 5000)) as folder:
        for arguments in (["--levels", "exponential"], ["--wire", "packed:4", "--norm", "local:2", "--execution", "openmp"]):
            equal(folder.run(*arguments, mpi=True).bits == folder.run(*arguments).bits, True, arguments)


@case
def short_and_empty_vectors():
    for d in (0, 1, 2, 3, 5):
        with Folder(*gaussian(4, d)) as folder:
            for arguments in ([], ["--levels", "none"], ["--levels", "exponential", "--schedule", "tree"], ["--bucket", "2"],
                              ["--norm", "local:2", "--schedule", "sra", "--in-place"], ["--schedule", "native"],
                              ["--dtype", "f16", "--schedule", "allgather", "--repeat", "2"]):
                report = folder.run(*arguments).report
                if d == 0:
                    equal(report["bits_per_value"], 0)
                    equal(report["nmse"], None)


@case
def zeros_stay_zeros():
    with Folder([0.0] * 100, [-0.0] * 100) as folder:
        result = folder.run()
        equal(list(result.values), [0.0] * 100)
        equal(result.report["nmse"], None)


@case
def values_that_are_not_finite():
    nan = struct.pack("<I", 0x7FC00000)
    for bad in (math.nan, math.inf, -math.inf):
        vectors = gaussian(3, 50)
        vectors[1][17] = bad
        with Folder(*vectors) as folder:
            for arguments in ([], ["--levels", "none"], ["--dtype", "f16"], ["--bucket", "8"], ["--in-place", "--dtype", "f64"]):
                result = folder.run(*arguments)
                equal(result.bits, nan * 50, bad, arguments)
                equal(result.report["nmse"], None)
                equal(result.report["non_finite_rank"], 1)
                expect("rank 1 of 3 has NaN or infinity" in result.err, result.err)
                result = folder.run(*arguments, "--non-finite", "error", code=3)
                expect("rank 1" in result.err and "NaN or infinity" in result.err, result.err)


@case
def float16_beyond_its_range_is_not_finite():
    with Folder([1.0, 2.0], [1e5, 3.0]) as folder:
        result = folder.run("--dtype", "f16")
        equal(result.bits, struct.pack("<I", 0x7FC00000) * 2)
        equal(result.report["non_finite_rank"], 1)
        folder.run("--dtype", "f16", "--non-finite", "error", code=3)
        folder.run("--dtype", "bf16")


@case
def the_whole_range_of_float32():
    largest = struct.unpack("<f", struct.pack("<I", 0x7F7FFFFF))[0]
    for x in (largest, 2.0**-126, 2.0**-149):
        with Folder([x, -x, 0.0], [x, -x, 0.0], [x, -x, 0.0]) as folder:
            for arguments in ([], ["--levels", "none"], ["--dtype", "f64"], ["--schedule", "allgather", "--levels", "exponential"]):
                for found, wanted in zip(folder.run(*arguments).values, [x, -x, 0.0]):
                    expect(abs(found - wanted) <= 2.0**-22 * abs(wanted), arguments, found, wanted)


@case
def results_beyond_float32():
    """Three equal maxima add to two or four of them when powers of two are added: at some steps it is four."""
    largest = struct.unpack("<f", struct.pack("<I", 0x7F7FFFFF))[0]
    with Folder(*[[largest, 1.0]] * 3) as folder:
        for dtype in ("f32", "f64"):
            beyond = 0
            for step in range(8):
                arguments = ["--levels", "exponential", "--dtype", dtype, "--step", str(step)]
                result = folder.run(*arguments)
                bits = result.bits
                expect("non_finite_rank" not in result.report, "no rank brought it")
                expect(b"\x00\x00\x80\x7f" not in bits, "no infinity")
                if bits == struct.pack("<I", 0x7FC00000) * 2:
                    beyond += 1
                    folder.run(*arguments, "--non-finite", "error", code=3)
            expect(0 < beyond < 8, dtype, beyond)


REFUSALS = [
    (["--bogus"], "bogus"),
    (["stray"], "stray"),
    (["--seed"], "seed"),
    (["--seed", "1", "--seed", "2"], "seed"),
    (["--seed", "0x10"], "0x10"),
    (["--seed", "-1"], "-1"),
    (["--seed", "18446744073709551616"], "18446744073709551616"),
    (["--step", "281474976710656"], "281474976710656"),
    (["--step", "281474976710655", "--repeat", "2"], "repeat"),
    (["--repeat", "0"], "repeat"),
    (["--repeat", "1.5"], "repeat"),
    (["--workers", "0"], "workers"),
    (["--workers", "2x"], "workers"),
    (["--bucket", ""], "bucket"),
    (["--bucket", "many"], "bucket"),
    (["--bucket", "18446744073709551615"], "bucket"),
    (["--chunk-values", "-5"], "chunk-values"),
    (["--deadline", "0"], "deadline"),
    (["--deadline", "nan"], "deadline"),
    (["--deadline", "soon"], "deadline"),
    (["--transport", "pigeon"], "pigeon"),
    (["--schedule", "star"], "use ring, tree, sra"),
    (["--dtype", "f8"], "f32, f64, f16 or bf16"),
    (["--execution", "gpu"], "serial or openmp"),
    (["--non-finite", "ignore"], "propagate or error"),
    (["--norm", "l2"], "linf, l:Q,P, local:Q"),
    (["--norm", "l:2"], "l:2"),
    (["--norm", "l:0,2"], '"0"'),
    (["--norm", "l:2,65"], '"65"'),
    (["--norm", "local:2.5"], "2.5"),
    (["--levels", ""], "levels"),
    (["--levels", "ternary"], "ternary"),
    (["--levels", "uniform:"], "uniform:"),
    (["--levels", "uniform:0"], "uniform:0"),
    (["--levels", "uniform:+5"], "uniform:+5"),
    (["--levels", "uniform:5 "], "uniform:5 "),
    (["--levels", "exponential:4:2:1"], "too many parts"),
    (["--levels", "exponential:4:1"], "base"),
    (["--levels", "exponential:4:inf"], "inf"),
    (["--levels", "exponential::2"], "exponential::2"),
    (["--levels", "exponential:200:3"], "200 levels"),
    (["--levels", "table"], "table:0,..,1"),
    (["--levels", "table:"], "table:"),
    (["--levels", "table:0.1,1"], "the first level must be 0"),
    (["--levels", "table:0,0.5,0.5,1"], "ascend"),
    (["--levels", "table:0,0.5"], "the last level"),
    (["--levels", "table:0,x,1"], '"x"'),
    (["--levels", "symmetric:0,1"], "symmetric"),
    (["--rounding", "up"], "stochastic, correlated, random-shift, correlated-shift, both also with -unshifted, or nearest"),
    (["--wire", "int4"], "int8, int16, int32, packed:B"),
    (["--wire", "packed:0"], "packed:0"),
    (["--wire", "packed:9"], "packed:9"),
    (["--reduce", "add"], "auto, sum, exponential or requantize"),
    (["--levels", "none", "--wire", "int8"], "levels none"),
    (["--levels", "none", "--rounding", "stochastic"], "levels none"),
    (["--levels", "none", "--norm", "linf"], "levels none"),
    (["--levels", "none", "--bucket", "0"], "levels none"),
    (["--levels", "bfloat16", "--wire", "int8"], "levels bfloat16"),
    (["--levels", "float16", "--rounding", "correlated"], "levels float16"),
    (["--levels", "float16", "--schedule", "native"], "would round sums of float16 itself; use schedule ring"),
    # parts that do not fit together
    (["--levels", "exponential", "--reduce", "sum"], "uniform levels pair with sum"),
    (["--levels", "table:0,1", "--reduce", "sum"], "uniform levels pair with sum"),
    (["--reduce", "exponential"], "base 2"),
    (["--levels", "exponential:4:1.5", "--reduce", "exponential"], "base 2"),
    (["--norm", "local:2", "--reduce", "sum"], "different norms"),
    (["--norm", "local:2", "--levels", "exponential", "--reduce", "exponential"], "different norms"),
    (["--levels", "exponential", "--rounding", "random-shift"], "evenly spaced"),
    (["--levels", "table:0,1", "--rounding", "random-shift"], "evenly spaced"),
    (["--norm", "local:2", "--schedule", "native"], "native"),
    (["--levels", "exponential", "--schedule", "native"], "native"),
    (["--wire", "packed:4", "--schedule", "native"], "int8, int16 or int32"),
    # what does not fit, with the numbers and a remedy
    (["--levels", "uniform:50"], "3 workers x 50 levels sum to 150; int8 holds codes up to 127; use at most 42 levels"),
    (["--levels", "uniform:16777217", "--wire", "int32", "--reduce", "requantize"], "use at most 16777216"),
    (["--levels", "uniform:8", "--wire", "packed:4"], "use at most 7 levels"),
    (["--levels", "exponential:126"], "a headroom of 2"),
    (["--wire", "packed:1"], "no level fits"),
    # named operators
    (["--operator", ""], "operator"),
    (["--operator", "qsgf"], "use one of global-uniform, global-exponential, qsgd, "),
    (["--operator", "qsgd:4,size=3"], "its parameters are bits, bucket, q, levels"),
    (["--operator", "qsgd:9"], 'sets bits to "9"; use 2 to 8'),
    (["--operator", "qsgd:4,512"], '"512", which is not parameter=value'),
    (["--operator", "qsgd:4,bits=4"], "twice"),
    (["--operator", "qsgd", "--operator", "amq"], "operator"),
    (["--operator", "qsgd", "--wire", "int8"], "is decided by operator qsgd"),
    (["--operator", "qsgd", "--bucket", "0"], "is decided by operator qsgd"),
    (["--operator", "qsgd", "--levels", "none"], "is decided by operator qsgd"),
    (["--operator", "qsgd", "--rotate", "64"], "is decided by operator qsgd"),
    (["--operator", "norm=linf rotation=64"], "no word of an operator"),
    (["--operator", "cgx:2 feedback"], "leave feedback out"),
    (["--rotate", "100"], "use a power of two from 2 to 2^20"),
    (["--second", "packed:9", "--norm", "local:inf", "--schedule", "sra"], "packed:9"),
    (["--levels", "none", "--rotate", "0"], "levels none"),
    (["--operator", "qsgd", "--reduce", "sum"], "different norms"),
    (["--operator", "cgx", "--schedule", "native"], "native"),
    (["--operator", "terngrad:-1"], "use a number above 0, such as 2.5, or 0"),
    (["--operator", "qsdp-grid:0.25"], "exceeds the scale"),
    (["--operator", "bounded:0.01,range=0.25"], "exceeds the scale 0.25 of norm::fixed"),
    (["--operator", "bounded:1e-9,range=16"], "arithmetic in float32 may change a mean of values up to 16"),
    (["--operator", "bounded:0"], "use a number above 0"),
    (["--norm", "fixed:16:1:int8"], "use float32, float16 or bfloat16"),
    (["--tail", "float32"], "set a bucket, or leave the tail out"),
    (["--tail", "float16", "--bucket", "5"], "use own or float32"),
    (["--tail", "float32", "--levels", "none"], "has no meaning with levels none"),
    (["--operator", "qsgd", "--tail", "float32"], "is decided by operator qsgd"),
    (["--tail", "float32", "--bucket", "5", "--schedule", "native"], "supports no float32 tail; use schedule ring"),
    (["--norm", "shared-exponent"], "use levels e2m1, e2m3"),
    (["--norm", "shared-exponent", "--levels", "uniform:7"], "use levels e2m1, e2m3"),
    (["--norm", "two-level"], "use levels e2m1, e2m3"),
    (["--norm", "fixed:0"], "scale above 0"),
    (["--norm", "fixed:x"], '"x"'),
    (["--norm", "power-of-two:l:2,2"], "power-of-two:linf"),
    (["--norm", "power-of-two:local:65"], '"65"'),
]

# Named operators, the same in words, and the bits that a code has.
NAMED = [
    ("global-uniform", [], 8),
    ("global-uniform:16,q=2,p=1,bucket=100", ["--norm", "l:2,1", "--wire", "int16", "--bucket", "100"], 16),
    ("global-exponential:5", ["--levels", "exponential", "--wire", "packed:5", "--schedule", "sra"], 5),
    ("qsgd:4,bucket=50", ["--norm", "local:2", "--wire", "packed:4", "--bucket", "50", "--schedule", "allgather"], 4),
    ("qsgd:8,q=inf,levels=9,bucket=0",
     ["--norm", "local:inf", "--levels", "uniform:9", "--schedule", "allgather"], 8),
    ("qsgd:8,code=huffman,bucket=100",
     ["--norm", "local:2", "--levels", "uniform:127", "--wire", "huffman", "--bucket", "100", "--schedule", "allgather"], 8),
    ("terngrad", ["--norm", "local:inf", "--levels", "uniform:1", "--wire", "packed:2", "--schedule", "allgather"], 2),
    ("nuqsgd:3,bucket=64",
     ["--norm", "local:2", "--levels", "exponential", "--wire", "packed:3", "--bucket", "64", "--schedule", "allgather"], 3),
    ("natural-compression",
     ["--norm", "power-of-two:linf", "--levels", "exponential", "--schedule", "allgather"], 8),
    ("natural-compression:local,bucket=100",
     ["--norm", "power-of-two:local:inf", "--levels", "exponential", "--bucket", "100", "--schedule", "allgather"], 8),
    ("qsdp:6,bucket=32",
     ["--norm", "local:inf", "--wire", "packed:6", "--bucket", "32", "--rounding", "random-shift", "--schedule", "allgather"], 6),
    ("qsdp-grid:16", ["--norm", "fixed:16", "--rounding", "random-shift"], 8),
    ("bounded:0.125,range=16", ["--norm", "fixed:16:0.125", "--rounding", "nearest", "--wire", "int16"], 16),
    ("bounded:0.25,range=16,code=huffman,vectors=float16",
     ["--norm", "fixed:16:0.25:float16", "--rounding", "nearest", "--wire", "huffman:16", "--schedule", "sra"], 1),
    ("cgx:4,rounding=nearest",
     ["--norm", "local:inf", "--wire", "packed:4", "--bucket", "128", "--rounding", "nearest", "--schedule", "sra"], 4),
    ("qsgd:4,bucket=50,tail=float32",
     ["--norm", "local:2", "--wire", "packed:4", "--bucket", "50", "--tail", "float32", "--schedule", "allgather"], 4),
    ("mxfp4", ["--norm", "shared-exponent", "--levels", "e2m1", "--wire", "packed:4", "--bucket", "32", "--schedule", "sra"],
     4),
    ("nvfp4", ["--norm", "two-level", "--levels", "e2m1", "--wire", "packed:4", "--bucket", "16", "--schedule", "sra"], 4),
    ("mxfp6:e3m2,rounding=nearest",
     ["--norm", "shared-exponent", "--levels", "e3m2", "--wire", "packed:6", "--bucket", "32", "--rounding", "nearest",
      "--schedule", "sra"], 6),
    ("mxfp8:e5m2,block=16",
     ["--norm", "shared-exponent", "--levels", "e5m2", "--wire", "packed:8", "--bucket", "16", "--schedule", "sra"], 8),
    ("amq:3,multiplier=0.5,bucket=70",
     ["--norm", "local:2", "--levels", "symmetric:0.125,0.25,0.5,1", "--wire", "packed:3", "--bucket", "70",
      "--schedule", "allgather"], 3),
    ("alq:3,levels=0:0.1:0.3:1,bucket=70",
     ["--norm", "local:2", "--levels", "table:0,0.1,0.3,1", "--wire", "packed:3", "--bucket", "70",
      "--schedule", "allgather"], 3),
    ("cgx:4 rotate=64 rounding=correlated",
     ["--norm", "local:inf", "--wire", "packed:4", "--bucket", "128", "--rotate", "64", "--rounding", "correlated",
      "--schedule", "sra"], 4),
    ("norm=l:3,inf,bucket=100,levels=exponential:2.5,wire=packed:5",
     ["--norm", "l:3,inf", "--levels", "exponential:15:2.5", "--wire", "packed:5", "--bucket", "100", "--schedule", "sra"], 5),
    ("cgx:2,second=4",
     ["--norm", "local:inf", "--wire", "packed:2", "--bucket", "128", "--second", "packed:4", "--schedule", "sra"], 2),
    ("bfloat16", ["--levels", "bfloat16", "--schedule", "sra"], 16),
    ("float32", ["--levels", "none"], 32),
]


@case
def named_operators_are_what_they_stand_for():
    for n in (1, 3):
        with Folder(*gaussian(n, 700)) as folder:
            for name, words, bits in NAMED:
                named, composed = folder.run("--operator", name), folder.run(*words)
                equal(named.bits, composed.bits, name)
                for report in named.report, composed.report:
                    report["seconds"] = 0
                equal({**named.report, "seconds": 0}, {**composed.report, "seconds": 0}, name)
                expect(named.report["bits_per_value"] >= bits, name)
            # another schedule than the operator's own
            equal(folder.run("--operator", "qsgd:4", "--schedule", "ring").bits,
                  folder.run("--norm", "local:2", "--wire", "packed:4", "--bucket", "512").bits)


def levels_are_learned_from_the_inputs_before_the_mean(mpi):
    """From all workers' inputs: better than where learning begins, and the mean is the one with these levels given."""
    heavy = [[value ** 3 for value in v] for v in gaussian(3, 1000)]
    with Folder(*heavy) as folder:
        for name, given, count in (("alq:3", "levels=0:0.25:0.5:1", 4), ("amq:3", "multiplier=0.5", 4),
                                   ("alq:4,code=huffman", None, 8), ("alq:3,normalized=yes", None, 4),
                                   ("amq:3,normalized=yes,tail=float32", None, 4)):
            learned = folder.run("--operator", f"{name},bucket=128", "--repeat", "3", mpi=mpi).report
            levels = learned["levels"]
            equal(len(levels), count, name)
            equal(levels, sorted(levels), name)
            equal(levels[-1], 1.0, name)
            if given is None:
                continue
            fixed = folder.run("--operator", f"{name},{given},bucket=128", "--repeat", "3", mpi=mpi).report
            expect(learned["nmse"] < fixed["nmse"], name, "learned", learned["nmse"], "fixed", fixed["nmse"])
        for dtype in ("f64", "bf16"):
            folder.run("--operator", "alq:3,bucket=128", "--dtype", dtype, mpi=mpi)
        learned = folder.run("--operator", "alq:3,bucket=128", mpi=mpi)
        again = folder.run("--operator", "alq:3,bucket=128,levels=" + ":".join(map(repr, learned.report["levels"])), mpi=mpi)
        equal(learned.bits, again.bits, "the same levels given")
    for values in [[0.0] * 300] * 2, [[1.0] * 299 + [math.nan]] * 2, [[], []]:  # nothing to learn from
        with Folder(*values) as folder:
            folder.run("--operator", "alq:3", mpi=mpi)


@case
def levels_are_learned():
    levels_are_learned_from_the_inputs_before_the_mean(mpi=False)


@mpi_case
def levels_are_learned_on_ranks():
    levels_are_learned_from_the_inputs_before_the_mean(mpi=True)


@case
def clipping_lowers_the_variance_and_is_biased():
    """Few large values among many: clipped, their ternary codes are nearer, but never reach them."""
    d = 400
    vectors = [[value + (30 if i == 7 else 0) for i, value in enumerate(v)] for v in gaussian(2, d)]
    with Folder(*vectors) as folder:
        plain, clipped = (folder.run("--operator", name, "--repeat", "200") for name in ("terngrad", "terngrad:2.5"))
        expect(math.isclose(plain.values[7], folder.mean()[7], rel_tol=0.1), "unbiased:", plain.values[7])
        expect(clipped.values[7] < 0.4 * folder.mean()[7], "what is cut off is lost:", clipped.values[7])
        equal(clipped.report["theta_bound"], None)
        once = [folder.run("--operator", name).report["nmse"] for name in ("terngrad", "terngrad:2.5")]
        expect(once[1] < once[0] / 2, "nmse of one call:", once)


@case
def scaling_by_minimum_and_maximum_sees_the_range_alone():
    """Far from zero the largest magnitude is a poor scale; equal values come out as they are."""
    vectors = [[value + 100 for value in v] for v in gaussian(3, 1000)]
    with Folder(*vectors) as folder:
        for name in ("cgx:4", "qsdp:8", "cgx:3,rounding=nearest"):
            near, far = (folder.run("--operator", f"{name},scale={scale}").report for scale in ("min-max", "max"))
            expect(near["nmse"] < far["nmse"] / 50, name, near["nmse"], far["nmse"])
            equal(near["theta_bound"], None)
        for schedule in ("ring", "tree", "allgather"):
            folder.run("--operator", "cgx:4,scale=min-max", "--schedule", schedule, "--dtype", "f64", "--in-place")
    with Folder(*[[float(r + 3)] * 300 for r in range(4)]) as folder:
        equal(list(folder.run("--operator", "cgx:2,scale=min-max").values), [4.5] * 300)


@case
def operators_are_listed():
    with Folder([0.0]) as folder:
        for arguments in (["--operator", "help"], ["--operator", "help", "--json"],
                          ["--input", "x", "--output", "y", "--operator=help"]):
            result = folder.raw([*PROGRAM, *arguments])
            equal((result.code, result.err), (0, ""), arguments)
            for name in (name for name, _, _ in NAMED if "=" not in name.split(":")[0].split(",")[0]):
                expect("\n" + name.split(":")[0].split(",")[0] + "\n" in result.out, name)
            expect("    bucket=512" in result.out, result.out)


@case
def refusals():
    problems = []
    with Folder(*gaussian(3, 20)) as folder:
        for arguments, text in REFUSALS:
            try:
                result = folder.raw([*PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32",
                                     *([] if "--workers" in arguments else ["--workers", "3"]), *arguments])
                equal(result.code, 2, "exit code;", result.err)
                check_failure(result)
                expect(text in result.err, "the message lacks", repr(text), ":", result.err)
            except Exception as problem:
                problems.append(f"{' '.join(arguments)}: {problem}")
    expect(not problems, "\n  ".join([f"{len(problems)} of {len(REFUSALS)}", *problems]))


@case
def the_rank_in_file_names():
    with Folder(*gaussian(2, 20)) as folder:
        def run(code, *arguments):
            result = folder.raw([*PROGRAM, *arguments])
            equal(result.code, code, arguments, result.err)
            return result

        run(2)
        run(2, "--input", "in.%r.f32")
        run(2, "--output", "out.%r.f32")
        expect("%r" in run(2, "--input", "in.%r.f32", "--output", "out.f32", "--workers", "2").err)
        expect("%r" in run(2, "--input", "in.%r.f32", "--output", "out.f32", "--workers", "1").err)
        expect("%r" in run(2, "--input", "in.0.f32", "--output", "out.%r.f32", "--workers", "2").err)
        equal(sorted(p.name for p in folder.path.iterdir()), ["in.0.f32", "in.1.f32"])
        run(0, "--input", "in.1.f32", "--output", "out.%r.f32", "--workers", "1")
        for rank in range(2):
            (folder.path / str(rank)).mkdir()
        run(0, "--input", "in.%r.f32", "--output", "%r/out.%r.%r", "--workers", "2")
        expect((folder.path / "1" / "out.1.1").exists())
        # the inputs may be replaced
        run(0, "--input", "in.%r.f32", "--output", "in.%r.f32", "--workers", "2")
        equal((folder.path / "in.0.f32").read_bytes(), (folder.path / "1" / "out.1.1").read_bytes())


@case
def help_and_text():
    with Folder(*gaussian(4, 20)) as folder:
        result = folder.raw([*PROGRAM, "--help"])
        equal((result.code, result.err), (0, ""))
        for option in ("--input", "--levels", "--deadline"):
            expect(option in result.out, option)
        # four workers unless told otherwise, and lines for people
        result = folder.raw([*PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32"])
        equal(result.code, 0, result.err)
        equal(len(result.files), 4)
        expect("bits a value" in result.out and "{" not in result.out, result.out)


def failing_files(mpi):
    """Workers learn of each other's trouble; lengths that differ are found by the library."""
    with Folder(*gaussian(3, 20)) as folder:
        last = folder.path / "in.2.f32"
        saved = last.read_bytes()
        last.unlink()
        expect("in.2.f32" in folder.run(mpi=mpi, code=3).err)
        last.write_bytes(saved[:-1])
        expect("float32" in folder.run(mpi=mpi, code=3).err)
        last.write_bytes(saved[:-4])
        result = folder.run(mpi=mpi, code=3)
        expect("20 values" in result.err and "19" in result.err, result.err)
        if mpi:
            return
        last.write_bytes(b"")
        expect("the length" in folder.run(code=3).err)
        folder.run("--levels", "none", "--schedule", "native", code=3)
        last.unlink()
        os.mkfifo(last)
        folder.run("--deadline", "5", code=3)
        last.unlink()
        last.mkdir()
        folder.run(code=3)


@case
def files_that_cannot_be_read():
    failing_files(mpi=False)


@mpi_case
def files_that_cannot_be_read_by_a_rank():
    failing_files(mpi=True)


@case
def files_that_cannot_be_written():
    with Folder(*gaussian(3, 20)) as folder:
        for rank in range(2):
            (folder.path / f"r{rank}").mkdir()
            (folder.path / f"r{rank}" / "out").write_bytes(b"before")
        result = folder.raw([*PROGRAM, "--input", "in.%r.f32", "--output", "r%r/out", "--workers", "3"])
        equal(result.code, 3, result.err)
        expect("r2/out" in result.err, result.err)
        for rank in range(2):
            equal([p.name for p in (folder.path / f"r{rank}").iterdir()], ["out"])
            equal((folder.path / f"r{rank}" / "out").read_bytes(), b"before")


@case
def a_failure_leaves_older_outputs_alone():
    with Folder(*gaussian(2, 20)) as folder:
        old = folder.path / "out.0.f32"
        old.write_bytes(b"before")
        write(folder.path / "in.1.f32", [1.0] * 19)
        for arguments, code in ([], 3), (["--levels", "uniform:99"], 2):
            result = folder.raw([*PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32", "--workers", "2", *arguments])
            equal(result.code, code)
            equal(old.read_bytes(), b"before")


def passing_deadline(mpi):
    """One worker reads for long while the others wait."""
    with Folder(*gaussian(3, 20)) as folder:
        with open(folder.path / "in.2.f32", "wb") as file:
            file.truncate(1 << 26)
        expect("waited" in folder.run("--deadline", "1e-6", mpi=mpi, code=3).err)


@case
def a_deadline_that_passes():
    passing_deadline(mpi=False)


@mpi_case
def a_deadline_that_passes_on_mpi():
    passing_deadline(mpi=True)


@mpi_case
def refusals_on_mpi():
    with Folder(*gaussian(3, 20)) as folder:
        for arguments in (["--levels", "uniform:0"], ["--levels", "uniform:50"], ["--workers", "4"]):
            folder.run(*arguments, mpi=True, code=2)
        result = folder.raw([*LAUNCHER, "2", *PROGRAM, "--input", "in.0.f32", "--output", "out.%r.f32"])
        equal(result.code, 2)
        check_failure(result)
        result = folder.raw([*LAUNCHER, "2", *PROGRAM, "--help"])
        equal(result.code, 0, result.err)
        equal(result.out.count("Options:"), 1)


@mpi_case
def failures_on_mpi():
    vectors = gaussian(2, 20)
    vectors[1][3] = math.nan
    with Folder(*vectors) as folder:
        folder.run("--non-finite", "error", mpi=True, code=3)
        result = folder.run(mpi=True)
        equal(result.bits, struct.pack("<I", 0x7FC00000) * 20)
        equal(result.report["non_finite_rank"], 1)


@mpi_case
def ranks_with_different_arguments():
    with Folder(*gaussian(2, 20)) as folder:
        files = ["--input", "in.%r.f32", "--output", "out.%r.f32"]
        for one, other, code, text in (
            (["--seed", "1"], ["--seed", "2"], 3, "the seed"),
            (["--levels", "uniform:3"], ["--levels", "exponential:3"], 3, "the operator"),
            (["--repeat", "1"], ["--repeat", "2"], 3, "--repeat"),
            ([], ["--repeat", "x"], 2, "repeat"),
            ([], ["--levels", "uniform:99"], 2, "uniform:99"),
        ):
            result = folder.raw([*LAUNCHER, "1", *PROGRAM, *files, *one, ":", LAUNCHER[-1], "1", *PROGRAM, *files, *other])
            equal(result.code, code, result.err)
            check_failure(result)
            expect(text in result.err, text, result.err)


@mpi_case
def threads_under_a_launcher():
    with Folder(*gaussian(2, 20)) as folder:
        result = folder.raw([*LAUNCHER, "1", *PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32", "--json", "--transport",
                             "threads", "--workers", "2"])
        equal(result.code, 0, result.err)
        equal(result.report["workers"], 2)


@case
def mpi_without_a_launcher():
    with Folder(*gaussian(1, 20)) as folder:
        result = folder.raw([*PROGRAM, "--input", "in.%r.f32", "--output", "out.%r.f32", "--json", "--transport", "mpi"])
        if LAUNCHER or result.code == 0:
            equal(result.code, 0, result.err)
            equal(result.report["workers"], 1)
        else:  # a build without MPI
            equal(result.code, 2)
            check_failure(result)


def main():
    return runner.run("mean_of_files", cases, "" if LAUNCHER else " (no MPI launcher)")


if __name__ == "__main__":
    sys.exit(main())
