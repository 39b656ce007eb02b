#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of scripts/bench-compare: it finds what is slower, and does not mistake noise for it.

usage: bench_compare_test.py PROJECT
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROJECT = pathlib.Path(sys.argv[1]).resolve()


def entries(name: str, times: list, **more) -> list:
    """Repetitions of a benchmark, in nanoseconds."""
    return [{"name": name, "run_name": name, "run_type": "iteration", "real_time": time, "time_unit": "ns", **more} for time in times]


def google(*benchmarks: list) -> dict:
    return {"context": {"host_name": "a", "num_cpus": 2}, "benchmarks": [entry for each in benchmarks for entry in each]}


def run(*documents, arguments=(), expect: int) -> str:
    """Compares two documents; returns what was printed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, document in enumerate(documents):
            paths.append(pathlib.Path(folder) / f"{number}.json")
            paths[-1].write_text(document if isinstance(document, str) else json.dumps(document))
        ran = subprocess.run([PROJECT / "scripts/bench-compare", *paths, *arguments], capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != expect:
        raise runner.Failed(f"exit status {ran.returncode} instead of {expect}: {ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def expect_verdict(output: str, name: str, verdict: str) -> None:
    line = next((line for line in output.splitlines() if line.startswith(name + " ")), "")
    if not line.endswith(verdict):
        raise runner.Failed(f"{name} is not '{verdict}' in: {output}")


STEADY = [100, 100.5, 99.5, 100, 101, 99, 100, 100.5, 99.5]


def scaled(by: float) -> list:
    return [by * time for time in STEADY]


def slower_is_found() -> None:
    output = run(google(entries("a", STEADY), entries("b", STEADY)), google(entries("a", scaled(1.1)), entries("b", STEADY)), expect=1)
    expect_verdict(output, "a", "SLOWER")
    expect_verdict(output, "b", "same")
    if "1.100" not in output:
        raise runner.Failed(f"no ratio in: {output}")


def faster_and_a_small_change_are_no_failure() -> None:
    before = google(entries("a", STEADY), entries("b", STEADY))
    output = run(before, google(entries("a", scaled(0.8)), entries("b", scaled(1.04))), expect=0)
    expect_verdict(output, "a", "faster")
    expect_verdict(output, "b", "same")
    expect_verdict(run(before, google(entries("b", scaled(1.04))), arguments=["--threshold", "0.01"], expect=1), "b", "SLOWER")


def noise_is_not_slower() -> None:
    """200 benchmarks whose times vary by 10 %, measured twice; then one that is really slower among them."""
    draw = random.Random(7)
    names = [f"benchmark{number}" for number in range(200)]

    def measured(factor=1.0):
        return google(*[entries(name, [draw.gauss(100, 10) * (factor if name == names[77] else 1) for _ in range(9)]) for name in names])

    before = measured()
    run(before, measured(), expect=0)
    output = run(before, measured(1.5), arguments=["--changed"], expect=1)
    expect_verdict(output, names[77], "SLOWER")
    if "1 SLOWER" not in output:
        raise runner.Failed(f"noise is taken for slower: {output}")


def turns_within_a_run_say_how_much_noise_there_is() -> None:
    def one(ratio, spread):
        return google(entries("a", [100], floor_ratio=ratio, spread=spread))

    expect_verdict(run(one(0.5, 0.02), one(0.45, 0.02), expect=1), "a", "SLOWER")
    expect_verdict(run(one(0.5, 0.3), one(0.45, 0.3), expect=0), "a", "noise")
    expect_verdict(run(google(entries("a", [100])), google(entries("a", [108])), expect=0), "a", "noise")


def a_busy_machine_slows_the_floor_as_well() -> None:
    def times(time):
        return google(entries("a", [time], floor_ratio=0.5, spread=0.02))

    expect_verdict(run(times(100), times(200), expect=0), "a", "same")
    expect_verdict(run(times(100), times(200), arguments=["--seconds"], expect=1), "a", "SLOWER")


def a_wrong_result_fails() -> None:
    wrong = {"name": "a", "run_type": "iteration", "error_occurred": True, "error_message": "wrong"}
    expect_verdict(run(google(entries("a", STEADY)), google([wrong]), expect=1), "a", "wrong result")


def aggregates_suffice() -> None:
    def aggregates(time, cv):
        by = {"median": time, "cv": cv}
        return google([{"name": f"a_{what}", "run_name": "a", "run_type": "aggregate", "aggregate_name": what, "real_time": value,
                        "time_unit": "us"} for what, value in by.items()])

    expect_verdict(run(aggregates(10, 0.01), aggregates(12, 0.01), expect=1), "a", "SLOWER")
    expect_verdict(run(aggregates(10, 0.2), aggregates(12, 0.2), expect=0), "a", "noise")


def other_sections_are_read() -> None:
    def whole(seconds):
        return {"runs": [{"benchmark": "collectives", "transport": "threads", "workers": 4, "rate_bits_per_second": None,
                          "rows": [{"operator": "qsgd", "values": 4096, "seconds": seconds, "right": True},
                                   {"operator": "misfit", "values": 4096, "refusal": "it does not fit"}]}]}

    def peer(ns):
        return {"benchmark": "peers", "rows": [{"name": "cast", "right": True, "ns_per_value": [{"values": 65536, "threads": 1, "ns": ns}]}]}

    expect_verdict(run(whole(1e-3), whole(1.5e-3), expect=1), "threads/workers:4/qsgd/n:4096", "SLOWER")
    expect_verdict(run(peer(0.2), peer(0.3), expect=1), "cast/n:65536/threads:1", "SLOWER")


def a_record_is_compared_like_the_results_it_was_made_of() -> None:
    results = google(entries("a", STEADY, floor_ratio=0.25), entries("b", scaled(1e6)))
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "history" / "record.json"
        run(results, arguments=["--record", "--output", target], expect=0)
        text = target.read_text()
        kept = json.loads(text)
    if kept["format"] != "globalq-bench-history" or not kept["commit"] or not kept["machine"]:
        raise runner.Failed(f"no provenance in: {text}")
    if kept["results"]["a"][0] != 4 or kept["results"]["a"][2] != "floors" or kept["results"]["b"][::2] != [0.1, "s"]:
        raise runner.Failed(f"other results: {text}")
    if len(text.splitlines()) > 12:
        raise runner.Failed(f"more than a line a benchmark: {text}")
    output = run(text, results, expect=0)
    expect_verdict(output, "b", "same")
    if "different machines" in output:
        raise runner.Failed(f"one machine is taken for two: {output}")
    expect_verdict(run(text, google(entries("b", scaled(1.2e6))), expect=1), "b", "SLOWER")


def what_cannot_be_compared_is_said() -> None:
    good = google(entries("a", STEADY))
    for first, second, says in ((good, google(entries("b", STEADY)), "no benchmark in common"), (good, "{", "1.json: neither"),
                                (good, "[]", "1.json: neither"), (good, google(entries("a", [0])), "1.json: neither"),
                                (google(entries("a", [100], floor_ratio=0.5)), good, "--seconds")):
        if says not in (output := run(first, second, expect=2)):
            raise runner.Failed(f"it does not say '{says}': {output}")
    run(good, expect=2)
    elsewhere = {**good, "context": {"host_name": "b", "num_cpus": 64}}
    if "different machines" not in run(good, elsewhere, expect=0):
        raise runner.Failed("it does not say that the machines differ")


cases = [slower_is_found, faster_and_a_small_change_are_no_failure, noise_is_not_slower, turns_within_a_run_say_how_much_noise_there_is,
         a_busy_machine_slows_the_floor_as_well, a_wrong_result_fails, aggregates_suffice, other_sections_are_read,
         a_record_is_compared_like_the_results_it_was_made_of, what_cannot_be_compared_is_said]
sys.exit(runner.run("scripts_bench_compare", [(case.__name__, case) for case in cases]))
