# SPDX-License-Identifier: Apache-2.0
"""python -m globalq advise: which operator, schedule and chunks to use on this machine; report: what processes have sent, and how."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["advise"]:
        from ._advise import main
    elif sys.argv[1:2] == ["report"]:
        from ._report import main
    else:
        print("usage: python -m globalq advise|report --help", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[2:]))
