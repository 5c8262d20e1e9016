# SPDX-License-Identifier: BSL-1.0
"""The test docs/prose: comments and pages are plain English, as far as a script can see.

    prose.py <the repository>            compares each folder with its budget
    prose.py --list <the repository>     lists every match with file, line and rule
    prose.py --lower <the repository>    lowers the budgets to what the folders have now

A sentence matches if it breaks one of the rules below. A match is a sentence to look at, and not
always wrong, so each folder has a budget of matches in prose_budgets.json. Budgets only fall:
--lower never raises one, and a folder without an entry has a budget of 0.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

BUDGETS = Path(__file__).with_name("prose_budgets.json")
CODE = {".hpp", ".cpp", ".cu", ".cuh", ".h"}

# A rule: its pattern, a sentence that breaks it, and a sentence that does not.
RULES = {
    "repeat the noun instead of 'one'": (
        r"\b(the|an?|this|that|each|another|other|last|first|next|new|old|every|which|same)"
        r" ones?\b(?!-)|\bones\b",
        "Releases the next one.",
        "Releases the next batch.",
    ),
    "start with a verb or a noun": (
        r"^(what|where|who|whose|whom|which|whether|how)\b(?![^.]*\?)"
        r"|^(that of|those of|of|by what|for what|with what|to what|from what|as of)\b",
        "What the transforms run on.",
        "The stream that runs the transforms.",
    ),
    "name the subject": (
        r"^(it|this|its|they|these|those|their) (?!is the\b)",
        "It has no effect on batches.",
        "The option has no effect on batches.",
    ),
    "use 'if' for a condition": (
        r"\bwhere (it|there|that|they|this|nobody|nothing|none|one|an?|the|its|no)\b[^.]*"
        r"\b(is|are|was|has|have|does|do|can|can't|may|must|needs?|gives?|takes?|says?)\b",
        "Waits where the device has no room.",
        "Waits if the device has no room.",
    ),
    "functions return, report and call": (
        r"\b(says?|said|tells?|told|asks?|asked|asking)\b",
        "The device says when the copy ends.",
        "The device reports when the copy ends.",
    ),
    "negate the verb": (
        r"\b(is|are|was|were|be) (no|none)\b(?! longer)|\bnone of\b",
        "There is no copy of a lease.",
        "A lease cannot be copied.",
    ),
    "use everyday words": (
        r"\b(anew|meanwhile|besides?|thereby|thereof|therein|whatever|whichever|lest|hence|thus"
        r"|upon|henceforth|nor|likewise)\b|\bbut for\b|\bfrom [\w'-]+( [\w'-]+)? on\b"
        r"|\blets? go\b|\bgives? (it |them )?back\b|\bfor good\b|\bas (above|before)\b",
        "The slot is lost for good.",
        "The slot is lost permanently.",
    ),
}
PATTERNS = {rule: re.compile(pattern, re.IGNORECASE) for rule, (pattern, _, _) in RULES.items()}


def files_of(root):
    for path in sorted([*root.glob("*.md"), *root.glob("[a-z]*/**/*")]):
        parts = path.relative_to(root).parts
        if "build" in parts[:1] or "results" in parts[1:2]:
            continue
        if path.name != "CHANGELOG.md" and (path.suffix in CODE or path.suffix == ".md"):
            yield path


def folder_of(root, path):
    """Returns the folder whose budget counts a file: a room of include or tests, or a top folder.
    """
    parts = path.relative_to(root).parts[:-1]
    depth = {"include": 3, "tests": 2}.get(parts[0] if parts else "", 1)
    return "/".join(parts[:depth]) or "."


def paragraphs_of_page(lines):
    """Yields each paragraph outside of code and tables, with the number of its first line."""
    text, start, is_code = [], 0, False
    for number, line in enumerate([*lines, ""], start=1):
        bare = line.strip()
        is_fence = bare.startswith("```")
        is_item = re.match(r"([-*]|\d+\.) ", bare)
        ends = is_code or is_fence or not bare or bare[0] in "|#!<" or line.startswith("    ")
        if (ends or is_item) and text:
            yield start, " ".join(text)
            text = []
        is_code ^= is_fence
        if not ends:
            start = start if text else number
            text.append(re.sub(r"^([-*]|\d+\.) ", "", bare))


def paragraphs_of_code(lines):
    """Yields each comment, with the number of its first line."""
    text, start, mark = [], 0, None
    for number, line in enumerate([*lines, ""], start=1):
        whole = re.match(r"\s*(///?)(?!<)\s?(.*)$", line)
        body = whole[2] if whole else ""
        is_text = body.strip() and not re.match(r"   |\s*(SPDX|clang-format|@|NOLINT)", body)
        if text and (not is_text or whole[1] != mark):
            yield start, " ".join(text)
            text = []
        if is_text:
            start, mark = start if text else number, whole[1]
            text.append(body.strip())
        elif not whole and (trailing := re.search(r"(?:///<|[;{,)}]\s+//)\s*(.+)$", line)):
            if not trailing[1].startswith("NOLINT"):
                yield number, trailing[1].strip()


def sentences_of(text):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for part in re.split(r"(?<=[.!?:])\s+(?=[A-Z`\"])|;\s+", text):
        if len(part.split()) >= 3:
            yield part.strip(" *_")


def matches_of(path):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    find = paragraphs_of_page if path.suffix == ".md" else paragraphs_of_code
    for number, text in find(lines):
        for sentence in sentences_of(text):
            plain = re.sub(r"`[^`]*`", "code", sentence)
            broken = [rule for rule, pattern in PATTERNS.items() if pattern.search(plain)]
            if broken:
                yield number, broken, sentence


def counts_of(root):
    counts = {}
    for path in files_of(root):
        folder = folder_of(root, path)
        counts[folder] = counts.get(folder, 0) + sum(1 for _ in matches_of(path))
    return counts


def problems(counts, budgets):
    return [
        f"{folder}: {count} sentences match, {budgets.get(folder, 0)} at most: see --list"
        for folder, count in sorted(counts.items())
        if count > budgets.get(folder, 0)
    ]


def require(condition, what):
    if not condition:
        raise SystemExit(f"prose.py does not work: {what}")


def check_itself():
    for rule, (_, bad, good) in RULES.items():
        require(PATTERNS[rule].search(bad), f"'{bad}' breaks no rule '{rule}'")
        require(not any(p.search(good) for p in PATTERNS.values()), f"'{good}' breaks a rule")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "include/penstock/core").mkdir(parents=True)
        header = root / "include/penstock/core/a.hpp"
        header.write_text("/// Returns the slot.\nint a();\n", encoding="utf-8")
        require(not problems(counts_of(root), {}), "a plain comment is rejected")
        header.write_text(
            "/// Returns the slot. What it\n/// holds stays.\nint a();  // of the last one\n",
            encoding="utf-8",
        )
        counts = counts_of(root)
        require(counts == {"include/penstock/core": 2}, f"two bad comments count as {counts}")
        require(problems(counts, {"include/penstock/core": 1}), "a budget that is exceeded passes")
        require(not problems(counts, {"include/penstock/core": 2}), "a budget that is met fails")


def main(arguments):
    check_itself()
    root = Path(arguments[-1])
    if arguments[0] == "--list":
        for path in files_of(root):
            for number, broken, sentence in matches_of(path):
                print(f"{path.relative_to(root)}:{number}: [{'; '.join(broken)}] {sentence}")
        return 0
    counts = counts_of(root)
    if not any(folder.startswith("include/") for folder in counts):
        print(f"{root} has no comments: expected the folder of the repository")
        return 1
    budgets = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
    if arguments[0] == "--lower":
        first = not budgets
        lowered = {
            folder: count if first else min(count, budgets.get(folder, 0))
            for folder, count in sorted(counts.items())
        }
        lowered = {folder: count for folder, count in lowered.items() if count}
        BUDGETS.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
        return 0
    found = problems(counts, budgets)
    for line in found:
        print(line)
    if not found:
        print(f"{sum(counts.values())} sentences match, within the budgets of {len(budgets)} folders")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
