#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Zeroes the device code of other architectures in a shared library, so that it compresses to a tenth.

usage: one_architecture.py LIBRARY OUTPUT [KEEP=90]

All headers stay, so the CUDA runtime finds the same entries; the driver decompresses only the one of its GPU. Of relocatable code, which is
read only where no machine code fits, nothing stays. NCCL 2.30.7 reduced so ran on an H200.
"""

import collections
import struct
import sys

FATBIN, CUBIN = 0xBA55ED50, 2


def main() -> int:
    library, output, keep = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 90
    data = bytearray(open(library, "rb").read())
    table = struct.unpack_from("<Q", data, 0x28)[0]
    size, number, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(number)]
    kept = collections.Counter()
    for section in sections:
        offset, length = section[4], section[5]
        start = sections[names][4] + section[0]
        name = data[start:data.index(0, start)].decode()
        if name.startswith(".debug"):
            data[offset:offset + length] = bytes(length)
        if name not in (".nv_fatbin", "__nv_relfatbin"):
            continue
        at, end = offset, offset + length
        while at + 16 <= end:
            if struct.unpack_from("<I", data, at)[0] != FATBIN:
                at += 8
                continue
            header, bytes_of_entries = struct.unpack_from("<HQ", data, at + 6)
            entry, at = at + header, at + header + bytes_of_entries
            while entry + 64 <= at:
                kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
                architecture = struct.unpack_from("<I", data, entry + 28)[0]
                if kind not in (1, CUBIN) or entry_header < 64 or payload == 0:
                    break
                stays = architecture == keep and kind == CUBIN and name == ".nv_fatbin"
                kept[stays] += payload
                if not stays:
                    data[entry + entry_header:entry + entry_header + payload] = bytes(payload)
                entry += entry_header + payload
    if not kept[True]:
        print(f"one_architecture: {library} has no machine code for {keep}", file=sys.stderr)
        return 1
    open(output, "wb").write(data)
    print(f"kept {kept[True]} bytes of device code, zeroed {kept[False]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
