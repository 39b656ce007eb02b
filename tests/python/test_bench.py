# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/torch, for a moment; their times mean nothing here."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCH = Path(__file__).parents[2] / "bench" / "torch"


def output_of(program, *arguments):
    done = subprocess.run([sys.executable, str(BENCH / program), *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_overhead_of_float32_is_measured():
    found = output_of("overhead.py", "--pairs", "2", "--steps", "2", "--limit", "1e9")
    assert "| globalq float32 | 2 | 628,554 |" in found and "too few pairs" in found


def test_the_interval_of_a_median_covers_it(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from overhead import interval

    # of the sign test: P(B < 6) = 0.0207 for 20 fair coins, and P(B < 7) = 0.0577
    low, high, coverage = interval(list(range(1, 21)))
    assert (low, high) == (6, 15) and abs(coverage - 0.9586) < 1e-4
    low, high, coverage = interval([5, 3, 1, 2, 4, 6])
    assert (low, high, coverage) == (1, 6, 1 - 2 / 2**6)
    assert interval([1, 2, 3, 4, 5]) is None


def test_step_times_of_hooks_are_measured():
    hooks = ["none", "torch fp16", "torch powerSGD, rank 4", "globalq float32", "globalq cgx:4"]
    found = output_of("step_time.py", "--here", "--workers", "2", "--steps", "2", "--warm-up", "3",
                      *(word for hook in hooks for word in ("--hooks", hook)))
    for hook in hooks:
        assert f"| {hook} | " in found, found
    assert "DIFFERS" not in found
