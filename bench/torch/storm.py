#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains replicas by DiLoCo, torchft's or globalq's, over globalq's group while members are killed, stopped and started again.

    python3 bench/torch/storm.py --replicas 4 --events 200
    python3 bench/torch/storm.py --replicas 4 --events 200 --trainer globalq --operator cgx:2,feedback,second=4

Each replica is a process. An event hits a random one: SIGKILL, after which it starts again and heals from another; or SIGSTOP for some
seconds. Two others always run meanwhile and have healed, or the training would begin anew. A replica may commit a step alone, if the others
have given it up and form a quorum before it comes: it heals then. So all replicas must have the same bits after each committed step, or at
their next one. No call may take longer than the deadline, apart from the time in which its own process was stopped. It prints the longest
call, the longest pause between steps (a member that is killed needs seconds to start), and the loss beside that of a run without events.
Exits with 1 if something is wrong. Needs torch 2.8 or newer and torchft.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta


def worker(asked):
    import hashlib
    import logging

    import torch
    import torchft
    from torch import nn
    from torchft.local_sgd import DiLoCo

    import globalq.torch
    import globalq.torchft
    from globalq import _group

    calls = timed(_group.Result)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(1)
    teacher = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held_out = torch.randn(1024, 64, generator=torch.Generator().manual_seed(7))
    seconds = timedelta(seconds=asked.timeout)
    own = asked.trainer == "globalq"
    group = globalq.torchft.ProcessGroup("cgx:4" if own else asked.operator, timeout=seconds, least=timedelta(seconds=1))
    manager = torchft.Manager(
        pg=group, min_replica_size=2, use_async_quorum=False, replica_id=f"replica_{asked.replica}", rank=0, world_size=1,
        store_addr="localhost", store_port=store.port, lighthouse_addr=asked.lighthouse, timeout=seconds,
        quorum_timeout=timedelta(seconds=60), connect_timeout=timedelta(seconds=20),
        state_dict=lambda: {"model": {} if own else model.state_dict(), "inner": inner.state_dict()},
        load_state_dict=lambda s: (own or model.load_state_dict(s["model"]), inner.load_state_dict(s["inner"])))
    draw = torch.Generator().manual_seed(1000 * asked.replica + int(time.time()))
    before = -1
    if own:
        trainer = local = globalq.torch.DiLoCo(model, every=asked.local, operator=asked.operator, manager=manager, check_every=5)
    else:
        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        trainer = DiLoCo(manager, [model], inner, outer, sync_every=asked.local)
    with trainer:
        while True:  # until main() ends it, so that others can heal from it
            x = torch.randn(32, 64, generator=draw)
            inner.zero_grad()
            nn.functional.mse_loss(model(x), teacher(x).detach()).backward()
            inner.step()
            moved = local.step() if own else trainer._local_step == 0
            step = manager.current_step()
            if step != before and moved:
                before = step
                bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
                with torch.no_grad():
                    loss = nn.functional.mse_loss(model(held_out), teacher(held_out)).item()
                print(json.dumps({"replica": asked.replica, "step": step, "hash": hashlib.sha256(bits).hexdigest()[:16], "loss": loss,
                                  "members": manager.num_participants(), "calls": calls}), flush=True)
                calls.clear()
                if step == asked.steps and asked.report:
                    print(group.report(), file=sys.stderr, flush=True)


def timed(results):
    """Returns a list that gets the begin and the end of each call of a class of results, by the clock that all processes have."""
    calls, run, finish = [], results.run, results.finish

    def begin(result, job):
        result.began = time.monotonic()
        run(result, job)

    def end(result, problem, stores=()):
        ends = not result.is_completed() and result.begun.is_set()
        finish(result, problem, stores)
        if ends:
            calls.append((result.began, time.monotonic()))

    results.run, results.finish = begin, end
    return calls


class Replica:
    """A process, and a thread that collects its lines."""

    def __init__(self, command, lines):
        self.process, self.lines, self.stops = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), [], []
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def stop(self):
        self.stops.append([time.monotonic(), None])
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        self.stops[-1][1] = time.monotonic()

    def _read(self, lines):
        for line in self.process.stdout:
            if line.startswith("{"):
                at, found = time.monotonic(), json.loads(line)
                self.lines.append(found)
                stops = [(begin, end or at) for begin, end in self.stops]
                found["longest"] = max((e - b - sum(max(0, min(e, end) - max(b, begin)) for begin, end in stops) for b, e in found["calls"]), default=0)
                lines.append((at, found))


