# SPDX-License-Identifier: Apache-2.0
"""python -m globalq advise: which operator, schedule and chunks to use on this machine."""

import sys

from ._advise import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["advise"]:
        print("usage: python -m globalq advise --help", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[2:]))
