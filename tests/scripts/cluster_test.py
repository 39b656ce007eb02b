#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of scripts/cluster.

usage: cluster_test.py PATH_OF_CLUSTER

The cases that set a cluster up need root, iproute2, Open MPI and a kernel with namespaces and tbf; where the script says
that it lacks one of these they are skipped. With GTEST_OUTPUT=json:FILE in the environment the counts are left where
tests/support/totals.py looks for them. The exit status is 1 when a case failed.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

CLUSTER = os.path.abspath(sys.argv[1])
NO_CLUSTER = 3
# What a worker that is not the first begins with.
CONNECT = """
    for _ in range(100):
        try:
            peer = socket.create_connection(("10.77.0.1", 7077), 20)
            break
        except OSError:
            time.sleep(0.1)
"""
# A worker that floods another with 3 MB: prints how long that took.
FLOOD = """
import os, socket, sys, time
size = 3_000_000
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    with socket.create_server(("10.77.0.1", 7077)) as server:
        server.settimeout(20)
        peer, _ = server.accept()
        peer.settimeout(20)
        peer.recv(1)
        start, left = time.monotonic(), size
        while left > 0:
            data = peer.recv(1 << 20)
            if not data: sys.exit("the other side has gone")
            left -= len(data)
        print("seconds", time.monotonic() - start, flush=True)
else:""" + CONNECT + """
    peer.sendall(b"x" + bytes(size))
"""
# A worker that echoes what another sends: prints the shortest of five round trips.
ECHO = """
import os, socket, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    with socket.create_server(("10.77.0.1", 7077)) as server:
        server.settimeout(20)
        peer, _ = server.accept()
        for _ in range(5): peer.sendall(peer.recv(1))
        peer.recv(1)
else:""" + CONNECT + """
    trips = []
    for _ in range(5):
        start = time.monotonic()
        peer.sendall(b"x")
        peer.recv(1)
        trips.append(time.monotonic() - start)
    print("seconds", min(trips), flush=True)
    peer.sendall(b"x")
"""

cases = []


def case(needs_cluster):
    def register(function):
        cases.append((function.__name__, function, needs_cluster))
        return function

    return register


