#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code shown in README.md is the code of a compiled example, line for line.

usage: readme_examples.py SOURCE_DIR
"""
import pathlib
import re
import sys
import textwrap

root = pathlib.Path(sys.argv[1])
readme = (root / "README.md").read_text()
blocks = [b.strip() for b in re.findall(r"```cpp\n(.*?)```", readme, re.S)]
for name in ("first-mean", "device-mean", "trainer-calls"):
    path = f"examples/{name.replace('-', '_')}.cpp"
    inner = re.search(rf"//! \[{name}\]\n(.*?) *//! \[{name}\]", (root / path).read_text(), re.S).group(1)
    if textwrap.dedent(inner).strip() not in blocks:
        sys.exit(f"README.md does not show {path} as it is; copy the part between the markers")
for command in ("scripts/demo", "scripts/test"):
    if command not in readme:
        sys.exit(f"README.md does not name {command}")
for path in re.findall(r"\]\(((?:docs|LICENSE|CONTRIBUTING|CHANGELOG|examples)[^)]*)\)", readme):
    if not (root / path).exists():
        sys.exit(f"README.md links to {path}, which does not exist")
print("README.md agrees with its examples")
