#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the functions of CUDA and NCCL that programs refer to, and fails where a library of the emulated device lacks one.

usage: symbols.py --libraries LIBRARY... --programs PROGRAM...
"""

import argparse
import re
import subprocess
import sys

OURS = re.compile(r"^(__cuda[A-Z]|cuda[A-Z]|cu[A-Z]|nccl[A-Z]|pnccl[A-Z])")


def symbols(path: str, which: str) -> set:
    text = subprocess.run(["nm", "-D", which, path], check=True, capture_output=True, text=True).stdout
    names = (line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip())
    return {name for name in names if OURS.match(name)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", nargs="+", required=True)
    parser.add_argument("--programs", nargs="+", required=True)
    args = parser.parse_args()
    there = set().union(*(symbols(each, "--defined-only") for each in args.libraries))
    needed = set().union(*(symbols(each, "--undefined-only") for each in args.programs))
    registration = {name for name in needed if name.startswith("__cuda")}
    driver = {name for name in needed if re.match(r"cu[A-Z]", name)}
    nccl = {name for name in needed if "nccl" in name}
    print(f"{len(needed)} functions: {len(needed - registration - driver - nccl)} of the runtime, {len(registration)} of registration, "
          f"{len(driver)} of the driver, {len(nccl)} of NCCL")
    for name in sorted(needed):
        print(f"  {name}" + ("" if name in there else ": missing"))
    if not needed:
        print("no function at all: the programs are not linked to a shared runtime")
    return 0 if needed and needed <= there else 1


if __name__ == "__main__":
    sys.exit(main())
