#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains replicas by torchft's DiLoCo over globalq's group while members are killed, stopped and started again.

    python3 bench/torch/storm.py --replicas 4 --events 200

Each replica is a process. An event hits a random one: SIGKILL, after which it starts again and heals from another; or SIGSTOP for some
seconds. Two others always run meanwhile and have healed, or the training would begin anew. It checks that all replicas have the same bits
after each committed step, except the last one before a kill, which survivors may not have committed, and prints the longest pause between
steps, and the loss beside that of a run without events. Exits with 1 if something is wrong. Needs torch 2.8 or newer and torchft.
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

    import globalq.torchft

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(1)
    teacher = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    held_out = torch.randn(1024, 64, generator=torch.Generator().manual_seed(7))
    seconds = timedelta(seconds=asked.timeout)
    group = globalq.torchft.ProcessGroup(asked.operator, timeout=seconds, least=timedelta(seconds=1))
    manager = torchft.Manager(
        pg=group, min_replica_size=2, use_async_quorum=False, replica_id=f"replica_{asked.replica}", rank=0, world_size=1,
        store_addr="localhost", store_port=store.port, lighthouse_addr=asked.lighthouse, timeout=seconds,
        quorum_timeout=timedelta(seconds=60), connect_timeout=timedelta(seconds=20),
        state_dict=lambda: {"model": model.state_dict(), "inner": inner.state_dict()},
        load_state_dict=lambda s: (model.load_state_dict(s["model"]), inner.load_state_dict(s["inner"])))
    draw = torch.Generator().manual_seed(1000 * asked.replica + int(time.time()))
    before = -1
    with DiLoCo(manager, [model], inner, outer, sync_every=asked.local) as outer_steps:
        while manager.current_step() < asked.steps:
            x = torch.randn(32, 64, generator=draw)
            inner.zero_grad()
            nn.functional.mse_loss(model(x), teacher(x).detach()).backward()
            inner.step()
            step = manager.current_step()
            if step != before and outer_steps._local_step == 0:
                before = step
                bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
                with torch.no_grad():
                    loss = nn.functional.mse_loss(model(held_out), teacher(held_out)).item()
                print(json.dumps({"replica": asked.replica, "step": step, "hash": hashlib.sha256(bits).hexdigest()[:16], "loss": loss,
                                  "members": manager.num_participants()}), flush=True)
    sys.stdout.flush()
    if asked.report:
        print(group.report() if group._pg is not None else "", file=sys.stderr, flush=True)
    os._exit(0)


class Replica:
    """A process, and a thread that collects its lines."""

    def __init__(self, command, lines):
        self.process, self.lines = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), []
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    def _read(self, lines):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))
                lines.append((time.monotonic(), self.lines[-1]))


def training(asked, events):
    """Returns the lines of all replicas, the number of events, and how many replicas did not end by themselves."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=500, heartbeat_timeout_ms=2000)
    address = lighthouse.address().replace(os.uname().nodename, "127.0.0.1")
    lines, draw = [], random.Random(asked.seed)

    def start(replica):
        return Replica([sys.executable, __file__, "--lighthouse", address, "--replica", str(replica), "--steps", str(asked.steps), "--local",
                        str(asked.local), "--operator", asked.operator, "--timeout", str(asked.timeout), *(["--report"] * asked.report)], lines)

    replicas, done, stopped = [start(k) for k in range(asked.replicas)], 0, {}
    deadline = time.monotonic() + asked.limit
    while time.monotonic() < deadline and any(r.process.poll() is None for r in replicas):
        time.sleep(draw.expovariate(1 / asked.every))
        now = time.monotonic()
        for k, until in list(stopped.items()):
            if now >= until:
                replicas[k].process.send_signal(signal.SIGCONT)
                del stopped[k]
        finished = any(r.process.poll() == 0 for r in replicas)
        if done < events and not finished and lines:
            k = draw.randrange(asked.replicas)
            healthy = [r for j, r in enumerate(replicas) if j != k and j not in stopped and r.process.poll() is None and r.lines]
            if k in stopped or replicas[k].process.poll() is not None or len(healthy) < 2:
                continue
            if draw.random() < 0.5:
                stopped[k] = now + draw.uniform(0.5, 2 * asked.timeout)
                replicas[k].process.send_signal(signal.SIGSTOP)
            else:
                replicas[k].process.kill()
                replicas[k].process.wait()
                for line in replicas[k].lines[-1:]:
                    line["last"] = True
            done += 1
        for k, r in enumerate(replicas):
            if r.process.poll() not in (None, 0) and not finished:
                replicas[k] = start(k)
    hung = sum(r.process.poll() is None for r in replicas)
    for r in replicas:
        r.process.kill()
    lighthouse.shutdown()
    return lines, done, hung


def checked(lines, what):
    """Returns how many steps were committed, the longest pause between two, the last loss, and what is wrong."""
    of, wrong = {}, []
    for _, line in lines:
        if not line.get("last"):
            of.setdefault(line["step"], set()).add(line["hash"])
    wrong += [f"{what}: replicas differ after step {step}" for step, hashes in sorted(of.items()) if len(hashes) > 1]
    times, pauses = sorted({line["step"]: at for at, line in reversed(lines)}.values()), [0.0]
    pauses += [b - a for a, b in zip(times, times[1:])]
    last = [line["loss"] for _, line in lines if line["step"] == max(of)]
    return max(of), max(pauses), last[0], wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--every", type=float, default=1.0, help="mean seconds between two events")
    parser.add_argument("--steps", type=int, default=200, help="outer steps")
    parser.add_argument("--local", type=int, default=20, help="inner steps of each")
    parser.add_argument("--operator", default="cgx:4")
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
        lines, done, hung = training(asked, events)
        if not lines:
            print(f"{what}: no step was committed", file=sys.stderr)
            return 1
        steps, pause, loss, found = checked(lines, what)
        wrong += found + ([f"{what}: {hung} replicas did not end"] if hung else [])
        wrong += [f"{what}: ended after step {steps}"] if steps < asked.steps - 1 else []
        print(f"{what}: {done} events, {steps} steps, longest pause {pause:.1f} s, loss {loss:.5f}", flush=True)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