def run(*arguments, **settings):
    return subprocess.run([CLUSTER, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=90,
                          check=False, **settings)


def start(*arguments):
    return subprocess.Popen([CLUSTER, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def left_by(pid):
    """What bears the name of the run of a process."""
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    folders = [path.name for path in pathlib.Path(tempfile.gettempdir()).glob(f"gq{pid}.*")]
    return [name for name in names + folders if name.startswith((f"gq{pid}-", f"gq{pid}."))]


def wait_for(condition, what):
    for _ in range(300):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited 15 s for {what}")


def sleepers(seconds):
    """Processes `sleep SECONDS`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


@case(needs_cluster=False)
def wrong_command_lines_are_refused_with_a_sentence():
    for arguments, text in ((["--workers", "0", "--", "true"], "--workers takes"),
                            (["--workers", "4x", "--", "true"], "--workers takes"),
                            (["--rate", "1", "--", "true"], "--rate takes"),
                            (["--rate", "fast", "--", "true"], "--rate takes"),
                            (["--delay", "5", "--", "true"], "--delay takes"),
                            (["--loss", "100%", "--", "true"], "--loss takes"),
                            (["--timeout", "-1", "--", "true"], "--timeout takes"),
                            (["--workers"], "--workers needs a value"),
                            (["true"], "'true' is not an option"),
                            ([], "there is no command")):
        done = run(*arguments)
        expect(done.returncode == 2 and text in done.stderr, f"{arguments}: {done.returncode}, {done.stderr}")


@case(needs_cluster=False)
def help_names_every_option():
    done = run("--help")
    expect(done.returncode == 0, done.stderr)
    for option in ("--workers", "--rate", "--delay", "--loss", "--timeout", "--clean"):
        expect(option in done.stdout, f"{option} is not in the help")


@case(needs_cluster=False)
def missing_tools_are_named_with_their_package():
    with tempfile.TemporaryDirectory() as empty:
        for tool in ("bash", "uname", "env", "id", "dirname"):
            os.symlink(f"/usr/bin/{tool}", f"{empty}/{tool}")
        done = run("--", "true", env={"PATH": empty})
    expect(done.returncode == NO_CLUSTER and "iproute2" in done.stderr, f"{done.returncode}: {done.stderr}")


@case(needs_cluster=True)
def every_host_runs_the_command_once():
    done = run("--workers", "3", "--rate", "1gbit", "--", "sh", "-c",
               "ip -4 -o address show dev eth0 | sed -E 's/.*inet ([0-9.]+).*/\\1/'; echo rate=$GLOBALQ_CLUSTER_RATE")
    lines = sorted(done.stdout.split())
    expect(lines == ["10.77.0.1", "10.77.0.2", "10.77.0.3"] + ["rate=1gbit"] * 3, done.stdout + done.stderr)


@case(needs_cluster=True)
def the_exit_status_is_that_of_the_command():
    expect(run("--workers", "2", "--", "sh", "-c", "exit 7").returncode == 7, "not 7")


@case(needs_cluster=True)
def links_keep_their_rate():
    done = run("--workers", "2", "--rate", "100mbit", "--", sys.executable, "-c", FLOOD)
    seconds = float(done.stdout.split()[1])
    # 24 Mbit, less what is let pass at once (48 KiB on each end of two links), cannot be faster; how much slower a busy
    # machine is cannot be told.
    fastest = (3e6 - 4 * 49152) * 8 / 100e6
    expect(fastest <= seconds, f"{seconds} s, and the rate allows {fastest} s")


@case(needs_cluster=True)
def packets_are_delayed_on_their_way_to_another_host():
    done = run("--workers", "2", "--delay", "20ms", "--loss", "1%", "--", sys.executable, "-c", ECHO)
    expect(done.returncode == 0, done.stderr)
    seconds = float(done.stdout.split()[1])
    expect(0.040 <= seconds <= 0.5, f"a round trip of {seconds} s")


@case(needs_cluster=True)
def time_that_is_up_ends_the_command():
    done = run("--workers", "2", "--timeout", "2", "--", "sleep", "87.1")
    expect(done.returncode == 124 and "--timeout allows more" in done.stderr, f"{done.returncode}: {done.stderr}")
    expect(not sleepers("87.1"), "the command still runs")


@case(needs_cluster=True)
def nothing_is_left_however_a_run_ends():
    for ending, command in ((None, ["true"]), (None, ["false"]), (None, ["/nonexistent"]), (None, ["--delay", "1ms", "--", "true"]),
                            (signal.SIGTERM, ["sleep", "87.2"]), (signal.SIGINT, ["sleep", "87.2"]),
                            (signal.SIGHUP, ["sleep", "87.2"])):
        process = start("--workers", "2", *(command if "--" in command else ["--", *command]))
        if ending is not None:
            wait_for(lambda: len(sleepers("87.2")) == 2, "the command")
            process.send_signal(ending)
        status = process.wait(timeout=60)
        expect(ending is None or status == 128 + ending, f"{ending}: exit status {status}")
        expect(not left_by(process.pid), f"{command}, {ending}: left: {left_by(process.pid)}")
        expect(not sleepers("87.2"), f"{ending}: the command still runs")


@case(needs_cluster=True)
def a_run_that_is_interrupted_while_it_is_set_up_leaves_nothing():
    for delay in (0.02, 0.05, 0.1, 0.2):
        process = start("--workers", "8", "--", "true")
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        expect(not left_by(process.pid), f"after {delay} s: left: {left_by(process.pid)}")


@case(needs_cluster=True)
def two_runs_do_not_meet():
    first = start("--workers", "2", "--", "sleep", "87.3")
    try:
        wait_for(lambda: len(sleepers("87.3")) == 2, "the first run")
        done = run("--workers", "2", "--", "true")
        expect(done.returncode == 0, done.stderr)
        expect(len(sleepers("87.3")) == 2 and first.poll() is None, "the first run has ended")
    finally:
        first.terminate()
        first.wait(timeout=60)


@case(needs_cluster=True)
def clean_removes_what_a_killed_run_has_left_and_nothing_else():
    killed, alive = start("--workers", "2", "--", "sleep", "87.4"), start("--workers", "2", "--", "sleep", "87.5")
    try:
        wait_for(lambda: len(sleepers("87.4")) == 2 and len(sleepers("87.5")) == 2, "both runs")
        killed.kill()
        killed.wait(timeout=60)
        expect(left_by(killed.pid), "nothing was left")
        done = run("--clean")
        expect(done.returncode == 0, done.stderr)
        expect(not left_by(killed.pid) and not sleepers("87.4"), f"left: {left_by(killed.pid)}")
        expect(len(sleepers("87.5")) == 2 and alive.poll() is None, "another run was ended")
    finally:
        alive.terminate()
        alive.wait(timeout=60)


def refusal():
    """Why there can be no cluster here; empty when there can."""
    done = run("--workers", "2", "--", "true")
    return done.stderr.strip() if done.returncode == NO_CLUSTER else ""


def main():
    reason = refusal()
    if reason:
        print(f"no cluster here: {reason}")

    def skip():
        raise runner.Skipped

    return runner.run("cluster", [(name, skip if needs_cluster and reason else function)
                                  for name, function, needs_cluster in cases])


if __name__ == "__main__":
    sys.exit(main())
