#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tracked text files contain no British spelling, no name of version 0.1 that was replaced, and no phrase that was hard to read.

Reads every file that git tracks except those in EXCEPT and EXCEPT_FOLDERS, data and binary files. Prints FILE:LINE, the word and
its replacement, and exits with 1 when it finds any. To refuse another word, add a row to REFUSED and a sample to SAMPLES.

usage: plain_english_test.py SOURCE_DIR      checks the files, and first itself
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

# How the words of a row are looked for, in the text in lower case; {} stands for the words, separated by |.
INSIDE = "(?:{})"  # anywhere, also inside identifiers
VERB = "(?:{})(?=[aei])"  # the same, and -e, -ed, -ing or -ation follows: not specialist, not optimistic
WORD = r"\b(?:{})\b"
PART = "(?<![a-z])(?:{})(?![a-z])"  # a word, or a part of an identifier between underscores
WORD_END = r"(?:{})(?![a-z_])"
UNCAPITALIZED = "(?<![A-Za-z])(?:{})(?![a-z])"  # the same in the text as it is: a capitalized word may belong to a proper name

# Words, how they are looked for, and what to write instead.
REFUSED = (
    # British spelling
    ("quantis|normalis|initialis|optimis|synchronis|orthogonalis|discretis|vectoris|randomis|standardis|finalis|summaris|minimis|"
     "specialis", VERB, "-ize: quantize, normalize, ..."),
    ("centre|centres|centred|centring", UNCAPITALIZED, "center, centered, centering"),
    ("neighbour", INSIDE, "neighbor"),
    ("behaviour", INSIDE, "behavior"),
    ("colour", INSIDE, "color"),
    ("favour", INSIDE, "favor"),
    ("modelled|modelling", INSIDE, "modeled, modeling"),
    ("travelled|travelling", INSIDE, "traveled, traveling"),
    ("cancelled|cancelling", INSIDE, "canceled, canceling"),
    ("judgement", INSIDE, "judgment"),
    ("licence", INSIDE, "license"),
    ("programme|programmes", WORD, "program, programs"),
    ("towards", WORD, "toward"),
    # names of 0.1
    ("is_binary", WORD, "base_two"),
    ("detail::one_word|one_word.hpp|struct one_word|class one_word", WORD, "shared_draw"),
    ("facts_alone", INSIDE, "single_worker_facts"),
    ("resolve_alone", INSIDE, "resolve_single_worker"),
    ("deputy|deputies", PART, "relay, relays"),
    ("adapt::layout", WORD, "adapt::model_layout"),
    ("gq::layout|globalq::layout", WORD, "partition"),
    ("fixed_unit", INSIDE, "fixed_scale"),
    ("beyond_unit", INSIDE, "beyond_scale"),
    ("shared_outcome", INSIDE, "wait_result"),
    ("local_unit|agree_on_units|fixed:unit", INSIDE, "scale"),
    ("using lane =|::lane", WORD_END, "code_type"),
    ("addslanes|sumlane", INSIDE, "AddsPair, AddsSummands, Summand"),
    ("bucket_bytes|bucket_of_layer|bucket-kib", INSIDE, "group_bytes, group_of_layer, group-kib"),
    # phrases
    ("are told apart", WORD, "are distinguished, or name the difference"),
    ("for who knows", WORD, "if you know"),
    ("is no number", WORD, "is not finite, or is negative: say which"),
    ("nobody is told", WORD, "no listener is registered; pass a callback"),
    ("for nothing", r"(?<!stands )\b(?:{})\b(?! else)", "at no extra cost"),
    ("to anything but nothing", WORD, "while this variable is non-zero"),
    ("nothing goes wrong silently", WORD, "every failure is reported"),
    ("as ever where", WORD, "as with any"),
)

EXCEPT = ("CHANGELOG.md", "LICENSE", "CODE_OF_CONDUCT.md", "tests/docs/plain_english_test.py")
EXCEPT_FOLDERS = ("tests/fuzz/corpus/", "tests/golden/")
DATA = {".bib", ".csv", ".f32", ".gz", ".jsonl", ".png", ".svg"}

# (words, regular expression, whether case matters, replacement); searching for the words first makes it 10 times as fast
ROWS = tuple((words.split("|"), re.compile(how.format(words.replace(".", r"\."))), how is UNCAPITALIZED, instead)
             for words, how, instead in REFUSED)


def problems_in(name, text):
    """Lines of the report on one file."""
    lowered = text.lower()
    found = []
    for words, expression, exact, instead in ROWS:
        if any(word in lowered for word in words):
            found += [(match.start(), match.group(), instead) for match in expression.finditer(text if exact else lowered)]
    return [f'{name}:{text.count(chr(10), 0, at) + 1}: "{word}": write {instead}' for at, word, instead in sorted(found)]


