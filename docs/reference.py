#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if the reference lacks a folder, a header or an inherited member, or shows what programs do not name.

- Each folder of include/globalq has a group, which lists its headers; each group of docs/groups.dox has a folder.
- Pages of classes with a base in a namespace detail list the public members of the base.
- No other class of a namespace detail has a page.

usage: reference.py HTML_DIR INCLUDE_DIR
"""
import pathlib
import re
import sys

html, include = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "globalq"
INTERNAL = {"internal"}  # what has a group and no folder
# What users look for first, and once did not find.
OF_COLLECTIVES = ["operator() (V &amp;&amp;x, Step", "operator() (X &amp;&amp;x, Y &amp;&amp;y, Step", "start (V &amp;&amp;x, Step",
                  "start (X &amp;&amp;x, Y &amp;&amp;y, Step", "wait (", "run_on (", "good (", "set_levels (", "forced_to_float32 (",
                  "reduce (", "levels (", "headroom ("]
EXPECTED = {"allreduce_mean": [*OF_COLLECTIVES, "plan ("], "reduce_scatter_mean": [*OF_COLLECTIVES, "plan (", "shard ("],
            "all_gather": [*OF_COLLECTIVES, "shard ("],
            "layered_mean": ["operator() (vector_group const", "start (vector_group const", "model ("],
            "stream_vector_codec": ["encode (V const &amp;x, encoding_key key, Step", "decode (Frame const &amp;frame, encoding_key key, Step",
                                    "decode_add (Frame const &amp;frame, encoding_key key, Step"]}

wrong = []
pages = {}  # members that the pages of a class and of its specializations declare
for path in html.glob("*.html"):
    text = path.read_text(errors="replace")
    title = re.search(r"<title>globalq: ([\w:]+)(?:&lt;.*)? (?:Class|Struct)(?: Template)? Reference</title>", text)
    if title:
        # "memitem:ID inherit .." are the folded lists of what the page itself does not describe
        rows = re.findall(r'<tr class="memitem:\w+">.*?ItemLeft"[^>]*>(.*?)</td>.*?ItemRight"[^>]*>(.*?)</td>', text, re.DOTALL)
        rows = [[re.sub(r"<[^>]+>|&#160;", "", cell).strip() for cell in row] for row in rows]
        pages.setdefault(title[1], []).extend(right for left, right in rows if left not in ("struct", "class"))


def name_of(member: str) -> str:
    return re.split(r"[ (=]", member)[0]


def members_of(wanted: str, in_detail: bool = False) -> list:
    return next((have for name, have in pages.items()
                 if name.split("::")[-1] == wanted and ("::detail::" in name) == in_detail), [])


groups = {path.stem.removeprefix("group__api__").replace("__", "_"): path.read_text(errors="replace")
          for path in html.glob("group__api__*.html")}
folders = set()
bases = set()
for header in sorted(p for kind in ("*.hpp", "*.h") for p in include.rglob(kind)):
    parts = header.relative_to(include).parts
    if len(parts) == 1 or "detail" in parts or header.stem.endswith("-inl"):
        continue
    folder = "_".join(parts[:2]) if parts[0] == "train" else parts[0]
    folders.add(folder)
    if folder in groups and f">{header.name}<" not in groups[folder]:
        wrong.append(f"the group {folder} does not list {header.relative_to(include)}")
    source = header.read_text()
    for name, base in re.findall(r"^(?:class|struct) ([\w:]+)[^{;:]*: (?:public )?detail::(\w+)", source, re.MULTILINE):
        bases.add(base)
        own, of_base = members_of(name), members_of(base, in_detail=True)
        if not of_base:
            wrong.append(f"{base}, a base of {name}, has no page; docs/groups.awk has a list of bases")
        have = {name_of(member) for member in own} | {base}
        wrong += [f"the page of {name} lacks {m} of its base {base}" for m in of_base if name_of(m) not in have]
for name, members in EXPECTED.items():
    wrong += [f"the page of {name} lacks {member}" for member in members
              if not any(have.startswith(member) for have in members_of(name))]
wrong += [f"include/globalq/{folder} has no group; add it to docs/groups.dox" for folder in sorted(folders - set(groups))]
parents = {folder.split("_")[0] for folder in folders}
wrong += [f"docs/groups.dox has a group {group}, and there is no such folder"
          for group in sorted(set(groups) - folders - parents - INTERNAL)]
wrong += [f"{full} has a page; hide it in docs/groups.awk" for full in sorted(pages)
          if "detail" in full.split("::") and not set(full.split("::")) & bases]
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(folders)} folders have a group; {len(bases)} bases show their members on the pages of their classes")
