#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of scripts/cluster that delay and lose packets, for kernels without netem.

usage: slow_links.py DELAY LOSS SWITCH HOST...

DELAY   seconds from a host to the switch
LOSS    share of the packets from a host that are lost
SWITCH  network namespace of the switch, where link K ends as the device portK; HOST: that of a host, where it ends as eth0

Prints "ready" when all devices exist, and passes frames on until it is killed; the devices vanish with it.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000
FRAME = 65600


def device(namespace: str, name: str) -> int:
    """Makes a TAP device in a namespace; returns what its frames are read from and written to."""
    with open(f"/run/netns/{namespace}") as inside:
        if ctypes.CDLL(None, use_errno=True).setns(inside.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"entering the namespace {namespace}")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def write(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except OSError:
        pass  # the device is down, or its queue is full: the frame is lost, as on a wire


def main() -> None:
    delay, loss, (switch, *hosts) = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    links = [(device(host, "eth0"), device(switch, f"port{k}")) for k, host in enumerate(hosts)]
    print("ready", flush=True)
    away, poll = {}, select.poll()
    for near, far in links:
        away[near], away[far] = far, near
        poll.register(near, select.POLLIN), poll.register(far, select.POLLIN)
    hosts_ends = {near for near, _ in links}
    waiting = collections.deque()  # (time, device, frame), in the order of their times, because all have one delay
    draw = random.Random(1)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for tap, _ in poll.poll(None if timeout is None else timeout * 1e3):
            for _ in range(16):
                try:
                    frame = os.read(tap, FRAME)
                except OSError:
                    break
                if tap not in hosts_ends:
                    write(away[tap], frame)
                elif draw.random() >= loss:
                    waiting.append((time.monotonic() + delay, away[tap], frame))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            write(*waiting.popleft()[1:])


if __name__ == "__main__":
    main()