def tracked(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode != 0:
        raise runner.Skipped("the sources are not in a git repository")
    return [name for name in os.fsdecode(listed.stdout).split("\0") if name]


def check(root):
    """Fails with the report on all files."""
    problems = []
    for name in tracked(root):
        path = root / name
        if name in EXCEPT or name.startswith(EXCEPT_FOLDERS) or path.suffix in DATA or path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if b"\0" not in content:
            problems += problems_in(name, content.decode(errors="replace"))
    if problems:
        raise runner.Failed("\n".join([f"{len(problems)} words to replace", *problems]))


# ---- The test of the test --------------------------------------------------------------------------------------------

# One sample or more of each row, in the order of REFUSED.
SAMPLES = (
    ("requantise", "is_initialised", "Optimising", "specialisation"), ("centred", "bucket_centre", "centring"), ("neighbourhood",), ("Behaviour",),
    ("colours",), ("favourite",), ("bytes_modelled",), ("travelled",), ("cancelled",), ("judgement",), ("licence",), ("programme",), ("Towards",),
    ("is_binary",), ("rounding::detail::one_word", "one_word.hpp"), ("facts_alone",), ("resolve_alone",), ("deputy", "Deputies"),
    ("adapt::layout",), ("gq::layout", "globalq::layout"), ("fixed_unit()",), ("beyond_unit",), ("shared_outcome",), ("norm::local_unit",), ("using lane = int", "Wire::lane"), ("SumLane",),
    ("overlap_options::bucket_bytes", "bucket_of_layer", "--bucket-kib"),
    ("are told apart",), ("for who knows",), ("alpha is no number",), ("Nobody is told",), ("checks for NaN for nothing",),
    ("to anything but nothing",), ("Nothing goes wrong silently",), ("as ever where",))
ALLOWED = (
    "quantize", "specialist", "optimistic", "Centre for Mathematics", "concentrate", "centers", "programmer", "one_word", "model_layout",
    "warp::lane_mask", "code 0 stands for nothing", "uses it for nothing else", "is not a number", "toward")


def every_row_refuses_its_samples():
    if len(SAMPLES) != len(REFUSED):
        raise runner.Failed(f"{len(REFUSED)} rows, but {len(SAMPLES)} lists of samples")
    for (words, _, instead), samples in zip(REFUSED, SAMPLES):
        for sample in samples:
            found = problems_in("a.md", f"first line\nthen {sample} and more\n")
            if len(found) != 1 or not found[0].startswith("a.md:2: ") or not found[0].endswith(f": write {instead}"):
                raise runner.Failed(f"{words} on '{sample}': {found}")


def other_words_are_allowed():
    for text in ALLOWED:
        if found := problems_in("a.md", text):
            raise runner.Failed(f"'{text}': {found}")


def a_file_with_an_old_word_is_refused():
    """Runs this script on a small repository, with an old word in a header and in the files that are left out."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "include").mkdir()
        header = root / "include/a.hpp"
        header.write_text("// fine\n// The behaviour of neighbours.\n")
        (root / "CHANGELOG.md").write_text("behaviour\n")
        (root / "data.csv").write_text("behaviour\n")
        (root / "binary").write_bytes(b"\0behaviour\n")
        (root / "untracked.md").write_text("behaviour\n")
        for command in (["init", "--quiet"], ["add", "include", "CHANGELOG.md", "data.csv", "binary"]):
            subprocess.run(["git", "-C", folder, *command], check=True, capture_output=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "GTEST_"))}
        environment["PLAIN_ENGLISH_INNER"] = "1"

        def run():
            return subprocess.run([sys.executable, __file__, folder], env=environment, capture_output=True, text=True, check=False)

        ran = run()
        wanted = ['include/a.hpp:2: "behaviour": write behavior', 'include/a.hpp:2: "neighbour": write neighbor']
        if ran.returncode != 1 or [line for line in ran.stdout.splitlines() if ": write " in line] != wanted:
            raise runner.Failed(f"exit status {ran.returncode}: {ran.stdout}{ran.stderr}")
        header.write_text("// The behavior of neighbors.\n")
        ran = run()
        if ran.returncode != 0:
            raise runner.Failed(f"exit status {ran.returncode} for American spelling: {ran.stdout}{ran.stderr}")


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    cases = [("tracked_files", lambda: check(source))]
    if "PLAIN_ENGLISH_INNER" not in os.environ:
        cases = [(function.__name__, function) for function in
                 (every_row_refuses_its_samples, other_words_are_allowed, a_file_with_an_old_word_is_refused)] + cases
    return runner.run("docs_plain_english", cases)


if __name__ == "__main__":
    sys.exit(main())
