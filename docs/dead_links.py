#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a link of a page made from a document names a file or an anchor that does not exist, or docs/book.dox lacks a page.

Pages of classes and files are left out: Doxygen 1.9.4 itself links some to sections that it does not write.

usage: dead_links.py HTML_DIR
"""
import pathlib
import re
import sys
from urllib.parse import unquote

folder = pathlib.Path(sys.argv[1])
pages = {p.name: p.read_text(errors="replace") for p in folder.glob("*.html")}
anchors = {name: set(re.findall(r'(?:id|name)="([^"]+)"', text)) for name, text in pages.items()}
documents = {name: text for name, text in pages.items() if "<!-- PageDoc -->" in text}
if not documents:
    sys.exit(f"no page of {folder} is made from a document")
# Doxygen lists there what is no subpage of another page
alone = re.findall(r'<a class="el" href="([^"]+)"', pages.get("pages.html", ""))
if alone:
    sys.exit("docs/book.dox has no @subpage for " + ", ".join(alone))
dead, count = set(), 0
for page, text in documents.items():
    for target in re.findall(r'(?:href|src)="([^"]+)"', text):
        if re.match(r"\w+:", target):
            continue
        count += 1
        name, _, anchor = unquote(target.replace("&amp;", "&")).partition("#")
        name = name or page
        if not (folder / name).exists() or (anchor and name in anchors and anchor not in anchors[name]):
            dead.add(f"{page} links to {target}, which does not exist")
if dead:
    sys.exit("\n".join(sorted(dead)))
print(f"{count} links of {len(documents)} pages lead somewhere")
