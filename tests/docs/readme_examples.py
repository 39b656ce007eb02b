#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documents show is what compiled programs do, and their links lead somewhere.

- Each block of C++ in README.md and the pages of COPIES is the part of an example between two markers `//! [name]`, line for
  line; those of MIXED also have other CMake. All these pages together show each part of the examples in SHOWN.
- Each block of CMake there consists of lines of one project in tests/consumer, which builds.
- Each relative link of a document names a file of the repository and, after a #, a heading of it.

tests/python/test_documents.py runs the blocks of Python.

usage: readme_examples.py SOURCE_DIR
"""
import pathlib
import re
import sys
import textwrap

COPIES = ("docs/start.md", "docs/trainer.md", "docs/composing.md", "docs/extending.md", "docs/layers.md", "docs/learned_levels.md",
          "docs/model.md", "docs/nccl.md", "docs/telemetry.md", "docs/unbiased.md", "examples/torch_trainer/README.md")
MIXED = ("docs/benchmarking.md",)
SHOWN = ("examples/first_mean", "examples/device_mean", "examples/trainer_calls", "examples/custom_policy", "examples/compiled_once",
         "examples/benchmark_operator", "examples/layer_calls", "examples/nccl_trainer")

root = pathlib.Path(sys.argv[1])
problems = []


def documents():
    yield from root.glob("*.md")
    for folder in ("docs", "python", "examples", "bench", "tests", "tools"):
        yield from (root / folder).rglob("*.md")


def blocks(text, language):
    return [b.strip() for b in re.findall(rf"```{language}\n(.*?)```", text, re.S)]


def snippets():
    """The parts of examples and of their tests between markers, by file and name."""
    for path in (*root.glob("examples/**/*.[ch]pp"), *root.glob("tests/examples/*.cpp")):
        for name, inner in re.findall(r"//! \[([\w-]+)\]\n(.*?) *//! \[\1\]", path.read_text(), re.S):
            yield f"{path.relative_to(root)} [{name}]", textwrap.dedent(inner).strip()


def lines_of_project(text):
    """Lines of a CMakeLists.txt; the documents call its target trainer, and have its source beside it."""
    return {line.strip() for line in text.replace("consumer", "trainer").replace("../", "").splitlines()}


def without_code(text):
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^( *)```.*?^ *```", "", text, flags=re.S | re.M))


def anchors(text):
    """Of headings: those that GitHub gives, and those that are given to Doxygen as {#name}."""
    for heading in re.findall(r"^#+ +(.*)$", without_code(text), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        yield from re.findall(r"\{#(\w+)\}", heading)


compiled = dict(snippets())
projects = {p: lines_of_project(p.read_text().replace("mpi.cpp", "main.cpp")) for p in root.glob("tests/consumer/*/CMakeLists.txt")}
shown = set()
for name in ("README.md", *COPIES, *MIXED):
    text = (root / name).read_text()
    for block in blocks(text, "cpp"):
        same = [snippet for snippet, code in compiled.items() if code == block]
        shown.update(same)
        if not same:
            problems.append(f"{name} shows C++ that is no example between markers; it begins: {block.splitlines()[0]}")
    for block in blocks(text, "cmake") if name not in MIXED else ():
        if not any({line.strip() for line in block.splitlines()} <= lines for lines in projects.values()):
            problems.append(f"{name} shows CMake that is in no project of tests/consumer; it begins: {block.splitlines()[0]}")
for snippet in compiled:
    if snippet.startswith(SHOWN) and snippet not in shown:
        problems.append(f"no document shows {snippet}")
for command in ("scripts/demo", "scripts/test"):
    if command not in (root / "README.md").read_text():
        problems.append(f"README.md does not name {command}")

links = 0
for path in sorted(documents()):
    text = without_code(path.read_text())
    if "@ref" in text or "@snippet" in text:
        problems.append(f"{path.relative_to(root)} has a command of Doxygen, which GitHub shows as it is; use a Markdown link or a copy")
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        links += 1
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            problems.append(f"{path.relative_to(root)} links to {target}, which does not exist")
        elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
            problems.append(f"{path.relative_to(root)} links to {target}, but there is no such heading")
if problems:
    sys.exit("\n".join(problems))
print(f"{len(shown)} parts of examples are shown as they are; {links} links lead somewhere")
