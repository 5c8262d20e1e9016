# SPDX-License-Identifier: BSL-1.0
"""The test docs/licences: every source file begins with the line that names its licence.

    licences.py <the repository>

The test exists because users copy single files of a header-only library. After a `#!` line, the
second line names the licence. The repository root must contain only the expected files, and no
generated files, in git.
"""

import subprocess
import sys
from pathlib import Path

LINE = "SPDX-License-Identifier: BSL-1.0"
FOLDERS = (".ci", ".github", "bench", "cmake", "docs", "examples", "include", "packaging", "tests")
SUFFIXES = {".cmake", ".cpp", ".cu", ".cuh", ".hpp", ".py", ".sh", ".yml"}
NAMES = {"CMakeLists.txt", "Doxyfile", "run"}
AT_THE_ROOT = {".clang-format", ".clang-tidy", ".editorconfig", ".gitignore", "CHANGELOG.md",
               "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "README.md",
               "SECURITY.md", "conanfile.py"}  # fmt: skip


def sources_of(root):
    found = [path for path in root.glob("*") if path.is_file()]
    for folder in FOLDERS:
        found += (path for path in (root / folder).rglob("*") if path.is_file())
    for path in sorted(found):
        parts = path.relative_to(root).parts
        if "build" in parts or parts[:2] == ("bench", "results"):
            continue
        name = Path(path.name.removesuffix(".in"))
        if name.suffix in SUFFIXES or name.name in NAMES:
            yield path


def strangers_at(root):
    """Returns unexpected names at the root that git tracks. Returns an empty result without git."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    except OSError:
        return set()
    tops = {name.split("/")[0] for name in listed.decode().split("\0") if name}
    return tops - AT_THE_ROOT - set(FOLDERS)


def main():
    root = Path(sys.argv[1]).resolve()
    strangers = sorted(strangers_at(root))
    for name in strangers:
        print(f"{name}: does not belong at the root: does a program write it there?")
    sources = list(sources_of(root))
    without = []
    for path in sources:
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        if LINE not in (rest.partition("\n")[0] if first.startswith("#!") else first):
            without.append(str(path.relative_to(root)))
    for path in without:
        print(f"{path}: its first line does not say {LINE}")
    if not sources:
        print(f"{root}: no sources")
    else:
        print(f"{len(sources)} sources, {len(without)} without the line")
    sys.exit(1 if without or strangers or not sources else 0)


if __name__ == "__main__":
    main()
