# SPDX-License-Identifier: BSL-1.0
"""The test docs/promises: each promise and fault has a test, and each tag names one of them.

    promises.py check <the repository>
    promises.py list <the repository>      Markdown: the tests of each promise and fault

docs/guarantees.md and docs/faults.md have rows `| exact-1 | what holds | ...`. A test case names
its rows by tags, "[promise:exact-1]", "[fault:files-2]"; other files by a comment,
`# promise: exact-1`, or `# promise: exact-1: name name` with words that are also in the file.
"""

import re
import sys
from pathlib import Path

PAGES = {"promise": "docs/guarantees.md", "fault": "docs/faults.md"}
SUFFIXES = {".cpp", ".cu", ".py", ".txt"}
ROW = re.compile(r"^\| ([a-z-]+-\d+) \| (.*?) \|", re.MULTILINE)
TEXTS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
TEST_CASE = re.compile(rf"TEST_CASE(?:_METHOD)?\((?:\w+,\s*)?\s*({TEXTS}),\s*({TEXTS})[,)]")
TAG = re.compile(r"\[(promise|fault):([^\]]*)\]")
COMMENT = re.compile(r"^ *(?:#|//) (promise|fault): ([\w-]+)(?:: ([\w ]+))?$", re.MULTILINE)


def joined(texts):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', texts))


def rows_of(root):
    """Returns {(kind, id): text in the page}, in page order, and the problems."""
    rows, problems = {}, []
    for kind, page in PAGES.items():
        for name, text in ROW.findall((root / page).read_text(encoding="utf-8")):
            if (kind, name) in rows:
                problems.append(f"{page}: {name} is there twice")
            rows[kind, name] = text
    return rows, problems


def tags_of(root):
    """Returns the file, kind, id and test of each tag, and the problems."""
    tags, problems = [], []
    for file in sorted((root / "tests").rglob("*")):
        if file.suffix not in SUFFIXES or file == Path(__file__).resolve():
            continue
        short = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        held = 0
        for name, tag_text in TEST_CASE.findall(text):
            found = TAG.findall(joined(tag_text))
            held += len(found)
            tags += [(short, tag, f'"{joined(name)}"') for tag in found]
        if held < len(TAG.findall(text)):
            problems.append(f"{short}: a tag of a promise is in no TEST_CASE")
        words = set(re.findall(r"\w+", re.sub(r"(#|//).*", "", text)))
        for kind, name, tests in COMMENT.findall(text):
            missing = [test for test in tests.split() if test not in words]
            problems += [f"{short}: {name}: there is no {test}" for test in missing]
            tags.append((short, (kind, name), ", ".join(f'"{test}"' for test in tests.split())))
    return tags, problems


def check(rows, tags):
    named = {tag for _, tag, _ in tags}
    for (kind, name), _ in rows.items():
        if (kind, name) not in named:
            yield f"{PAGES[kind]}: {name} has no test with [{kind}:{name}]"
    for file, (kind, name), test in tags:
        if (kind, name) not in rows:
            yield f"{file}: {test}: {PAGES[kind]} has no {name}"


def listing(rows, tags):
    yield "# Tests of the promises {#tests_of_promises}\n"
    yield "What `docs/guarantees.md` promises and `docs/faults.md` makes fail, and by which tests."
    section = None
    for (kind, name), text in rows.items():
        if section != (section := name.rpartition("-")[0]):
            yield f"\n## {section.capitalize()}"
        yield f"\n**{name}**: {text}\n"
        files = {}
        for file, tag, test in tags:
            if tag == (kind, name):
                files.setdefault(file, []).extend([test] if test else [])
        for file, tests in files.items():
            yield f"- `{file}`" + (f": {', '.join(tests)}" if tests else "")


def main():
    root = Path(sys.argv[2]).resolve()
    rows, problems = rows_of(root)
    tags, more = tags_of(root)
    if sys.argv[1] == "list":
        print("\n".join(listing(rows, tags)))
        return 0
    problems += [*more, *check(rows, tags)]
    print("\n".join(problems) if problems else f"{len(rows)} promises and faults, {len(tags)} tags")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
