#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins the parts that the sections of scripts/bench wrote, and adds to each the machine and the build of its measurement.

usage: report.py --build BUILD --results FOLDER --output FILE SECTION...
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

TITLES = {
    "kernels": "Kernels",
    "peers": "Peers",
    "collectives": "The whole mean in shared memory",
    "cluster": "The whole mean over an emulated cluster",
    "device": "Kernels on a GPU",
    "levels": "Variance of learned and of fixed levels",
}
INSTRUCTIONS = ["avx2", "avx512f", "avx512bw", "avx512vbmi", "avx512_vbmi2", "avx512_vnni", "avx512_fp16", "amx_int8", "asimd", "sve"]


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def size(text: str) -> str:
    """2048K -> 2 MiB"""
    kib = int(text.rstrip("K"))
    return f"{kib // 1024} MiB" if kib % 1024 == 0 else f"{kib} KiB"


def machine() -> str:
    fields = {}
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    model = fields.get("model name", os.uname().machine)
    if "cpu family" in fields:
        model += f" (family {fields['cpu family']}, model {fields.get('model')})"
    caches = []
    for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, text = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                caches.append(f"L{level} {size(text)}")
        except (OSError, ValueError):
            pass
    found = set((fields.get("flags") or fields.get("Features") or "").split())
    cores = len(os.sched_getaffinity(0))
    parts = [model, f"{cores} hardware thread" + ("s" if cores > 1 else ""), *caches,
             " ".join(name for name in INSTRUCTIONS if name in found)]
    return ", ".join(part for part in parts if part)


def build_of(folder: pathlib.Path) -> str:
    cache = {}
    for line in (folder / "CMakeCache.txt").read_text().splitlines():
        entry = re.match(r"^([A-Za-z0-9_]+):[A-Z]+=(.*)$", line)
        if entry:
            cache[entry[1]] = entry[2]
    kind = cache.get("CMAKE_BUILD_TYPE", "").upper()
    flags = f"{cache.get('CMAKE_CXX_FLAGS', '')} {cache.get(f'CMAKE_CXX_FLAGS_{kind}', '')}".strip()
    return f"{first_line(cache['CMAKE_CXX_COMPILER'], '--version')}, `{flags}`"


def commit() -> str:
    """The commit of the current folder, with -dirty if a tracked file was changed."""
    return first_line("git", "describe", "--always", "--dirty") or "unknown"


def today() -> str:
    return str(datetime.datetime.now(datetime.timezone.utc).date())


def provenance(build: pathlib.Path) -> str:
    """The origin of measurements that are reported immediately."""
    return f"Measured {today()} at commit `{commit()}` on {machine()}. Built with {build_of(build)}.\n"


def place(results: pathlib.Path, section: str, folder: pathlib.Path, copy: bool) -> str:
    """The link to the chart of a section; `copy`: first copies the chart to images/ beside the document."""
    image = results / f"{section}.png"
    if not image.exists():
        return ""
    if copy:
        target = folder / "images" / f"bench-{section}.png"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(image, target)
        image = target
    return f"\n![{TITLES[section]}]({os.path.relpath(image, folder)})\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("sections", nargs="+")
    options = parser.parse_args()

    folder = options.output.parent
    folder.mkdir(parents=True, exist_ok=True)
    document = options.output.read_text() if options.output.exists() else ""
    kept = "<!-- begin: " in document
    about = provenance(options.build)
    report = "# Benchmarks of globalq\n"
    status = 0
    for section in options.sections:
        skipped = options.results / f"{section}.skipped"
        reason = skipped.read_text().strip() if skipped.exists() else ""
        part = options.results / f"{section}.md"
        text = f"Not measured: {reason}.\n" if reason else \
            about + place(options.results, section, folder, kept) + "\n" + part.read_text().strip() + "\n"
        report += f"\n## {TITLES[section]}\n\n{text}"
        if not kept or reason:
            continue
        marked = re.compile(rf"(<!-- begin: {section} -->\n).*?(<!-- end: {section} -->)", re.DOTALL)
        document, found = marked.subn(lambda match: f"{match[1]}{text}{match[2]}", document)
        if not found:
            print(f"bench: {options.output} has no lines `<!-- begin: {section} -->` and "
                  f"`<!-- end: {section} -->`; its table is in {part}", file=sys.stderr)
            status = 1
    options.output.write_text(document if kept else report)
    print(f"bench: the report is in {options.output}")
    return status


if __name__ == "__main__":
    sys.exit(main())
