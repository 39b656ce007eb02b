#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of bench/evidence/report.py: lines that were made up become the tables of docs/evidence.md.

usage: evidence_report_test.py PROJECT
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(sys.argv.pop(1)).resolve()


def training(method: str, seed: int, curve: list, **more) -> dict:
    return {"what": "training", "model": "digits", "measure": "accuracy", "method": method, "family": "operator", "source": "", "workers": 4,
            "network": "shared memory", "seed": seed, "steps": 10, "values": 1000, "bytes_a_step": 100 if method == "half" else 200,
            "identical": True, "seconds": 1, "curve": curve, **more}


def timing(method: str, network: str, step: float, **more) -> dict:
    return {"what": "timing", "model": "digits", "measure": "accuracy", "method": method, "family": "operator", "source": "", "workers": 4,
            "network": network, "values": 1000, "bytes_a_step": 100, "step": [step] * 3, "exchange": [step / 2] * 3, "compute": [0.001] * 3,
            "method_compute": [0.001] * 3, **more}


LINES = [
    training("float32", 1, [[5, 0.5], [10, 0.9]]), training("float32", 2, [[5, 0.89], [10, 0.92]]),
    training("half", 1, [[5, 0.9], [10, 0.9]]), training("half", 2, [[5, 0.95], [10, 0.96]]),
    training("never", 1, [[5, 0.1], [10, 0.2]]),
    timing("float32", "1gbit", 0.02), timing("half", "1gbit", 0.01), timing("never", "1gbit", 0.01),
    {**timing("misfit", "1gbit", 1), "refusal": "it does not fit"},
    {"what": "sharded", "precision": "float32", "seed": 1, "bytes_a_step": 400, "loss": 2.0, "identical": True},
    {"what": "sharded", "precision": "W8G8", "seed": 1, "bytes_a_step": 100, "loss": 2.02, "identical": True},
]
del LINES[8]["step"]


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = pathlib.Path(self.folder.name)
        (self.place / "CMakeCache.txt").write_text("CMAKE_CXX_COMPILER:FILEPATH=c++\nCMAKE_BUILD_TYPE:STRING=Release\n")
        (self.place / "results").mkdir()
        self.document = self.place / "evidence.md"
        self.document.write_text((PROJECT / "docs/evidence.md").read_text())

    def report(self, lines: list) -> tuple[int, str, str]:
        (self.place / "results/all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run([sys.executable, PROJECT / "bench/evidence/report.py", "--build", self.place, "--results", self.place / "results",
                               "--document", self.document], capture_output=True, text=True, cwd=PROJECT, check=False)
        return done.returncode, done.stderr, self.document.read_text()

    def test_every_table_is_replaced(self):
        status, said, text = self.report(LINES)
        self.assertEqual((status, said), (0, ""))
        self.assertNotIn("Not measured", text)
        # accuracy: the mean of seeds, their range, and the target of 91 - 1 %
        self.assertIn("| `float32` | 200 | 1.0 | 91.00 (90.00 to 92.00) |  | 10 |", text)
        self.assertIn("| `half` | 100 | 2.0 | 93.00 (90.00 to 96.00) | +2.00 | 5 |", text)
        self.assertIn("| `never` | 200 | 1.0 | 20.00 (20.00 to 20.00) | -71.00 | not reached |", text)
        # times: the median step and the speed-up; steps to the target times the step
        self.assertIn("| `half` | 10 ms (2.00) |", text)
        self.assertIn("| `half` | 50 ms |", text)
        # 1 ms in the exchange, 1 ms for the gradient, and an exchange of 5 ms
        self.assertIn("| `half` | 1 ms | 1 ms | 50.0 % | 16.7 % |", text)
        self.assertIn("| W8G8 | 100 | 2.0200 (2.0200 to 2.0200) | +1.00 % | +2.02 % |", text)
        self.assertIn("`misfit`: it does not fit", text)

    def test_a_second_report_changes_nothing(self):
        first = self.report(LINES)
        self.assertEqual(self.report(LINES), first)

    def test_workers_that_differ_fail_it(self):
        status, said, _ = self.report([*LINES, training("half", 3, [[10, 0.9]], identical=False)])
        self.assertEqual(status, 1)
        self.assertIn("half, seed 3: the workers' parameters differ", said)

    def test_a_document_without_marks_fails_it(self):
        self.document.write_text("nothing\n")
        status, said, _ = self.report(LINES)
        self.assertEqual(status, 1)
        self.assertIn("has no lines", said)

    def test_a_folder_without_lines_fails_it(self):
        self.assertEqual(self.report([])[0], 1)


if __name__ == "__main__":
    unittest.main()
