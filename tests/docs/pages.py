# SPDX-License-Identifier: BSL-1.0
"""The test docs/pages: the targets of links and paths exist, and pages keep their form.

    pages.py <the repository>

- A relative link leads to a file or folder, its anchor to a heading of that page.
- A path of this repository in a block of commands, or in `backticks`, exists.
- Lines have at most 100 columns, and cells of tables 160. Output of programs may have more.
- README.md has at most 120 lines and 900 words, and names the two commands that a visitor runs
  first. An entry of CHANGELOG.md is one line, and a version that is not released yet fixes nothing.
- docs/images/loaders.svg has the figures of the result that docs/benchmarks.md draws it from.
- `[N lines](FILE)` in docs/existing_code.md is a count of code: lines with a letter or digit outside
  of comments. In a file with `namespace before` and `namespace after`, they are the lines of one of
  them: of `before` for the first link of a table row, and of `after` for the second.
- A text in docs/troubleshooting.md that is quoted from the library is in its headers.
- The first C++ or Python code of a guide begins in its first 25 lines. It is a whole program of
  fewer than 40 lines that a test runs. The program, or the text up to 20 lines after it, names a
  header and a CMake target. A guide ends with the section "Limits". All pages of docs/ are guides
  except REFERENCES.
"""

import json
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))
from reporting.results import fastest_loaders  # noqa: E402

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)", re.DOTALL)
FOLDERS = "bench|cmake|docs|examples|include|packaging|tests"
PATH = re.compile(rf"(?<![\w./$-])(?:{FOLDERS})/[\w./-]*\w")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHART_OF = re.compile(r"bench/report\.py --loaders (\S+\.json)\s+(?:\\\s+)?(\S+\.svg)")
REFERENCES = {"benchmarks", "catalogue", "design", "faults", "glossary", "guarantees", "install"}
REFERENCES |= {"main_page", "support", "troubleshooting"}
SAID = re.compile(r"^- (?:thrown|compiler): `([^`]+)`", re.MULTILINE)


def pages_of(root):
    found = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("bench/**/*.md")]
    found += [*root.glob("tests/**/README.md"), *root.glob("examples/**/*.md")]
    return sorted(page for page in found if "results" not in page.parts)


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors_of(page):
    """Returns GitHub's anchors of the headings of a page."""
    anchors = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (anchor if number == 0 else f"{anchor}-{number}") in anchors:
            number += 1
        anchors.add(anchor if number == 0 else f"{anchor}-{number}")
    return anchors


def link_problems(root, page, text):
    for link in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        to = page if path == "" else (page.parent / path).resolve()
        if not to.exists() or not to.is_relative_to(root):
            yield f"there is no {link}"
        elif anchor and to.suffix == ".md" and anchor not in anchors_of(to):
            yield f"{path or 'the page'} has no heading #{anchor}"


def path_problems(root, text):
    commands = [body for words, body in FENCE.findall(text) if words.split()[:1] == ["sh"]]
    commands += re.findall(r"(?:^    .*\n)+", FENCE.sub("", text), re.MULTILINE)
    code = "\n".join([*commands, *re.findall(r"`([^`\n]+)`", FENCE.sub("", text))])
    for path in sorted(set(PATH.findall(code))):
        if (root / path).exists() or (root / "tests" / path).exists():
            continue
        if not any(root.glob(path + ".*")):
            yield f"there is no {path}"


def form_problems(text):
    printed = "\n".join(re.findall(r"^```text.*?^```$", text, re.MULTILINE | re.DOTALL))
    for line in text.splitlines():
        cells = line.split("|") if line.startswith("|") else [line]
        widest = max(map(len, cells))
        if widest <= (100 if len(cells) == 1 else 160) or line in printed:
            continue
        if not SAID.match(line):
            yield f"{widest} columns: {line[:60]}..."


def chart_problems(root, text):
    """Draws nothing, because matplotlib may be missing. The test bench/report draws the chart."""
    commands = CHART_OF.findall(text)
    if not commands:
        yield "expected the command that draws docs/images/loaders.svg"
    for result, chart in commands:
        drawn = (root / chart).read_text(encoding="utf-8")
        report = json.loads((root / result).read_text(encoding="utf-8"))
        for name, _, figure in fastest_loaders(report):
            if not all(f">{said}</text>" in drawn for said in (name, figure)):
                yield f"{chart} does not say that {name} has {figure}"


