#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the size of each kernel's arguments on the host with that on the device.

    tests/cuda/argument_sizes.py OBJECT...        (of nvcc, with --no-compress -Xcompiler=-g)

The runtime copies as many bytes of an argument as the device code declares. Where host and device lay out a type differently,
as nvcc 13 does with [[no_unique_address]], a kernel reads members at other offsets than the host wrote them to, and nothing
reports it. sizeof() in device code is no witness, because the front end computes it: the PTX has the device's sizes, the debug
information of the function that launches the kernel (its stub) has the host's.
"""

import re
import subprocess
import sys
from pathlib import Path

SCALARS = {"8": 1, "16": 2, "32": 4, "64": 8}


def device_sizes(path):
    """kernel -> sizes of its arguments, of the PTX that stands in the object as text."""
    text = Path(path).read_bytes().decode("latin-1")
    kernels = {}
    for name, arguments in re.findall(r"\.entry (\w+)\s*\(([^{;]*?)\)", text):
        kernels[name] = [int(size) if size else SCALARS[bits] for bits, size in
                         re.findall(r"\.param (?:\.align \d+ )?\.[a-z](\d+) \w+(?:\[(\d+)\])?", arguments)]
    return kernels


def host_sizes(path):
    """The same by the debug information of stubs."""
    dump = subprocess.run(["readelf", "--debug-dump=info", str(path)], check=True, capture_output=True, text=True).stdout
    entries, stubs, stub, depth = {}, {}, None, 0
    for found in re.finditer(r"^ <(\d+)><(\w+)>: .*\((DW_TAG_\w+)\)\n((?: {4}.*\n)*)", dump, re.MULTILINE):
        level, offset, tag, attributes = int(found[1]), found[2], found[3], found[4]
        size = re.search(r"DW_AT_byte_size\s*: (\w+)", attributes)
        target = re.search(r"DW_AT_type\s*: <0x(\w+)>", attributes)
        entries[offset] = (tag, size and int(size[1], 0), target and target[1])
        if tag == "DW_TAG_subprogram":
            name = re.search(r"DW_AT_name .*: __device_stub_(_Z\w+)$", attributes, re.MULTILINE)
            stub, depth = name and stubs.setdefault(name[1], []), level
        elif tag == "DW_TAG_formal_parameter" and stub is not None and level == depth + 1 and target:
            stub.append(target[1])

    def size_of(offset):
        tag, size, target = entries[offset]
        if tag == "DW_TAG_reference_type" or size is None:  # large arguments are passed to a stub by reference
            return size_of(target)
        return size

    return {name: [size_of(argument) for argument in arguments] for name, arguments in stubs.items()}


def main():
    compared, wrong = 0, []
    for path in sys.argv[1:]:
        device, host = device_sizes(path), host_sizes(path)
        if not device:
            wrong.append(f"{path}: no PTX as text; compile with --no-compress")
        for name, sizes in device.items():
            compared += 1
            if name not in host:
                wrong.append(f"{name}: no debug information of its stub; compile with -Xcompiler=-g")
            elif host[name] != sizes:
                wrong.append(f"{name}: arguments of {host[name]} bytes on the host, {sizes} on the device")
    if wrong or not compared:
        sys.exit("\n  ".join(["arguments of kernels:", *(wrong or ["no kernels found"])]))
    print(f"{compared} kernels have arguments of the same size on host and device")


if __name__ == "__main__":
    main()
