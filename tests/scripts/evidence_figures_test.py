#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of scripts/evidence: medians, steps to a target, speed-ups, tables.

usage: evidence_figures_test.py FOLDER
"""

import json
import pathlib
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(FOLDER))
import experiment  # noqa: E402
import figures  # noqa: E402
import glyphs  # noqa: E402
import replay  # noqa: E402


def training(method: str, last: list, measure: str = "accuracy") -> dict:
    return {"method": method, "measure": measure, "curve": last}


def timing(step: list, compute: list, exchange: list, own: list, **more) -> dict:
    return {"method": "m", "step": step, "compute": compute, "exchange": exchange, "method_compute": own, **more}


class Curves(unittest.TestCase):
    def test_the_first_step_at_the_target_counts(self):
        curve = [[5, 0.2], [10, 0.9], [15, 0.8], [20, 0.95]]
        self.assertEqual(figures.steps_to(curve, 0.9, "accuracy"), 10)
        self.assertEqual(figures.steps_to(curve, 0.91, "accuracy"), 20)
        self.assertIsNone(figures.steps_to(curve, 0.96, "accuracy"))

    def test_a_loss_is_reached_from_above(self):
        self.assertEqual(figures.steps_to([[5, 3.0], [10, 2.0], [15, 1.0]], 2.5, "loss"), 10)

    def test_a_curve_that_is_no_number_reaches_nothing(self):
        self.assertIsNone(figures.steps_to([[5, float("nan")]], 0.5, "accuracy"))
        self.assertIsNone(figures.steps_to([[5, float("nan")]], 0.5, "loss"))

    def test_the_target_is_a_point_below_the_mean_of_float32(self):
        lines = [training("float32", [[5, 0.1], [10, 0.96]]), training("float32", [[10, 0.98]]), training("other", [[10, 0.1]])]
        self.assertAlmostEqual(figures.target_of(lines), 0.96)
        self.assertAlmostEqual(figures.target_of([training("float32", [[10, 2.0]], "loss")]), 2.02)
        self.assertIsNone(figures.target_of([training("other", [[10, 1.0]])]))

    def test_most_seeds_must_reach_the_target(self):
        def seeds(*values):
            return [training("m", [[10, v], [20, 0.5]]) for v in values]
        self.assertEqual(figures.steps_of(seeds(0.9, 0.9, 0.1), "m", 0.9), 10)
        self.assertIsNone(figures.steps_of(seeds(0.9, 0.1, 0.1), "m", 0.9))
        self.assertIsNone(figures.steps_of(seeds(0.9), "another", 0.9))


class Times(unittest.TestCase):
    def test_a_speed_up_compares_steps_of_the_same_round(self):
        # the neighbors slow down the second round: both take twice as long, and the ratio stays
        base, other = timing([2, 4, 2], [], [], []), timing([1, 2, 1], [], [], [])
        self.assertEqual(figures.speed_up(base, other), 2)
        self.assertEqual(figures.step_seconds(base), 2)

    def test_a_core_of_ones_own_leaves_computing_and_exchange(self):
        base, other = timing([9], [1], [3], [0]), timing([9], [1], [1], [0.5])
        self.assertEqual(figures.own_core_seconds(base), 4)
        self.assertEqual(figures.speed_up(base, other, own_core=True), 2)

    def test_shares(self):
        one = timing([9], [3], [2], [1])
        self.assertEqual(figures.share_of_computing(one), 0.25)
        self.assertEqual(figures.share_of_step(one), 0.2)


    def test_what_a_method_adds_leaves_out_what_float32_computes(self):
        # 3 in the exchange instead of 2, which float32 adds with, of 8 + 2 in all
        self.assertAlmostEqual(figures.added_computing(timing([9], [8], [4], [3]), timing([9], [8], [4], [2])), 0.1)

    def test_the_middle_half_of_the_rounds(self):
        self.assertEqual(figures.spread_of_steps(timing([1, 2, 3, 4, 5], [], [], [])), 2 / 3)


class Choices(unittest.TestCase):
    def test_steps_that_choose(self):
        self.assertEqual(figures.choosing_steps("lgreco:4", 100), list(range(11, 100, 12)))
        self.assertEqual(figures.choosing_steps("adaptive-power-sgd:4,rule=both", 23), [4, 9, 14, 19])
        self.assertEqual(figures.choosing_steps("adaptive-cgx,every=10", 30), [9, 19, 29])
        self.assertEqual(figures.choosing_steps("alq:3", 23), [1, 3, 6, 9, 12, 15, 18, 21])
        self.assertEqual(figures.choosing_steps("layers:cgx:4", 100), [])

    def test_a_choice_costs_what_its_steps_take_longer(self):
        # steps 4, 9, 14 and 19 choose; two came before the first that was kept
        one = timing([4.0 if s in (4, 9, 14, 19) else 1.0 for s in range(2, 23)], [], [], [], method="lgreco:4", run={"warm_up": 2})
        self.assertEqual(figures.choosing_rounds(one), [2, 7, 12, 17])
        self.assertEqual((figures.usual_seconds(one), figures.choosing_seconds(one)), (1, 3))
        # in a training of 100 the steps 11 and 23 choose among the first 24
        self.assertEqual([figures.seconds_after(one, n, 100) for n in (11, 12, 24)], [11, 12 + 3, 24 + 6])

    def test_without_a_choice_steps_are_alike(self):
        one = timing([1.0, 2.0, 3.0], [], [], [], run={"warm_up": 0})
        self.assertIsNone(figures.choosing_seconds(one))
        self.assertEqual(figures.seconds_after(one, 10, 100), 20)
        self.assertIsNone(figures.choosing_seconds(timing([1.0] * 20, [], [], [], method="lgreco:4")))  # the rounds are unknown


class Seeds(unittest.TestCase):
    def test_bytes_are_the_mean(self):
        lines = [{"method": "m", "bytes_a_step": b} for b in (100, 200, 400)]
        self.assertAlmostEqual(figures.bytes_of(lines, "m"), 700 / 3)
        self.assertIsNone(figures.bytes_of(lines, "another"))

    def test_the_gap_to_float32(self):
        points = [training("float32", [[10, 0.9]]), training("m", [[10, 0.91]]), training("m", [[10, 0.93]])]
        self.assertEqual(figures.gap(points, "m"), "+2.00")
        losses = [training("float32", [[10, 2.0]], "loss"), training("m", [[10, 2.1]], "loss")]
        self.assertEqual(figures.gap(losses, "m"), "+5.00 %")
        self.assertEqual(figures.gap(losses, "another"), "")


class Text(unittest.TestCase):
    def test_a_table(self):
        self.assertEqual(figures.table(["a", "b"], [["1", "2"]]), "| a | b |\n| --- | --: |\n| 1 | 2 |\n")

    def test_units(self):
        self.assertEqual(figures.seconds(1.234), "1.23 s")
        self.assertEqual(figures.seconds(0.01234), "12.3 ms")
        self.assertEqual(figures.final("accuracy", 0.97123), "97.12")
        self.assertEqual(figures.final("loss", 1.5), "1.5000")

    def test_what_stands_between_marks_is_replaced(self):
        document = "x\n<!-- begin: a -->\nold\n<!-- end: a -->\ny\n"
        self.assertEqual(figures.replaced(document, "a", "new\n"), ("x\n<!-- begin: a -->\nnew\n<!-- end: a -->\ny\n", True))
        self.assertEqual(figures.replaced(document, "b", "new\n"), (document, False))

    def test_spread(self):
        self.assertEqual(figures.spread([1, 2, 6]), (3, 1, 6))


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

    def test_a_claim_holds_within_five_percent(self):
        self.assertEqual(replay.verdict(1.6, [1.55, 1.53, 1.56], 1), "holds")
        self.assertEqual(replay.verdict(2.0, [1.5], 1), "-25 % here")
        self.assertEqual(replay.verdict(2.0, [], 5.0), "does not follow from bytes: +150 %")


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

    def test_only_seeds_of_all_methods_count(self):
        found = self.of([0.8, 0.7])
        self.assertEqual(found.seeds, [1, 2])
        self.assertEqual(glyphs.accuracies([{**line, "curve": [[1, 0.5]]} for line in found.lines[:-1]], 16).seeds, [1])


class Lines(unittest.TestCase):
    def test_an_interval_is_that_of_student(self):
        mean, half = experiment.interval([1, 2, 3])
        self.assertEqual(mean, 2)
        self.assertAlmostEqual(half, 4.303 / 3 ** 0.5)

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
