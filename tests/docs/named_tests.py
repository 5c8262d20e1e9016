# SPDX-License-Identifier: BSL-1.0
"""The test docs/guarantees: every test that a page's tables name is in the file that they name.

    named_tests.py <the repository>

A cell under "held by" is `file`: "test", "test"<br>`file`: ... with files below tests/. A quoted
name is a TEST_CASE there, or a misuse{...} of tests/checked; of a CMakeLists.txt it is a word in it.
"""

import re
import sys
from pathlib import Path

LEAST_TESTS = {"docs/guarantees.md": 80, "docs/faults.md": 40}
ENTRY = re.compile(r'`(?P<file>[^`]+)`: (?P<names>"[^"]+"(?:, "[^"]+")*)')
TEST_CASE = re.compile(r'(?:TEST_CASE\(|\bmisuse\{)\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')


def rows(page):
    """Each row of the tables with a column "held by": its line and that cell."""
    column = None
    for number, line in enumerate(page.splitlines(), start=1):
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if column is None:
            column = cells.index("held by") if "held by" in cells else -1
            width = len(cells)
        elif column >= 0 and not re.fullmatch(r"[|\-: ]+", line):
            yield number, cells[column] if len(cells) == width else None


def tests_in(file):
    """The names of the tests that a file makes."""
    text = file.read_text(encoding="utf-8")
    if file.name == "CMakeLists.txt":
        return set(re.findall(r"\w+", re.sub(r"#.*", "", text)))
    cases = TEST_CASE.findall(text)
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', case)) for case in cases}


def problems_of(root, page, least):
    text = (root / page).read_text(encoding="utf-8")
    count = 0
    for number, cell in rows(text):
        at = f"{page}:{number}: "
        if cell is None:
            yield at + "expected as many cells as the header has"
            continue
        entries = cell.split("<br>")
        for entry in entries:
            match = ENTRY.fullmatch(entry)
            if match is None:
                yield at + f'expected `file`: "test", "test", found {entry!r}'
                continue
            file = root / "tests" / match["file"]
            if not file.is_file():
                yield at + f"there is no tests/{match['file']}"
                continue
            there = tests_in(file)
            for name in re.findall(r'"([^"]+)"', match["names"]):
                count += 1
                if name not in there:
                    yield at + f'tests/{match["file"]} has no test "{name}"'
    if count < least:
        yield f"{page}: expected {least} names of tests or more, found {count}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        if not (root / page).parent.joinpath(link).exists():
            yield f"{page}: there is no {link}"


def main():
    root = Path(sys.argv[1])
    problems = [p for page, least in LEAST_TESTS.items() for p in problems_of(root, page, least)]
    print("\n".join(problems) if problems else "all tests that the pages name are there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
