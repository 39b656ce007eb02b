# SPDX-License-Identifier: Apache-2.0
"""Programs of examples/ that use the package."""

import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy
import pytest

pytest.importorskip("torch")

TRAIN = pathlib.Path(__file__).parents[2] / "examples" / "torch_ddp" / "train.py"
SHARDED = TRAIN.parents[1] / "torch_fsdp" / "train.py"
LOCAL = TRAIN.parents[1] / "torch_diloco" / "train.py"
FEDERATED = TRAIN.parents[1] / "federated" / "federated.py"


def result_of(output, operator):
    """Accuracy in percent, loss, and bytes a step or None."""
    found = re.search(rf"^{operator}: accuracy (\S+) %, loss (\S+), (?:(\d+) bytes a step|bytes are not counted)$", output, re.M)
    assert found, output
    return float(found[1]), float(found[2]), found[3] and int(found[3])


def run_alone(operator):
    arguments = ["--workers", "2", "--steps", "60", "--operator", operator]
    done = subprocess.run([sys.executable, str(TRAIN), *arguments], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout
    return result_of(done.stdout, operator)


def test_torch_ddp_learns_with_a_seventh_of_the_bytes():
    none, exact, coded = run_alone("none"), run_alone("float32"), run_alone("cgx:4")
    # a few of the 599 pictures, and a few percent of the loss: both trainings start with the same weights and pictures
    assert none[0] > 85 and abs(none[0] - exact[0]) < 0.4 and abs(none[1] - exact[1]) < 0.01, (none, exact)
    assert abs(none[0] - coded[0]) < 3 and abs(none[1] - coded[1]) < 0.1, (none, coded)
    assert none[2] is None and 7 < exact[2] / coded[2] < 8, (exact, coded)


@pytest.fixture
def launched(run_processes):
    """Runs a program in two processes that a launcher of torch started; returns their outputs."""

    def run(program, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = f"import runpy\nrunpy.run_path({str(program)!r}, run_name='__main__')\n"
        return run_processes(script, 2, *arguments, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    return run


def test_torch_ddp_is_started_by_a_launcher(launched):
    outputs = launched(TRAIN, "--steps", 10)
    result_of(outputs[0], "cgx:4")
    assert "accuracy" not in outputs[1], outputs[1]


def test_torch_diloco_learns_with_an_eighth_of_the_bytes(launched):
    found = {}
    for operator in ("float32", "cgx:2,feedback,second=4"):
        outputs = launched(LOCAL, "--steps", 60, "--every", 20, "--operator", operator)
        match = re.search(r", every 20: loss (\S+), (\d+) bytes a mean$", outputs[0], re.M)
        assert match and "loss" not in outputs[1], outputs
        found[operator] = float(match[1]), int(match[2])
    exact, coded = found.values()
    assert abs(exact[0] - coded[0]) < 0.1 and 7 < exact[1] / coded[1] < 9, found


def test_federated_clients_upload_a_seventh_of_the_bytes():
    found = {}
    for operator in ("float32", "cgx:4"):
        done = subprocess.run([sys.executable, str(FEDERATED), "--operator", operator, "--clients", "2", "--rounds", "5"], text=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        match = re.fullmatch(rf"{operator}: loss (\S+) after 5 rounds, (\d+) bytes a client and round\n", done.stdout)
        assert done.returncode == 0 and match, done.stdout
        found[operator] = float(match[1]), int(match[2])
    exact, coded = found["float32"], found["cgx:4"]
    assert abs(exact[0] - coded[0]) < 0.05 * exact[0] and 7 < exact[1] / coded[1] < 8, found


def test_the_federated_server_refuses_damaged_and_foreign_updates():
    module = runpy.run_path(str(FEDERATED))
    model = {"weights": numpy.zeros((100, 5), "float32"), "bias": numpy.zeros(5, "float32")}
    server = module["Server"](model, module["UpdateFilter"]("cgx:4"), 1)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def post(data):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", data).status
        except urllib.error.HTTPError as error:
            return error.code

    good = module["UpdateFilter"]("cgx:4").encode({name: x + 1 for name, x in model.items()})
    for at in range(0, len(good), 13):
        damaged = bytearray(good)
        damaged[at] ^= 1
        assert post(bytes(damaged)) == 400, at
    assert post(module["UpdateFilter"]("cgx:8").encode(model)) == 400
    assert post(module["UpdateFilter"]("cgx:4").encode({"weights": model["weights"]})) == 400
    assert post(good) == 200 and model["bias"][0] == 1
    server.shutdown()


def test_torch_fsdp_learns_with_a_third_of_the_bytes(needs_fsdp):
    found = {}
    for kind in ("none", "float32", "qsdp"):
        arguments = ["--workers", "2", "--steps", "5", "--weights", kind]
        if kind == "float32":
            arguments += ["--gradients=float32", "--excluded=float32"]
        done = subprocess.run([sys.executable, str(SHARDED), *arguments], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180)
        match = re.search(r": loss (\S+); bytes a step: (?:weights (\d+), gradients (\d+)|not counted)$", done.stdout, re.M)
        assert done.returncode == 0 and match, done.stdout
        found[kind] = float(match[1]), match[2] and (int(match[2]) + int(match[3]))
    assert found["none"][0] == found["float32"][0] and abs(found["qsdp"][0] - found["none"][0]) < 0.01, found
    assert 3.5 < found["float32"][1] / found["qsdp"][1] < 4, found
