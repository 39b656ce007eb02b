#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder of the library includes only folders above it, and scalars need no Kokkos.

Headers include one another by relative paths. An include that names no header is refused, also one of a file outside the
library. Definitions (*-inl.hpp, definitions.hpp) count as headers; sources in src/ are not checked, because all folders are
above them and no header can include them.

usage: tests/header_test/folder_order.py INCLUDE_DIR      checks the headers, and first itself
The order is the road of a vector, as docs/design.md tells it. Folders of one line do not include one another.
"""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

ORDER = """
core
random
levels rounding wire reduce norm
kernel
operator
transport
schedule
plan
telemetry
call
collective
train/learn
train/adapt
baseline model bench check
named
"""

# The optional parts (cmake/globalq_parts.cmake), each with the other parts that it includes. Nothing else includes them.
PARTS = {"train/adapt": (), "baseline": ("train/adapt", ), "model": ()}

# Above the kernels there is none of Kokkos, but for what tells its views from other vectors.
SCALARS = ("core", "random", "levels", "rounding", "wire", "reduce", "norm")
VIEWS = "core/vector.hpp"

# A transport over streams brings the calls over streams with it: users need no other header.
BROUGHT = {("transport/nccl.hpp", "stream.hpp"), ("transport/staged.hpp", "stream.hpp")}

# CMake writes this header; it includes nothing, so all may include it.
GENERATED = "globalq/version.hpp"


def station(header: pathlib.Path, place: dict) -> str:
    """The folder of ORDER that a header is in: its first folder, or its first two."""
    two = "/".join(header.parts[:2])
    return two if two in place else header.parts[0]


def problems_in(include_dir: pathlib.Path) -> list:
    """A sentence for each wrong include of the headers in a folder."""
    place = {folder: k for k, line in enumerate(ORDER.split("\n")) for folder in line.split()}
    root = include_dir.resolve() / "globalq"
    wrong = []
    for header in sorted(root.rglob("*.hpp")):
        folder = station(header.relative_to(root), place)
        umbrella = folder == header.name
        if not umbrella and folder not in place:
            wrong.append(f"{folder}/ has no place in the order; give it one in {pathlib.Path(__file__).name}")
            continue
        text, name_here = header.read_text(), str(header.relative_to(root))
        if folder in SCALARS and name_here != VIEWS and re.search(r"^\s*#\s*include\s*<Kokkos", text, re.MULTILINE):
            wrong.append(f"{name_here} includes Kokkos; scalars are compiled for each instruction set, without it")
        for bracket, name in re.findall(r'^\s*#\s*include\s*([<"])(.*?)[>"]', text, re.MULTILINE):
            ours = name.startswith("globalq/")
            if name == GENERATED or (bracket == "<" and not ours):
                continue
            if ours:
                wrong.append(f"{name_here} includes {name} by its full path; write the path relative to {name_here}")
            found = (root.parent if ours else header.parent) / name
            if not found.is_file() or root not in found.resolve().parents:
                wrong.append(f"{name_here} includes {name}, which is no header of the library")
                continue
            other = station(found.resolve().relative_to(root), place)
            if (name_here, other) in BROUGHT:
                continue
            if not umbrella and other != folder and place.get(other, len(place)) >= place[folder]:
                wrong.append(f"{name_here} includes {name}, and {other}{'/' if other in place else ''} is not above {folder}/")
            elif not umbrella and other in PARTS and other != folder and other not in PARTS.get(folder, ()):
                wrong.append(f"{name_here} includes {name}, and {other}/ is an optional part, which {folder}/ has to do without")
    return list(dict.fromkeys(wrong))


# A header, its text, and parts of the sentences that refuse it.
SAMPLES = (
    ("transport/a.hpp", '#include "../core/error.hpp"\n#include "b.hpp"\n#include "b-inl.hpp"\n#include <globalq/version.hpp>\n', ()),
    ("train.hpp", '#include "train/adapt/choice.hpp"\n', ()),
    ("transport/a.hpp", '#include "../train/adapt/choice.hpp"\n', ("train/adapt/ is not above transport/", )),
    ("transport/a.hpp", '#  include "globalq/train/adapt/choice.hpp"\n', ("by its full path", "train/adapt/ is not above transport/")),
    ("transport/a.hpp", "#include <globalq/train/adapt/choice.hpp>\n", ("by its full path", "train/adapt/ is not above transport/")),
    ("transport/a.hpp", '#include "globalq/core/error.hpp"\n', ("by its full path", )),
    ("transport/b-inl.hpp", '#include "../train/adapt/choice.hpp"\n', ("train/adapt/ is not above transport/", )),
    ("transport/a.hpp", '#include "core/error.hpp"\n', ("core/error.hpp, which is no header of the library", )),
    ("train.hpp", '#include "train/choice.hpp"\n', ("train/choice.hpp, which is no header of the library", )),
    ("transport/a.hpp", '#include "../../../src/source.hpp"\n', ("source.hpp, which is no header of the library", )),
    ("transport/a.hpp", '#include "../train.hpp"\n', ("train.hpp is not above transport/", )),
    ("baseline/a.hpp", '#include "../train/adapt/choice.hpp"\n', ()),
    ("named/a.hpp", '#include "../train/adapt/choice.hpp"\n', ("train/adapt/ is an optional part", )),
    ("levels/a.hpp", '#include "../wire/frame.hpp"\n', ("wire/ is not above levels/", )),
    ("levels/a.hpp", "#include <Kokkos_Core.hpp>\n", ("includes Kokkos", )),
    ("elsewhere/a.hpp", "", ("elsewhere/ has no place", )),
)  # yapf: disable


def samples_are_refused():
    """Each sample joins a small library in which nothing is wrong."""
    for name, text, wanted in SAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "include/globalq"
            for other in ("core/error.hpp", "transport/b.hpp", "transport/b-inl.hpp", "train/adapt/choice.hpp", "train.hpp",
                          "wire/frame.hpp", "../../src/source.hpp"):
                (root / other).parent.mkdir(parents=True, exist_ok=True)
                (root / other).resolve().write_text("")
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
            found = problems_in(root.parent)
            if len(found) != len(wanted) or not all(part in sentence for part, sentence in zip(wanted, found)):
                raise runner.Failed(f"{name} with {text!r}: {found}")


def headers_are_in_order():
    include_dir = pathlib.Path(sys.argv[1])
    if not any(include_dir.glob("globalq/*/*.hpp")):
        raise runner.Failed(f"no headers in {include_dir}")
    if found := problems_in(include_dir):
        raise runner.Failed("\n".join(found))


def main() -> int:
    return runner.run("header_test.folder_order",
                      [(case.__name__, case) for case in (samples_are_refused, headers_are_in_order)])


if __name__ == "__main__":
    sys.exit(main())
