# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a black-box test in Python, and leaves their counts where tests/support/totals.py looks for them."""

import json
import os
import pathlib
import traceback


class Failed(Exception):
    """A case found something wrong; its text is all that there is to say."""


class Skipped(Exception):
    """A case cannot run here."""


def run(suite, cases, remark=""):
    """Runs (name, function) pairs; returns the exit status, 1 when a case failed.

    With GTEST_OUTPUT=json:FILE in the environment the outcomes are written to FILE as GoogleTest does.
    """
    outcomes = []
    for name, function in cases:
        problem, result = None, "COMPLETED"
        try:
            function()
        except Skipped:
            result = "SKIPPED"
        except Failed as failure:
            problem = str(failure)
        except Exception:  # pylint: disable=broad-except  # a case that breaks has failed
            problem = traceback.format_exc()
        if problem is not None:
            print(f"FAILED {name}: {problem}", flush=True)
        outcomes.append({"name": name, "result": result, **({"failures": [{"failure": problem}]} if problem else {})})
    failed = sum("failures" in each for each in outcomes)
    skipped = sum(each["result"] == "SKIPPED" for each in outcomes)
    print(f"{len(outcomes) - failed - skipped} cases passed, {failed} failed, {skipped} skipped{remark}")
    target = os.environ.get("GTEST_OUTPUT", "")
    if target.startswith("json:"):
        path = pathlib.Path(target[5:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"testsuites": [{"name": suite, "testsuite": outcomes}]}))
    return 1 if failed else 0
