#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the experiments of scripts/evidence share, and speed-ups beside the papers'.

usage: evidence_test.py FOLDER
"""

import json
import pathlib
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(FOLDER))
import breakdown  # noqa: E402
import experiment  # noqa: E402
import glyphs  # noqa: E402
import replay  # noqa: E402


class Text(unittest.TestCase):
    def test_a_table(self):
        self.assertEqual(experiment.table(["a", "b"], [["1", "2"]]), "| a | b |\n| --- | --: |\n| 1 | 2 |\n")

    def test_what_stands_between_marks_is_replaced(self):
        document = "x\n<!-- begin: a -->\nold\n<!-- end: a -->\ny\n"
        self.assertEqual(experiment.replaced(document, "a", "new\n"), ("x\n<!-- begin: a -->\nnew\n<!-- end: a -->\ny\n", True))
        self.assertEqual(experiment.replaced(document, "b", "new\n"), (document, False))


class Replays(unittest.TestCase):
    """Of steps whose computing is a sleep: exchanges of 2 s and 0.5 s, so r = 4."""

    def lines(self) -> list:
        def line(method: str, exchange: float, turn: list) -> dict:
            return {"what": "replay", "method": method, "workers": 4, "exchange": [exchange] * 3, "kernels": [0.1] * 3,
                    "steps": [{"c": 1.0, "computing": 2, "in_turn": turn}]}
        return [line("float32", 2, [4, 4, 4]), line("fast", 0.5, [2.5, 2.5, 2.4]), line("even", 0.5, [3.9, 4.1, 4])]

    def test_the_formula_has_no_speed_up_without_communication_and_r_with_nothing_else(self):
        self.assertAlmostEqual(replay.formula(1e-9, 4), 1)
        self.assertAlmostEqual(replay.formula(1e9, 4), 4, places=5)
        self.assertAlmostEqual(replay.formula(1, 4), 1.6)

    def test_ratios_are_those_of_rounds(self):
        m = replay.measurement(self.lines(), 4)
        self.assertAlmostEqual(m.ratio("fast"), 4)
        self.assertAlmostEqual(m.kernels("fast"), 0.2)
        self.assertEqual(replay.shown(m.speed_ups("fast", 1.0, "in_turn")), "1.60")
        self.assertEqual(m.speed_ups("fast", 1.0, "at_once"), [])

    def test_quartiles_that_span_1_are_no_difference(self):
        m = replay.measurement(self.lines(), 4)
        self.assertEqual(replay.shown(m.speed_ups("even", 1.0, "in_turn")), "no difference")
        self.assertEqual(replay.shown([]), "")

    def test_a_speed_up_holds_within_ten_percent_and_in_part_with_few_workers(self):
        replay.WHY["x"] = "because"
        self.assertEqual(replay.verdict("x", 1.6, {4: 1.55}), ("holds", ""))
        self.assertEqual(replay.verdict("x", 1.6, {4: 2, 8: 1.5}), ("holds", "within 6 %"))
        self.assertEqual(replay.verdict("x", 2.0, {4: 1.5}), ("does not hold", "-25 %: because"))
        self.assertEqual(replay.verdict("x", 1.0, {4: 1.5}), ("more here", "+50 %: because"))
        self.assertEqual(replay.verdict("x", 2.0, {4: 1.9, 8: 1.5}), ("holds in part", "-25 % with 8 workers"))

    def test_a_change_of_the_loss_does_not_depend_on_what_is_predicted(self):
        self.assertAlmostEqual(experiment.loss_change(2 ** 4.4, 2 ** 4), 10)


class Bars(unittest.TestCase):
    def test_c_of_the_paper_is_that_of_its_number_of_workers_and_grows_as_those_that_one_sends_to(self):
        self.assertEqual(breakdown.ratio("AlexNet", 16), 4)
        self.assertEqual(breakdown.ratio("LSTM", 2), 2.45)
        self.assertAlmostEqual(breakdown.ratio("LSTM", 4), 3 * 2.45)

    def test_what_is_not_computing_is_communication(self):
        def line(workers: int, method: str, turn: float) -> dict:
            return {"what": "replay", "workers": workers, "method": method, "exchange": [1], "run": {"source": "a"},
                    "steps": [{"c": breakdown.ratio(net, workers), "computing": 3, "in_turn": [turn]} for net in breakdown.NETS]}
        of = breakdown.bars([line(n, m, t) for n in breakdown.WORKERS for m, t in (("float32", 4), ("qsgd:4@sra", 3.5))])
        self.assertEqual(of.bar("LSTM", 4, "float32"), (3, 1))
        self.assertEqual(of.share("LSTM", 4, "float32"), 25)
        with self.assertRaises(experiment.Incomplete):
            breakdown.bars([line(2, "float32", 4)])


class Glyphs(unittest.TestCase):
    def of(self, others: list) -> glyphs.accuracies:
        """Accuracies where float32 ends at 80 % with all seeds, and every other method at those of the list."""
        return glyphs.accuracies([{"workers": 16, "method": method, "seed": seed, "curve": [[1, 0.8 if method == "float32" else value]]}
                                  for seed, value in enumerate(others, 1) for method in glyphs.methods_of(16)], 16)

    def test_a_loss_of_the_tolerance_is_in_the_interval_or_not(self):
        method = glyphs.methods_of(16)[1]
        self.assertEqual(self.of([0.801, 0.799, 0.8]).of_tolerance(method), "rejected")
        self.assertEqual(self.of([0.78, 0.8, 0.79]).of_tolerance(method), "possible")
        self.assertEqual(self.of([0.751, 0.749, 0.75]).of_tolerance(method), "exceeded")
        self.assertEqual(self.of([0.801, 0.799, 0.8]).shown(method), "(+0.00 ± 0.25)")

    def test_a_gain_holds_where_its_interval_is_above_zero(self):
        self.assertEqual(glyphs.gains([(1, 0.5), (0.2, 0.1)]), ("holds", "it is better"))
        self.assertEqual(glyphs.gains([(1, 0.5), (0.1, 0.2)]), ("holds in part", "better in 1 of 2"))
        self.assertEqual(glyphs.gains([(-1, 0.5), (0.1, 0.2)]), ("does not hold", "it is not better"))

    def test_a_loss_holds_where_its_interval_has_the_published_one(self):
        self.assertEqual(glyphs.loses([-1, -2], [(-1.2, 0.5), (-2, 0.2)]), ("holds", ""))
        self.assertEqual(glyphs.loses([-1, -2], [(-1.2, 0.5), (-3, 0.2)]), ("does not hold", "it loses more"))

    def test_only_seeds_of_all_methods_count(self):
        found = self.of([0.8, 0.7])
        self.assertEqual(found.seeds, [1, 2])
        self.assertEqual(glyphs.accuracies([{**line, "curve": [[1, 0.5]]} for line in found.lines[:-1]], 16).seeds, [1])


class Pairs(unittest.TestCase):
    def test_an_interval_of_paired_differences(self):
        mean, half = experiment.interval([1.0, 2.0, 3.0])
        self.assertEqual(mean, 2)
        self.assertAlmostEqual(half, 4.303 / 3 ** 0.5)  # Student's quantile of two degrees of freedom, standard deviation 1


class Seeds(unittest.TestCase):
    def test_only_seeds_of_all_methods_count_and_two_are_needed(self):
        def line(method: str, seed: int) -> dict:
            return {"method": method, "seed": seed}
        lines = [line("a", 1), line("b", 1), line("a", 2), line("b", 2), line("a", 3)]
        self.assertEqual(experiment.seeds_of(lines, ["a", "b"]), [1, 2])
        with self.assertRaises(experiment.Incomplete):
            experiment.seeds_of(lines[:3], ["a", "b"])


class Cells(unittest.TestCase):
    def test_cells_without_a_line_are_lacking_in_their_order(self):
        with tempfile.TemporaryDirectory() as folder:
            experiment.RESULTS = pathlib.Path(folder)
            (experiment.RESULTS / "x.jsonl").write_text('{"seed":1,"method":"b"}\n{"what":"timing","method":"a"}\n')
            cells = [(1, "a"), (1, "b"), (2, "a")]
            self.assertEqual(experiment.lacking("x", cells, "seed", "method"), [(1, "a"), (2, "a")])
            self.assertEqual(experiment.lacking("none", cells, "seed", "method"), cells)


class Lines(unittest.TestCase):
    def test_a_table_refuses_two_versions_of_the_measured_sources(self):
        experiment.one_source("x", [{"run": {"source": "a"}}, {"run": {"source": "a"}}])
        with self.assertRaisesRegex(SystemExit, "results/x.jsonl has lines of 2 versions"):
            experiment.one_source("x", [{"run": {"source": "a"}}, {"run": {"source": "b"}}])

    def test_a_measurement_adds_lines_with_their_origin(self):
        with tempfile.TemporaryDirectory() as folder:
            experiment.RESULTS = pathlib.Path(folder)
            experiment.settle = lambda: 0.25  # does not wait for an idle machine
            for _ in range(2):
                self.assertEqual(experiment.measure("x", [sys.executable, "-c", "print('noise'); print('{\"value\": 1, \"processor\": 0.5}')"]), 1)
            found = experiment.read("x")
            self.assertEqual([line["value"] for line in found], [1, 1])
            self.assertEqual(found[0]["run"]["source"], experiment.source_hash())
            self.assertEqual(found[0]["run"]["load"], 0.25)
            self.assertLessEqual({"commit", "date", "machine", "seconds", "load", "foreign"}, set(found[0]["run"]))
            self.assertEqual(json.loads((pathlib.Path(folder) / "x.jsonl").read_text().splitlines()[0]), found[0])


if __name__ == "__main__":
    unittest.main()