def training(asked, events):
    """Returns the lines of all replicas, the number of events, and sentences about replicas that failed, or did not come to the last step."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=500, heartbeat_timeout_ms=2000)
    address = lighthouse.address().replace(os.uname().nodename, "127.0.0.1")
    lines, draw = [], random.Random(asked.seed)

    def start(replica):
        kept = "steps", "local", "operator", "trainer", "timeout"
        return Replica([sys.executable, os.path.abspath(__file__), "--lighthouse", address, "--replica", str(replica), *(["--report"] * asked.report),
                        *(text for name in kept for text in (f"--{name}", str(getattr(asked, name))))], lines)

    def step_of(replica):
        return replica.lines[-1]["step"] if replica.lines else -1

    wrong = []
    replicas, done, stopped, goal = [start(k) for k in range(asked.replicas)], 0, {}, asked.steps
    deadline = time.monotonic() + asked.limit
    while time.monotonic() < deadline and (done < events or stopped or min(map(step_of, replicas)) < goal):
        time.sleep(draw.expovariate(1 / asked.every))
        now = time.monotonic()
        for k, until in list(stopped.items()):
            if now >= until:
                replicas[k].go_on()
                del stopped[k]
        for k, r in enumerate(replicas):
            if r.process.poll() is not None:
                if r.process.returncode != -signal.SIGKILL:
                    wrong.append(f"replica {k} ended by itself with {r.process.returncode}")
                replicas[k] = start(k)
        k, latest = draw.randrange(asked.replicas), max(map(step_of, replicas))
        healthy = [r for j, r in enumerate(replicas) if j != k and j not in stopped and r.lines and step_of(r) >= latest - 2]
        if done == events or k in stopped or len(healthy) < 2 or not replicas[k].lines:
            continue
        if draw.random() < 0.5:
            stopped[k] = now + draw.uniform(0.5, 2 * asked.timeout)
            replicas[k].stop()
        else:
            replicas[k].kill()
        done, goal = done + 1, max(goal, latest + 5)
    wrong += [f"replica {k} came to step {step_of(r)} of {goal}" for k, r in enumerate(replicas) if step_of(r) < goal]
    for r in replicas:
        r.process.kill()
    lighthouse.shutdown()
    return lines, done, wrong


def checked(lines, what):
    """Returns how many steps were committed, how many of them differently, the longest pause between two, the longest call, the last loss, and what is wrong."""
    of, last, wrong = {}, {}, []
    for _, line in lines:
        of.setdefault(line["step"], set()).add(line["hash"])
    for _, line in lines:
        k, step = line["replica"], line["step"]
        if len(of[step]) > 1 and len(of.get(last.get(k), ())) > 1:
            wrong.append(f"{what}: replicas differ after step {step}; replica {k} also after step {last[k]}, before it")
        last[k] = step
    times, pauses = sorted({line["step"]: at for at, line in reversed(lines)}.values()), [0.0]
    pauses += [b - a for a, b in zip(times, times[1:])]
    loss, call = next(line["loss"] for _, line in lines if line["step"] == max(of)), max(line["longest"] for _, line in lines)
    return max(of), sum(len(hashes) > 1 for hashes in of.values()), max(pauses), call, loss, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--every", type=float, default=1.0, help="mean seconds between two events")
    parser.add_argument("--steps", type=int, default=200, help="outer steps at least; the last ones without events")
    parser.add_argument("--local", type=int, default=20, help="inner steps of each")
    parser.add_argument("--operator", default="cgx:4")
    parser.add_argument("--trainer", choices=["torchft", "globalq"], default="torchft", help="whose DiLoCo")
    parser.add_argument("--timeout", type=float, default=5.0, help="longest deadline of a call, s")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a whole run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="replicas print what they have sent")
    parser.add_argument("--lighthouse", help=argparse.SUPPRESS)
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ.setdefault("RUST_LOG", "error")  # torchft tells every quorum
    if asked.lighthouse:
        return worker(asked)
    wrong = []
    for what, events in (("calm", 0), ("storm", asked.events)) if asked.events else (("calm", 0),):
        lines, done, failed = training(asked, events)
        if not lines:
            print(f"{what}: no step was committed", file=sys.stderr)
            return 1
        steps, alone, pause, call, loss, found = checked(lines, what)
        wrong += found + [f"{what}: {sentence}" for sentence in failed]
        wrong += [f"{what}: {events - done} events did not happen"] if done < events else []
        wrong += [f"{what}: a call took {call:.1f} s, with a deadline of {asked.timeout:g} s"] if call > asked.timeout + 1 else []
        print(f"{what}: {done} events, {steps} steps, {alone} committed alone, longest call {call:.1f} s, longest pause {pause:.1f} s, loss {loss:.5f}", flush=True)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