def code_lines(text, name):
    """Returns the number of lines of code in the namespace `name`, or in all of `text`."""
    inside = re.search(rf"^namespace {name} \{{$.*?^\}}  // namespace {name}$", text, re.M | re.S)
    code = re.sub(r"//.*", "", inside[0] if inside else text)
    return sum(1 for line in code.splitlines() if re.search(r"\w", line))


def count_problems(page, text):
    counts = 0
    for row in text.splitlines():
        links = re.findall(r"\[(\d+) lines\]\(([^()\s]+)\)", row)
        for (said, file), name in zip(links, ("before", "after")):
            found = code_lines((page.parent / file).read_text(encoding="utf-8"), name)
            counts += 1
            if found != int(said):
                yield f"{file} has {found} lines ({name}), not {said}"
    if counts < 8:
        yield f"expected 8 counts of lines or more, found {counts}"


def texts_of_headers(root):
    """Returns all string literals in the headers, with adjacent literals joined."""
    text = "\n".join(
        file.read_text(encoding="utf-8") for file in sorted(root.glob("include/**/*.[hc]*"))
    )
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    return re.sub(r'"\s*\n?\s*"', "", text)


def text_problems(root, text):
    literals = texts_of_headers(root)
    said = SAID.findall(text)
    if len(said) < 25:
        yield f"expected 25 texts of the library or more, found {len(said)}"
    for message in said:
        for part in message.split(" ... "):
            if part.strip(". ") not in literals:
                yield f"no header says: {part}"


def is_whole_program(words, body):
    """Returns true if a test runs these lines as a program (see tests/readme/code_blocks.py)."""
    if words[0] == "python":
        return words[1:] == ["program"]
    return "fragment" not in words and "int main(" in body and "// ..." not in body


def guide_problems(text, targets):
    first = re.search(r"^```((?:cpp|python)\b.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    begin = text.count("\n", 0, first.start()) + 1 if first else 0
    lines = first[2].count("\n") if first else 0
    if not first or begin > 25:
        yield "a guide has a program in its first 25 lines"
    elif not is_whole_program(first[1].split(), first[2]):
        yield f"a guide begins with a whole program, not with lines of one: ```{first[1]}"
    elif lines >= 40:
        yield f"the first program of a guide has fewer than 40 lines, not {lines}"
    else:
        near = "\n".join(text.splitlines()[: begin + lines + 21])
        if not re.search(r"\w\.(?:hpp|cuh)\b", near):
            yield "a guide names its header at its first program"
        if not targets & set(re.findall(r"`(penstock::\w+)`", FENCE.sub("", near))):
            yield "a guide names its CMake target at its first program"
    if not (sections := re.findall(r"^## (.*)$", text, re.MULTILINE)) or sections[-1] != "Limits":
        yield "a guide ends with the section Limits"


def targets_of(root):
    """Returns the CMake targets in the table of docs/install.md."""
    text = (root / "docs/install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`penstock::.*?) \|", text, re.MULTILINE)
    return {target for row in rows for target in re.findall(r"`(penstock::\w+)`", row)}


def problems_of(root):
    targets = targets_of(root)
    for page in pages_of(root):
        text = page.read_text(encoding="utf-8")
        short = page.relative_to(root).as_posix()
        ours = "/" not in short or short.startswith("docs/")
        problems = [*link_problems(root, page, text), *path_problems(root, text)]
        if ours:
            problems += form_problems(text)
        if short.startswith("docs/") and page.stem not in REFERENCES:
            problems += guide_problems(text, targets)
        if short == "README.md":
            lines, words = len(text.splitlines()), len(text.split())
            if lines > 120 or words > 900:
                problems.append(f"{lines} lines and {words} words: 120 and 900 at most")
            for command in ("bash examples/run.sh", "bash tests/run.sh"):
                if f"`{command}`" not in text:
                    problems.append(f"the command `{command}` is missing")
        if short == "CHANGELOG.md" and re.search(r"^  \S", text, re.MULTILINE):
            problems.append("an entry is one line")
        if short == "CHANGELOG.md" and "### Fixed" in text.partition("not released yet")[2]:
            problems.append("a version that is not released fixes nothing for users")
        if short == "docs/benchmarks.md":
            problems += chart_problems(root, text)
        if short == "docs/existing_code.md":
            problems += count_problems(page, text)
        if short == "docs/troubleshooting.md":
            problems += text_problems(root, text)
        yield from (f"{short}: {problem}" for problem in problems)


def main():
    problems = list(problems_of(Path(sys.argv[1]).resolve()))
    print("\n".join(problems) if problems else "all that the pages point to is there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
