#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints `N passed, N failed`: the cases of every suite that CTest ran.

usage: totals.py JUNIT_FILE COUNTS_FOLDER

A suite of GoogleTest leaves its counts in COUNTS_FOLDER and counts case by case; any other test counts as one case.
A suite that failed without a failed case of its own (it crashed, timed out, or failed on a rank other than 0) adds
one failure. The exit status is 1 when something failed or nothing ran.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree


def main() -> int:
    junit, counts = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    passed = failed = skipped = 0
    bad = []
    for test in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        status, name = test.get("status"), test.get("name")
        if status == "disabled":
            continue
        if status == "notrun" and "SKIP" in (skip.get("message", "") if (skip := test.find("skipped")) is not None else ""):
            skipped += 1  # it said itself that it cannot run here
            continue
        ok = status == "run"
        case_file = counts / f"{name}.json"
        failed_here = 0
        try:
            suite = json.loads(case_file.read_text())
            cases = [case for group in suite["testsuites"] for case in group["testsuite"]]
            failed_here = sum("failures" in case for case in cases)
            skipped_here = sum(case.get("result") in ("SKIPPED", "SUPPRESSED") for case in cases)
            skipped += skipped_here
            passed += len(cases) - failed_here - skipped_here
        except (OSError, ValueError, KeyError):
            passed += ok
        if not ok:
            failed_here = max(failed_here, 1)
            bad.append(name)
        failed += failed_here
    for name in bad:
        print(f"failed: {name}")
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
