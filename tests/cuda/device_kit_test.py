# SPDX-License-Identifier: Apache-2.0
"""Rehearses the device kit: without a GPU every step fails by itself, with its reason, and none hangs; on the emulated device what it can
run passes; a step that an earlier day left runs first.

usage: device_kit_test.py RUN EMULATED_LIBRARIES PROGRAM...
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

RUN = pathlib.Path(sys.argv[1])
LIBRARIES = pathlib.Path(sys.argv[2])
PROGRAMS = [pathlib.Path(program) for program in sys.argv[3:]]
REASONS = ("libcuda.so.1: cannot open shared object file", "No such file or directory", "no CUDA-capable device", "not found",
           "CUDA driver version is insufficient", "No module named")
STEPS = {"first": "libraries smoke bench_16777216 capture processes lengths schedules codecs nccl bench_268435456 bench_1048576",
         "second": "ncu peers racecheck", "third": "other_form_bench_1"}


class Kit(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copy(RUN, self.folder / "run")
        (self.folder / "commit").write_text("rehearsal\n")

    packed = {}  # archives take seconds to make

    def pack(self, files):
        archive = self.folder / "programs.tar.xz"
        names = tuple(file.name for file in files)
        if names not in self.packed:
            with tarfile.open(archive, "w:xz", preset=0) as tar:
                for file in files:
                    tar.add(file.resolve(), file.name)
            self.packed[names] = archive.read_bytes()
        archive.write_bytes(self.packed[names])

    def run_kit(self, *arguments, seconds, **environment):
        """Exit status, and the lines of steps.jsonl."""
        results = self.folder / "results"
        shutil.rmtree(results, ignore_errors=True)
        done = subprocess.run(["bash", self.folder / "run", results, *arguments], env=os.environ | environment, capture_output=True,
                              text=True, timeout=seconds)
        self.said = done.stdout + done.stderr
        self.assertLessEqual(len(list(results.iterdir())), 8)
        steps = [json.loads(line) for line in (results / "steps.jsonl").read_text().splitlines()]
        return done.returncode, {step["step"]: step["result"] for step in steps}

    def reason(self, step):
        with tarfile.open(self.folder / "results/logs.tar.gz") as tar:
            return tar.extractfile(f"logs/{step}.log").read().decode(errors="replace")

    def with_another_form(self):
        """The programs, and a benchmark of another commit."""
        (self.folder / "other_kernels").write_text("norm")
        return [*PROGRAMS, pathlib.Path(shutil.copy(PROGRAMS[-1], self.folder / "other_form_bench")), self.folder / "other_kernels"]

    def test_without_a_gpu_the_first_part_stops_after_the_smoke_test(self):
        self.pack(self.with_another_form())
        code, steps = self.run_kit("first", seconds=60, CUDA_VISIBLE_DEVICES="")
        self.assertEqual(code, 1, self.said)
        self.assertEqual(list(steps)[-1], "stopped", self.said)
        self.assertNotIn("bench_16777216", steps)

    def test_without_a_gpu_every_step_fails_by_itself_with_its_reason(self):
        self.pack(self.with_another_form())
        (self.folder / "peers.py").write_text("import torch\nassert torch.cuda.is_available(), 'no CUDA-capable device'\n")
        for part, names in STEPS.items():
            code, steps = self.run_kit(part, *names.split(), seconds=60, CUDA_VISIBLE_DEVICES="")
            self.assertEqual(code, 1, self.said)
            for step, result in steps.items():
                if step == "libraries" or result.startswith("no "):
                    continue
                self.assertNotIn(result, ("passed", "skipped"), f"{step}: {self.said}")
                text = self.reason(step)
                self.assertTrue(any(reason in text for reason in REASONS), f"{step} gives no reason: {text}")

    def on_the_emulated_device(self):
        self.pack(PROGRAMS + sorted(LIBRARIES.glob("lib*.so*")))
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'name, driver'\necho 'emulated device, 0'\n")
        (tools / "nvidia-smi").chmod(0o755)
        return {"PATH": f"{tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": ""}

    def test_on_the_emulated_device_it_passes(self):
        environment = self.on_the_emulated_device()
        code, steps = self.run_kit("first", "gpu", "libraries", "smoke", seconds=300, **environment)
        self.assertEqual((code, set(steps.values())), (0, {"passed"}), f"{steps} {self.said}")

    def test_what_an_earlier_day_left_runs_first(self):
        environment = self.on_the_emulated_device()
        (self.folder / "left").write_text("libraries\n")
        shutil.copy("/bin/false", self.folder / "mean_device_test")  # ends the part after the smoke test
        self.pack([self.folder / "mean_device_test"])
        _, steps = self.run_kit("first", seconds=60, **environment)
        self.assertEqual(list(steps), ["libraries", "gpu", "smoke", "stopped"], self.said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
