# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package, installed or from the checkout with GLOBALQ_LIBRARY."""

import itertools
import os
import signal
import subprocess
import sys

import pytest


@pytest.fixture
def needs_fsdp():
    """Skips a test if torch has no FSDP2 that takes collectives."""
    torch = pytest.importorskip("torch")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        pytest.skip("this torch has no FSDP2 that takes collectives")


@pytest.fixture
def run_processes(tmp_path):
    """Runs a script in so many processes as torchrun would start them; returns their outputs, or fails with them."""

    count = itertools.count()

    def run(script, processes, *arguments, timeout=120, expect=0, **environment):
        file = tmp_path / "script.py"
        # about one process in 30 with DDP of torch 1.13 aborts when Python has ended, also after destroy_process_group()
        file.write_text(script + "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n")
        env = dict(os.environ, OMP_NUM_THREADS="1", WORLD_SIZE=str(processes), INIT=f"file://{tmp_path}/init{next(count)}", **environment)
        crew = [subprocess.Popen([sys.executable, str(file), *map(str, arguments)], env=dict(env, RANK=str(r)), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for r in range(processes)]
        try:
            outputs = [p.communicate(timeout=timeout)[0] for p in crew]
        finally:
            for p in crew:
                if p.poll() is None:
                    p.send_signal(signal.SIGKILL)
        codes = [p.returncode for p in crew]
        wanted = expect if isinstance(expect, list) else [expect] * processes
        assert codes == wanted, "\n".join(f"rank {r} returned {code}:\n{out}" for r, (code, out) in enumerate(zip(codes, outputs)))
        return outputs

    return run
