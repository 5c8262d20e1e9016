# SPDX-License-Identifier: BSL-1.0
"""The test readme/outputs: the programs must print the output shown in README.md and docs/.

    outputs.py <the repository> <the folder of the programs>

A block ```text output examples/NAME.cpp has the complete output of penstock_NAME. Numbers with a
decimal point may differ by a hundredth, because compilers round differently.
"""

import re
import subprocess
import sys
from pathlib import Path

from code_blocks import blocks_of, pages_of

NUMBER = re.compile(r"(-?\d+\.\d+)")


def is_same(expected, found):
    ours, theirs = NUMBER.split(expected), NUMBER.split(found)
    if len(ours) != len(theirs):
        return False
    return all(
        abs(float(a) - float(b)) <= 0.01 * abs(float(a)) if i % 2 else a == b
        for i, (a, b) in enumerate(zip(ours, theirs))
    )


def main():
    root, programs = Path(sys.argv[1]), Path(sys.argv[2])
    problems, count = [], 0
    for page in pages_of(root):
        for number, _, words, lines in blocks_of(page):
            if words[:1] != ["output"]:
                continue
            count += 1
            program = programs / f"penstock_{Path(words[1]).stem}"
            if not program.exists():
                problems.append(f"{page}:{number}: {program} is not built")
                continue
            run = subprocess.run([program], capture_output=True, text=True, check=False)
            expected = "\n".join(lines) + "\n"
            if run.returncode != 0 or not is_same(expected, run.stdout):
                problems.append(f"{page}:{number}: {words[1]} prints\n{run.stdout}{run.stderr}")
    if count < 7:
        problems.append(f"expected 7 outputs or more, found {count}")
    print("\n".join(problems) if problems else f"{count} outputs are as they are written")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
