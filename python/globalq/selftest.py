# SPDX-License-Identifier: Apache-2.0
"""python -m globalq.selftest: tests in a few seconds whether the package works on this machine."""

import array
import ctypes
import sys
import time

from . import Mean, NamedMemory, Workers, _library, instructions, new_name, operators, run_threads
from ._calls import plan


class Numbers:
    """A float32 array without numpy: only the attributes that a call reads."""

    class dtype:
        isnative = True

        def __str__(self):
            return "float32"

    class flags:
        c_contiguous = writeable = True

    def __init__(self, values):
        self.memory = array.array("f", values)
        self.dtype, self.size = Numbers.dtype(), len(self.memory)
        self.__array_interface__ = {"data": (self.memory.buffer_info()[0], False)}


def main():
    start, length, count = time.perf_counter(), 10000, 3
    print(f"globalq {_library.library.globalq_version().decode()}, instructions {instructions()}, {len(operators())} operators, "
          f"Python {sys.version.split()[0]}")
    failed = 0
    for name in ("float32", "global-uniform", "qsgd:8", "cgx:8", "mxfp8"):

        def work(workers: Workers):
            x = Numbers((i * 37 + workers.rank * 11) % 101 / 50 - 1 for i in range(length))
            Mean(workers, name, seed=1)(x, 0)
            return x.memory

        results = run_threads(count, work)
        exact = [sum((i * 37 + r * 11) % 101 / 50 - 1 for r in range(count)) / count for i in range(length)]
        error = sum((a - b)**2 for a, b in zip(results[0], exact))
        squares = sum(((i * 37 + r * 11) % 101 / 50 - 1)**2 for r in range(count) for i in range(length))
        theta = plan(name, length, count).theta if name != "float32" else 0.0
        alike = all(r == results[0] for r in results)
        # theta bounds the expected error; with 10,000 values chance does not reach 10 times it. 1e-6: float32 rounding
        near = error <= 10 * theta / count * squares + 1e-6
        print(f"  {name}: {'the same bits on all workers' if alike else 'BITS DIFFER'}, "
              f"squared error {error / length:.2e} a value{'' if near else ' IS TOO LARGE'}")
        failed += not (alike and near)
    with NamedMemory(new_name(), 0, 1) as one:
        x = Numbers([1.0, 2.0])
        Mean(one)(x, 0)
        failed += list(x.memory) != [1.0, 2.0]
    print(f"{'FAILED' if failed else 'passed'} in {time.perf_counter() - start:.1f} s ({ctypes.sizeof(ctypes.c_void_p) * 8} bits)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
