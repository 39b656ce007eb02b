# SPDX-License-Identifier: Apache-2.0
"""Advice: the function, its lines of Python, and python -m globalq advise."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import globalq

SLOW = dict(bandwidth=1e9 / 8, operators=["cgx:4", "global-uniform:8"])


def command(*arguments, code=0):
    result = subprocess.run([sys.executable, "-m", "globalq", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
                            env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert result.returncode == code, result.stderr
    return result.stdout if code == 0 else result.stderr


@pytest.mark.parametrize("layers", [[100000], [100000, ("head", 300)]])
@pytest.mark.parametrize("bandwidth", [1e9 / 8, 1e15])
def test_the_three_lines_run(layers, bandwidth):
    a = globalq.advise(16, layers, bandwidth=bandwidth, operators=["cgx:4 tail=float32"])
    assert a.operator == ("cgx:4,tail=float32" if bandwidth < 1e10 else "float32") and a.report["compress"] == (a.operator != "float32")
    assert a.seconds <= a.float32_seconds and len(a.report["python"]) == 3
    assert all(f"\n  {line}\n" in a.text for line in a.report["python"] + a.report["cpp"])

    def work(workers):
        gradient = np.ones(1000, "float32")
        gradients = [gradient, np.ones(300, "float32")]
        exec("\n".join(a.report["python"]), {"workers": workers, "gradient": gradient, "gradients": gradients, "step": 0})  # pylint: disable=exec-used
        return gradient

    assert all((y == 1).all() for y in globalq.run_threads(4, work))


def test_errors_are_those_of_the_gradient_whatever_its_type():
    gradient = np.full(100000, 0.01)
    gradient[::128] = 1
    normal = globalq.advise(8, [100000], **SLOW, max_error=10)
    own = globalq.advise(8, gradient=gradient, **SLOW, max_error=10)
    half = globalq.advise(8, [60000, 40000], gradient.astype("float16"), **SLOW, max_error=10)
    of = [next(r["error"] for r in a.report["rows"] if r["operator"] == "cgx:4") for a in (normal, own, half)]
    assert of[1] > 3 * of[0] and 0.5 < of[1] / of[2] < 2
    assert all(r["verdict"] == "inaccurate" for r in globalq.advise(8, gradient=gradient, **SLOW, max_error=1e-9).report["rows"][1:])


def test_workers_measure_and_get_one_answer():
    def work(workers):
        return globalq.advise(workers, [100000] if workers.rank == 0 else [], operators=["cgx:4"])

    answers = globalq.run_threads(3, work)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].report["network"]["measured"] and answers[0].report["workers"] == 3


def test_wrong_arguments_are_refused():
    for given, text in (((4, []), "there are no layers"), ((4, [0]), "layer 0 has 0 values"), ((1, [5]), "1 threads as workers"),
                        ((4, [5], np.ones(4)), "has 4 values and the layers have 5"), ((4, [5.5]), "give a whole number")):
        with pytest.raises(globalq.ConfigurationError, match=text):
            globalq.advise(*given)
    for name in ("max_error", "max_bound", "bandwidth", "latency"):
        with pytest.raises(globalq.ConfigurationError, match=f"{name} is 0; give a number above 0"):
            globalq.advise(4, [5], **{name: 0})
    with pytest.raises(globalq.ConfigurationError, match="workers is None; give a whole number"):
        globalq.advise(None, [5])
    with pytest.raises(globalq.ConfigurationError, match="nothing"):
        globalq.advise(4, [5], operators=["nothing"])


def test_the_command_prints_a_report(tmp_path):
    np.save(tmp_path / "g.npy", np.ones((300, 100)))
    (tmp_path / "layers.txt").write_text("weight 29900\nbias 100\n")
    text = command("advise", "--layers", tmp_path / "layers.txt", "--gradients", tmp_path / "g.npy", "--workers", 16, "--bandwidth", "1e9/8")
    assert text.startswith("16 workers, 30000 values in 2 layers") and "errors are measured on the given gradient" in text
    report = json.loads(command("advise", "--layers", "100000,4", "--operators", "cgx:4 cgx:8", "--workers", 2, "--json"))
    assert report["network"]["measured"] and [report["layers"], len(report["rows"])] == [2, 3]


def test_the_command_refuses(tmp_path):
    for arguments, text in (([], "usage: python -m globalq advise"), (["advise"], "there are no layers"),
                            (["advise", "--layers", "4,x"], "'x'"), (["advise", "--bandwidth", "1/0"], "not a number"),
                            (["advise", "--gradients", tmp_path / "nowhere.npy"], "cannot read")):
        assert text in command(*arguments, code=2)


def test_processes_of_torchrun_measure_together(run_processes):
    pytest.importorskip("torch")
    script = """
import os, sys
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
from globalq._advise import main
assert main(["--layers", "100000", "--operators", "cgx:4"]) == 0
"""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    outputs = run_processes(script, 2, port)
    assert "2 workers, 100000 values\nNetwork (measured)" in outputs[0] and outputs[1].strip() == ""
