#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of bench/evidence/report.py and lines.py: lines that were made up become the tables of docs/evidence-tables.md.

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
        (self.place / "results").mkdir()
        self.document = self.place / "evidence-tables.md"
        self.document.write_text((PROJECT / "docs/evidence-tables.md").read_text())

    def write(self, lines: list, prefix: str = "") -> None:
        for kind in ("training", "timing", "sharded"):
            (self.place / f"results/{prefix}{kind}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines if line["what"] == kind))

    def report(self, lines: list, *options: str) -> tuple[int, str, str]:
        self.write(lines, "quick-" if "--quick" in options else "")
        done = subprocess.run([sys.executable, PROJECT / "bench/evidence/report.py", "--results", self.place / "results",
                               "--document", self.document, *options], capture_output=True, text=True, cwd=PROJECT, check=False)
        return done.returncode, done.stderr, self.document.read_text()

    def section(self, text: str, name: str) -> str:
        return text.split(f"<!-- begin: {name} -->")[1].split(f"<!-- end: {name} -->")[0]

    def test_every_table_is_replaced(self):
        status, said, text = self.report(LINES)
        self.assertEqual((status, said), (0, ""))
        self.assertEqual(self.section(text, "choosing"), "\nNot measured.\n")  # none of these chooses
        self.assertEqual(text.count("Not measured"), 1)
        # accuracy: the mean of seeds, their range, and the target of 91 - 1 %
        self.assertIn("| `float32` | 200 | 1.0 | 91.00 (90.00 to 92.00) |  | 10 |", text)
        self.assertIn("| `half` | 100 | 2.0 | 93.00 (90.00 to 96.00) | +2.00 | 5 |", text)
        self.assertIn("| `never` | 200 | 1.0 | 20.00 (20.00 to 20.00) | -71.00 | not reached |", text)
        # times: the median step and the speed-up; steps to the target times the step
        self.assertIn("| `half` | 10 ms (2.00) |", text)
        self.assertIn("| `half` | 50 ms |", text)
        # 1 ms in the exchange, 1 ms for the gradient, and an exchange of 5 ms
        self.assertIn("| `half` | 1 ms | 1 ms | 50.0 % | +0.0 % | 16.7 % |", text)
        self.assertIn("| W8G8 | 100 | 2.0200 (2.0200 to 2.0200) | +1.00 % | +2.02 % |", text)
        self.assertIn("`misfit`: it does not fit", text)

    def test_a_second_report_changes_nothing(self):
        first = self.report(LINES)
        self.assertEqual(self.report(LINES), first)

    def test_bytes_are_the_mean_over_seeds(self):
        lines = [training("float32", s, [[10, 0.9]], bytes_a_step=600) for s in (1, 2)]
        lines += [training("layers:cgx:4", s, [[10, 0.9]], bytes_a_step=b) for s, b in ((1, 200), (2, 400))]
        lines += [training("lgreco:4", s, [[10, 0.8]], bytes_a_step=b) for s, b in ((1, 50), (2, 150))]
        _, _, text = self.report(lines)
        self.assertIn("| `layers:cgx:4` | 300 | 2.0 |", text)
        # beside the papers: 300 over 100 bytes, and what they were paid with
        row = next(line for line in self.section(text, "published").splitlines() if "times fewer bytes | 3.00 (digits)" in line)
        self.assertIn("+0.00 to -10.00 (digits)", row)

    def test_quantizing_adds_what_float32_does_not_compute(self):
        times = {"compute": [0.008] * 3}
        _, _, text = self.report([timing("float32", "1gbit", 0.02, **times, method_compute=[0.002] * 3),
                                  timing("layers:cgx:4", "1gbit", 0.02, **times, method_compute=[0.003] * 3)])
        self.assertIn("| 1 to 3 % of the time of computing | 10.0 % (digits) |", text)
        self.assertIn("| `layers:cgx:4` | 3 ms | 8 ms | 27.3 % | +10.0 % |", text)

    def test_what_was_not_measured_is_said_to_be_so(self):
        _, _, text = self.report(LINES)
        table = self.section(text, "published")
        self.assertIn("2.25 times as fast a step | not measured |", table)
        self.assertIn("`adaptive-cgx,rule=bayes`: not measured", table)

    def test_each_part_says_of_which_run_it_is(self):
        old, new = ({"commit": c, "date": d, "machine": "a computer", "build": "c++", "load": 0.5} for c, d in (("aaa", "2026-01-01"), ("bbb-dirty", "2026-02-02")))
        again = [{**line, "run": new} for line in LINES if line["what"] == "timing" and line["method"] == "half"]
        rest = [{**line, "run": old} for line in LINES if not (line["what"] == "timing" and line["method"] == "half")]
        about = self.section(self.report(rest + again)[2], "about")
        self.assertIn("- Trainings of digits: 2026-01-01, at commit `aaa`; load in the minute before 0.5.\n", about)
        self.assertIn("- Times of digits: 2026-01-01, at commit `aaa`; load", about)
        self.assertIn("- Times of digits: `half`: 2026-02-02, at commit `bbb-dirty`; load", about)
        self.assertIn("- All on a computer, built with c++.", about)

    def test_a_file_beside_old_lines_tells_their_run(self):
        (self.place / "results/training.run.json").write_text(json.dumps({"commit": "a tree of then", "date": "2026-01-01", "beside": "compilers"}))
        about = self.section(self.report(LINES)[2], "about")
        self.assertIn("- Trainings of digits: 2026-01-01, with a tree of then; compilers.", about)
        self.assertIn("- Times of digits: unknown, at commit `unknown`.", about)

    def test_reduced_runs_and_full_ones_stay_apart(self):
        first = self.report(LINES)
        reduced = self.report([training("float32", 1, [[10, 0.5]])], "--quick")
        self.assertIn("A reduced run", self.section(reduced[2], "about"))
        self.assertNotIn("`half`", self.section(reduced[2], "accuracy"))
        self.assertEqual(self.report(LINES), first)

    def put(self, name: str, new: list, *methods: str, commit: str = "aaa") -> list:
        about, into, source = (self.place / part for part in ("run.json", f"results/{name}", "new"))
        about.write_text(json.dumps({"commit": commit}))
        source.write_text("".join(json.dumps(line) + "\n" for line in new))
        subprocess.run([sys.executable, PROJECT / "bench/evidence/lines.py", "put", "--about", about, "--fact", "load=0.5", "--fact", "warm_up=3", "--from", source,
                        "--into", into, *(["--methods", *methods] if methods else [])], check=True, cwd=PROJECT)
        self.assertFalse(source.exists())
        return [json.loads(line) for line in into.read_text().splitlines()]

    def test_lines_are_stamped(self):
        first, second = self.put("timing.jsonl", [timing("float32", "1gbit", 0.02), timing("half", "1gbit", 0.01)])
        self.assertEqual(second["run"], {"commit": "aaa", "load": "0.5", "warm_up": 3})
        self.assertEqual(second["base"]["step"], first["step"])

    def test_some_methods_replace_their_lines_alone(self):
        self.put("timing.jsonl", [timing("float32", "1gbit", 0.02), timing("half", "1gbit", 0.01), timing("other", "1gbit", 0.005)])
        # the machine is half as fast now: the ratio is that of the same run, and the line of float32 is the first
        lines = self.put("timing.jsonl", [timing("float32", "1gbit", 0.04), timing("half", "1gbit", 0.01)], "half", commit="bbb")
        self.assertEqual([(t["method"], t["run"]["commit"], t["step"][0], t["base"]["step"][0]) for t in lines],
                         [("float32", "aaa", 0.02, 0.02), ("other", "aaa", 0.005, 0.02), ("half", "bbb", 0.01, 0.04)])
        (self.place / "results/training.jsonl").write_text(json.dumps(training("float32", 1, [[10, 0.9]])) + "\n")
        done = subprocess.run([sys.executable, PROJECT / "bench/evidence/report.py", "--results", self.place / "results", "--document", self.document],
                              capture_output=True, text=True, cwd=PROJECT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.document.read_text()
        self.assertIn("| `float32` | 20 ms (1.00) |", text)
        self.assertIn("| `half` | 10 ms (4.00) |", text)
        self.assertIn("| `other` | 5 ms (4.00) |", text)

    def test_all_seeds_of_a_training_are_replaced(self):
        self.put("training.jsonl", [training(m, s, [[10, 0.9]]) for s in (1, 2) for m in ("float32", "half")])
        lines = self.put("training.jsonl", [training("half", 1, [[10, 0.8]])], "half")
        self.assertEqual([(t["method"], t["seed"]) for t in lines], [("float32", 1), ("float32", 2), ("half", 1)])

    def test_float32_is_added_where_there_is_none(self):
        lines = self.put("timing.jsonl", [timing("float32", "1gbit", 0.02), timing("half", "1gbit", 0.01)], "half")
        self.assertEqual([t["method"] for t in lines], ["float32", "half"])

    def test_float32_cannot_be_measured_alone(self):
        done = subprocess.run([PROJECT / "scripts/evidence", "--method", "float32", "lgreco:4"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("float32 is timed beside every method", done.stderr)

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
