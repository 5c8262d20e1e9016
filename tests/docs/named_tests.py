# SPDX-License-Identifier: BSL-1.0
"""The test docs/guarantees: every entry of the pages names tests, and every test named is there.

    named_tests.py <the repository>

An entry is an item of a list that begins with bold words, `- **a promise.** ...`. Its tests are the
items below it, `  - `file`: "test", "test"`, with files below tests/. A quoted name is a TEST_CASE
there, or a misuse{...} of tests/checked; of a CMakeLists.txt it is a word in it. A heading `## `
ends an entry; entries before the first one are the summary.
"""

import re
import sys
from pathlib import Path

LEAST_TESTS = {"docs/guarantees.md": 150, "docs/faults.md": 110}
NAMED = re.compile(r'`(?P<file>[^`]+)`: (?P<names>"[^"]+"(?:, "[^"]+")*)')
TEST_CASE = re.compile(
    r'(?:TEST_CASE(?:_METHOD)?\((?:\w+,\s*)?|\bmisuse\{)\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


def items_of(page):
    """Each item below a heading: its line, whether it begins an entry, its words in one line."""
    item, below_heading = None, False
    for number, line in enumerate([*page.splitlines(), "## "], start=1):
        begins = re.match(r"(?P<indent> *)- (?P<text>.*)", line)
        continues = item and line.startswith(" " * (2 if item[1] else 4)) and not begins
        if continues:
            item = (*item[:2], f"{item[2]} {line.strip()}")
            continue
        if item:
            yield item
            item = None
        if line.startswith("## "):
            below_heading = True
        if begins and below_heading:
            item = (number, begins["indent"] == "", begins["text"])


def tests_in(file):
    """The names of the tests that a file makes."""
    text = file.read_text(encoding="utf-8")
    if file.name == "CMakeLists.txt":
        return set(re.findall(r"\w+", re.sub(r"#.*", "", text)))
    cases = TEST_CASE.findall(text)
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', case)) for case in cases}


def problems_of_tests(root, text):
    """What is wrong with an item that names tests, and how many it names."""
    match = NAMED.fullmatch(text)
    if match is None:
        return [f'expected `file`: "test", "test", found {text!r}'], 0
    file = root / "tests" / match["file"]
    if not file.is_file():
        return [f"there is no tests/{match['file']}"], 0
    there = tests_in(file)
    names = re.findall(r'"([^"]+)"', match["names"])
    problems = [
        f'tests/{match["file"]} has no test "{name}"' for name in names if name not in there
    ]
    return problems, len(names)


def problems_of(root, page, least):
    entry, held, count = None, True, 0
    for number, is_entry, text in items_of((root / page).read_text(encoding="utf-8")):
        at = f"{page}:{number}: "
        if is_entry:
            if not held:
                yield entry + "the entry names no test"
            if not text.startswith("**"):
                yield at + "expected bold words, the promise or the fault"
            entry, held = at, False
            continue
        problems, named = problems_of_tests(root, text)
        yield from (at + problem for problem in problems)
        count += named
        held = True
    if not held:
        yield entry + "the entry names no test"
    if count < least:
        yield f"{page}: expected {least} names of tests or more, found {count}"


def main():
    root = Path(sys.argv[1])
    problems = [p for page, least in LEAST_TESTS.items() for p in problems_of(root, page, least)]
    print("\n".join(problems) if problems else "all tests that the pages name are there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
