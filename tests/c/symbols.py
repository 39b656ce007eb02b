#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A library shows the functions that a header declares, and nothing else.

usage: tests/c/symbols.py NM LIBRARY HEADER
"""

import re
import subprocess
import sys
from pathlib import Path

nm, library, header = sys.argv[1:]
declared = set(re.findall(r"\b(globalq_\w+)\(", " ".join(re.findall(r"^GLOBALQ_C [^;]*;", Path(header).read_text(), re.MULTILINE))))
lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.splitlines()
shown = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] != "A"}
if declared != shown or not 10 < len(declared) <= 37:
    sys.exit(f"declared only: {sorted(declared - shown)}\nshown only: {sorted(shown - declared)}\n{len(declared)} functions")
print(f"{len(shown)} functions, as declared")
