# SPDX-License-Identifier: BSL-1.0
"""Makes one C++ source from all code in README.md and docs/, for the test readme/code.

    code_blocks.py <the repository> <source to write> [<page>...]

Checks all pages. If pages are named, only their code is in the source.

The words after the language of the fence mean:

    cpp                    a whole program: its main function becomes a function that is called
    cpp with jpeg png      a program that needs these components; prelude.hpp makes its files
    cpp fragment           statements on the CPU device, with the names of prelude.hpp
    cpp fragment cuda      statements on the CUDA device, which is the fake
    cpp excerpt FILE       lines of FILE; a line "// ..." replaces omitted lines
    text output FILE       the output of the program FILE, which readme/outputs compares
    python                 must parse
    python program         a whole program, which tests/python/check.py runs

A table below `<!-- options: TYPE -->`, or `<!-- options: TYPE with jpeg -->` if the type needs a
component, lists the members of an options aggregate: the first cell of a row is `.name`, the cell under "default" its default value, as C++ or empty. It becomes an
initialiser in the order of the rows, and the values are compared with those of `TYPE{}`.
"""

import ast
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^```(\w*)(.*)$")
LAUNCH = re.compile(r"([A-Za-z_0-9:]+)<<<([^>]*)>>>\(")
OPTIONS = re.compile(r"^<!-- options: (\S+)(?: with (\w+))? -->$")


class Problem(Exception):
    pass


def pages_of(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]


def blocks_of(page):
    """Yields the first line number, language, words and lines of each fenced block."""
    inside = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = (number + 1, fence[1], fence[2].split(), [])
        elif inside is not None and line == "```":
            yield inside
            inside = None
        elif inside is not None:
            inside[3].append(line)
    if inside is not None:
        raise Problem(f"{page}:{inside[0] - 1}: the block has no end")


def tables_of(page):
    """Yields the line, a match of OPTIONS, and the rows of each option table. A row maps headings to cells.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        kind = OPTIONS.match(line)
        if not kind:
            continue
        rows = []
        for row in lines[number:]:
            if not row.startswith("|"):
                if rows:
                    break
                continue
            cells = [cell.strip() for cell in row.strip("|").replace(r"\|", "|").split("|")]
            rows.append(cells)
        if len(rows) < 3 or "default" not in rows[0]:
            raise Problem(f"{page}:{number}: expected a table with a column default")
        column = rows[0].index("default")
        yield number, kind, [(row[0].strip("`"), row[column].strip("`")) for row in rows[2:]]


def require_excerpt(root, at, words, lines):
    if len(words) != 2 or not (root / words[1]).is_file():
        raise Problem(f"{at}: expected `cpp excerpt FILE` with a file that is there")
    there = [line.strip() for line in (root / words[1]).read_text(encoding="utf-8").splitlines()]
    there = [line for line in there if line]
    place, run = 0, []
    for line in [*map(str.strip, lines), "// ..."]:
        if line != "// ...":
            run += [line] if line else []
            continue
        found = (i for i in range(place, len(there)) if there[i : i + len(run)] == run)
        begin = next(found, None)
        if begin is None:
            raise Problem(f"{at}: {words[1]} has no such lines, in this order:\n" + "\n".join(run))
        place, run = begin + len(run), []


def function_of(at, words, lines):
    """Returns the name, namespace, text and call of the function that a block becomes."""
    name = "at_" + re.sub(r"\W", "_", at)
    text = "\n".join(lines)
    if words == [] or words[0] == "with":
        if "int main()" not in text:
            raise Problem(f"{at}: a block of cpp is a program, or says fragment or excerpt")
        # Only a function named main implicitly returns 0. It is the last function of a program.
        text = re.sub(r"\n\}\s*$", "\n  return 0;\n}", text)
        return name, "whole", text.replace("int main()", f"int main_{name}()"), f"main_{name}"
    if words not in (["fragment"], ["fragment", "cuda"]):
        raise Problem(f"{at}: unknown kind of block: `cpp {' '.join(words)}`")
    where = "on_cuda" if words[1:] else "on_cpu"
    launched = LAUNCH.sub(
        r"fake_cuda::configured([](const auto&... all) { \1(all...); }, \2)(", text
    )
    return name, where, launched, name


def source_of(root, only):
    parts, calls, found = ['#include "prelude.hpp"'], [], 0
    for page in pages_of(root):
        short = page.relative_to(root).as_posix()
        is_compiled = not only or short in only
        for number, language, words, lines in blocks_of(page):
            at = f"{short}:{number}"
            if language == "python":
                if words not in ([], ["program"]):
                    raise Problem(f"{at}: unknown kind of block: `python {' '.join(words)}`")
                try:
                    ast.parse("\n".join(lines))
                except SyntaxError as error:
                    raise Problem(f"{short}:{number + error.lineno - 1}: {error.msg}") from error
            if language != "cpp":
                continue
            if words[:1] == ["excerpt"]:
                require_excerpt(root, at, words, lines)
                continue
            name, where, text, called = function_of(at, words, lines)
            found += 1
            if not is_compiled:
                continue
            begin = f'#line {number} "{page}"\n{text}\n'
            body = begin if where == "whole" else f"void {name}() {{\n{begin}}}\n"
            if where == "whole":
                body += f"void {name}() {{ if ({called}() != 0) std::abort(); }}\n"
            space = f"whole_{name}" if where == "whole" else where
            # A program is neither compiled nor called if its components are missing.
            needed = [f"defined(PENSTOCK_PAGES_{one.upper()})" for one in words[1:]]
            begin, end = "", ""
            if words[:1] == ["with"]:
                begin, end = f"#if {' && '.join(needed)}\n", "\n#endif"
            parts.append(f"{begin}namespace {space} {{\n{body}}}{end}")
            calls.append(begin + f'{{"{at}", {space}::{name}, {str(where == "on_cuda").lower()}}},' + end)
        for number, kind, rows in tables_of(page):
            found += 1
            if not is_compiled:
                continue
            name = f"options_{len(calls)}"
            written = ", ".join(f"{option} = {{}}" for option, _ in rows)
            names = ", ".join(f"m{i}" for i in range(len(rows)))
            checks = "".join(
                f'  require_default("{option}", usual{option}, decltype(usual{option})({value}));\n'
                for option, value in rows
                if value
            )
            begin, end = "", ""
            if kind[2]:
                begin, end = f"#ifdef PENSTOCK_PAGES_{kind[2].upper()}\n", "\n#endif"
            parts.append(
                f'{begin}void {name}() {{\n#line {number} "{page}"\n'
                f"  [[maybe_unused]] const {kind[1]} in_this_order{{{written}}};\n"
                f"  [[maybe_unused]] const auto& [{names}] = in_this_order;  // no others\n"
                f"  const {kind[1]} usual{{}};\n{checks}}}{end}"
            )
            calls.append(begin + f'{{"{short}:{number}", {name}, false}},' + end)
    if found < 16:
        raise Problem(f"expected 16 blocks and tables or more, found {found}")
    return "\n".join([*parts, "int main() { return run_all({", *calls, "}); }"]) + "\n"


def main():
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        text = source_of(root, sys.argv[3:])
    except Problem as problem:
        print(problem)
        return 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
