#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of README.md: how many times as fast a step is, from the lines of replay.

usage: gains.py [--check]
"""

import sys

import experiment
import replay

NAME, DOCUMENT = "gains", "README.md"
METHODS, RATIOS = ("cgx:4", "global-uniform:8", "bfloat16@ring"), (0.7, 1.95, 4.0, 10.0)


def rendered(_: list[dict]) -> str:
    m = replay.measurement(experiment.read(replay.NAME), 4)
    return experiment.table(["operator", *(f"c = {c:g}" for c in RATIOS)], [
        [f"`{replay.METHODS[method][0]}`", *(replay.shown(m.speed_ups(method, c, "in_turn")) for c in RATIOS)] for method in METHODS])


if __name__ == "__main__":
    sys.exit(experiment.run(sys.modules[__name__]))
